//! Launches of the cache kernels. They copy bytes, so one entry serves every storage type.

use crate::apart::{Extent, check_apart};
use crate::checks::stride_aligned;
use crate::kernels::abi::{CopyBlocksArgs, GatherCacheArgs, ReshapeAndCacheArgs};
use crate::kernels::geometry::{
    COPY_SLICE, GATHER_TOKENS, MAX_GRID_YZ, THREADS, copy_blocks_grid, gather_cache_grid,
    reshape_and_cache_grid,
};
use crate::kernels::offsets::BlockDivisor;
use crate::kernels::variants::CacheKind;
use crate::{ALIGNMENT, CacheStrides, DType, DeviceCache, DeviceRows, DeviceTable, Error, Op};

/// Most slots that a launch addresses; also most chunks, heads and tokens.
pub(crate) const MAX_INDEX: u64 = i32::MAX as u64;

/// Sizes of a cache on the device, shared by its K and V.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSizes {
    dtype: DType,
    num_blocks: usize,
    block_size: usize,
    num_kv_heads: usize,
    head_dim: usize,
}

/// Arguments of one launch: a struct by value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CacheArgs {
    /// For `reshape_and_cache`.
    ReshapeAndCache(ReshapeAndCacheArgs),
    /// For `copy_blocks`.
    CopyBlocks(CopyBlocksArgs),
    /// For `gather_cache`.
    GatherCache(GatherCacheArgs),
}

impl CacheArgs {
    /// The parameter buffer, little endian.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            CacheArgs::ReshapeAndCache(args) => args.to_bytes().to_vec(),
            CacheArgs::CopyBlocks(args) => args.to_bytes().to_vec(),
            CacheArgs::GatherCache(args) => args.to_bytes().to_vec(),
        }
    }
}

/// One launch of a cache kernel; it takes no shared memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CacheLaunch {
    /// Symbol in the PTX file [`crate::artefacts::CACHE_FILE`].
    pub entry: &'static str,
    /// Grid dimensions.
    pub grid: [u32; 3],
    /// CTA dimensions.
    pub block: [u32; 3],
    /// The single argument.
    pub args: CacheArgs,
}

impl CacheLaunch {
    fn new(kind: CacheKind, grid: [u32; 3], args: CacheArgs) -> Self {
        let (entry, block) = (kind.entry(), [THREADS, 1, 1]);
        Self {
            entry,
            grid,
            block,
            args,
        }
    }
}

/// Divisor of one loop index on the device.
fn divisor(value: usize) -> (u32, u32, u32) {
    let BlockDivisor { magic, shift } = BlockDivisor::new(value as u32);
    (value as u32, magic, shift)
}

impl CacheSizes {
    /// Sizes of K and V; slots are numbered below 2^31.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for a size that is 0 or too large, [`Error::StrideNotAligned`] if a row
    /// of `head_dim` elements is no multiple of 16 bytes.
    pub fn new(
        dtype: DType,
        num_blocks: usize,
        block_size: usize,
        num_kv_heads: usize,
        head_dim: usize,
    ) -> Result<Self, Error> {
        let op = Op::Config;
        let bytes = dtype.bytes() as usize;
        range(op, "block_size", block_size as u64, 1, MAX_INDEX)?;
        range(op, "num_kv_heads", num_kv_heads as u64, 1, MAX_INDEX)?;
        range(op, "head_dim", head_dim as u64, 1, MAX_INDEX)?;
        stride_aligned(op, "cache", "row", head_dim, bytes)?;
        let slots = (num_blocks as u64).saturating_mul(block_size as u64);
        range(op, "num_blocks * block_size", slots, 0, MAX_INDEX)?;
        let sizes = Self {
            dtype,
            num_blocks,
            block_size,
            num_kv_heads,
            head_dim,
        };
        let slot = (num_kv_heads as u64).saturating_mul(sizes.row_chunks() as u64);
        let block = slot.saturating_mul(block_size as u64);
        let most = u64::from(COPY_SLICE * MAX_GRID_YZ);
        range(op, "16-byte chunks of a block", block, 1, most)?;
        let gathered = slot.saturating_mul(GATHER_TOKENS.into());
        range(op, "16-byte chunks of 16 slots", gathered, 1, MAX_INDEX)?;
        Ok(sizes)
    }

    /// Physical blocks.
    pub fn num_blocks(&self) -> usize {
        self.num_blocks
    }

    /// Storage type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Slots per block.
    pub fn block_size(&self) -> usize {
        self.block_size
    }

    /// Key/value heads.
    pub fn num_kv_heads(&self) -> usize {
        self.num_kv_heads
    }

    /// Elements per head.
    pub fn head_dim(&self) -> usize {
        self.head_dim
    }

