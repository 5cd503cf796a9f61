//! Function bodies: statements and operands.

use super::{Parser, Result1, integer};
use crate::ast::{Base, Func, Operand, RawInst, Special};
use crate::error::LoadError;
use crate::lex::Kind;
use crate::table::Opcode;

/// Deepest nesting of `{ }` and of operands.
const MAX_DEPTH: u32 = 64;

pub(super) enum Float {
    F32(u32),
    F64(u64),
}

/// `0f3F800000`, `0d3FF0000000000000`, or a decimal literal, which is f64.
pub(super) fn float(text: &str) -> Option<Float> {
    match text.as_bytes() {
        [b'0', b'f' | b'F', rest @ ..] if rest.len() == 8 => {
            u32::from_str_radix(&text[2..], 16).ok().map(Float::F32)
        }
        [b'0', b'd' | b'D', rest @ ..] if rest.len() == 16 => {
            u64::from_str_radix(&text[2..], 16).ok().map(Float::F64)
        }
        bytes if bytes.contains(&b'.') || bytes.contains(&b'e') || bytes.contains(&b'E') => {
            text.parse::<f64>().ok().map(|v| Float::F64(v.to_bits()))
        }
        _ => None,
    }
}

impl<'a> Parser<'a> {
    /// Statements up to the function's closing brace; the opening one is taken.
    pub(super) fn body(&mut self, func: &mut Func) -> Result1<()> {
        let mut depth = 1u32;
        let outermost = self.scope;
        while depth > 0 {
            if self.skip_debug()? {
                continue;
            }
            let token = self.peek();
            match token.kind {
                Kind::Punct(b'{') => {
                    self.next();
                    depth += 1;
                    if depth > MAX_DEPTH {
                        return Err(LoadError::TooLarge {
                            line: token.line,
                            what: "the nesting of scopes",
                            value: depth.into(),
                            limit: MAX_DEPTH.into(),
                        });
                    }
                    self.open_scope(func);
                }
                Kind::Punct(b'}') => {
                    self.next();
                    depth -= 1;
                    self.scope = self.scopes[self.scope as usize].parent;
                }
                Kind::Punct(b';') => {
                    self.next();
                }
                Kind::Word(".reg") => {
                    self.next();
                    self.registers(func)?;
                }
                Kind::Word(".shared" | ".local" | ".param") => {
                    for var in self.variables(false)? {
                        self.declare_var(func, var, token.line)?;
                    }
                }
                Kind::Word(name)
                    if self.peek_second() == Kind::Punct(b':') && !name.starts_with('.') =>
                {
                    self.next();
                    self.next();
                    self.label(func, name, token.line)?;
                }
                Kind::Word(_) | Kind::Punct(b'@') => {
                    let inst = self.instruction()?;
                    func.body.push(inst);
                }
                _ => return self.wanted("an instruction or `}`"),
            }
        }
        self.scope = outermost;
        Ok(())
    }

    /// A label, its colon taken; or the name of a branch table.
    fn label(&mut self, func: &mut Func, name: &str, line: u32) -> Result1<()> {
        let key = (self.scope, name.to_string());
        let known = func.labels.contains_key(&key) || func.tables.contains_key(&key);
        if known {
            return Err(LoadError::Duplicate {
                line,
                name: name.to_string(),
            });
        }
        if !self.take_word(".branchtargets") {
            func.labels.insert(key, func.body.len());
            return Ok(());
        }
        let mut targets = Vec::new();
        while !self.take(b';') {
            if !targets.is_empty() {
                self.expect(b',')?;
            }
            targets.push(self.word("a label")?.to_string());
        }
        func.tables.insert(key, targets);
        Ok(())
    }

    fn instruction(&mut self) -> Result1<RawInst> {
        let line = self.line();
        let guard = if self.take(b'@') {
            let negated = self.take(b'!');
            let name = self.word("a predicate")?;
            let reg = self.lookup(name).ok_or_else(|| undefined(line, name))?;
            Some((reg, negated))
        } else {
            None
        };
        let line = self.line();
        let text = self.word("an opcode")?.to_string();
        if text.starts_with(['.', '%', '$']) {
            return Err(LoadError::syntax(line, "an opcode", &format!("`{text}`")));
        }
        // Other opcodes may have operands of other shapes: refused before those are looked at.
        if Opcode::from_name(text.split('.').next().unwrap_or("")).is_none() {
            return Err(LoadError::Unsupported {
                line,
                instruction: text,
            });
        }
        let mut operands = Vec::new();
        while !self.take(b';') {
            if !operands.is_empty() {
                self.expect(b',')?;
            }
            operands.push(self.operand(0)?);
        }
        Ok(RawInst {
            line,
            scope: self.scope,
            guard,
            text,
            operands,
        })
    }

    fn operand(&mut self, depth: u32) -> Result1<Operand> {
        let first = self.single_operand(depth)?;
        if depth == 0 && self.take(b'|') {
            let second = self.single_operand(depth)?;
            return Ok(Operand::Pair(Box::new(first), Box::new(second)));
        }
        Ok(first)
    }

