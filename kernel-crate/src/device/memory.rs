//! Loads, stores and asynchronous copies.
//!
//! Device addresses are `u64`, shared-memory addresses are `u32` offsets of the shared window.

use core::arch::{asm, global_asm};

// `cuda_std` has a function for this, whose PTX ptxas takes for 16 static bytes.
global_asm!(".extern .shared .align 16 .b8 dyn_smem[];");

/// Shared-window address of the CTA's dynamic shared memory, 16-byte aligned.
#[inline(always)]
pub fn dynamic_shared() -> u32 {
    let address: u32;
    // SAFETY: names the array declared above; nothing is accessed.
    unsafe { asm!("mov.u32 {}, dyn_smem;", out(reg32) address, options(pure, nomem, nostack)) }
    address
}

/// `ld.global.nc.b32`: one i32 that no thread of the grid writes.
///
/// # Safety
/// `address` is that of a live, initialised, 4-byte aligned i32 in global memory.
#[inline(always)]
pub unsafe fn load_i32(address: u64) -> i32 {
    let value: u32;
    // SAFETY: by this function's contract.
    unsafe {
        asm!("ld.global.nc.b32 {}, [{}];", out(reg32) value, in(reg64) address,
            options(pure, readonly, nostack));
    }
    value as i32
}

/// `ld.global.nc.b64`: one i64 that no thread of the grid writes.
///
/// # Safety
/// `address` is that of a live, initialised, 8-byte aligned i64 in global memory.
#[inline(always)]
pub unsafe fn load_i64(address: u64) -> i64 {
    let value: u64;
    // SAFETY: by this function's contract.
    unsafe {
        asm!("ld.global.nc.b64 {}, [{}];", out(reg64) value, in(reg64) address,
            options(pure, readonly, nostack));
    }
    value as i64
}

/// `st.global.v4.b32`.
///
/// # Safety
/// `address` is a multiple of 16 in global memory, and this thread alone writes the 16 bytes there.
#[inline(always)]
pub unsafe fn store_16(address: u64, [a, b, c, d]: [u32; 4]) {
    // SAFETY: by this function's contract.
    unsafe {
        asm!("st.global.v4.b32 [{}], {{{}, {}, {}, {}}};", in(reg64) address,
            in(reg32) a, in(reg32) b, in(reg32) c, in(reg32) d, options(nostack));
    }
}

/// `ld.global.nc.v4.b32`: 16 bytes that no thread of the grid writes.
///
/// # Safety
/// 16 live, initialised bytes stand at `address`, which is a multiple of 16, in global memory.
#[inline(always)]
pub unsafe fn load_16(address: u64) -> [u32; 4] {
    let [a, b, c, d]: [u32; 4];
    // SAFETY: by this function's contract.
    unsafe {
        asm!("ld.global.nc.v4.b32 {{{}, {}, {}, {}}}, [{}];",
            out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg64) address,
            options(pure, readonly, nostack));
    }
    [a, b, c, d]
}

/// `ld.global.nc.b32`: 4 bytes that no thread of the grid writes.
///
/// # Safety
/// 4 live, initialised bytes stand at `address`, which is a multiple of 4, in global memory.
#[inline(always)]
pub unsafe fn load_4(address: u64) -> u32 {
    // SAFETY: by this function's contract.
    unsafe { load_i32(address) as u32 }
}

/// `ld.global.nc.v2.b32`: two f32 that no thread of the grid writes.
///
/// # Safety
/// Two live, initialised f32 stand at `address`, which is a multiple of 8, in global memory.
#[inline(always)]
pub unsafe fn load_f32x2(address: u64) -> [f32; 2] {
    let [a, b]: [f32; 2];
    // SAFETY: by this function's contract.
    unsafe {
        asm!("ld.global.nc.v2.b32 {{{}, {}}}, [{}];", out(reg32) a, out(reg32) b,
            in(reg64) address, options(pure, readonly, nostack));
    }
    [a, b]
}