    /// The launch that writes K and V of `num_tokens` rows into the slots of `slot_mapping`, i64
    /// `[num_tokens]` on the device; none without tokens. Slots are the caller's to check, see
    /// [`CacheSizes::check_slots`].
    ///
    /// # Errors
    /// [`Error::NullPointer`], [`Error::BaseNotAligned`], [`Error::StrideNotAligned`],
    /// [`Error::StrideTooLarge`], [`Error::OutOfRange`] for too many tokens;
    /// [`Error::TensorsOverlap`] for K and V in the same memory.
    pub fn reshape_and_cache(
        &self,
        num_tokens: usize,
        [k, v]: [DeviceRows; 2],
        [k_cache, v_cache]: [DeviceCache; 2],
        slot_mapping: u64,
    ) -> Result<Option<CacheLaunch>, Error> {
        let op = Op::ReshapeAndCache;
        if num_tokens == 0 {
            return Ok(None);
        }
        range(op, "num_tokens", num_tokens as u64, 0, MAX_INDEX)?;
        address(op, "slot_mapping", slot_mapping, 8)?;
        let (k, v) = (self.rows(op, "k", k)?, self.rows(op, "v", v)?);
        let extents = [k_cache, v_cache].map(|cache| self.extent(cache));
        let k_cache = self.cache(op, "k_cache", k_cache)?;
        let v_cache = self.cache(op, "v_cache", v_cache)?;
        check_apart(op, ("v_cache", &extents[1]), ("k_cache", &extents[0]))?;
        let Some(grid) = reshape_and_cache_grid(num_tokens as u32) else {
            return Ok(None);
        };
        let (row_chunks, row_magic, row_shift) = divisor(self.row_chunks());
        let (block_size, block_magic, block_shift) = divisor(self.block_size);
        let args = ReshapeAndCacheArgs {
            k: k.0,
            v: v.0,
            k_cache: k_cache.0,
            v_cache: v_cache.0,
            slot_mapping,
            k_token_stride: k.1[0],
            k_head_stride: k.1[1],
            v_token_stride: v.1[0],
            v_head_stride: v.1[1],
            k_cache_block_stride: k_cache.1[0],
            k_cache_token_stride: k_cache.1[1],
            k_cache_head_stride: k_cache.1[2],
            v_cache_block_stride: v_cache.1[0],
            v_cache_token_stride: v_cache.1[1],
            v_cache_head_stride: v_cache.1[2],
            num_kv_heads: self.num_kv_heads as u32,
            row_chunks,
            row_magic,
            row_shift,
            block_size,
            block_magic,
            block_shift,
            reserved: 0,
        };
        let args = CacheArgs::ReshapeAndCache(args);
        let kind = CacheKind::ReshapeAndCache;
        Ok(Some(CacheLaunch::new(kind, grid, args)))
    }

    /// The launch that copies `num_pairs` blocks within each of `num_caches` caches of these sizes
    /// and strides: `caches` is u64 `[num_caches]` and `pairs` i64 `[num_pairs, 2]`, both on the
    /// device; none if there is nothing to copy. What the pairs hold is the caller's to check, see
    /// [`CacheSizes::check_pairs`].
    ///
    /// # Errors
    /// As for [`CacheSizes::reshape_and_cache`].
    pub fn copy_blocks(
        &self,
        (num_caches, caches): (usize, u64),
        strides: CacheStrides,
        (num_pairs, pairs): (usize, u64),
    ) -> Result<Option<CacheLaunch>, Error> {
        let op = Op::CopyBlocks;
        if num_pairs == 0 || num_caches == 0 {
            return Ok(None);
        }
        range(op, "num_pairs", num_pairs as u64, 0, MAX_INDEX)?;
        range(op, "num_caches", num_caches as u64, 0, MAX_GRID_YZ.into())?;
        address(op, "caches", caches, 8)?;
        address(op, "pairs", pairs, 8)?;
        let [block_stride, token_stride, head_stride] = self.strides(op, "caches", strides)?;
        let (row_chunks, row_magic, row_shift) = divisor(self.row_chunks());
        let (num_kv_heads, head_magic, head_shift) = divisor(self.num_kv_heads);
        let block_chunks = self.block_size as u32 * num_kv_heads * row_chunks;
        let grid = copy_blocks_grid(num_pairs as u32, num_caches as u32, block_chunks);
        let args = CacheArgs::CopyBlocks(CopyBlocksArgs {
            caches,
            pairs,
            block_stride,
            token_stride,
            head_stride,
            block_chunks,
            num_kv_heads,
            head_magic,
            head_shift,
            row_chunks,
            row_magic,
            row_shift,
            reserved: 0,
        });
        Ok(grid.map(|grid| CacheLaunch::new(CacheKind::CopyBlocks, grid, args)))
    }

