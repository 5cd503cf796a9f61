//! What the pool refuses.

/// Why a pool or sequence operation was refused. Nothing has changed when one is returned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// There are fewer free blocks than needed.
    #[error(
        "append: {tokens} more tokens after {len} need {needed} blocks, the pool has {available} \
         available of {num_blocks}"
    )]
    Exhausted {
        /// Tokens to append.
        tokens: usize,
        /// Tokens that the sequence holds.
        len: usize,
        /// New blocks needed.
        needed: usize,
        /// Blocks that are free or can be evicted.
        available: usize,
        /// Blocks of the pool.
        num_blocks: usize,
    },

    /// Every block is in use.
    #[error("allocate: 1 block is needed, the pool has 0 available of {num_blocks}")]
    NoBlock {
        /// Blocks of the pool.
        num_blocks: usize,
    },

    /// A size of a new pool lies outside its range.
    #[error("pool: {argument} = {value}, must be between {min} and {max}")]
    OutOfRange {
        /// `num_blocks` or `block_size`.
        argument: &'static str,
        /// Its value.
        value: usize,
        /// Least value allowed.
        min: usize,
        /// Largest value allowed.
        max: usize,
    },

    /// A sequence would be longer than lengths can say.
    #[error("append: {tokens} more tokens after {len} make a sequence longer than {max}")]
    SequenceTooLong {
        /// Tokens to append.
        tokens: usize,
        /// Tokens that the sequence holds.
        len: usize,
        /// Most tokens of a sequence.
        max: usize,
    },

    /// A position past the end of a sequence.
    #[error("{op}: position {position}, must be at most the sequence's length {len}")]
    PastEnd {
        /// `truncate` or `slots`.
        op: &'static str,
        /// The position asked for.
        position: usize,
        /// Tokens that the sequence holds.
        len: usize,
    },

    /// A row of the block table has fewer columns than the sequence has blocks.
    #[error("write_row: the row has {columns} columns, must have at least {blocks}")]
    RowTooShort {
        /// Columns of the row.
        columns: usize,
        /// Blocks of the sequence.
        blocks: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::{BlockPool, SequenceBlocks};

    /// The error and its text.
    #[track_caller]
    fn refused<T: std::fmt::Debug>(result: Result<T, PoolError>, error: PoolError, text: &str) {
        assert_eq!(error.to_string(), text);
        assert_eq!(result.unwrap_err(), error);
    }

    #[test]
    fn exhaustion_names_need_and_have() {
        let pool = BlockPool::new(3, 4).unwrap();
        let mut sequence = SequenceBlocks::new(&pool);
        sequence.append(6).unwrap();
        refused(
            sequence.append(9),
            PoolError::Exhausted {
                tokens: 9,
                len: 6,
                needed: 2,
                available: 1,
                num_blocks: 3,
            },
            "append: 9 more tokens after 6 need 2 blocks, the pool has 1 available of 3",
        );
        let _last = pool.allocate().unwrap();
        refused(
            pool.allocate(),
            PoolError::NoBlock { num_blocks: 3 },
            "allocate: 1 block is needed, the pool has 0 available of 3",
        );
    }

    #[test]
    fn sizes_out_of_range_name_the_argument() {
        refused(
            BlockPool::new(1 << 31, 16),
            PoolError::OutOfRange {
                argument: "num_blocks",
                value: 1 << 31,
                min: 0,
                max: i32::MAX as usize,
            },
            "pool: num_blocks = 2147483648, must be between 0 and 2147483647",
        );
        refused(
            BlockPool::new(4, 0),
            PoolError::OutOfRange {
                argument: "block_size",
                value: 0,
                min: 1,
                max: i32::MAX as usize,
            },
            "pool: block_size = 0, must be between 1 and 2147483647",
        );
    }

    #[test]
    fn a_sequence_past_the_largest_length_is_refused() {
        let pool = BlockPool::new(2, i32::MAX as usize).unwrap();
        let mut sequence = SequenceBlocks::new(&pool);
        sequence.append(5).unwrap();
        for tokens in [i32::MAX as usize - 4, usize::MAX] {
            let (len, max) = (5, i32::MAX as usize);
            refused(
                sequence.append(tokens),
                PoolError::SequenceTooLong { tokens, len, max },
                &format!(
                    "append: {tokens} more tokens after 5 make a sequence longer than 2147483647"
                ),
            );
        }
        assert!(sequence.append(i32::MAX as usize - 5).unwrap().is_none());
    }

    #[test]
    fn positions_past_the_end_are_refused() {
        let pool = BlockPool::new(2, 4).unwrap();
        let mut sequence = SequenceBlocks::new(&pool);
        sequence.append(5).unwrap();
        let past = |op| PoolError::PastEnd {
            op,
            position: 6,
            len: 5,
        };
        let text = |op| format!("{op}: position 6, must be at most the sequence's length 5");
        refused(sequence.truncate(6), past("truncate"), &text("truncate"));
        refused(sequence.slots(0..6), past("slots"), &text("slots"));
        refused(
            sequence.write_row(&mut [0]),
            PoolError::RowTooShort {
                columns: 1,
                blocks: 2,
            },
            "write_row: the row has 1 columns, must have at least 2",
        );
    }
}
