//! Every opcode through PTX text, against Rust's own arithmetic. The arithmetic itself is tested
//! with special values beside it, in `arith`; here it is about operands, types and modifiers.

use crate::support::run;

/// Inputs of 64 threads: edge values, then a multiplicative sequence.
fn inputs() -> Vec<u64> {
    let edges = [
        0,
        1,
        2,
        31,
        32,
        33,
        63,
        64,
        0x7f,
        0x80,
        0xff,
        0x7fff,
        0x8000,
        0xffff,
        0x7fff_ffff,
        0x8000_0000,
        0xffff_ffff,
        1 << 32,
        0x7fff_ffff_ffff_ffff,
        1 << 63,
        u64::MAX,
        u64::MAX - 1,
        0x3f80_0000_bf80_0000,
        0x3ff0_0000_0000_0000,
        0x0000_0001_7f80_0000,
    ];
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state = state.wrapping_mul(0xd129_42f0_5e1d_4e97).rotate_left(17) ^ 0x5851_f42d_4c95_7f2d;
        state
    };
    (0..64)
        .map(|i| edges.get(i).copied().unwrap_or_else(&mut next))
        .collect()
}

/// Runs `body`, which turns %rd3 (with halves %r1 low, %r2 high, and %h1..%h4) into %rd4.
#[track_caller]
fn check(body: &str, want: impl Fn(u64) -> u64) {
    check_with(&inputs(), body, want);
}

#[track_caller]
fn check_with(input: &[u64], body: &str, want: impl Fn(u64) -> u64) {
    let text = format!(
        "ld.global.u64 %rd3, [%rd2];\nmov.b64 {{%r1, %r2}}, %rd3;\n\
         mov.b64 {{%h1, %h2, %h3, %h4}}, %rd3;\nmov.b32 %f1, %r1;\nmov.b32 %f2, %r2;\n\
         mov.b64 %fd1, %rd3;\n{body}\nst.global.u64 [%rd1], %rd4;\nret;"
    );
    let out = run("", &text, input);
    for (x, (found, wanted)) in input
        .iter()
        .zip(out.iter().zip(input.iter().map(|x| want(*x))))
    {
        assert_eq!(
            *found, wanted,
            "{body}\non {x:#x}: found {found:#x}, wanted {wanted:#x}"
        );
    }
}

/// `body` turns %r1, %r2 (low and high half of the input) into %r3.
#[track_caller]
fn check32(body: &str, want: impl Fn(u32, u32) -> u32) {
    let body = format!("{body}\ncvt.u64.u32 %rd4, %r3;");
    check(&body, |x| want(x as u32, (x >> 32) as u32).into());
}

/// `body` turns %h1, %h2 into %h5.
#[track_caller]
fn check16(body: &str, want: impl Fn(u16, u16) -> u16) {
    let body = format!("{body}\ncvt.u64.u16 %rd4, %h5;");
    check(&body, |x| want(x as u16, (x >> 16) as u16).into());
}

/// `body` sets %p1.
#[track_caller]
fn check_pred(body: &str, want: impl Fn(u32, u32) -> bool) {
    let body = format!("{body}\nselp.u64 %rd4, 1, 0, %p1;");
    check(&body, |x| want(x as u32, (x >> 32) as u32).into());
}

/// `body` turns %f1, %f2 into %f3; NaN results need not have any particular bits.
#[track_caller]
fn check_f32(body: &str, want: impl Fn(f32, f32) -> f32) {
    let canonical = |v: f32| u64::from(if v.is_nan() { 0x7fff_ffff } else { v.to_bits() });
    let body = format!("{body}\nmov.b32 %r3, %f3;\ncvt.u64.u32 %rd4, %r3;");
    check(&body, |x| {
        canonical(want(
            f32::from_bits(x as u32),
            f32::from_bits((x >> 32) as u32),
        ))
    });
}

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

