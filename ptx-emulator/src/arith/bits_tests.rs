//! Bit manipulation against loops over single bits, as the manual's pseudo-code has them.

use super::*;
use crate::arith::samples::integers;

const WIDE: [IntType; 4] = [IntType::U32, IntType::S32, IntType::U64, IntType::S64];

fn bit(x: u64, i: u32) -> bool {
    x >> i & 1 == 1
}

fn from_bits(width: u32, at: impl Fn(u32) -> bool) -> u64 {
    (0..width).filter(|i| at(*i)).map(|i| 1u64 << i).sum()
}

#[test]
fn shifts_clamp_at_the_width() {
    for ty in [IntType::U16, IntType::S16].into_iter().chain(WIDE) {
        let n = ty.bits;
        for (a, _) in integers(n) {
            for amount in (0..=70).chain([255, 256, 0x8000_0000, u32::MAX]) {
                let left = from_bits(n, |i| i >= amount && bit(a, i - amount));
                assert_eq!(
                    shl(ty, a, amount.into()),
                    left,
                    "shl {ty:?} {a:#x} {amount}"
                );
                let fill = ty.signed && bit(a, n - 1);
                let right = from_bits(n, |i| {
                    i.checked_add(amount)
                        .filter(|j| *j < n)
                        .map_or(fill, |j| bit(a, j))
                });
                assert_eq!(
                    shr(ty, a, amount.into()),
                    right,
                    "shr {ty:?} {a:#x} {amount}"
                );
            }
        }
    }
}

#[test]
fn bit_fields_equal_the_manuals_loops() {
    let edges: Vec<u64> = (0..=66)
        .step_by(3)
        .chain([31, 32, 63, 64, 65, 128, 255])
        .collect();
    for ty in WIDE {
        let msb = u64::from(ty.bits) - 1;
        for (a, b) in integers(ty.bits).into_iter().step_by(7) {
            for &pos in &edges {
                for &len in &edges {
                    let sign = ty.signed && len > 0 && bit(a, (pos + len - 1).min(msb) as u32);
                    let field = from_bits(ty.bits, |i| {
                        let i = u64::from(i);
                        if i < len && pos + i <= msb {
                            bit(a, (pos + i) as u32)
                        } else {
                            sign
                        }
                    });
                    assert_eq!(bfe(ty, a, pos, len), field, "bfe {ty:?} {a:#x} {pos} {len}");
                    assert_eq!(bfe(ty, a, pos + 256, len + 256), field, "only 8 bits count");
                    let inserted = from_bits(ty.bits, |i| {
                        let i = u64::from(i);
                        if i >= pos && i - pos < len {
                            bit(a, (i - pos) as u32)
                        } else {
                            bit(b, i as u32)
                        }
                    });
                    assert_eq!(
                        bfi(ty, a, b, pos, len),
                        inserted,
                        "bfi {ty:?} {a:#x} {pos} {len}"
                    );
                }
            }
        }
    }
}

#[test]
fn counts_equal_loops() {
    for ty in WIDE {
        let n = ty.bits;
        for (a, _) in integers(n) {
            let highest = |of: bool| (0..n).rev().find(|i| bit(a, *i) == of);
            assert_eq!(popc(ty, a), (0..n).filter(|i| bit(a, *i)).count() as u64);
            assert_eq!(clz(ty, a), highest(true).map_or(n, |i| n - 1 - i).into());
            assert_eq!(brev(ty, a), from_bits(n, |i| bit(a, n - 1 - i)));
            let found = highest(!(ty.signed && bit(a, n - 1)));
            let none = u32::MAX;
            assert_eq!(
                bfind(ty, a, false),
                found.unwrap_or(none).into(),
                "{ty:?} {a:#x}"
            );
            assert_eq!(
                bfind(ty, a, true),
                found.map_or(none, |i| n - 1 - i).into(),
                "{a:#x}"
            );
        }
    }
}

#[test]
fn lop3_looks_up_every_table() {
    for lut in 0..=255u8 {
        for (a, b) in integers(32).into_iter().step_by(37) {
            let c = a.rotate_left(9) ^ 0x1234_5678;
            let want = from_bits(32, |i| {
                let row = 4 * bit(a, i) as u32 + 2 * bit(b, i) as u32 + bit(c, i) as u32;
                bit(lut.into(), row)
            });
            assert_eq!(lop3(a, b, c, lut), want, "{lut:#x} {a:#x} {b:#x} {c:#x}");
        }
    }
    let (a, b, c) = (0xf0f0_1234, 0x0ff0_5678, 0xabcd_ef01);
    assert_eq!(lop3(a, b, c, 0x80), a & b & c);
    assert_eq!(lop3(a, b, c, 0xe8), (a & b) | (a & c) | (b & c));
    assert_eq!(lop3(a, b, c, 0x96), a ^ b ^ c);
}

