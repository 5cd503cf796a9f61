//! AVX2 with FMA and F16C: 8 lanes, 16 registers.

use std::arch::x86_64::*;

use super::Simd;

/// AVX2, FMA and F16C.
#[derive(Clone, Copy)]
pub(crate) struct Avx2;

// Every SAFETY note below: the trait's contract gives the instruction set and valid pointers; the
// intrinsics used here need nothing else (all loads and stores are the unaligned ones).
#[allow(clippy::undocumented_unsafe_blocks, reason = "one note for all, above")]
impl Simd for Avx2 {
    type V = __m256;
    const LANES: usize = 8;

    #[inline(always)]
    unsafe fn splat(x: f32) -> __m256 {
        unsafe { _mm256_set1_ps(x) }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> __m256 {
        unsafe { _mm256_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> __m256 {
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(from.cast())) }
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> __m256 {
        unsafe {
            let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
        }
    }

    #[inline(always)]
    unsafe fn load_granule(from: *const f32) -> __m256 {
        unsafe { Self::load(from) }
    }

    #[inline(always)]
    unsafe fn load_granule_f16(from: *const u16) -> __m256 {
        unsafe { Self::load_f16(from) }
    }

    #[inline(always)]
    unsafe fn load_granule_bf16(from: *const u16) -> __m256 {
        unsafe { Self::load_bf16(from) }
    }

    #[inline(always)]
    unsafe fn store(to: *mut f32, v: __m256) {
        unsafe { _mm256_storeu_ps(to, v) }
    }

    #[inline(always)]
    unsafe fn add(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_add_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn sub(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_sub_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn mul(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_mul_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn fma(a: __m256, b: __m256, c: __m256) -> __m256 {
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    unsafe fn max(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_max_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn round(a: __m256) -> __m256 {
        unsafe { _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a) }
    }

    #[inline(always)]
    unsafe fn scale_by_power(p: __m256, n: __m256) -> __m256 {
        unsafe {
            let exponent = _mm256_slli_epi32::<23>(_mm256_cvtps_epi32(n));
            _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), exponent))
        }
    }

    #[inline(always)]
    unsafe fn zero_where_less(x: __m256, limit: f32, v: __m256) -> __m256 {
        unsafe { _mm256_and_ps(v, _mm256_cmp_ps::<_CMP_NLT_UQ>(x, _mm256_set1_ps(limit))) }
    }

    #[inline(always)]
    unsafe fn sum4(to: *mut f32, v: [__m256; 4]) {
        unsafe {
            let ab = _mm256_hadd_ps(v[0], v[1]);
            let cd = _mm256_hadd_ps(v[2], v[3]);
            let halves = _mm256_hadd_ps(ab, cd);
            let low = _mm256_castps256_ps128(halves);
            let high = _mm256_extractf128_ps::<1>(halves);
            _mm_storeu_ps(to, _mm_add_ps(low, high));
        }
    }

    #[inline(always)]
    unsafe fn prefetch(at: *const u8) {
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }
}
