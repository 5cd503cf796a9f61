//! Tensor views over cust's device buffers.
//!
//! They are the views of [`crate::RowsView`] and its kin, with device memory in place of slices.
//! Elements are any type of the storage type's size, such as `u16` for f16 and bf16.

use std::marker::PhantomData;

use cust::memory::{DeviceCopy, DeviceSlice};

use crate::checks::Buffer;
use crate::views::{CacheShape, RowsShape};
use crate::{CacheLayout, CacheStrides};

/// Device memory to read from.
#[derive(Clone, Copy, Debug)]
pub struct CudaBuffer<'a> {
    pub(super) buffer: Buffer,
    borrow: PhantomData<&'a ()>,
}

impl<'a, B: DeviceCopy> From<&'a DeviceSlice<B>> for CudaBuffer<'a> {
    fn from(slice: &'a DeviceSlice<B>) -> Self {
        Self {
            buffer: buffer(slice),
            borrow: PhantomData,
        }
    }
}

/// Device memory to write to.
#[derive(Debug)]
pub struct CudaBufferMut<'a> {
    pub(super) buffer: Buffer,
    borrow: PhantomData<&'a mut ()>,
}

impl<'a, B: DeviceCopy> From<&'a mut DeviceSlice<B>> for CudaBufferMut<'a> {
    fn from(slice: &'a mut DeviceSlice<B>) -> Self {
        Self {
            buffer: buffer(slice),
            borrow: PhantomData,
        }
    }
}

fn buffer<B: DeviceCopy>(slice: &DeviceSlice<B>) -> Buffer {
    let address = slice.as_device_ptr().as_raw();
    Buffer {
        address,
        len: slice.len(),
        element_bytes: size_of::<B>(),
    }
}

macro_rules! rows {
    ($(#[$doc:meta])* $rows:ident, $buffer:ident) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $rows<'a> {
            pub(super) data: $buffer<'a>,
            pub(super) shape: RowsShape,
        }

        impl<'a> $rows<'a> {
            /// A dense tensor.
            pub fn contiguous(
                data: impl Into<$buffer<'a>>,
                num_seqs: usize,
                num_heads: usize,
                head_dim: usize,
            ) -> Self {
                let shape = RowsShape::contiguous(num_seqs, num_heads, head_dim);
                Self { data: data.into(), shape }
            }

            /// A strided tensor, strides in elements.
            pub fn with_strides(
                data: impl Into<$buffer<'a>>,
                num_seqs: usize,
                num_heads: usize,
                head_dim: usize,
                token_stride: usize,
                head_stride: usize,
            ) -> Self {
                let shape = RowsShape { num_seqs, num_heads, head_dim, token_stride, head_stride };
                Self { data: data.into(), shape }
            }
        }
    };
}
rows!(
    /// Queries, `[num_seqs, num_heads, head_dim]`.
    CudaRows, CudaBuffer
);
rows!(
    /// Output, `[num_seqs, num_heads, head_dim]`.
    CudaRowsMut, CudaBufferMut
);

macro_rules! cache {
    ($(#[$doc:meta])* $cache:ident, $buffer:ident) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $cache<'a> {
            pub(super) data: $buffer<'a>,
            pub(super) shape: CacheShape,
        }

        impl<'a> $cache<'a> {
            /// A dense cache in the given order of dimensions.
            pub fn dense(
                data: impl Into<$buffer<'a>>,
                layout: CacheLayout,
                num_blocks: usize,
                block_size: usize,
                num_kv_heads: usize,
                head_dim: usize,
            ) -> Self {
                let shape = CacheShape::dense(
                    layout,
                    num_blocks,
                    block_size,
                    num_kv_heads,
                    head_dim,
                );
                Self { data: data.into(), shape }
            }

            /// A strided cache, strides in elements.
            pub fn with_strides(
                data: impl Into<$buffer<'a>>,
                num_blocks: usize,
                block_size: usize,
                num_kv_heads: usize,
                head_dim: usize,
                strides: CacheStrides,
            ) -> Self {
                let shape = CacheShape {
                    num_blocks,
                    block_size,
                    num_kv_heads,
                    head_dim,
                    strides,
                };
                Self { data: data.into(), shape }
            }
        }
    };
}
cache!(
    /// A key or value cache.
    CudaCache, CudaBuffer
);
cache!(
    /// A key or value cache to write to. The halves of one pool `[num_blocks, 2, …]` are two slices
    /// of it, from [`DeviceSlice::index`].
    CudaCacheMut, CudaBufferMut
);

/// A block table of i32 or u32 entries, `[num_seqs, max_blocks_per_seq]`.
#[derive(Debug)]
pub struct CudaTable<'a> {
    pub(super) data: CudaBuffer<'a>,
    /// (num_seqs, max_blocks_per_seq, row_stride).
    pub(super) rows: (usize, usize, usize),
}

impl<'a> CudaTable<'a> {
    /// A dense table.
    pub fn new(
        entries: impl Into<CudaBuffer<'a>>,
        num_seqs: usize,
        max_blocks_per_seq: usize,
    ) -> Self {
        Self::with_stride(entries, num_seqs, max_blocks_per_seq, max_blocks_per_seq)
    }

    /// A table whose rows start `row_stride` entries apart.
    pub fn with_stride(
        entries: impl Into<CudaBuffer<'a>>,
        num_seqs: usize,
        max_blocks_per_seq: usize,
        row_stride: usize,
    ) -> Self {
        Self {
            data: entries.into(),
            rows: (num_seqs, max_blocks_per_seq, row_stride),
        }
    }
}

/// What one call reads on the device.
#[derive(Debug)]
pub struct CudaInputs<'a> {
    /// Queries.
    pub q: CudaRows<'a>,
    /// Keys.
    pub k_cache: CudaCache<'a>,
    /// Values.
    pub v_cache: CudaCache<'a>,
    /// Which physical blocks hold which sequence.
    pub block_table: CudaTable<'a>,
    /// Lengths in tokens, i32 or u32 `[num_seqs]`.
    pub seq_lens: CudaBuffer<'a>,
}

impl CudaCacheMut<'_> {
    pub(super) fn address(&self) -> u64 {
        self.data.buffer.address
    }
}