    /// The launch that gathers K and V of `num_seqs` sequences of at most `max_seq_len` tokens:
    /// `starts` is i64 `[num_seqs + 1]` on the device, see [`CacheSizes::starts`]; none if
    /// there is nothing to gather. Lengths and live table entries are the caller's to check, as
    /// [`crate::BlockTable::validate`] does.
    ///
    /// # Errors
    /// As for [`CacheSizes::reshape_and_cache`].
    pub fn gather_cache(
        &self,
        (num_seqs, max_seq_len): (usize, usize),
        [k_cache, v_cache]: [DeviceCache; 2],
        (table, starts): (DeviceTable, u64),
        [k, v]: [DeviceRows; 2],
    ) -> Result<Option<CacheLaunch>, Error> {
        let op = Op::GatherCache;
        if num_seqs == 0 || max_seq_len == 0 {
            return Ok(None);
        }
        range(op, "num_seqs", num_seqs as u64, 0, MAX_INDEX)?;
        let most = u64::from(GATHER_TOKENS * MAX_GRID_YZ);
        range(op, "max_seq_len", max_seq_len as u64, 0, most)?;
        range(
            op,
            "block_table.row_stride",
            table.row_stride as u64,
            0,
            MAX_INDEX,
        )?;
        address(op, "block_table", table.address, 4)?;
        address(op, "starts", starts, 8)?;
        let k_cache = self.cache(op, "k_cache", k_cache)?;
        let v_cache = self.cache(op, "v_cache", v_cache)?;
        let (k, v) = (self.rows(op, "k", k)?, self.rows(op, "v", v)?);
        let (row_chunks, row_magic, row_shift) = divisor(self.row_chunks());
        let (num_kv_heads, head_magic, head_shift) = divisor(self.num_kv_heads);
        let (block_size, block_magic, block_shift) = divisor(self.block_size);
        let grid = gather_cache_grid(num_seqs as u32, max_seq_len as u32);
        let args = CacheArgs::GatherCache(GatherCacheArgs {
            k_cache: k_cache.0,
            v_cache: v_cache.0,
            block_table: table.address,
            starts,
            k: k.0,
            v: v.0,
            k_cache_block_stride: k_cache.1[0],
            k_cache_token_stride: k_cache.1[1],
            k_cache_head_stride: k_cache.1[2],
            v_cache_block_stride: v_cache.1[0],
            v_cache_token_stride: v_cache.1[1],
            v_cache_head_stride: v_cache.1[2],
            k_token_stride: k.1[0],
            k_head_stride: k.1[1],
            v_token_stride: v.1[0],
            v_head_stride: v.1[1],
            table_stride: table.row_stride as i64,
            num_kv_heads,
            head_magic,
            head_shift,
            row_chunks,
            row_magic,
            row_shift,
            block_size,
            block_magic,
            block_shift,
            reserved: 0,
        });
        Ok(grid.map(|grid| CacheLaunch::new(CacheKind::GatherCache, grid, args)))
    }

    /// Where the rows of a cache lie.
    pub(crate) fn extent(&self, cache: DeviceCache) -> Extent {
        let CacheStrides { block, token, head } = cache.strides;
        let dims = [
            (block, self.num_blocks),
            (token, self.block_size),
            (head, self.num_kv_heads),
        ];
        let bytes = self.dtype.bytes() as usize;
        Extent::new(cache.address, &dims, self.head_dim, bytes)
    }

    fn row_chunks(&self) -> usize {
        self.head_dim * self.dtype.bytes() as usize / ALIGNMENT
    }

    /// An aligned stride in bytes.
    fn stride(
        &self,
        op: Op,
        argument: &'static str,
        stride: &'static str,
        elements: usize,
    ) -> Result<i64, Error> {
        let bytes = self.dtype.bytes() as usize;
        stride_aligned(op, argument, stride, elements, bytes)?;
        // The check has multiplied.
        Ok((elements * bytes) as i64)
    }

    fn strides(
        &self,
        op: Op,
        argument: &'static str,
        strides: CacheStrides,
    ) -> Result<[i64; 3], Error> {
        Ok([
            self.stride(op, argument, "block", strides.block)?,
            self.stride(op, argument, "token", strides.token)?,
            self.stride(op, argument, "head", strides.head)?,
        ])
    }

    fn cache(
        &self,
        op: Op,
        argument: &'static str,
        cache: DeviceCache,
    ) -> Result<(u64, [i64; 3]), Error> {
        address(op, argument, cache.address, ALIGNMENT)?;
        Ok((cache.address, self.strides(op, argument, cache.strides)?))
    }

    fn rows(
        &self,
        op: Op,
        argument: &'static str,
        rows: DeviceRows,
    ) -> Result<(u64, [i64; 2]), Error> {
        address(op, argument, rows.address, ALIGNMENT)?;
        let token = self.stride(op, argument, "token", rows.token_stride)?;
        let head = self.stride(op, argument, "head", rows.head_stride)?;
        Ok((rows.address, [token, head]))
    }
}

pub(crate) fn range(
    op: Op,
    argument: &'static str,
    value: u64,
    min: u64,
    max: u64,
) -> Result<(), Error> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(Error::OutOfRange {
        op,
        argument,
        value,
        min,
        max,
    })
}

fn address(op: Op, argument: &'static str, address: u64, alignment: usize) -> Result<(), Error> {
    if address == 0 {
        return Err(Error::NullPointer { op, argument });
    }
    if address.is_multiple_of(alignment as u64) {
        return Ok(());
    }
    Err(Error::BaseNotAligned {
        op,
        argument,
        address,
        alignment,
    })
}

#[cfg(test)]
mod tests;
