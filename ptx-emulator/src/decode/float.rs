//! Floating-point arithmetic, functions and comparisons.

use super::mods::Mods;
use super::{Cx, Decoded, Decoder, class_of, lanes_where};
use crate::arith::approx::{self, ApproxOp, approx};
use crate::arith::compare::{CmpOp, compare, compare_x2};
use crate::arith::float::{self, MinMaxMode, TestP};
use crate::arith::{FloatMode, Rounding, ScalarType, lanes};
use crate::ast::Operand;
use crate::code::{Lane2, Lanes, Logic, NONE, Op, Pred, Reg, SetpOut, SlowFn};
use crate::table::{Class, Opcode};

use ScalarType as T;

const HALVES: &[T] = &[T::F16, T::F16x2, T::BF16, T::BF16x2];
const ALL: &[T] = &[T::F16, T::F16x2, T::BF16, T::BF16x2, T::F32, T::F64];

impl Decoder<'_> {
    /// add sub mul mad fma div abs neg min max on floating-point types.
    pub(super) fn float_arith(&mut self, opcode: Opcode, cx: &Cx<'_>, m: &mut Mods<'_>) -> Decoded {
        if opcode == Opcode::Div {
            return self.float_function(opcode, cx, m);
        }
        let rounding = m.rounding();
        let (ftz, sat, relu) = (m.flag("ftz"), m.flag("sat"), m.flag("relu"));
        let nan = m.flag("NaN");
        let xorsign_abs = m.flag("xorsign");
        if xorsign_abs != m.flag("abs") {
            return Err(cx.unsupported());
        }
        let ty = m.type_of(cx, ALL)?;
        let half = HALVES.contains(&ty);
        let allowed_rounding = match rounding {
            None => opcode != Opcode::Fma,
            Some(Rounding::Rna) => false,
            Some(Rounding::Rn) => !matches!(
                opcode,
                Opcode::Min | Opcode::Max | Opcode::Abs | Opcode::Neg
            ),
            Some(_) => {
                !half
                    && !matches!(
                        opcode,
                        Opcode::Min | Opcode::Max | Opcode::Abs | Opcode::Neg
                    )
            }
        };
        let min_max = matches!(opcode, Opcode::Min | Opcode::Max);
        let plain_sign = matches!(opcode, Opcode::Abs | Opcode::Neg);
        let bf = matches!(ty, T::BF16 | T::BF16x2);
        if !allowed_rounding
            || (relu && !(opcode == Opcode::Fma && half))
            || (sat && (min_max || plain_sign || ty == T::F64 || bf))
            || (ftz && (ty == T::F64 || bf))
            || ((nan || xorsign_abs) && !min_max)
        {
            return Err(cx.unsupported());
        }
        let class = class_of(ty);
        let mode = FloatMode {
            rounding: rounding.unwrap_or(Rounding::Rn),
            ftz,
            sat,
            relu,
        };
        let plain = ty == T::F32 && mode.rounding == Rounding::Rn && !sat;
        if plain_sign {
            cx.count(2, 2)?;
            let (d, a) = (self.dest(cx, 0, ty)?, self.source(cx, 1, ty)?);
            let op = match opcode {
                Opcode::Abs => self.slow1(d, a, move |a| float::abs(ty, ftz, a)),
                _ => self.slow1(d, a, move |a| float::neg(ty, ftz, a)),
            };
            return Ok((op, class));
        }
        if matches!(opcode, Opcode::Fma | Opcode::Mad) {
            cx.count(4, 4)?;
            if opcode == Opcode::Mad && half {
                return Err(cx.unsupported());
            }
            let src = [
                self.source(cx, 1, ty)?,
                self.source(cx, 2, ty)?,
                self.source(cx, 3, ty)?,
            ];
            let d = self.dest(cx, 0, ty)?;
            if let (true, Reg::R32(d), [Reg::R32(a), Reg::R32(b), Reg::R32(c)]) = (plain, d, src) {
                return Ok((
                    Op::Lane3 {
                        f: lanes::fma_f32,
                        ftz,
                        d,
                        a,
                        b,
                        c,
                    },
                    class,
                ));
            }
            return Ok((
                self.slow3(d, src, move |a, b, c| float::fma(ty, mode, a, b, c)),
                class,
            ));
        }
        cx.count(3, 3)?;
        let src = [self.source(cx, 1, ty)?, self.source(cx, 2, ty)?];
        let d = self.dest(cx, 0, ty)?;
        if let (true, Reg::R32(d), [Reg::R32(a), Reg::R32(b)]) =
            (plain && !nan && !xorsign_abs, d, src)
        {
            let f: Lane2 = match opcode {
                Opcode::Add => lanes::add_f32,
                Opcode::Sub => lanes::sub_f32,
                Opcode::Mul => lanes::mul_f32,
                Opcode::Min => lanes::min_f32,
                _ => lanes::max_f32,
            };
            return Ok((Op::Lane2 { f, ftz, d, a, b }, class));
        }
        let extremum = MinMaxMode {
            ftz,
            nan,
            xorsign_abs,
        };
        let op = match opcode {
            Opcode::Add => self.slow2(d, src, move |a, b| float::add(ty, mode, a, b)),
            Opcode::Sub => self.slow2(d, src, move |a, b| float::sub(ty, mode, a, b)),
            Opcode::Mul => self.slow2(d, src, move |a, b| float::mul(ty, mode, a, b)),
            Opcode::Min => self.slow2(d, src, move |a, b| float::min(ty, extremum, a, b)),
            _ => self.slow2(d, src, move |a, b| float::max(ty, extremum, a, b)),
        };
        Ok((op, class))
    }

    /// rcp sqrt rsqrt sin cos lg2 ex2 tanh div.
    pub(super) fn float_function(
        &mut self,
        opcode: Opcode,
        cx: &Cx<'_>,
        m: &mut Mods<'_>,
    ) -> Decoded {
        let (is_approx, full) = (m.flag("approx"), m.flag("full"));
        let rounding = m.rounding();
        let ftz = m.flag("ftz");
        let ty = m.type_of(cx, ALL)?;
        let class = if ty == T::F64 {
            Class::Double
        } else {
            Class::Special
        };
        let mode = FloatMode {
            rounding: rounding.unwrap_or(Rounding::Rn),
            ftz,
            sat: false,
            relu: false,
        };
        if rounding == Some(Rounding::Rna)
            || (full && opcode != Opcode::Div)
            || u8::from(is_approx) + u8::from(full) + u8::from(rounding.is_some()) != 1
        {
            return Err(cx.unsupported());
        }
        if opcode == Opcode::Div {
            cx.count(3, 3)?;
            let src = [self.source(cx, 1, ty)?, self.source(cx, 2, ty)?];
            let d = self.dest(cx, 0, ty)?;
            return match (ty, rounding) {
                (T::F32 | T::F64, Some(_)) if ty == T::F32 || !ftz => Ok((
                    self.slow2(d, src, move |a, b| float::div(ty, mode, a, b)),
                    class,
                )),
                (T::F32, None) if full => Ok((
                    self.slow2(d, src, move |a, b| approx::div_full(ftz, a, b)),
                    class,
                )),
                (T::F32, None) => Ok((
                    self.slow2(d, src, move |a, b| approx::div_approx(ftz, a, b)),
                    class,
                )),
                _ => Err(cx.unsupported()),
            };
        }
        cx.count(2, 2)?;
        let (d, a) = (self.dest(cx, 0, ty)?, self.source(cx, 1, ty)?);
        let op = match (opcode, ty, rounding) {
            (Opcode::Rcp, T::F32 | T::F64, Some(_)) => {
                self.slow1(d, a, move |a| float::rcp(ty, mode, a))
            }
            (Opcode::Sqrt, T::F32 | T::F64, Some(_)) => {
                self.slow1(d, a, move |a| float::sqrt(ty, mode, a))
            }
            (Opcode::Ex2, T::F32, None) => match (d, a) {
                (Reg::R32(d), Reg::R32(a)) => Op::Lane1 {
                    f: lanes::ex2_f32,
                    ftz,
                    d,
                    a,
                },
                _ => return Err(cx.unsupported()),
            },
            (_, _, None) => {
                let f = match opcode {
                    Opcode::Rcp => ApproxOp::Rcp,
                    Opcode::Sqrt => ApproxOp::Sqrt,
                    Opcode::Rsqrt => ApproxOp::Rsqrt,
                    Opcode::Sin => ApproxOp::Sin,
                    Opcode::Cos => ApproxOp::Cos,
                    Opcode::Lg2 => ApproxOp::Lg2,
                    Opcode::Ex2 => ApproxOp::Ex2,
                    _ => ApproxOp::Tanh,
                };
                // ex2 of bf16 is always spelled with .ftz, rcp of f64 too; tanh and ex2 of f16
                // never are.
                let ftz_fits = match (f, ty) {
                    (ApproxOp::Tanh, _) | (_, T::F16 | T::F16x2) => !ftz,
                    (_, T::BF16 | T::BF16x2) | (ApproxOp::Rcp, T::F64) => ftz,
                    _ => true,
                };
                if !f.applies_to(ty) || !ftz_fits {
                    return Err(cx.unsupported());
                }
                self.slow1(d, a, move |a| approx(f, ty, ftz, a))
            }
            _ => return Err(cx.unsupported()),
        };
        Ok((op, class))
    }

    pub(super) fn float_misc(&mut self, opcode: Opcode, cx: &Cx<'_>, m: &mut Mods<'_>) -> Decoded {
        if opcode == Opcode::Copysign {
            let ty = m.type_of(cx, &[T::F32, T::F64])?;
            cx.count(3, 3)?;
            let src = [self.source(cx, 1, ty)?, self.source(cx, 2, ty)?];
            let d = self.dest(cx, 0, ty)?;
            // The manual's `copysign d, a, b` takes the sign of a and the magnitude of b.
            return Ok((
                self.slow2(d, src, move |a, b| float::copysign(ty, a, b)),
                class_of(ty),
            ));
        }
        let Some(test) = m.find(TestP::from_suffix) else {
            return Err(cx.unsupported());
        };
        let ty = m.type_of(cx, &[T::F32, T::F64])?;
        cx.count(2, 2)?;
        let p = self.pred_dest(cx, 0, self.operand(cx, 0)?)?;
        let a = self.source(cx, 1, ty)?;
        let out = SetpOut {
            p,
            q: NONE,
            combine: None,
        };
        let f = move |s: &[Lanes; 4]| lanes_where(s, |a, _| float::testp(test, ty, a));
        let src = [a, Reg::Sink, Reg::Sink, Reg::Sink];
        Ok((
            self.slow(Reg::Sink, src, SlowFn::Compare(Box::new(f), out)),
            Class::Compare,
        ))
    }

    /// set setp selp slct.
    pub(super) fn compare(&mut self, opcode: Opcode, cx: &Cx<'_>, m: &mut Mods<'_>) -> Decoded {
        let class = Class::Compare;
        match opcode {
            Opcode::Selp => return self.selp(cx, m),
            Opcode::Slct => {
                let ftz = m.flag("ftz");
                let ty = m.take_type_or(cx)?;
                let tc = m.type_of(cx, &[T::S32, T::F32])?;
                if ty == T::Pred || ty.bits() < 16 || (ftz && tc != T::F32) {
                    return Err(cx.unsupported());
                }
                cx.count(4, 4)?;
                let src = [
                    self.source(cx, 1, ty)?,
                    self.source(cx, 2, ty)?,
                    self.source(cx, 3, tc)?,
                ];
                let d = self.dest(cx, 0, ty)?;
                let zero = 0u64;
                return Ok((
                    self.slow3(d, src, move |a, b, c| {
                        if compare(CmpOp::Ge, tc, ftz, c, zero) {
                            a
                        } else {
                            b
                        }
                    }),
                    class,
                ));
            }
            _ => {}
        }
        let Some(cmp) = m.find(CmpOp::from_suffix) else {
            return Err(cx.unsupported());
        };
        let logic = m.find(|s| match s {
            "and" => Some(Logic::And),
            "or" => Some(Logic::Or),
            "xor" => Some(Logic::Xor),
            _ => None,
        });
        let ftz = m.flag("ftz");
        let dtype = match opcode {
            Opcode::Set => Some(m.take_type_or(cx)?),
            _ => None,
        };
        let ty = m.take_type_or(cx)?;
        let compares = ty.bits() >= 16 && ty.bits() <= 64 && ty != T::TF32;
        if !compares || !cmp.applies_to(ty) || (ftz && !matches!(ty, T::F32 | T::F16 | T::F16x2)) {
            return Err(cx.unsupported());
        }
        let operands = if logic.is_some() { 4 } else { 3 };
        cx.count(operands, operands)?;
        let combine = match logic {
            Some(logic) => Some((logic, self.pred(cx, 3)?)),
            None => None,
        };
        if let Some(dtype) = dtype {
            return self.set(cx, cmp, ftz, dtype, ty, combine);
        }
        let (p, q) = match self.operand(cx, 0)? {
            Operand::Pair(p, q) => (self.pred_dest(cx, 0, p)?, self.pred_dest(cx, 0, q)?),
            single => (self.pred_dest(cx, 0, single)?, NONE),
        };
        if matches!(ty, T::F16x2 | T::BF16x2) {
            return Err(cx.unsupported());
        }
        let out = SetpOut { p, q, combine };
        let src = [self.source(cx, 1, ty)?, self.source(cx, 2, ty)?];
        let op = match (ty, src) {
            (T::F32, [Reg::R32(a), Reg::R32(b)]) => Op::SetpF32 {
                cmp,
                ftz,
                a,
                b,
                out: self.setp_out(out),
            },
            (t, [Reg::R32(a), Reg::R32(b)]) if !t.is_float() => Op::SetpI32 {
                cmp,
                signed: t.is_signed(),
                a,
                b,
                out: self.setp_out(out),
            },
            (t, [Reg::R64(a), Reg::R64(b)]) if !t.is_float() => Op::SetpI64 {
                cmp,
                signed: t.is_signed(),
                a,
                b,
                out: self.setp_out(out),
            },
            (_, [a, b]) => {
                let f = move |s: &[Lanes; 4]| lanes_where(s, |a, b| compare(cmp, ty, ftz, a, b));
                let src = [a, b, Reg::Sink, Reg::Sink];
                self.slow(Reg::Sink, src, SlowFn::Compare(Box::new(f), out))
            }
        };
        Ok((op, class))
    }

    /// `set`: all ones (or 1.0) where the comparison holds.
    fn set(
        &mut self,
        cx: &Cx<'_>,
        cmp: CmpOp,
        ftz: bool,
        dtype: T,
        ty: T,
        combine: Option<(Logic, Pred)>,
    ) -> Decoded {
        let packed = matches!(ty, T::F16x2 | T::BF16x2);
        let (yes, width) = match dtype {
            T::U32 | T::S32 => (0xffff_ffffu64, T::B32),
            T::U16 | T::S16 => (0xffff, T::B16),
            T::F32 => (1f32.to_bits().into(), T::B32),
            T::F16 if !packed => (0x3c00, T::B16),
            T::BF16 if !packed => (0x3f80, T::B16),
            T::F16x2 if packed => (0x3c00, T::B32),
            T::BF16x2 if packed => (0x3f80, T::B32),
            _ => return Err(cx.unsupported()),
        };
        if packed && combine.is_some() {
            return Err(cx.unsupported());
        }
        let src = [self.source(cx, 1, ty)?, self.source(cx, 2, ty)?];
        let d = self.dest(cx, 0, width)?;
        if packed {
            let yes = yes & 0xffff;
            let op = self.slow2(d, src, move |a, b| {
                let (low, high) = compare_x2(cmp, ty, ftz, a, b);
                (u64::from(low) * yes) | ((u64::from(high) * yes) << 16)
            });
            return Ok((op, Class::Compare));
        }
        let (third, logic, flip) = match combine {
            Some((logic, p)) => (Reg::P(p.reg), Some(logic), u64::from(p.flip & 1)),
            None => (Reg::Sink, None, 0),
        };
        let op = self.slow3(d, [src[0], src[1], third], move |a, b, c| {
            let holds = compare(cmp, ty, ftz, a, b);
            let c = (c ^ flip) & 1 == 1;
            let holds = match logic {
                None => holds,
                Some(Logic::And) => holds & c,
                Some(Logic::Or) => holds | c,
                Some(Logic::Xor) => holds ^ c,
            };
            if holds { yes } else { 0 }
        });
        Ok((op, Class::Compare))
    }

    fn selp(&mut self, cx: &Cx<'_>, m: &mut Mods<'_>) -> Decoded {
        let ty = m.take_type_or(cx)?;
        if ty == T::Pred || ty.bits() < 16 || ty.bits() > 64 {
            return Err(cx.unsupported());
        }
        cx.count(4, 4)?;
        let src = [self.source(cx, 1, ty)?, self.source(cx, 2, ty)?];
        let p = self.pred(cx, 3)?;
        let op = match (self.dest(cx, 0, ty)?, src) {
            (Reg::R16(d) | Reg::R32(d), [Reg::R16(a) | Reg::R32(a), Reg::R16(b) | Reg::R32(b)]) => {
                Op::Selp32 { d, a, b, p }
            }
            (Reg::R64(d), [Reg::R64(a), Reg::R64(b)]) => Op::Selp64 { d, a, b, p },
            _ => return Err(cx.operand_error(0, "a register")),
        };
        Ok((op, Class::Compare))
    }
}
