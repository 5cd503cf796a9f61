//! Floating point and conversions.

use super::{check, check_f32, check16, check32};

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
