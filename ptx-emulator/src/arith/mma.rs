//! Tensor-core fragments: `mma.sync` m16n8k8 and m16n8k16 on f16 and bf16, `ldmatrix`.
//!
//! Products are exact. Each element of D starts from its C and adds the products in ascending k,
//! every step one f32 fused multiply-add rounded to nearest; with f16 accumulators the end result
//! is rounded once more, to f16. Hardware leaves order and rounding unspecified (and truncates in
//! places), so results agree with it within the usual bound of a sum, not bit for bit.

use super::float::fused_f32;
use super::half::{bf16_to_f32, f16_to_f32, f32_to_f16};
use super::soft::Format;

/// The supported shapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(
    missing_docs,
    reason = "each variant is the manual's shape of the same name"
)]
pub enum MmaShape {
    M16N8K8,
    M16N8K16,
}

impl MmaShape {
    /// The number of columns of A and rows of B.
    #[inline]
    pub const fn k(self) -> usize {
        match self {
            Self::M16N8K8 => 8,
            Self::M16N8K16 => 16,
        }
    }
}

/// Row and column in A of the half `half` of register `reg` of a lane.
#[inline(always)]
fn a_position(lane: usize, reg: usize, half: usize) -> (usize, usize) {
    (
        lane / 4 + 8 * (reg % 2),
        lane % 4 * 2 + half + 8 * (reg / 2),
    )
}

/// Row (k) and column (n) in B of the half `half` of register `reg` of a lane.
#[inline(always)]
fn b_position(lane: usize, reg: usize, half: usize) -> (usize, usize) {
    (lane % 4 * 2 + half + 8 * reg, lane / 4)
}

/// Row and column in C and D of element `index` (0..4) of a lane.
#[inline(always)]
fn c_position(lane: usize, index: usize) -> (usize, usize) {
    (lane / 4 + 8 * (index / 2), lane % 4 * 2 + index % 2)
}

/// A 16 × 8 matrix of f32.
type Tile = [[f32; 8]; 16];

/// What follows the reading of C; compiled for the baseline and for AVX2 with FMA.
#[inline(always)]
fn multiply_add_for<const WIDE: bool>(
    shape: MmaShape,
    bf16: bool,
    a: &[[u32; 4]; 32],
    b: &[[u32; 2]; 32],
    d: &mut Tile,
) {
    let k = shape.k();
    let (a_values, b_values) = (widen(bf16, a), widen(bf16, b));
    let (mut a_tile, mut b_tile) = ([[0.0; 16]; 16], [[0.0; 8]; 16]);
    for (lane, (a, b)) in a_values.iter().zip(&b_values).enumerate() {
        for (reg, halves) in a.iter().enumerate().take(k / 4) {
            for (half, value) in halves.iter().enumerate() {
                let (row, column) = a_position(lane, reg, half);
                a_tile[row][column] = *value;
            }
        }
        for (reg, halves) in b.iter().enumerate().take(k / 8) {
            for (half, value) in halves.iter().enumerate() {
                let (row, column) = b_position(lane, reg, half);
                b_tile[row][column] = *value;
            }
        }
    }
    // Four rows at a time: their chains of additions run side by side.
    for (a_rows, d_rows) in a_tile.chunks_exact(4).zip(d.chunks_exact_mut(4)) {
        let mut sums: [[f32; 8]; 4] = std::array::from_fn(|row| d_rows[row]);
        for (step, b_row) in b_tile.iter().enumerate().take(k) {
            for (sums, a_row) in sums.iter_mut().zip(a_rows) {
                let x = a_row[step];
                for (sum, y) in sums.iter_mut().zip(b_row) {
                    *sum = if WIDE {
                        x.mul_add(*y, *sum)
                    } else {
                        fused_f32(x, *y, *sum)
                    };
                }
            }
        }
        d_rows.copy_from_slice(&sums);
    }
}

