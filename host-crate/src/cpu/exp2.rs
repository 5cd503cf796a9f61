//! 2^x for the softmax.

use super::simd::{Portable, Simd};

/// Below this the result is 0: it would not be a normal number.
pub(crate) const EXP2_MIN: f32 = -126.0;

/// 2^f on [−1/2, 1/2]: minimax for the relative error (2.6e-9 before rounding), exact at 0.
const COEFFICIENTS: [f32; 7] = [
    1.0,
    0.693_147_24,
    0.240_226_52,
    0.055_503_104,
    0.009_617_693,
    0.001_340_664_3,
    0.000_155_946_76,
];

/// Relative error of [`exp2`] on [`EXP2_MIN`]..=0, whatever the instruction set.
///
/// f = x − round(x) is exact. Horner's last step rounds a value in [0.707, 1.42] once, at most
/// 2^-24 of it; the term f·(c1 + …) that it adds to 1 is at most 0.42 and carries the roundings of
/// its own: of the sum in brackets (value ≤ 0.85, half a unit is 2^-25), of the step before, damped
/// by f (2^-26 · 0.5), of the rest (less than 2^-28), and without a fused instruction one more of
/// each product (2^-26 + 2^-27 + …): in all 0.5·(2^-25 + 2^-27 + 2^-28) + 2^-25 < 2^-24.4 absolute,
/// over 0.707. Together with 2.6e-9 this stays below 2^-22.8.
#[cfg(test)]
pub(crate) const EXP2_RELATIVE_ERROR: f64 = 1.37e-7;

/// 2^x for x ≤ 0 or NaN: exact for integers, 0 below [`EXP2_MIN`] (−∞ included), NaN for NaN.
///
/// # Safety
/// The CPU has the instruction set `S`.
#[inline(always)]
pub(crate) unsafe fn exp2<S: Simd>(x: S::V) -> S::V {
    // SAFETY: the caller's promise; `clamped` and so `n` lie in −126..=0 or are NaN.
    unsafe {
        let clamped = S::max(S::splat(EXP2_MIN), x);
        let n = S::round(clamped);
        let f = S::sub(clamped, n);
        let mut p = S::splat(COEFFICIENTS[6]);
        p = S::fma(p, f, S::splat(COEFFICIENTS[5]));
        p = S::fma(p, f, S::splat(COEFFICIENTS[4]));
        p = S::fma(p, f, S::splat(COEFFICIENTS[3]));
        p = S::fma(p, f, S::splat(COEFFICIENTS[2]));
        p = S::fma(p, f, S::splat(COEFFICIENTS[1]));
        p = S::fma(p, f, S::splat(COEFFICIENTS[0]));
        S::zero_where_less(x, EXP2_MIN, S::scale_by_power(p, n))
    }
}

/// [`exp2`] of one number, the same on every machine with the same baseline.
pub(crate) fn exp2_one(x: f32) -> f32 {
    // SAFETY: every CPU has the portable set.
    unsafe { exp2::<Portable<8>>(Portable::splat(x))[0] }
}
