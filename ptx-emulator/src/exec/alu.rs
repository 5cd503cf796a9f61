//! Lane loops of the integer instructions, written so that they become vector code.

use crate::arith::compare::CmpOp;
use crate::code::{Int2, Lanes, Lanes32};

#[inline(always)]
pub(crate) fn blend32(d: &mut Lanes32, value: &Lanes32, mask: u32) {
    if mask == u32::MAX {
        *d = *value;
    } else {
        for i in 0..32 {
            if mask >> i & 1 == 1 {
                d[i] = value[i];
            }
        }
    }
}

#[inline(always)]
pub(crate) fn blend64(d: &mut Lanes, value: &Lanes, mask: u32) {
    if mask == u32::MAX {
        *d = *value;
    } else {
        for i in 0..32 {
            if mask >> i & 1 == 1 {
                d[i] = value[i];
            }
        }
    }
}

#[inline(always)]
fn map32(a: &Lanes32, b: &Lanes32, out: &mut Lanes32, f: impl Fn(u32, u32) -> u32) {
    for i in 0..32 {
        out[i] = f(a[i], b[i]);
    }
}

#[inline(always)]
fn map64(a: &Lanes, b: &Lanes, out: &mut Lanes, f: impl Fn(u64, u64) -> u64) {
    for i in 0..32 {
        out[i] = f(a[i], b[i]);
    }
}

pub(crate) fn int32(f: Int2, a: &Lanes32, b: &Lanes32, out: &mut Lanes32) {
    match f {
        Int2::Add => map32(a, b, out, u32::wrapping_add),
        Int2::Sub => map32(a, b, out, u32::wrapping_sub),
        Int2::Mul => map32(a, b, out, u32::wrapping_mul),
        Int2::And => map32(a, b, out, |a, b| a & b),
        Int2::Or => map32(a, b, out, |a, b| a | b),
        Int2::Xor => map32(a, b, out, |a, b| a ^ b),
        // Shifts by 32 and more give 0, or the sign.
        Int2::Shl => map32(a, b, out, |a, b| if b > 31 { 0 } else { a << (b & 31) }),
        Int2::ShrU => map32(a, b, out, |a, b| if b > 31 { 0 } else { a >> (b & 31) }),
        Int2::ShrS => map32(a, b, out, |a, b| ((a as i32) >> b.min(31)) as u32),
        Int2::MinU => map32(a, b, out, u32::min),
        Int2::MaxU => map32(a, b, out, u32::max),
        Int2::MinS => map32(a, b, out, |a, b| (a as i32).min(b as i32) as u32),
        Int2::MaxS => map32(a, b, out, |a, b| (a as i32).max(b as i32) as u32),
    }
}

pub(crate) fn int64(f: Int2, a: &Lanes, b: &Lanes, out: &mut Lanes) {
    match f {
        Int2::Add => map64(a, b, out, u64::wrapping_add),
        Int2::Sub => map64(a, b, out, u64::wrapping_sub),
        Int2::Mul => map64(a, b, out, u64::wrapping_mul),
        Int2::And => map64(a, b, out, |a, b| a & b),
        Int2::Or => map64(a, b, out, |a, b| a | b),
        Int2::Xor => map64(a, b, out, |a, b| a ^ b),
        Int2::MinU => map64(a, b, out, u64::min),
        Int2::MaxU => map64(a, b, out, u64::max),
        Int2::MinS => map64(a, b, out, |a, b| (a as i64).min(b as i64) as u64),
        Int2::MaxS => map64(a, b, out, |a, b| (a as i64).max(b as i64) as u64),
        // The amount is 32 bits wide: see `shift64`.
        Int2::Shl | Int2::ShrU | Int2::ShrS => *out = *a,
    }
}

pub(crate) fn shift64(f: Int2, a: &Lanes, b: &Lanes32, out: &mut Lanes) {
    match f {
        Int2::Shl => {
            for i in 0..32 {
                out[i] = if b[i] > 63 { 0 } else { a[i] << (b[i] & 63) };
            }
        }
        Int2::ShrU => {
            for i in 0..32 {
                out[i] = if b[i] > 63 { 0 } else { a[i] >> (b[i] & 63) };
            }
        }
        _ => {
            for i in 0..32 {
                out[i] = ((a[i] as i64) >> b[i].min(63)) as u64;
            }
        }
    }
}

#[inline(always)]
fn where32(a: &Lanes32, b: &Lanes32, f: impl Fn(u32, u32) -> bool) -> u32 {
    let mut hits = [0u32; 32];
    for i in 0..32 {
        hits[i] = u32::from(f(a[i], b[i])) << i;
    }
    hits.iter().fold(0, |m, h| m | h)
}

#[inline(always)]
fn where64(a: &Lanes, b: &Lanes, f: impl Fn(u64, u64) -> bool) -> u32 {
    let mut mask = 0;
    for i in 0..32 {
        mask |= u32::from(f(a[i], b[i])) << i;
    }
    mask
}

