//! Attention over contiguous keys and values on the CPU: what paging is compared with.
//!
//! The kernels are those of [`crate::cpu`]; only the addresses come from a base and a stride instead
//! of a table. For the same plan the output has the same bits as the paged one.

use crate::cpu::{self, InstructionSet};
use crate::error::Shape;
use crate::{
    ALIGNMENT, BlockTable, CacheLayout, CacheView, DecodeInputs, Element, Error, Op, Plan,
    RowsView, RowsViewMut,
};

/// What one call reads.
#[derive(Clone, Copy, Debug)]
pub struct ContiguousInputs<'a, T> {
    /// Queries, `[num_seqs, num_q_heads, head_dim]`.
    pub q: RowsView<'a, T>,
    /// Keys by sequence, each `[seq_lens[s], num_kv_heads, head_dim]` (more is ignored).
    pub keys: &'a [&'a [T]],
    /// Values by sequence, likewise.
    pub values: &'a [&'a [T]],
    /// Lengths in tokens, `[num_seqs]`.
    pub seq_lens: &'a [i32],
}

/// Decode attention over contiguous keys and values; `out`, `lse` and `workspace` as for
/// [`crate::cpu::decode`]. The plan's `block_size` plays no part.
///
/// # Errors
/// [`Error::ShapeMismatch`], [`Error::BufferTooSmall`], [`Error::BaseNotAligned`] for keys and
/// values; for the rest what [`Plan::validate`] refuses. Nothing has been written then.
pub fn decode<T: Element>(
    plan: &Plan,
    inputs: &ContiguousInputs<'_, T>,
    out: RowsViewMut<'_, T>,
    lse: Option<&mut [f32]>,
    workspace: &mut [f32],
) -> Result<(), Error> {
    decode_on(InstructionSet::detect(), plan, inputs, out, lse, workspace)
}

/// [`decode`] on a chosen instruction set, see [`crate::cpu::decode_on`].
///
/// # Errors
/// As for [`decode`].
pub fn decode_on<T: Element>(
    set: InstructionSet,
    plan: &Plan,
    inputs: &ContiguousInputs<'_, T>,
    out: RowsViewMut<'_, T>,
    lse: Option<&mut [f32]>,
    workspace: &mut [f32],
) -> Result<(), Error> {
    validate(plan, inputs, &out, lse.as_deref(), size_of_val(workspace))?;
    let config = plan.config();
    let source = cpu::Contiguous {
        keys: inputs.keys,
        values: inputs.values,
        token_stride: config.num_kv_heads * config.head_dim,
        head_stride: config.head_dim,
    };
    // SAFETY: `validate` has accepted every argument.
    unsafe {
        cpu::run(
            set,
            plan,
            &source,
            &inputs.q,
            inputs.seq_lens,
            out,
            lse,
            workspace,
        )
    }
    Ok(())
}

