//! Integer arithmetic against Rust's own.

use crate::harness::{binary, ternary, unary};

#[test]
fn add_and_sub_wrap() {
    binary("add.u16", u16::wrapping_add);
    binary("add.s16", i16::wrapping_add);
    binary("add.u32", u32::wrapping_add);
    binary("add.s32", i32::wrapping_add);
    binary("add.u64", u64::wrapping_add);
    binary("add.s64", i64::wrapping_add);
    binary("sub.u16", u16::wrapping_sub);
    binary("sub.s32", i32::wrapping_sub);
    binary("sub.u32", u32::wrapping_sub);
    binary("sub.s64", i64::wrapping_sub);
    binary("sub.u64", u64::wrapping_sub);
}

#[test]
fn saturating_forms_clamp() {
    binary("add.sat.s32", i32::saturating_add);
    binary("sub.sat.s32", i32::saturating_sub);
    ternary("mad.hi.sat.s32", |a: i32, b: i32, c: i32| {
        high(a, b).saturating_add(c)
    });
}

fn high(a: i32, b: i32) -> i32 {
    ((i64::from(a) * i64::from(b)) >> 32) as i32
}

#[test]
fn mul_lo_hi_and_wide() {
    binary("mul.lo.u16", u16::wrapping_mul);
    binary("mul.lo.s16", i16::wrapping_mul);
    binary("mul.lo.s32", i32::wrapping_mul);
    binary("mul.lo.u32", u32::wrapping_mul);
    binary("mul.lo.s64", i64::wrapping_mul);
    binary("mul.lo.u64", u64::wrapping_mul);
    binary("mul.hi.u16", |a: u16, b: u16| {
        ((u32::from(a) * u32::from(b)) >> 16) as u16
    });
    binary("mul.hi.s16", |a: i16, b: i16| {
        ((i32::from(a) * i32::from(b)) >> 16) as i16
    });
    binary("mul.hi.u32", |a: u32, b: u32| {
        ((u64::from(a) * u64::from(b)) >> 32) as u32
    });
    binary("mul.hi.s32", high);
    binary("mul.hi.u64", |a: u64, b: u64| {
        ((u128::from(a) * u128::from(b)) >> 64) as u64
    });
    binary("mul.hi.s64", |a: i64, b: i64| {
        ((i128::from(a) * i128::from(b)) >> 64) as i64
    });
    binary("mul.wide.u16", |a: u16, b: u16| u32::from(a) * u32::from(b));
    binary("mul.wide.s16", |a: i16, b: i16| i32::from(a) * i32::from(b));
    binary("mul.wide.u32", |a: u32, b: u32| u64::from(a) * u64::from(b));
    binary("mul.wide.s32", |a: i32, b: i32| i64::from(a) * i64::from(b));
}

#[test]
fn mad_adds_the_third_operand() {
    ternary("mad.lo.u16", |a: u16, b: u16, c: u16| {
        a.wrapping_mul(b).wrapping_add(c)
    });
    ternary("mad.lo.s32", |a: i32, b: i32, c: i32| {
        a.wrapping_mul(b).wrapping_add(c)
    });
    ternary("mad.lo.u32", |a: u32, b: u32, c: u32| {
        a.wrapping_mul(b).wrapping_add(c)
    });
    ternary("mad.lo.s64", |a: i64, b: i64, c: i64| {
        a.wrapping_mul(b).wrapping_add(c)
    });
    ternary("mad.lo.u64", |a: u64, b: u64, c: u64| {
        a.wrapping_mul(b).wrapping_add(c)
    });
    ternary("mad.hi.s32", |a: i32, b: i32, c: i32| {
        high(a, b).wrapping_add(c)
    });
    ternary("mad.hi.u64", |a: u64, b: u64, c: u64| {
        { ((u128::from(a) * u128::from(b)) >> 64) as u64 }.wrapping_add(c)
    });
    ternary("mad.wide.u16", |a: u16, b: u16, c: u32| {
        (u32::from(a) * u32::from(b)).wrapping_add(c)
    });
    ternary("mad.wide.s16", |a: i16, b: i16, c: i32| {
        (i32::from(a) * i32::from(b)).wrapping_add(c)
    });
    ternary("mad.wide.u32", |a: u32, b: u32, c: u64| {
        (u64::from(a) * u64::from(b)).wrapping_add(c)
    });
    ternary("mad.wide.s32", |a: i32, b: i32, c: i64| {
        (i64::from(a) * i64::from(b)).wrapping_add(c)
    });
}

#[test]
fn products_of_24_bits() {
    let unsigned = |a: u32, b: u32| u64::from(a << 8 >> 8) * u64::from(b << 8 >> 8);
    let signed = |a: i32, b: i32| i64::from(a << 8 >> 8) * i64::from(b << 8 >> 8);
    binary("mul24.lo.u32", |a, b| unsigned(a, b) as u32);
    binary("mul24.hi.u32", |a, b| (unsigned(a, b) >> 16) as u32);
    binary("mul24.lo.s32", |a, b| signed(a, b) as i32);
    binary("mul24.hi.s32", |a, b| (signed(a, b) >> 16) as i32);
    ternary("mad24.lo.u32", |a, b, c: u32| {
        (unsigned(a, b) as u32).wrapping_add(c)
    });
    ternary("mad24.hi.s32", |a, b, c: i32| {
        ((signed(a, b) >> 16) as i32).wrapping_add(c)
    });
}

