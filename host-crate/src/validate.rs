//! The checks that stand between a caller's tensors and a back end. Checked arithmetic throughout.

use crate::checks::{
    Buffer, check_cache, check_capacity, check_lengths, check_lse, check_rows, check_rows_apart,
    check_table, equal,
};
use crate::{
    AttentionConfig, BlockTable, CacheView, Element, Error, Op, Plan, RowsView, RowsViewMut,
    supports,
};

/// What one call reads.
#[derive(Clone, Copy, Debug)]
pub struct DecodeInputs<'a, T> {
    /// Queries, `[num_seqs, num_q_heads, head_dim]`.
    pub q: RowsView<'a, T>,
    /// Keys.
    pub k_cache: CacheView<'a, T>,
    /// Values.
    pub v_cache: CacheView<'a, T>,
    /// Which physical blocks hold which sequence.
    pub block_table: BlockTable<'a>,
    /// Lengths in tokens, `[num_seqs]`; see [`crate::i32_from_u32`] for unsigned ones.
    pub seq_lens: &'a [i32],
}

impl<T: Element> DecodeInputs<'_, T> {
    /// Checks the inputs against a configuration: storage type, shapes, alignment, strides, that
    /// every slot of every block lies inside its buffer, lengths, and the live part of the table.
    ///
    /// # Errors
    /// The first offender, named by argument and index; `op` leads the sentence.
    pub fn validate(&self, op: Op, config: &AttentionConfig) -> Result<(), Error> {
        supports(config)?;
        if T::DTYPE != config.dtype {
            return Err(Error::DTypeMismatch {
                op,
                found: T::DTYPE,
                expected: config.dtype,
            });
        }
        let num_seqs = self.seq_lens.len();
        let (k, v) = (&self.k_cache, &self.v_cache);
        check_rows(
            op,
            "q",
            Buffer::of(self.q.data()),
            self.q.shape(),
            config,
            num_seqs,
        )?;
        check_cache(op, "k_cache", Buffer::of(k.data()), k.shape(), config)?;
        check_cache(op, "v_cache", Buffer::of(v.data()), v.shape(), config)?;
        equal(op, "v_cache", "num_blocks", v.num_blocks(), k.num_blocks())?;
        self.block_table
            .validate(op, self.seq_lens, config.block_size, k.num_blocks())
    }
}

impl BlockTable<'_> {
    /// Checks the table and the lengths alone, as far as they are on the host: a row for every
    /// length, no length past its row, and every live entry one of `num_blocks` blocks.
    ///
    /// # Errors
    /// The first offender; `op` leads the sentence.
    pub fn validate(
        &self,
        op: Op,
        seq_lens: &[i32],
        block_size: usize,
        num_blocks: usize,
    ) -> Result<(), Error> {
        if block_size == 0 {
            let (argument, value, min, max) = ("block_size", 0, 1, i32::MAX as u64);
            return Err(Error::OutOfRange {
                op,
                argument,
                value,
                min,
                max,
            });
        }
        let rows = (
            self.num_seqs(),
            self.max_blocks_per_seq(),
            self.row_stride(),
        );
        check_table(op, self.entries().len(), rows, seq_lens.len())?;
        check_lengths(op, seq_lens, self, block_size, num_blocks)
    }
}

impl Plan {
    /// Checks everything that [`crate::cpu::decode`] is given; the device back ends make the same
    /// checks. `op` leads the sentence.
    ///
    /// # Errors
    /// What [`DecodeInputs::validate`] refuses; a batch or a length that is not the plan's; an
    /// output or `lse` with the wrong shape or too short; a workspace below
    /// [`Plan::workspace_bytes`].
    pub fn validate<T: Element>(
        &self,
        op: Op,
        inputs: &DecodeInputs<'_, T>,
        out: &RowsViewMut<'_, T>,
        lse: Option<&[f32]>,
        workspace_bytes: usize,
    ) -> Result<(), Error> {
        self.validate_inputs(op, inputs)?;
        let (num_seqs, config) = (self.num_seqs(), self.config());
        check_rows(
            op,
            "out",
            Buffer::of(out.data()),
            out.shape(),
            config,
            num_seqs,
        )?;
        check_rows_apart(op, out.shape())?;
        if let Some(lse) = lse {
            check_lse(op, lse.len(), num_seqs, config.num_q_heads)?;
        }
        self.check_workspace(op, workspace_bytes)
    }

    /// The part of [`Plan::validate`] that is about the inputs.
    pub(crate) fn validate_inputs<T: Element>(
        &self,
        op: Op,
        inputs: &DecodeInputs<'_, T>,
    ) -> Result<(), Error> {
        let found = inputs.seq_lens.len();
        equal(op, "seq_lens", "length", found, self.num_seqs())?;
        inputs.validate(op, self.config())?;
        check_capacity(op, inputs.seq_lens, self.max_seq_len())
    }

    pub(crate) fn check_workspace(&self, op: Op, found: usize) -> Result<(), Error> {
        let needed = self.workspace_bytes();
        if found < needed {
            return Err(Error::WorkspaceTooSmall { op, found, needed });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
