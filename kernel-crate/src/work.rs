//! What one decode CTA works on, and how it writes what it found.

use crate::abi::DecodeArgs;
use crate::device::element::Element;
use crate::device::{memory, warp};
use crate::offsets::{partial_index, row_offset};
use crate::softmax::{log_sum_exp, normalise};

/// The part of the batch that belongs to this CTA.
pub struct Work {
    /// Sequence.
    pub seq: u32,
    /// Kv head.
    pub kv_head: u32,
    /// First query head.
    pub first_head: u32,
    /// Query heads, at least 1 and at most those of a tile.
    pub heads: u32,
    /// First token of the split.
    pub begin: u32,
    /// End of the split's live tokens.
    pub end: u32,
    split: u32,
    len: u32,
}

impl Work {
    /// This CTA's part, or `None` if its split holds no token and another one writes the output.
    ///
    /// # Safety
    /// `args` are those of a launch whose grid is `geometry::decode_grid`.
    #[inline(always)]
    pub unsafe fn new(args: &DecodeArgs, heads_per_cta: u32) -> Option<Self> {
        let [seq, y, split] = warp::block();
        // SAFETY: `seq < num_seqs`.
        let len = unsafe { memory::load_i32(args.seq_lens + seq as u64 * 4) };
        let len = core::cmp::max(len, 0) as u32;
        let begin = split * args.split_tokens;
        if split > 0 && begin >= len {
            return None;
        }
        let kv_head = y.checked_div(args.head_tiles).unwrap_or(0);
        let first = (y - kv_head * args.head_tiles) * heads_per_cta;
        Some(Self {
            seq,
            kv_head,
            first_head: kv_head * args.group_size + first,
            heads: core::cmp::min(heads_per_cta, args.group_size - first),
            begin,
            end: core::cmp::min(len, begin + args.split_tokens),
            split,
            len,
        })
    }

    /// Writes one element of a finished state: to `out` (and `lse`) if the sequence has no other
    /// live split, else to the partial buffers. `head` counts from `first_head`.
    ///
    /// # Safety
    /// The buffers have their documented shapes, and one thread writes each element.
    #[inline(always)]
    pub unsafe fn write<T: Element, const D: u32>(
        &self,
        args: &DecodeArgs,
        head: u32,
        column: u32,
        [m, l, acc]: [f32; 3],
    ) {
        let head = self.first_head + head;
        // SAFETY: inside the documented shapes; column 0's thread writes (m, l).
        unsafe {
            if self.len <= args.split_tokens {
                let row = row_offset(self.seq, head, args.out_token_stride, args.out_head_stride);
                let index = self.seq as u64 * args.num_q_heads as u64 + head as u64;
                write_out::<T>([args.out, args.lse], row, index, column, [m, l, acc]);
            } else {
                let (heads, splits) = (args.num_q_heads, args.num_splits);
                let index = partial_index(self.seq, head, self.split, heads, splits);
                let element = index * D as u64 + column as u64;
                memory::store_f32(args.partial_out + element * 4, acc);
                if column == 0 {
                    memory::store_f32(args.partial_ml + index * 8, m);
                    memory::store_f32(args.partial_ml + index * 8 + 4, l);
                }
            }
        }
    }
}

/// Writes one element of `out`, and with column 0 the `lse` of its row.
///
/// # Safety
/// `out + (row + column)` elements and `lse + index` (unless `lse` is 0) are this thread's to write.
#[inline(always)]
pub unsafe fn write_out<T: Element>(
    [out, lse]: [u64; 2],
    row: i64,
    index: u64,
    column: u32,
    [m, l, acc]: [f32; 3],
) {
    let bytes = const { T::DTYPE.bytes() } as i64;
    let address = out.wrapping_add(((row + column as i64) * bytes) as u64);
    // SAFETY: by this function's contract.
    unsafe {
        T::store(address, normalise(l, acc));
        if column == 0 && lse != 0 {
            memory::store_f32(lse + index * 4, log_sum_exp(m, l));
        }
    }
}
