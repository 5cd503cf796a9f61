//! Integer instructions against exact i128 arithmetic and, for products, schoolbook loops.

use super::*;
use crate::arith::samples::{Random, integers};

const TYPES: [IntType; 8] = [
    IntType::U8,
    IntType::S8,
    IntType::U16,
    IntType::S16,
    IntType::U32,
    IntType::S32,
    IntType::U64,
    IntType::S64,
];

/// Value modulo 2^bits, found by division: no masks.
fn wrap(ty: IntType, value: i128) -> u64 {
    value.rem_euclid(1i128 << ty.bits) as u64
}

/// Value of a pattern as a sum of weighted bits: the top bit of a signed type weighs −2^(bits−1).
fn value(ty: IntType, bits: u64) -> i128 {
    (0..ty.bits)
        .filter(|i| bits >> i & 1 == 1)
        .map(|i| {
            if ty.signed && i == ty.bits - 1 {
                -(1i128 << i)
            } else {
                1i128 << i
            }
        })
        .sum()
}

#[track_caller]
fn check2(
    name: &str,
    got: impl Fn(IntType, u64, u64) -> u64,
    want: impl Fn(IntType, i128, i128) -> u64,
) {
    for ty in TYPES {
        for (a, b) in integers(ty.bits) {
            let want = want(ty, value(ty, a), value(ty, b));
            assert_eq!(got(ty, a, b), want, "{name} {ty:?} {a:#x} {b:#x}");
        }
    }
}

/// Bits `from..from + ty.bits` of the exact product.
fn product(ty: IntType, a: i128, b: i128, from: u32) -> u64 {
    // |a|, |b| ≤ 2^64: only u64·u64 could leave i128, by its sign bit; u128 wraps to the same bits.
    let product = (a as u128).wrapping_mul(b as u128);
    (0..ty.bits)
        .filter(|i| product >> (from + i) & 1 == 1)
        .map(|i| 1 << i)
        .sum()
}

#[test]
fn add_sub_and_mul_lo_are_modular() {
    check2("add", add, |ty, a, b| wrap(ty, a + b));
    check2("sub", sub, |ty, a, b| wrap(ty, a - b));
    check2("mul.lo", mul_lo, |ty, a, b| product(ty, a, b, 0));
}

#[test]
fn mul_hi_and_wide_keep_the_exact_product() {
    check2("mul.hi", mul_hi, |ty, a, b| product(ty, a, b, ty.bits));
    for ty in TYPES.into_iter().filter(|ty| ty.bits < 64) {
        let wide = IntType {
            signed: ty.signed,
            bits: 2 * ty.bits,
        };
        for (a, b) in integers(ty.bits) {
            let want = value(ty, a) * value(ty, b);
            assert_eq!(mul_wide(ty, a, b), wrap(wide, want), "{ty:?} {a:#x} {b:#x}");
            let c = a ^ (b << 7);
            let want = want + value(wide, c);
            assert_eq!(
                mad_wide(ty, a, b, c),
                wrap(wide, want),
                "{ty:?} {a:#x} {b:#x}"
            );
        }
    }
}

#[test]
fn mad_adds_to_the_chosen_half() {
    for ty in TYPES {
        for (a, b) in integers(ty.bits) {
            let c = a.rotate_left(11) ^ b;
            let (va, vb, vc) = (value(ty, a), value(ty, b), value(ty, c));
            let lo = wrap(ty, product(ty, va, vb, 0) as i128 + vc);
            assert_eq!(mad_lo(ty, a, b, c), lo, "{ty:?} {a:#x} {b:#x}");
            let high = product(ty, va, vb, ty.bits);
            assert_eq!(
                mad_hi(ty, a, b, c),
                wrap(ty, high as i128 + vc),
                "{ty:?} {a:#x} {b:#x}"
            );
            let sat = (value(ty, high) + vc).clamp(ty.min_value(), ty.max_value());
            assert_eq!(
                mad_hi_sat(ty, a, b, c),
                wrap(ty, sat),
                "{ty:?} {a:#x} {b:#x}"
            );
        }
    }
}

#[test]
fn saturation_clamps_to_the_range() {
    let clamp = |ty: IntType, x: i128| wrap(ty, x.clamp(ty.min_value(), ty.max_value()));
    check2("add.sat", add_sat, |ty, a, b| clamp(ty, a + b));
    check2("sub.sat", sub_sat, |ty, a, b| clamp(ty, a - b));
    assert_eq!(add_sat(IntType::S32, 0x7fff_ffff, 1), 0x7fff_ffff);
    assert_eq!(sub_sat(IntType::S32, 0x8000_0000, 1), 0x8000_0000);
}

