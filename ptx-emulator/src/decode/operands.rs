//! Operands: registers, constants and addresses of one instruction.

use super::link::Found;
use super::{Cx, Decoder, Res};
use crate::arith::ScalarType;
use crate::ast::{Base, Operand, RegClass, RegId, Special, VarSpace};
use crate::code::{Addr, Const64, MemSpace, NONE, Pred, R, Reg, TRUE};
use crate::error::LoadError;

impl Decoder<'_> {
    pub(super) fn reg(&self, id: RegId) -> Reg {
        self.layouts[&self.func].regs[id as usize]
    }

    pub(super) fn constant32(&mut self, value: u32) -> R {
        if let Some(&r) = self.const32.get(&value) {
            return r;
        }
        let r = self.code.count32;
        self.code.count32 += 1;
        self.code.const32.push((r, value));
        self.const32.insert(value, r);
        r
    }

    pub(super) fn constant64(&mut self, value: Const64) -> R {
        if let Some(&r) = self.const64.get(&value) {
            return r;
        }
        let r = self.code.count64;
        self.code.count64 += 1;
        self.code.const64.push((r, value));
        self.const64.insert(value, r);
        r
    }

    /// A constant of `bits` bits (16, 32 or 64).
    pub(super) fn constant(&mut self, bits: u32, value: u64) -> Reg {
        match bits {
            64 => Reg::R64(self.constant64(Const64::Value(value))),
            32 => Reg::R32(self.constant32(value as u32)),
            _ => Reg::R16(self.constant32(value as u32 & 0xffff)),
        }
    }

    pub(super) fn special(&mut self, special: Special) -> Reg {
        if let Some(&reg) = self.specials.get(&special) {
            return reg;
        }
        let reg = self.new_reg(special.class());
        self.specials.insert(special, reg);
        self.code.specials.push((special, reg));
        reg
    }

    pub(super) fn operand<'c>(&self, cx: &Cx<'c>, index: usize) -> Res<&'c Operand> {
        cx.raw
            .operands
            .get(index)
            .ok_or_else(|| cx.operand_error(index, "present"))
    }

    /// A source of type `ty`: a register of its width, a constant, a special register, or the
    /// address of a variable.
    pub(super) fn source(&mut self, cx: &Cx<'_>, index: usize, ty: ScalarType) -> Res<Reg> {
        let operand = self.operand(cx, index)?;
        self.source_of(cx, index, operand, ty, false)
    }

    /// As [`Decoder::source`], but the register may be wider than the type.
    pub(super) fn wide_source(&mut self, cx: &Cx<'_>, index: usize, ty: ScalarType) -> Res<Reg> {
        let operand = self.operand(cx, index)?;
        self.source_of(cx, index, operand, ty, true)
    }

    pub(super) fn source_of(
        &mut self,
        cx: &Cx<'_>,
        index: usize,
        operand: &Operand,
        ty: ScalarType,
        wider: bool,
    ) -> Res<Reg> {
        let bits = ty.bits().max(16);
        let wanted = || format!("a source of {} bits", ty.bits());
        if ty == ScalarType::Pred {
            return Err(cx.operand_error(index, "a predicate"));
        }
        match operand {
            Operand::Reg(id) => {
                let class = self.func_ref().regs[*id as usize];
                let fits = class.bits() == bits || (wider && class.bits() > bits);
                if class == RegClass::Pred || !fits {
                    return Err(cx.operand_error(index, &wanted()));
                }
                Ok(self.reg(*id))
            }
            Operand::Special(special) => {
                let reg = self.special(*special);
                // `mov.u64 %rd, %clock` and the like do not exist.
                if special.class().bits() == bits || (wider && special.class().bits() > bits) {
                    Ok(reg)
                } else {
                    Err(cx.operand_error(index, &wanted()))
                }
            }
            Operand::Int(value) => Ok(match ty {
                ScalarType::F32 | ScalarType::F64 => {
                    return Err(cx.operand_error(index, "a floating-point constant"));
                }
                _ => self.constant(bits, *value),
            }),
            Operand::F32(value) if bits == 32 => Ok(self.constant(32, (*value).into())),
            Operand::F32(value) if bits == 64 => {
                Ok(self.constant(64, f64::from(f32::from_bits(*value)).to_bits()))
            }
            Operand::F64(value) if bits == 64 => Ok(self.constant(64, *value)),
            Operand::F64(value) if bits == 32 => {
                Ok(self.constant(32, (f64::from_bits(*value) as f32).to_bits().into()))
            }
            Operand::Symbol(name, plus) => {
                let address = self.address_constant(cx, name, *plus)?.1;
                match (address, bits) {
                    (Const64::Value(value), 32) => Ok(self.constant(32, value)),
                    (address, 64) => Ok(Reg::R64(self.constant64(address))),
                    _ => Err(cx.operand_error(index, &wanted())),
                }
            }
            _ => Err(cx.operand_error(index, &wanted())),
        }
    }

    /// A source that must lie in the 32-bit file.
    pub(super) fn source32(&mut self, cx: &Cx<'_>, index: usize) -> Res<R> {
        self.source_in32(cx, index, ScalarType::B32)
    }

    pub(super) fn source_in32(&mut self, cx: &Cx<'_>, index: usize, ty: ScalarType) -> Res<R> {
        match self.source(cx, index, ty)? {
            Reg::R32(r) | Reg::R16(r) => Ok(r),
            _ => Err(cx.operand_error(index, "a 32-bit source")),
        }
    }

    pub(super) fn source_in64(&mut self, cx: &Cx<'_>, index: usize, ty: ScalarType) -> Res<R> {
        match self.source(cx, index, ty)? {
            Reg::R64(r) => Ok(r),
            _ => Err(cx.operand_error(index, "a 64-bit source")),
        }
    }

    pub(super) fn dest(&self, cx: &Cx<'_>, index: usize, ty: ScalarType) -> Res<Reg> {
        let operand = self.operand(cx, index)?;
        self.dest_of(cx, index, operand, ty, false)
    }

    pub(super) fn dest_of(
        &self,
        cx: &Cx<'_>,
        index: usize,
        operand: &Operand,
        ty: ScalarType,
        wider: bool,
    ) -> Res<Reg> {
        let bits = ty.bits().max(16);
        match operand {
            Operand::Reg(id) => {
                let class = self.func_ref().regs[*id as usize];
                let fits = class.bits() == bits || (wider && class.bits() > bits);
                if class != RegClass::Pred && fits {
                    return Ok(self.reg(*id));
                }
            }
            Operand::Sink => return Ok(Reg::Sink),
            _ => {}
        }
        Err(cx.operand_error(index, &format!("a register of {} bits", ty.bits())))
    }

    pub(super) fn dest32(&self, cx: &Cx<'_>, index: usize) -> Res<R> {
        match self.dest(cx, index, ScalarType::B32)? {
            Reg::R32(r) => Ok(r),
            _ => Err(cx.operand_error(index, "a 32-bit register")),
        }
    }

    pub(super) fn dest64(&self, cx: &Cx<'_>, index: usize) -> Res<R> {
        match self.dest(cx, index, ScalarType::B64)? {
            Reg::R64(r) => Ok(r),
            _ => Err(cx.operand_error(index, "a 64-bit register")),
        }
    }

    /// A predicate register, `_` included.
    pub(super) fn pred_dest(&self, cx: &Cx<'_>, index: usize, operand: &Operand) -> Res<R> {
        match operand {
            Operand::Reg(id) => match self.reg(*id) {
                Reg::P(r) => Ok(r),
                _ => Err(cx.operand_error(index, "a predicate register")),
            },
            Operand::Sink => Ok(NONE),
            _ => Err(cx.operand_error(index, "a predicate register")),
        }
    }

    pub(super) fn pred(&self, cx: &Cx<'_>, index: usize) -> Res<Pred> {
        let (id, flip) = match self.operand(cx, index)? {
            Operand::Reg(id) => (*id, 0),
            Operand::Not(id) => (*id, u32::MAX),
            Operand::Int(value) => {
                return Ok(Pred {
                    reg: TRUE,
                    flip: if *value != 0 { 0 } else { u32::MAX },
                });
            }
            _ => return Err(cx.operand_error(index, "a predicate")),
        };
        match self.reg(id) {
            Reg::P(reg) => Ok(Pred { reg, flip }),
            _ => Err(cx.operand_error(index, "a predicate")),
        }
    }

    /// The space of a variable and its address in that space.
    pub(super) fn address_constant(
        &self,
        cx: &Cx<'_>,
        name: &str,
        plus: i64,
    ) -> Res<(MemSpace, Const64)> {
        let at = |offset: u64| Const64::Value(offset.wrapping_add_signed(plus));
        match self.variable(cx.raw.scope, name) {
            Some(Found::Own(var, offset)) => Ok(match var.space {
                VarSpace::Shared => (MemSpace::Shared, at(offset)),
                VarSpace::EntryParam => (MemSpace::Param, at(offset)),
                _ => (MemSpace::Local, at(offset)),
            }),
            Some(Found::Module(var, index)) => Ok(match var.space {
                VarSpace::Shared => {
                    let offset = self.module_shared.get(&index).copied().unwrap_or(0);
                    (MemSpace::Shared, at(offset))
                }
                _ => (MemSpace::Global, Const64::Variable(index as u32, plus)),
            }),
            None => Err(LoadError::Undefined {
                line: cx.raw.line,
                what: "variable",
                name: name.to_string(),
            }),
        }
    }

    /// `[ … ]`: base register and offset, and the space of the symbol if there is one.
    pub(super) fn address(&mut self, cx: &Cx<'_>, index: usize) -> Res<(Addr, Option<MemSpace>)> {
        let Operand::Address(base, offset) = self.operand(cx, index)? else {
            return Err(cx.operand_error(index, "an address"));
        };
        match base {
            Base::Reg(id) => match self.reg(*id) {
                base @ (Reg::R32(_) | Reg::R64(_)) => Ok((
                    Addr {
                        base,
                        offset: *offset,
                    },
                    None,
                )),
                _ => Err(cx.operand_error(index, "an address in a 32- or 64-bit register")),
            },
            Base::Symbol(name) => {
                let (space, value) = self.address_constant(cx, name, *offset)?;
                let base = Reg::R64(self.constant64(value));
                Ok((Addr { base, offset: 0 }, Some(space)))
            }
            Base::None => {
                let base = Reg::R64(self.constant64(Const64::Value(*offset as u64)));
                Ok((Addr { base, offset: 0 }, None))
            }
        }
    }
}
