//! The shipped PTX without a GPU: runs a plan's launches on [`ptx_emulator`].
//!
//! What a GPU would read is all that is uploaded: the live slots of K and V, the live entries of the
//! table, the rows of q. Everything else in the device's buffers stays uninitialised, so that a
//! kernel that reads an unused slot, or leaves a row of the output unwritten, is a fault and not a
//! wrong number that a test might miss.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex};

use ptx_emulator::{Launch as Geometry, Memory, Module, Options, Report};

use crate::artefacts::{CACHE_FILE, PtxSet};
use crate::checks::equal;
use crate::element::{bytes_of, bytes_of_mut};
use crate::views::RowsShape;
use crate::{
    CacheLaunch, CacheView, DecodeInputs, DeviceCache, DeviceRows, DeviceTable, DeviceTensors,
    Element, Error, Op, Plan, RowsViewMut,
};

/// A set of artefacts, loaded into the emulator as far as it has been used.
pub struct Emulator {
    set: Cow<'static, PtxSet>,
    modules: Mutex<BTreeMap<String, Arc<Module>>>,
}

/// What the launches of one call did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reports {
    /// The decode launch; none for an empty batch.
    pub decode: Option<Report>,
    /// The merge launch; none with a single split.
    pub merge: Option<Report>,
}

/// Inputs in emulated device memory, with room for the results.
pub struct Uploaded {
    /// The memory; allocations are named like the arguments.
    pub memory: Memory,
    /// Addresses and strides.
    pub tensors: DeviceTensors,
}

/// [`Emulator::decode`] on the embedded artefacts with the default options.
///
/// # Errors
/// As there.
pub fn decode<T: Element>(
    plan: &Plan,
    inputs: &DecodeInputs<'_, T>,
    out: RowsViewMut<'_, T>,
    lse: Option<&mut [f32]>,
) -> Result<Reports, Error> {
    Emulator::embedded().decode(plan, inputs, out, lse, &Options::default())
}

impl Emulator {
    /// An emulator of another build of the kernels.
    pub fn new(set: PtxSet) -> Self {
        Self {
            set: Cow::Owned(set),
            modules: Mutex::default(),
        }
    }

    /// The emulator of the embedded artefacts. Modules are parsed once per process.
    pub fn embedded() -> &'static Self {
        static EMBEDDED: LazyLock<Emulator> = LazyLock::new(|| Emulator {
            set: Cow::Borrowed(PtxSet::embedded()),
            modules: Mutex::default(),
        });
        &EMBEDDED
    }

    /// The artefacts.
    pub fn set(&self) -> &PtxSet {
        &self.set
    }

    /// Runs a plan over host tensors: uploads, launches, downloads. The workspace is the
    /// emulator's own.
    ///
    /// # Errors
    /// What [`Plan::validate`] refuses, [`Error::MissingEntry`]; [`Error::EmulatorLoad`] where the
    /// PTX cannot be executed, [`Error::Emulated`] for a fault, [`Error::OutputNotWritten`].
    /// `out` and `lse` are written only on success.
    pub fn decode<T: Element>(
        &self,
        plan: &Plan,
        inputs: &DecodeInputs<'_, T>,
        mut out: RowsViewMut<'_, T>,
        lse: Option<&mut [f32]>,
        options: &Options,
    ) -> Result<Reports, Error> {
        plan.validate(
            Op::Decode,
            inputs,
            &out,
            lse.as_deref(),
            plan.workspace_bytes(),
        )?;
        let uploaded = upload_for(plan, inputs, out.shape(), out.data().len(), lse.is_some())?;
        let reports = self.launch(plan, &uploaded, options)?;
        if plan.num_seqs() > 0 {
            check_written(plan, &uploaded, out.shape())?;
            download(plan, &uploaded, &mut out, lse)?;
        }
        Ok(reports)
    }

    /// Runs a plan's launches over tensors that are in emulated memory already.
    ///
    /// # Errors
    /// [`Error::MissingEntry`], [`Error::EmulatorLoad`], [`Error::Emulated`], and what
    /// [`Plan::launches`] refuses.
    pub fn launch(
        &self,
        plan: &Plan,
        uploaded: &Uploaded,
        options: &Options,
    ) -> Result<Reports, Error> {
        let launches = plan.launches(&uploaded.tensors)?;
        if launches.decode.is_none() {
            return Ok(Reports::default());
        }
        let planned = self.set.for_plan(plan)?;
        let module = self.module(planned.file, planned.text)?;
        let run = |launch: &crate::Launch| {
            let &crate::Launch {
                entry,
                grid,
                block,
                shared_bytes,
                args,
            } = launch;
            let geometry = Geometry {
                grid,
                block,
                shared_bytes,
            };
            module
                .launch(&uploaded.memory, entry, geometry, &args.to_bytes(), options)
                .map_err(|source| Error::Emulated {
                    subject: entry,
                    source,
                })
        };
        let decode = launches.decode.as_ref().map(run).transpose()?;
        let merge = launches.merge.as_ref().map(run).transpose()?;
        Ok(Reports { decode, merge })
    }

    /// Runs one launch of a cache kernel over buffers in emulated memory.
    ///
    /// # Errors
    /// [`Error::MissingCacheEntry`], [`Error::EmulatorLoad`] where the PTX cannot be executed,
    /// [`Error::Emulated`] for a fault.
    pub fn launch_cache(
        &self,
        memory: &Memory,
        launch: &CacheLaunch,
        options: &Options,
    ) -> Result<Report, Error> {
        let &CacheLaunch {
            entry,
            grid,
            block,
            args,
        } = launch;
        let module = self.module(CACHE_FILE, self.set.for_cache()?)?;
        let geometry = Geometry {
            grid,
            block,
            shared_bytes: 0,
        };
        let report = module.launch(memory, entry, geometry, &args.to_bytes(), options);
        report.map_err(|source| Error::Emulated {
            subject: entry,
            source,
        })
    }

    fn module(&self, file: &str, text: &str) -> Result<Arc<Module>, Error> {
        // A panic while the lock is held cannot leave a half-made module in the map.
        let mut modules = self
            .modules
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(module) = modules.get(file) {
            return Ok(Arc::clone(module));
        }
        let module = Module::parse(text).map_err(|source| Error::EmulatorLoad {
            file: file.into(),
            source,
        })?;
        let module = Arc::new(module);
        modules.insert(file.into(), Arc::clone(&module));
        Ok(module)
    }
}

