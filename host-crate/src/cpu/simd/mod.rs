//! What the CPU kernels need of an instruction set: one trait, one file per set.
//!
//! Every method is `#[inline(always)]` and has no `#[target_feature]` of its own; it becomes part of
//! the one function per storage type and set that has (see [`super::isa`]). So the generic kernels are
//! written once.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::Avx512;
pub(crate) use portable::Portable;

use crate::{DType, Element};

/// Elements that every load of this crate's head dims can rely on: they are multiples of 8.
pub(crate) const GRANULE: usize = 8;

/// Most lanes of a vector.
pub(crate) const MAX_LANES: usize = 16;

/// A vector of f32 lanes.
///
/// # Safety
/// Methods may be called only where the CPU has the instruction set. Pointers point to as many
/// readable or writable elements as the method names; they need no alignment.
pub(crate) trait Simd: Copy + 'static {
    /// `LANES` values of f32.
    type V: Copy;
    /// Lanes of a vector: a multiple of [`GRANULE`], at most [`MAX_LANES`].
    const LANES: usize;

    /// All lanes `x`.
    unsafe fn splat(x: f32) -> Self::V;
    /// `LANES` values of f32.
    unsafe fn load(from: *const f32) -> Self::V;
    /// `LANES` values of f16, widened.
    unsafe fn load_f16(from: *const u16) -> Self::V;
    /// `LANES` values of bf16, widened.
    unsafe fn load_bf16(from: *const u16) -> Self::V;
    /// [`GRANULE`] values of f32, the other lanes 0.
    unsafe fn load_granule(from: *const f32) -> Self::V;
    /// [`GRANULE`] values of f16, widened, the other lanes 0.
    unsafe fn load_granule_f16(from: *const u16) -> Self::V;
    /// [`GRANULE`] values of bf16, widened, the other lanes 0.
    unsafe fn load_granule_bf16(from: *const u16) -> Self::V;
    /// Writes `LANES` values.
    unsafe fn store(to: *mut f32, v: Self::V);
    /// Four values, repeated over all lanes.
    unsafe fn load_quad(from: *const f32) -> Self::V;
    /// Writes the first four lanes.
    unsafe fn store_quad(to: *mut f32, v: Self::V);
    /// Lane i holds lane i XOR `D`; `D` is a power of two below `LANES`.
    unsafe fn exchange<const D: usize>(v: Self::V) -> Self::V;
    /// a + b
    unsafe fn add(a: Self::V, b: Self::V) -> Self::V;
    /// a − b
    unsafe fn sub(a: Self::V, b: Self::V) -> Self::V;
    /// a · b
    unsafe fn mul(a: Self::V, b: Self::V) -> Self::V;
    /// a · b + c, in one rounding where the instruction set has that.
    unsafe fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The larger; `b` where one of them is NaN.
    unsafe fn max(a: Self::V, b: Self::V) -> Self::V;
    /// Nearest integer, for |a| ≤ 2^22; NaN stays NaN.
    unsafe fn round(a: Self::V) -> Self::V;
    /// p · 2^n for integers n in −126..=0 and p in [0.7, 1.5] such that the result is normal.
    unsafe fn scale_by_power(p: Self::V, n: Self::V) -> Self::V;
    /// `v` where not `x < limit`, else 0. NaN in `x` keeps `v`.
    unsafe fn zero_where_less(x: Self::V, limit: f32, v: Self::V) -> Self::V;
    /// Writes the sums of the lanes of four vectors to `to[0..4]`. The order of the additions within
    /// a vector does not depend on its place.
    unsafe fn sum4(to: *mut f32, v: [Self::V; 4]);
    /// `sums[h] += weights[h] · v`. The largest tile, 4 × 3, may fill the registers, so that a compiler
    /// which moves one load ahead of its use pushes a sum out to memory: a set with as few can write
    /// that one itself.
    #[inline(always)]
    unsafe fn add_weighted<const H: usize, const W: usize>(
        weights: *const f32,
        v: [Self::V; W],
        sums: [[Self::V; W]; H],
    ) -> [[Self::V; W]; H] {
        // SAFETY: the caller's promise: `H` weights.
        unsafe { add_weighted::<Self, H, W>(weights, v, sums) }
    }
}

/// [`Simd::add_weighted`], as the compiler arranges it.
///
/// # Safety
/// As for [`Simd`]; `weights: [H]`.
#[inline(always)]
unsafe fn add_weighted<S: Simd, const H: usize, const W: usize>(
    weights: *const f32,
    v: [S::V; W],
    mut sums: [[S::V; W]; H],
) -> [[S::V; W]; H] {
    for (h, sums) in sums.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        unsafe {
            let weight = S::splat(*weights.add(h));
            for (sum, v) in sums.iter_mut().zip(v) {
                *sum = S::fma(weight, v, *sum);
            }
        }
    }
    sums
}

/// Loads `LANES` elements of any storage type.
///
/// # Safety
/// As for [`Simd::load`].
#[inline(always)]
pub(crate) unsafe fn load<S: Simd, T: Element>(from: *const T) -> S::V {
    // SAFETY: the caller's promise; `T::DTYPE` tells what `T` is.
    unsafe {
        match T::DTYPE {
            DType::F32 => S::load(from.cast()),
            DType::F16 => S::load_f16(from.cast()),
            DType::Bf16 => S::load_bf16(from.cast()),
        }
    }
}

/// Loads the last, short vector of a row: [`GRANULE`] elements, the other lanes 0.
///
/// # Safety
/// As for [`Simd::load_granule`].
#[inline(always)]
pub(crate) unsafe fn load_granule<S: Simd, T: Element>(from: *const T) -> S::V {
    // SAFETY: the caller's promise; `T::DTYPE` tells what `T` is.
    unsafe {
        match T::DTYPE {
            DType::F32 => S::load_granule(from.cast()),
            DType::F16 => S::load_granule_f16(from.cast()),
            DType::Bf16 => S::load_granule_bf16(from.cast()),
        }
    }
}

macro_rules! reduce {
    ($(#[$doc:meta])* $name:ident, $op:ident) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As for [`Simd`].
        #[inline(always)]
        pub(crate) unsafe fn $name<S: Simd, const P: usize>(v: S::V) -> S::V {
            const { assert!(P == 1 || P == 4) };
            let mut v = v;
            // SAFETY: the caller's promise; each distance is below `LANES`.
            unsafe {
                if S::LANES > 8 {
                    v = S::$op(v, S::exchange::<8>(v));
                }
                v = S::$op(v, S::exchange::<4>(v));
                if P == 1 {
                    v = S::$op(v, S::exchange::<2>(v));
                    v = S::$op(v, S::exchange::<1>(v));
                }
            }
            v
        }
    };
}
reduce! {
    /// The largest of the lanes that are `P` apart, in each of them.
    max_of_heads, max
}
reduce! {
    /// The sum of the lanes that are `P` apart, in each of them.
    sum_of_heads, add
}
