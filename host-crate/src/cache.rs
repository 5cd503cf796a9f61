//! Operations on the cache besides attention: their views and checks, the same for every back end.

mod contents;
mod launch;

pub use launch::{CacheArgs, CacheLaunch, CacheSizes};
#[cfg(feature = "cuda")]
pub(crate) use launch::{MAX_INDEX, range};

use crate::checks::{Buffer, check_cache_apart, check_cache_reach, check_rows_reach, equal};
use crate::views::{CacheShape, RowsShape};
use crate::{
    BlockTable, CacheLayout, CacheStrides, CacheView, Element, Error, Op, RowsView, RowsViewMut,
};

/// Writes a key or value cache; the shape as for [`CacheView`].
#[derive(Debug)]
pub struct CacheViewMut<'a, T> {
    data: &'a mut [T],
    shape: CacheShape,
}

impl<'a, T: Element> CacheViewMut<'a, T> {
    /// A dense cache in the given order of dimensions.
    pub fn dense(
        data: &'a mut [T],
        layout: CacheLayout,
        num_blocks: usize,
        block_size: usize,
        num_kv_heads: usize,
        head_dim: usize,
    ) -> Self {
        let shape = CacheShape::dense(layout, num_blocks, block_size, num_kv_heads, head_dim);
        Self { data, shape }
    }

    /// A strided cache; `shape` is (num_blocks, block_size, num_kv_heads, head_dim).
    ///
    /// K and V as halves of one pool `[num_blocks, 2, …]` are two views, made one after the other.
    pub fn with_strides(
        data: &'a mut [T],
        (num_blocks, block_size, num_kv_heads, head_dim): (usize, usize, usize, usize),
        strides: CacheStrides,
    ) -> Self {
        let shape = CacheShape {
            num_blocks,
            block_size,
            num_kv_heads,
            head_dim,
            strides,
        };
        Self { data, shape }
    }

    /// The elements, gaps included.
    pub fn data(&self) -> &[T] {
        self.data
    }

    /// The elements, gaps included, for writing.
    pub fn data_mut(&mut self) -> &mut [T] {
        self.data
    }

    pub(crate) fn shape(&self) -> CacheShape {
        self.shape
    }
}

/// Checks rows that are written to a cache; see [`crate::cpu::reshape_and_cache`].
pub(crate) fn validate_write<T: Element>(
    rows: &RowsView<'_, T>,
    cache: &CacheViewMut<'_, T>,
    slot_mapping: &[i64],
) -> Result<(), Error> {
    let (op, shape) = (Op::ReshapeAndCache, cache.shape());
    check_cache(op, "cache", Buffer::of(cache.data()), shape)?;
    check_cache_apart(op, "cache", shape)?;
    let row = (shape.num_kv_heads, shape.head_dim);
    check_rows(op, "rows", Buffer::of(rows.data()), rows.shape(), row)?;
    let (num_blocks, block_size) = (shape.num_blocks, shape.block_size);
    contents::check_slots(slot_mapping, rows.num_seqs(), num_blocks, block_size)
}

/// Checks pairs of blocks; see [`crate::cpu::copy_blocks`].
pub(crate) fn validate_copy<T: Element>(
    caches: &[CacheViewMut<'_, T>],
    pairs: &[[i64; 2]],
) -> Result<(), Error> {
    let op = Op::CopyBlocks;
    for cache in caches {
        check_cache(op, "cache", Buffer::of(cache.data()), cache.shape())?;
        check_cache_apart(op, "cache", cache.shape())?;
    }
    let num_blocks = caches.iter().map(|cache| cache.shape().num_blocks).min();
    let Some(num_blocks) = num_blocks else {
        return Ok(());
    };
    contents::check_pairs(pairs, num_blocks)
}

/// Checks a gathering; see [`crate::cpu::gather_cache`].
pub(crate) fn validate_gather<T: Element>(
    cache: &CacheView<'_, T>,
    table: &BlockTable<'_>,
    seq_lens: &[i32],
    out: &RowsViewMut<'_, T>,
) -> Result<(), Error> {
    let (op, shape) = (Op::GatherCache, cache.shape());
    check_cache(op, "cache", Buffer::of(cache.data()), shape)?;
    table.validate(op, seq_lens, shape.block_size, shape.num_blocks)?;
    // Lengths are i32 and not negative: no sum of them that fits a slice overflows.
    let tokens = seq_lens.iter().map(|&len| len as usize).sum();
    equal(op, "out", "num_tokens", out.num_seqs(), tokens)?;
    let row = (shape.num_kv_heads, shape.head_dim);
    check_rows(op, "out", Buffer::of(out.data()), out.shape(), row)?;
    crate::checks::check_rows_apart(op, out.shape())
}

pub(crate) fn check_cache(
    op: Op,
    argument: &'static str,
    buffer: Buffer,
    shape: CacheShape,
) -> Result<(), Error> {
    for (size, value, min) in [
        ("block_size", shape.block_size, 1),
        ("num_blocks", shape.num_blocks, 0),
        ("num_kv_heads", shape.num_kv_heads, 1),
        ("head_dim", shape.head_dim, 1),
    ] {
        let (value, max) = (value as u64, (1 << 31) - 1);
        if !(min..=max).contains(&value) {
            return Err(Error::OutOfRange {
                op,
                argument: size,
                value,
                min,
                max,
            });
        }
    }
    check_cache_reach(op, argument, buffer, shape)
}

pub(crate) fn check_rows(
    op: Op,
    argument: &'static str,
    buffer: Buffer,
    rows: RowsShape,
    (num_kv_heads, head_dim): (usize, usize),
) -> Result<(), Error> {
    equal(op, argument, "num_kv_heads", rows.num_heads, num_kv_heads)?;
    equal(op, argument, "head_dim", rows.head_dim, head_dim)?;
    let names = ["num_tokens", "num_kv_heads"];
    check_rows_reach(op, argument, buffer, rows, names)
}

#[cfg(test)]
mod tests;
