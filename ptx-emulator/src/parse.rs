//! Parser of a module: directives, declarations and function bodies.

mod body;
mod vars;

use std::collections::HashMap;

use crate::arith::ScalarType;
use crate::ast::{Ast, Func, Param, RegClass, ScopeId, Var, VarSpace};
use crate::error::LoadError;
use crate::lex::{Kind, Token, tokens};

/// Most registers of one function; ptxas refuses far fewer, and a range must not exhaust memory.
const MAX_REGS: u64 = 1 << 20;
/// Largest variable.
const MAX_VAR_BYTES: u64 = 1 << 30;

pub(crate) fn parse(text: &str) -> Result<Ast, LoadError> {
    let tokens = tokens(text)?;
    let mut parser = Parser {
        tokens,
        at: 0,
        scopes: Vec::new(),
        scope: 0,
    };
    parser.module()
}

pub(super) struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
    scopes: Vec<Scope<'a>>,
    /// Current lexical scope; 0 is the module.
    scope: ScopeId,
}

/// Registers that a `{ }` declares.
#[derive(Default)]
struct Scope<'a> {
    parent: ScopeId,
    regs: HashMap<&'a str, u32>,
    /// `%r<100>`: prefix, count, first register.
    ranges: Vec<(&'a str, u64, u32)>,
}

type Result1<T> = std::result::Result<T, LoadError>;

