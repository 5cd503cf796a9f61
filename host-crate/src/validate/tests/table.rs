//! Contents of the block table, and lengths.

use super::*;

#[test]
fn refuses_table_entries_that_are_no_blocks() {
    let mut case = Case::new();
    case.table[1] = -1;
    let (sequence, num_blocks) = (0, 6);
    case.refused(
        Error::TableEntry {
            op: OP,
            sequence,
            column: 1,
            value: -1,
            num_blocks,
        },
        "decode: block_table[0][1] = -1, must be >= 0 and < num_blocks 6",
    );
    let mut case = Case::new();
    case.table[5] = 6;
    case.refused(
        Error::TableEntry {
            op: OP,
            sequence: 1,
            column: 2,
            value: 6,
            num_blocks,
        },
        "decode: block_table[1][2] = 6, must be < num_blocks 6",
    );
    // One token less and the entry is not live.
    case.seq_lens[1] = 32;
    case.inputs().validate(OP, &case.config).unwrap();
}

#[test]
fn refuses_lengths_past_the_table_and_below_zero() {
    let mut case = Case::new();
    case.seq_lens[1] = 49;
    let (max_blocks_per_seq, block_size) = (3, 16);
    case.refused(
        Error::SeqLenPastTable {
            op: OP,
            index: 1,
            value: 49,
            max_blocks_per_seq,
            block_size,
        },
        "decode: seq_lens[1] = 49, must be at most 48 (block table of 3 columns × block_size 16)",
    );
    case.seq_lens[1] = -7;
    case.refused(
        Error::NegativeSeqLen {
            op: OP,
            index: 1,
            value: -7,
        },
        "decode: seq_lens[1] = -7, must be at least 0",
    );
}

#[test]
fn a_table_can_be_checked_alone() {
    let table = BlockTable::new(&[5, 9, -1, -1], 1, 4);
    table.validate(OP, &[20], 16, 10).unwrap();
    let (sequence, column, value, num_blocks) = (0, 1, 9, 9);
    assert_eq!(
        table.validate(OP, &[20], 16, 9),
        Err(Error::TableEntry {
            op: OP,
            sequence,
            column,
            value,
            num_blocks
        })
    );
    assert_refused(
        table.validate(OP, &[20], 0, 10),
        Error::OutOfRange {
            op: OP,
            argument: "block_size",
            value: 0,
            min: 1,
            max: 0x7fff_ffff,
        },
        "decode: block_size = 0, must be between 1 and 2147483647",
    );
    let narrow = BlockTable::new(&[5, 9], 1, 2)
        .validate(OP, &[33], 16, 10)
        .unwrap_err();
    assert_eq!(
        narrow.to_string(),
        "decode: seq_lens[0] = 33, must be at most 32 (block table of 2 columns × block_size 16)"
    );
}

#[test]
fn accepts_lengths_of_zero_without_a_table() {
    let mut case = Case::new();
    case.seq_lens = vec![0, 0];
    let block_table = BlockTable::new(&[], SEQS, 0);
    DecodeInputs {
        block_table,
        ..case.inputs()
    }
    .validate(OP, &case.config)
    .unwrap();
}
