//! The f32 instructions that kernels spend their time in, on all 32 lanes of a warp at once.
//!
//! Each is written once as a loop and compiled twice on x86-64: for the baseline, and for AVX2
//! with FMA, chosen at run time. Both give the bits of [`super::float`].

use super::approx::exp2;
use super::float::fused_f32;
use super::half::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
use super::soft::Format;

/// A 32-bit register of a warp.
pub type Lanes32 = [u32; 32];

const NAN: u32 = Format::F32.nan as u32;

/// A subnormal becomes the zero of its sign, if asked for.
#[inline(always)]
fn flush<const FTZ: bool>(x: u32) -> u32 {
    if FTZ && x & 0x7f80_0000 == 0 {
        x & 0x8000_0000
    } else {
        x
    }
}

#[inline(always)]
fn input<const FTZ: bool>(x: u32) -> f32 {
    f32::from_bits(flush::<FTZ>(x))
}

#[inline(always)]
fn output<const FTZ: bool>(x: f32) -> u32 {
    if x.is_nan() {
        NAN
    } else {
        flush::<FTZ>(x.to_bits())
    }
}

/// One rounding. With `WIDE` the caller has been compiled for a machine that has the instruction.
#[inline(always)]
fn fused<const WIDE: bool>(a: f32, b: f32, c: f32) -> f32 {
    if WIDE {
        a.mul_add(b, c)
    } else {
        fused_f32(a, b, c)
    }
}

/// Whether the AVX2 copies may run.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) fn wide_machine() -> bool {
    std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma")
}

macro_rules! lane_loops {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident),+) = <$FTZ:ident, $WIDE:ident> $lane:expr;)*) => {
        $(
            $(#[$doc])*
            #[inline]
            pub fn $name(ftz: bool, $($arg: &Lanes32,)+ out: &mut Lanes32) {
                #[inline(always)]
                fn all<const $FTZ: bool, const $WIDE: bool>(
                    $($arg: &Lanes32,)+
                    out: &mut Lanes32,
                ) {
                    for lane in 0..32 {
                        $(let $arg = $arg[lane];)+
                        out[lane] = $lane;
                    }
                }
                #[cfg(target_arch = "x86_64")]
                {
                    #[target_feature(enable = "avx2,fma")]
                    fn wide<const FTZ: bool>($($arg: &Lanes32,)+ out: &mut Lanes32) {
                        all::<FTZ, true>($($arg,)+ out);
                    }
                    if wide_machine() {
                        // SAFETY: `wide_machine` has found AVX2 and FMA.
                        return unsafe {
                            if ftz { wide::<true>($($arg,)+ out) } else { wide::<false>($($arg,)+ out) }
                        };
                    }
                }
                if ftz { all::<true, false>($($arg,)+ out) } else { all::<false, false>($($arg,)+ out) }
            }
        )*
    };
}

lane_loops! {
    /// `add.rn.f32`.
    fn add_f32(a, b) = <FTZ, WIDE> output::<FTZ>(input::<FTZ>(a) + input::<FTZ>(b));
    /// `sub.rn.f32`.
    fn sub_f32(a, b) = <FTZ, WIDE> output::<FTZ>(input::<FTZ>(a) - input::<FTZ>(b));
    /// `mul.rn.f32`.
    fn mul_f32(a, b) = <FTZ, WIDE> output::<FTZ>(input::<FTZ>(a) * input::<FTZ>(b));
    /// `fma.rn.f32`.
    fn fma_f32(a, b, c) = <FTZ, WIDE> output::<FTZ>(
        fused::<WIDE>(input::<FTZ>(a), input::<FTZ>(b), input::<FTZ>(c))
    );
    /// `min.f32`.
    fn min_f32(a, b) = <FTZ, WIDE> select(flush::<FTZ>(a), flush::<FTZ>(b), false);
    /// `max.f32`.
    fn max_f32(a, b) = <FTZ, WIDE> select(flush::<FTZ>(a), flush::<FTZ>(b), true);
    /// `ex2.approx.f32`.
    fn ex2_f32(a) = <FTZ, WIDE> output::<FTZ>(exp2(input::<FTZ>(a).into()) as f32);
    /// `cvt.f32.f16` of the lower halves (`.ftz` changes nothing: no f16 is an f32 subnormal).
    fn f16_to_f32_lanes(a) = <FTZ, WIDE> f16_to_f32(a as u16).to_bits();
    /// `cvt.f32.bf16` of the lower halves.
    fn bf16_to_f32_lanes(a) = <FTZ, WIDE> flush::<FTZ>(bf16_to_f32(a as u16).to_bits());
    /// `cvt.rn.f16x2.f32`: a above, b below.
    fn pack_f16x2(a, b) = <FTZ, WIDE>
        u32::from(f32_to_f16(input::<FTZ>(a))) << 16 | u32::from(f32_to_f16(input::<FTZ>(b)));
    /// `cvt.rn.bf16x2.f32`: a above, b below.
    fn pack_bf16x2(a, b) = <FTZ, WIDE>
        u32::from(f32_to_bf16(input::<FTZ>(a))) << 16 | u32::from(f32_to_bf16(input::<FTZ>(b)));
}

