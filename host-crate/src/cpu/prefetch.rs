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

/// Rows of keys or of values, asked for line by line in even shares.
pub(crate) struct Rows<'a, T> {
    /// Rows after the present one.
    rows: &'a [*const T],
    /// Elements from a row's address to the wanted kv head's.
    offset: usize,
    /// Next line of the present row, and how many are left of it.
    at: *const u8,
    left: usize,
    lines: usize,
    /// A call's share is `share + rest / calls` lines; `due` counts the fractions.
    share: usize,
    rest: usize,
    due: usize,
    calls: usize,
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
        let bytes = head_dim * size_of::<T>();
        Self {
            k: Rows::new(&tile.k[..tile.len], offsets.0, bytes, calls.0),
            v: Rows::new(&tile.v[..tile.len], offsets.1, bytes, calls.1),
        }
    }
}

impl<'a, T> Rows<'a, T> {
    #[inline(always)]
    fn new(rows: &'a [*const T], offset: usize, bytes: usize, calls: usize) -> Self {
        // A row that starts within a line may end in one more; rows of a tensor are alike.
        let start = rows
            .first()
            .map_or(0, |row| row.wrapping_add(offset).addr() % LINE);
        let lines = (start + bytes).div_ceil(LINE);
        let all = rows.len() * lines;
        let (share, rest) = (all / calls, all % calls);
        let at = std::ptr::null();
        Self {
            rows,
            offset,
            at,
            left: 0,
            lines,
            share,
            rest,
            due: 0,
            calls,
        }
    }

    /// Asks for this call's share.
    ///
    /// # Safety
    /// The CPU has `S`.
    #[inline(always)]
    pub(crate) unsafe fn some<S: Simd>(&mut self) {
        let mut share = self.share;
        self.due += self.rest;
        if self.due >= self.calls {
            self.due -= self.calls;
            share += 1;
        }
        for _ in 0..share {
            if self.left == 0 {
                let Some((row, later)) = self.rows.split_first() else {
                    return;
                };
                self.rows = later;
                self.at = row.wrapping_add(self.offset).cast();
                self.left = self.lines;
            }
            // SAFETY: the caller's promise; a prefetch takes any address.
            unsafe { S::prefetch(self.at) };
            self.at = self.at.wrapping_add(LINE);
            self.left -= 1;
        }
    }
}
