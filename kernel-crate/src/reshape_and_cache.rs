//! Writes new keys and values into the slots of the cache. One entry serves every storage type.
//!
//! Grid:   `(num_tokens, 2, 1)`: a CTA per row of K (0) or V (1).
//! Block:  128 threads, each copies chunks of 16 bytes; neighbours copy neighbours.
//! Shared: none.
//! Reads:  `slot_mapping [num_tokens]` i64, `k` and `v [num_tokens, num_kv_heads, row]` where the slot
//!         is not negative. Writes: that slot of `k_cache` and `v_cache`.
//! Barriers: none.
//! Numerics: none, bits are copied. Of two tokens with one slot, any 16 bytes may be
//! those of either.

use crate::abi::ReshapeAndCacheArgs;
use crate::device::{memory, warp};
use crate::geometry::THREADS;
use crate::offsets::{BlockDivisor, row_offset, slot_offset};
use crate::rows::{Chunks, copy_16};

/// The kernel's body.
///
/// # Safety
/// What the host's `CacheSizes::reshape_and_cache` and its caller establish: every slot is negative or inside
/// the cache, rows and slots lie inside their buffers, and all addresses are multiples of 16.
#[inline(always)]
pub unsafe fn reshape_and_cache(args: &ReshapeAndCacheArgs) {
    let [token, which, _] = warp::block();
    // SAFETY: `token < num_tokens`.
    let slot = unsafe { memory::load_i64(args.slot_mapping + token as u64 * 8) };
    if slot < 0 {
        return;
    }
    let divisor = BlockDivisor {
        magic: args.block_magic,
        shift: args.block_shift,
    };
    let (block, slot) = divisor.column_and_slot(slot as u32, args.block_size);
    let keys = which == 0;
    let pick = |k, v| if keys { k } else { v };
    let rows = if keys { args.k } else { args.v };
    let cache = if keys { args.k_cache } else { args.v_cache };
    let from_head = pick(args.k_head_stride, args.v_head_stride);
    let to_head = pick(args.k_cache_head_stride, args.v_cache_head_stride);
    let from = row_offset(token, 0, pick(args.k_token_stride, args.v_token_stride), 0);
    let to = slot_offset(
        block as i32,
        slot,
        pick(args.k_cache_block_stride, args.v_cache_block_stride),
        pick(args.k_cache_token_stride, args.v_cache_token_stride),
    );
    let (from, to) = (
        rows.wrapping_add(from as u64),
        cache.wrapping_add(to as u64),
    );

    let chunks = Chunks::new(args.row_chunks, args.row_magic, args.row_shift);
    let mut index = warp::thread();
    while index < args.num_kv_heads * args.row_chunks {
        let (head, chunk) = chunks.split(index);
        let from = from.wrapping_add(row_offset(head, chunk, from_head, 16) as u64);
        let to = to.wrapping_add(row_offset(head, chunk, to_head, 16) as u64);
        // SAFETY: inside the token's row and the slot, by this function's contract.
        unsafe { copy_16(from, to) };
        index += THREADS;
    }
}
