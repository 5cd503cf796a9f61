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

/// The block table column and the slot of token `t`: `(t / block_size, t % block_size)`.
///
/// `block_shift` as [`crate::abi::block_shift`] gives it. A `block_size` of 0, which the host
/// refuses, gives (0, 0): a panic path would put a function call into the PTX.
#[inline(always)]
pub const fn column_and_slot(t: u32, block_size: u32, block_shift: u32) -> (u32, u32) {
    if block_shift < 32 {
        return (t >> block_shift, t & block_size.wrapping_sub(1));
    }
    match t.checked_div(block_size) {
        Some(column) => (column, t.wrapping_sub(column.wrapping_mul(block_size))),
        None => (0, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::block_shift;
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
        fn column_and_slot_divide(t in 0..=i32::MAX as u32, block_size in 1..=u32::MAX >> 1) {
            let found = column_and_slot(t, block_size, block_shift(block_size));
            prop_assert_eq!(found, (t / block_size, t % block_size));
        }

        #[test]
        fn column_and_slot_shift(t in 0..=i32::MAX as u32, shift in 0u32..31) {
            let found = column_and_slot(t, 1 << shift, shift);
            prop_assert_eq!(found, (t / (1 << shift), t % (1 << shift)));
        }
    }

    #[test]
    fn offsets_pass_two_to_the_31_and_32() {
        assert_eq!(slot_offset(32, 0, 1 << 26, 128), 1 << 31);
        assert_eq!(slot_offset(64, 1, 1 << 26, 128), (1 << 32) + 128);
    }
}
