//! Thread coordinates, shuffles and barriers.
//!
//! What all lanes must execute together comes from LLVM's convergent intrinsics where the compiler
//! has them: those are never copied into the sides of a divergent branch. rust-cuda keeps no such
//! promise, and `asm!` is not convergent under either. So kernels shuffle and vote before they branch
//! by lane, and tests count what every warp issues.

use core::arch::asm;

pub use super::compiler::{any, barrier, block, shuffle_from, shuffle_xor, synchronise, thread};

/// A 64-bit value ready to be shuffled: its halves in a register each.
#[derive(Clone, Copy)]
pub struct Halves {
    low: u32,
    high: u32,
}

impl Halves {
    /// `mov.b64`: takes the value apart.
    #[inline(always)]
    pub fn new(value: u64) -> Self {
        let (low, high): (u32, u32);
        // SAFETY: arithmetic on registers.
        unsafe {
            asm!("mov.b64 {{{}, {}}}, {};", out(reg32) low, out(reg32) high, in(reg64) value,
                options(pure, nomem, nostack));
        }
        Self { low, high }
    }

    /// Two `shfl.sync.idx.b32`: the value of lane `lane % 32`.
    ///
    /// # Safety
    /// All 32 lanes of the warp call it together.
    #[inline(always)]
    pub unsafe fn shuffle_from(&self, lane: u32) -> u64 {
        let value: u64;
        // SAFETY: the shuffles by this function's contract; `mov.b64` joins registers.
        unsafe {
            let low = shuffle_from(self.low, lane);
            let high = shuffle_from(self.high, lane);
            asm!("mov.b64 {}, {{{}, {}}};", out(reg64) value, in(reg32) low, in(reg32) high,
                options(pure, nomem, nostack));
        }
        value
    }
}