/// Lanes where the comparison of integers holds.
pub(crate) fn compare32(cmp: CmpOp, signed: bool, a: &Lanes32, b: &Lanes32) -> u32 {
    let unsigned = matches!(cmp, CmpOp::Lo | CmpOp::Ls | CmpOp::Hi | CmpOp::Hs);
    let signed = signed && !unsigned;
    match (cmp, signed) {
        (CmpOp::Eq, _) => where32(a, b, |a, b| a == b),
        (CmpOp::Ne, _) => where32(a, b, |a, b| a != b),
        (CmpOp::Lt, true) => where32(a, b, |a, b| (a as i32) < b as i32),
        (CmpOp::Le, true) => where32(a, b, |a, b| a as i32 <= b as i32),
        (CmpOp::Gt, true) => where32(a, b, |a, b| a as i32 > b as i32),
        (CmpOp::Ge, true) => where32(a, b, |a, b| a as i32 >= b as i32),
        (CmpOp::Lt | CmpOp::Lo, _) => where32(a, b, |a, b| a < b),
        (CmpOp::Le | CmpOp::Ls, _) => where32(a, b, |a, b| a <= b),
        (CmpOp::Gt | CmpOp::Hi, _) => where32(a, b, |a, b| a > b),
        (CmpOp::Ge | CmpOp::Hs, _) => where32(a, b, |a, b| a >= b),
        // Operators for numbers with NaN do not get here: the decoder refuses them on integers.
        _ => 0,
    }
}

/// Lanes where the comparison of integers holds.
pub(crate) fn compare64(cmp: CmpOp, signed: bool, a: &Lanes, b: &Lanes) -> u32 {
    let unsigned = matches!(cmp, CmpOp::Lo | CmpOp::Ls | CmpOp::Hi | CmpOp::Hs);
    let signed = signed && !unsigned;
    match (cmp, signed) {
        (CmpOp::Eq, _) => where64(a, b, |a, b| a == b),
        (CmpOp::Ne, _) => where64(a, b, |a, b| a != b),
        (CmpOp::Lt, true) => where64(a, b, |a, b| (a as i64) < b as i64),
        (CmpOp::Le, true) => where64(a, b, |a, b| a as i64 <= b as i64),
        (CmpOp::Gt, true) => where64(a, b, |a, b| a as i64 > b as i64),
        (CmpOp::Ge, true) => where64(a, b, |a, b| a as i64 >= b as i64),
        (CmpOp::Lt | CmpOp::Lo, _) => where64(a, b, |a, b| a < b),
        (CmpOp::Le | CmpOp::Ls, _) => where64(a, b, |a, b| a <= b),
        (CmpOp::Gt | CmpOp::Hi, _) => where64(a, b, |a, b| a > b),
        (CmpOp::Ge | CmpOp::Hs, _) => where64(a, b, |a, b| a >= b),
        _ => 0,
    }
}

/// Lanes where the comparison of f32 holds.
pub(crate) fn compare_f32(cmp: CmpOp, ftz: bool, a: &Lanes32, b: &Lanes32) -> u32 {
    let value = |x: u32| {
        let tiny = ftz && x & 0x7f80_0000 == 0;
        f32::from_bits(if tiny { x & 0x8000_0000 } else { x })
    };
    let unordered = |a: f32, b: f32| a.is_nan() | b.is_nan();
    // A macro, not a function pointer, so that every arm is a loop of its own.
    macro_rules! all {
        (|$a:ident, $b:ident| $test:expr) => {
            where32(a, b, |a, b| {
                let ($a, $b) = (value(a), value(b));
                $test
            })
        };
    }
    match cmp {
        CmpOp::Eq => all!(|a, b| a == b),
        // `ne` and the ordered comparisons are false for NaN, the `u` forms true.
        CmpOp::Ne => all!(|a, b| (a != b) & !unordered(a, b)),
        CmpOp::Lt => all!(|a, b| a < b),
        CmpOp::Le => all!(|a, b| a <= b),
        CmpOp::Gt => all!(|a, b| a > b),
        CmpOp::Ge => all!(|a, b| a >= b),
        CmpOp::Equ => all!(|a, b| (a == b) | unordered(a, b)),
        CmpOp::Neu => all!(|a, b| a != b),
        CmpOp::Ltu => all!(|a, b| (a < b) | unordered(a, b)),
        CmpOp::Leu => all!(|a, b| (a <= b) | unordered(a, b)),
        CmpOp::Gtu => all!(|a, b| (a > b) | unordered(a, b)),
        CmpOp::Geu => all!(|a, b| (a >= b) | unordered(a, b)),
        CmpOp::Num => all!(|a, b| !unordered(a, b)),
        CmpOp::Nan => all!(|a, b| unordered(a, b)),
        CmpOp::Lo | CmpOp::Ls | CmpOp::Hi | CmpOp::Hs => 0,
    }
}