/// Both halves of every register as f32.
#[inline(always)]
fn widen<const N: usize>(bf16: bool, registers: &[[u32; N]; 32]) -> [[[f32; 2]; N]; 32] {
    let mut values = [[[0.0; 2]; N]; 32];
    for (values, registers) in values.iter_mut().zip(registers) {
        for (value, register) in values.iter_mut().zip(registers) {
            let halves = [*register as u16, (*register >> 16) as u16];
            *value = if bf16 {
                halves.map(bf16_to_f32)
            } else {
                halves.map(f16_to_f32)
            };
        }
    }
    values
}

fn multiply_add(shape: MmaShape, bf16: bool, a: &[[u32; 4]; 32], b: &[[u32; 2]; 32], d: &mut Tile) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2,fma")]
        fn wide(shape: MmaShape, bf16: bool, a: &[[u32; 4]; 32], b: &[[u32; 2]; 32], d: &mut Tile) {
            multiply_add_for::<true>(shape, bf16, a, b, d);
        }
        if super::lanes::wide_machine() {
            // SAFETY: `wide_machine` has found AVX2 and FMA.
            return unsafe { wide(shape, bf16, a, b, d) };
        }
    }
    multiply_add_for::<false>(shape, bf16, a, b, d);
}

/// `mma` with f32 accumulators: D = A·B + C. Registers a lane: A has k/4, B k/8, C and D 4 (an
/// unused register of `a` and `b` is ignored).
pub fn mma_f32(
    shape: MmaShape,
    bf16: bool,
    a: &[[u32; 4]; 32],
    b: &[[u32; 2]; 32],
    c: &[[u32; 4]; 32],
) -> [[u32; 4]; 32] {
    let mut tile: Tile = [[0.0; 8]; 16];
    for (lane, registers) in c.iter().enumerate() {
        for (index, bits) in registers.iter().enumerate() {
            let (row, column) = c_position(lane, index);
            tile[row][column] = f32::from_bits(*bits);
        }
    }
    multiply_add(shape, bf16, a, b, &mut tile);
    std::array::from_fn(|lane| {
        std::array::from_fn(|index| {
            let (row, column) = c_position(lane, index);
            let x = tile[row][column];
            if x.is_nan() {
                Format::F32.nan as u32
            } else {
                x.to_bits()
            }
        })
    })
}

/// `mma` with f16 inputs and f16 accumulators, two in a register.
pub fn mma_f16(
    shape: MmaShape,
    a: &[[u32; 4]; 32],
    b: &[[u32; 2]; 32],
    c: &[[u32; 2]; 32],
) -> [[u32; 2]; 32] {
    let mut tile: Tile = [[0.0; 8]; 16];
    for (lane, registers) in widen(false, c).iter().enumerate() {
        for (index, value) in registers.as_flattened().iter().enumerate() {
            let (row, column) = c_position(lane, index);
            tile[row][column] = *value;
        }
    }
    multiply_add(shape, false, a, b, &mut tile);
    std::array::from_fn(|lane| {
        std::array::from_fn(|reg| {
            let half = |half: usize| {
                let (row, column) = c_position(lane, 2 * reg + half);
                u32::from(f32_to_f16(tile[row][column]))
            };
            half(0) | half(1) << 16
        })
    })
}

/// `ldmatrix` for one 8 × 8 matrix of 16-bit elements, given its eight rows: lane l gets elements
/// 2·(l mod 4) and the next of row l / 4, or with `.trans` of column l / 4.
#[inline]
pub fn ldmatrix(rows: &[[u8; 16]; 8], trans: bool) -> [u32; 32] {
    let element = |row: usize, column: usize| {
        u32::from(u16::from_le_bytes([
            rows[row][2 * column],
            rows[row][2 * column + 1],
        ]))
    };
    std::array::from_fn(|lane| {
        let (line, first) = (lane / 4, lane % 4 * 2);
        if trans {
            element(first, line) | element(first + 1, line) << 16
        } else {
            element(line, first) | element(line, first + 1) << 16
        }
    })
}

#[cfg(test)]
#[path = "mma_tests.rs"]
mod tests;
