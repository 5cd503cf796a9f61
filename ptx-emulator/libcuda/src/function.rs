//! Functions: the entries of modules, with their attributes.

use std::ffi::{CString, c_char, c_int, c_uint};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering::Relaxed};

use ptx_emulator::EntryInfo;

use crate::boundary::{Handle, Out, entry_points};
use crate::error::Code;
use crate::limits::{BLOCK_THREADS, figures};
use crate::module::LoadedModule;
use crate::state::{Driver, current, state};

/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
const MAX_DYNAMIC_SHARED: c_uint = 8;
/// `CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT`.
const CARVEOUT: c_uint = 9;

/// A function.
pub struct Function {
    /// Handle of its context.
    pub context: Handle,
    pub module: Arc<LoadedModule>,
    pub name: String,
    pub c_name: CString,
    pub info: EntryInfo,
    /// Dynamic shared memory that a launch may ask for.
    pub max_dynamic_shared: AtomicU32,
    pub carveout: AtomicI32,
}

impl Function {
    /// Most threads of a block.
    pub fn max_threads(&self) -> u32 {
        let own = self
            .info
            .max_threads
            .and_then(|threads| u32::try_from(threads).ok());
        own.unwrap_or(BLOCK_THREADS).min(BLOCK_THREADS)
    }

    fn attribute(&self, which: c_uint) -> Result<c_int, Code> {
        let capability = Driver::get()?.settings.capability;
        Ok(match which {
            0 => self.max_threads() as c_int,
            1 => self.info.static_shared as c_int,
            // Constant memory of the function, registers, and cache mode: none here.
            2 | 4 | 7 => 0,
            3 => self.info.local_bytes as c_int,
            5 => {
                let target = self.module.ptx.target();
                target
                    .bytes()
                    .filter(u8::is_ascii_digit)
                    .fold(0, |n, d| n * 10 + c_int::from(d - b'0'))
            }
            6 => (capability.0 * 10 + capability.1) as c_int,
            MAX_DYNAMIC_SHARED => self.max_dynamic_shared.load(Relaxed) as c_int,
            CARVEOUT => self.carveout.load(Relaxed),
            // Clusters: none.
            10..=16 => 0,
            _ => return Err(Code::INVALID_VALUE),
        })
    }

    fn set_attribute(&self, which: c_uint, value: c_int) -> Result<(), Code> {
        match which {
            MAX_DYNAMIC_SHARED => {
                let most = figures(Driver::get()?.settings.capability).shared_per_block;
                let most = most.saturating_sub(self.info.static_shared);
                match u32::try_from(value) {
                    Ok(bytes) if bytes <= most => self.max_dynamic_shared.store(bytes, Relaxed),
                    _ => return Err(Code::INVALID_VALUE),
                }
            }
            CARVEOUT if (-1..=100).contains(&value) => self.carveout.store(value, Relaxed),
            _ => return Err(Code::INVALID_VALUE),
        }
        Ok(())
    }
}

/// The function of a handle.
pub fn function(handle: Handle) -> Result<Arc<Function>, Code> {
    state()?.functions.get(handle)
}

entry_points! {
    /// An attribute of a function.
    2020 fn cuFuncGetAttribute(value: Out<c_int>, which: c_uint, handle: Handle) {
        current()?;
        value.write(function(handle)?.attribute(which)?)
    }

    /// Sets an attribute of a function.
    9000 fn cuFuncSetAttribute(handle: Handle, which: c_uint, value: c_int) {
        current()?;
        function(handle)?.set_attribute(which, value)
    }

    /// Sets a function's cache preference; without effect.
    3000 fn cuFuncSetCacheConfig(handle: Handle, config: c_uint) {
        current()?;
        function(handle)?;
        if config > 3 { Err(Code::INVALID_VALUE) } else { Ok(()) }
    }

    /// Sets a function's bank width preference; without effect.
    4020 fn cuFuncSetSharedMemConfig(handle: Handle, config: c_uint) {
        current()?;
        function(handle)?;
        if config > 2 { Err(Code::INVALID_VALUE) } else { Ok(()) }
    }

    /// The module of a function.
    11000 fn cuFuncGetModule(module: Out<Handle>, handle: Handle) {
        module.write(function(handle)?.module.handle)
    }

    /// The name of a function; lives as long as its module.
    12030 fn cuFuncGetName(name: Out<*const c_char>, handle: Handle) {
        name.write(function(handle)?.c_name.as_ptr())
    }

    /// Offset and size of a function's parameter.
    12040 fn cuFuncGetParamInfo(handle: Handle, index: usize, offset: Out<usize>, size: Out<usize>) {
        let function = function(handle)?;
        let param = function.info.params.get(index).ok_or(Code::INVALID_VALUE)?;
        offset.write(param.offset as usize)?;
        size.write_if_asked(param.size as usize);
        Ok(())
    }
}
