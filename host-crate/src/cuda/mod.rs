//! The CUDA back end: the shipped PTX through the driver, with cust's types.
//!
//! A [`CudaBackend`] belongs to one context. It loads the PTX of a configuration when it first runs
//! one, and after that a call is two launches at most: nothing is allocated, copied or synchronised.
//! For stream capture, [`CudaBackend::prepare`] loads beforehand; a captured graph may be replayed
//! with other lengths and tables up to the plan's capacity, as long as the back end lives.
//!
//! A call returns before the device has run. The kernels write to the output, `lse` and the workspace
//! and nowhere else, whatever the table and the lengths on the device hold; a table that is wrong
//! makes them read what is not theirs, which the driver may report as an error of a later call. Where
//! table and lengths are on the host too, [`crate::BlockTable::validate`] checks them.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use cust::memory::{CopyDestination, DeviceBuffer};
//! use cust::stream::{Stream, StreamFlags};
//! use paged_attention::cuda::*;
//! use paged_attention::*;
//!
//! let context = cust::quick_init()?;
//! let stream = Stream::new(StreamFlags::DEFAULT, None)?;
//! let backend = CudaBackend::new(&context)?;
//! // Once per configuration, batch size and capacity.
//! let config = AttentionConfig::new(DType::F32, 8, 2, 64, 16);
//! let plan = Plan::new(&config, 2, 64, SplitPolicy::Tokens(512), &backend.limits())?;
//! let mut workspace = DeviceBuffer::<f32>::zeroed(plan.workspace_len())?;
//! let q = DeviceBuffer::from_slice(&[0.1f32; 2 * 8 * 64])?;
//! let k_cache = DeviceBuffer::from_slice(&vec![0.2f32; 13 * 2048])?;
//! let v_cache = DeviceBuffer::from_slice(&vec![0.5f32; 13 * 2048])?;
//! let mut out = DeviceBuffer::from_slice(&[0.0f32; 2 * 8 * 64])?;
//! // Every step: 60 tokens lie in blocks 7, 1, 12, 4, and 5 tokens in block 3.
//! let block_table = DeviceBuffer::from_slice(&[7, 1, 12, 4, 3, -1, -1, -1])?;
//! let seq_lens = DeviceBuffer::from_slice(&[60, 5])?;
//! let inputs = CudaInputs {
//!     q: CudaRows::contiguous(&*q, 2, 8, 64),
//!     k_cache: CudaCache::dense(&*k_cache, CacheLayout::Nhd, 13, 16, 2, 64),
//!     v_cache: CudaCache::dense(&*v_cache, CacheLayout::Nhd, 13, 16, 2, 64),
//!     block_table: CudaTable::new(&*block_table, 2, 4),
//!     seq_lens: (&*seq_lens).into(),
//! };
//! let rows = CudaRowsMut::contiguous(&mut *out, 2, 8, 64);
//! backend.decode(&stream, &plan, &inputs, rows, None, (&mut *workspace).into())?;
//! stream.synchronize()?;
//! let mut host = [0.0f32; 2 * 8 * 64];
//! out.copy_to(&mut host)?;
//! assert!((host[0] - 0.5).abs() < 1e-6);
//! # Ok(())
//! # }
//! ```
//!
//! # The cache around it
//!
//! [`CudaBackend::reshape_and_cache`], [`CudaBackend::copy_blocks`] and [`CudaBackend::gather_cache`]
//! are one launch each, on the same terms. Slots, pairs of blocks and lengths decide where they write:
//! they lie in buffers of this back end ([`CudaSlots`], [`CudaPairs`], [`CudaLengths`]), whose `set`
//! checks them on the host before it copies them. One `set` per step serves the launches of every
//! layer. Engines that keep their integers in buffers of their own check them with
//! [`crate::CacheSizes`] and use [`CudaBackend::launch_cache`].
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use cust::memory::{CopyDestination, DeviceBuffer};
//! use cust::stream::{Stream, StreamFlags};
//! use paged_attention::cuda::*;
//! use paged_attention::*;
//!
//! let context = cust::quick_init()?;
//! let stream = Stream::new(StreamFlags::DEFAULT, None)?;
//! let backend = CudaBackend::new(&context)?;
//! // Once: 13 blocks of 16 tokens, two kv heads of 64 elements; at most 4 new tokens per step.
//! let sizes = CacheSizes::new(DType::F32, 13, 16, 2, 64)?;
//! let mut slots = backend.slots(&sizes, 4)?;
//! let mut k_cache = DeviceBuffer::from_slice(&vec![0.0f32; 13 * 2048])?;
//! let mut v_cache = DeviceBuffer::from_slice(&vec![0.0f32; 13 * 2048])?;
//! // Every step: the first token's slot is 12 of block 3, the second one is skipped.
//! slots.set(&[3 * 16 + 12, -1])?;
//! // In every layer.
//! let k = DeviceBuffer::from_slice(&[0.25f32; 2 * 128])?;
//! let v = DeviceBuffer::from_slice(&[0.75f32; 2 * 128])?;
//! backend.reshape_and_cache(
//!     &stream,
//!     &sizes,
//!     [&k, &v].map(|rows| CudaRows::contiguous(&**rows, 2, 2, 64)),
//!     [&mut k_cache, &mut v_cache]
//!         .map(|cache| CudaCacheMut::dense(&mut **cache, CacheLayout::Nhd, 13, 16, 2, 64)),
//!     &slots,
//! )?;
//! stream.synchronize()?;
//! let mut host = vec![0.0f32; 13 * 2048];
//! v_cache.copy_to(&mut host[..])?;
//! let slot = (3 * 16 + 12) * 128;
//! assert_eq!(host[slot..slot + 128], [0.75; 128]);
//! assert!(host[..slot].iter().chain(&host[slot + 128..]).all(|&x| x == 0.0));
//! # Ok(())
//! # }
//! ```

