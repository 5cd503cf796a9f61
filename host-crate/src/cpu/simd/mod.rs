//! What the CPU kernels need of an instruction set: one trait, one file per set.
//!
//! Every method is `#[inline(always)]` and has no `#[target_feature]` of its own; it becomes part of
//! the one function per instruction set that has (see [`super::dispatch`]). So the generic kernels
//! are written once.

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

/// A vector of f32 lanes.
///
/// # Safety
/// Methods may be called only where the CPU has the instruction set. Pointers point to as many
/// readable or writable elements as the method names; they need no alignment.
pub(crate) trait Simd: Copy + 'static {
    /// `LANES` values of f32.
    type V: Copy;
    /// Lanes of a vector: a multiple of [`GRANULE`], at most [`super::MAX_LANES`].
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
    /// Asks for the cache line at `at`, which need not be a valid address.
    unsafe fn prefetch(at: *const u8);
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
