//! Integers, bits, predicates.

use super::{check, check_pred, check16, check32};

#[test]
fn integer_arithmetic_of_32_bits() {
    check32("add.u32 %r3, %r1, %r2;", u32::wrapping_add);
    check32("add.sat.s32 %r3, %r1, %r2;", |a, b| {
        (a as i32).saturating_add(b as i32) as u32
    });
    check32("sub.s32 %r3, %r1, %r2;", u32::wrapping_sub);
    check32("sub.sat.s32 %r3, %r1, %r2;", |a, b| {
        (a as i32).saturating_sub(b as i32) as u32
    });
    check32("mul.lo.u32 %r3, %r1, %r2;", u32::wrapping_mul);
    check32("mul.hi.u32 %r3, %r1, %r2;", |a, b| {
        ((u64::from(a) * u64::from(b)) >> 32) as u32
    });
    check32("mul.hi.s32 %r3, %r1, %r2;", |a, b| {
        ((i64::from(a as i32) * i64::from(b as i32)) >> 32) as u32
    });
    check32("mad.lo.s32 %r3, %r1, %r2, 7;", |a, b| {
        a.wrapping_mul(b).wrapping_add(7)
    });
    check32("mad.hi.u32 %r3, %r1, %r2, %r1;", |a, b| {
        ((u64::from(a) * u64::from(b)) >> 32).wrapping_add(a.into()) as u32
    });
    check32("mul24.lo.u32 %r3, %r1, %r2;", |a, b| {
        (a & 0xff_ffff).wrapping_mul(b & 0xff_ffff)
    });
    check32("mad24.lo.u32 %r3, %r1, %r2, 5;", |a, b| {
        (a & 0xff_ffff).wrapping_mul(b & 0xff_ffff).wrapping_add(5)
    });
    check32("sad.u32 %r3, %r1, %r2, 1;", |a, b| {
        a.abs_diff(b).wrapping_add(1)
    });
    check32("min.u32 %r3, %r1, %r2;", u32::min);
    check32("max.u32 %r3, %r1, %r2;", u32::max);
    check32("min.s32 %r3, %r1, %r2;", |a, b| {
        (a as i32).min(b as i32) as u32
    });
    check32("max.s32 %r3, %r1, %r2;", |a, b| {
        (a as i32).max(b as i32) as u32
    });
    check32("abs.s32 %r3, %r1;", |a, _| (a as i32).wrapping_abs() as u32);
    check32("neg.s32 %r3, %r1;", |a, _| a.wrapping_neg());
    check32("or.b32 %r2, %r2, 1;\ndiv.u32 %r3, %r1, %r2;", |a, b| {
        a / (b | 1)
    });
    check32("or.b32 %r2, %r2, 1;\nrem.u32 %r3, %r1, %r2;", |a, b| {
        a % (b | 1)
    });
    check32("or.b32 %r2, %r2, 1;\ndiv.s32 %r3, %r1, %r2;", |a, b| {
        (a as i32).wrapping_div((b | 1) as i32) as u32
    });
    check32("or.b32 %r2, %r2, 1;\nrem.s32 %r3, %r1, %r2;", |a, b| {
        (a as i32).wrapping_rem((b | 1) as i32) as u32
    });
    check32("dp4a.u32.u32 %r3, %r1, %r2, 3;", |a, b| {
        let products = a.to_le_bytes().into_iter().zip(b.to_le_bytes());
        let sum = products.map(|(x, y)| u32::from(x) * u32::from(y));
        sum.fold(3, u32::wrapping_add)
    });
}

#[test]
fn integer_arithmetic_of_64_and_16_bits() {
    check("add.s64 %rd4, %rd3, -5;", |x| x.wrapping_sub(5));
    check("sub.s64 %rd4, 0, %rd3;", u64::wrapping_neg);
    check("mul.lo.s64 %rd4, %rd3, 0x123456789;", |x| {
        x.wrapping_mul(0x1_2345_6789)
    });
    check("mul.hi.u64 %rd4, %rd3, %rd3;", |x| {
        ((u128::from(x) * u128::from(x)) >> 64) as u64
    });
    check("mad.lo.u64 %rd4, %rd3, %rd3, 9;", |x| {
        x.wrapping_mul(x).wrapping_add(9)
    });
    check("min.s64 %rd4, %rd3, 0;", |x| (x as i64).min(0) as u64);
    check("max.u64 %rd4, %rd3, 77;", |x| x.max(77));
    check("abs.s64 %rd4, %rd3;", |x| (x as i64).wrapping_abs() as u64);
    check("neg.s64 %rd4, %rd3;", u64::wrapping_neg);
    check("rem.u64 %rd4, %rd3, 1000;", |x| x % 1000);
    check("div.s64 %rd4, %rd3, -7;", |x| ((x as i64) / -7) as u64);
    check("mul.wide.u32 %rd4, %r1, %r2;", |x| {
        u64::from(x as u32) * (x >> 32)
    });
    check("mul.wide.s32 %rd4, %r1, %r2;", |x| {
        (i64::from(x as i32) * i64::from((x >> 32) as i32)) as u64
    });
    check("mad.wide.u32 %rd4, %r1, %r2, %rd3;", |x| {
        (u64::from(x as u32) * (x >> 32)).wrapping_add(x)
    });
    check32("mul.wide.u16 %r3, %h1, %h2;", |a, _| {
        (a & 0xffff) * (a >> 16)
    });
    check16("add.u16 %h5, %h1, %h2;", u16::wrapping_add);
    check16("sub.s16 %h5, %h1, %h2;", u16::wrapping_sub);
    check16("mul.lo.u16 %h5, %h1, %h2;", u16::wrapping_mul);
    check16("min.s16 %h5, %h1, %h2;", |a, b| {
        (a as i16).min(b as i16) as u16
    });
    check16("shl.b16 %h5, %h1, 3;", |a, _| a << 3);
    check16("shr.s16 %h5, %h1, 3;", |a, _| ((a as i16) >> 3) as u16);
    check16("not.b16 %h5, %h1;", |a, _| !a);
    check16("and.b16 %h5, %h1, %h2;", |a, b| a & b);
}

