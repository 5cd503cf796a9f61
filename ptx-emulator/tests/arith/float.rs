//! f32 and f64 arithmetic: the machine's own for `.rn`, rounding by definition for the rest.

use crate::harness::{binary, ternary, unary};
use crate::reference::{DIRECTIONS, F32_FORMAT, To, flush, round, rounded_sum, sum};

fn to_f32(x: f64) -> f32 {
    x as f32
}

#[test]
fn f32_rounds_to_nearest_by_default() {
    binary("add.f32", |a: f32, b: f32| a + b);
    binary("sub.f32", |a: f32, b: f32| a - b);
    binary("mul.f32", |a: f32, b: f32| a * b);
    ternary("fma.rn.f32", f32::mul_add);
    ternary("mad.rn.f32", f32::mul_add);
    binary("div.rn.f32", |a: f32, b: f32| a / b);
    unary("sqrt.rn.f32", f32::sqrt);
    unary("rcp.rn.f32", |a: f32| 1.0 / a);
}

#[test]
fn f32_rounds_as_told() {
    for (name, to) in DIRECTIONS {
        binary(&format!("add.{name}.f32"), |a: f32, b: f32| {
            to_f32(rounded_sum(a.into(), b.into(), F32_FORMAT, to))
        });
        binary(&format!("sub.{name}.f32"), |a: f32, b: f32| {
            to_f32(rounded_sum(a.into(), (-b).into(), F32_FORMAT, to))
        });
        binary(&format!("mul.{name}.f32"), |a: f32, b: f32| {
            // 48 bits: exact in f64.
            to_f32(round(f64::from(a) * f64::from(b), F32_FORMAT, to))
        });
        ternary(&format!("fma.{name}.f32"), |a: f32, b: f32, c: f32| {
            to_f32(rounded_sum(
                f64::from(a) * f64::from(b),
                c.into(),
                F32_FORMAT,
                to,
            ))
        });
        binary(&format!("div.{name}.f32"), |a: f32, b: f32| {
            to_f32(round(quotient(a.into(), b.into()), F32_FORMAT, to))
        });
        unary(&format!("rcp.{name}.f32"), |a: f32| {
            to_f32(round(quotient(1.0, a.into()), F32_FORMAT, to))
        });
        unary(&format!("sqrt.{name}.f32"), |a: f32| {
            to_f32(round(root(a.into()), F32_FORMAT, to))
        });
    }
}

/// A result whose exact value lies on the side of `error`: its last bit set unless it is exact.
fn mark(x: f64, error: f64) -> f64 {
    if !x.is_finite() || x == 0.0 || error == 0.0 || error.is_nan() || x.to_bits() & 1 == 1 {
        x
    } else if error > 0.0 {
        x.next_up()
    } else {
        x.next_down()
    }
}

/// a / b of f32 values; the remainder tells on which side of the f64 quotient it lies.
fn quotient(a: f64, b: f64) -> f64 {
    let q = a / b;
    let remainder = (-q).mul_add(b, a);
    mark(q, if b < 0.0 { -remainder } else { remainder })
}

fn root(a: f64) -> f64 {
    let r = a.sqrt();
    mark(r, (-r).mul_add(r, a))
}

#[test]
fn f32_modifiers_flush_and_saturate() {
    binary("add.ftz.f32", |a: f32, b: f32| flush(flush(a) + flush(b)));
    binary("sub.ftz.f32", |a: f32, b: f32| flush(flush(a) - flush(b)));
    binary("mul.ftz.f32", |a: f32, b: f32| flush(flush(a) * flush(b)));
    binary("div.rn.ftz.f32", |a: f32, b: f32| {
        flush(flush(a) / flush(b))
    });
    unary("sqrt.rn.ftz.f32", |a: f32| flush(flush(a).sqrt()));
    unary("rcp.rn.ftz.f32", |a: f32| flush(1.0 / flush(a)));
    ternary("fma.rn.ftz.f32", |a, b, c| {
        flush(flush(a).mul_add(flush(b), flush(c)))
    });
    let sat = |x: f32| if x > 0.0 { x.min(1.0) } else { 0.0 };
    binary("add.sat.f32", |a: f32, b: f32| sat(a + b));
    binary("mul.sat.f32", |a: f32, b: f32| sat(a * b));
    binary("mul.rn.ftz.sat.f32", |a: f32, b: f32| {
        sat(flush(flush(a) * flush(b)))
    });
    ternary("fma.rn.sat.f32", |a: f32, b: f32, c: f32| {
        sat(a.mul_add(b, c))
    });
}

