//! Rows between storage types and f32.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use crate::{DType, Element};

/// Widens a row; `to` has its length.
pub(crate) fn widen<T: Element>(from: &[T], to: &mut [f32]) {
    // SAFETY: `Element` is sealed, so `T` is the type that `T::DTYPE` names.
    unsafe {
        match T::DTYPE {
            DType::F32 => to.copy_from_slice(cast::<T, f32>(from)),
            DType::F16 => cast::<T, f16>(from).convert_to_f32_slice(to),
            DType::Bf16 => cast::<T, bf16>(from).convert_to_f32_slice(to),
        }
    }
}

/// Rounds a row to nearest, ties to even; `to` has its length.
pub(crate) fn round<T: Element>(from: &[f32], to: &mut [T]) {
    // SAFETY: `Element` is sealed, so `T` is the type that `T::DTYPE` names.
    unsafe {
        match T::DTYPE {
            DType::F32 => cast_mut::<T, f32>(to).copy_from_slice(from),
            DType::F16 => cast_mut::<T, f16>(to).convert_from_f32_slice(from),
            DType::Bf16 => cast_mut::<T, bf16>(to).convert_from_f32_slice(from),
        }
    }
}

/// # Safety
/// `T` is `U`.
unsafe fn cast<T, U>(from: &[T]) -> &[U] {
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(from.as_ptr().cast(), from.len()) }
}

/// # Safety
/// `T` is `U`.
unsafe fn cast_mut<T, U>(to: &mut [T]) -> &mut [U] {
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts_mut(to.as_mut_ptr().cast(), to.len()) }
}
