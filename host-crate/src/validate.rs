//! The checks that stand between a caller's tensors and a back end. Checked arithmetic throughout.

use crate::error::Shape;
use crate::views::{CacheShape, RowsShape};
use crate::{
    ALIGNMENT, AttentionConfig, BlockTable, CacheView, Element, Error, Op, Plan, RowsView,
    RowsViewMut, supports,
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
        check_rows(op, "q", self.q.data(), self.q.shape(), config, num_seqs)?;
        check_cache(op, "k_cache", &self.k_cache, config)?;
        check_cache(op, "v_cache", &self.v_cache, config)?;
        let (k, v) = (self.k_cache.num_blocks(), self.v_cache.num_blocks());
        equal(op, "v_cache", "num_blocks", v, k)?;
        check_table(op, &self.block_table, num_seqs)?;
        check_lengths(op, self.seq_lens, &self.block_table, config.block_size, k)
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
        equal(
            op,
            "seq_lens",
            "length",
            inputs.seq_lens.len(),
            self.num_seqs(),
        )?;
        inputs.validate(op, self.config())?;
        for (index, &value) in inputs.seq_lens.iter().enumerate() {
            if value as usize > self.max_seq_len() {
                let max_seq_len = self.max_seq_len();
                return Err(Error::SeqLenPastCapacity {
                    op,
                    index,
                    value,
                    max_seq_len,
                });
            }
        }
        check_rows(
            op,
            "out",
            out.data(),
            out.shape(),
            self.config(),
            self.num_seqs(),
        )?;
        check_rows_apart(op, out.shape())?;
        if let Some(lse) = lse {
            let (num_seqs, num_q_heads) = (self.num_seqs(), self.config().num_q_heads);
            let dims = [("num_seqs", num_seqs), ("num_q_heads", num_q_heads)];
            let needed = num_seqs.checked_mul(num_q_heads);
            check_len(op, "lse", lse.len(), needed, &dims)?;
        }
        if workspace_bytes < self.workspace_bytes() {
            let (found, needed) = (workspace_bytes, self.workspace_bytes());
            return Err(Error::WorkspaceTooSmall { op, found, needed });
        }
        Ok(())
    }
}

fn equal(
    op: Op,
    argument: &'static str,
    dimension: &'static str,
    found: usize,
    expected: usize,
) -> Result<(), Error> {
    if found == expected {
        Ok(())
    } else {
        Err(Error::ShapeMismatch {
            op,
            argument,
            dimension,
            found,
            expected,
        })
    }
}

