//! Writing, copying and gathering cache contents.

use std::sync::Arc;

use cust::stream::Stream;
use cust::sys::CUstream;

use super::driver::Current;
use super::kernels::Kernels;
use super::{
    CudaBackend, CudaCache, CudaCacheMut, CudaCacheTable, CudaLengths, CudaPairs, CudaRows,
    CudaRowsMut, CudaSlots, CudaTable, address_of, element_size,
};
use crate::apart::{Extent, check_apart};
use crate::artefacts::CACHE_FILE;
use crate::cache::{check_cache, check_rows};
use crate::checks::{Buffer, check_cache_apart, check_rows_apart, check_table, equal};
use crate::views::{CacheShape, RowsShape};
use crate::{CacheArgs, CacheLaunch, CacheSizes, DeviceCache, DeviceRows, DeviceTable, Error, Op};

impl CudaBackend {
    /// Loads the PTX of the operations on the cache, if that has not been done.
    ///
    /// # Errors
    /// [`Error::MissingCacheEntry`], [`Error::DeviceTooOld`], [`Error::DriverTooOld`], and
    /// [`Error::Driver`] with the compiler's log.
    pub fn prepare_cache(&self) -> Result<(), Error> {
        self.cache_kernels().map(drop)
    }

    /// Writes the keys and values of new tokens into the caches on `stream`: row i of `k` and `v`
    /// goes to the i-th of the slots that are set; a negative slot skips its row, and rows beyond the
    /// slots are padding. Of two rows with the same slot, the contents may mix,
    /// 16 bytes from one and 16 from the other.
    ///
    /// # Errors
    /// What [`CudaBackend::prepare_cache`] refuses; shapes, strides, alignment and extents that are
    /// not those of `sizes`; [`Error::CacheOverlap`]; [`Error::TensorsOverlap`] where K and V lie in
    /// the same memory; [`Error::MoreSlotsThanRows`]; [`Error::ForeignContext`]; [`Error::Driver`].
    /// Nothing has been launched then.
    pub fn reshape_and_cache(
        &self,
        stream: &Stream,
        sizes: &CacheSizes,
        [k, v]: [CudaRows<'_>; 2],
        [k_cache, v_cache]: [CudaCacheMut<'_>; 2],
        slots: &CudaSlots,
    ) -> Result<(), Error> {
        let call = Call::new(self, Op::ReshapeAndCache, sizes)?;
        call.sizes("slot_mapping", slots.sizes())?;
        let mapping = slots.address(&self.context)?;
        let k_cache = call.cache_mut("k_cache", &k_cache)?;
        let v_cache = call.cache_mut("v_cache", &v_cache)?;
        let tokens = (k.shape.num_seqs, v.shape.num_seqs);
        equal(call.op, "v", "num_tokens", tokens.1, tokens.0)?;
        let k = call.rows("k", &k.data.buffer, k.shape)?;
        let v = call.rows("v", &v.data.buffer, v.shape)?;
        if slots.len() > tokens.0 {
            return Err(Error::MoreSlotsThanRows {
                op: call.op,
                slots: slots.len(),
                rows: tokens.0,
            });
        }
        let launch = sizes.reshape_and_cache(slots.len(), [k, v], [k_cache, v_cache], mapping)?;
        // SAFETY: rows and caches reach as far as `sizes` and their strides say and belong to this
        // context; what `CudaSlots` holds is negative or a slot of such caches.
        unsafe { call.launch(stream, launch) }.map(drop)
    }

    /// Copies whole blocks within each of `caches` on `stream`, for instance the keys and the values
    /// of every layer, in one launch. `table` holds the addresses of these caches; their strides are
    /// the same. All pairs are copied as if at once.
    ///
    /// # Errors
    /// As for [`CudaBackend::reshape_and_cache`]; [`Error::CacheMismatch`] where a cache's strides are
    /// not the first one's, or its address not the table's.
    pub fn copy_blocks(
        &self,
        stream: &Stream,
        sizes: &CacheSizes,
        caches: &mut [CudaCacheMut<'_>],
        table: &CudaCacheTable,
        pairs: &CudaPairs,
    ) -> Result<(), Error> {
        let call = Call::new(self, Op::CopyBlocks, sizes)?;
        call.sizes("pairs", pairs.sizes())?;
        let (addresses, list) = (table.address(&self.context)?, pairs.address(&self.context)?);
        let count = table.addresses().len();
        equal(call.op, "caches", "length", caches.len(), count)?;
        let Some(first) = caches.first() else {
            return Ok(());
        };
        let strides = first.shape.strides;
        let mut checked = Vec::with_capacity(count);
        for (index, cache) in caches.iter().enumerate() {
            checked.push(call.cache_mut("caches", cache)?);
            let found = cache.shape.strides;
            for (property, found, expected) in [
                ("block_stride", found.block as u64, strides.block as u64),
                ("token_stride", found.token as u64, strides.token as u64),
                ("head_stride", found.head as u64, strides.head as u64),
                ("address", cache.address(), table.addresses()[index]),
            ] {
                if found != expected {
                    return Err(Error::CacheMismatch {
                        op: call.op,
                        index,
                        property,
                        found,
                        expected,
                    });
                }
            }
        }
        call.apart(&checked)?;
        let launch = sizes.copy_blocks((count, addresses), strides, (pairs.len(), list))?;
        // SAFETY: the caches reach as far as `sizes` and their strides say and belong to this
        // context; the table holds their addresses, and what `CudaPairs` holds are blocks of them,
        // as long as the launch can run.
        if unsafe { call.launch(stream, launch) }? {
            pairs.bind();
        }
        Ok(())
    }

    /// Gathers the keys and values of every sequence into contiguous rows on `stream`, one sequence
    /// after the other: `k` and `v` are `[num_tokens, num_kv_heads, head_dim]`. What the block table
    /// holds decides what is read, never what is written.
    ///
    /// # Errors
    /// As for [`CudaBackend::reshape_and_cache`]; [`Error::ShapeMismatch`] if the table has another
    /// number of sequences or `k` or `v` another number of rows than the lengths say;
    /// [`Error::SeqLenPastTable`]; [`Error::OutputOverlap`]; [`Error::TensorsOverlap`] where `k` and
    /// `v` lie in the same memory. The caches are only read and may.
    pub fn gather_cache(
        &self,
        stream: &Stream,
        sizes: &CacheSizes,
        [k_cache, v_cache]: [CudaCache<'_>; 2],
        (block_table, lengths): (&CudaTable<'_>, &CudaLengths),
        [k, v]: [CudaRowsMut<'_>; 2],
    ) -> Result<(), Error> {
        let call = Call::new(self, Op::GatherCache, sizes)?;
        let op = call.op;
        let starts = lengths.address(&self.context)?;
        let k_cache = call.cache("k_cache", &k_cache.data.buffer, k_cache.shape)?;
        let v_cache = call.cache("v_cache", &v_cache.data.buffer, v_cache.shape)?;
        let buffer = &block_table.data.buffer;
        element_size(op, "block_table", buffer, 4)?;
        check_table(op, buffer.len, block_table.rows, lengths.num_seqs())?;
        call.own("block_table", buffer)?;
        let (_, max_blocks_per_seq, row_stride) = block_table.rows;
        let (index, value) = lengths.longest();
        let block_size = sizes.block_size();
        if value as usize > max_blocks_per_seq.saturating_mul(block_size) {
            return Err(Error::SeqLenPastTable {
                op,
                index,
                value,
                max_blocks_per_seq,
                block_size,
            });
        }
        for (argument, rows) in [("k", &k.shape), ("v", &v.shape)] {
            let (found, expected) = (rows.num_seqs, lengths.num_tokens());
            equal(op, argument, "num_tokens", found, expected)?;
            check_rows_apart(op, *rows)?;
        }
        let k = call.rows("k", &k.data.buffer, k.shape)?;
        let v = call.rows("v", &v.data.buffer, v.shape)?;
        let [k_extent, v_extent] = [k, v].map(|rows| call.extent(rows, lengths.num_tokens()));
        check_apart(op, ("v", &v_extent), ("k", &k_extent))?;
        let table = DeviceTable {
            address: address_of(buffer),
            row_stride,
        };
        let batch = (lengths.num_seqs(), value as usize);
        let launch = sizes.gather_cache(batch, [k_cache, v_cache], (table, starts), [k, v])?;
        // SAFETY: rows and caches reach as far as `sizes` and their strides say and belong to this
        // context; the starts end at the number of rows, or before them when a captured launch runs.
        // What the table holds decides what is read.
        if unsafe { call.launch(stream, launch) }? {
            lengths.bind();
        }
        Ok(())
    }

    /// One launch of [`CacheSizes`] over raw device addresses on a raw stream, for engines with their
    /// own buffers.
    ///
    /// # Errors
    /// What [`CudaBackend::prepare_cache`] refuses; [`Error::ForeignContext`] for the stream;
    /// [`Error::Driver`].
    ///
    /// # Safety
    /// - `stream` is a live stream or 0, and `launch` comes from [`CacheSizes`] as it is.
    /// - Until it has run, every address lies in memory that this context can use, and reaches as far
    ///   as the sizes, the strides and the counts given to [`CacheSizes`] say; nothing else writes to
    ///   it, and nothing reads what the launch writes.
    /// - Slots and pairs are as [`CacheSizes::check_slots`] and [`CacheSizes::check_pairs`] want them,
    ///   starts as [`CacheSizes::starts`] makes them of lengths that do not exceed the table's row,
    ///   and live table entries are blocks of both caches.
    pub unsafe fn launch_cache(&self, stream: CUstream, launch: &CacheLaunch) -> Result<(), Error> {
        let kernels = self.cache_kernels()?;
        let current = self.context.current()?;
        let op = match launch.args {
            CacheArgs::ReshapeAndCache(_) => Op::ReshapeAndCache,
            CacheArgs::CopyBlocks(_) => Op::CopyBlocks,
            CacheArgs::GatherCache(_) => Op::GatherCache,
        };
        // SAFETY: the caller's promise on the stream.
        unsafe { self.own_stream(&current, op, stream) }?;
        let symbol = launch.entry;
        let function = kernels.function(symbol);
        let function = function.ok_or(Error::MissingCacheEntry { symbol })?;
        // SAFETY: `kernels` is loaded into this context, which is current, and so is the stream's;
        // the rest is the caller's promise.
        unsafe { current.launch(function, stream, launch.into()) }
    }

    fn cache_kernels(&self) -> Result<Arc<Kernels>, Error> {
        // A panic while the lock is held cannot leave a half-made module behind it.
        let mut loaded = self
            .cache_kernels
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(kernels) = &*loaded {
            return Ok(Arc::clone(kernels));
        }
        let file = (CACHE_FILE, self.set.for_cache()?);
        let kernels = Arc::new(Kernels::load(&self.context, &self.set, file)?);
        Ok(Arc::clone(loaded.insert(kernels)))
    }
}

/// The checks of one safe call, and its launch.
struct Call<'a> {
    backend: &'a CudaBackend,
    op: Op,
    sizes: &'a CacheSizes,
    current: Current,
}

impl<'a> Call<'a> {
    fn new(backend: &'a CudaBackend, op: Op, sizes: &'a CacheSizes) -> Result<Self, Error> {
        Ok(Self {
            backend,
            op,
            sizes,
            current: backend.context.current()?,
        })
    }

    /// Slots or pairs are numbered as in these caches.
    fn sizes(&self, argument: &'static str, found: &CacheSizes) -> Result<(), Error> {
        let (op, sizes) = (self.op, self.sizes);
        let (found, blocks) = ((found.num_blocks(), found.block_size()), sizes.num_blocks());
        equal(op, argument, "num_blocks", found.0, blocks)?;
        equal(op, argument, "block_size", found.1, sizes.block_size())
    }

    fn own(&self, argument: &'static str, buffer: &Buffer) -> Result<(), Error> {
        self.backend
            .own_buffer(&self.current, self.op, argument, buffer)
    }

    /// A cache of the call's sizes and of the back end's context.
    fn cache(
        &self,
        argument: &'static str,
        buffer: &Buffer,
        shape: CacheShape,
    ) -> Result<DeviceCache, Error> {
        let (op, sizes) = (self.op, self.sizes);
        element_size(op, argument, buffer, sizes.dtype().bytes() as usize)?;
        for (dimension, found, expected) in [
            ("num_blocks", shape.num_blocks, sizes.num_blocks()),
            ("block_size", shape.block_size, sizes.block_size()),
            ("num_kv_heads", shape.num_kv_heads, sizes.num_kv_heads()),
            ("head_dim", shape.head_dim, sizes.head_dim()),
        ] {
            equal(op, argument, dimension, found, expected)?;
        }
        check_cache(op, argument, *buffer, shape)?;
        self.own(argument, buffer)?;
        Ok(DeviceCache {
            address: address_of(buffer),
            strides: shape.strides,
        })
    }

    /// Likewise, and no row is written twice.
    fn cache_mut(
        &self,
        argument: &'static str,
        cache: &CudaCacheMut<'_>,
    ) -> Result<DeviceCache, Error> {
        let checked = self.cache(argument, &cache.data.buffer, cache.shape)?;
        check_cache_apart(self.op, argument, cache.shape)?;
        Ok(checked)
    }

    /// Refuses caches that share rows.
    fn apart(&self, caches: &[DeviceCache]) -> Result<(), Error> {
        let extent = |cache: &DeviceCache| self.sizes.extent(*cache);
        let mut order: Vec<_> = caches.iter().map(extent).enumerate().collect();
        order.sort_by_key(|(_, extent)| extent.address());
        let name = |index| format!("caches[{index}]");
        for (at, (index, extent)) in order.iter().enumerate() {
            let end = i128::from(extent.address()) + extent.bytes();
            let near = order[at + 1..].iter();
            for (other, second) in near.take_while(|(_, next)| i128::from(next.address()) < end) {
                check_apart(self.op, (name(*other), second), (name(*index), extent))?;
            }
        }
        Ok(())
    }

    fn rows(
        &self,
        argument: &'static str,
        buffer: &Buffer,
        shape: RowsShape,
    ) -> Result<DeviceRows, Error> {
        let (op, sizes) = (self.op, self.sizes);
        element_size(op, argument, buffer, sizes.dtype().bytes() as usize)?;
        let row = (sizes.num_kv_heads(), sizes.head_dim());
        check_rows(op, argument, *buffer, shape, row)?;
        self.own(argument, buffer)?;
        Ok(DeviceRows {
            address: address_of(buffer),
            token_stride: shape.token_stride,
            head_stride: shape.head_stride,
        })
    }

    /// Where so many rows lie.
    fn extent(&self, rows: DeviceRows, num_tokens: usize) -> Extent {
        let (sizes, head_stride) = (self.sizes, rows.head_stride);
        let dims = [
            (rows.token_stride, num_tokens),
            (head_stride, sizes.num_kv_heads()),
        ];
        let bytes = sizes.dtype().bytes() as usize;
        Extent::new(rows.address, &dims, sizes.head_dim(), bytes)
    }

    /// Launches, if there is anything to do; whether into a graph that is being captured.
    ///
    /// # Safety
    /// As for [`CudaBackend::launch_cache`], besides the stream.
    unsafe fn launch(self, stream: &Stream, launch: Option<CacheLaunch>) -> Result<bool, Error> {
        let Some(launch) = launch else {
            return Ok(false);
        };
        // SAFETY: the stream is live as cust's type is.
        let captured = unsafe { self.current.is_capturing(stream.as_inner()) }?;
        // SAFETY: the stream is live, and of this context, or refused; freeing one of cust's buffers waits for the
        // device; the rest is the caller's promise.
        unsafe { self.backend.launch_cache(stream.as_inner(), &launch) }?;
        Ok(captured)
    }
}
