//! Tensor-core instructions: 8×8 matrices from shared memory, and 16×8×16 products.
//!
//! The f16 product has no intrinsic that Rust can call, so these are inline PTX. LLVM may copy
//! `asm!` into the sides of a branch, so they are called under warp-uniform conditions only.

use super::element::{Bf16, Element, F16};
use core::arch::asm;

/// `ldmatrix.sync.aligned.m8n8.x4.shared.b16`: four 8×8 matrices of 16-bit elements.
///
/// Lane i gives the address of row i % 8 of matrix i / 8. Lane i gets of each matrix the elements
/// (row i / 4, columns 2 (i % 4) and one more).
///
/// # Safety
/// All 32 lanes call it together; `row` is a multiple of 16, and 16 initialised bytes, ordered
/// before this read, stand there in this CTA's shared memory.
#[inline(always)]
pub unsafe fn load_matrices(row: u32) -> [u32; 4] {
    let [a, b, c, d]: [u32; 4];
    // SAFETY: by this function's contract.
    unsafe {
        asm!("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{{}, {}, {}, {}}}, [{}];",
            out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg32) row,
            options(nostack, readonly));
    }
    [a, b, c, d]
}

/// `ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16`: as [`load_matrices`], each matrix transposed.
///
/// # Safety
/// As for [`load_matrices`].
#[inline(always)]
pub unsafe fn load_matrices_transposed(row: u32) -> [u32; 4] {
    let [a, b, c, d]: [u32; 4];
    // SAFETY: by this function's contract.
    unsafe {
        asm!("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {{{}, {}, {}, {}}}, [{}];",
            out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg32) row,
            options(nostack, readonly));
    }
    [a, b, c, d]
}

/// A 16-bit storage type that tensor cores multiply.
pub trait MmaElement: Element {
    /// `mma.sync.aligned.m16n8k16.row.col.f32`: `c += a × b`, a 16×16 row-major, b 16×8
    /// column-major, products exact, sums in f32. Lane i holds, with g = i / 4 and t = i % 4:
    /// of a rows (g, g+8, g, g+8) at columns 2t (+8 in the latter two), of b rows 2t and 2t+8 of
    /// column g, of c rows (g, g, g+8, g+8) at columns (2t, 2t+1, 2t, 2t+1).
    ///
    /// # Safety
    /// All 32 lanes call it together.
    unsafe fn multiply_add(c: &mut [f32; 4], a: &[u32; 4], b: [u32; 2]);

    /// `cvt.rn.{f16x2,bf16x2}.f32`: two rounded elements in one word, `low` in the lower half.
    fn pack(low: f32, high: f32) -> u32;
}

macro_rules! mma_element {
    ($element:ident, $mma:literal, $pack:literal) => {
        impl MmaElement for $element {
            #[inline(always)]
            unsafe fn multiply_add(c: &mut [f32; 4], a: &[u32; 4], b: [u32; 2]) {
                // SAFETY: arithmetic on registers; all lanes are here, by this function's contract.
                unsafe {
                    asm!(concat!($mma, " {{{0}, {1}, {2}, {3}}}, {{{4}, {5}, {6}, {7}}}, {{{8}, {9}}}, {{{0}, {1}, {2}, {3}}};"),
                        inout(reg32) c[0], inout(reg32) c[1], inout(reg32) c[2], inout(reg32) c[3],
                        in(reg32) a[0], in(reg32) a[1], in(reg32) a[2], in(reg32) a[3],
                        in(reg32) b[0], in(reg32) b[1], options(nomem, nostack));
                }
            }

            #[inline(always)]
            fn pack(low: f32, high: f32) -> u32 {
                let word: u32;
                // SAFETY: arithmetic on registers.
                unsafe {
                    asm!(concat!($pack, " {}, {}, {};"), out(reg32) word, in(reg32) high,
                        in(reg32) low, options(pure, nomem, nostack));
                }
                word
            }
        }
    };
}
mma_element!(
    F16,
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "cvt.rn.f16x2.f32"
);
mma_element!(
    Bf16,
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
    "cvt.rn.bf16x2.f32"
);