#[test]
fn f32_arithmetic() {
    check_f32("add.f32 %f3, %f1, %f2;", |a, b| a + b);
    check_f32("sub.rn.f32 %f3, %f1, %f2;", |a, b| a - b);
    check_f32("mul.f32 %f3, %f1, %f2;", |a, b| a * b);
    check_f32("fma.rn.f32 %f3, %f1, %f2, 0f3F800000;", |a, b| {
        a.mul_add(b, 1.0)
    });
    check_f32("mad.rn.f32 %f3, %f1, %f2, %f1;", |a, b| a.mul_add(b, a));
    check_f32("div.rn.f32 %f3, %f1, %f2;", |a, b| a / b);
    check_f32("rcp.rn.f32 %f3, %f1;", |a, _| 1.0 / a);
    check_f32("sqrt.rn.f32 %f3, %f1;", |a, _| a.sqrt());
    // The manual orders the zeros, Rust does not.
    let less = |a: f32, b: f32| a < b || (a == b && a.is_sign_negative());
    let choose = move |a: f32, b: f32, first: bool| match (a.is_nan(), b.is_nan()) {
        (true, _) => b,
        (_, true) => a,
        _ if first => a,
        _ => b,
    };
    check_f32("min.f32 %f3, %f1, %f2;", |a, b| choose(a, b, less(a, b)));
    check_f32("max.f32 %f3, %f1, %f2;", |a, b| choose(a, b, !less(a, b)));
    check_f32("max.NaN.f32 %f3, %f1, 0f7FC00000;", |_, _| f32::NAN);
    check_f32(
        "abs.f32 %f3, %f1;\nadd.f32 %f3, %f3, 0f00000000;",
        |a, _| a.abs(),
    );
    check_f32(
        "neg.f32 %f3, %f1;\nadd.f32 %f3, %f3, 0f00000000;",
        |a, _| -a + 0.0,
    );
    check_f32("add.sat.f32 %f3, %f1, %f2;", |a, b| {
        let sum = a + b;
        if sum.is_nan() {
            0.0
        } else {
            sum.clamp(0.0, 1.0) + 0.0
        }
    });
    check_f32("add.rz.f32 %f3, 0f3F800000, 0f33FFFFFF;", |_, _| 1.0);
    check_f32("add.rp.f32 %f3, 0f3F800000, 0f2B800000;", |_, _| {
        1.0 + f32::EPSILON
    });
    check_f32("mul.ftz.f32 %f3, 0f00800000, 0f3F000000;", |_, _| 0.0);
    check_f32("copysign.f32 %f3, 0fBF800000, 0f40000000;", |_, _| -2.0);
    check_f32("ex2.approx.f32 %f3, 0f40400000;", |_, _| 8.0);
    check_f32("lg2.approx.f32 %f3, 0f41000000;", |_, _| 3.0);
    check_f32("rsqrt.approx.ftz.f32 %f3, 0f40800000;", |_, _| 0.5);
    check_f32("rcp.approx.f32 %f3, 0f40800000;", |_, _| 0.25);
    check_f32("sqrt.approx.f32 %f3, 0f40800000;", |_, _| 2.0);
    check_f32("sin.approx.f32 %f3, 0f00000000;", |_, _| 0.0);
    check_f32("cos.approx.f32 %f3, 0f00000000;", |_, _| 1.0);
    check_f32("tanh.approx.f32 %f3, 0f42C80000;", |_, _| 1.0);
    check_f32("div.approx.f32 %f3, 0f40800000, 0f40000000;", |_, _| 2.0);
    check_f32("div.full.f32 %f3, 0f40800000, 0f40000000;", |_, _| 2.0);
    check_f32("add.f32 %f3, 1.5, -0.25;", |_, _| 1.25);
}

