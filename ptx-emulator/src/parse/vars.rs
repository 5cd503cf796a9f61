//! Declarations of variables and registers.

use super::{MAX_REGS, MAX_VAR_BYTES, Parser, Result1, integer, too_large, unsupported};
use crate::arith::ScalarType;
use crate::ast::{Func, Init, RegClass, Var, VarSpace};
use crate::error::LoadError;
use crate::lex::Kind;

impl<'a> Parser<'a> {
    /// `.global .align 4 .b8 name[16] = {…}, …;` with the space still to come.
    pub(super) fn variables(&mut self, external: bool) -> Result1<Vec<Var>> {
        let line = self.line();
        let space = match self.word("a state space")? {
            ".global" => VarSpace::Global,
            ".const" => VarSpace::Const,
            ".shared" => VarSpace::Shared,
            ".local" | ".param" => VarSpace::Local,
            other => return Err(unsupported(line, other)),
        };
        let first = self.declarator(line)?;
        let ty_size = first.init.first().map_or(1, |i| match i {
            Init::Value { bytes, .. } | Init::Address { bytes, .. } => *bytes,
        });
        let mut vars = Vec::new();
        let mut var = Var {
            space,
            init: Vec::new(),
            ..first
        };
        loop {
            if self.take(b'=') {
                self.initialiser(&mut var, ty_size)?;
            }
            if external && space != VarSpace::Shared {
                return Err(unsupported(line, ".extern variable"));
            }
            if var.unsized_array && var.size == 0 && space != VarSpace::Shared {
                return Err(unsupported(line, "array without a size"));
            }
            let next = Var {
                size: u64::from(ty_size),
                init: Vec::new(),
                unsized_array: false,
                ..var.clone()
            };
            vars.push(var);
            if !self.take(b',') {
                break;
            }
            var = Var {
                name: self.word("a variable name")?.to_string(),
                ..next
            };
            self.array_suffix(&mut var, line)?;
        }
        self.expect(b';')?;
        Ok(vars)
    }

    /// `.align 8 .b8 name[144]`, `.u64 .ptr .global .align 16 name`. The element size travels
    /// in a first, valueless `init`.
    pub(super) fn declarator(&mut self, line: u32) -> Result1<Var> {
        let mut align = None;
        let mut ty: Option<ScalarType> = None;
        let mut lanes = 1u64;
        let mut pointer = false;
        let name = loop {
            let token = self.peek();
            let Kind::Word(word) = token.kind else {
                return self.wanted("a name or a type");
            };
            self.next();
            match word {
                ".align" => {
                    let value = self.count()?;
                    if !value.is_power_of_two() || value > 1 << 16 {
                        return Err(LoadError::syntax(
                            token.line,
                            "an alignment that is a power of two up to 65536",
                            &value.to_string(),
                        ));
                    }
                    // After `.ptr` it is the pointee's.
                    if !pointer {
                        align = Some(value);
                    }
                }
                ".ptr" => pointer = true,
                ".global" | ".const" | ".shared" | ".local" | ".generic" if pointer => {}
                ".v2" => lanes = 2,
                ".v4" => lanes = 4,
                _ if word.starts_with('.') => {
                    ty = Some(
                        ScalarType::from_suffix(&word[1..])
                            .ok_or_else(|| unsupported(token.line, word))?,
                    );
                }
                _ => break word,
            }
        };
        let Some(ty) = ty.filter(|t| *t != ScalarType::Pred) else {
            return Err(LoadError::syntax(
                line,
                "a type before the name",
                &format!("`{name}`"),
            ));
        };
        let element = u64::from(ty.bytes()) * lanes;
        let mut var = Var {
            name: name.to_string(),
            scope: self.scope,
            space: VarSpace::Local,
            align: align.unwrap_or(element),
            size: element,
            unsized_array: false,
            init: vec![Init::Value {
                offset: 0,
                bytes: element as u32,
                value: 0,
            }],
        };
        self.array_suffix(&mut var, line)?;
        Ok(var)
    }

    fn array_suffix(&mut self, var: &mut Var, line: u32) -> Result1<()> {
        while self.take(b'[') {
            if self.take(b']') {
                var.unsized_array = true;
                var.size = 0;
                continue;
            }
            let count = self.count()?;
            var.size = var
                .size
                .checked_mul(count)
                .filter(|s| *s <= MAX_VAR_BYTES)
                .ok_or_else(|| too_large(line, "the size of a variable", count))?;
            self.expect(b']')?;
        }
        Ok(())
    }