/// `st.global.b16`.
///
/// # Safety
/// `address` is that of a 2-byte aligned element that this thread alone writes.
#[inline(always)]
pub unsafe fn store_u16(address: u64, value: u16) {
    // SAFETY: by this function's contract.
    unsafe { asm!("st.global.b16 [{}], {};", in(reg64) address, in(reg16) value, options(nostack)) }
}

/// `st.global.b32`.
///
/// # Safety
/// `address` is that of a 4-byte aligned element that this thread alone writes.
#[inline(always)]
pub unsafe fn store_f32(address: u64, value: f32) {
    // SAFETY: by this function's contract.
    unsafe { asm!("st.global.b32 [{}], {};", in(reg64) address, in(reg32) value, options(nostack)) }
}

/// `cp.async.cg.shared.global 16`: 16 bytes on their way to shared memory, or, without `live`, 16
/// zero bytes and no read at all.
///
/// # Safety
/// `shared` is a multiple of 16 inside this CTA's dynamic shared memory and no thread touches its
/// 16 bytes until this thread has waited. If `live`, 16 live bytes stand at `global`, a multiple of 16.
#[inline(always)]
pub unsafe fn copy_async_16(shared: u32, global: u64, live: bool) {
    let bytes = if live { 16u32 } else { 0 };
    // SAFETY: by this function's contract.
    unsafe {
        asm!("cp.async.cg.shared.global [{}], [{}], 16, {};",
            in(reg32) shared, in(reg64) global, in(reg32) bytes, options(nostack));
    }
}

/// `cp.async.commit_group`: closes this thread's group of copies.
#[inline(always)]
pub fn copy_commit() {
    // SAFETY: touches no memory that is not already handed over to the copies.
    unsafe { asm!("cp.async.commit_group;", options(nostack)) }
}

/// `cp.async.wait_group N`: at most the newest `N` groups of this thread are still on their way.
#[inline(always)]
pub fn copy_wait<const N: u32>() {
    // SAFETY: waits only.
    unsafe { asm!("cp.async.wait_group {};", const N, options(nostack)) }
}

/// `ld.shared.v4.b32`.
///
/// # Safety
/// `address` is a multiple of 16 inside this CTA's shared memory; its 16 bytes are initialised and
/// ordered before this read.
#[inline(always)]
pub unsafe fn shared_load_16(address: u32) -> [u32; 4] {
    let [a, b, c, d]: [u32; 4];
    // SAFETY: by this function's contract.
    unsafe {
        asm!("ld.shared.v4.b32 {{{}, {}, {}, {}}}, [{}];",
            out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg32) address,
            options(nostack, readonly));
    }
    [a, b, c, d]
}

/// `ld.shared.b32`.
///
/// # Safety
/// `address` is that of an initialised f32 in this CTA's shared memory, ordered before this read.
#[inline(always)]
pub unsafe fn shared_load_f32(address: u32) -> f32 {
    let value: f32;
    // SAFETY: by this function's contract.
    unsafe {
        asm!("ld.shared.b32 {}, [{}];", out(reg32) value, in(reg32) address,
            options(nostack, readonly));
    }
    value
}

/// `st.shared.v4.b32`.
///
/// # Safety
/// `address` is a multiple of 16 inside this CTA's shared memory; no other thread touches the 16
/// bytes before the next barrier.
#[inline(always)]
pub unsafe fn shared_store_f32x4(address: u32, [a, b, c, d]: [f32; 4]) {
    // SAFETY: by this function's contract.
    unsafe {
        asm!("st.shared.v4.b32 [{}], {{{}, {}, {}, {}}};", in(reg32) address,
            in(reg32) a, in(reg32) b, in(reg32) c, in(reg32) d, options(nostack));
    }
}

/// `st.shared.v2.b32`.
///
/// # Safety
/// `address` is a multiple of 8 inside this CTA's shared memory; no other thread touches the 8
/// bytes before the next barrier.
#[inline(always)]
pub unsafe fn shared_store_f32x2(address: u32, [a, b]: [f32; 2]) {
    // SAFETY: by this function's contract.
    unsafe {
        asm!("st.shared.v2.b32 [{}], {{{}, {}}};", in(reg32) address, in(reg32) a, in(reg32) b,
            options(nostack));
    }
}