#[test]
fn f64_and_half_arithmetic() {
    let nan = |v: f64| {
        if v.is_nan() {
            0x7ff8_0000_0000_0000
        } else {
            v.to_bits()
        }
    };
    let double = |f: fn(f64) -> f64| move |x: u64| nan(f(f64::from_bits(x)));
    let back = "mov.b64 %rd4, %fd2;";
    check(
        &format!("add.f64 %fd2, %fd1, 0d3FF8000000000000;{back}"),
        double(|a| a + 1.5),
    );
    check(
        &format!("mul.rn.f64 %fd2, %fd1, %fd1;{back}"),
        double(|a| a * a),
    );
    check(
        &format!("fma.rn.f64 %fd2, %fd1, %fd1, %fd1;{back}"),
        double(|a| a.mul_add(a, a)),
    );
    check(
        &format!("div.rn.f64 %fd2, 0d3FF0000000000000, %fd1;{back}"),
        double(|a| 1.0 / a),
    );
    check(&format!("sqrt.rn.f64 %fd2, %fd1;{back}"), double(f64::sqrt));
    check(
        &format!("max.f64 %fd2, %fd1, 0d3FF0000000000000;{back}"),
        double(|a| a.max(1.0)),
    );
    // 1.5 · 2 + 1 = 4, in both halves; -(…) in bf16.
    check16(
        "mov.b16 %h3, 0x3e00;\nmov.b16 %h4, 0x4000;\nmov.b16 %h1, 0x3c00;\nfma.rn.f16 %h5, %h3, %h4, %h1;",
        |_, _| 0x4400,
    );
    check16(
        "mov.b16 %h3, 0x3e00;\nmov.b16 %h4, 0x4000;\nadd.f16 %h5, %h3, %h4;",
        |_, _| 0x4300,
    );
    check16("mov.b16 %h3, 0x3fc0;\nneg.bf16 %h5, %h3;", |_, _| 0xbfc0);
    check32(
        "mov.b32 %r4, 0x3e004000;\nmul.f16x2 %r3, %r4, %r4;",
        |_, _| 0x4080_4400,
    );
    check32(
        "mov.b32 %r4, 0x3fc04000;\nmov.b32 %r5, 0;\nfma.rn.bf16x2 %r3, %r4, %r4, %r5;",
        |_, _| 0x4010_4080,
    );
    check32(
        "mov.b32 %r4, 0x3e00c000;\nmov.b32 %r5, 0xbc003c00;\nmax.f16x2 %r3, %r4, %r5;",
        |_, _| 0x3e00_3c00,
    );
    check16("mov.b16 %h3, 0x4200;\nex2.approx.f16 %h5, %h3;", |_, _| {
        0x4800
    });
    check32(
        "mov.b32 %r4, 0x3e004000;\nmov.b32 %r5, 0x3c004400;\nset.lt.f16x2.f16x2 %r3, %r4, %r5;",
        |_, _| 0x0000_3c00,
    );
}

#[test]
fn conversions() {
    check("cvt.u64.u32 %rd4, %r1;", |x| x & 0xffff_ffff);
    check("cvt.s64.s32 %rd4, %r1;", |x| i64::from(x as i32) as u64);
    check32("cvt.u32.u64 %r3, %rd3;", |a, _| a);
    check32("cvt.s32.s8 %r3, %r1;", |a, _| i32::from(a as i8) as u32);
    check32("cvt.u32.u16 %r3, %h1;", |a, _| a & 0xffff);
    check32("cvt.s32.s16 %r3, %h1;", |a, _| i32::from(a as i16) as u32);
    check16("cvt.u16.u32 %h5, %r1;", |a, _| a);
    check32("cvt.sat.u8.s32 %r3, %r1;", |a, _| {
        (a as i32).clamp(0, 255) as u32
    });
    check32("cvt.rzi.s32.f32 %r3, %f1;", |a, _| {
        f32::from_bits(a) as i32 as u32
    });
    check32("cvt.rni.s32.f32 %r3, %f1;", |a, _| {
        f32::from_bits(a).round_ties_even() as i32 as u32
    });
    check32("cvt.rzi.u32.f32 %r3, %f1;", |a, _| f32::from_bits(a) as u32);
    check_f32("cvt.rn.f32.s32 %f3, %r1;", |a, _| a.to_bits() as i32 as f32);
    check_f32("cvt.rn.f32.u64 %f3, %rd3;", |a, b| {
        (u64::from(a.to_bits()) | u64::from(b.to_bits()) << 32) as f32
    });
    check_f32("cvt.rn.f32.f64 %f3, %fd1;", |a, b| {
        f64::from_bits(u64::from(a.to_bits()) | u64::from(b.to_bits()) << 32) as f32
    });
    check_f32("cvt.rmi.f32.f32 %f3, %f1;", |a, _| a.floor());
    check_f32("cvt.sat.f32.f32 %f3, 0f40000000;", |_, _| 1.0);
    check_f32("mov.b16 %h5, 0x3e00;\ncvt.f32.f16 %f3, %h5;", |_, _| 1.5);
    check_f32("mov.b16 %h5, 0x3fc0;\ncvt.f32.bf16 %f3, %h5;", |_, _| 1.5);
    check16("cvt.rn.f16.f32 %h5, 0f3FC00000;", |_, _| 0x3e00);
    check16("cvt.rn.bf16.f32 %h5, 0f3FC00000;", |_, _| 0x3fc0);
    check32("cvt.rn.f16x2.f32 %r3, 0f3FC00000, 0f40000000;", |_, _| {
        0x3e00_4000
    });
    check32("cvt.rn.bf16x2.f32 %r3, 0f3FC00000, 0f40000000;", |_, _| {
        0x3fc0_4000
    });
}

