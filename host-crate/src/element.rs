//! Storage types of the tensors.

use half::{bf16, f16};

use crate::DType;

mod sealed {
    pub trait Sealed: Plain {}
    impl Sealed for f32 {}
    impl Sealed for half::f16 {}
    impl Sealed for half::bf16 {}

    /// Numbers without padding, of which every bit pattern is one.
    pub trait Plain: Copy {}
    impl Plain for f32 {}
    impl Plain for i32 {}
    impl Plain for half::f16 {}
    impl Plain for half::bf16 {}
}

/// An element of q, K, V and out: `f32`, [`half::f16`] or [`half::bf16`].
pub trait Element: sealed::Sealed + Copy + Send + Sync + 'static {
    /// The storage type's tag.
    const DTYPE: DType;

    /// Widens; exact.
    fn to_f32(self) -> f32;

    /// Rounds to nearest, ties to even.
    fn from_f32(value: f32) -> Self;
}

impl Element for f32 {
    const DTYPE: DType = DType::F32;

    #[inline]
    fn to_f32(self) -> f32 {
        self
    }

    #[inline]
    fn from_f32(value: f32) -> Self {
        value
    }
}

impl Element for f16 {
    const DTYPE: DType = DType::F16;

    #[inline]
    fn to_f32(self) -> f32 {
        f16::to_f32(self)
    }

    #[inline]
    fn from_f32(value: f32) -> Self {
        f16::from_f32(value)
    }
}

impl Element for bf16 {
    const DTYPE: DType = DType::Bf16;

    #[inline]
    fn to_f32(self) -> f32 {
        bf16::to_f32(self)
    }

    #[inline]
    fn from_f32(value: f32) -> Self {
        bf16::from_f32(value)
    }
}

/// The bytes of elements, lengths or table entries, as the device holds them.
#[cfg(any(feature = "cuda", feature = "emulator"))]
pub(crate) fn bytes_of<T: sealed::Plain>(values: &[T]) -> &[u8] {
    const {
        assert!(
            cfg!(target_endian = "little"),
            "the device is little endian"
        )
    };
    // SAFETY: `Plain` types have no padding, and the result borrows `values` over its whole extent.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// Likewise, for writing.
#[cfg(any(feature = "cuda", feature = "emulator"))]
pub(crate) fn bytes_of_mut<T: sealed::Plain>(values: &mut [T]) -> &mut [u8] {
    const {
        assert!(
            cfg!(target_endian = "little"),
            "the device is little endian"
        )
    };
    // SAFETY: every bit pattern is a value of a `Plain` type, which has no padding, and the result
    // borrows `values` over its whole extent.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values)) }
}
