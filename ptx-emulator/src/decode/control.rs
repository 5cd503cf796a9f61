//! Branches, calls, barriers and fences.

use std::collections::HashMap;

use super::mods::Mods;
use super::moves::mov_op;
use super::{Cx, Decoded, Decoder, Res};
use crate::arith::ScalarType;
use crate::ast::{Func, Operand, Param, ScopeId};
use crate::code::{BarKind, BarOp, Op, Pred, Reg, TRUE};
use crate::error::LoadError;
use crate::table::{Class, Opcode};

use ScalarType as T;

impl<'a> Decoder<'a> {
    /// The target is the index of a statement; `Decoder::function` turns it into an instruction.
    pub(super) fn bra(&mut self, cx: &Cx<'_>, m: &mut Mods<'_>) -> Decoded {
        m.flag("uni");
        cx.count(1, 1)?;
        let Operand::Symbol(name, 0) = self.operand(cx, 0)? else {
            return Err(cx.operand_error(0, "a label"));
        };
        let target = self.in_scope(cx, "label", name, |func| &func.labels)?;
        Ok((
            Op::Bra {
                target: *target as u32,
            },
            Class::Control,
        ))
    }

    pub(super) fn brx(&mut self, cx: &Cx<'_>, m: &mut Mods<'_>) -> Decoded {
        m.flag("uni");
        cx.count(2, 2)?;
        if !m.flag("idx") {
            return Err(cx.unsupported());
        }
        let index = self.source32(cx, 0)?;
        let Operand::Symbol(name, 0) = self.operand(cx, 1)? else {
            return Err(cx.operand_error(1, "a branch table"));
        };
        let names = self.in_scope(cx, "branch table", name, |func| &func.tables)?;
        let target = |name: &String| {
            let found = self.in_scope(cx, "label", name, |func| &func.labels);
            found.map(|target| *target as u32)
        };
        let targets = names.iter().map(target).collect::<Res<Vec<u32>>>()?;
        self.code.tables.push(targets);
        let table = self.code.tables.len() as u32 - 1;
        Ok((Op::Brx { index, table }, Class::Control))
    }

    /// What a name means in the scope of the statement or one around it.
    fn in_scope<T>(
        &self,
        cx: &Cx<'_>,
        what: &'static str,
        name: &str,
        names: impl Fn(&'a Func) -> &'a HashMap<(ScopeId, String), T>,
    ) -> Res<&'a T> {
        let func = self.func_ref();
        let mut scope = cx.raw.scope;
        loop {
            if let Some(found) = names(func).get(&(scope, name.to_string())) {
                return Ok(found);
            }
            if scope == 0 {
                let (line, name) = (cx.raw.line, name.to_string());
                return Err(LoadError::Undefined { line, what, name });
            }
            scope = func.scopes[scope as usize];
        }
    }

    /// `call (ret), name, (args);`: copies in, the call, copies out.
    pub(super) fn call(&mut self, cx: &Cx<'_>, guard: Pred, m: &mut Mods<'_>) -> Res<()> {
        m.flag("uni");
        if !m.is_empty() {
            return Err(cx.unsupported());
        }
        let at = cx
            .raw
            .operands
            .iter()
            .position(|o| matches!(o, Operand::Symbol(..)));
        let Some((at, Operand::Symbol(name, _))) = at.map(|at| (at, &cx.raw.operands[at])) else {
            return Err(cx.unsupported());
        };
        let index = self.ast.funcs.iter().position(|f| f.name == *name);
        let Some(index) = index else {
            let (line, name) = (cx.raw.line, name.clone());
            return Err(LoadError::Undefined {
                line,
                what: "function",
                name,
            });
        };
        let callee: &Func = &self.ast.funcs[index];
        let group = |i: Option<usize>| match i.and_then(|i| cx.raw.operands.get(i)) {
            Some(Operand::Group(items)) => &items[..],
            _ => &[],
        };
        let returns = group(at.checked_sub(1));
        let args = group(Some(at + 1));
        if returns.len() != callee.returns.len() || args.len() != callee.params.len() {
            let wanted = format!(
                "a call with {} arguments and {} results",
                callee.params.len(),
                callee.returns.len()
            );
            let found = format!("{} and {}", args.len(), returns.len());
            return Err(LoadError::syntax(cx.raw.line, &wanted, &found));
        }
        for (arg, param) in args.iter().zip(&callee.params) {
            self.pass(cx, guard, index, arg, param, true)?;
        }
        self.push(
            cx.raw.line,
            guard,
            Op::Call {
                target: index as u32,
            },
            Class::Control,
            &cx.raw.text,
        );
        for (arg, param) in returns.iter().zip(&callee.returns) {
            self.pass(cx, guard, index, arg, param, false)?;
        }
        Ok(())
    }

