//! Storage types of the tensors.

use half::{bf16, f16};

use crate::DType;

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for half::f16 {}
    impl Sealed for half::bf16 {}
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
