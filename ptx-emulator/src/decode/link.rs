//! Which functions an entry needs, and where their registers and variables go.

use std::collections::{HashMap, HashSet};

use super::{Decoder, Layout, Res};
use crate::ast::{Ast, Base, Func, Operand, RegClass, ScopeId, Var, VarSpace};
use crate::code::{Code, Reg, SharedVar};
use crate::error::LoadError;

/// Local memory of one thread.
const MAX_LOCAL: u64 = 512 << 10;

/// The functions that `root` can reach, itself first.
pub(super) fn closure(ast: &Ast, root: usize) -> Res<Vec<usize>> {
    let mut order = Vec::new();
    let mut done = HashSet::new();
    // Depth first with the path kept, so that recursion shows as a call into the path.
    let mut stack = vec![(root, callees(ast, root)?)];
    let mut path = HashSet::from([root]);
    order.push(root);
    done.insert(root);
    while let Some((func, rest)) = stack.last_mut() {
        let Some((callee, line)) = rest.pop() else {
            path.remove(func);
            stack.pop();
            continue;
        };
        if path.contains(&callee) {
            let instruction = format!("recursive call of {}", ast.funcs[callee].name);
            return Err(LoadError::Unsupported { line, instruction });
        }
        if done.insert(callee) {
            order.push(callee);
            path.insert(callee);
            stack.push((callee, callees(ast, callee)?));
        }
    }
    Ok(order)
}

fn callees(ast: &Ast, func: usize) -> Res<Vec<(usize, u32)>> {
    let mut out = Vec::new();
    for raw in &ast.funcs[func].body {
        if raw.text != "call" && !raw.text.starts_with("call.") {
            continue;
        }
        let name = raw.operands.iter().find_map(|o| match o {
            Operand::Symbol(name, 0) => Some(name),
            _ => None,
        });
        let Some(name) = name else {
            let instruction = format!("{} through a register", raw.text);
            return Err(LoadError::Unsupported {
                line: raw.line,
                instruction,
            });
        };
        match ast.funcs.iter().position(|f| f.name == *name) {
            Some(callee) if ast.funcs[callee].has_body && !ast.funcs[callee].entry => {
                out.push((callee, raw.line));
            }
            Some(_) => {
                let instruction = format!("{} of the external function {name}", raw.text);
                return Err(LoadError::Unsupported {
                    line: raw.line,
                    instruction,
                });
            }
            None => {
                let name = name.clone();
                return Err(LoadError::Undefined {
                    line: raw.line,
                    what: "function",
                    name,
                });
            }
        }
    }
    Ok(out)
}

