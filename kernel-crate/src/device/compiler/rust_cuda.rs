//! rust-cuda: `cuda_std` where it has the thing, inline PTX elsewhere. The panic handler is
//! `cuda_std`'s.

use core::arch::asm;
use cuda_std::{intrinsics, thread, warp};

/// Every lane of the warp.
const FULL_MASK: u32 = u32::MAX;
/// Lanes that a shuffle ranges over: the whole warp.
const WHOLE_WARP: u32 = 32;

/// `%tid.x`.
#[inline(always)]
pub fn thread() -> u32 {
    thread::thread_idx_x()
}

/// `%ctaid.x`, `%ctaid.y`, `%ctaid.z`.
#[inline(always)]
pub fn block() -> [u32; 3] {
    [
        thread::block_idx_x(),
        thread::block_idx_y(),
        thread::block_idx_z(),
    ]
}

/// `shfl.sync.bfly.b32`: the value of lane `lane ^ lane_mask`.
///
/// # Safety
/// All 32 lanes of the warp call it together.
#[inline(always)]
pub unsafe fn shuffle_xor(value: f32, lane_mask: u32) -> f32 {
    // SAFETY: the full mask names lanes that all take part, by this function's contract.
    unsafe { warp::warp_shuffle_xor(FULL_MASK, value, lane_mask, WHOLE_WARP).0 }
}

/// `shfl.sync.idx.b32`: the value of lane `lane % 32`.
///
/// # Safety
/// All 32 lanes of the warp call it together.
#[inline(always)]
pub unsafe fn shuffle_from(value: u32, lane: u32) -> u32 {
    // SAFETY: the full mask names lanes that all take part, by this function's contract.
    unsafe { warp::warp_shuffle_idx(FULL_MASK, value, lane, WHOLE_WARP).0 }
}

/// `vote.sync.any.pred`: whether the predicate holds in any lane.
///
/// # Safety
/// All 32 lanes of the warp call it together.
#[inline(always)]
pub unsafe fn any(predicate: bool) -> bool {
    // SAFETY: the full mask names lanes that all take part, by this function's contract.
    unsafe { warp::warp_vote_any(FULL_MASK, predicate) }
}

/// `bar.warp.sync`: all lanes of the warp arrive; their accesses to memory are ordered across it.
///
/// # Safety
/// All 32 lanes of the warp call it together.
#[inline(always)]
pub unsafe fn synchronise() {
    // SAFETY: the full mask names lanes that all take part, by this function's contract.
    unsafe { warp::sync_warp(FULL_MASK) }
}

/// `barrier.sync.aligned 0`: all threads of the CTA arrive; shared memory is ordered across it.
///
/// # Safety
/// All threads of the CTA call it together.
#[inline(always)]
pub unsafe fn barrier() {
    thread::sync_threads();
}

/// `fma.rn.f32`: `a * b + c`, rounded once. No compiler contracts, so it is written out.
#[inline(always)]
pub fn fma(a: f32, b: f32, c: f32) -> f32 {
    // SAFETY: arithmetic.
    unsafe { intrinsics::fmaf_rn(a, b, c) }
}

/// `max.f32`: the larger; the other one if one is NaN.
#[inline(always)]
pub fn max(a: f32, b: f32) -> f32 {
    // SAFETY: arithmetic.
    unsafe { intrinsics::fmaxf(a, b) }
}

/// `ex2.approx.ftz.f32`: 2^x, relative error about 2^-22; 0 at -inf.
#[inline(always)]
pub fn exp2(x: f32) -> f32 {
    let y: f32;
    // SAFETY: arithmetic on registers.
    unsafe {
        asm!("ex2.approx.ftz.f32 {}, {};", out(reg32) y, in(reg32) x, options(pure, nomem, nostack))
    }
    y
}

/// `lg2.approx.ftz.f32`: log2(x), absolute error about 2^-22 near 1; -inf at 0.
#[inline(always)]
pub fn log2(x: f32) -> f32 {
    let y: f32;
    // SAFETY: arithmetic on registers.
    unsafe {
        asm!("lg2.approx.ftz.f32 {}, {};", out(reg32) y, in(reg32) x, options(pure, nomem, nostack))
    }
    y
}

/// `rcp.rn.f32`: 1/x, rounded to nearest.
#[inline(always)]
pub fn reciprocal(x: f32) -> f32 {
    // SAFETY: arithmetic.
    unsafe { intrinsics::frcp_rn(x) }
}