#[test]
fn carries_go_from_word_to_word() {
    let body = "add.cc.u32 %r3, %r1, %r2;\naddc.cc.u32 %r4, %r2, %r1;\naddc.u32 %r5, 0, 0;\n\
                mov.b64 %rd4, {%r4, %r5};";
    check(body, |x| {
        let (low, high) = (x & 0xffff_ffff, x >> 32);
        let carry = (low + high) >> 32;
        low + high + carry
    });
    let body = "sub.cc.u32 %r3, %r1, %r2;\nsubc.u32 %r4, %r2, %r1;\nmov.b64 %rd4, {%r3, %r4};";
    check(body, |x| {
        let (a, b) = (x as u32, (x >> 32) as u32);
        let (low, borrow) = a.overflowing_sub(b);
        u64::from(low) | u64::from(b.wrapping_sub(a).wrapping_sub(borrow.into())) << 32
    });
    let body = "mad.lo.cc.u32 %r3, %r1, %r2, %r1;\nmadc.hi.u32 %r4, %r1, %r2, 0;\n\
                mov.b64 %rd4, {%r3, %r4};";
    check(body, |x| (x & 0xffff_ffff) * (x >> 32) + (x & 0xffff_ffff));
}

#[test]
fn bits_and_shifts() {
    check32("and.b32 %r3, %r1, %r2;", |a, b| a & b);
    check32("or.b32 %r3, %r1, %r2;", |a, b| a | b);
    check32("xor.b32 %r3, %r1, %r2;", |a, b| a ^ b);
    check32("not.b32 %r3, %r1;", |a, _| !a);
    check32("cnot.b32 %r3, %r1;", |a, _| u32::from(a == 0));
    check32("shl.b32 %r3, %r1, %r2;", |a, b| {
        a.checked_shl(b).unwrap_or(0)
    });
    check32("shr.u32 %r3, %r1, %r2;", |a, b| {
        a.checked_shr(b).unwrap_or(0)
    });
    check32("shr.s32 %r3, %r1, %r2;", |a, b| {
        ((a as i32) >> b.min(31)) as u32
    });
    check("shl.b64 %rd4, %rd3, %r2;", |x| {
        x.checked_shl((x >> 32) as u32).unwrap_or(0)
    });
    check("shr.u64 %rd4, %rd3, %r1;", |x| {
        x.checked_shr(x as u32).unwrap_or(0)
    });
    check("shr.s64 %rd4, %rd3, %r1;", |x| {
        ((x as i64) >> (x as u32).min(63)) as u64
    });
    check("xor.b64 %rd4, %rd3, -1;", |x| !x);
    check("not.b64 %rd4, %rd3;", |x| !x);
    check32("shf.l.wrap.b32 %r3, %r1, %r2, 8;", |a, b| b << 8 | a >> 24);
    check32("shf.r.wrap.b32 %r3, %r1, %r2, 8;", |a, b| a >> 8 | b << 24);
    check32("shf.r.clamp.b32 %r3, %r1, %r2, 40;", |_, b| b);
    check32("popc.b32 %r3, %r1;", |a, _| a.count_ones());
    check32("popc.b64 %r3, %rd3;", |a, b| {
        a.count_ones() + b.count_ones()
    });
    check32("clz.b32 %r3, %r1;", |a, _| a.leading_zeros());
    check32("clz.b64 %r3, %rd3;", |a, b| {
        (u64::from(a) | u64::from(b) << 32).leading_zeros()
    });
    check32("brev.b32 %r3, %r1;", |a, _| a.reverse_bits());
    check("brev.b64 %rd4, %rd3;", u64::reverse_bits);
    check32("bfind.u32 %r3, %r1;", |a, _| {
        31u32.wrapping_sub(a.leading_zeros())
    });
    check32("bfe.u32 %r3, %r1, 8, 12;", |a, _| a >> 8 & 0xfff);
    check32("bfe.s32 %r3, %r1, 8, 12;", |a, _| {
        (((a << 12) as i32) >> 20) as u32
    });
    check32("bfi.b32 %r3, %r1, %r2, 8, 12;", |a, b| {
        b & !0x000f_ff00 | (a & 0xfff) << 8
    });
    check32("prmt.b32 %r3, %r1, %r2, 0x7531;", |a, b| {
        let bytes = [a.to_le_bytes(), b.to_le_bytes()].concat();
        u32::from_le_bytes([bytes[1], bytes[3], bytes[5], bytes[7]])
    });
    check32("lop3.b32 %r3, %r1, %r2, 0xff00ff00, 0xca;", |a, b| {
        a & b | !a & 0xff00_ff00
    });
    check32("bmsk.clamp.b32 %r3, 4, 8;", |_, _| 0xff0);
    check32("szext.clamp.s32 %r3, %r1, 8;", |a, _| {
        i32::from(a as i8) as u32
    });
    check32("fns.b32 %r3, 0x0000a480, 0, 2;", |_, _| 10);
}