#[test]
fn prmt_equals_the_manuals_tables() {
    // For each mode and value of c, the source byte of result bytes 0 to 3.
    const TABLE: [(PrmtMode, [[usize; 4]; 4]); 6] = [
        (
            PrmtMode::F4e,
            [[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5], [3, 4, 5, 6]],
        ),
        (
            PrmtMode::B4e,
            [[0, 7, 6, 5], [1, 0, 7, 6], [2, 1, 0, 7], [3, 2, 1, 0]],
        ),
        (PrmtMode::Rc8, [[0; 4], [1; 4], [2; 4], [3; 4]]),
        (
            PrmtMode::Ecl,
            [[0, 1, 2, 3], [1, 1, 2, 3], [2, 2, 2, 3], [3, 3, 3, 3]],
        ),
        (
            PrmtMode::Ecr,
            [[0, 0, 0, 0], [0, 1, 1, 1], [0, 1, 2, 2], [0, 1, 2, 3]],
        ),
        (
            PrmtMode::Rc16,
            [[0, 1, 0, 1], [2, 3, 2, 3], [0, 1, 0, 1], [2, 3, 2, 3]],
        ),
    ];
    let (a, b) = (0x8392_a1b0u32, 0xc7d6_e5f4u32);
    let bytes = [a.to_le_bytes(), b.to_le_bytes()].concat();
    for (mode, rows) in TABLE {
        for (c, row) in rows.iter().enumerate() {
            let want = u32::from_le_bytes(row.map(|i| bytes[i]));
            assert_eq!(
                prmt(mode, a.into(), b.into(), c as u64),
                want.into(),
                "{mode:?} {c}"
            );
        }
    }
    for selector in 0..=0xffffu64 {
        let want = [0, 4, 8, 12].map(|shift| {
            let byte = bytes[(selector >> shift & 7) as usize];
            match selector >> shift & 8 {
                0 => byte,
                _ => ((byte as i8) >> 7) as u8,
            }
        });
        let got = prmt(PrmtMode::Default, a.into(), b.into(), selector);
        assert_eq!(got, u32::from_le_bytes(want).into(), "{selector:#x}");
    }
}

#[test]
fn funnel_shifts_wrap_or_clamp() {
    for (a, b) in integers(32) {
        let at = |i: u32| if i < 32 { bit(a, i) } else { bit(b, i - 32) };
        for amount in [0u32, 1, 7, 31, 32, 33, 63, 64, u32::MAX] {
            for clamp in [false, true] {
                let n = if clamp { amount.min(32) } else { amount % 32 };
                let (left, right) = (
                    from_bits(32, |i| at(32 + i - n)),
                    from_bits(32, |i| at((i + n).min(63))),
                );
                assert_eq!(
                    shf_l(a, b, amount.into(), clamp),
                    left,
                    "{a:#x} {b:#x} {amount}"
                );
                assert_eq!(
                    shf_r(a, b, amount.into(), clamp),
                    right,
                    "{a:#x} {b:#x} {amount}"
                );
            }
        }
    }
}

#[test]
fn masks_and_extensions_equal_loops() {
    for (a, b) in integers(32)
        .into_iter()
        .chain((0..40).flat_map(|a| (0..40).map(move |b| (a, b))))
    {
        for clamp in [false, true] {
            let limit = |x: u64| if clamp { x.min(32) } else { x % 32 };
            let (from, len) = (limit(a), limit(b));
            let want = from_bits(32, |i| u64::from(i) >= from && u64::from(i) < from + len);
            assert_eq!(bmsk(clamp, a, b), want, "{clamp} {a} {b}");
            for ty in [IntType::U32, IntType::S32] {
                let sign = ty.signed && len > 0 && bit(a, len as u32 - 1);
                let want = from_bits(32, |i| if u64::from(i) < len { bit(a, i) } else { sign });
                assert_eq!(szext(ty, clamp, a, b), want, "{ty:?} {clamp} {a:#x} {b}");
            }
        }
    }
}

#[test]
fn fns_walks_from_the_base() {
    for (mask, offset) in integers(32) {
        let small = (-34..=34).chain([offset as i32, i32::MIN, i32::MAX]);
        for n in small.step_by(3) {
            for base in [0u32, 1, 15, 30, 31] {
                let set = |i: &u32| bit(mask, *i);
                let nth = n.unsigned_abs() as usize;
                let found = match n.signum() {
                    0 => Some(base).filter(set),
                    1 => (base..32).filter(set).nth(nth - 1),
                    _ => (0..=base).rev().filter(set).nth(nth - 1),
                };
                let want = u64::from(found.unwrap_or(u32::MAX));
                assert_eq!(
                    fns(mask, base.into(), n as u32 as u64),
                    want,
                    "{mask:#x} {base} {n}"
                );
            }
        }
    }
    assert_eq!(fns(0xaaaa_aaaa, 2, u32::MAX.into()), 1);
    assert_eq!(fns(0xaaaa_aaaa, 32, 1), 0xffff_ffff);
}