mod cache;
mod context;
mod driver;
mod held;
mod host;
mod kernels;
mod operands;
mod tensors;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use cust::context::Context;
use cust::stream::Stream;
use cust::sys::{CUcontext, CUstream};

pub use host::CudaDecode;
pub use operands::{CudaCacheTable, CudaLengths, CudaPairs, CudaSlots};
pub use tensors::{
    CudaBuffer, CudaBufferMut, CudaCache, CudaCacheMut, CudaInputs, CudaRows, CudaRowsMut,
    CudaTable,
};

use crate::artefacts::PtxSet;
use crate::checks::{
    Buffer, check_cache, check_len, check_lse, check_rows, check_rows_apart, check_table, equal,
};
use crate::{
    ALIGNMENT, AttentionConfig, DType, DeviceCache, DeviceLimits, DeviceRows, DeviceTable,
    DeviceTensors, Error, Op, Plan, supports,
};
use context::ContextRef;
use driver::Current;
use kernels::Kernels;

const OP: Op = Op::Decode;

/// The kernels in one CUDA context.
pub struct CudaBackend {
    kernels: Mutex<BTreeMap<(DType, usize), Arc<Kernels>>>,
    /// Of the operations on the cache.
    cache_kernels: Mutex<Option<Arc<Kernels>>>,
    set: Cow<'static, PtxSet>,
    context: Arc<ContextRef>,
}

impl CudaBackend {
    /// A back end with the embedded PTX on the device of this number, in its primary context.
    /// Initialises the driver.
    ///
    /// # Errors
    /// [`Error::Driver`], for example where there is no such device.
    pub fn open(ordinal: u32) -> Result<Self, Error> {
        let context = ContextRef::open(ordinal)?;
        Ok(Self::with(context, Cow::Borrowed(PtxSet::embedded())))
    }

