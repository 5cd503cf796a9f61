//! A loaded PTX text.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::ast::{Ast, Func, Init, Var, VarSpace};
use crate::code::Code;
use crate::counters::Report;
use crate::decode::decode;
use crate::error::{Error, LaunchError, LoadError, MemoryError};
use crate::exec;
use crate::memory::Memory;
use crate::options::{Launch, Options};
use crate::parse::parse;

/// A parameter of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ParamInfo {
    /// Name in the PTX.
    pub name: String,
    /// Size in bytes.
    pub size: u64,
    /// Alignment in bytes.
    pub align: u64,
    /// Offset in the packed parameter buffer.
    pub offset: u64,
}

/// An entry point.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EntryInfo {
    /// Name.
    pub name: String,
    /// Line of its declaration.
    pub line: u32,
    /// Parameters in order.
    pub params: Vec<ParamInfo>,
    /// Bytes of the packed parameter buffer.
    pub param_bytes: u64,
    /// Static shared memory in bytes, up to where the dynamic part starts.
    pub static_shared: u32,
    /// Local memory of a thread in bytes, that of called functions included.
    pub local_bytes: u32,
    /// Most threads of a block (`.maxntid`).
    pub max_threads: Option<u64>,
    /// The only block shape allowed (`.reqntid`).
    pub required_block: Option<[u32; 3]>,
    /// Instructions after decoding, called functions included.
    pub instructions: usize,
}

/// A PTX text, parsed and decoded: every instruction in it is one that the emulator executes.
pub struct Module {
    version: (u32, u32),
    target: String,
    entries: Vec<(EntryInfo, Code)>,
    vars: Vec<Var>,
    /// Key of this module's variables in a [`Memory`].
    id: u64,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(0);

impl Module {
    /// Parses and decodes `text`.
    ///
    /// # Errors
    /// The first thing in the text that is not PTX, or that the emulator does not execute.
    pub fn parse(text: &str) -> Result<Module, LoadError> {
        let ast = parse(text)?;
        let mut entries = Vec::new();
        for (index, func) in ast.funcs.iter().enumerate() {
            if !func.has_body {
                continue;
            }
            // Functions that no entry calls are decoded too: unsupported is unsupported.
            let code = decode(&ast, index)?;
            if func.entry {
                entries.push((entry_info(func, &code), code));
            }
        }
        check_initialisers(&ast)?;
        Ok(Module {
            version: ast.version,
            target: ast.target,
            entries,
            vars: ast.vars,
            id: NEXT_ID.fetch_add(1, Relaxed),
        })
    }

    /// `.version`, as (major, minor).
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// `.target`, such as `sm_80`.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// The entry points, in the order of the text.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = &EntryInfo> {
        self.entries.iter().map(|(info, _)| info)
    }

    /// The entry of that name.
    pub fn entry(&self, name: &str) -> Option<&EntryInfo> {
        self.entries().find(|e| e.name == name)
    }

    /// Address and size of a module variable (`.global` or `.const`) in `memory`, where the
    /// variables are created and initialised at their first use.
    ///
    /// # Errors
    /// The variables do not fit.
    pub fn variable(&self, memory: &Memory, name: &str) -> Result<Option<(u64, u64)>, MemoryError> {
        let addresses = self.variables(memory)?;
        let found = self
            .vars
            .iter()
            .zip(addresses.iter())
            .find(|(v, a)| v.name == name && **a != 0);
        Ok(found.map(|(v, a)| (*a, v.size)))
    }

    /// Runs an entry to its end.
    ///
    /// `param_bytes` is the packed parameter buffer: every parameter at its
    /// [`offset`](ParamInfo::offset), little endian.
    ///
    /// # Errors
    /// A refused launch, or the fault of the block with the lowest index that has one.
    pub fn launch(
        &self,
        memory: &Memory,
        entry: &str,
        launch: Launch,
        param_bytes: &[u8],
        options: &Options,
    ) -> Result<Report, Error> {
        let Some((info, code)) = self.entries.iter().find(|(info, _)| info.name == entry) else {
            let names: Vec<_> = self.entries().map(|e| e.name.as_str()).collect();
            let entry = entry.to_string();
            return Err(LaunchError::UnknownEntry {
                entry,
                available: names.join(", "),
            }
            .into());
        };
        let variables = self.variables(memory)?;
        exec::launch(code, info, memory, &variables, launch, param_bytes, options)
    }

    fn variables(&self, memory: &Memory) -> Result<std::sync::Arc<Vec<u64>>, MemoryError> {
        memory.module_variables(self.id, || {
            let mut addresses = Vec::with_capacity(self.vars.len());
            for var in &self.vars {
                addresses.push(match var.space {
                    VarSpace::Global | VarSpace::Const => {
                        memory.alloc(var.size, var.align, &var.name)?
                    }
                    _ => 0,
                });
            }
            for (var, &base) in self.vars.iter().zip(&addresses) {
                if base == 0 {
                    continue;
                }
                // Variables without initialiser start as zeros.
                memory.fill(base, 0, var.size)?;
                for item in &var.init {
                    let (offset, bytes, value) = match item {
                        Init::Value {
                            offset,
                            bytes,
                            value,
                        } => (*offset, *bytes, *value),
                        Init::Address {
                            offset,
                            bytes,
                            name,
                            plus,
                            ..
                        } => {
                            let target = self.vars.iter().position(|v| v.name == *name);
                            let address = target.map_or(0, |i| addresses[i]);
                            (*offset, *bytes, address.wrapping_add_signed(*plus))
                        }
                    };
                    memory.write(base + offset, &value.to_le_bytes()[..bytes.min(8) as usize])?;
                }
            }
            Ok(addresses)
        })
    }
}

fn entry_info(func: &Func, code: &Code) -> EntryInfo {
    let mut params = Vec::with_capacity(func.params.len());
    let mut end = 0u64;
    for param in &func.params {
        let offset = end.next_multiple_of(param.align);
        end = offset + param.size;
        params.push(ParamInfo {
            name: param.name.clone(),
            size: param.size,
            align: param.align,
            offset,
        });
    }
    EntryInfo {
        name: func.name.clone(),
        line: func.line,
        params,
        param_bytes: end,
        static_shared: code.static_shared,
        local_bytes: code.local_bytes,
        max_threads: func.max_threads,
        required_block: func.required_block,
        instructions: code.insts.len(),
    }
}

/// Every name in an initialiser must be a variable with an address.
fn check_initialisers(ast: &Ast) -> Result<(), LoadError> {
    for item in ast.vars.iter().flat_map(|v| &v.init) {
        let Init::Address { name, line, .. } = item else {
            continue;
        };
        let known =
            |v: &Var| v.name == *name && matches!(v.space, VarSpace::Global | VarSpace::Const);
        if !ast.vars.iter().any(known) {
            let name = name.clone();
            return Err(LoadError::Undefined {
                line: *line,
                what: "variable",
                name,
            });
        }
    }
    Ok(())
}
