//! Fragments against the manual's tables, written out as data; products against elementwise sums.

use super::*;
use crate::arith::samples::Random;

/// The manual's figure for A (16 × 16): which lane and which a0..a7 holds an element, given as
/// the lane's row group and the element's index at column pairs 0..4 of each 8 × 8 quarter.
const A_K16: [[usize; 2]; 4] = [
    // [index of the even column, index of the odd one]: rows 0–7 × columns 0–7, rows 8–15 ×
    // columns 0–7, rows 0–7 × columns 8–15, rows 8–15 × columns 8–15.
    [0, 1],
    [2, 3],
    [4, 5],
    [6, 7],
];

/// Lane and element index of A[row][column].
fn a_owner(row: usize, column: usize) -> (usize, usize) {
    let quarter = (row >= 8) as usize + 2 * (column >= 8) as usize;
    let lane = row % 8 * 4 + column % 8 / 2;
    (lane, A_K16[quarter][column % 2])
}

/// Lane and element index of B[k][n]: b0, b1 in rows 0–7, b2, b3 in rows 8–15.
fn b_owner(k: usize, n: usize) -> (usize, usize) {
    const INDEX: [usize; 16] = [0, 1, 0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3, 2, 3];
    const LANE_OF_ROW: [usize; 8] = [0, 0, 1, 1, 2, 2, 3, 3];
    (4 * n + LANE_OF_ROW[k % 8], INDEX[k])
}

/// Lane and element index of C[row][column]: c0, c1 in rows 0–7, c2, c3 in rows 8–15.
fn c_owner(row: usize, column: usize) -> (usize, usize) {
    const INDEX: [[usize; 2]; 2] = [[0, 1], [2, 3]];
    const LANE_OF_COLUMN: [usize; 8] = [0, 0, 1, 1, 2, 2, 3, 3];
    (
        row % 8 * 4 + LANE_OF_COLUMN[column],
        INDEX[row / 8][column % 2],
    )
}

struct Inputs {
    a: [[u16; 16]; 16],
    b: [[u16; 8]; 16],
    c: [[f32; 8]; 16],
}

impl Inputs {
    fn registers(&self, k: usize) -> ([[u32; 4]; 32], [[u32; 2]; 32]) {
        // What lies in unused registers must not matter.
        let (mut a, mut b) = ([[0x7e00_7e00; 4]; 32], [[0x7e00_7e00; 2]; 32]);
        let put = |register: &mut u32, index: usize, bits: u16| {
            let shift = 16 * (index % 2);
            *register = *register & !(0xffff << shift) | u32::from(bits) << shift;
        };
        for i in 0..16 {
            for j in 0..k {
                let (lane, index) = a_owner(i, j);
                put(&mut a[lane][index / 2], index, self.a[i][j]);
            }
            for j in 0..8 {
                if i < k {
                    let (lane, index) = b_owner(i, j);
                    put(&mut b[lane][index / 2], index, self.b[i][j]);
                }
            }
        }
        (a, b)
    }
}

fn value(bf16: bool, x: u16) -> f64 {
    if bf16 {
        bf16_to_f32(x).into()
    } else {
        f16_to_f32(x).into()
    }
}

/// Small integers: every sum is exact whatever the order, so any misplaced element shows.
fn small_integers(seed: u64, bf16: bool) -> Inputs {
    let mut random = Random::new(seed);
    let mut next = || (random.next() % 15) as f32 - 7.0;
    let mut bits = || {
        let x = next();
        if bf16 {
            (x.to_bits() >> 16) as u16
        } else {
            f32_to_f16(x)
        }
    };
    let a = [[0; 16]; 16].map(|row| row.map(|_: u8| bits()));
    let b = [[0; 8]; 16].map(|row| row.map(|_: u8| bits()));
    let c = [[0; 8]; 16].map(|row| row.map(|_: u8| next()));
    Inputs { a, b, c }
}

fn c_registers(inputs: &Inputs) -> [[u32; 4]; 32] {
    let mut c = [[0; 4]; 32];
    for i in 0..16 {
        for j in 0..8 {
            let (lane, index) = c_owner(i, j);
            c[lane][index] = inputs.c[i][j].to_bits();
        }
    }
    c
}

#[test]
fn f32_accumulators_hold_the_matrix_product() {
    for seed in 0..20 {
        for bf16 in [false, true] {
            for shape in [MmaShape::M16N8K8, MmaShape::M16N8K16] {
                let inputs = small_integers(seed, bf16);
                let (a, b) = inputs.registers(shape.k());
                let d = mma_f32(shape, bf16, &a, &b, &c_registers(&inputs));
                for i in 0..16 {
                    for j in 0..8 {
                        let product = (0..shape.k())
                            .map(|k| value(bf16, inputs.a[i][k]) * value(bf16, inputs.b[k][j]))
                            .sum::<f64>();
                        let want = product + f64::from(inputs.c[i][j]);
                        let (lane, index) = c_owner(i, j);
                        let got = f64::from(f32::from_bits(d[lane][index]));
                        assert_eq!(got, want, "{shape:?} bf16 {bf16} seed {seed} [{i}][{j}]");
                    }
                }
            }
        }
    }
}

