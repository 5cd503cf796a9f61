//! Logic, shifts, fields and permutations.

use crate::harness::{binary, ternary, unary};

#[test]
fn logic_works_bit_by_bit() {
    binary("and.b16", |a: u16, b: u16| a & b);
    binary("and.b32", |a: u32, b: u32| a & b);
    binary("and.b64", |a: u64, b: u64| a & b);
    binary("or.b16", |a: u16, b: u16| a | b);
    binary("or.b32", |a: u32, b: u32| a | b);
    binary("or.b64", |a: u64, b: u64| a | b);
    binary("xor.b16", |a: u16, b: u16| a ^ b);
    binary("xor.b32", |a: u32, b: u32| a ^ b);
    binary("xor.b64", |a: u64, b: u64| a ^ b);
    unary("not.b16", |a: u16| !a);
    unary("not.b32", |a: u32| !a);
    unary("not.b64", |a: u64| !a);
    unary("cnot.b32", |a: u32| u32::from(a == 0));
    binary("and.pred", |a: bool, b: bool| a && b);
    binary("or.pred", |a: bool, b: bool| a || b);
    binary("xor.pred", |a: bool, b: bool| a != b);
    unary("not.pred", |a: bool| !a);
}

#[test]
fn lop3_reads_its_table() {
    let all = |a: u32, b: u32, c: u32, lut: u32| {
        (0..32).fold(0, |d, i| {
            let row = (a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1);
            d | (lut >> row & 1) << i
        })
    };
    for lut in [0x00, 0x1a, 0x3f, 0x80, 0x96, 0xe8, 0xfe, 0xca] {
        let body = format!("lop3.b32 %d, %a, %b, %c, {lut};");
        ternary(&body, |a: u32, b: u32, c: u32| all(a, b, c, lut));
    }
}

#[test]
fn shifts_by_the_width_and_more() {
    binary("shl.b16", |a: u16, n: u32| a.checked_shl(n).unwrap_or(0));
    binary("shl.b32", |a: u32, n: u32| a.checked_shl(n).unwrap_or(0));
    binary("shl.b64", |a: u64, n: u32| a.checked_shl(n).unwrap_or(0));
    binary("shr.u16", |a: u16, n: u32| a.checked_shr(n).unwrap_or(0));
    binary("shr.b32", |a: u32, n: u32| a.checked_shr(n).unwrap_or(0));
    binary("shr.u32", |a: u32, n: u32| a.checked_shr(n).unwrap_or(0));
    binary("shr.u64", |a: u64, n: u32| a.checked_shr(n).unwrap_or(0));
    binary("shr.s16", |a: i16, n: u32| a >> n.min(15));
    binary("shr.s32", |a: i32, n: u32| a >> n.min(31));
    binary("shr.s64", |a: i64, n: u32| a >> n.min(63));
}

#[test]
fn funnel_shifts() {
    let pair = |a: u32, b: u32| u64::from(b) << 32 | u64::from(a);
    ternary("shf.l.wrap.b32", |a, b, n: u32| {
        (pair(a, b) << (n % 32) >> 32) as u32
    });
    ternary("shf.r.wrap.b32", |a, b, n: u32| {
        (pair(a, b) >> (n % 32)) as u32
    });
    ternary("shf.l.clamp.b32", |a, b, n: u32| {
        (pair(a, b) << n.min(32) >> 32) as u32
    });
    ternary("shf.r.clamp.b32", |a, b, n: u32| {
        (pair(a, b) >> n.min(32)) as u32
    });
}

/// The manual's loops; `width` bits.
fn extract(signed: bool, width: u32, a: u64, pos: u32, len: u32) -> u64 {
    let (pos, len, msb) = (pos & 0xff, len & 0xff, width - 1);
    let sign = if !signed || len == 0 {
        0
    } else {
        a >> (pos + len - 1).min(msb) & 1
    };
    (0..width).fold(0, |d, i| {
        d | if i < len && pos + i <= msb {
            a >> (pos + i) & 1
        } else {
            sign
        } << i
    })
}

fn insert(width: u32, a: u64, b: u64, pos: u32, len: u32) -> u64 {
    let (pos, len) = (pos & 0xff, len & 0xff);
    (0..len)
        .filter(|i| pos + i < width)
        .fold(b, |d, i| d & !(1 << (pos + i)) | (a >> i & 1) << (pos + i))
}

#[test]
fn bit_fields() {
    // Positions and lengths inside the word half of the time.
    ternary("bfe.u32", |a: u32, p, l| {
        extract(false, 32, a.into(), p, l) as u32
    });
    ternary("bfe.s32", |a: i32, p, l| {
        extract(true, 32, a as u32 as u64, p, l) as i32
    });
    ternary("bfe.u64", |a: u64, p, l| extract(false, 64, a, p, l));
    ternary("bfe.s64", |a: i64, p, l| {
        extract(true, 64, a as u64, p, l) as i64
    });
    let small = "and.b32 %b, %b, 31;\nand.b32 %c, %c, 31;\nbfe.s32 %d, %a, %b, %c;";
    ternary(small, |a: i32, p: u32, l: u32| {
        extract(true, 32, a as u32 as u64, p & 31, l & 31) as i32
    });
    for (pos, len) in [
        (0, 0),
        (0, 32),
        (5, 7),
        (31, 1),
        (20, 20),
        (32, 4),
        (8, 255),
    ] {
        let body = format!("bfi.b32 %d, %a, %b, {pos}, {len};");
        binary(&body, |a: u32, b: u32| {
            insert(32, a.into(), b.into(), pos, len) as u32
        });
        let body = format!("bfi.b64 %d, %a, %b, {}, {len};", 2 * pos);
        binary(&body, |a: u64, b: u64| insert(64, a, b, 2 * pos, len));
    }
    ternary("bfi.b32 %d, %a, 0x12345678, %b, %c;", |a: u32, p, l| {
        insert(32, a.into(), 0x1234_5678, p, l) as u32
    });
}