#[test]
fn predicates_and_comparisons() {
    check_pred("setp.eq.u32 %p1, %r1, %r2;", |a, b| a == b);
    check_pred("setp.ne.b32 %p1, %r1, %r2;", |a, b| a != b);
    check_pred("setp.lt.s32 %p1, %r1, %r2;", |a, b| (a as i32) < b as i32);
    check_pred("setp.le.u32 %p1, %r1, %r2;", |a, b| a <= b);
    check_pred("setp.hi.u32 %p1, %r1, %r2;", |a, b| a > b);
    check_pred("setp.ge.s32 %p1, %r1, %r2;", |a, b| a as i32 >= b as i32);
    check_pred("setp.lt.s64 %p1, %rd3, 0;", |_, b| (b as i32) < 0);
    check_pred("setp.gt.u64 %p1, %rd3, 0xffffffff;", |_, b| b != 0);
    check_pred("setp.lt.u16 %p1, %h1, %h2;", |a, _| (a & 0xffff) < a >> 16);
    check_pred("setp.lt.f32 %p1, %f1, %f2;", |a, b| {
        f32::from_bits(a) < f32::from_bits(b)
    });
    check_pred("setp.neu.f32 %p1, %f1, %f2;", |a, b| {
        f32::from_bits(a) != f32::from_bits(b)
    });
    check_pred("setp.geu.f32 %p1, %f1, %f2;", |a, b| {
        f32::from_bits(a).partial_cmp(&f32::from_bits(b)) != Some(std::cmp::Ordering::Less)
    });
    check_pred("setp.nan.f32 %p1, %f1, %f2;", |a, b| {
        f32::from_bits(a).is_nan() || f32::from_bits(b).is_nan()
    });
    check_pred("setp.gt.f64 %p1, %fd1, 0d3FE0000000000000;", |a, b| {
        f64::from_bits(u64::from(a) | u64::from(b) << 32) > 0.5
    });
    check_pred(
        "setp.gt.u32 %p2, %r1, 100;\nsetp.lt.and.u32 %p1, %r1, %r2, %p2;",
        |a, b| a < b && a > 100,
    );
    check_pred(
        "setp.gt.u32 %p2, %r1, 100;\nsetp.lt.or.u32 %p1, %r1, %r2, !%p2;",
        |a, b| a < b || a <= 100,
    );
    check_pred("setp.lt.u32 %p2|%p1, %r1, %r2;", |a, b| a >= b);
    check_pred("setp.lt.u32 %p2, %r1, %r2;\nnot.pred %p1, %p2;", |a, b| {
        a >= b
    });
    check_pred(
        "setp.lt.u32 %p2, %r1, %r2;\nsetp.gt.u32 %p3, %r1, 9;\nxor.pred %p1, %p2, %p3;",
        |a, b| (a < b) != (a > 9),
    );
    check_pred("testp.infinite.f32 %p1, %f1;", |a, _| {
        f32::from_bits(a).is_infinite()
    });
    check_pred("mov.pred %p1, 1;", |_, _| true);
    check32(
        "setp.lt.u32 %p1, %r1, %r2;\nselp.b32 %r3, %r1, 5, %p1;",
        |a, b| if a < b { a } else { 5 },
    );
    check32("set.lt.u32.u32 %r3, %r1, %r2;", |a, b| {
        if a < b { u32::MAX } else { 0 }
    });
    check32("set.gt.f32.s32 %r3, %r1, %r2;", |a, b| {
        if a as i32 > b as i32 {
            1f32.to_bits()
        } else {
            0
        }
    });
    check32("slct.u32.s32 %r3, %r1, 4, %r2;", |a, b| {
        if b as i32 >= 0 { a } else { 4 }
    });
    check32(
        "mov.u32 %r3, 1;\nsetp.lt.u32 %p1, %r1, %r2;\n@%p1 mov.u32 %r3, 2;\n@!%p1 add.u32 %r3, %r3, 2;",
        |a, b| {
            if a < b { 2 } else { 3 }
        },
    );
}