#[test]
fn vectors_pack_and_unpack() {
    check("mov.b64 %rd4, {%r2, %r1};", |x| x.rotate_left(32));
    check("mov.b64 %rd4, {%h4, %h3, %h2, %h1};", |x| {
        (0..4).fold(0, |v, i| v | (x >> (16 * i) & 0xffff) << (48 - 16 * i))
    });
    check32(
        "mov.b32 {%h5, %h6}, %r1;\nmov.b32 %r3, {%h6, %h5};",
        |a, _| a.rotate_left(16),
    );
    check32("mov.b64 {_, %r3}, %rd3;", |_, b| b);
}

#[test]
fn loads_and_stores_of_every_width() {
    let wide = "st.global.u32 [%rd1], 0;";
    check(&format!("{wide} ld.global.u8 %rd4, [%rd2+1];"), |x| {
        x >> 8 & 0xff
    });
    check(&format!("{wide} ld.global.s8 %rd4, [%rd2+1];"), |x| {
        i64::from((x >> 8) as i8) as u64
    });
    check32("ld.global.s16 %r3, [%rd2+2];", |a, _| {
        i32::from((a >> 16) as i16) as u32
    });
    check32(
        "ld.global.nc.L1::no_allocate.L2::128B.b32 %r3, [%rd2+4];",
        |_, b| b,
    );
    check(
        "ld.global.v2.u32 {%r3, %r4}, [%rd2];\nmov.b64 %rd4, {%r4, %r3};",
        |x| x.rotate_left(32),
    );
    check(
        "ld.global.v4.u16 {%h5, %h6, %h7, %h8}, [%rd2];\nmov.b64 %rd4, {%h6, %h5, %h8, %h7};",
        |x| (x & 0x0000_ffff_0000_ffff) << 16 | x >> 16 & 0x0000_ffff_0000_ffff,
    );
    check(
        "st.global.u8 [%rd1+3], %r1;\nst.global.v2.u16 [%rd1+4], {%h1, %h2};\nld.global.u64 %rd4, [%rd1];",
        |x| (x & 0xff) << 24 | (x & 0xffff_ffff) << 32,
    );
    check(
        ".shared .align 8 .b8 buffer[512];\nmov.u32 %r3, buffer;\nmad.lo.u32 %r3, %r0, 8, %r3;\n\
           st.shared.u64 [%r3], %rd3;\nld.shared.u64 %rd4, [%r3];",
        |x| x,
    );
    check(
        ".shared .align 8 .b8 buffer[512];\nmov.u64 %rd5, buffer;\ncvta.shared.u64 %rd5, %rd5;\n\
           mad.wide.u32 %rd5, %r0, 8, %rd5;\nst.u64 [%rd5], %rd3;\nld.u64 %rd4, [%rd5];\n\
           isspacep.shared %p1, %rd5;\n@!%p1 trap;",
        |x| x,
    );
    check(
        ".local .align 8 .b8 mine[16];\nmov.u64 %rd5, mine;\nst.local.u64 [mine+8], %rd3;\n\
           cvta.local.u64 %rd5, %rd5;\nld.u64 %rd4, [%rd5+8];",
        |x| x,
    );
}

#[test]
fn atomics_give_the_old_value_and_update() {
    let body = |op: &str| {
        format!(
            "st.global.u64 [%rd1], %rd3;\n{op}\nld.global.u64 %rd5, [%rd1];\nxor.b64 %rd4, %rd4, %rd5;"
        )
    };
    check(&body("atom.global.add.u64 %rd4, [%rd1], 3;"), |x| {
        x ^ x.wrapping_add(3)
    });
    check(&body("atom.global.max.s64 %rd4, [%rd1], 3;"), |x| {
        x ^ (x as i64).max(3) as u64
    });
    check(&body("atom.exch.b64 %rd4, [%rd1], 3;"), |x| x ^ 3);
    check(&body("atom.global.cas.b64 %rd4, [%rd1], 1, 9;"), |x| {
        x ^ if x == 1 { 9 } else { x }
    });
    check(
        &body("atom.global.relaxed.gpu.and.b32 %r3, [%rd1+4], 255;\ncvt.u64.u32 %rd4, %r3;"),
        |x| x >> 32 ^ (x & 0xff_ffff_ffff),
    );
    check(
        &body("red.global.xor.b32 [%rd1], -1;\nmov.u64 %rd4, 0;"),
        |x| x ^ 0xffff_ffff,
    );
    check(
        &body("atom.global.inc.u32 %r3, [%rd1], 40;\nmov.u64 %rd4, 0;"),
        |x| {
            let low = x as u32;
            x & !0xffff_ffff | u64::from(if low >= 40 { 0 } else { low + 1 })
        },
    );
    let floats: Vec<u64> = (0..64).map(|i| u64::from((i as f32).to_bits())).collect();
    check_with(
        &floats,
        &body("atom.global.add.f32 %f3, [%rd1], 0f3F800000;\nmov.u64 %rd4, 0;"),
        |x| (f32::from_bits(x as u32) + 1.0).to_bits().into(),
    );
}

