//! rustc's own NVPTX back end: LLVM's intrinsics.

use core::arch::nvptx;

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
    #[link_name = "llvm.fma.f32"]
    safe fn llvm_fma(a: f32, b: f32, c: f32) -> f32;
    #[link_name = "llvm.maxnum.f32"]
    safe fn llvm_max(a: f32, b: f32) -> f32;
    #[link_name = "llvm.nvvm.ex2.approx.ftz.f"]
    safe fn llvm_ex2(x: f32) -> f32;
    #[link_name = "llvm.nvvm.lg2.approx.ftz.f"]
    safe fn llvm_lg2(x: f32) -> f32;
    #[link_name = "llvm.nvvm.rcp.rn.f"]
    safe fn llvm_rcp(x: f32) -> f32;
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

/// `barrier.sync.aligned 0`: all threads of the CTA arrive; shared memory is ordered across it.
///
/// # Safety
/// All threads of the CTA call it together.
#[inline(always)]
pub unsafe fn barrier() {
    // SAFETY: every thread arrives, by this function's contract.
    unsafe { barrier_all(0) }
}

/// `fma.rn.f32`: `a * b + c`, rounded once. No compiler contracts, so it is written out.
#[inline(always)]
pub fn fma(a: f32, b: f32, c: f32) -> f32 {
    llvm_fma(a, b, c)
}

/// `max.f32`: the larger; the other one if one is NaN.
#[inline(always)]
pub fn max(a: f32, b: f32) -> f32 {
    llvm_max(a, b)
}

/// `ex2.approx.ftz.f32`: 2^x, relative error about 2^-22; 0 at -inf.
#[inline(always)]
pub fn exp2(x: f32) -> f32 {
    llvm_ex2(x)
}

/// `lg2.approx.ftz.f32`: log2(x), absolute error about 2^-22 near 1; -inf at 0.
#[inline(always)]
pub fn log2(x: f32) -> f32 {
    llvm_lg2(x)
}

/// `rcp.rn.f32`: 1/x, rounded to nearest.
#[inline(always)]
pub fn reciprocal(x: f32) -> f32 {
    llvm_rcp(x)
}

/// A panic cannot happen: a test finds no trace of one in the PTX. The language asks for a handler.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    // SAFETY: `trap` ends the kernel; nothing is read or written.
    unsafe { nvptx::trap() }
}
