//! `cvt` between all types, and the packed forms.

use crate::harness::{Pair, Value, binary, unary};
use crate::reference::{BF16, DIRECTIONS, F16, F16_FORMAT, F32_FORMAT, Format, To, flush, round};

const INTEGRAL: [(&str, To); 4] = [
    ("rni", To::Nearest),
    ("rzi", To::Zero),
    ("rmi", To::Down),
    ("rpi", To::Up),
];

fn integral(x: f64, to: To) -> f64 {
    match to {
        To::Nearest => x.round_ties_even(),
        To::Zero => x.trunc(),
        To::Down => x.floor(),
        To::Up => x.ceil(),
    }
}

#[test]
fn integers_widen_by_their_sign_and_truncate() {
    unary("cvt.u32.u16", |a: u16| u32::from(a));
    unary("cvt.s32.s16", |a: i16| i32::from(a));
    unary("cvt.u64.u32", |a: u32| u64::from(a));
    unary("cvt.s64.s32", |a: i32| i64::from(a));
    unary("cvt.u64.u16", |a: u16| u64::from(a));
    unary("cvt.s64.s16", |a: i16| i64::from(a));
    unary("cvt.u32.u64", |a: u64| a as u32);
    unary("cvt.s32.s64", |a: i64| a as i32);
    unary("cvt.u16.u32", |a: u32| a as u16);
    unary("cvt.s16.s64", |a: i64| a as i16);
    unary("cvt.s64.u32", |a: u32| i64::from(a));
    unary("cvt.u64.s32", |a: i32| a as u64);
    // 8-bit values fill the wider register by their sign.
    unary("cvt.s32.s8", |a: u32| a as i8 as i32);
    unary("cvt.u32.u8", |a: u32| u32::from(a as u8));
    unary("cvt.s8.s32", |a: i32| a as i8 as i32);
    unary("cvt.u8.u32", |a: u32| u32::from(a as u8));
    unary("cvt.s16.s8", |a: u16| a as i8 as i16);
    unary("cvt.s64.s8", |a: u32| a as i8 as i64);
    unary("cvt.s16.s32", |a: i32| a as i16);
    unary("cvt.s16.s32", |a: i32| i32::from(a as i16));
    unary("cvt.u16.u32", |a: u32| u32::from(a as u16));
}

#[test]
fn saturation_clamps_integers() {
    unary("cvt.sat.u32.s32", |a: i32| a.max(0) as u32);
    unary("cvt.sat.s32.u32", |a: u32| a.min(i32::MAX as u32));
    unary("cvt.sat.s16.s32", |a: i32| a.clamp(-32768, 32767) as i16);
    unary("cvt.sat.u8.s32", |a: i32| a.clamp(0, 255) as u32);
    unary("cvt.sat.s8.s64", |a: i64| a.clamp(-128, 127) as i32);
    unary("cvt.sat.u32.s64", |a: i64| {
        a.clamp(0, u32::MAX.into()) as u32
    });
    unary("cvt.sat.s64.u64", |a: u64| a.min(i64::MAX as u64));
}

/// Float to every integer type under every rounding; Rust's casts clamp as PTX does.
#[track_caller]
fn to_integers<T: Value>(src: &str, value: impl Fn(T) -> f64) {
    for (name, to) in INTEGRAL {
        let x = |a: T| integral(value(a), to);
        // NaN: 0 up to 32 bits, otherwise (or out of f64) the top bit alone.
        let wide = src == "f64";
        let nan32 = if wide { 1u32 << 31 } else { 0 };
        let or = |x: f64, y: u32, nan: u32| if x.is_nan() { nan } else { y };
        let or64 = |x: f64, y: u64| if x.is_nan() { 1 << 63 } else { y };
        unary(&format!("cvt.{name}.s32.{src}"), |a| {
            or(x(a), x(a) as i32 as u32, nan32)
        });
        unary(&format!("cvt.{name}.u32.{src}"), |a| {
            or(x(a), x(a) as u32, nan32)
        });
        unary(&format!("cvt.{name}.s64.{src}"), |a| {
            or64(x(a), x(a) as i64 as u64)
        });
        unary(&format!("cvt.{name}.u64.{src}"), |a| {
            or64(x(a), x(a) as u64)
        });
        let nan16 = (nan32 >> 16) as u16;
        unary(&format!("cvt.{name}.s16.{src}"), |a| {
            if x(a).is_nan() {
                nan16
            } else {
                x(a) as i16 as u16
            }
        });
        unary(&format!("cvt.{name}.u16.{src}"), |a| {
            if x(a).is_nan() { nan16 } else { x(a) as u16 }
        });
        unary(&format!("cvt.{name}.u8.{src}"), |a| {
            or(x(a), u32::from(x(a) as u8), nan32 >> 24)
        });
    }
}

#[test]
fn floats_clamp_to_integers() {
    to_integers::<f32>("f32", |x| x.into());
    to_integers::<f64>("f64", |x| x);
    to_integers::<F16>("f16", |x| x.value());
    unary("cvt.rpi.ftz.s32.f32", |a: f32| flush(a).ceil() as i32);
    unary("cvt.rzi.sat.u32.f32", |a: f32| a.trunc() as u32);
}