#[test]
fn f16_accumulators_are_packed_in_pairs() {
    for seed in 0..20 {
        for shape in [MmaShape::M16N8K8, MmaShape::M16N8K16] {
            let inputs = small_integers(seed, false);
            let (a, b) = inputs.registers(shape.k());
            let mut c = [[0; 2]; 32];
            for i in 0..16 {
                for j in 0..8 {
                    let (lane, index) = c_owner(i, j);
                    let bits = u32::from(f32_to_f16(inputs.c[i][j]));
                    c[lane][index / 2] |= bits << (16 * (index % 2));
                }
            }
            let d = mma_f16(shape, &a, &b, &c);
            for i in 0..16 {
                for j in 0..8 {
                    let product = (0..shape.k())
                        .map(|k| value(false, inputs.a[i][k]) * value(false, inputs.b[k][j]))
                        .sum::<f64>();
                    let want = product + f64::from(inputs.c[i][j]);
                    let (lane, index) = c_owner(i, j);
                    let got = value(false, (d[lane][index / 2] >> (16 * (index % 2))) as u16);
                    assert_eq!(got, want, "{shape:?} seed {seed} [{i}][{j}]");
                }
            }
        }
    }
}

#[test]
fn sums_run_in_ascending_k_with_fused_f32_steps() {
    let mut random = Random::new(5);
    let mut half = || f32_to_f16(random.next() as i64 as f32 / 2f32.powi(63));
    let a = [[0; 16]; 16].map(|row| row.map(|_: u8| half()));
    let b = [[0; 8]; 16].map(|row| row.map(|_: u8| half()));
    let inputs = Inputs {
        a,
        b,
        c: [[0.3; 8]; 16],
    };
    let (a, b) = inputs.registers(16);
    let d = mma_f32(MmaShape::M16N8K16, false, &a, &b, &c_registers(&inputs));
    for i in 0..16 {
        for j in 0..8 {
            // f16 products have 22 bits: exact in f32, so a fused step is one f64 addition (of
            // values within 2^29 of each other, exact or rounded far below) rounded to f32.
            let want = (0..16).fold(0.3f32, |sum, k| {
                let product = value(false, inputs.a[i][k]) * value(false, inputs.b[k][j]);
                (f64::from(sum) + product) as f32
            });
            let (lane, index) = c_owner(i, j);
            assert_eq!(d[lane][index], want.to_bits(), "[{i}][{j}]");
        }
    }
}

#[test]
fn machines_without_fma_get_the_same_bits() {
    let mut random = Random::new(8);
    for bf16 in [false, true] {
        for shape in [MmaShape::M16N8K8, MmaShape::M16N8K16] {
            // Any bits: infinities, NaN and subnormals among them.
            let a = [[0; 4]; 32].map(|row| row.map(|_: u8| random.next() as u32));
            let b = [[0; 2]; 32].map(|row| row.map(|_: u8| random.next() as u32));
            let c = [[0; 8]; 16].map(|row| row.map(|_: u8| f32::from_bits(random.next() as u32)));
            let (mut with, mut without) = (c, c);
            multiply_add_for::<true>(shape, bf16, &a, &b, &mut with);
            multiply_add_for::<false>(shape, bf16, &a, &b, &mut without);
            for (x, y) in with.as_flattened().iter().zip(without.as_flattened()) {
                assert!(
                    x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan(),
                    "{x:e} {y:e}"
                );
            }
        }
    }
}

#[test]
fn special_values_pass_through_their_element_only() {
    let mut inputs = small_integers(1, false);
    inputs.a[3][5] = 0x7c00;
    inputs.c[9][2] = f32::NAN;
    inputs.b[5] = [0x3c00, 0xbc00, 0, 0x3c00, 0x3c00, 0x3c00, 0x3c00, 0x3c00];
    let (a, b) = inputs.registers(8);
    let d = mma_f32(MmaShape::M16N8K8, false, &a, &b, &c_registers(&inputs));
    let at = |i, j| {
        let (lane, index) = c_owner(i, j);
        f32::from_bits(d[lane][index])
    };
    assert_eq!(at(3, 0), f32::INFINITY);
    assert_eq!(at(3, 1), f32::NEG_INFINITY);
    assert_eq!(at(3, 2).to_bits(), 0x7fff_ffff, "∞ · 0");
    assert_eq!(at(9, 2).to_bits(), 0x7fff_ffff);
    let others = (0..16).flat_map(|i| (0..8).map(move |j| (i, j)));
    for (i, j) in others.filter(|(i, j)| *i != 3 && (*i, *j) != (9, 2)) {
        assert!(at(i, j).is_finite(), "[{i}][{j}]");
    }
}

#[test]
fn ldmatrix_gives_each_lane_its_pair() {
    // Element [r][c] is 16·r + c.
    let rows: [[u8; 16]; 8] = std::array::from_fn(|r| {
        std::array::from_fn(|byte| {
            if byte % 2 == 0 {
                (16 * r + byte / 2) as u8
            } else {
                0
            }
        })
    });
    let plain = ldmatrix(&rows, false);
    let trans = ldmatrix(&rows, true);
    for r in 0..8 {
        for c in 0..8 {
            // Row r: lanes 4r to 4r + 3 hold columns 01, 23, 45, 67; transposed the same of rows.
            let half = |register: u32, index: usize| register >> (16 * (index % 2)) & 0xffff;
            assert_eq!(half(plain[4 * r + c / 2], c), (16 * r + c) as u32);
            assert_eq!(half(trans[4 * c + r / 2], r), (16 * r + c) as u32);
        }
    }
}
