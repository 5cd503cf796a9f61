//! Where a sequence's rows stand: through a block table, or one after the other.

use super::TILE;
use super::tile::{SINGLE, Tile};
use crate::{BlockTable, CacheStrides, CacheView, Element};

/// Finds the rows of keys and values of kv head 0.
pub(crate) trait Source<T>: Sync {
    /// Fills `tile` with the addresses of tokens `first..first + len` of sequence `seq`; the entries
    /// up to the end of a register tile repeat the first row.
    ///
    /// # Safety
    /// `1 <= len <= TILE`, and the sequence has those tokens.
    unsafe fn rows(&self, seq: usize, first: usize, len: usize, tile: &mut Tile<T>);

    /// Elements from one kv head to the next, of keys and of values.
    fn head_strides(&self) -> (usize, usize);

    /// Tokens of one head that follow each other in memory, at least 1; 1 where the heads of a token do.
    fn run(&self) -> usize;
}

impl<T> Tile<T> {
    /// No tokens yet.
    pub(crate) const EMPTY: Self = Self {
        len: 0,
        k: [std::ptr::null(); TILE],
        v: [std::ptr::null(); TILE],
    };

    #[inline(always)]
    fn fill(&mut self, len: usize) {
        self.len = len;
        for i in len..(len + SINGLE - 1).min(TILE) {
            self.k[i] = self.k[0];
            self.v[i] = self.v[0];
        }
    }
}

/// Keys and values behind a block table.
pub(crate) struct Paged<'a, T> {
    pub k: CacheView<'a, T>,
    pub v: CacheView<'a, T>,
    pub table: BlockTable<'a>,
    pub block_size: usize,
}

impl<T: Element> Source<T> for Paged<'_, T> {
    #[inline(always)]
    unsafe fn rows(&self, seq: usize, first: usize, len: usize, tile: &mut Tile<T>) {
        let (k, v) = (self.k.strides(), self.v.strides());
        let mut column = seq * self.table.row_stride() + first / self.block_size;
        let mut slot = first % self.block_size;
        let mut i = 0;
        while i < len {
            let run = (self.block_size - slot).min(len - i);
            // SAFETY: validation has seen that live table entries are blocks of the caches and that
            // every slot of every block lies inside them; `first + len` tokens are live.
            unsafe {
                let block = *self.table.entries().get_unchecked(column) as usize;
                let key = self.k.data().as_ptr().add(block * k.block + slot * k.token);
                let value = self.v.data().as_ptr().add(block * v.block + slot * v.token);
                for j in 0..run {
                    *tile.k.get_unchecked_mut(i + j) = key.add(j * k.token);
                    *tile.v.get_unchecked_mut(i + j) = value.add(j * v.token);
                }
            }
            i += run;
            slot = 0;
            column += 1;
        }
        tile.fill(len);
    }

    fn head_strides(&self) -> (usize, usize) {
        (self.k.strides().head, self.v.strides().head)
    }

    fn run(&self) -> usize {
        if inner(self.k.strides()) && inner(self.v.strides()) {
            1
        } else {
            self.block_size
        }
    }
}

fn inner(strides: CacheStrides) -> bool {
    strides.head < strides.token
}

/// Keys and values of each sequence in one piece.
pub(crate) struct Contiguous<'a, T> {
    /// Keys of each sequence, at least `[len, num_kv_heads, head_dim]`.
    pub keys: &'a [&'a [T]],
    /// Values of each sequence, likewise.
    pub values: &'a [&'a [T]],
    /// Elements from one token to the next.
    pub token_stride: usize,
    /// Elements from one kv head to the next.
    pub head_stride: usize,
}

impl<T: Element> Source<T> for Contiguous<'_, T> {
    #[inline(always)]
    unsafe fn rows(&self, seq: usize, first: usize, len: usize, tile: &mut Tile<T>) {
        let (k, v) = (self.keys[seq].as_ptr(), self.values[seq].as_ptr());
        for i in 0..len {
            // SAFETY: the caller asks for live tokens only, which the slices hold.
            unsafe {
                *tile.k.get_unchecked_mut(i) = k.add((first + i) * self.token_stride);
                *tile.v.get_unchecked_mut(i) = v.add((first + i) * self.token_stride);
            }
        }
        tile.fill(len);
    }

    fn head_strides(&self) -> (usize, usize) {
        (self.head_stride, self.head_stride)
    }

    fn run(&self) -> usize {
        if self.head_stride < self.token_stride {
            1
        } else {
            TILE
        }
    }
}