/// An integer of up to 64 bits rounded to a float format. Its f64 is marked where inexact.
fn integer(value: i128, format: Format, to: To) -> f64 {
    let near = value as f64;
    let error = value - near as i128;
    let marked = match error.signum() {
        0 => near,
        _ if near.to_bits() & 1 == 1 => near,
        1 => near.next_up(),
        _ => near.next_down(),
    };
    round(marked, format, to)
}

#[test]
fn integers_round_to_floats() {
    for (name, to) in DIRECTIONS {
        unary(&format!("cvt.{name}.f32.s32"), |a: i32| {
            integer(a.into(), F32_FORMAT, to) as f32
        });
        unary(&format!("cvt.{name}.f32.u32"), |a: u32| {
            integer(a.into(), F32_FORMAT, to) as f32
        });
        unary(&format!("cvt.{name}.f32.s64"), |a: i64| {
            integer(a.into(), F32_FORMAT, to) as f32
        });
        unary(&format!("cvt.{name}.f32.u64"), |a: u64| {
            integer(a.into(), F32_FORMAT, to) as f32
        });
        unary(&format!("cvt.{name}.f32.u16"), |a: u16| f32::from(a));
        unary(&format!("cvt.{name}.f16.s32"), |a: i32| {
            F16::nearest(integer(a.into(), F16_FORMAT, to))
        });
        unary(&format!("cvt.{name}.f16.u64"), |a: u64| {
            F16::nearest(integer(a.into(), F16_FORMAT, to))
        });
        unary(&format!("cvt.{name}.f64.s32"), |a: i32| f64::from(a));
    }
    unary("cvt.rn.f64.s64", |a: i64| a as f64);
    unary("cvt.rn.f64.u64", |a: u64| a as f64);
    unary("cvt.rn.f32.u8", |a: u32| f32::from(a as u8));
    unary("cvt.rn.f32.s8", |a: u32| f32::from(a as i8));
}

#[test]
fn floats_widen_exactly_and_narrow_as_told() {
    unary("cvt.f32.f16", |a: F16| a.value() as f32);
    unary("cvt.f32.bf16", |a: BF16| a.value() as f32);
    unary("cvt.f64.f32", |a: f32| f64::from(a));
    unary("cvt.f64.f16", |a: F16| a.value());
    for (name, to) in DIRECTIONS {
        unary(&format!("cvt.{name}.f32.f64"), |a: f64| {
            round(a, F32_FORMAT, to) as f32
        });
        unary(&format!("cvt.{name}.f16.f32"), |a: f32| {
            F16::round(a.into(), to)
        });
        unary(&format!("cvt.{name}.f16.f64"), |a: f64| F16::round(a, to));
    }
    unary("cvt.rn.bf16.f32", |a: f32| BF16::nearest(a.into()));
    unary("cvt.rz.bf16.f32", |a: f32| BF16::round(a.into(), To::Zero));
    unary("cvt.ftz.f64.f32", |a: f32| f64::from(flush(a)));
    unary("cvt.rn.ftz.f32.f64", |a: f64| flush(a as f32));
    unary("cvt.rn.ftz.f16.f32", |a: f32| F16::nearest(flush(a).into()));
    unary(
        "cvt.sat.f32.f32",
        |a: f32| if a > 0.0 { a.min(1.0) } else { 0.0 },
    );
    unary("cvt.rn.relu.f16.f32", |a: f32| {
        F16::nearest(if a <= 0.0 { 0.0 } else { a.into() })
    });
    // A tf32 keeps 11 bits; ties go away from zero.
    unary("cvt.rna.tf32.f32 %d, %a;", |a: f32| {
        if a.is_nan() {
            return 0x7fff_e000;
        }
        let bits = a.to_bits();
        if a.is_infinite() {
            bits
        } else {
            (bits + 0x1000) & !0x1fff
        }
    });
}

#[test]
fn floats_round_to_integral_floats() {
    for (name, to) in INTEGRAL {
        unary(&format!("cvt.{name}.f32.f32"), |a: f32| {
            integral(a.into(), to) as f32
        });
        unary(&format!("cvt.{name}.f64.f64"), |a: f64| integral(a, to));
        unary(&format!("cvt.{name}.f16.f16"), |a: F16| {
            F16::nearest(integral(a.value(), to))
        });
    }
}

#[test]
fn packed_forms_put_the_first_source_above() {
    binary("cvt.rn.f16x2.f32", |a: f32, b: f32| {
        Pair(F16::nearest(b.into()), F16::nearest(a.into()))
    });
    binary("cvt.rz.f16x2.f32", |a: f32, b: f32| {
        Pair(
            F16::round(b.into(), To::Zero),
            F16::round(a.into(), To::Zero),
        )
    });
    binary("cvt.rn.bf16x2.f32", |a: f32, b: f32| {
        Pair(BF16::nearest(b.into()), BF16::nearest(a.into()))
    });
    binary("cvt.rz.relu.bf16x2.f32", |a: f32, b: f32| {
        let relu = |x: f32| BF16::round(if x <= 0.0 { 0.0 } else { x.into() }, To::Zero);
        Pair(relu(b), relu(a))
    });
}