impl<'a> Parser<'a> {
    fn peek(&self) -> Token<'a> {
        self.tokens[self.at]
    }

    fn peek_second(&self) -> Kind<'a> {
        self.tokens[(self.at + 1).min(self.tokens.len() - 1)].kind
    }

    fn line(&self) -> u32 {
        self.peek().line
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.tokens[self.at];
        if self.at + 1 < self.tokens.len() {
            self.at += 1;
        }
        token
    }

    fn wanted<T>(&self, wanted: &str) -> Result1<T> {
        Err(LoadError::syntax(
            self.line(),
            wanted,
            &self.peek().kind.describe(),
        ))
    }

    fn take(&mut self, c: u8) -> bool {
        let found = self.peek().kind == Kind::Punct(c);
        if found {
            self.next();
        }
        found
    }

    fn expect(&mut self, c: u8) -> Result1<()> {
        if self.take(c) {
            Ok(())
        } else {
            self.wanted(&format!("`{}`", c as char))
        }
    }

    fn take_word(&mut self, word: &str) -> bool {
        let found = self.peek().kind == Kind::Word(word);
        if found {
            self.next();
        }
        found
    }

    fn word(&mut self, wanted: &str) -> Result1<&'a str> {
        match self.peek().kind {
            Kind::Word(w) => {
                self.next();
                Ok(w)
            }
            _ => self.wanted(wanted),
        }
    }

    /// A non-negative integer.
    fn count(&mut self) -> Result1<u64> {
        if let Kind::Number(text) = self.peek().kind
            && let Some(value) = integer(text)
        {
            self.next();
            return Ok(value);
        }
        self.wanted("an integer")
    }

    fn module(&mut self) -> Result1<Ast> {
        let mut ast = Ast::default();
        loop {
            let token = self.peek();
            match token.kind {
                Kind::End => break,
                Kind::Word(".version") => {
                    self.next();
                    ast.version = self.version()?;
                }
                Kind::Word(".target") => {
                    self.next();
                    ast.target = self.word("a target name")?.to_string();
                    while self.take(b',') {
                        self.word("a target option")?;
                    }
                }
                Kind::Word(".address_size") => {
                    self.next();
                    let line = self.line();
                    let bits = self.count()?;
                    if bits != 64 {
                        return Err(LoadError::syntax(
                            line,
                            "address size 64",
                            &bits.to_string(),
                        ));
                    }
                }
                Kind::Word(w) if w.starts_with('.') => self.declaration(&mut ast)?,
                _ => return self.wanted("a directive"),
            }
        }
        Ok(ast)
    }

    fn version(&mut self) -> Result1<(u32, u32)> {
        if let Kind::Number(text) = self.peek().kind
            && let Some((major, minor)) = text.split_once('.')
            && let (Ok(major), Ok(minor)) = (major.parse(), minor.parse())
        {
            self.next();
            return Ok((major, minor));
        }
        self.wanted("a version such as 7.0")
    }

    /// A directive at module level after the header.
    fn declaration(&mut self, ast: &mut Ast) -> Result1<()> {
        if self.skip_debug()? {
            return Ok(());
        }
        let mut external = false;
        loop {
            let token = self.peek();
            let Kind::Word(word) = token.kind else {
                return self.wanted("a declaration");
            };
            match word {
                ".visible" | ".weak" | ".common" => {
                    self.next();
                }
                ".extern" => {
                    external = true;
                    self.next();
                }
                ".entry" | ".func" => {
                    let func = self.function(word == ".entry")?;
                    return declare_function(ast, func);
                }
                ".global" | ".const" | ".shared" => {
                    let vars = self.variables(external)?;
                    for var in vars {
                        if let Some(old) = ast.vars.iter_mut().find(|v| v.name == var.name) {
                            // `.extern` declarations repeat what a definition says.
                            if !external && old.size != 0 {
                                return Err(LoadError::Duplicate {
                                    line: token.line,
                                    name: var.name,
                                });
                            }
                            continue;
                        }
                        ast.vars.push(var);
                    }
                    return Ok(());
                }
                _ => {
                    return Err(LoadError::Unsupported {
                        line: token.line,
                        instruction: word.to_string(),
                    });
                }
            }
        }
    }

    /// Skips `.file`, `.loc`, `.section`, `.pragma`; says whether there was one.
    fn skip_debug(&mut self) -> Result1<bool> {
        let token = self.peek();
        let Kind::Word(word) = token.kind else {
            return Ok(false);
        };
        match word {
            ".file" | ".loc" | ".alias" | ".noreturn" => {
                while self.peek().line == token.line && self.peek().kind != Kind::End {
                    self.next();
                }
            }
            ".pragma" => {
                while !self.take(b';') {
                    if self.peek().kind == Kind::End {
                        return self.wanted("`;`");
                    }
                    self.next();
                }
            }
            ".section" => {
                while self.peek().kind != Kind::Punct(b'{') {
                    if self.peek().kind == Kind::End {
                        return self.wanted("`{`");
                    }
                    self.next();
                }
                while !self.take(b'}') {
                    if self.peek().kind == Kind::End {
                        return self.wanted("`}`");
                    }
                    self.next();
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn function(&mut self, entry: bool) -> Result1<Func> {
        self.next();
        self.scopes = vec![Scope::default()];
        self.scope = 0;
        let mut func = Func {
            name: String::new(),
            entry,
            line: self.line(),
            has_body: false,
            params: Vec::new(),
            returns: Vec::new(),
            regs: Vec::new(),
            vars: Vec::new(),
            scopes: vec![0],
            body: Vec::new(),
            labels: HashMap::new(),
            tables: HashMap::new(),
            max_threads: None,
            required_block: None,
        };
        // Scope 1 is the function: parameters and outermost registers.
        self.open_scope(&mut func);
        if !entry && self.peek().kind == Kind::Punct(b'(') {
            func.returns = self.parameters(&mut func)?;
        }
        func.name = self.word("a function name")?.to_string();
        if self.peek().kind == Kind::Punct(b'(') {
            func.params = self.parameters(&mut func)?;
        }
        self.performance(&mut func)?;
        if self.take(b';') {
            return Ok(func);
        }
        if self.peek().kind != Kind::Punct(b'{') {
            return self.wanted("`{` or `;`");
        }
        func.has_body = true;
        self.next();
        self.body(&mut func)?;
        Ok(func)
    }

    fn open_scope(&mut self, func: &mut Func) {
        let id = self.scopes.len() as ScopeId;
        self.scopes.push(Scope {
            parent: self.scope,
            ..Scope::default()
        });
        func.scopes.push(self.scope);
        self.scope = id;
    }

    /// `.maxntid` and its like.
    fn performance(&mut self, func: &mut Func) -> Result1<()> {
        loop {
            match self.peek().kind {
                Kind::Word(".maxntid") => {
                    self.next();
                    let [x, y, z] = self.extents()?;
                    func.max_threads = Some(
                        u64::from(x)
                            .saturating_mul(y.into())
                            .saturating_mul(z.into()),
                    );
                }
                Kind::Word(".reqntid") => {
                    self.next();
                    func.required_block = Some(self.extents()?);
                }
                Kind::Word(".minnctapersm" | ".maxnctapersm" | ".maxnreg") => {
                    self.next();
                    self.count()?;
                }
                Kind::Word(".noreturn") => {
                    self.next();
                }
                _ => {
                    if !self.skip_debug()? {
                        return Ok(());
                    }
                }
            }
        }
    }

    fn extents(&mut self) -> Result1<[u32; 3]> {
        let mut out = [1u32; 3];
        for (i, slot) in out.iter_mut().enumerate() {
            if i > 0 && !self.take(b',') {
                break;
            }
            let line = self.line();
            let value = self.count()?;
            *slot = u32::try_from(value).map_err(|_| LoadError::TooLarge {
                line,
                what: "a block extent",
                value,
                limit: u32::MAX.into(),
            })?;
        }
        Ok(out)
    }

    /// `( .param … , … )` of a function; declares the parameters too.
    fn parameters(&mut self, func: &mut Func) -> Result1<Vec<Param>> {
        self.expect(b'(')?;
        let mut out = Vec::new();
        let mut offset = 0u64;
        while !self.take(b')') {
            if !out.is_empty() {
                self.expect(b',')?;
            }
            let line = self.line();
            if self.take_word(".reg") {
                let ty = self.scalar_type()?;
                let class = RegClass::of(ty).ok_or_else(|| unsupported(line, ".reg .b128"))?;
                let name = self.word("a parameter name")?;
                let reg = self.declare_reg(func, name, class, line)?;
                let size = u64::from(ty.bytes());
                out.push(Param {
                    name: name.to_string(),
                    size,
                    align: size,
                    reg: Some(reg),
                });
                continue;
            }
            if !self.take_word(".param") {
                return self.wanted("`.param`");
            }
            let declared = self.declarator(line)?;
            let var = Var {
                scope: self.scope,
                space: if func.entry {
                    VarSpace::EntryParam
                } else {
                    VarSpace::Local
                },
                ..declared
            };
            if var.unsized_array || self.peek().kind == Kind::Punct(b'=') {
                return Err(unsupported(line, "parameter array without a size"));
            }
            offset = offset.next_multiple_of(var.align) + var.size;
            if offset > MAX_VAR_BYTES {
                return Err(too_large(line, "the size of the parameters", offset));
            }
            out.push(Param {
                name: var.name.clone(),
                size: var.size,
                align: var.align,
                reg: None,
            });
            self.declare_var(func, var, line)?;
        }
        Ok(out)
    }

    fn scalar_type(&mut self) -> Result1<ScalarType> {
        if let Kind::Word(word) = self.peek().kind
            && let Some(ty) = word.strip_prefix('.').and_then(ScalarType::from_suffix)
        {
            self.next();
            return Ok(ty);
        }
        self.wanted("a type such as .b32")
    }
}

fn declare_function(ast: &mut Ast, func: Func) -> Result1<()> {
    match ast.funcs.iter_mut().find(|f| f.name == func.name) {
        Some(old) if !old.has_body => {
            if func.has_body {
                *old = func;
            }
        }
        Some(_) if !func.has_body => {}
        Some(_) => {
            return Err(LoadError::Duplicate {
                line: func.line,
                name: func.name,
            });
        }
        None => ast.funcs.push(func),
    }
    Ok(())
}

pub(super) fn unsupported(line: u32, what: &str) -> LoadError {
    LoadError::Unsupported {
        line,
        instruction: what.to_string(),
    }
}

pub(super) fn too_large(line: u32, what: &'static str, value: u64) -> LoadError {
    LoadError::TooLarge {
        line,
        what,
        value,
        limit: MAX_VAR_BYTES,
    }
}

/// The value of an integer literal: decimal, hex, octal or binary, with an optional `U`.
pub(super) fn integer(text: &str) -> Option<u64> {
    let text = text.strip_suffix(['U', 'u']).unwrap_or(text);
    let (digits, radix) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&text[2..], 16),
        [b'0', b'b' | b'B', ..] => (&text[2..], 2),
        [b'0', _, ..] => (&text[1..], 8),
        _ => (text, 10),
    };
    u64::from_str_radix(digits, radix).ok()
}
