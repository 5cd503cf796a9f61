//! Every opcode through PTX text, against Rust's own arithmetic. The arithmetic itself is tested
//! with special values beside it, in `arith`; here it is about operands, types and modifiers.

mod data;
mod floats;
mod integers;

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
