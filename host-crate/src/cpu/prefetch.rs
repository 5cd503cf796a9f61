//! Asks for rows that the kernels will reach later, while they compute on others.
//!
//! Hardware prefetchers follow a stream that is read in order and as fast as it comes. Where several
//! query heads share a row, the computation does neither; and no hardware knows where the block table
//! goes next. So the lines to come are asked for in the order of their addresses, a few at a time:
//! the memory system is never idle and its queues never overflow.

use super::simd::Simd;

/// Bytes per cache line; where it is larger, some requests repeat.
pub(crate) const LINE: usize = 64;

/// Bytes that hardware prefetchers do not look beyond; where they do, some requests repeat.
const PAGE: usize = 4096;

/// Where the rows of a tile stand relative to each other.
#[derive(Clone, Copy)]
pub(crate) struct Stretch {
    /// Elements from a row's address to that of the first head.
    pub offset: usize,
    /// Elements from one head to the next.
    pub stride: usize,
    /// Heads, at least 1.
    pub heads: usize,
    /// Elements per row.
    pub head_dim: usize,
    /// Tokens of one head that may follow each other; 1 if the heads of a token do.
    pub run: usize,
}

/// Rows still to ask for.
pub(crate) struct Lines<'a, T> {
    /// Rows after those of `run`.
    rows: &'a [*const T],
    /// Rows whose heads are being asked for, the present head and how many of its rows are done.
    run: &'a [*const T],
    head: usize,
    done: usize,
    stretch: Stretch,
    /// The present piece's next line and its end.
    at: *const u8,
    end: *const u8,
    /// Lines that were due and not asked for, since their piece had to be found first.
    owed: usize,
    /// Elements from a row that is being read to one to ask for with it, 0 for none: for single heads.
    pub beside: usize,
}

impl<'a, T> Lines<'a, T> {
    /// All heads of `stretch` of the tokens of `rows`.
    pub(crate) fn new(rows: &'a [*const T], mut stretch: Stretch) -> Self {
        if stretch.stride == stretch.head_dim {
            // Heads that follow each other are one piece.
            stretch.head_dim *= stretch.heads;
            stretch.heads = 1;
        }
        Self {
            rows,
            run: &[],
            head: stretch.heads,
            done: 0,
            stretch,
            at: std::ptr::null(),
            end: std::ptr::null(),
            owed: 0,
            beside: 0,
        }
    }

    /// No rows, but with every row that is read the one of the next head where the rows of a head end
    /// with their page: there a hardware prefetcher stops, and would find the next one late.
    pub(crate) fn beside(stretch: Stretch) -> Self {
        let run_bytes = stretch.run * stretch.head_dim * size_of::<T>();
        let ends = stretch.run > 1 && run_bytes <= PAGE;
        Self {
            beside: if ends { stretch.stride } else { 0 },
            ..Self::new(&[], stretch)
        }
    }

    /// Asks for `count` more lines, and for those that are owed.
    ///
    /// # Safety
    /// The CPU has `S`.
    #[inline(always)]
    pub(crate) unsafe fn ask<S: Simd>(&mut self, count: usize) {
        let count = count.saturating_add(self.owed);
        self.owed = 0;
        // SAFETY: the caller's promise.
        unsafe {
            if self.left() >= count {
                self.ask_piece::<S>(count);
            } else {
                self.ask_pieces::<S>(count);
            }
        }
    }

    /// Asks for `count` more lines of the present piece, or owes them: for loops that have no
    /// register to spare.
    ///
    /// # Safety
    /// The CPU has `S`.
    #[inline(always)]
    pub(crate) unsafe fn ask_or_owe<S: Simd>(&mut self, count: usize) {
        if self.left() >= count {
            // SAFETY: the caller's promise.
            unsafe { self.ask_piece::<S>(count) };
        } else {
            self.owed += count;
        }
    }

    /// Lines of the present piece.
    #[inline(always)]
    fn left(&self) -> usize {
        (self.end.addr() - self.at.addr()).div_ceil(LINE)
    }

    /// # Safety
    /// The CPU has `S`.
    #[inline(always)]
    unsafe fn ask_piece<S: Simd>(&mut self, count: usize) {
        for _ in 0..count {
            // SAFETY: the caller's promise; a prefetch takes any address.
            unsafe { S::prefetch(self.at) };
            self.at = self.at.wrapping_add(LINE);
        }
        // The last line may reach past the piece.
        self.end = self.end.max(self.at);
    }

    /// # Safety
    /// The CPU has `S`.
    #[inline(never)]
    unsafe fn ask_pieces<S: Simd>(&mut self, mut count: usize) {
        loop {
            let lines = self.left().min(count);
            // SAFETY: the caller's promise.
            unsafe { self.ask_piece::<S>(lines) };
            count -= lines;
            if count == 0 || !self.next_piece() {
                return;
            }
        }
    }

    /// Moves to the next piece; false if there is none.
    fn next_piece(&mut self) -> bool {
        if self.done == self.run.len() {
            self.done = 0;
            self.head += 1;
        }
        if self.head >= self.stretch.heads {
            if self.rows.is_empty() {
                self.done = self.run.len();
                return false;
            }
            (self.run, self.rows) = self.rows.split_at(self.stretch.run.min(self.rows.len()));
            self.head = 0;
        }
        let rows = &self.run[self.done..];
        let bytes = self.stretch.head_dim * size_of::<T>();
        let last = rows[rows.len() - 1].addr();
        let together = last.wrapping_sub(rows[0].addr()) == (rows.len() - 1) * bytes;
        let count = if together { rows.len() } else { 1 };
        let offset = self.stretch.offset + self.head * self.stretch.stride;
        let start = rows[0].wrapping_add(offset).cast::<u8>();
        self.done += count;
        self.end = start.wrapping_add(count * bytes);
        // A piece may start within a line.
        self.at = start.wrapping_sub(start.addr() % LINE);
        true
    }
}
