//! Asks for the next step's rows while the present one is computed.
//!
//! Hardware prefetchers follow a stream within a page; they cannot know where the block table goes
//! next. Requests are spread over a step's inner loops, so that the memory system is never idle and
//! its queues never overflow.

use super::simd::Simd;
use super::tile::Tile;

/// Bytes per cache line; where it is larger, some requests repeat.
const LINE: usize = 64;

/// The rows still to ask for: keys while scores are computed, values while they are summed.
pub(crate) struct Prefetch<'a, T> {
    pub k: Rows<'a, T>,
    pub v: Rows<'a, T>,
}

/// Rows of keys or of values.
pub(crate) struct Rows<'a, T> {
    rows: &'a [*const T],
    offset: usize,
    per_call: usize,
    lines: usize,
}

impl<'a, T> Prefetch<'a, T> {
    /// The rows of `tile` at the given offsets; `calls` ≥ 1 of [`Rows::some`] for the keys and for
    /// the values will follow.
    #[inline(always)]
    pub(crate) fn new(
        tile: &'a Tile<T>,
        offsets: (usize, usize),
        head_dim: usize,
        calls: (usize, usize),
    ) -> Self {
        let rows = |rows: &'a [*const T], offset: usize, calls: usize| {
            let rows = &rows[..tile.len];
            // A row that starts within a line may end in one more; rows of a tensor are alike.
            let start = rows
                .first()
                .map_or(0, |row| row.wrapping_add(offset).addr() % LINE);
            let lines = (start + head_dim * size_of::<T>()).div_ceil(LINE);
            Rows {
                rows,
                offset,
                per_call: rows.len().div_ceil(calls),
                lines,
            }
        };
        Self {
            k: rows(&tile.k, offsets.0, calls.0),
            v: rows(&tile.v, offsets.1, calls.1),
        }
    }
}

impl<T> Rows<'_, T> {
    /// Asks for this call's share.
    ///
    /// # Safety
    /// The CPU has `S`.
    #[inline(always)]
    pub(crate) unsafe fn some<S: Simd>(&mut self) {
        let (now, later) = self.rows.split_at(self.per_call.min(self.rows.len()));
        self.rows = later;
        for row in now {
            let mut at = row.wrapping_add(self.offset).cast::<u8>();
            for _ in 0..self.lines {
                // SAFETY: the caller's promise; a prefetch takes any address.
                unsafe { S::prefetch(at) };
                at = at.wrapping_add(LINE);
            }
        }
    }
}
