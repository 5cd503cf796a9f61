//! Asks for the next step's rows while the present one is computed.
//!
//! Hardware prefetchers follow a stream within a page; they cannot know where the block table goes
//! next. Requests are spread over a step's inner loops, so that the memory system is never idle and
//! its queues never overflow.

use super::simd::Simd;
use super::tile::Tile;

/// Bytes per cache line; where it is larger, some requests repeat.
const LINE: usize = 64;

/// The rows still to ask for.
pub(crate) struct Prefetch<'a, T> {
    tile: &'a Tile<T>,
    k_offset: usize,
    v_offset: usize,
    /// Rows asked for: keys first, then values.
    done: usize,
    per_call: usize,
    row_bytes: usize,
}

impl<'a, T> Prefetch<'a, T> {
    /// The rows of `tile` at the given offsets, in `calls` ≥ 1 calls of [`Prefetch::some`].
    #[inline(always)]
    pub(crate) fn new(
        tile: &'a Tile<T>,
        k_offset: usize,
        v_offset: usize,
        head_dim: usize,
        calls: usize,
    ) -> Self {
        let per_call = (2 * tile.len).div_ceil(calls);
        Self {
            tile,
            k_offset,
            v_offset,
            done: 0,
            per_call,
            row_bytes: head_dim * size_of::<T>(),
        }
    }

    /// Asks for this call's share.
    ///
    /// # Safety
    /// The CPU has `S`.
    #[inline(always)]
    pub(crate) unsafe fn some<S: Simd>(&mut self) {
        let len = self.tile.len;
        let end = (self.done + self.per_call).min(2 * len);
        while self.done < end {
            let row = if self.done < len {
                self.tile.k[self.done].wrapping_add(self.k_offset)
            } else {
                self.tile.v[self.done - len].wrapping_add(self.v_offset)
            };
            let row = row.cast::<u8>();
            // Rows may start within a line.
            let mut at = row.wrapping_sub(row.addr() % LINE);
            let row_end = row.addr() + self.row_bytes;
            while at.addr() < row_end {
                // SAFETY: the caller's promise; a prefetch takes any address.
                unsafe { S::prefetch(at) };
                at = at.wrapping_add(LINE);
            }
            self.done += 1;
        }
    }
}
