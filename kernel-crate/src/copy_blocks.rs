//! Copies blocks within caches, for instance K and V of every layer, before they are written.
//!
//! Grid:   `(num_pairs, num_caches, slices)`: a CTA per slice of `COPY_SLICE` chunks of a block.
//! Block:  128 threads, each copies chunks of 16 bytes; neighbours copy neighbours.
//! Shared: none.
//! Reads:  `pairs [num_pairs, 2]` i64 (source, destination), `caches [num_caches]` addresses, the
//!         sources' slots. Writes: the destinations' slots. No destination is another pair's block.
//! Barriers: none.
//! Numerics: none, bits are copied.

use crate::abi::CopyBlocksArgs;
use crate::device::{memory, warp};
use crate::geometry::{COPY_SLICE, THREADS};
use crate::offsets::row_offset;
use crate::rows::{Chunks, copy_16};

/// The kernel's body.
///
/// # Safety
/// What the host's `CacheSizes::copy_blocks` and its caller establish: blocks lie inside every cache, no
/// destination occurs in another pair, and all addresses are multiples of 16.
#[inline(always)]
pub unsafe fn copy_blocks(args: &CopyBlocksArgs) {
    let [pair, cache, slice] = warp::block();
    // SAFETY: `pair < num_pairs` and `cache < num_caches`.
    let [source, destination, cache] = unsafe {
        let pair = args.pairs + pair as u64 * 16;
        let cache = memory::load_i64(args.caches + cache as u64 * 8);
        [memory::load_i64(pair), memory::load_i64(pair + 8), cache]
    };
    let block =
        |block: i64| (cache as u64).wrapping_add(block.wrapping_mul(args.block_stride) as u64);
    let (from, to) = (block(source), block(destination));
    let chunks = Chunks::new(args.row_chunks, args.row_magic, args.row_shift);
    let heads = Chunks::new(args.num_kv_heads, args.head_magic, args.head_shift);
    let begin = slice * COPY_SLICE;
    let end = core::cmp::min(args.block_chunks, begin + COPY_SLICE);
    // All threads take the same turns, so that an unrolled loop keeps warps whole.
    let mut first = begin;
    while first < end {
        let index = first + warp::thread();
        if index < end {
            let (row, chunk) = chunks.split(index);
            let (slot, head) = heads.split(row);
            let offset =
                row_offset(slot, head, args.token_stride, args.head_stride) + chunk as i64 * 16;
            // SAFETY: inside the blocks, by this function's contract.
            unsafe {
                copy_16(
                    from.wrapping_add(offset as u64),
                    to.wrapping_add(offset as u64),
                )
            };
        }
        first += THREADS;
    }
}
