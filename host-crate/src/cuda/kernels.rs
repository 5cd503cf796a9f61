//! The kernels of one PTX file, loaded into a context.

use std::ffi::CString;
use std::sync::Arc;

use cust::sys::{CUfunction, CUmodule};

use super::context::ContextRef;
use crate::Error;
use crate::artefacts::{ManifestEntry, PtxSet};

/// Dynamic shared memory that needs no permission.
const DEFAULT_SHARED_BYTES: u32 = 48 * 1024;

/// A loaded module.
pub(super) struct Kernels {
    module: CUmodule,
    /// By entry.
    functions: Vec<(String, CUfunction)>,
    context: Arc<ContextRef>,
}

// SAFETY: driver handles may be used from any thread whose current context is theirs, which is how
// this back end uses them; the driver synchronises inside.
unsafe impl Send for Kernels {}
// SAFETY: likewise; nothing here changes after `load`.
unsafe impl Sync for Kernels {}

impl Kernels {
    /// Loads a file of a set, name and text, with all of its entries.
    pub(super) fn load(
        context: &Arc<ContextRef>,
        set: &PtxSet,
        (file, text): (&str, &str),
    ) -> Result<Self, Error> {
        let info = context.info();
        let entries = || {
            let entries = set.manifest().entries.iter();
            entries.filter(|entry| entry.file == file)
        };
        for entry in entries() {
            entry.check_device(&info.name, info.capability, info.driver)?;
        }
        let current = context.current()?;
        // A NUL cannot be PTX; the driver names the place where its text ends.
        let end = text.find('\0').unwrap_or(text.len());
        let ptx = CString::new(&text[..end]).expect("cut at its first NUL");
        let module = current.load(file, &ptx)?;
        // From here on dropping unloads the module.
        let mut kernels = Self {
            module,
            functions: vec![],
            context: Arc::clone(context),
        };
        // What the device has no room for cannot be launched, and must not keep the rest from it.
        let fits = |entry: &&ManifestEntry| entry.shared_bytes <= info.shared_per_block;
        for entry in entries().filter(fits) {
            let symbol = CString::new(entry.symbol.as_str()).unwrap_or_default();
            // SAFETY: `module` was loaded into the current context above.
            let function = unsafe { current.function(module, &entry.symbol, &symbol) }?;
            if entry.shared_bytes > DEFAULT_SHARED_BYTES {
                // SAFETY: the function is of that module.
                unsafe { current.allow_shared(function, &entry.symbol, entry.shared_bytes) }?;
            }
            kernels.functions.push((entry.symbol.clone(), function));
        }
        Ok(kernels)
    }

    /// The function of an entry.
    pub(super) fn function(&self, entry: &str) -> Option<CUfunction> {
        self.functions
            .iter()
            .find(|(symbol, _)| symbol == entry)
            .map(|&(_, f)| f)
    }
}

impl Drop for Kernels {
    fn drop(&mut self) {
        if let Ok(current) = self.context.current() {
            // Launches may still be running; what they leave is theirs, but the code must stay.
            let _ = current.synchronize();
            // SAFETY: loaded into this context in `load`, and nothing runs in it any more.
            unsafe { current.unload(self.module) };
        }
    }
}
