//! Integer arithmetic, logic and shifts.

use super::mods::Mods;
use super::{Cx, Decoded, Decoder, Res};
use crate::arith::{IntType, ScalarType, bits, int};
use crate::ast::RegClass;
use crate::code::{Int2, Lanes, Op, Reg, SetpOut, SlowFn};
use crate::table::{Class, Opcode};

use ScalarType as T;

const ARITH: &[T] = &[T::U16, T::S16, T::U32, T::S32, T::U64, T::S64];
const WIDE: &[T] = &[T::U16, T::S16, T::U32, T::S32];

impl Decoder<'_> {
    /// add sub mul mad div abs neg min max on integers, and the carry forms.
    pub(super) fn int_arith(&mut self, opcode: Opcode, cx: &Cx<'_>, m: &mut Mods<'_>) -> Decoded {
        let carry_out = m.flag("cc");
        if carry_out || matches!(opcode, Opcode::Addc | Opcode::Subc | Opcode::Madc) {
            return self.carry_arith(opcode, cx, m, carry_out);
        }
        let class = Class::Integer;
        if matches!(opcode, Opcode::Mul | Opcode::Mad) {
            return self.multiply(opcode, cx, m);
        }
        let sat = m.flag("sat");
        let packed = [T::U16, T::S16];
        let ty = m.type_of(cx, ARITH)?;
        let Some(it) = ty.int() else {
            return Err(cx.unsupported());
        };
        if sat {
            cx.count(3, 3)?;
            let src = [self.source(cx, 1, ty)?, self.source(cx, 2, ty)?];
            let d = self.dest(cx, 0, ty)?;
            return match (opcode, ty) {
                (Opcode::Add, T::S32) => Ok((
                    self.slow2(d, src, move |a, b| int::add_sat(it, a, b)),
                    class,
                )),
                (Opcode::Sub, T::S32) => Ok((
                    self.slow2(d, src, move |a, b| int::sub_sat(it, a, b)),
                    class,
                )),
                _ => Err(cx.unsupported()),
            };
        }
        if matches!(opcode, Opcode::Abs | Opcode::Neg) {
            if !it.signed {
                return Err(cx.unsupported());
            }
            cx.count(2, 2)?;
            let (d, a) = (self.dest(cx, 0, ty)?, self.source(cx, 1, ty)?);
            let op = match opcode {
                Opcode::Abs => self.slow1(d, a, move |a| int::abs(it, a)),
                _ => self.slow1(d, a, move |a| int::neg(it, a)),
            };
            return Ok((op, class));
        }
        if opcode == Opcode::Div {
            return self.division(opcode, cx, ty, it);
        }
        cx.count(3, 3)?;
        let (fast, f): (Int2, fn(IntType, u64, u64) -> u64) = match (opcode, it.signed) {
            (Opcode::Add, _) => (Int2::Add, int::add),
            (Opcode::Sub, _) => (Int2::Sub, int::sub),
            (Opcode::Min, false) => (Int2::MinU, int::min),
            (Opcode::Min, true) => (Int2::MinS, int::min),
            (Opcode::Max, false) => (Int2::MaxU, int::max),
            (Opcode::Max, true) => (Int2::MaxS, int::max),
            _ => return Err(cx.unsupported()),
        };
        if packed.contains(&ty) {
            let src = [self.source(cx, 1, ty)?, self.source(cx, 2, ty)?];
            let d = self.dest(cx, 0, ty)?;
            return Ok((self.slow2(d, src, move |a, b| f(it, a, b)), class));
        }
        Ok((self.int2(cx, fast, ty, ty)?, class))
    }

    /// A two-operand instruction of 32 or 64 bits with a fast path; `b` is of type `tb`.
    pub(super) fn int2(&mut self, cx: &Cx<'_>, f: Int2, ty: T, tb: T) -> Res<Op> {
        let shift = tb != ty;
        if ty.bits() == 32 {
            let (a, b) = (self.source_in32(cx, 1, ty)?, self.source_in32(cx, 2, tb)?);
            let d = self.dest(cx, 0, ty)?;
            match d {
                Reg::R32(d) => Ok(Op::Int32 { f, d, a, b }),
                _ => Err(cx.operand_error(0, "a 32-bit register")),
            }
        } else {
            let a = self.source_in64(cx, 1, ty)?;
            let b = if shift {
                self.source_in32(cx, 2, tb)?
            } else {
                self.source_in64(cx, 2, tb)?
            };
            Ok(Op::Int64 {
                f,
                d: self.dest64(cx, 0)?,
                a,
                b,
            })
        }
    }

    fn multiply(&mut self, opcode: Opcode, cx: &Cx<'_>, m: &mut Mods<'_>) -> Decoded {
        let mad = opcode == Opcode::Mad;
        cx.count(if mad { 4 } else { 3 }, if mad { 4 } else { 3 })?;
        let class = Class::Integer;
        let (wide, hi, lo) = (m.flag("wide"), m.flag("hi"), m.flag("lo"));
        let sat = m.flag("sat");
        let ty = m.type_of(cx, if wide { WIDE } else { ARITH })?;
        let Some(it) = ty.int() else {
            return Err(cx.unsupported());
        };
        if (wide as u8 + hi as u8 + lo as u8) != 1 || (sat && !(mad && hi && ty == T::S32)) {
            return Err(cx.unsupported());
        }
        if wide {
            let double = match ty {
                T::U16 => T::U32,
                T::S16 => T::S32,
                T::U32 => T::U64,
                _ => T::S64,
            };
            if ty.bits() == 32 {
                let (a, b) = (self.source_in32(cx, 1, ty)?, self.source_in32(cx, 2, ty)?);
                let c = if mad {
                    self.source_in64(cx, 3, double)?
                } else {
                    self.constant64(crate::code::Const64::Value(0))
                };
                let d = self.dest64(cx, 0)?;
                return Ok((
                    Op::MadWide {
                        signed: it.signed,
                        d,
                        a,
                        b,
                        c,
                    },
                    class,
                ));
            }
            let (a, b) = (self.source(cx, 1, ty)?, self.source(cx, 2, ty)?);
            let d = self.dest(cx, 0, double)?;
            let op = if mad {
                let c = self.source(cx, 3, double)?;
                self.slow3(d, [a, b, c], move |a, b, c| int::mad_wide(it, a, b, c))
            } else {
                self.slow2(d, [a, b], move |a, b| int::mul_wide(it, a, b))
            };
            return Ok((op, class));
        }
        if lo && !mad && ty.bits() >= 32 {
            return Ok((self.int2(cx, Int2::Mul, ty, ty)?, class));
        }
        if lo && mad && ty.bits() == 32 {
            let (a, b) = (self.source_in32(cx, 1, ty)?, self.source_in32(cx, 2, ty)?);
            let c = self.source_in32(cx, 3, ty)?;
            return Ok((
                Op::Mad32 {
                    d: self.dest32(cx, 0)?,
                    a,
                    b,
                    c,
                },
                class,
            ));
        }
        if lo && mad && ty.bits() == 64 {
            let (a, b) = (self.source_in64(cx, 1, ty)?, self.source_in64(cx, 2, ty)?);
            let c = self.source_in64(cx, 3, ty)?;
            return Ok((
                Op::Mad64 {
                    d: self.dest64(cx, 0)?,
                    a,
                    b,
                    c,
                },
                class,
            ));
        }
        let (a, b) = (self.source(cx, 1, ty)?, self.source(cx, 2, ty)?);
        let d = self.dest(cx, 0, ty)?;
        let op = if mad {
            let c = self.source(cx, 3, ty)?;
            match (hi, sat) {
                (true, true) => {
                    self.slow3(d, [a, b, c], move |a, b, c| int::mad_hi_sat(it, a, b, c))
                }
                (true, false) => self.slow3(d, [a, b, c], move |a, b, c| int::mad_hi(it, a, b, c)),
                _ => self.slow3(d, [a, b, c], move |a, b, c| int::mad_lo(it, a, b, c)),
            }
        } else if hi {
            self.slow2(d, [a, b], move |a, b| int::mul_hi(it, a, b))
        } else {
            self.slow2(d, [a, b], move |a, b| int::mul_lo(it, a, b))
        };
        Ok((op, class))
    }

    fn division(&mut self, opcode: Opcode, cx: &Cx<'_>, ty: T, it: IntType) -> Decoded {
        cx.count(3, 3)?;
        let (a, b) = (self.source(cx, 1, ty)?, self.source(cx, 2, ty)?);
        let d = self.dest(cx, 0, ty)?;
        let f = if opcode == Opcode::Div {
            int::div
        } else {
            int::rem
        };
        // With the detector off a division by zero gives all ones, as the machines do.
        let lanes = move |s: &[Lanes; 4], out: &mut Lanes| {
            for i in 0..32 {
                out[i] = f(it, s[0][i], s[1][i]).unwrap_or(it.mask());
            }
        };
        let op = self.slow(
            d,
            [a, b, Reg::Sink, Reg::Sink],
            SlowFn::Division(Box::new(lanes)),
        );
        Ok((op, Class::Integer))
    }

    fn carry_arith(&mut self, opcode: Opcode, cx: &Cx<'_>, m: &mut Mods<'_>, out: bool) -> Decoded {
        let mad = matches!(opcode, Opcode::Mad | Opcode::Madc);
        cx.count(if mad { 4 } else { 3 }, if mad { 4 } else { 3 })?;
        let (hi, lo) = (m.flag("hi"), m.flag("lo"));
        let ty = m.type_of(cx, &[T::U32, T::S32, T::B32, T::U64, T::S64, T::B64])?;
        if mad != (hi || lo) || (hi && lo) {
            return Err(cx.unsupported());
        }
        let Some(it) = ty.int() else {
            return Err(cx.unsupported());
        };
        let (a, b) = (self.source(cx, 1, ty)?, self.source(cx, 2, ty)?);
        let c = if mad {
            self.source(cx, 3, ty)?
        } else {
            Reg::Sink
        };
        let d = self.dest(cx, 0, ty)?;
        let with_carry = matches!(opcode, Opcode::Addc | Opcode::Subc | Opcode::Madc);
        let sub = matches!(opcode, Opcode::Sub | Opcode::Subc);
        if self.carry.is_none() {
            let Reg::P(r) = self.new_reg(RegClass::Pred) else {
                return Err(cx.unsupported());
            };
            self.carry = Some(r);
        }
        let lanes = move |s: &[Lanes; 4], carry: u32, result: &mut Lanes| {
            let mut carries = 0;
            for i in 0..32 {
                let carry_in = with_carry && carry >> i & 1 == 1;
                let (a, b) = if mad {
                    let product = if hi {
                        int::mul_hi(it, s[0][i], s[1][i])
                    } else {
                        int::mul_lo(it, s[0][i], s[1][i])
                    };
                    (product, s[2][i])
                } else {
                    (s[0][i], s[1][i])
                };
                let (value, flag) = if sub {
                    int::sub_borrow(it, a, b, carry_in)
                } else {
                    int::add_carry(it, a, b, carry_in)
                };
                result[i] = value;
                carries |= u32::from(flag) << i;
            }
            carries
        };
        let op = self.slow(d, [a, b, c, Reg::Sink], SlowFn::Carry(Box::new(lanes), out));
        Ok((op, Class::Integer))
    }

    pub(super) fn int_misc(&mut self, opcode: Opcode, cx: &Cx<'_>, m: &mut Mods<'_>) -> Decoded {
        let class = Class::Integer;
        let (hi, lo) = (m.flag("hi"), m.flag("lo"));
        if matches!(opcode, Opcode::Dp4a | Opcode::Dp2a) {
            let ta = m.type_of(cx, &[T::U32, T::S32])?;
            let tb = m.type_of(cx, &[T::U32, T::S32])?;
            if (opcode == Opcode::Dp2a) != (hi ^ lo) {
                return Err(cx.unsupported());
            }
            cx.count(4, 4)?;
            let src = [
                self.source(cx, 1, ta)?,
                self.source(cx, 2, tb)?,
                self.source(cx, 3, ta)?,
            ];
            let d = self.dest(cx, 0, ta)?;
            let (sa, sb) = (ta.is_signed(), tb.is_signed());
            let op = if opcode == Opcode::Dp4a {
                self.slow3(d, src, move |a, b, c| int::dp4a(sa, sb, a, b, c))
            } else {
                self.slow3(d, src, move |a, b, c| int::dp2a(sa, sb, hi, a, b, c))
            };
            return Ok((op, class));
        }
        if (hi || lo) != matches!(opcode, Opcode::Mul24 | Opcode::Mad24) {
            return Err(cx.unsupported());
        }
        let shiftamt = m.flag("shiftamt");
        let clamp = m.flag("clamp");
        let wrap = m.flag("wrap");
        let allowed: &[T] = match opcode {
            Opcode::Mul24 | Opcode::Mad24 | Opcode::Szext => &[T::U32, T::S32],
            Opcode::Sad | Opcode::Rem => ARITH,
            Opcode::Popc | Opcode::Clz | Opcode::Brev | Opcode::Bfi => &[T::B32, T::B64],
            Opcode::Bfind | Opcode::Bfe => &[T::U32, T::S32, T::U64, T::S64],
            _ => &[T::B32],
        };
        let ty = m.type_of(cx, allowed)?;
        let Some(it) = ty.int() else {
            return Err(cx.unsupported());
        };
        let ranged = matches!(opcode, Opcode::Bmsk | Opcode::Szext);
        if (ranged && clamp == wrap)
            || (!ranged && (clamp || wrap))
            || (shiftamt && opcode != Opcode::Bfind)
        {
            return Err(cx.unsupported());
        }
        let op = match opcode {
            Opcode::Rem => return self.division(opcode, cx, ty, it),
            Opcode::Mul24 => {
                cx.count(3, 3)?;
                let src = [self.source(cx, 1, ty)?, self.source(cx, 2, ty)?];
                let d = self.dest(cx, 0, ty)?;
                let f = if hi { int::mul24_hi } else { int::mul24_lo };
                self.slow2(d, src, move |a, b| f(it, a, b))
            }
            Opcode::Mad24 => {
                cx.count(4, 4)?;
                let src = [
                    self.source(cx, 1, ty)?,
                    self.source(cx, 2, ty)?,
                    self.source(cx, 3, ty)?,
                ];
                let d = self.dest(cx, 0, ty)?;
                let f = if hi { int::mul24_hi } else { int::mul24_lo };
                self.slow3(d, src, move |a, b, c| int::add(it, f(it, a, b), c))
            }
            Opcode::Sad => {
                cx.count(4, 4)?;
                let src = [
                    self.source(cx, 1, ty)?,
                    self.source(cx, 2, ty)?,
                    self.source(cx, 3, ty)?,
                ];
                let d = self.dest(cx, 0, ty)?;
                self.slow3(d, src, move |a, b, c| int::sad(it, a, b, c))
            }
            Opcode::Popc | Opcode::Clz | Opcode::Bfind | Opcode::Brev => {
                cx.count(2, 2)?;
                let a = self.source(cx, 1, ty)?;
                let d = self.dest(cx, 0, if opcode == Opcode::Brev { ty } else { T::U32 })?;
                match opcode {
                    Opcode::Popc => self.slow1(d, a, move |a| bits::popc(it, a)),
                    Opcode::Clz => self.slow1(d, a, move |a| bits::clz(it, a)),
                    Opcode::Brev => self.slow1(d, a, move |a| bits::brev(it, a)),
                    _ => self.slow1(d, a, move |a| bits::bfind(it, a, shiftamt)),
                }
            }
            Opcode::Bfe => {
                cx.count(4, 4)?;
                let src = [
                    self.source(cx, 1, ty)?,
                    self.source(cx, 2, T::U32)?,
                    self.source(cx, 3, T::U32)?,
                ];
                let d = self.dest(cx, 0, ty)?;
                self.slow3(d, src, move |a, b, c| bits::bfe(it, a, b, c))
            }
            Opcode::Bfi => self.bfi(cx, ty, it)?,
            Opcode::Bmsk => {
                cx.count(3, 3)?;
                let src = [self.source(cx, 1, ty)?, self.source(cx, 2, ty)?];
                let d = self.dest(cx, 0, ty)?;
                self.slow2(d, src, move |a, b| bits::bmsk(clamp, a, b))
            }
            Opcode::Szext => {
                cx.count(3, 3)?;
                let src = [self.source(cx, 1, ty)?, self.source(cx, 2, T::U32)?];
                let d = self.dest(cx, 0, ty)?;
                self.slow2(d, src, move |a, b| bits::szext(it, clamp, a, b))
            }
            Opcode::Fns => {
                cx.count(4, 4)?;
                let src = [
                    self.source(cx, 1, ty)?,
                    self.source(cx, 2, ty)?,
                    self.source(cx, 3, ty)?,
                ];
                let d = self.dest(cx, 0, ty)?;
                self.slow3(d, src, fns)
            }
            _ => return Err(cx.unsupported()),
        };
        Ok((op, class))
    }

    fn bfi(&mut self, cx: &Cx<'_>, ty: T, it: IntType) -> Res<Op> {
        cx.count(5, 5)?;
        let (a, b) = (self.source(cx, 1, ty)?, self.source(cx, 2, ty)?);
        let (pos, len) = (self.source(cx, 3, T::U32)?, self.source(cx, 4, T::U32)?);
        let d = self.dest(cx, 0, ty)?;
        let lanes = move |s: &[Lanes; 4], out: &mut Lanes| {
            for i in 0..32 {
                out[i] = bits::bfi(it, s[0][i], s[1][i], s[2][i], s[3][i]);
            }
        };
        Ok(self.slow(d, [a, b, pos, len], SlowFn::Value(Box::new(lanes))))
    }

    /// Registers a comparison's outputs.
    pub(super) fn setp_out(&mut self, out: SetpOut) -> u32 {
        self.code.setp.push(out);
        self.code.setp.len() as u32 - 1
    }
}

/// `fns`: position of the n-th set bit from `base`, upwards for n > 0, downwards for n < 0.
fn fns(mask: u64, base: u64, offset: u64) -> u64 {
    let (mask, base, n) = (mask as u32, base as u32, offset as i32);
    let none = 0xffff_ffff;
    if base > 31 {
        return none;
    }
    let is_set = |i: &u32| mask >> *i & 1 == 1;
    let found = match n {
        0 => Some(base).filter(is_set),
        1.. => (base..32).filter(is_set).nth(n as usize - 1),
        _ => (0..=base)
            .rev()
            .filter(is_set)
            .nth(n.unsigned_abs() as usize - 1),
    };
    found.map_or(none, u64::from)
}
