//! Which instruction set runs the kernels.

use std::mem::transmute_copy;

use half::{bf16, f16};

use super::micro::Columns;
use super::prefetch::Lines;
#[cfg(target_arch = "x86_64")]
use super::simd::{Avx2, Avx512};
use super::simd::{Portable, Simd};
use super::tile::{self, Heads, Tile};
use crate::{DType, Element};

/// An instruction set that the CPU back end has kernels for. Results may differ in the last bits
/// between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum InstructionSet {
    /// The target's baseline.
    Portable,
    /// The baseline on vectors as long as AVX-512's.
    #[cfg(test)]
    Portable16,
    /// AVX2 with FMA and F16C (x86-64).
    Avx2,
    /// AVX-512 F, BW, DQ and VL (x86-64).
    Avx512,
}

impl InstructionSet {
    /// Every set, slowest first.
    pub const ALL: &'static [Self] = &[
        Self::Portable,
        #[cfg(test)]
        Self::Portable16,
        Self::Avx2,
        Self::Avx512,
    ];

    /// The fastest set that this CPU has.
    pub fn detect() -> Self {
        let available = Self::ALL.iter().rev().find(|set| set.is_available());
        available.copied().unwrap_or(Self::Portable)
    }

    /// Whether this CPU has it.
    pub fn is_available(self) -> bool {
        match self {
            Self::Portable => true,
            #[cfg(test)]
            Self::Portable16 => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("f16c")
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                Self::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
            #[cfg(not(target_arch = "x86_64"))]
            _ => false,
        }
    }

    /// `portable`, `avx2` or `avx512`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            #[cfg(test)]
            Self::Portable16 => "portable16",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        }
    }
}

/// See [`super::tile::step`].
type Step<T> = unsafe fn(&Tile<T>, &Heads, &Columns, &mut Lines<'_, T>, &mut Lines<'_, T>);

/// What an item needs of an instruction set.
#[derive(Clone, Copy)]
pub(crate) struct Kernel<T> {
    /// Lanes of a vector.
    pub lanes: usize,
    /// One step.
    pub step: Step<T>,
}

/// The kernels of one storage type and set. Not generic, so that they are compiled once, in this
/// crate.
macro_rules! kernels {
    ($( $(#[$cfg:meta])* $name:ident: $element:ty, $simd:ty, $attribute:meta; )*) => { $(
        $(#[$cfg])*
        mod $name {
            use super::*;

            pub(super) const KERNEL: Kernel<$element> =
                Kernel { lanes: <$simd>::LANES, step };

            /// # Safety
            /// As for [`tile::step`].
            #[$attribute]
            unsafe fn step(
                tile: &Tile<$element>,
                heads: &Heads,
                columns: &Columns,
                early: &mut Lines<'_, $element>,
                late: &mut Lines<'_, $element>,
            ) {
                // SAFETY: the caller's promise.
                unsafe { tile::step::<$simd, $element>(tile, heads, columns, early, late) }
            }
        }
    )* };
}

kernels! {
    portable_f32: f32, Portable<8>, inline(never);
    #[cfg(test)]
    portable16_f32: f32, Portable<16>, inline(never);
    #[cfg(test)]
    portable16_f16: f16, Portable<16>, inline(never);
    #[cfg(test)]
    portable16_bf16: bf16, Portable<16>, inline(never);
    portable_f16: f16, Portable<8>, inline(never);
    portable_bf16: bf16, Portable<8>, inline(never);
    #[cfg(target_arch = "x86_64")]
    avx2_f32: f32, Avx2, target_feature(enable = "avx2,fma,f16c");
    #[cfg(target_arch = "x86_64")]
    avx2_f16: f16, Avx2, target_feature(enable = "avx2,fma,f16c");
    #[cfg(target_arch = "x86_64")]
    avx2_bf16: bf16, Avx2, target_feature(enable = "avx2,fma,f16c");
    #[cfg(target_arch = "x86_64")]
    avx512_f32: f32, Avx512, target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl");
    #[cfg(target_arch = "x86_64")]
    avx512_f16: f16, Avx512, target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl");
    #[cfg(target_arch = "x86_64")]
    avx512_bf16: bf16, Avx512, target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl");
}

impl<T: Element> Kernel<T> {
    /// The kernel of `set`, which must be available when it is called.
    pub(crate) fn of(set: InstructionSet) -> Self {
        // SAFETY: `Element` is sealed, so `T` is the type that `T::DTYPE` names, and each kernel is
        // copied to its own type.
        unsafe {
            match (T::DTYPE, set) {
                #[cfg(test)]
                (DType::F32, InstructionSet::Portable16) => transmute_copy(&portable16_f32::KERNEL),
                #[cfg(test)]
                (DType::F16, InstructionSet::Portable16) => transmute_copy(&portable16_f16::KERNEL),
                #[cfg(test)]
                (DType::Bf16, InstructionSet::Portable16) => {
                    transmute_copy(&portable16_bf16::KERNEL)
                }
                #[cfg(target_arch = "x86_64")]
                (DType::F32, InstructionSet::Avx512) => transmute_copy(&avx512_f32::KERNEL),
                #[cfg(target_arch = "x86_64")]
                (DType::F16, InstructionSet::Avx512) => transmute_copy(&avx512_f16::KERNEL),
                #[cfg(target_arch = "x86_64")]
                (DType::Bf16, InstructionSet::Avx512) => transmute_copy(&avx512_bf16::KERNEL),
                #[cfg(target_arch = "x86_64")]
                (DType::F32, InstructionSet::Avx2) => transmute_copy(&avx2_f32::KERNEL),
                #[cfg(target_arch = "x86_64")]
                (DType::F16, InstructionSet::Avx2) => transmute_copy(&avx2_f16::KERNEL),
                #[cfg(target_arch = "x86_64")]
                (DType::Bf16, InstructionSet::Avx2) => transmute_copy(&avx2_bf16::KERNEL),
                (DType::F32, _) => transmute_copy(&portable_f32::KERNEL),
                (DType::F16, _) => transmute_copy(&portable_f16::KERNEL),
                (DType::Bf16, _) => transmute_copy(&portable_bf16::KERNEL),
            }
        }
    }
}
