//! Thread coordinates, shuffles and barriers.
//!
//! Whatever all lanes must execute together comes from an LLVM intrinsic: those are convergent, so
//! LLVM never copies them into the sides of a divergent branch. `asm!` is not, and would be copied.

use core::arch::{asm, nvptx};

/// Every lane of the warp.
const FULL_MASK: u32 = u32::MAX;
/// Clamp operand of a shuffle over the whole warp.
const WHOLE_WARP: u32 = 31;

unsafe extern "unadjusted" {
    #[link_name = "llvm.nvvm.shfl.sync.bfly.f32"]
    fn shfl_bfly_f32(mask: u32, value: f32, lane_mask: u32, clamp: u32) -> f32;
    #[link_name = "llvm.nvvm.shfl.sync.idx.i32"]
    fn shfl_idx_i32(mask: u32, value: u32, lane: u32, clamp: u32) -> u32;
    #[link_name = "llvm.nvvm.vote.any.sync"]
    fn vote_any(mask: u32, predicate: bool) -> bool;
    #[link_name = "llvm.nvvm.bar.warp.sync"]
    fn warp_sync(mask: u32);
    #[link_name = "llvm.nvvm.barrier.cta.sync.aligned.all"]
    fn barrier_all(id: u32);
}

/// `%tid.x`.
#[inline(always)]
pub fn thread() -> u32 {
    // SAFETY: reads a special register.
    unsafe { nvptx::_thread_idx_x() as u32 }
}

/// `%ctaid.x`, `%ctaid.y`, `%ctaid.z`.
#[inline(always)]
pub fn block() -> [u32; 3] {
    // SAFETY: reads special registers.
    unsafe {
        [
            nvptx::_block_idx_x() as u32,
            nvptx::_block_idx_y() as u32,
            nvptx::_block_idx_z() as u32,
        ]
    }
}

/// `shfl.sync.bfly.b32`: the value of lane `lane ^ lane_mask`.
///
/// # Safety
/// All 32 lanes of the warp call it together.
#[inline(always)]
pub unsafe fn shuffle_xor(value: f32, lane_mask: u32) -> f32 {
    // SAFETY: the full mask names lanes that all take part, by this function's contract.
    unsafe { shfl_bfly_f32(FULL_MASK, value, lane_mask, WHOLE_WARP) }
}

/// `shfl.sync.idx.b32`: the value of lane `lane % 32`.
///
/// # Safety
/// All 32 lanes of the warp call it together.
#[inline(always)]
pub unsafe fn shuffle_from(value: u32, lane: u32) -> u32 {
    // SAFETY: the full mask names lanes that all take part, by this function's contract.
    unsafe { shfl_idx_i32(FULL_MASK, value, lane, WHOLE_WARP) }
}

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

/// `barrier.sync.aligned 0`: all threads of the CTA arrive; shared memory is ordered across it.
///
/// # Safety
/// All threads of the CTA call it together.
#[inline(always)]
pub unsafe fn barrier() {
    // SAFETY: every thread arrives, by this function's contract.
    unsafe { barrier_all(0) }
}

/// `vote.sync.any.pred`: whether the predicate holds in any lane.
///
/// # Safety
/// All 32 lanes of the warp call it together.
#[inline(always)]
pub unsafe fn any(predicate: bool) -> bool {
    // SAFETY: the full mask names lanes that all take part, by this function's contract.
    unsafe { vote_any(FULL_MASK, predicate) }
}

/// `bar.warp.sync`: all lanes of the warp arrive; their accesses to memory are ordered across it.
///
/// # Safety
/// All 32 lanes of the warp call it together.
#[inline(always)]
pub unsafe fn synchronise() {
    // SAFETY: the full mask names lanes that all take part, by this function's contract.
    unsafe { warp_sync(FULL_MASK) }
}