    /// A back end with the embedded PTX. The context, a device's primary one, is retained.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn new(context: &Context) -> Result<Self, Error> {
        // SAFETY: cust's context is live here, and it is a primary one, which is retained.
        let context = unsafe { ContextRef::new(context.as_raw(), true) }?;
        Ok(Self::with(context, Cow::Borrowed(PtxSet::embedded())))
    }

    /// A back end in a context of another library, such as cudarc.
    ///
    /// # Errors
    /// [`Error::Driver`].
    ///
    /// # Safety
    /// `context` is a live context and outlives the back end.
    pub unsafe fn from_raw_context(context: CUcontext) -> Result<Self, Error> {
        // SAFETY: the caller's promise.
        let context = unsafe { ContextRef::new(context, false) }?;
        Ok(Self::with(context, Cow::Borrowed(PtxSet::embedded())))
    }

    /// The same back end with other artefacts; forgets what it has loaded.
    pub fn with_ptx(self, set: PtxSet) -> Self {
        Self {
            kernels: Mutex::default(),
            cache_kernels: Mutex::default(),
            set: Cow::Owned(set),
            context: self.context,
        }
    }

    fn with(context: ContextRef, set: Cow<'static, PtxSet>) -> Self {
        Self {
            kernels: Mutex::default(),
            cache_kernels: Mutex::default(),
            set,
            context: Arc::new(context),
        }
    }

    /// The device's name.
    pub fn device_name(&self) -> &str {
        &self.context.info().name
    }

    /// The device's figures, for [`Plan::new`].
    pub fn limits(&self) -> DeviceLimits {
        self.context.info().limits
    }

    /// The device's second-level cache, in bytes.
    pub fn l2_cache_bytes(&self) -> usize {
        self.context.info().l2_cache_bytes
    }

    /// The device's compute capability (major, minor).
    pub fn compute_capability(&self) -> (u32, u32) {
        self.context.info().capability
    }

    /// The newest CUDA version (major, minor) that the driver supports.
    pub fn driver_version(&self) -> (u32, u32) {
        self.context.info().driver
    }

    /// Whether this device and driver run a configuration. Nothing is loaded.
    ///
    /// # Errors
    /// What [`supports`] refuses; [`Error::MissingEntry`], [`Error::DeviceTooOld`],
    /// [`Error::DriverTooOld`], [`Error::SharedMemory`].
    pub fn supports(&self, config: &AttentionConfig) -> Result<(), Error> {
        supports(config)?;
        let plan = Plan::new(
            config,
            0,
            0,
            crate::SplitPolicy::Auto,
            &DeviceLimits::cpu(1),
        )?;
        let info = self.context.info();
        let planned = self.set.for_plan(&plan)?;
        planned
            .decode
            .check_device(&info.name, info.capability, info.driver)?;
        info.check_shared(&plan)
    }

    /// Loads the PTX of a plan's configuration, if that has not been done.
    ///
    /// # Errors
    /// As for [`CudaBackend::supports`], and [`Error::Driver`] with the compiler's log.
    pub fn prepare(&self, plan: &Plan) -> Result<(), Error> {
        self.kernels(plan).map(drop)
    }

    /// Decode attention on `stream`. Writes `out` and, if asked, `lse`, f32
    /// `[num_seqs, num_q_heads]`; `workspace` has at least [`Plan::workspace_bytes`] bytes.
    ///
    /// # Errors
    /// What [`CudaBackend::prepare`] refuses; shapes, strides, alignment and extents as
    /// [`Plan::validate`]; [`Error::ForeignContext`]; [`Error::Driver`]. Nothing has been launched
    /// then, unless the driver reports an earlier launch's fault.
    pub fn decode(
        &self,
        stream: &Stream,
        plan: &Plan,
        inputs: &CudaInputs<'_>,
        out: CudaRowsMut<'_>,
        lse: Option<CudaBufferMut<'_>>,
        workspace: CudaBufferMut<'_>,
    ) -> Result<(), Error> {
        let tensors = self.validate(plan, inputs, &out, lse.as_ref(), &workspace)?;
        // SAFETY: the stream is live as cust's type is. Every buffer reaches as far as the plan
        // goes (`validate`) and belongs to this context. Freeing one of cust's buffers waits for
        // the device, and what table and lengths hold decides what is read, never what is written.
        unsafe { self.decode_raw(stream.as_inner(), plan, &tensors) }
    }

    /// Decode attention over raw device addresses on a raw stream, for engines with their own
    /// buffers.
    ///
    /// # Errors
    /// What [`CudaBackend::prepare`] and [`Plan::launches`] refuse; [`Error::ForeignContext`] for
    /// the stream; [`Error::Driver`].
    ///
    /// # Safety
    /// - `stream` is a live stream or 0.
    /// - Until the launches have run, every address lies in memory that this context can use, and
    ///   reaches as far as its strides and the plan's batch, configuration and
    ///   [`Plan::workspace_bytes`] say; nothing else writes to it; `out`, `lse` and the workspace
    ///   overlap nothing.
    /// - Lengths do not exceed the plan's capacity or the table's row, and live table entries are
    ///   blocks of both caches.
    pub unsafe fn decode_raw(
        &self,
        stream: CUstream,
        plan: &Plan,
        tensors: &DeviceTensors,
    ) -> Result<(), Error> {
        let launches = plan.launches(tensors)?;
        if launches.decode.is_none() {
            return Ok(());
        }
        let kernels = self.kernels(plan)?;
        let current = self.context.current()?;
        // SAFETY: the caller's promise on the stream.
        unsafe { self.own_stream(&current, OP, stream) }?;
        for launch in launches.iter() {
            let symbol = launch.entry;
            let (dtype, head_dim) = (plan.config().dtype, plan.config().head_dim as u32);
            let missing = Error::MissingEntry {
                symbol,
                dtype,
                head_dim,
            };
            let function = kernels.function(symbol).ok_or(missing)?;
            // SAFETY: `kernels` is loaded into this context, which is current, and so is the
            // stream's; the rest is the caller's promise.
            unsafe { current.launch(function, stream, launch.into()) }?;
        }
        Ok(())
    }

    fn kernels(&self, plan: &Plan) -> Result<Arc<Kernels>, Error> {
        let key = (plan.config().dtype, plan.config().head_dim);
        // A panic while the lock is held cannot leave a half-made module in the map.
        let mut loaded = self
            .kernels
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        self.context.info().check_shared(plan)?;
        if let Some(kernels) = loaded.get(&key) {
            return Ok(Arc::clone(kernels));
        }
        let planned = self.set.for_plan(plan)?;
        let file = (planned.file, planned.text);
        let kernels = Arc::new(Kernels::load(&self.context, &self.set, file)?);
        loaded.insert(key, Arc::clone(&kernels));
        Ok(kernels)
    }

    /// The checks of [`Plan::validate`], as far as host data allows.
    fn validate(
        &self,
        plan: &Plan,
        inputs: &CudaInputs<'_>,
        out: &CudaRowsMut<'_>,
        lse: Option<&CudaBufferMut<'_>>,
        workspace: &CudaBufferMut<'_>,
    ) -> Result<DeviceTensors, Error> {
        let CudaInputs {
            q,
            k_cache,
            v_cache,
            block_table,
            seq_lens,
        } = inputs;
        let (config, num_seqs) = (plan.config(), plan.num_seqs());
        let element = config.dtype.bytes() as usize;
        let element_size =
            |argument, buffer: &Buffer, expected| element_size(OP, argument, buffer, expected);
        element_size("q", &q.data.buffer, element)?;
        element_size("k_cache", &k_cache.data.buffer, element)?;
        element_size("v_cache", &v_cache.data.buffer, element)?;
        element_size("block_table", &block_table.data.buffer, 4)?;
        element_size("seq_lens", &seq_lens.buffer, 4)?;
        element_size("out", &out.data.buffer, element)?;
        check_rows(OP, "q", q.data.buffer, q.shape, config, num_seqs)?;
        check_cache(OP, "k_cache", k_cache.data.buffer, k_cache.shape, config)?;
        check_cache(OP, "v_cache", v_cache.data.buffer, v_cache.shape, config)?;
        let (k, v) = (k_cache.shape.num_blocks, v_cache.shape.num_blocks);
        equal(OP, "v_cache", "num_blocks", v, k)?;
        check_table(OP, block_table.data.buffer.len, block_table.rows, num_seqs)?;
        let names = [("num_seqs", num_seqs)];
        check_len(OP, "seq_lens", seq_lens.buffer.len, Some(num_seqs), &names)?;
        check_rows(OP, "out", out.data.buffer, out.shape, config, num_seqs)?;
        check_rows_apart(OP, out.shape)?;
        if let Some(lse) = lse {
            element_size("lse", &lse.buffer, 4)?;
            check_lse(OP, lse.buffer.len, num_seqs, config.num_q_heads)?;
        }
        let workspace_bytes = workspace
            .buffer
            .len
            .saturating_mul(workspace.buffer.element_bytes);
        plan.check_workspace(OP, workspace_bytes)?;

        let buffers = [
            ("q", Some(&q.data.buffer)),
            ("k_cache", Some(&k_cache.data.buffer)),
            ("v_cache", Some(&v_cache.data.buffer)),
            ("block_table", Some(&block_table.data.buffer)),
            ("seq_lens", Some(&seq_lens.buffer)),
            ("out", Some(&out.data.buffer)),
            ("lse", lse.map(|lse| &lse.buffer)),
            ("workspace", Some(&workspace.buffer)),
        ];
        let current = self.context.current()?;
        for (argument, buffer) in buffers {
            if let Some(buffer) = buffer {
                self.own_buffer(&current, OP, argument, buffer)?;
            }
        }
        let rows = |buffer: &Buffer, shape: crate::views::RowsShape| DeviceRows {
            address: buffer.address,
            token_stride: shape.token_stride,
            head_stride: shape.head_stride,
        };
        let cache = |cache: &CudaCache<'_>| DeviceCache {
            address: address_of(&cache.data.buffer),
            strides: cache.shape.strides,
        };
        Ok(DeviceTensors {
            q: rows(&q.data.buffer, q.shape),
            k_cache: cache(k_cache),
            v_cache: cache(v_cache),
            block_table: DeviceTable {
                address: address_of(&block_table.data.buffer),
                row_stride: block_table.rows.2,
            },
            seq_lens: seq_lens.buffer.address,
            out: rows(&out.data.buffer, out.shape),
            lse: lse.map(|lse| lse.buffer.address),
            workspace: workspace.buffer.address,
        })
    }

    /// Refuses a stream of another context.
    ///
    /// # Safety
    /// `stream` is a live stream or 0.
    unsafe fn own_stream(&self, current: &Current, op: Op, stream: CUstream) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        if unsafe { current.stream_context(stream) }? == self.context.handle() {
            return Ok(());
        }
        let argument = "the stream";
        Err(Error::ForeignContext { op, argument })
    }

    /// Refuses a buffer of another context.
    fn own_buffer(
        &self,
        current: &Current,
        op: Op,
        argument: &'static str,
        buffer: &Buffer,
    ) -> Result<(), Error> {
        if buffer.len == 0 {
            return Ok(());
        }
        let owner = current.pointer_context(argument, buffer.address)?;
        // Memory of a stream-ordered pool belongs to the device, not to a context.
        if owner.is_null() || owner == self.context.handle() {
            return Ok(());
        }
        Err(Error::ForeignContext { op, argument })
    }
}

fn element_size(
    op: Op,
    argument: &'static str,
    buffer: &Buffer,
    expected: usize,
) -> Result<(), Error> {
    let found = buffer.element_bytes;
    if found == expected {
        return Ok(());
    }
    Err(Error::ElementSize {
        op,
        argument,
        found,
        expected,
    })
}

/// An empty cache or table has no address, and the kernels read nothing of it.
fn address_of(buffer: &Buffer) -> u64 {
    match buffer.len {
        0 => ALIGNMENT as u64,
        _ => buffer.address,
    }
}
