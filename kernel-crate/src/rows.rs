//! Which rows a CTA of the cache kernels copies, 16 bytes at a time.

use crate::device::memory;
use crate::offsets::BlockDivisor;

/// Cuts an index into (row, 16-byte chunk of the row).
#[derive(Clone, Copy)]
pub struct Chunks {
    divisor: BlockDivisor,
    per_row: u32,
}

impl Chunks {
    /// Rows of `per_row` chunks, with the divisor that the host computed for it.
    #[inline(always)]
    pub fn new(per_row: u32, magic: u32, shift: u32) -> Self {
        Self {
            divisor: BlockDivisor { magic, shift },
            per_row,
        }
    }

    /// (index / per_row, index % per_row).
    #[inline(always)]
    pub fn split(self, index: u32) -> (u32, u32) {
        self.divisor.column_and_slot(index, self.per_row)
    }
}

/// Copies 16 bytes.
///
/// # Safety
/// Both addresses are multiples of 16 in global memory; 16 initialised bytes stand at `from` that no
/// thread of the grid writes, and this thread alone writes the 16 bytes at `to`.
#[inline(always)]
pub unsafe fn copy_16(from: u64, to: u64) {
    // SAFETY: by this function's contract.
    unsafe { memory::store_16(to, memory::load_16(from)) }
}
