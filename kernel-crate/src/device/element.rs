//! Storage types on the device: from 16 loaded bytes to f32 lanes, and back.

use super::memory::{store_f32, store_u16};
use crate::variants::DType;
use core::arch::asm;

/// A storage type of q, K, V and out.
pub trait Element {
    /// The table's name for it.
    const DTYPE: DType;

    /// The two (or, for f32, the one) elements in one 32-bit word; the first is the lower half.
    fn unpack(word: u32) -> [f32; 2];

    /// Rounds to nearest even and stores.
    ///
    /// # Safety
    /// `address` is that of an aligned element that this thread alone writes.
    unsafe fn store(address: u64, value: f32);
}

/// IEEE binary32.
pub struct F32;
/// IEEE binary16.
pub struct F16;
/// bfloat16.
pub struct Bf16;

impl Element for F32 {
    const DTYPE: DType = DType::F32;

    #[inline(always)]
    fn unpack(word: u32) -> [f32; 2] {
        [f32::from_bits(word), 0.0]
    }

    #[inline(always)]
    unsafe fn store(address: u64, value: f32) {
        // SAFETY: by this function's contract.
        unsafe { store_f32(address, value) }
    }
}

impl Element for F16 {
    const DTYPE: DType = DType::F16;

    /// `cvt.f32.f16`, exact.
    #[inline(always)]
    fn unpack(word: u32) -> [f32; 2] {
        let [lo, hi]: [f32; 2];
        // SAFETY: arithmetic on registers.
        unsafe {
            asm!("{{ .reg .b16 lo, hi; mov.b32 {{lo, hi}}, {2}; cvt.f32.f16 {0}, lo; cvt.f32.f16 {1}, hi; }}",
                out(reg32) lo, out(reg32) hi, in(reg32) word, options(pure, nomem, nostack));
        }
        [lo, hi]
    }

    /// `cvt.rn.f16.f32`.
    #[inline(always)]
    unsafe fn store(address: u64, value: f32) {
        let bits: u16;
        // SAFETY: arithmetic on registers; the store by this function's contract.
        unsafe {
            asm!("cvt.rn.f16.f32 {}, {};", out(reg16) bits, in(reg32) value, options(pure, nomem, nostack));
            store_u16(address, bits);
        }
    }
}

impl Element for Bf16 {
    const DTYPE: DType = DType::Bf16;

    /// A bfloat16 is the upper half of its f32.
    #[inline(always)]
    fn unpack(word: u32) -> [f32; 2] {
        [
            f32::from_bits(word << 16),
            f32::from_bits(word & 0xffff_0000),
        ]
    }

    /// `cvt.rn.bf16.f32`.
    #[inline(always)]
    unsafe fn store(address: u64, value: f32) {
        let bits: u16;
        // SAFETY: arithmetic on registers; the store by this function's contract.
        unsafe {
            asm!("cvt.rn.bf16.f32 {}, {};", out(reg16) bits, in(reg32) value, options(pure, nomem, nostack));
            store_u16(address, bits);
        }
    }
}