#[test]
fn division_truncates_and_int_min_by_minus_one_wraps() {
    // An odd divisor is not zero: a zero one is a fault.
    let op = |width: u32, op: &str| format!("or.b{width} %b, %b, 1;\n{op} %d, %a, %b;");
    binary(&op(16, "div.u16"), |a: u16, b: u16| a / (b | 1));
    binary(&op(16, "div.s16"), |a: i16, b: i16| a.wrapping_div(b | 1));
    binary(&op(32, "div.u32"), |a: u32, b: u32| a / (b | 1));
    binary(&op(32, "div.s32"), |a: i32, b: i32| a.wrapping_div(b | 1));
    binary(&op(64, "div.u64"), |a: u64, b: u64| a / (b | 1));
    binary(&op(64, "div.s64"), |a: i64, b: i64| a.wrapping_div(b | 1));
    binary(&op(16, "rem.u16"), |a: u16, b: u16| a % (b | 1));
    binary(&op(32, "rem.u32"), |a: u32, b: u32| a % (b | 1));
    binary(&op(32, "rem.s32"), |a: i32, b: i32| a.wrapping_rem(b | 1));
    binary(&op(64, "rem.u64"), |a: u64, b: u64| a % (b | 1));
    binary(&op(64, "rem.s64"), |a: i64, b: i64| a.wrapping_rem(b | 1));
}

#[test]
fn selections_and_signs() {
    binary("min.u16", u16::min);
    binary("min.s16", i16::min);
    binary("min.u32", u32::min);
    binary("min.s32", i32::min);
    binary("min.u64", u64::min);
    binary("min.s64", i64::min);
    binary("max.u16", u16::max);
    binary("max.s16", i16::max);
    binary("max.u32", u32::max);
    binary("max.s32", i32::max);
    binary("max.u64", u64::max);
    binary("max.s64", i64::max);
    unary("abs.s16", i16::wrapping_abs);
    unary("abs.s32", i32::wrapping_abs);
    unary("abs.s64", i64::wrapping_abs);
    unary("neg.s16", i16::wrapping_neg);
    unary("neg.s32", i32::wrapping_neg);
    unary("neg.s64", i64::wrapping_neg);
    ternary("sad.u32", |a: u32, b: u32, c: u32| {
        a.abs_diff(b).wrapping_add(c)
    });
    ternary("sad.s32", |a: i32, b: i32, c: u32| {
        a.abs_diff(b).wrapping_add(c)
    });
    ternary("sad.u64", |a: u64, b: u64, c: u64| {
        a.abs_diff(b).wrapping_add(c)
    });
}

#[test]
fn carries_make_wide_arithmetic() {
    let split = "mov.b64 {%r4, %r5}, %a;\nmov.b64 {%r6, %r7}, %b;\n";
    let join = "mov.b64 %d, {%r4, %r5};";
    let add = "add.cc.u32 %r4, %r4, %r6;\naddc.u32 %r5, %r5, %r7;\n";
    binary(&format!("{split}{add}{join}"), u64::wrapping_add);
    let sub = "sub.cc.u32 %r4, %r4, %r6;\nsubc.u32 %r5, %r5, %r7;\n";
    binary(&format!("{split}{sub}{join}"), u64::wrapping_sub);
    // The carry out of the top, as a number.
    let out = "add.cc.u64 %rd2, %a, %b;\naddc.u32 %d, 0, 0;";
    binary(out, |a: u64, b: u64| u32::from(a.checked_add(b).is_none()));
    let through = "add.cc.u32 %r4, %r4, %r6;\naddc.cc.u32 %r5, %r5, %r7;\naddc.u32 %d, 0, 0;";
    binary(&format!("{split}{through}"), |a: u64, b: u64| {
        u32::from(a.checked_add(b).is_none())
    });
    // a·b + c of 32 × 32 + 64 bits, by halves.
    let mad = "mov.b64 {%r4, %r5}, %c;\nmad.lo.cc.u32 %r4, %a, %b, %r4;\n\
               madc.hi.u32 %r5, %a, %b, %r5;\nmov.b64 %d, {%r4, %r5};";
    ternary(mad, |a: u32, b: u32, c: u64| {
        (u64::from(a) * u64::from(b)).wrapping_add(c)
    });
}

#[test]
fn dot_products_of_bytes() {
    let unsigned = |a: u32, b: u32| {
        a.to_le_bytes()
            .into_iter()
            .zip(b.to_le_bytes())
            .map(|(x, y)| u32::from(x) * u32::from(y))
    };
    ternary("dp4a.u32.u32", |a, b, c: u32| {
        c.wrapping_add(unsigned(a, b).sum())
    });
    ternary("dp4a.s32.s32", |a: i32, b: i32, c: i32| {
        let products = a.to_le_bytes().into_iter().zip(b.to_le_bytes());
        c.wrapping_add(
            products
                .map(|(x, y)| i32::from(x as i8) * i32::from(y as i8))
                .sum(),
        )
    });
    for (op, shift) in [("dp2a.lo.s32.u32", 0), ("dp2a.hi.s32.u32", 16)] {
        ternary(op, |a: i32, b: u32, c: i32| {
            let low = i32::from(a as i16) * i32::from((b >> shift) as u8);
            let high = (a >> 16) * i32::from((b >> shift >> 8) as u8);
            c.wrapping_add(low).wrapping_add(high)
        });
    }
}