#[test]
fn f64_rounds_to_nearest_by_default() {
    binary("add.f64", |a: f64, b: f64| a + b);
    binary("sub.f64", |a: f64, b: f64| a - b);
    binary("mul.f64", |a: f64, b: f64| a * b);
    ternary("fma.rn.f64", f64::mul_add);
    binary("div.rn.f64", |a: f64, b: f64| a / b);
    unary("sqrt.rn.f64", f64::sqrt);
    unary("rcp.rn.f64", |a: f64| 1.0 / a);
}

/// Makes a number of moderate size and 53 significant bits out of any bits: products then neither
/// overflow nor lose error bits, and the error of an f64 operation is an f64.
const MODERATE: &str = "and.b64 %a, %a, 0x81ffffffffffffff;\nor.b64 %a, %a, 0x3e00000000000000;\n\
     and.b64 %b, %b, 0x81ffffffffffffff;\nor.b64 %b, %b, 0x3e00000000000000;\n";

fn moderate(bits: u64) -> f64 {
    f64::from_bits(bits & 0x81ff_ffff_ffff_ffff | 0x3e00_0000_0000_0000)
}

/// The neighbour of a nearest result that a rounding wants, by the sign of what was lost.
fn step(nearest: f64, error: f64, to: To) -> f64 {
    let down = to == To::Down || (to == To::Zero && nearest > 0.0);
    let up = to == To::Up || (to == To::Zero && nearest < 0.0);
    match error {
        e if e < 0.0 && down => nearest.next_down(),
        e if e > 0.0 && up => nearest.next_up(),
        _ => nearest,
    }
}

#[test]
fn f64_rounds_as_told() {
    for (name, to) in DIRECTIONS {
        let body = |op: &str, operands: &str| {
            format!(
                "{{ .reg .f64 %x, %y, %z;\n{MODERATE}mov.b64 %x, %a;\nmov.b64 %y, %b;\n\
                 {op}.{name}.f64 %z, {operands};\nmov.b64 %d, %z; }}"
            )
        };
        binary(&body("add", "%x, %y"), |a: u64, b: u64| {
            let (a, b) = (moderate(a), moderate(b));
            let (large, small) = if a.abs() > b.abs() { (a, b) } else { (b, a) };
            let s = a + b;
            let zero = s == 0.0 && to == To::Down;
            if zero {
                -0.0
            } else {
                step(s, small - (s - large), to)
            }
            .to_bits()
        });
        binary(&body("mul", "%x, %y"), |a: u64, b: u64| {
            let (a, b) = (moderate(a), moderate(b));
            step(a * b, a.mul_add(b, -(a * b)), to).to_bits()
        });
        binary(&body("div", "%x, %y"), |a: u64, b: u64| {
            let (a, b) = (moderate(a), moderate(b));
            let q = a / b;
            step(q, (-q).mul_add(b, a) * b.signum(), to).to_bits()
        });
        binary(
            &body("fma", "%x, %y, 0d3FF0000000000000"),
            |a: u64, b: u64| {
                // 1 + a·b exactly: the product in two parts, then the sum's error and the lower part.
                let (a, b) = (moderate(a), moderate(b));
                let (high, low) = (a * b, a.mul_add(b, -(a * b)));
                let s = a.mul_add(b, 1.0);
                let (large, small) = if high.abs() > 1.0 {
                    (high, 1.0)
                } else {
                    (1.0, high)
                };
                let t = large + small;
                let lost = small - (t - large);
                // s is t or its neighbour; s − t is exact, and so is the sign of what remains.
                step(s, lost - (s - t) + low, to).to_bits()
            },
        );
        let body = "{ .reg .f64 %x;\nand.b64 %a, %a, 0x01ffffffffffffff;\n\
             or.b64 %a, %a, 0x3e00000000000000;\nmov.b64 %x, %a;\nsqrt.";
        unary(
            &format!("{body}{name}.f64 %x, %x;\nmov.b64 %d, %x; }}"),
            |a: u64| {
                let a = moderate(a).abs();
                let r = a.sqrt();
                step(r, (-r).mul_add(r, a), to).to_bits()
            },
        );
    }
}