fn validate<T: Element>(
    plan: &Plan,
    inputs: &ContiguousInputs<'_, T>,
    out: &RowsViewMut<'_, T>,
    lse: Option<&[f32]>,
    workspace_bytes: usize,
) -> Result<(), Error> {
    let op = Op::Contiguous;
    let config = plan.config();
    let (num_kv_heads, head_dim) = (config.num_kv_heads, config.head_dim);
    // The checks of the other arguments are those of a paged call whose sequences are empty.
    let no_blocks = CacheView::dense(
        &[],
        CacheLayout::Nhd,
        0,
        config.block_size,
        num_kv_heads,
        head_dim,
    );
    let no_tokens = vec![0; inputs.seq_lens.len()];
    let rest = DecodeInputs {
        q: inputs.q,
        k_cache: no_blocks,
        v_cache: no_blocks,
        block_table: BlockTable::new(&[], no_tokens.len(), 0),
        seq_lens: &no_tokens,
    };
    plan.validate(op, &rest, out, lse, workspace_bytes)?;

    for (index, &value) in inputs.seq_lens.iter().enumerate() {
        let Ok(len) = usize::try_from(value) else {
            return Err(Error::NegativeSeqLen { op, index, value });
        };
        if len > plan.max_seq_len() {
            let max_seq_len = plan.max_seq_len();
            return Err(Error::SeqLenPastCapacity {
                op,
                index,
                value,
                max_seq_len,
            });
        }
    }
    for (argument, tensors) in [("keys", inputs.keys), ("values", inputs.values)] {
        if tensors.len() != inputs.seq_lens.len() {
            let (found, expected) = (tensors.len(), inputs.seq_lens.len());
            return Err(Error::ShapeMismatch {
                op,
                argument,
                dimension: "num_seqs",
                found,
                expected,
            });
        }
        for (sequence, (tensor, &len)) in tensors.iter().zip(inputs.seq_lens).enumerate() {
            let needed = (len as usize)
                .saturating_mul(num_kv_heads)
                .saturating_mul(head_dim);
            if tensor.len() < needed {
                let shape = Shape(vec![
                    ("sequence", sequence),
                    ("len", len as usize),
                    ("num_kv_heads", num_kv_heads),
                    ("head_dim", head_dim),
                ]);
                let found = tensor.len();
                return Err(Error::BufferTooSmall {
                    op,
                    argument,
                    found,
                    needed,
                    shape,
                });
            }
            let address = tensor.as_ptr().addr();
            if needed > 0 && !address.is_multiple_of(ALIGNMENT) {
                let (address, alignment) = (address as u64, ALIGNMENT);
                return Err(Error::BaseNotAligned {
                    op,
                    argument,
                    address,
                    alignment,
                });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AttentionConfig, DType, DeviceLimits, SplitPolicy};

    /// `[2 sequences of 3 tokens, 2 kv heads, head_dim 32]`, with the given parts.
    fn run(keys: &[&[f32]], values: &[&[f32]], seq_lens: &[i32]) -> Result<(), Error> {
        let config = AttentionConfig::new(DType::F32, 2, 2, 32, 16);
        let plan = Plan::new(&config, 2, 3, SplitPolicy::Auto, &DeviceLimits::cpu(1))?;
        let q = aligned(2 * 2 * 32);
        let mut out = aligned(2 * 2 * 32);
        let (q, out) = (
            RowsView::contiguous(&q.0[..128], 2, 2, 32),
            &mut out.0[..128],
        );
        let inputs = ContiguousInputs {
            q,
            keys,
            values,
            seq_lens,
        };
        decode(
            &plan,
            &inputs,
            RowsViewMut::contiguous(out, 2, 2, 32),
            None,
            &mut [],
        )
    }

    #[repr(align(16))]
    struct Aligned([f32; 256]);

    fn aligned(len: usize) -> Box<Aligned> {
        assert!(len <= 256);
        Box::new(Aligned([0.5; 256]))
    }

    #[test]
    fn refusals_name_the_tensor_and_the_sequence() {
        let buffer = aligned(256);
        let (full, short) = (&buffer.0[..192], &buffer.0[..191]);
        assert_eq!(run(&[full, full], &[full, full], &[3, 3]), Ok(()));
        assert_eq!(
            run(&[full, &[]], &[full, &[]], &[3, 0]),
            Ok(()),
            "an empty sequence"
        );
        let message = |result: Result<(), Error>| result.unwrap_err().to_string();
        assert_eq!(
            message(run(&[full, full], &[full, short], &[3, 3])),
            "contiguous: values holds 191 elements, must hold at least 192 for sequence 1, len 3, \
             num_kv_heads 2, head_dim 32"
        );
        assert_eq!(
            message(run(&[full], &[full, full], &[3, 3])),
            "contiguous: keys has num_seqs 1, must have 2"
        );
        assert_eq!(
            message(run(&[full, full], &[full, full], &[3, 4])),
            "contiguous: seq_lens[1] = 4, must be at most max_seq_len 3"
        );
        assert_eq!(
            message(run(&[full, full], &[full, full], &[-1, 3])),
            "contiguous: seq_lens[0] = -1, must be at least 0"
        );
        let shifted = &buffer.0[1..193];
        assert!(matches!(
            run(&[shifted, full], &[full, full], &[3, 3]),
            Err(Error::BaseNotAligned {
                op: Op::Contiguous,
                argument: "keys",
                ..
            })
        ));
        assert!(matches!(
            run(&[full, full], &[full, full], &[3]),
            Err(Error::ShapeMismatch {
                op: Op::Contiguous,
                ..
            })
        ));
    }
}
