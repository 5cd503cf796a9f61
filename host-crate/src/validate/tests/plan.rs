//! What a plan adds: its batch and capacity, the output, `lse` and the workspace.

use half::f16;

use super::*;
use crate::error::Shape;

#[test]
fn refuses_what_the_plan_was_not_made_for() {
    let case = Case::new();
    let plan = case.plan();
    let bytes = plan.workspace_bytes();
    let mut data = case.out.clone();
    let out = RowsViewMut::contiguous(&mut data, SEQS, 4, 32);
    let check = |inputs: &DecodeInputs<'_, f16>, lse: Option<&[f32]>, bytes| {
        plan.validate(OP, inputs, &out, lse, bytes)
    };

    let inputs = DecodeInputs {
        seq_lens: &case.seq_lens[..1],
        ..case.inputs()
    };
    let (argument, dimension) = ("seq_lens", "length");
    assert_refused(
        check(&inputs, None, bytes),
        Error::ShapeMismatch {
            op: OP,
            argument,
            dimension,
            found: 1,
            expected: 2,
        },
        "decode: seq_lens has length 1, must have 2",
    );

    let table = [0; 10];
    let block_table = BlockTable::new(&table, SEQS, 5);
    let inputs = DecodeInputs {
        seq_lens: &[64, 65],
        block_table,
        ..case.inputs()
    };
    assert_refused(
        check(&inputs, None, bytes),
        Error::SeqLenPastCapacity {
            op: OP,
            index: 1,
            value: 65,
            max_seq_len: 64,
        },
        "decode: seq_lens[1] = 65, must be at most max_seq_len 64",
    );

    let shape = Shape(vec![("num_seqs", 2), ("num_q_heads", 4)]);
    assert_refused(
        check(&case.inputs(), Some(&[0.0; 7]), bytes),
        Error::BufferTooSmall {
            op: OP,
            argument: "lse",
            found: 7,
            needed: 8,
            shape,
        },
        "decode: lse holds 7 elements, must hold at least 8 for num_seqs 2, num_q_heads 4",
    );

    assert_eq!(bytes, 2 * 4 * 2 * 34 * 4);
    assert_refused(
        check(&case.inputs(), None, bytes - 1),
        Error::WorkspaceTooSmall {
            op: OP,
            found: 2175,
            needed: 2176,
        },
        "decode: the workspace holds 2175 bytes, must hold at least 2176",
    );
}

#[test]
fn refuses_outputs_whose_rows_overlap() {
    let case = Case::new();
    let plan = case.plan();
    let mut data = vec![f16::ZERO; 4096];
    let mut check = |token_stride, head_stride| {
        let out = RowsViewMut::with_strides(&mut data, SEQS, 4, 32, token_stride, head_stride);
        plan.validate(OP, &case.inputs(), &out, None, plan.workspace_bytes())
    };
    for (token_stride, head_stride) in [(128, 32), (32, 64), (1000, 40), (40, 80)] {
        check(token_stride, head_stride).unwrap();
    }
    for (token_stride, head_stride) in [(0, 32), (120, 32), (128, 24), (32, 56), (128, 0), (64, 64)]
    {
        let (num_seqs, num_heads, head_dim) = (2, 4, 32);
        assert_refused(
            check(token_stride, head_stride),
            Error::OutputOverlap {
                op: OP,
                token_stride,
                head_stride,
                num_seqs,
                num_heads,
                head_dim,
            },
            &format!(
                "decode: out.token_stride = {token_stride} and out.head_stride = {head_stride} make \
                 rows overlap, must keep 2 × 4 rows of 32 elements apart"
            ),
        );
    }
}