#[test]
fn special_registers() {
    check32(
        "mov.u32 %r3, %laneid;\nmov.u32 %r4, %warpid;\nmad.lo.u32 %r3, %r4, 32, %r3;\nsub.u32 %r3, %r3, %r0;",
        |_, _| 0,
    );
    check32(
        "mov.u32 %r3, %ntid.x;\nadd.u32 %r3, %r3, %nctaid.y;",
        |_, _| 65,
    );
    check32(
        "mov.u32 %r3, %lanemask_lt;\npopc.b32 %r3, %r3;\nsub.u32 %r3, %r3, %laneid;",
        |_, _| 0,
    );
    check32("mov.u32 %r3, WARP_SZ;", |_, _| 32);
    check(
        "mov.u64 %rd5, %clock64;\nmov.u64 %rd6, %clock64;\nsetp.gt.u64 %p1, %rd6, %rd5;\nselp.u64 %rd4, 1, 0, %p1;",
        |_| 1,
    );
}

#[test]
fn functions_are_called_with_parameters_and_results() {
    let declarations = "
        .func (.param .b32 result) twice(.param .b32 x, .param .align 8 .b8 pair[16]) {
            .reg .b32 %r<4>; .reg .b64 %rd<2>;
            ld.param.b32 %r1, [x];
            ld.param.b64 %rd1, [pair+8];
            cvt.u32.u64 %r2, %rd1;
            mad.lo.u32 %r3, %r1, 2, %r2;
            st.param.b32 [result+0], %r3;
            ret;
        }
        .func (.reg .b32 %out) thrice(.reg .b32 %in) {
            .reg .pred %p;
            setp.gt.u32 %p, %in, 1000;
            mul.lo.u32 %out, %in, 3;
            @%p ret;
            add.u32 %out, %out, 1;
            ret;
        }";
    let body = "ld.global.u32 %r1, [%rd2];
        { .param .b32 a; .param .align 8 .b8 b[16]; .param .b32 c;
          st.param.b32 [a+0], %r1;
          st.param.b64 [b+8], 5;
          call.uni (c), twice, (a, b);
          ld.param.b32 %r2, [c+0]; }
        call (%r3), thrice, (%r2);
        cvt.u64.u32 %rd4, %r3;
        st.global.u64 [%rd1], %rd4;
        ret;";
    let input = inputs();
    let out = run(declarations, body, &input);
    for (x, found) in input.iter().zip(out) {
        let twice = (*x as u32).wrapping_mul(2).wrapping_add(5);
        let extra = u32::from(twice <= 1000);
        assert_eq!(
            found,
            u64::from(twice.wrapping_mul(3).wrapping_add(extra)),
            "{x:#x}"
        );
    }
}

#[test]
fn constants_and_initialised_globals() {
    let declarations = "
        .const .align 4 .b8 table[16] = {1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0};
        .global .align 8 .u64 pointer[2] = {table, generic(table)+8};
        .global .f32 third = 0f3F000000;";
    let body = "mov.u64 %rd3, pointer;
        ld.global.u64 %rd4, [%rd3+8];
        ld.u32 %r1, [%rd4];
        ld.const.u32 %r2, [table+12];
        ld.global.f32 %f1, [third];
        add.f32 %f1, %f1, %f1;
        cvt.rzi.u32.f32 %r3, %f1;
        mad.lo.u32 %r1, %r1, 100, %r2;
        mad.lo.u32 %r1, %r1, 10, %r3;
        cvt.u64.u32 %rd4, %r1;
        st.global.u64 [%rd1], %rd4;
        ret;";
    assert_eq!(run(declarations, body, &[0; 32]), vec![3041; 32]);
}
