//! Writing, copying and gathering cache contents: whole rows of `head_dim` elements at a time.

use crate::cache::{CacheViewMut, validate_copy, validate_gather, validate_write};
use crate::{BlockTable, CacheStrides, CacheView, Element, Error, RowsView, RowsViewMut};

/// Writes the keys, or the values, of new tokens into the cache: row i of `rows`
/// `[num_tokens, num_kv_heads, head_dim]` goes to slot `slot_mapping[i]`, which is
/// `block * block_size + offset`. A negative slot skips its row, and so does the mapping's end: rows
/// beyond it are padding. Of two rows with the same slot the later one stays; on a device their
/// contents may mix.
///
/// # Errors
/// [`Error::OutOfRange`] for a cache without slots, kv heads or elements per head; shapes that
/// differ, strides or base addresses that are no multiple of 16 bytes, buffers too short;
/// [`Error::CacheOverlap`]; [`Error::MoreSlotsThanRows`]; [`Error::Slot`] past the cache. Nothing
/// has been written then.
pub fn reshape_and_cache<T: Element>(
    rows: RowsView<'_, T>,
    mut cache: CacheViewMut<'_, T>,
    slot_mapping: &[i64],
) -> Result<(), Error> {
    validate_write(&rows, &cache, slot_mapping)?;
    let shape = cache.shape();
    for (token, &slot) in slot_mapping.iter().enumerate() {
        let Ok(slot) = usize::try_from(slot) else {
            continue;
        };
        let (block, slot) = (slot / shape.block_size, slot % shape.block_size);
        for head in 0..shape.num_kv_heads {
            let from = token * rows.token_stride() + head * rows.head_stride();
            let to = element(shape.strides, block, slot, head);
            cache.data_mut()[to..to + shape.head_dim]
                .copy_from_slice(&rows.data()[from..from + shape.head_dim]);
        }
    }
    Ok(())
}

/// Copies whole blocks within each of `caches`, for instance the keys and the values of every
/// layer: each pair is (source, destination). All pairs are copied as if at once.
///
/// # Errors
/// What [`reshape_and_cache`] refuses of a cache; [`Error::PairBlock`] past the smallest cache;
/// [`Error::PairOntoItself`]; [`Error::PairConflict`] for a destination that another pair reads or
/// writes. Nothing has been written then.
pub fn copy_blocks<T: Element>(
    caches: &mut [CacheViewMut<'_, T>],
    pairs: &[[i64; 2]],
) -> Result<(), Error> {
    validate_copy(caches, pairs)?;
    for cache in caches {
        let shape = cache.shape();
        for &[source, destination] in pairs {
            for slot in 0..shape.block_size {
                for head in 0..shape.num_kv_heads {
                    let from = element(shape.strides, source as usize, slot, head);
                    let to = element(shape.strides, destination as usize, slot, head);
                    cache
                        .data_mut()
                        .copy_within(from..from + shape.head_dim, to);
                }
            }
        }
    }
    Ok(())
}

/// Gathers the keys, or the values, of every sequence into contiguous rows, one sequence after the
/// other: `out` is `[Σ seq_lens, num_kv_heads, head_dim]`.
///
/// # Errors
/// What [`reshape_and_cache`] refuses of a cache and [`BlockTable::validate`] of a table;
/// [`Error::ShapeMismatch`] if `out` has another number of rows. Nothing has been written then.
pub fn gather_cache<T: Element>(
    cache: CacheView<'_, T>,
    block_table: BlockTable<'_>,
    seq_lens: &[i32],
    mut out: RowsViewMut<'_, T>,
) -> Result<(), Error> {
    validate_gather(&cache, &block_table, seq_lens, &out)?;
    let shape = cache.shape();
    let (token_stride, head_stride) = (out.token_stride(), out.head_stride());
    let mut row = 0;
    for (sequence, &len) in seq_lens.iter().enumerate() {
        let blocks = block_table.row(sequence).unwrap_or_default();
        for token in 0..len as usize {
            let block = blocks[token / shape.block_size] as usize;
            for head in 0..shape.num_kv_heads {
                let from = element(shape.strides, block, token % shape.block_size, head);
                let to = row * token_stride + head * head_stride;
                out.data_mut()[to..to + shape.head_dim]
                    .copy_from_slice(&cache.data()[from..from + shape.head_dim]);
            }
            row += 1;
        }
    }
    Ok(())
}

/// Where a row of the cache starts.
fn element(strides: CacheStrides, block: usize, slot: usize, head: usize) -> usize {
    block * strides.block + slot * strides.token + head * strides.head
}
