//! Offset arithmetic of the kernels: plain functions, tested on the host against 128-bit integers.
//!
//! Offsets are in elements and 64 bits wide on the device: an element offset passes 2^31 at
//! block 32 of a pool whose blocks hold 2^26 elements.

/// Offset of a slot of a block: `block * block_stride + slot * token_stride`.
///
/// The host's validation guarantees that the result of every live slot fits; nothing wraps then.
#[inline(always)]
pub const fn slot_offset(block: i32, slot: u32, block_stride: i64, token_stride: i64) -> i64 {
    (block as i64)
        .wrapping_mul(block_stride)
        .wrapping_add((slot as i64).wrapping_mul(token_stride))
}

/// Offset of a (row, head) pair of `q`, `out` or one cache block: `row * row_stride + head * head_stride`.
#[inline(always)]
pub const fn row_offset(row: u32, head: u32, row_stride: i64, head_stride: i64) -> i64 {
    (row as i64)
        .wrapping_mul(row_stride)
        .wrapping_add((head as i64).wrapping_mul(head_stride))
}

/// Index of a split's state in the partial buffers: `(seq * num_q_heads + head) * num_splits + split`.
#[inline(always)]
pub const fn partial_index(
    seq: u32,
    head: u32,
    split: u32,
    num_q_heads: u32,
    num_splits: u32,
) -> u64 {
    (seq as u64 * num_q_heads as u64 + head as u64) * num_splits as u64 + split as u64
}

/// Division by the block size without dividing: `t / d = (2 t · magic >> 32) >> shift` for every
/// t below 2^31, with shift = ceil(log2 d) and magic = ceil(2^(31 + shift) / d).
///
/// The error of the magic number, magic · d − 2^(31 + shift), is below d ≤ 2^shift, so t times it
/// stays below 2^(31 + shift) and never reaches the next quotient (Granlund and Montgomery, 1994).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockDivisor {
    /// `magic` above.
    pub magic: u32,
    /// `shift` above.
    pub shift: u32,
}

impl BlockDivisor {
    /// The divisor for a block size of 1 to 2^31 tokens. Of 0 it makes a divisor by 1.
    pub const fn new(block_size: u32) -> Self {
        let block_size = if block_size == 0 {
            1
        } else {
            block_size as u64
        };
        let shift = block_size.next_power_of_two().trailing_zeros();
        let magic = (1u64 << (31 + shift)).div_ceil(block_size);
        Self {
            magic: magic as u32,
            shift,
        }
    }

    /// The block table column and the slot of token `t`, `t < 2^31`: `(t / block_size, t % block_size)`.
    #[inline(always)]
    pub const fn column_and_slot(self, t: u32, block_size: u32) -> (u32, u32) {
        let high = ((t.wrapping_mul(2) as u64).wrapping_mul(self.magic as u64) >> 32) as u32;
        let column = high >> self.shift;
        (column, t.wrapping_sub(column.wrapping_mul(block_size)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn slot_offset_equals_wide_arithmetic(
            block in 0..=i32::MAX, slot in 0..=u32::MAX >> 1,
            block_stride in 0..=1i64 << 31, token_stride in 0..=1i64 << 30,
        ) {
            let wide = block as i128 * block_stride as i128 + slot as i128 * token_stride as i128;
            prop_assert_eq!(slot_offset(block, slot, block_stride, token_stride) as i128, wide);
        }

        #[test]
        fn row_offset_equals_wide_arithmetic(
            row in 0..=i32::MAX as u32, head in 0..=1u32 << 20,
            row_stride in -(1i64 << 31)..=1i64 << 31, head_stride in -(1i64 << 40)..=1i64 << 40,
        ) {
            let wide = row as i128 * row_stride as i128 + head as i128 * head_stride as i128;
            prop_assert_eq!(row_offset(row, head, row_stride, head_stride) as i128, wide);
        }

        #[test]
        fn partial_index_equals_wide_arithmetic(
            seq in 0..=i32::MAX as u32, head in 0u32..1024, split in 0u32..8192,
        ) {
            let wide = (seq as u128 * 1024 + head as u128) * 8192 + split as u128;
            prop_assert_eq!(partial_index(seq, head, split, 1024, 8192) as u128, wide);
        }

        #[test]
        fn column_and_slot_divide(t in 0..=i32::MAX as u32, block_size in 1..=1u32 << 31) {
            let found = BlockDivisor::new(block_size).column_and_slot(t, block_size);
            prop_assert_eq!(found, (t / block_size, t % block_size));
        }

        #[test]
        fn column_and_slot_divide_at_multiples(
            column in 0..=i32::MAX as u32, shift in 0u32..=31, below in 0u32..3, ahead in 0u32..3,
        ) {
            // Block sizes around powers of two, tokens around multiples of them.
            let block_size = (1u32 << shift).saturating_sub(below).max(1);
            let t = (column / block_size * block_size + ahead).saturating_sub(1).min(i32::MAX as u32);
            let found = BlockDivisor::new(block_size).column_and_slot(t, block_size);
            prop_assert_eq!(found, (t / block_size, t % block_size));
        }
    }

    #[test]
    fn small_block_sizes_divide_exactly_at_the_ends() {
        for block_size in 1..=1024 {
            let divisor = BlockDivisor::new(block_size);
            for t in [
                0,
                1,
                block_size - 1,
                block_size,
                block_size + 1,
                i32::MAX as u32 - 1,
                i32::MAX as u32,
            ] {
                assert_eq!(
                    divisor.column_and_slot(t, block_size),
                    (t / block_size, t % block_size)
                );
            }
        }
    }

    #[test]
    fn offsets_pass_two_to_the_31_and_32() {
        assert_eq!(slot_offset(32, 0, 1 << 26, 128), 1 << 31);
        assert_eq!(slot_offset(64, 1, 1 << 26, 128), (1 << 32) + 128);
    }
}