#[test]
fn carries_chain_to_128_bits() {
    let mut random = Random::new(7);
    for _ in 0..2000 {
        let [a, b] = [0; 2].map(|_: u8| (random.mixed() as u128) << 64 | random.mixed() as u128);
        for bits in [32, 64] {
            let ty = IntType {
                signed: false,
                bits,
            };
            let (mut sum, mut difference) = (0u128, 0u128);
            let (mut carry, mut borrow) = (false, false);
            for word in 0..128 / bits {
                let part = |x: u128| (x >> (word * bits)) as u64 & ty.mask();
                let (s, c) = add_carry(ty, part(a), part(b), carry);
                let (d, w) = sub_borrow(ty, part(a), part(b), borrow);
                sum |= (s as u128) << (word * bits);
                difference |= (d as u128) << (word * bits);
                (carry, borrow) = (c, w);
            }
            assert_eq!((sum, carry), a.overflowing_add(b));
            assert_eq!((difference, borrow), a.overflowing_sub(b));
        }
    }
}

#[test]
fn division_truncates_and_has_no_result_for_zero() {
    for ty in TYPES {
        for (a, b) in integers(ty.bits) {
            let (va, vb) = (value(ty, a), value(ty, b));
            if vb == 0 {
                assert_eq!(
                    (div(ty, a, b), rem(ty, a, b)),
                    (None, None),
                    "{ty:?} {a:#x}"
                );
                continue;
            }
            let (q, r) = (div(ty, a, b).unwrap(), rem(ty, a, b).unwrap());
            // The defining equation, and a remainder smaller than the divisor with a's sign.
            if (va, vb) == (ty.min_value(), -1) {
                assert_eq!((q, r), (wrap(ty, ty.min_value()), 0), "{ty:?}");
                continue;
            }
            let (vq, vr) = (value(ty, q), value(ty, r));
            assert_eq!(vq * vb + vr, va, "{ty:?} {a:#x} {b:#x}");
            assert!(
                vr.abs() < vb.abs() && (vr == 0 || (vr < 0) == (va < 0)),
                "{ty:?} {a:#x}"
            );
        }
    }
}

#[test]
fn selections_follow_the_types_order() {
    check2("min", min, |ty, a, b| wrap(ty, a.min(b)));
    check2("max", max, |ty, a, b| wrap(ty, a.max(b)));
    check2(
        "abs",
        |ty, a, _| abs(ty, a),
        |ty, a, _| {
            // Unsigned types have no abs; the pattern is read as signed.
            let signed = value(IntType { signed: true, ..ty }, a as u64);
            wrap(ty, signed.abs())
        },
    );
    check2("neg", |ty, a, _| neg(ty, a), |ty, a, _| wrap(ty, -a));
    check2("not", |ty, a, _| not(ty, a), |ty, a, _| wrap(ty, -a - 1));
    check2(
        "sad",
        |ty, a, b| sad(ty, a, b, 5),
        |ty, a, b| wrap(ty, (a - b).abs() + 5),
    );
}

#[test]
fn mul24_takes_the_middle_of_the_48_bit_product() {
    for ty in [IntType::U32, IntType::S32] {
        let narrow = IntType {
            signed: ty.signed,
            bits: 24,
        };
        for (a, b) in integers(32) {
            let exact = value(narrow, a) * value(narrow, b);
            assert_eq!(mul24_lo(ty, a, b), wrap(ty, exact), "{ty:?} {a:#x} {b:#x}");
            let hi = wrap(ty, exact.div_euclid(1 << 16));
            assert_eq!(mul24_hi(ty, a, b), hi, "{ty:?} {a:#x} {b:#x}");
        }
    }
}

#[test]
fn dot_products_equal_the_sum_of_byte_products() {
    for (a, b) in integers(32) {
        let c = 0xffff_fff0;
        for (sa, sb) in [(false, false), (false, true), (true, false), (true, true)] {
            let part = |signed, x: u64, width: u32, i: u32| {
                value(
                    IntType {
                        signed,
                        bits: width,
                    },
                    x >> (width * i),
                )
            };
            let four = (0..4)
                .map(|i| part(sa, a, 8, i) * part(sb, b, 8, i))
                .sum::<i128>();
            assert_eq!(dp4a(sa, sb, a, b, c), wrap(IntType::U32, four + c as i128));
            for (hi, first) in [(false, 0), (true, 2)] {
                let two: i128 = (0..2)
                    .map(|i| part(sa, a, 16, i) * part(sb, b, 8, first + i))
                    .sum();
                assert_eq!(
                    dp2a(sa, sb, hi, a, b, c),
                    wrap(IntType::U32, two + c as i128)
                );
            }
        }
    }
}

#[test]
fn bits_above_the_width_are_ignored() {
    let dirty = 0xdead_beef_0000_0000;
    for (a, b) in integers(32) {
        for ty in [IntType::U32, IntType::S32] {
            assert_eq!(add(ty, a | dirty, b), add(ty, a, b));
            assert_eq!(mul_hi(ty, a | dirty, b | dirty), mul_hi(ty, a, b));
            assert_eq!(div(ty, a | dirty, b | dirty), div(ty, a, b));
            assert_eq!(max(ty, a | dirty, b), max(ty, a, b));
        }
    }
}