/// Puts inputs into a fresh emulated memory, for [`Emulator::launch`] and for tests that tamper with
/// what lies there. `out` is dense, `[num_seqs, num_q_heads, head_dim]`.
///
/// # Errors
/// What [`DecodeInputs::validate`] refuses, and a batch that is not the plan's.
pub fn upload<T: Element>(
    plan: &Plan,
    inputs: &DecodeInputs<'_, T>,
    lse: bool,
) -> Result<Uploaded, Error> {
    equal(
        Op::Decode,
        "seq_lens",
        "length",
        inputs.seq_lens.len(),
        plan.num_seqs(),
    )?;
    inputs.validate(Op::Decode, plan.config())?;
    let (heads, head_dim) = (plan.config().num_q_heads, plan.config().head_dim);
    let out = RowsShape::contiguous(plan.num_seqs(), heads, head_dim);
    let out_len = plan.num_seqs().saturating_mul(out.token_stride);
    upload_for(plan, inputs, out, out_len, lse)
}

/// Puts validated inputs into a fresh emulated memory, with uninitialised buffers for an output of
/// `out_len` elements, for `lse` if wanted, and for the workspace.
fn upload_for<T: Element>(
    plan: &Plan,
    inputs: &DecodeInputs<'_, T>,
    out: RowsShape,
    out_len: usize,
    lse: bool,
) -> Result<Uploaded, Error> {
    let memory = Memory::new();
    let alloc = |name: &'static str, bytes: usize| {
        let bytes = bytes as u64;
        memory
            .alloc(bytes, 256, name)
            .map_err(|error| failed(name, error))
    };
    let q = &inputs.q;
    let tensors = DeviceTensors {
        q: DeviceRows {
            address: alloc("q", size_of_val(q.data()))?,
            token_stride: q.token_stride(),
            head_stride: q.head_stride(),
        },
        k_cache: DeviceCache {
            address: alloc("k_cache", size_of_val(inputs.k_cache.data()))?,
            strides: inputs.k_cache.strides(),
        },
        v_cache: DeviceCache {
            address: alloc("v_cache", size_of_val(inputs.v_cache.data()))?,
            strides: inputs.v_cache.strides(),
        },
        block_table: DeviceTable {
            address: alloc("block_table", size_of_val(inputs.block_table.entries()))?,
            row_stride: inputs.block_table.row_stride(),
        },
        seq_lens: alloc("seq_lens", size_of_val(inputs.seq_lens))?,
        out: DeviceRows {
            address: alloc("out", out_len.saturating_mul(size_of::<T>()))?,
            token_stride: out.token_stride,
            head_stride: out.head_stride,
        },
        lse: match lse {
            true => Some(alloc(
                "lse",
                out.num_seqs * out.num_heads * size_of::<f32>(),
            )?),
            false => None,
        },
        workspace: alloc("workspace", plan.workspace_bytes())?,
    };

    let write = |name: &'static str, base: u64, offset: usize, bytes: &[u8]| {
        memory
            .write(base + offset as u64, bytes)
            .map_err(|error| failed(name, error))
    };
    write("seq_lens", tensors.seq_lens, 0, bytes_of(inputs.seq_lens))?;
    let block_size = plan.config().block_size;
    for (s, &len) in inputs.seq_lens.iter().enumerate() {
        for h in 0..q.num_heads() {
            let at = s * q.token_stride() + h * q.head_stride();
            let row = &q.data()[at..at + q.head_dim()];
            write("q", tensors.q.address, at * size_of::<T>(), bytes_of(row))?;
        }
        let len = len as usize;
        let live = len.div_ceil(block_size);
        let row = &inputs.block_table.row(s).unwrap_or(&[])[..live];
        let at = s * inputs.block_table.row_stride() * size_of::<i32>();
        write(
            "block_table",
            tensors.block_table.address,
            at,
            bytes_of(row),
        )?;
        for (column, &block) in row.iter().enumerate() {
            let slots = (len - column * block_size).min(block_size);
            let block = block as usize;
            write_slots(&inputs.k_cache, block, slots, |at, bytes| {
                write("k_cache", tensors.k_cache.address, at, bytes)
            })?;
            write_slots(&inputs.v_cache, block, slots, |at, bytes| {
                write("v_cache", tensors.v_cache.address, at, bytes)
            })?;
        }
    }
    Ok(Uploaded { memory, tensors })
}

