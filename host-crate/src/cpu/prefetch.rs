//! Asks for rows that the kernels will reach later, while they compute on others.
//!
//! Hardware prefetchers follow a stream that is read in order and as fast as it comes. Where several
//! query heads share a row, the computation does neither; and no hardware knows where the block table
//! goes next. So the lines to come are asked for in the order of their addresses, a few at a time, so
//! that requests neither stop nor come in bursts. Single heads read fast and in order; they ask only
//! where hardware would lose the stream.

/// Bytes per cache line; where it is larger, some requests repeat.
pub(crate) const LINE: usize = 64;

/// Bytes that hardware prefetchers do not look beyond; where they do, some requests repeat.
const PAGE: usize = 4096;

/// Where the rows of some heads stand, of keys or of values.
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
    /// Tokens of one head that may follow each other; 1 where the heads of a token do.
    pub run: usize,
}

impl Stretch {
    /// Elements from a row's address to that of `head`.
    #[inline(always)]
    pub(crate) fn of(&self, head: usize) -> usize {
        self.offset + head * self.stride
    }
}

/// Asks for the cache line at `at`, which need not be a valid address.
#[inline(always)]
pub(crate) fn prefetch(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has the instruction, and it takes any address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
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

    /// No rows, but with every row that is read that of the next head, where a head's rows of a block
    /// take at most a page: hardware prefetchers do not look beyond it.
    pub(crate) fn beside(stretch: Stretch) -> Self {
        let run_bytes = stretch.run * stretch.head_dim * size_of::<T>();
        let ends = stretch.run > 1 && run_bytes <= PAGE && stretch.heads > 1;
        Self {
            beside: if ends { stretch.stride } else { 0 },
            ..Self::new(&[], stretch)
        }
    }

    /// Asks for `count` more lines, and for those that are owed.
    #[inline(always)]
    pub(crate) fn ask(&mut self, count: usize) {
        let count = count.saturating_add(self.owed);
        self.owed = 0;
        if self.left() >= count {
            self.ask_piece(count);
        } else {
            self.ask_pieces(count);
        }
    }

    /// Asks for `count` more lines of the present piece, or owes them: for loops that have no
    /// register to spare.
    #[inline(always)]
    pub(crate) fn ask_or_owe(&mut self, count: usize) {
        if self.left() >= count {
            self.ask_piece(count);
        } else {
            self.owed += count;
        }
    }

    /// Lines of the present piece.
    #[inline(always)]
    fn left(&self) -> usize {
        (self.end.addr() - self.at.addr()).div_ceil(LINE)
    }

    /// Asks for lines that the present piece has.
    #[inline(always)]
    fn ask_piece(&mut self, count: usize) {
        for _ in 0..count {
            prefetch(self.at);
            self.at = self.at.wrapping_add(LINE);
        }
        // The last line may reach past the piece.
        self.end = self.end.max(self.at);
    }

    /// Asks for lines of the present piece and of those after it. Out of line: where it is called,
    /// few registers are free.
    #[inline(never)]
    fn ask_pieces(&mut self, mut count: usize) {
        loop {
            let lines = self.left().min(count);
            self.ask_piece(lines);
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
        let start = rows[0]
            .wrapping_add(self.stretch.of(self.head))
            .cast::<u8>();
        self.done += count;
        self.end = start.wrapping_add(count * bytes);
        // A piece may start within a line.
        self.at = start.wrapping_sub(start.addr() % LINE);
        true
    }
}