/// A variable that a name means.
#[derive(Clone, Copy)]
pub(super) enum Found<'a> {
    /// Variable of the function, with its offset in its space.
    Own(&'a Var, u64),
    /// Variable of the module, by index.
    Module(&'a Var, usize),
}

impl<'a> Decoder<'a> {
    pub(super) fn new(ast: &'a Ast, root: usize) -> Self {
        let code = Code {
            count_pred: 1,
            ..Code::default()
        };
        Decoder {
            ast,
            code,
            layouts: HashMap::new(),
            module_shared: HashMap::new(),
            dynamic_align: 1,
            const32: HashMap::new(),
            const64: HashMap::new(),
            specials: HashMap::new(),
            func: root,
            carry: None,
        }
    }

    /// Gives registers and variables of function `f` their places.
    pub(super) fn lay_out(&mut self, f: usize) -> Res<()> {
        let func: &'a Func = &self.ast.funcs[f];
        let regs = func.regs.iter().map(|class| self.new_reg(*class)).collect();
        let mut vars = Vec::with_capacity(func.vars.len());
        let mut param = 0u64;
        for var in &func.vars {
            let offset = match var.space {
                VarSpace::Shared => self.place_shared(var),
                VarSpace::Local => {
                    let at = u64::from(self.code.local_bytes).next_multiple_of(var.align);
                    if at + var.size > MAX_LOCAL {
                        return Err(LoadError::TooLarge {
                            line: func.line,
                            what: "the local memory of a thread",
                            value: at + var.size,
                            limit: MAX_LOCAL,
                        });
                    }
                    self.code.local_bytes = (at + var.size) as u32;
                    at
                }
                VarSpace::EntryParam => {
                    let at = param.next_multiple_of(var.align);
                    param = at + var.size;
                    at
                }
                VarSpace::Global | VarSpace::Const => 0,
            };
            vars.push(offset);
        }
        for index in used_module_shared(self.ast, func) {
            if !self.module_shared.contains_key(&index) {
                let offset = self.place_shared(&self.ast.vars[index]);
                self.module_shared.insert(index, offset);
            }
        }
        self.layouts.insert(f, Layout { regs, vars });
        Ok(())
    }

    /// Static variables get an offset now, dynamic ones start where all static ones end.
    fn place_shared(&mut self, var: &Var) -> u64 {
        if var.unsized_array {
            self.dynamic_align = self.dynamic_align.max(var.align);
            self.code.shared.push(SharedVar {
                name: var.name.clone(),
                offset: u64::MAX,
                size: 0,
            });
            return u64::MAX;
        }
        let at = u64::from(self.code.static_shared).next_multiple_of(var.align);
        let end = (at + var.size).min(u64::from(u32::MAX));
        self.code.static_shared = end as u32;
        self.code.shared.push(SharedVar {
            name: var.name.clone(),
            offset: at,
            size: var.size,
        });
        at
    }

    /// Puts the dynamic shared memory behind the static.
    pub(super) fn finish_shared(&mut self) {
        let dynamic = u64::from(self.code.static_shared).next_multiple_of(self.dynamic_align);
        let dynamic = dynamic.min(u64::from(u32::MAX));
        self.code.static_shared = dynamic as u32;
        let fix = |offset: &mut u64| {
            if *offset == u64::MAX {
                *offset = dynamic;
            }
        };
        self.code.shared.iter_mut().for_each(|v| fix(&mut v.offset));
        self.module_shared.values_mut().for_each(fix);
        for layout in self.layouts.values_mut() {
            layout.vars.iter_mut().for_each(fix);
        }
    }

    pub(super) fn new_reg(&mut self, class: RegClass) -> Reg {
        let next = |count: &mut u32| {
            *count += 1;
            *count - 1
        };
        match class {
            RegClass::Pred => Reg::P(next(&mut self.code.count_pred)),
            RegClass::B16 => Reg::R16(next(&mut self.code.count32)),
            RegClass::B32 => Reg::R32(next(&mut self.code.count32)),
            RegClass::B64 => Reg::R64(next(&mut self.code.count64)),
        }
    }

    /// The variable that `name` means in `scope` of the current function.
    pub(super) fn variable(&self, scope: ScopeId, name: &str) -> Option<Found<'a>> {
        let func = self.func_ref();
        let layout = &self.layouts[&self.func];
        let mut scope = scope;
        loop {
            let own = func
                .vars
                .iter()
                .position(|v| v.scope == scope && v.name == name);
            if let Some(i) = own {
                return Some(Found::Own(&func.vars[i], layout.vars[i]));
            }
            if scope == 0 {
                break;
            }
            scope = func.scopes[scope as usize];
        }
        let index = self.ast.vars.iter().position(|v| v.name == name)?;
        Some(Found::Module(&self.ast.vars[index], index))
    }
}

/// Module-level shared variables that a function names.
fn used_module_shared(ast: &Ast, func: &Func) -> Vec<usize> {
    let mut names = HashSet::new();
    for raw in &func.body {
        for operand in &raw.operands {
            collect_names(operand, &mut names);
        }
    }
    let used = |(i, v): (usize, &Var)| {
        (v.space == VarSpace::Shared && names.contains(v.name.as_str())).then_some(i)
    };
    ast.vars.iter().enumerate().filter_map(used).collect()
}

fn collect_names<'a>(operand: &'a Operand, names: &mut HashSet<&'a str>) {
    match operand {
        Operand::Symbol(name, _) | Operand::Address(Base::Symbol(name), _) => {
            names.insert(name);
        }
        Operand::Vector(items) | Operand::Group(items) => {
            items.iter().for_each(|item| collect_names(item, names));
        }
        _ => {}
    }
}