/// `needed` is `None` if it overflowed.
fn check_len(
    op: Op,
    argument: &'static str,
    found: usize,
    needed: Option<usize>,
    shape: &[(&'static str, usize)],
) -> Result<(), Error> {
    let shape = || Shape(shape.to_vec());
    match needed {
        Some(needed) if needed <= found => Ok(()),
        Some(needed) => Err(Error::BufferTooSmall {
            op,
            argument,
            found,
            needed,
            shape: shape(),
        }),
        None => Err(Error::Overflow {
            op,
            argument,
            shape: shape(),
        }),
    }
}

/// Elements up to the last one that `(count, stride)` dimensions and a contiguous row reach.
fn reach(dims: &[(usize, usize)], row: usize) -> Option<usize> {
    if dims.iter().any(|&(count, _)| count == 0) {
        return Some(0);
    }
    dims.iter().try_fold(row, |sum, &(count, stride)| {
        sum.checked_add((count - 1).checked_mul(stride)?)
    })
}

pub(crate) fn stride_aligned(
    op: Op,
    argument: &'static str,
    stride: &'static str,
    elements: usize,
    element_bytes: usize,
) -> Result<(), Error> {
    match elements.checked_mul(element_bytes) {
        Some(bytes) if bytes.is_multiple_of(ALIGNMENT) && i64::try_from(elements).is_ok() => Ok(()),
        bytes => Err(Error::StrideNotAligned {
            op,
            argument,
            stride,
            elements,
            bytes: bytes.unwrap_or(usize::MAX),
        }),
    }
}

fn base_aligned<T>(op: Op, argument: &'static str, data: &[T]) -> Result<(), Error> {
    let address = data.as_ptr().addr();
    // An empty slice has no address of its own.
    if data.is_empty() || address.is_multiple_of(ALIGNMENT) {
        return Ok(());
    }
    let (address, alignment) = (address as u64, ALIGNMENT);
    Err(Error::BaseNotAligned {
        op,
        argument,
        address,
        alignment,
    })
}

fn check_rows<T: Element>(
    op: Op,
    argument: &'static str,
    data: &[T],
    shape: RowsShape,
    config: &AttentionConfig,
    num_seqs: usize,
) -> Result<(), Error> {
    equal(op, argument, "num_seqs", shape.num_seqs, num_seqs)?;
    equal(
        op,
        argument,
        "num_heads",
        shape.num_heads,
        config.num_q_heads,
    )?;
    equal(op, argument, "head_dim", shape.head_dim, config.head_dim)?;
    stride_aligned(op, argument, "token", shape.token_stride, size_of::<T>())?;
    stride_aligned(op, argument, "head", shape.head_stride, size_of::<T>())?;
    let dims = [
        (shape.num_seqs, shape.token_stride),
        (shape.num_heads, shape.head_stride),
    ];
    let names = [
        ("num_seqs", shape.num_seqs),
        ("num_heads", shape.num_heads),
        ("head_dim", shape.head_dim),
        ("token_stride", shape.token_stride),
        ("head_stride", shape.head_stride),
    ];
    check_len(
        op,
        argument,
        data.len(),
        reach(&dims, shape.head_dim),
        &names,
    )?;
    base_aligned(op, argument, data)
}

/// Rows are apart if one dimension's rows all lie within the other dimension's stride.
fn check_rows_apart(op: Op, shape: RowsShape) -> Result<(), Error> {
    let RowsShape {
        num_seqs,
        num_heads,
        head_dim,
        token_stride,
        head_stride,
    } = shape;
    let nested = |outer: (usize, usize), inner: (usize, usize)| {
        (inner.0 <= 1 || inner.1 >= head_dim)
            && (outer.0 <= 1 || reach(&[inner], head_dim).is_some_and(|end| outer.1 >= end))
    };
    let (seqs, heads) = ((num_seqs, token_stride), (num_heads, head_stride));
    if num_seqs == 0 || nested(seqs, heads) || nested(heads, seqs) {
        return Ok(());
    }
    Err(Error::OutputOverlap {
        op,
        token_stride,
        head_stride,
        num_seqs,
        num_heads,
        head_dim,
    })
}

fn check_cache<T: Element>(
    op: Op,
    argument: &'static str,
    cache: &CacheView<'_, T>,
    config: &AttentionConfig,
) -> Result<(), Error> {
    let CacheShape {
        num_blocks,
        block_size,
        num_kv_heads,
        head_dim,
        strides,
    } = cache.shape();
    equal(op, argument, "block_size", block_size, config.block_size)?;
    equal(
        op,
        argument,
        "num_kv_heads",
        num_kv_heads,
        config.num_kv_heads,
    )?;
    equal(op, argument, "head_dim", head_dim, config.head_dim)?;
    stride_aligned(op, argument, "block", strides.block, size_of::<T>())?;
    stride_aligned(op, argument, "token", strides.token, size_of::<T>())?;
    stride_aligned(op, argument, "head", strides.head, size_of::<T>())?;
    let dims = [
        (num_blocks, strides.block),
        (block_size, strides.token),
        (num_kv_heads, strides.head),
    ];
    let names = [
        ("num_blocks", num_blocks),
        ("block_size", block_size),
        ("num_kv_heads", num_kv_heads),
        ("head_dim", head_dim),
        ("block_stride", strides.block),
        ("token_stride", strides.token),
        ("head_stride", strides.head),
    ];
    check_len(
        op,
        argument,
        cache.data().len(),
        reach(&dims, head_dim),
        &names,
    )?;
    base_aligned(op, argument, cache.data())
}

fn check_table(op: Op, table: &BlockTable<'_>, num_seqs: usize) -> Result<(), Error> {
    equal(op, "block_table", "num_seqs", table.num_seqs(), num_seqs)?;
    let names = [
        ("num_seqs", table.num_seqs()),
        ("max_blocks_per_seq", table.max_blocks_per_seq()),
        ("row_stride", table.row_stride()),
    ];
    let needed = if table.max_blocks_per_seq() == 0 {
        Some(0)
    } else {
        reach(
            &[(table.num_seqs(), table.row_stride())],
            table.max_blocks_per_seq(),
        )
    };
    check_len(op, "block_table", table.entries().len(), needed, &names)
}

fn check_lengths(
    op: Op,
    seq_lens: &[i32],
    table: &BlockTable<'_>,
    block_size: usize,
    num_blocks: usize,
) -> Result<(), Error> {
    let max_blocks_per_seq = table.max_blocks_per_seq();
    for (index, &value) in seq_lens.iter().enumerate() {
        let Ok(len) = usize::try_from(value) else {
            return Err(Error::NegativeSeqLen { op, index, value });
        };
        let live = len.div_ceil(block_size);
        let row = table.row(index).and_then(|row| row.get(..live));
        let Some(row) = row.or((live == 0).then_some(&[])) else {
            return Err(Error::SeqLenPastTable {
                op,
                index,
                value,
                max_blocks_per_seq,
                block_size,
            });
        };
        let bad = |&&entry: &&i32| usize::try_from(entry).map_or(true, |b| b >= num_blocks);
        if let Some(column) = row.iter().position(|entry| bad(&entry)) {
            let value = row[column];
            return Err(Error::TableEntry {
                op,
                sequence: index,
                column,
                value,
                num_blocks,
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
