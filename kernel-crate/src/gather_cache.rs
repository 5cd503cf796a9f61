//! Gathers the keys and values of every sequence into contiguous rows, one sequence after the other.
//!
//! Grid:   `(num_seqs, ceil(max_seq_len / GATHER_TOKENS), 2)`: a CTA per few tokens of K (0) or V (1).
//! Block:  128 threads, each copies chunks of 16 bytes; neighbours copy neighbours.
//! Shared: none.
//! Reads:  `starts [num_seqs + 1]` i64, `block_table [num_seqs, table_stride]` i32, the live slots of
//!         `k_cache` and `v_cache`. Writes: `k` and `v [starts[num_seqs], num_kv_heads, row]`.
//! Barriers: none.
//! Numerics: none, bits are copied.

use crate::abi::GatherCacheArgs;
use crate::device::{memory, warp};
use crate::geometry::{GATHER_TOKENS, THREADS};
use crate::offsets::{BlockDivisor, row_offset, slot_offset};
use crate::rows::{Chunks, copy_16};

/// The kernel's body.
///
/// # Safety
/// What the host's `CacheSizes::gather_cache` and its caller establish: `starts` ascends from 0 by the
/// lengths, live table entries lie inside the caches, rows inside `k` and `v`, and all addresses are
/// multiples of 16.
#[inline(always)]
pub unsafe fn gather_cache(args: &GatherCacheArgs) {
    let [seq, part, which] = warp::block();
    // SAFETY: `seq < num_seqs`.
    let [start, end] = unsafe {
        let starts = args.starts + seq as u64 * 8;
        [memory::load_i64(starts), memory::load_i64(starts + 8)]
    };
    let len = (end - start) as u32;
    let first = part * GATHER_TOKENS;
    if first >= len {
        return;
    }
    let tokens = core::cmp::min(len - first, GATHER_TOKENS);
    let keys = which == 0;
    let pick = |k, v| if keys { k } else { v };
    let cache = if keys { args.k_cache } else { args.v_cache };
    let out = if keys { args.k } else { args.v };
    let block_stride = pick(args.k_cache_block_stride, args.v_cache_block_stride);
    let slot_stride = pick(args.k_cache_token_stride, args.v_cache_token_stride);
    let from_head = pick(args.k_cache_head_stride, args.v_cache_head_stride);
    let token_stride = pick(args.k_token_stride, args.v_token_stride);
    let to_head = pick(args.k_head_stride, args.v_head_stride);
    let row = (seq as i64).wrapping_mul(args.table_stride);
    let table = args.block_table.wrapping_add((row * 4) as u64);

    let divisor = BlockDivisor {
        magic: args.block_magic,
        shift: args.block_shift,
    };
    let chunks = Chunks::new(args.row_chunks, args.row_magic, args.row_shift);
    let heads = Chunks::new(args.num_kv_heads, args.head_magic, args.head_shift);
    let mut index = warp::thread();
    while index < tokens * args.num_kv_heads * args.row_chunks {
        let (row, chunk) = chunks.split(index);
        let (token, head) = heads.split(row);
        let token = first + token;
        let (column, slot) = divisor.column_and_slot(token, args.block_size);
        // SAFETY: the column is live, so it stands in the table and lies inside the cache; the row is
        // one of the sequence's.
        unsafe {
            let block = memory::load_i32(table + column as u64 * 4);
            let from = slot_offset(block, slot, block_stride, slot_stride)
                + row_offset(head, chunk, from_head, 16);
            let to = (start + token as i64) * token_stride + row_offset(head, chunk, to_head, 16);
            copy_16(cache.wrapping_add(from as u64), out.wrapping_add(to as u64));
        }
        index += THREADS;
    }
}