#[test]
fn min_and_max_choose_numbers_and_order_zeros() {
    fn pick(a: f64, b: f64, max: bool) -> f64 {
        match (a.is_nan(), b.is_nan()) {
            (true, _) => b,
            (_, true) => a,
            _ if a == b => {
                if a.is_sign_negative() != max {
                    a
                } else {
                    b
                }
            }
            _ => {
                if (a < b) != max {
                    a
                } else {
                    b
                }
            }
        }
    }
    let f32_pick = |a: f32, b: f32, max: bool| pick(a.into(), b.into(), max) as f32;
    let nan = |a: f32, b: f32, x: f32| {
        if a.is_nan() || b.is_nan() {
            f32::NAN
        } else {
            x
        }
    };
    binary("min.f32", |a: f32, b: f32| f32_pick(a, b, false));
    binary("max.f32", |a: f32, b: f32| f32_pick(a, b, true));
    binary("min.f64", |a: f64, b: f64| pick(a, b, false));
    binary("max.f64", |a: f64, b: f64| pick(a, b, true));
    binary("min.ftz.f32", |a: f32, b: f32| {
        f32_pick(flush(a), flush(b), false)
    });
    binary("max.ftz.f32", |a: f32, b: f32| {
        f32_pick(flush(a), flush(b), true)
    });
    binary("min.NaN.f32", |a: f32, b: f32| {
        nan(a, b, f32_pick(a, b, false))
    });
    binary("max.NaN.f32", |a: f32, b: f32| {
        nan(a, b, f32_pick(a, b, true))
    });
    binary("max.ftz.NaN.f32", |a: f32, b: f32| {
        nan(a, b, f32_pick(flush(a), flush(b), true))
    });
    let xor = |a: f32, b: f32| a.is_sign_negative() != b.is_sign_negative();
    binary("min.xorsign.abs.f32", |a: f32, b: f32| {
        let x = f32_pick(a.abs(), b.abs(), false);
        if xor(a, b) { -x } else { x }
    });
    binary("max.NaN.xorsign.abs.f32", |a: f32, b: f32| {
        let x = nan(a, b, f32_pick(a.abs(), b.abs(), true));
        if xor(a, b) { -x } else { x }
    });
}

#[test]
fn signs_and_classes() {
    // Results as bits: a NaN keeps its payload.
    unary(
        "{ .reg .f32 %x; mov.b32 %x, %a; abs.f32 %x, %x; mov.b32 %d, %x; }",
        |a: u32| a & 0x7fff_ffff,
    );
    unary(
        "{ .reg .f32 %x; mov.b32 %x, %a; neg.f32 %x, %x; mov.b32 %d, %x; }",
        |a: u32| a ^ 0x8000_0000,
    );
    unary(
        "{ .reg .f64 %x; mov.b64 %x, %a; neg.f64 %x, %x; mov.b64 %d, %x; }",
        |a: u64| a ^ 1 << 63,
    );
    unary(
        "{ .reg .f64 %x; mov.b64 %x, %a; abs.f64 %x, %x; mov.b64 %d, %x; }",
        |a: u64| a & !(1 << 63),
    );
    let flushed = |a: u32| {
        if a & 0x7f80_0000 == 0 {
            a & 0x8000_0000
        } else {
            a
        }
    };
    let body = |op: &str| {
        format!("{{ .reg .f32 %x; mov.b32 %x, %a; {op}.ftz.f32 %x, %x; mov.b32 %d, %x; }}")
    };
    unary(&body("abs"), |a: u32| flushed(a) & 0x7fff_ffff);
    unary(&body("neg"), |a: u32| flushed(a) ^ 0x8000_0000);
    let copysign = |ty: &str, word: &str| {
        format!(
            "{{ .reg .{ty} %x, %y; mov.{word} %x, %a; mov.{word} %y, %b; \
             copysign.{ty} %x, %x, %y; mov.{word} %d, %x; }}"
        )
    };
    binary(&copysign("f32", "b32"), |a: u32, b: u32| {
        b & 0x7fff_ffff | a & 0x8000_0000
    });
    binary(&copysign("f64", "b64"), |a: u64, b: u64| {
        b & !(1 << 63) | a & 1 << 63
    });
    unary("testp.finite.f32", f32::is_finite);
    unary("testp.infinite.f32", f32::is_infinite);
    unary("testp.number.f32", |a: f32| !a.is_nan());
    unary("testp.notanumber.f64", f64::is_nan);
    unary("testp.normal.f32", |a: f32| a.is_normal() || a == 0.0);
    unary("testp.subnormal.f64", f64::is_subnormal);
}

#[test]
fn sums_that_cancel_or_vanish() {
    // An addend far below or exactly opposite the product, which random values seldom are.
    let body = "{ .reg .f32 %x; mul.f32 %x, %a, %b; neg.f32 %x, %x; fma.rn.f32 %d, %a, %b, %x; }";
    binary(body, |a: f32, b: f32| a.mul_add(b, -(a * b)));
    for (name, to) in DIRECTIONS {
        let body = format!("add.{name}.f32 %d, %a, 0f2F800001;");
        unary(&body, |a: f32| {
            to_f32(round(
                sum(a.into(), f32::from_bits(0x2f80_0001).into()),
                F32_FORMAT,
                to,
            ))
        });
    }
}