    /// Copies one argument into the callee's parameter, or one result out of it.
    fn pass(
        &mut self,
        cx: &Cx<'_>,
        guard: Pred,
        callee: usize,
        arg: &Operand,
        param: &Param,
        into: bool,
    ) -> Res<()> {
        let op = if let Some(reg) = param.reg {
            let inner = self.layouts[&callee].regs[reg as usize];
            let ty = match param.size {
                2 => T::B16,
                4 => T::B32,
                8 => T::B64,
                _ => return Err(cx.unsupported()),
            };
            if into {
                mov_op(inner, self.source_of(cx, 0, arg, ty, false)?)
            } else {
                mov_op(self.dest_of(cx, 0, arg, ty, false)?, inner)
            }
        } else {
            let Operand::Symbol(name, 0) = arg else {
                return Err(cx.operand_error(0, "a .param variable"));
            };
            let own = match self.variable(cx.raw.scope, name) {
                Some(super::link::Found::Own(var, offset)) if var.size == param.size => offset,
                _ => return Err(cx.operand_error(0, "a .param variable of the parameter's size")),
            };
            let func: &Func = &self.ast.funcs[callee];
            let place = func.vars.iter().position(|v| v.name == param.name);
            let inner = place.map_or(0, |i| self.layouts[&callee].vars[i]);
            let (dst, src) = if into { (inner, own) } else { (own, inner) };
            Op::CopyLocal {
                dst: dst as u32,
                src: src as u32,
                bytes: param.size as u32,
            }
        };
        self.push(cx.raw.line, guard, op, Class::Control, &cx.raw.text);
        Ok(())
    }

    pub(super) fn barrier(&mut self, opcode: Opcode, cx: &Cx<'_>, m: &mut Mods<'_>) -> Decoded {
        let class = Class::Barrier;
        if m.flag("warp") {
            if !m.flag("sync") || opcode != Opcode::Bar {
                return Err(cx.unsupported());
            }
            cx.count(1, 1)?;
            return Ok((
                Op::WarpSync {
                    mask: self.source32(cx, 0)?,
                },
                class,
            ));
        }
        m.flag("cta");
        // `bar` is `barrier.aligned`.
        let aligned = m.flag("aligned") || opcode == Opcode::Bar;
        let (sync, arrive, red) = (m.flag("sync"), m.flag("arrive"), m.flag("red"));
        if u8::from(sync) + u8::from(arrive) + u8::from(red) != 1 {
            return Err(cx.unsupported());
        }
        let kind = if red {
            let kind = m.find(|s| match s {
                "popc" => Some(BarKind::RedPopc),
                "and" => Some(BarKind::RedAnd),
                "or" => Some(BarKind::RedOr),
                _ => None,
            });
            kind.ok_or_else(|| cx.unsupported())?
        } else if sync {
            BarKind::Sync
        } else {
            BarKind::Arrive
        };
        let mut op = BarOp {
            kind,
            aligned,
            id: 0,
            count: None,
            d: Reg::Sink,
            pred: Pred { reg: TRUE, flip: 0 },
        };
        let operands = cx.raw.operands.len();
        if red {
            cx.count(3, 4)?;
            if kind == BarKind::RedPopc {
                m.type_of(cx, &[T::U32])?;
                op.d = self.dest(cx, 0, T::U32)?;
            } else {
                m.type_of(cx, &[T::Pred])?;
                op.d = Reg::P(self.pred_dest(cx, 0, self.operand(cx, 0)?)?);
            }
            op.id = self.source32(cx, 1)?;
            if operands == 4 {
                op.count = Some(self.source32(cx, 2)?);
            }
            op.pred = self.pred(cx, operands - 1)?;
        } else {
            cx.count(if arrive { 2 } else { 1 }, 2)?;
            op.id = self.source32(cx, 0)?;
            if operands == 2 {
                op.count = Some(self.source32(cx, 1)?);
            }
        }
        self.code.bar.push(op);
        Ok((Op::Bar(self.code.bar.len() as u32 - 1), class))
    }

    pub(super) fn fence(&mut self, opcode: Opcode, cx: &Cx<'_>, m: &mut Mods<'_>) -> Decoded {
        cx.count(0, 0)?;
        if opcode == Opcode::Membar {
            m.find(|s| matches!(s, "cta" | "gl" | "sys").then_some(()));
        } else {
            m.find(|s| matches!(s, "sc" | "acq_rel" | "acquire" | "release").then_some(()));
            m.find(|s| matches!(s, "cta" | "gpu" | "sys" | "cluster").then_some(()));
        }
        Ok((Op::Fence, Class::Barrier))
    }
}