/// The greater or the lesser; −0 is less than +0, a number is chosen over NaN.
#[inline(always)]
fn select(a: u32, b: u32, want_max: bool) -> u32 {
    // Two's complement keys in the order of the values.
    let key = |x: u32| (x ^ (((x as i32) >> 31) as u32 >> 1)) as i32;
    let is_nan = |x: u32| x & 0x7fff_ffff > 0x7f80_0000;
    let chosen = if (key(a) < key(b)) != want_max { a } else { b };
    let chosen = if is_nan(b) { a } else { chosen };
    let chosen = if is_nan(a) { b } else { chosen };
    if is_nan(chosen) { NAN } else { chosen }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arith::approx::{ApproxOp, approx};
    use crate::arith::convert::{CvtMode, CvtRounding, cvt, cvt_pack};
    use crate::arith::float::{self, MinMaxMode};
    use crate::arith::samples::floats;
    use crate::arith::{FloatMode, ScalarType};

    /// All samples, 32 at a time, in both modes: `wide` runs here where the machine has it.
    fn for_all(check: impl Fn(bool, [&Lanes32; 3])) {
        let samples = floats(Format::F32);
        for chunk in samples.chunks_exact(32) {
            let column = |i: usize| -> Lanes32 { std::array::from_fn(|l| chunk[l][i] as u32) };
            for ftz in [false, true] {
                check(ftz, [&column(0), &column(1), &column(2)]);
            }
        }
    }

    #[track_caller]
    fn check_lanes(
        name: &str,
        run: impl Fn(bool, [&Lanes32; 3], &mut Lanes32),
        scalar: impl Fn(bool, [u64; 3]) -> u64,
    ) {
        for_all(|ftz, args| {
            let mut out = [0; 32];
            run(ftz, args, &mut out);
            for lane in 0..32 {
                let at = args.map(|x| u64::from(x[lane]));
                assert_eq!(
                    u64::from(out[lane]),
                    scalar(ftz, at),
                    "{name} ftz {ftz} {at:x?}"
                );
            }
        });
    }

    #[test]
    fn lanes_give_the_bits_of_the_scalar_functions() {
        let ty = ScalarType::F32;
        let mode = |ftz| FloatMode {
            ftz,
            ..FloatMode::RN
        };
        let select = |ftz| MinMaxMode {
            ftz,
            ..MinMaxMode::default()
        };
        type Args<'a> = [&'a Lanes32; 3];
        check_lanes(
            "add",
            |z, [a, b, _]: Args, o| add_f32(z, a, b, o),
            |z, [a, b, _]| float::add(ty, mode(z), a, b),
        );
        check_lanes(
            "sub",
            |z, [a, b, _]: Args, o| sub_f32(z, a, b, o),
            |z, [a, b, _]| float::sub(ty, mode(z), a, b),
        );
        check_lanes(
            "mul",
            |z, [a, b, _]: Args, o| mul_f32(z, a, b, o),
            |z, [a, b, _]| float::mul(ty, mode(z), a, b),
        );
        check_lanes(
            "fma",
            |z, [a, b, c]: Args, o| fma_f32(z, a, b, c, o),
            |z, [a, b, c]| float::fma(ty, mode(z), a, b, c),
        );
        check_lanes(
            "min",
            |z, [a, b, _]: Args, o| min_f32(z, a, b, o),
            |z, [a, b, _]| float::min(ty, select(z), a, b),
        );
        check_lanes(
            "max",
            |z, [a, b, _]: Args, o| max_f32(z, a, b, o),
            |z, [a, b, _]| float::max(ty, select(z), a, b),
        );
        check_lanes(
            "ex2",
            |z, [a, _, _]: Args, o| ex2_f32(z, a, o),
            |z, [a, _, _]| approx(ApproxOp::Ex2, ty, z, a),
        );
        let rn = |ftz| CvtMode {
            ftz,
            rounding: Some(CvtRounding::Rn),
            ..CvtMode::default()
        };
        check_lanes(
            "f16x2",
            |z, [a, b, _]: Args, o| pack_f16x2(z, a, b, o),
            |z, [a, b, _]| cvt_pack(ScalarType::F16x2, rn(z), a, b),
        );
        check_lanes(
            "bf16x2",
            |z, [a, b, _]: Args, o| pack_bf16x2(z, a, b, o),
            |z, [a, b, _]| cvt_pack(ScalarType::BF16x2, rn(z), a, b),
        );
        let cvt_mode = |ftz| CvtMode {
            ftz,
            ..CvtMode::default()
        };
        check_lanes(
            "f16",
            |z, [a, _, _]: Args, o| f16_to_f32_lanes(z, a, o),
            |z, [a, _, _]| cvt(ty, ScalarType::F16, cvt_mode(z), a),
        );
        check_lanes(
            "bf16",
            |z, [a, _, _]: Args, o| bf16_to_f32_lanes(z, a, o),
            |z, [a, _, _]| cvt(ty, ScalarType::BF16, cvt_mode(z), a),
        );
    }
}
