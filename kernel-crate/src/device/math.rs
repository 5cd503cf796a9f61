//! Arithmetic as the hardware has it: each function is one instruction.

use core::arch::asm;

pub use super::compiler::{exp2, fma, log2, max, reciprocal};

/// `add.s64`: an address `bytes` further on.
///
/// Inline PTX, so that LLVM leaves a walk of additions as it is: it would turn it into one 64-bit
/// multiplication per step.
#[inline(always)]
pub fn advance(address: u64, bytes: u64) -> u64 {
    let next: u64;
    // SAFETY: arithmetic on registers.
    unsafe {
        asm!("add.s64 {}, {}, {};", out(reg64) next, in(reg64) address, in(reg64) bytes,
            options(pure, nomem, nostack));
    }
    next
}

/// `mad.wide.u32`: the address of element `index` of an array of elements of `bytes` bytes.
#[inline(always)]
pub fn element(array: u64, index: u32, bytes: u32) -> u64 {
    let address: u64;
    // SAFETY: arithmetic on registers.
    unsafe {
        asm!("mad.wide.u32 {}, {}, {}, {};", out(reg64) address, in(reg32) index,
            in(reg32) bytes, in(reg64) array, options(pure, nomem, nostack));
    }
    address
}

/// `mov.b32`: the same number, unknown to the optimiser. A loop with such a bound stays rolled.
#[inline(always)]
pub fn opaque(number: u32) -> u32 {
    let same: u32;
    // SAFETY: arithmetic on registers.
    unsafe {
        asm!("mov.b32 {}, {};", out(reg32) same, in(reg32) number,
            options(pure, nomem, nostack));
    }
    same
}

/// `.pragma "nounroll"`: ptxas leaves the loop that this stands in rolled.
#[inline(always)]
pub fn nounroll() {
    // SAFETY: a directive, no instruction.
    unsafe {
        asm!(
            ".pragma \"nounroll\";",
            options(nomem, nostack, preserves_flags)
        )
    }
}
