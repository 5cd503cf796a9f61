//! Single checks on shapes, strides and extents, for tensors on the host and on a device alike.

use crate::error::Shape;
use crate::views::{CacheShape, RowsShape};
use crate::{ALIGNMENT, AttentionConfig, BlockTable, Error, Op};

/// Where a tensor lies and how far it reaches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffer {
    /// Address of the first element, on the host or on the device.
    pub address: u64,
    /// Elements.
    pub len: usize,
    /// Bytes per element.
    pub element_bytes: usize,
}

impl Buffer {
    pub(crate) fn of<T>(data: &[T]) -> Self {
        let address = data.as_ptr().addr() as u64;
        Self {
            address,
            len: data.len(),
            element_bytes: size_of::<T>(),
        }
    }
}

pub(crate) fn equal(
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
pub(crate) fn check_len(
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
pub(crate) fn reach(dims: &[(usize, usize)], row: usize) -> Option<usize> {
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
    // No buffer is longer, and kernels count strides in signed bytes.
    if elements > isize::MAX as usize / element_bytes {
        return Err(Error::StrideTooLarge {
            op,
            argument,
            stride,
            elements,
            element_bytes,
        });
    }
    let bytes = elements * element_bytes;
    if bytes.is_multiple_of(ALIGNMENT) {
        return Ok(());
    }
    Err(Error::StrideNotAligned {
        op,
        argument,
        stride,
        elements,
        bytes,
    })
}

pub(crate) fn base_aligned(op: Op, argument: &'static str, buffer: Buffer) -> Result<(), Error> {
    let (address, alignment) = (buffer.address, ALIGNMENT);
    // An empty slice has no address of its own.
    if buffer.len == 0 || address.is_multiple_of(alignment as u64) {
        return Ok(());
    }
    Err(Error::BaseNotAligned {
        op,
        argument,
        address,
        alignment,
    })
}

pub(crate) fn check_rows(
    op: Op,
    argument: &'static str,
    buffer: Buffer,
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
    let names = ["num_seqs", "num_heads"];
    check_rows_reach(op, argument, buffer, shape, names)
}

/// Strides, extent and address of rows, whose first two dimensions have these names.
pub(crate) fn check_rows_reach(
    op: Op,
    argument: &'static str,
    buffer: Buffer,
    shape: RowsShape,
    [seqs, heads]: [&'static str; 2],
) -> Result<(), Error> {
    let RowsShape {
        num_seqs,
        num_heads,
        head_dim,
        token_stride,
        head_stride,
    } = shape;
    stride_aligned(op, argument, "token", token_stride, buffer.element_bytes)?;
    stride_aligned(op, argument, "head", head_stride, buffer.element_bytes)?;
    let names = [
        (seqs, num_seqs),
        (heads, num_heads),
        ("head_dim", head_dim),
        ("token_stride", token_stride),
        ("head_stride", head_stride),
    ];
    let needed = reach(
        &[(num_seqs, token_stride), (num_heads, head_stride)],
        head_dim,
    );
    check_len(op, argument, buffer.len, needed, &names)?;
    base_aligned(op, argument, buffer)
}

/// Rows are apart if one dimension's rows all lie within the other dimension's stride.
pub(crate) fn check_rows_apart(op: Op, shape: RowsShape) -> Result<(), Error> {
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

/// Rows of a cache are apart if, from the smallest stride up, every dimension steps over all that the
/// ones before it reach.
pub(crate) fn check_cache_apart(
    op: Op,
    argument: &'static str,
    shape: CacheShape,
) -> Result<(), Error> {
    let strides = shape.strides;
    let mut dims = [
        (strides.block, shape.num_blocks),
        (strides.token, shape.block_size),
        (strides.head, shape.num_kv_heads),
    ];
    dims.sort_unstable();
    let mut end = Some(shape.head_dim);
    for (stride, count) in dims {
        if count > 1 {
            // What overflows is past the end of any buffer, which is checked elsewhere.
            end = end.filter(|&end| stride >= end);
            end = end.and_then(|end| (count - 1).checked_mul(stride)?.checked_add(end));
        }
    }
    if end.is_some() || shape.num_blocks == 0 {
        return Ok(());
    }
    Err(Error::CacheOverlap {
        op,
        argument,
        strides: [strides.block, strides.token, strides.head],
        rows: [shape.num_blocks, shape.block_size, shape.num_kv_heads],
        head_dim: shape.head_dim,
    })
}

pub(crate) fn check_cache(
    op: Op,
    argument: &'static str,
    buffer: Buffer,
    shape: CacheShape,
    config: &AttentionConfig,
) -> Result<(), Error> {
    for (dimension, found, expected) in [
        ("block_size", shape.block_size, config.block_size),
        ("num_kv_heads", shape.num_kv_heads, config.num_kv_heads),
        ("head_dim", shape.head_dim, config.head_dim),
    ] {
        equal(op, argument, dimension, found, expected)?;
    }
    check_cache_reach(op, argument, buffer, shape)
}

/// Strides, extent and address of a cache.
pub(crate) fn check_cache_reach(
    op: Op,
    argument: &'static str,
    buffer: Buffer,
    shape: CacheShape,
) -> Result<(), Error> {
    let CacheShape {
        num_blocks,
        block_size,
        num_kv_heads,
        head_dim,
        strides,
    } = shape;
    for (stride, elements) in [
        ("block", strides.block),
        ("token", strides.token),
        ("head", strides.head),
        ("row", head_dim),
    ] {
        stride_aligned(op, argument, stride, elements, buffer.element_bytes)?;
    }
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
    check_len(op, argument, buffer.len, reach(&dims, head_dim), &names)?;
    base_aligned(op, argument, buffer)
}

/// `rows` is (num_seqs, max_blocks_per_seq, row_stride) of a table of `len` entries.
pub(crate) fn check_table(
    op: Op,
    len: usize,
    rows: (usize, usize, usize),
    num_seqs: usize,
) -> Result<(), Error> {
    let (table_seqs, max_blocks_per_seq, row_stride) = rows;
    equal(op, "block_table", "num_seqs", table_seqs, num_seqs)?;
    let names = [
        ("num_seqs", table_seqs),
        ("max_blocks_per_seq", max_blocks_per_seq),
        ("row_stride", row_stride),
    ];
    let needed = if max_blocks_per_seq == 0 {
        Some(0)
    } else {
        reach(&[(table_seqs, row_stride)], max_blocks_per_seq)
    };
    check_len(op, "block_table", len, needed, &names)
}

pub(crate) fn check_lengths(
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

/// Lengths that pass [`check_lengths`] and the plan's capacity.
pub(crate) fn check_capacity(op: Op, seq_lens: &[i32], max_seq_len: usize) -> Result<(), Error> {
    let past = |&len: &i32| usize::try_from(len).is_ok_and(|len| len > max_seq_len);
    match seq_lens.iter().position(past) {
        None => Ok(()),
        Some(index) => {
            let value = seq_lens[index];
            Err(Error::SeqLenPastCapacity {
                op,
                index,
                value,
                max_seq_len,
            })
        }
    }
}

/// `len` elements for `[num_seqs, num_q_heads]`.
pub(crate) fn check_lse(
    op: Op,
    len: usize,
    num_seqs: usize,
    num_q_heads: usize,
) -> Result<(), Error> {
    let names = [("num_seqs", num_seqs), ("num_q_heads", num_q_heads)];
    check_len(op, "lse", len, num_seqs.checked_mul(num_q_heads), &names)
}