    fn single_operand(&mut self, depth: u32) -> Result1<Operand> {
        let token = self.peek();
        if depth > 2 {
            return self.wanted("an operand that is not nested");
        }
        match token.kind {
            Kind::Punct(b'{') => {
                self.next();
                Ok(Operand::Vector(self.list(b'}', depth)?))
            }
            Kind::Punct(b'(') => {
                self.next();
                Ok(Operand::Group(self.list(b')', depth)?))
            }
            Kind::Punct(b'[') => {
                self.next();
                let address = self.address()?;
                self.expect(b']')?;
                Ok(address)
            }
            Kind::Punct(b'!') => {
                self.next();
                let name = self.word("a predicate")?;
                Ok(Operand::Not(
                    self.lookup(name)
                        .ok_or_else(|| undefined(token.line, name))?,
                ))
            }
            Kind::Punct(b'-' | b'+' | b'~') | Kind::Number(_) => self.literal(),
            Kind::Word("_") => {
                self.next();
                Ok(Operand::Sink)
            }
            Kind::Word("WARP_SZ") => {
                self.next();
                Ok(Operand::Int(32))
            }
            Kind::Word(name) => {
                self.next();
                if let Some(reg) = self.lookup(name) {
                    return Ok(Operand::Reg(reg));
                }
                if let Some(special) = Special::from_name(name) {
                    return Ok(Operand::Special(special));
                }
                if name.starts_with('%') {
                    return Err(undefined(token.line, name));
                }
                let offset = self.offset()?;
                Ok(Operand::Symbol(name.to_string(), offset))
            }
            _ => self.wanted("an operand"),
        }
    }

    fn list(&mut self, close: u8, depth: u32) -> Result1<Vec<Operand>> {
        let mut items = Vec::new();
        while !self.take(close) {
            if !items.is_empty() {
                self.expect(b',')?;
            }
            items.push(self.operand(depth + 1)?);
        }
        Ok(items)
    }

    /// The inside of `[ ]`.
    fn address(&mut self) -> Result1<Operand> {
        let token = self.peek();
        let base = match token.kind {
            Kind::Word(name) => {
                self.next();
                match self.lookup(name) {
                    Some(reg) => Base::Reg(reg),
                    None if name.starts_with('%') => return Err(undefined(token.line, name)),
                    None => Base::Symbol(name.to_string()),
                }
            }
            Kind::Number(_) => {
                let value = self.count()?;
                return Ok(Operand::Address(Base::None, value as i64));
            }
            _ => return self.wanted("an address"),
        };
        let offset = self.offset()?;
        Ok(Operand::Address(base, offset))
    }

    /// `+4`, `-4`, `+-4` or nothing.
    fn offset(&mut self) -> Result1<i64> {
        let plus = self.take(b'+');
        let minus = self.take(b'-');
        if !plus && !minus {
            return Ok(0);
        }
        let value = self.count()? as i64;
        Ok(if minus { value.wrapping_neg() } else { value })
    }

    fn literal(&mut self) -> Result1<Operand> {
        let line = self.line();
        let mut negative = false;
        let mut inverted = false;
        loop {
            if self.take(b'-') {
                negative = !negative;
            } else if self.take(b'~') {
                inverted = !inverted;
            } else if !self.take(b'+') {
                break;
            }
        }
        let Kind::Number(text) = self.peek().kind else {
            return self.wanted("a number");
        };
        self.next();
        if let Some(value) = integer(text) {
            let value = if inverted { !value } else { value };
            return Ok(Operand::Int(if negative {
                value.wrapping_neg()
            } else {
                value
            }));
        }
        let flip = u64::from(negative);
        match float(text) {
            Some(Float::F32(bits)) if !inverted => Ok(Operand::F32(bits ^ (flip as u32) << 31)),
            Some(Float::F64(bits)) if !inverted => Ok(Operand::F64(bits ^ flip << 63)),
            _ => Err(LoadError::syntax(line, "a number", &format!("`{text}`"))),
        }
    }

    /// The register that `name` means here.
    fn lookup(&self, name: &str) -> Option<u32> {
        let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
        let (prefix, number) = name.split_at(name.len() - digits);
        let canonical = digits == 1 || !number.starts_with('0');
        let number = number.parse::<u64>().ok().filter(|_| canonical);
        let mut scope = self.scope;
        loop {
            let table = &self.scopes[scope as usize];
            if let Some(reg) = table.regs.get(name) {
                return Some(*reg);
            }
            if let Some(number) = number
                && let Some(range) = table.ranges.iter().find(|r| r.0 == prefix && number < r.1)
            {
                return Some(range.2 + number as u32);
            }
            if scope == 0 {
                return None;
            }
            scope = table.parent;
        }
    }
}

fn undefined(line: u32, name: &str) -> LoadError {
    LoadError::Undefined {
        line,
        what: "register",
        name: name.to_string(),
    }
}