    fn initialiser(&mut self, var: &mut Var, element: u32) -> Result1<()> {
        let mut offset = 0u64;
        let mut depth = 0u32;
        loop {
            match self.peek().kind {
                Kind::Punct(b'{') => {
                    depth += 1;
                    self.next();
                    continue;
                }
                Kind::Punct(b'}') if depth > 0 => {
                    depth -= 1;
                    self.next();
                }
                _ => {
                    var.init.push(self.init_item(offset, element)?);
                    offset += u64::from(element);
                }
            }
            if depth == 0 {
                break;
            }
            self.take(b',');
        }
        if var.unsized_array {
            var.size = offset;
            var.unsized_array = false;
        }
        if offset > var.size {
            return Err(LoadError::syntax(
                self.line(),
                &format!("at most {} bytes of values", var.size),
                &format!("{offset} bytes"),
            ));
        }
        Ok(())
    }

    fn init_item(&mut self, offset: u64, bytes: u32) -> Result1<Init> {
        let line = self.line();
        let negative = self.take(b'-');
        match self.peek().kind {
            Kind::Number(text) => {
                self.next();
                let value = match number_bits(text, bytes) {
                    Some(value) => value,
                    None => return Err(LoadError::syntax(line, "a number", &format!("`{text}`"))),
                };
                let value = if !negative {
                    value
                } else if integer(text).is_some() {
                    value.wrapping_neg()
                } else {
                    value ^ 1 << (8 * bytes.clamp(1, 8) - 1)
                };
                Ok(Init::Value {
                    offset,
                    bytes,
                    value,
                })
            }
            Kind::Word(word) if !negative => {
                self.next();
                let wrapped = word == "generic" && self.take(b'(');
                let name = if wrapped {
                    self.word("a variable name")?
                } else {
                    word
                };
                // The offset may stand inside the parentheses or behind them.
                let mut plus = 0i64;
                if self.take(b'+') {
                    plus = self.count()? as i64;
                }
                if wrapped {
                    self.expect(b')')?;
                    if self.take(b'+') {
                        plus = plus.wrapping_add(self.count()? as i64);
                    }
                }
                if bytes != 8 {
                    return Err(unsupported(line, "an address in less than 8 bytes"));
                }
                Ok(Init::Address {
                    offset,
                    bytes,
                    name: name.to_string(),
                    plus,
                    line,
                })
            }
            _ => self.wanted("a value"),
        }
    }

    pub(super) fn declare_var(&mut self, func: &mut Func, var: Var, line: u32) -> Result1<()> {
        if func
            .vars
            .iter()
            .any(|v| v.scope == var.scope && v.name == var.name)
        {
            return Err(LoadError::Duplicate {
                line,
                name: var.name,
            });
        }
        func.vars.push(var);
        Ok(())
    }

    pub(super) fn declare_reg(
        &mut self,
        func: &mut Func,
        name: &'a str,
        class: RegClass,
        line: u32,
    ) -> Result1<u32> {
        let id = func.regs.len() as u32;
        if self.scopes[self.scope as usize]
            .regs
            .insert(name, id)
            .is_some()
        {
            return Err(LoadError::Duplicate {
                line,
                name: name.to_string(),
            });
        }
        func.regs.push(class);
        Ok(id)
    }

    /// `.reg .b32 %r<5>, a, b;` with `.reg` already taken.
    pub(super) fn registers(&mut self, func: &mut Func) -> Result1<()> {
        let line = self.line();
        if let Kind::Word(word @ (".v2" | ".v4")) = self.peek().kind {
            return Err(unsupported(line, &format!(".reg {word}")));
        }
        let ty = self.scalar_type()?;
        let class = RegClass::of(ty).ok_or_else(|| unsupported(line, ".reg .b128"))?;
        loop {
            let name = self.word("a register name")?;
            if self.take(b'<') {
                let count = self.count()?;
                let total = count.saturating_add(func.regs.len() as u64);
                if total > MAX_REGS {
                    return Err(LoadError::TooLarge {
                        line,
                        what: "the number of registers",
                        value: total,
                        limit: MAX_REGS,
                    });
                }
                self.expect(b'>')?;
                let first = func.regs.len() as u32;
                self.scopes[self.scope as usize]
                    .ranges
                    .push((name, count, first));
                func.regs.resize(total as usize, class);
            } else {
                self.declare_reg(func, name, class, line)?;
                if func.regs.len() as u64 > MAX_REGS {
                    return Err(LoadError::TooLarge {
                        line,
                        what: "the number of registers",
                        value: func.regs.len() as u64,
                        limit: MAX_REGS,
                    });
                }
            }
            if !self.take(b',') {
                break;
            }
        }
        self.expect(b';')
    }
}

/// The bits of a numeric literal for an element of `bytes` bytes.
fn number_bits(text: &str, bytes: u32) -> Option<u64> {
    if let Some(value) = integer(text) {
        return Some(value);
    }
    match super::body::float(text)? {
        super::body::Float::F32(bits) => Some(bits.into()),
        super::body::Float::F64(bits) if bytes == 4 => {
            Some((f64::from_bits(bits) as f32).to_bits().into())
        }
        super::body::Float::F64(bits) => Some(bits),
    }
}