/// Writes the first `slots` slots of a block, in runs as long as the layout allows.
fn write_slots<T: Element>(
    cache: &CacheView<'_, T>,
    block: usize,
    slots: usize,
    write: impl Fn(usize, &[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let (strides, heads, d) = (cache.strides(), cache.num_kv_heads(), cache.head_dim());
    let run =
        |at: usize, len: usize| write(at * size_of::<T>(), bytes_of(&cache.data()[at..at + len]));
    let base = block * strides.block;
    if strides.head == d && strides.token == heads * d {
        return run(base, slots * heads * d);
    }
    for head in 0..heads {
        let base = base + head * strides.head;
        if strides.token == d {
            run(base, slots * d)?;
            continue;
        }
        for slot in 0..slots {
            run(base + slot * strides.token, d)?;
        }
    }
    Ok(())
}

/// Every row of out and every lse has been stored to.
fn check_written(plan: &Plan, uploaded: &Uploaded, out: RowsShape) -> Result<(), Error> {
    let element_bytes = plan.config().dtype.bytes() as usize;
    let check = |argument, address: u64, bytes: usize, sequence, head| {
        let unwritten = uploaded.memory.first_unwritten(address, bytes as u64);
        match unwritten.map_err(|error| failed(argument, error))? {
            None => Ok(()),
            Some(_) => Err(Error::OutputNotWritten {
                op: Op::Decode,
                argument,
                sequence,
                head,
            }),
        }
    };
    for s in 0..out.num_seqs {
        for h in 0..out.num_heads {
            let at = (s * out.token_stride + h * out.head_stride) * element_bytes;
            let address = uploaded.tensors.out.address + at as u64;
            check("out", address, out.head_dim * element_bytes, s, h)?;
            if let Some(lse) = uploaded.tensors.lse {
                let at = (s * out.num_heads + h) * size_of::<f32>();
                check("lse", lse + at as u64, size_of::<f32>(), s, h)?;
            }
        }
    }
    Ok(())
}

fn download<T: Element>(
    plan: &Plan,
    uploaded: &Uploaded,
    out: &mut RowsViewMut<'_, T>,
    lse: Option<&mut [f32]>,
) -> Result<(), Error> {
    let read = |name: &'static str, address: u64, bytes: &mut [u8]| {
        uploaded
            .memory
            .read(address, bytes)
            .map_err(|error| failed(name, error))
    };
    let shape = out.shape();
    for s in 0..shape.num_seqs {
        for h in 0..shape.num_heads {
            let at = s * shape.token_stride + h * shape.head_stride;
            let address = uploaded.tensors.out.address + (at * size_of::<T>()) as u64;
            let row = &mut out.data_mut()[at..at + shape.head_dim];
            read("out", address, bytes_of_mut(row))?;
        }
    }
    if let (Some(lse), Some(address)) = (lse, uploaded.tensors.lse) {
        let rows = plan.num_seqs() * plan.config().num_q_heads;
        read("lse", address, bytes_of_mut(&mut lse[..rows]))?;
    }
    Ok(())
}

fn failed(subject: &'static str, error: ptx_emulator::MemoryError) -> Error {
    Error::Emulated {
        subject,
        source: error.into(),
    }
}

#[cfg(test)]
mod tests;
