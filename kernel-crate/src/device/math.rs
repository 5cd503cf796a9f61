//! f32 arithmetic as the hardware has it, through LLVM's intrinsics: each is one instruction.

unsafe extern "unadjusted" {
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

/// `fma.rn.f32`: `a * b + c`, rounded once. LLVM does not contract, so it is written out.
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

/// `add.s64`: an address `bytes` further on.
///
/// Inline PTX, so that LLVM leaves a walk of additions as it is: it would turn it into one 64-bit
/// multiplication per step.
#[inline(always)]
pub fn advance(address: u64, bytes: u64) -> u64 {
    let next: u64;
    // SAFETY: arithmetic on registers.
    unsafe {
        core::arch::asm!("add.s64 {}, {}, {};", out(reg64) next, in(reg64) address, in(reg64) bytes,
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
        core::arch::asm!("mad.wide.u32 {}, {}, {}, {};", out(reg64) address, in(reg32) index,
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
        core::arch::asm!("mov.b32 {}, {};", out(reg32) same, in(reg32) number,
            options(pure, nomem, nostack));
    }
    same
}

/// `.pragma "nounroll"`: ptxas leaves the loop that this stands in rolled.
#[inline(always)]
pub fn nounroll() {
    // SAFETY: a directive, no instruction.
    unsafe {
        core::arch::asm!(
            ".pragma \"nounroll\";",
            options(nomem, nostack, preserves_flags)
        )
    }
}
