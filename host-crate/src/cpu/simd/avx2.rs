//! AVX2 with FMA and F16C: 8 lanes, 16 registers.

use std::arch::asm;
use std::arch::x86_64::*;
use std::mem::transmute_copy;

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
    unsafe fn load_quad(from: *const f32) -> __m256 {
        unsafe { _mm256_broadcast_ps(&*from.cast()) }
    }

    #[inline(always)]
    unsafe fn store_quad(to: *mut f32, v: __m256) {
        unsafe { _mm_storeu_ps(to, _mm256_castps256_ps128(v)) }
    }

    #[inline(always)]
    unsafe fn exchange<const D: usize>(v: __m256) -> __m256 {
        unsafe {
            match D {
                1 => _mm256_permute_ps::<0b10_11_00_01>(v),
                2 => _mm256_permute_ps::<0b01_00_11_10>(v),
                _ => _mm256_permute2f128_ps::<0x01>(v, v),
            }
        }
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
            _mm_storeu_ps(to, sum4(v));
        }
    }

    #[inline(always)]
    unsafe fn add_weighted<const H: usize, const W: usize>(
        weights: *const f32,
        v: [__m256; W],
        sums: [[__m256; W]; H],
    ) -> [[__m256; W]; H] {
        unsafe {
            if H == 4 && W == 3 {
                // SAFETY: `H` is 4 and `W` is 3, so each copy is from a type to itself.
                let sums = add_weighted_4x3(weights, transmute_copy(&v), transmute_copy(&sums));
                return transmute_copy(&sums);
            }
            super::add_weighted::<Self, H, W>(weights, v, sums)
        }
    }
}

/// The sums of the lanes of four vectors.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn sum4(v: [__m256; 4]) -> __m128 {
    // Two shuffles and an addition take less than the horizontal addition.
    let ab = _mm256_add_ps(
        _mm256_unpacklo_ps(v[0], v[1]),
        _mm256_unpackhi_ps(v[0], v[1]),
    );
    let cd = _mm256_add_ps(
        _mm256_unpacklo_ps(v[2], v[3]),
        _mm256_unpackhi_ps(v[2], v[3]),
    );
    let first = _mm256_shuffle_ps::<0x44>(ab, cd);
    let second = _mm256_shuffle_ps::<0xee>(ab, cd);
    let halves = _mm256_add_ps(first, second);
    _mm_add_ps(
        _mm256_castps256_ps128(halves),
        _mm256_extractf128_ps::<1>(halves),
    )
}

/// [`Simd::add_weighted`] for 4 heads and 3 vectors: 12 sums, 3 values and one weight at a time are all
/// 16 registers.
///
/// # Safety
/// `weights` points to four values.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn add_weighted_4x3(
    weights: *const f32,
    v: [__m256; 3],
    sums: [[__m256; 3]; 4],
) -> [[__m256; 3]; 4] {
    let [[mut a0, mut a1, mut a2], [mut b0, mut b1, mut b2], c, d] = sums;
    let [[mut c0, mut c1, mut c2], [mut d0, mut d1, mut d2]] = [c, d];
    // SAFETY: reads the four weights that the caller promises, and nothing else.
    unsafe {
        asm!(
            "vbroadcastss {w}, dword ptr [{p}]",
            "vfmadd231ps {a0}, {w}, {v0}",
            "vfmadd231ps {a1}, {w}, {v1}",
            "vfmadd231ps {a2}, {w}, {v2}",
            "vbroadcastss {w}, dword ptr [{p} + 4]",
            "vfmadd231ps {b0}, {w}, {v0}",
            "vfmadd231ps {b1}, {w}, {v1}",
            "vfmadd231ps {b2}, {w}, {v2}",
            "vbroadcastss {w}, dword ptr [{p} + 8]",
            "vfmadd231ps {c0}, {w}, {v0}",
            "vfmadd231ps {c1}, {w}, {v1}",
            "vfmadd231ps {c2}, {w}, {v2}",
            "vbroadcastss {w}, dword ptr [{p} + 12]",
            "vfmadd231ps {d0}, {w}, {v0}",
            "vfmadd231ps {d1}, {w}, {v1}",
            "vfmadd231ps {d2}, {w}, {v2}",
            p = in(reg) weights,
            w = out(ymm_reg) _,
            v0 = in(ymm_reg) v[0], v1 = in(ymm_reg) v[1], v2 = in(ymm_reg) v[2],
            a0 = inout(ymm_reg) a0, a1 = inout(ymm_reg) a1, a2 = inout(ymm_reg) a2,
            b0 = inout(ymm_reg) b0, b1 = inout(ymm_reg) b1, b2 = inout(ymm_reg) b2,
            c0 = inout(ymm_reg) c0, c1 = inout(ymm_reg) c1, c2 = inout(ymm_reg) c2,
            d0 = inout(ymm_reg) d0, d1 = inout(ymm_reg) d1, d2 = inout(ymm_reg) d2,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    [[a0, a1, a2], [b0, b1, b2], [c0, c1, c2], [d0, d1, d2]]
}
