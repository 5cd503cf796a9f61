//! Asks for the next step's rows while the present one is computed.
//!
//! Hardware prefetchers follow a stream within a page; they cannot know where the block table goes
//! next. So the lines of the next tile are asked for in the order of their addresses, as many at a
//! time as the present tile's loops use up: the memory system is never idle, its queues never
//! overflow, and the streams within pages help it along.

use super::simd::Simd;
use super::tile::Tile;

/// Bytes per cache line; where it is larger, some requests repeat.
pub(crate) const LINE: usize = 64;

/// Bytes per page; where it is larger, some requests repeat.
const PAGE: usize = 4096;

/// The rows still to ask for: keys while scores are computed, values while they are summed.
pub(crate) struct Prefetch<'a, T> {
    pub k: Rows<'a, T>,
    pub v: Rows<'a, T>,
}

/// Neighbouring heads of a tile's tokens, of keys or of values.
#[derive(Clone, Copy)]
pub(crate) struct Stretch {
    /// Elements from a row's address to that of the first head.
    pub offset: usize,
    /// Elements from one head to the next.
    pub stride: usize,
    /// Heads, at least 1.
    pub heads: usize,
}

/// Rows of keys or of values, asked for line by line.
pub(crate) struct Rows<'a, T> {
    /// Tokens after the present one.
    tokens: &'a [*const T],
    /// Elements from a token's address to its first piece.
    offset: usize,
    /// The present token's next line and the end of the present piece.
    at: *const u8,
    end: *const u8,
    /// Bytes of a piece, bytes from one to the next, how many a token has, and how many are left.
    bytes: usize,
    stride: usize,
    pieces: usize,
    left: usize,
}

impl<'a, T> Prefetch<'a, T> {
    /// The heads of `tile` that `k` and `v` name.
    #[inline(always)]
    pub(crate) fn new(tile: &'a Tile<T>, k: Stretch, v: Stretch, head_dim: usize) -> Self {
        Self {
            k: Rows::new(&tile.k[..tile.len], k, head_dim),
            v: Rows::new(&tile.v[..tile.len], v, head_dim),
        }
    }
}

impl<'a, T> Rows<'a, T> {
    #[inline(always)]
    fn new(tokens: &'a [*const T], stretch: Stretch, head_dim: usize) -> Self {
        let Stretch {
            offset,
            stride,
            heads,
        } = stretch;
        // Heads that follow each other are one piece.
        let (pieces, len) = if stride == head_dim {
            (1, heads * head_dim)
        } else {
            (heads, head_dim)
        };
        Self {
            tokens,
            offset,
            at: std::ptr::null(),
            end: std::ptr::null(),
            bytes: len * size_of::<T>(),
            stride: stride * size_of::<T>(),
            pieces,
            left: 0,
        }
    }

    /// Asks for one line of every page, so that addresses are translated side by side: a request
    /// waits for the translation of its page, and those behind it with it.
    ///
    /// # Safety
    /// The CPU has `S`.
    #[inline(always)]
    pub(crate) unsafe fn pages<S: Simd>(&self) {
        let mut last = usize::MAX;
        for &token in self.tokens {
            let start = token.wrapping_add(self.offset).cast::<u8>();
            let end = start.wrapping_add((self.pieces - 1) * self.stride + self.bytes);
            let mut at = start;
            while at < end {
                if at.addr() / PAGE != last {
                    last = at.addr() / PAGE;
                    // SAFETY: the caller's promise; a prefetch takes any address.
                    unsafe { S::prefetch(at) };
                }
                at = at.wrapping_add(PAGE - at.addr() % PAGE);
            }
        }
    }

    /// Asks for up to `count` more lines.
    ///
    /// # Safety
    /// The CPU has `S`.
    #[inline(always)]
    pub(crate) unsafe fn lines<S: Simd>(&mut self, count: usize) {
        let mut left = count;
        while left > 0 {
            if self.at >= self.end && !self.next_piece() {
                return;
            }
            let lines = (self.end.addr() - self.at.addr()).div_ceil(LINE).min(left);
            left -= lines;
            for _ in 0..lines {
                // SAFETY: the caller's promise; a prefetch takes any address.
                unsafe { S::prefetch(self.at) };
                self.at = self.at.wrapping_add(LINE);
            }
        }
    }

    /// Moves to the next piece; false if there is none.
    #[inline(always)]
    fn next_piece(&mut self) -> bool {
        let start = if self.left > 0 {
            self.left -= 1;
            self.end.wrapping_sub(self.bytes).wrapping_add(self.stride)
        } else if let Some((token, later)) = self.tokens.split_first() {
            self.tokens = later;
            self.left = self.pieces - 1;
            token.wrapping_add(self.offset).cast()
        } else {
            return false;
        };
        self.end = start.wrapping_add(self.bytes);
        // A piece may start within a line.
        self.at = start.wrapping_sub(start.addr() % LINE);
        true
    }
}
