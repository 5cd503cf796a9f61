//! The block table.

/// For every sequence, the physical blocks that hold its tokens in logical order: i32
/// `[num_seqs, max_blocks_per_seq]`. Only the first `ceil(len / block_size)` entries of a row are
/// read; the rest may hold −1 or anything.
#[derive(Clone, Copy, Debug)]
pub struct BlockTable<'a> {
    entries: &'a [i32],
    num_seqs: usize,
    max_blocks_per_seq: usize,
    row_stride: usize,
}

impl<'a> BlockTable<'a> {
    /// A dense table.
    pub fn new(entries: &'a [i32], num_seqs: usize, max_blocks_per_seq: usize) -> Self {
        Self::with_stride(entries, num_seqs, max_blocks_per_seq, max_blocks_per_seq)
    }

    /// A dense table of `u32` entries. The bits are taken as they are: an entry ≥ 2^31 is refused
    /// in the live range, as a negative one.
    pub fn from_u32(entries: &'a [u32], num_seqs: usize, max_blocks_per_seq: usize) -> Self {
        Self::new(i32_from_u32(entries), num_seqs, max_blocks_per_seq)
    }

    /// A table whose rows start `row_stride` entries apart, for instance the first columns of a
    /// wider one.
    pub fn with_stride(
        entries: &'a [i32],
        num_seqs: usize,
        max_blocks_per_seq: usize,
        row_stride: usize,
    ) -> Self {
        Self {
            entries,
            num_seqs,
            max_blocks_per_seq,
            row_stride,
        }
    }

    /// The entries, gaps included.
    #[inline]
    pub fn entries(&self) -> &'a [i32] {
        self.entries
    }

    /// Number of sequences.
    #[inline]
    pub fn num_seqs(&self) -> usize {
        self.num_seqs
    }

    /// Entries per row: a sequence holds at most this many blocks.
    #[inline]
    pub fn max_blocks_per_seq(&self) -> usize {
        self.max_blocks_per_seq
    }

    /// Entries from one row to the next.
    #[inline]
    pub fn row_stride(&self) -> usize {
        self.row_stride
    }

    /// The entries of a sequence's row; `None` past the table or its data.
    #[inline]
    pub fn row(&self, seq: usize) -> Option<&'a [i32]> {
        if seq >= self.num_seqs {
            return None;
        }
        let start = seq.checked_mul(self.row_stride)?;
        self.entries
            .get(start..start.checked_add(self.max_blocks_per_seq)?)
    }
}

/// Views `u32` block ids or lengths as the `i32` that the kernels read; same bits.
pub fn i32_from_u32(values: &[u32]) -> &[i32] {
    // SAFETY: i32 and u32 have the same size and alignment, every bit pattern is a value of both,
    // and the result borrows `values` for the same lifetime.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast::<i32>(), values.len()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_follow_the_stride() {
        let entries = [1, 2, 3, 4, 5, 6, 7, 8];
        let table = BlockTable::with_stride(&entries, 2, 3, 5);
        assert_eq!(table.row(0), Some(&[1, 2, 3][..]));
        assert_eq!(table.row(1), Some(&[6, 7, 8][..]));
        assert_eq!(table.row(2), None);
        assert_eq!(
            BlockTable::new(&entries, 3, 4).row(2),
            None,
            "row past the data"
        );
        assert_eq!(
            BlockTable::with_stride(&entries, 3, 4, usize::MAX).row(2),
            None
        );
    }

    #[test]
    fn unsigned_entries_keep_their_bits() {
        assert_eq!(i32_from_u32(&[0, 7, u32::MAX]), [0, 7, -1]);
        let table = BlockTable::from_u32(&[3, 4], 1, 2);
        assert_eq!(table.row(0), Some(&[3, 4][..]));
    }
}
