//! AVX-512 (F, BW, DQ, VL): 16 lanes, 32 registers.

use std::arch::x86_64::*;

use super::Simd;
use super::avx2::sum4;

/// AVX-512 F, BW, DQ and VL.
#[derive(Clone, Copy)]
pub(crate) struct Avx512;

// Every SAFETY note below: the trait's contract gives the instruction set and valid pointers; the
// intrinsics used here need nothing else (all loads and stores are the unaligned ones).
#[allow(clippy::undocumented_unsafe_blocks, reason = "one note for all, above")]
impl Simd for Avx512 {
    type V = __m512;
    const LANES: usize = 16;

    #[inline(always)]
    unsafe fn splat(x: f32) -> __m512 {
        unsafe { _mm512_set1_ps(x) }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> __m512 {
        unsafe { _mm512_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> __m512 {
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())) }
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> __m512 {
        unsafe {
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        }
    }

    #[inline(always)]
    unsafe fn load_granule(from: *const f32) -> __m512 {
        unsafe { _mm512_zextps256_ps512(_mm256_loadu_ps(from)) }
    }

    #[inline(always)]
    unsafe fn load_granule_f16(from: *const u16) -> __m512 {
        unsafe { _mm512_cvtph_ps(_mm256_zextsi128_si256(_mm_loadu_si128(from.cast()))) }
    }

    #[inline(always)]
    unsafe fn load_granule_bf16(from: *const u16) -> __m512 {
        unsafe {
            let wide = _mm512_cvtepu16_epi32(_mm256_zextsi128_si256(_mm_loadu_si128(from.cast())));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        }
    }

    #[inline(always)]
    unsafe fn store(to: *mut f32, v: __m512) {
        unsafe { _mm512_storeu_ps(to, v) }
    }

    #[inline(always)]
    unsafe fn load_quad(from: *const f32) -> __m512 {
        unsafe { _mm512_broadcast_f32x4(_mm_loadu_ps(from)) }
    }

    #[inline(always)]
    unsafe fn store_quad(to: *mut f32, v: __m512) {
        unsafe { _mm_storeu_ps(to, _mm512_castps512_ps128(v)) }
    }

    #[inline(always)]
    unsafe fn exchange<const D: usize>(v: __m512) -> __m512 {
        unsafe {
            match D {
                1 => _mm512_permute_ps::<0b10_11_00_01>(v),
                2 => _mm512_permute_ps::<0b01_00_11_10>(v),
                4 => _mm512_shuffle_f32x4::<0b10_11_00_01>(v, v),
                _ => _mm512_shuffle_f32x4::<0b01_00_11_10>(v, v),
            }
        }
    }

    #[inline(always)]
    unsafe fn add(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_add_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn sub(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_sub_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn mul(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn fma(a: __m512, b: __m512, c: __m512) -> __m512 {
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    unsafe fn max(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_max_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn round(a: __m512) -> __m512 {
        unsafe { _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a) }
    }

    #[inline(always)]
    unsafe fn scale_by_power(p: __m512, n: __m512) -> __m512 {
        unsafe { _mm512_scalef_ps(p, n) }
    }

    #[inline(always)]
    unsafe fn zero_where_less(x: __m512, limit: f32, v: __m512) -> __m512 {
        unsafe {
            let keep = _mm512_cmp_ps_mask::<_CMP_NLT_UQ>(x, _mm512_set1_ps(limit));
            _mm512_maskz_mov_ps(keep, v)
        }
    }

    #[inline(always)]
    unsafe fn sum4(to: *mut f32, v: [__m512; 4]) {
        unsafe {
            _mm_storeu_ps(to, sum4([fold(v[0]), fold(v[1]), fold(v[2]), fold(v[3])]));
        }
    }
}

/// Adds the upper half to the lower.
#[inline(always)]
unsafe fn fold(v: __m512) -> __m256 {
    // SAFETY: called by `sum4` alone, under the trait's contract.
    unsafe { _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v)) }
}
