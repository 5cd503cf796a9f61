//! Logic and shifts, of integers and of predicates.

use super::mods::Mods;
use super::{Cx, Decoded, Decoder, class_of};
use crate::arith::{ScalarType, bits, int};
use crate::ast::Operand;
use crate::code::{Int2, Logic, Op, Pred};
use crate::table::{Class, Opcode};

use ScalarType as T;

impl Decoder<'_> {
    /// and or xor not cnot lop3 shf shl shr prmt.
    pub(super) fn logic(&mut self, opcode: Opcode, cx: &Cx<'_>, m: &mut Mods<'_>) -> Decoded {
        let class = Class::Integer;
        match opcode {
            Opcode::Lop3 => {
                let ty = m.type_of(cx, &[T::B32])?;
                cx.count(5, 5)?;
                let Operand::Int(lut) = *self.operand(cx, 4)? else {
                    return Err(cx.operand_error(4, "an immediate table of 8 bits"));
                };
                let src = [
                    self.source(cx, 1, ty)?,
                    self.source(cx, 2, ty)?,
                    self.source(cx, 3, ty)?,
                ];
                let d = self.dest(cx, 0, ty)?;
                return Ok((
                    self.slow3(d, src, move |a, b, c| bits::lop3(a, b, c, lut as u8)),
                    class,
                ));
            }
            Opcode::Shf => {
                let (left, right) = (m.flag("l"), m.flag("r"));
                let (clamp, wrap) = (m.flag("clamp"), m.flag("wrap"));
                let ty = m.type_of(cx, &[T::B32])?;
                if left == right || clamp == wrap {
                    return Err(cx.unsupported());
                }
                cx.count(4, 4)?;
                let src = [
                    self.source(cx, 1, ty)?,
                    self.source(cx, 2, ty)?,
                    self.source(cx, 3, ty)?,
                ];
                let d = self.dest(cx, 0, ty)?;
                let f = if left { bits::shf_l } else { bits::shf_r };
                return Ok((self.slow3(d, src, move |a, b, c| f(a, b, c, clamp)), class));
            }
            Opcode::Prmt => {
                let ty = m.type_of(cx, &[T::B32])?;
                let mode = m.find(bits::PrmtMode::from_suffix);
                let mode = mode.unwrap_or(bits::PrmtMode::Default);
                cx.count(4, 4)?;
                let src = [
                    self.source(cx, 1, ty)?,
                    self.source(cx, 2, ty)?,
                    self.source(cx, 3, ty)?,
                ];
                let d = self.dest(cx, 0, ty)?;
                return Ok((
                    self.slow3(d, src, move |a, b, c| bits::prmt(mode, a, b, c)),
                    class,
                ));
            }
            _ => {}
        }
        let shift = matches!(opcode, Opcode::Shl | Opcode::Shr);
        let ty = if opcode == Opcode::Shr {
            m.type_of(
                cx,
                &[
                    T::B16,
                    T::B32,
                    T::B64,
                    T::U16,
                    T::U32,
                    T::U64,
                    T::S16,
                    T::S32,
                    T::S64,
                ],
            )?
        } else if shift || opcode == Opcode::Cnot {
            m.type_of(cx, &[T::B16, T::B32, T::B64])?
        } else {
            m.type_of(cx, &[T::Pred, T::B16, T::B32, T::B64])?
        };
        if ty == T::Pred {
            return self.pred_logic(opcode, cx);
        }
        let Some(it) = ty.int() else {
            return Err(cx.unsupported());
        };
        if matches!(opcode, Opcode::Not | Opcode::Cnot) {
            cx.count(2, 2)?;
            let (d, a) = (self.dest(cx, 0, ty)?, self.source(cx, 1, ty)?);
            let op = if opcode == Opcode::Not {
                self.slow1(d, a, move |a| int::not(it, a))
            } else {
                self.slow1(d, a, |a| u64::from(a == 0))
            };
            return Ok((op, class));
        }
        cx.count(3, 3)?;
        let f = match opcode {
            Opcode::And => Int2::And,
            Opcode::Or => Int2::Or,
            Opcode::Xor => Int2::Xor,
            Opcode::Shl => Int2::Shl,
            Opcode::Shr if it.signed => Int2::ShrS,
            Opcode::Shr => Int2::ShrU,
            _ => return Err(cx.unsupported()),
        };
        let tb = if shift { T::U32 } else { ty };
        if ty.bits() == 16 {
            let src = [self.source(cx, 1, ty)?, self.source(cx, 2, tb)?];
            let d = self.dest(cx, 0, ty)?;
            let op = match f {
                Int2::And => self.slow2(d, src, |a, b| a & b),
                Int2::Or => self.slow2(d, src, |a, b| a | b),
                Int2::Xor => self.slow2(d, src, |a, b| a ^ b),
                Int2::Shl => self.slow2(d, src, move |a, b| bits::shl(it, a, b)),
                _ => self.slow2(d, src, move |a, b| bits::shr(it, a, b)),
            };
            return Ok((op, class));
        }
        Ok((self.int2(cx, f, ty, tb)?, class_of(ty)))
    }

    fn pred_logic(&mut self, opcode: Opcode, cx: &Cx<'_>) -> Decoded {
        let d = self.pred_dest(cx, 0, self.operand(cx, 0)?)?;
        let a = self.pred(cx, 1)?;
        let class = Class::Compare;
        let f = match opcode {
            Opcode::Not => {
                cx.count(2, 2)?;
                let a = Pred {
                    reg: a.reg,
                    flip: !a.flip,
                };
                return Ok((Op::MovP { d, a }, class));
            }
            Opcode::And => Logic::And,
            Opcode::Or => Logic::Or,
            Opcode::Xor => Logic::Xor,
            _ => return Err(cx.unsupported()),
        };
        cx.count(3, 3)?;
        Ok((
            Op::LogicP {
                f,
                d,
                a,
                b: self.pred(cx, 2)?,
            },
            class,
        ))
    }
}