#[test]
fn counts_and_positions() {
    unary("popc.b32", u32::count_ones);
    unary("popc.b64", u64::count_ones);
    unary("clz.b32", u32::leading_zeros);
    unary("clz.b64", u64::leading_zeros);
    unary("brev.b32", u32::reverse_bits);
    unary("brev.b64", u64::reverse_bits);
    unary("bfind.u32", |a: u32| a.checked_ilog2().unwrap_or(u32::MAX));
    unary("bfind.u64", |a: u64| a.checked_ilog2().unwrap_or(u32::MAX));
    let signed = |a: i64| (if a < 0 { !a } else { a }).checked_ilog2();
    unary("bfind.s32", |a: i32| signed(a.into()).unwrap_or(u32::MAX));
    unary("bfind.s64", |a: i64| signed(a).unwrap_or(u32::MAX));
    unary("bfind.shiftamt.u32", |a: u32| {
        a.checked_ilog2().map_or(u32::MAX, |i| 31 - i)
    });
    unary("bfind.shiftamt.s64", |a: i64| {
        signed(a).map_or(u32::MAX, |i| 63 - i)
    });
    ternary("fns.b32 %d, %a, %b, %c;", |mask: u32, base: u32, n: i32| {
        let set = |i: &u32| mask >> i & 1 == 1;
        let nth = n.unsigned_abs() as usize;
        let base_bit = (base <= 31).then_some(base);
        match (base_bit, n.signum()) {
            (None, _) => None,
            (Some(base), 0) => Some(base).filter(set),
            (Some(base), 1) => (base..32).filter(set).nth(nth - 1),
            (Some(base), _) => (0..=base).rev().filter(set).nth(nth - 1),
        }
        .unwrap_or(u32::MAX)
    });
}

#[test]
fn masks_and_extensions() {
    let mask = |from: u32, len: u32| {
        (0..32)
            .filter(|i| *i >= from && *i - from < len)
            .fold(0u32, |m, i| m | 1 << i)
    };
    binary("bmsk.clamp.b32", |a: u32, b: u32| {
        mask(a.min(32), b.min(32))
    });
    binary("bmsk.wrap.b32", |a: u32, b: u32| mask(a % 32, b % 32));
    let extend = |signed: bool, a: u32, n: u32| match (n, signed) {
        (0, _) => 0,
        (_, false) => a << (32 - n) >> (32 - n),
        (_, true) => ((a << (32 - n)) as i32 >> (32 - n)) as u32,
    };
    binary("szext.clamp.s32", |a: u32, n: u32| {
        extend(true, a, n.min(32))
    });
    binary("szext.wrap.s32", |a: u32, n: u32| extend(true, a, n % 32));
    binary("szext.clamp.u32", |a: u32, n: u32| {
        extend(false, a, n.min(32))
    });
    binary("szext.wrap.u32", |a: u32, n: u32| extend(false, a, n % 32));
}

#[test]
fn prmt_modes_follow_the_manuals_tables() {
    fn bytes(a: u32, b: u32) -> Vec<u8> {
        [a.to_le_bytes(), b.to_le_bytes()].concat()
    }
    // The source byte of result bytes 0 to 3 for c mod 4 = 0, 1, 2, 3.
    type Rows = [[usize; 4]; 4];
    let tables: [(&str, Rows); 6] = [
        (
            "f4e",
            [[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5], [3, 4, 5, 6]],
        ),
        (
            "b4e",
            [[0, 7, 6, 5], [1, 0, 7, 6], [2, 1, 0, 7], [3, 2, 1, 0]],
        ),
        ("rc8", [[0; 4], [1; 4], [2; 4], [3; 4]]),
        (
            "ecl",
            [[0, 1, 2, 3], [1, 1, 2, 3], [2, 2, 2, 3], [3, 3, 3, 3]],
        ),
        (
            "ecr",
            [[0, 0, 0, 0], [0, 1, 1, 1], [0, 1, 2, 2], [0, 1, 2, 3]],
        ),
        (
            "rc16",
            [[0, 1, 0, 1], [2, 3, 2, 3], [0, 1, 0, 1], [2, 3, 2, 3]],
        ),
    ];
    for (mode, rows) in tables {
        ternary(&format!("prmt.b32.{mode}"), |a: u32, b: u32, c: u32| {
            let source = bytes(a, b);
            u32::from_le_bytes(rows[c as usize % 4].map(|i| source[i]))
        });
    }
    ternary("prmt.b32", |a: u32, b: u32, c: u32| {
        let source = bytes(a, b);
        u32::from_le_bytes([0, 4, 8, 12].map(|shift| {
            let byte = source[(c >> shift & 7) as usize];
            let sign = if byte >= 0x80 { 0xff } else { 0 };
            if c >> shift & 8 == 0 { byte } else { sign }
        }))
    });
}

#[test]
fn selp_and_slct_choose() {
    ternary("selp.b32", |a: u32, b: u32, p: bool| if p { a } else { b });
    ternary("selp.b64", |a: u64, b: u64, p: bool| if p { a } else { b });
    ternary("selp.b16", |a: u16, b: u16, p: bool| if p { a } else { b });
    ternary("selp.u32", |a: u32, b: u32, p: bool| if p { a } else { b });
    ternary(
        "slct.u32.s32",
        |a: u32, b: u32, c: i32| if c >= 0 { a } else { b },
    );
    ternary(
        "slct.u64.f32",
        |a: u64, b: u64, c: f32| if c >= 0.0 { a } else { b },
    );
}
