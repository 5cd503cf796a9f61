//! Tensor views: a slice, a shape and strides in elements. The last dimension is contiguous.
//!
//! Constructors take any numbers; every check is made in one place, before a back end runs
//! (see [`crate::Plan::validate`]), so that an error can name the argument.

use crate::Element;

/// Reads `[num_seqs, num_heads, head_dim]`: the queries.
#[derive(Clone, Copy, Debug)]
pub struct RowsView<'a, T> {
    data: &'a [T],
    shape: RowsShape,
}

/// Writes `[num_seqs, num_heads, head_dim]`: the output.
#[derive(Debug)]
pub struct RowsViewMut<'a, T> {
    data: &'a mut [T],
    shape: RowsShape,
}

/// Shape and strides of a rows view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowsShape {
    pub num_seqs: usize,
    pub num_heads: usize,
    pub head_dim: usize,
    pub token_stride: usize,
    pub head_stride: usize,
}

impl RowsShape {
    pub(crate) fn contiguous(num_seqs: usize, num_heads: usize, head_dim: usize) -> Self {
        Self {
            num_seqs,
            num_heads,
            head_dim,
            // A product that saturates cannot fit the data, and validation says so.
            token_stride: num_heads.saturating_mul(head_dim),
            head_stride: head_dim,
        }
    }
}

macro_rules! rows_view {
    ($view:ident, $slice:ty) => {
        impl<'a, T: Element> $view<'a, T> {
            /// A dense tensor: rows of `head_dim` elements, one after the other.
            pub fn contiguous(
                data: $slice,
                num_seqs: usize,
                num_heads: usize,
                head_dim: usize,
            ) -> Self {
                let shape = RowsShape::contiguous(num_seqs, num_heads, head_dim);
                Self { data, shape }
            }

            /// A strided tensor, for instance the query part of a packed qkv projection:
            /// element (s, h, i) is `data[s * token_stride + h * head_stride + i]`.
            pub fn with_strides(
                data: $slice,
                num_seqs: usize,
                num_heads: usize,
                head_dim: usize,
                token_stride: usize,
                head_stride: usize,
            ) -> Self {
                let shape = RowsShape {
                    num_seqs,
                    num_heads,
                    head_dim,
                    token_stride,
                    head_stride,
                };
                Self { data, shape }
            }

            /// The elements, gaps included.
            #[inline]
            pub fn data(&self) -> &[T] {
                self.data
            }

            /// Number of sequences.
            #[inline]
            pub fn num_seqs(&self) -> usize {
                self.shape.num_seqs
            }

            /// Number of heads.
            #[inline]
            pub fn num_heads(&self) -> usize {
                self.shape.num_heads
            }

            /// Elements per head.
            #[inline]
            pub fn head_dim(&self) -> usize {
                self.shape.head_dim
            }

            /// Elements from one sequence's row to the next.
            #[inline]
            pub fn token_stride(&self) -> usize {
                self.shape.token_stride
            }

            /// Elements from one head to the next.
            #[inline]
            pub fn head_stride(&self) -> usize {
                self.shape.head_stride
            }

            pub(crate) fn shape(&self) -> RowsShape {
                self.shape
            }
        }
    };
}
rows_view!(RowsView, &'a [T]);
rows_view!(RowsViewMut, &'a mut [T]);

impl<T: Element> RowsViewMut<'_, T> {
    /// The elements, gaps included, for writing.
    #[inline]
    pub fn data_mut(&mut self) -> &mut [T] {
        self.data
    }

    /// The same tensor for a shorter time, so that a view can be used again afterwards.
    pub fn reborrow(&mut self) -> RowsViewMut<'_, T> {
        RowsViewMut {
            data: self.data,
            shape: self.shape,
        }
    }
}

/// Order of the dimensions of a dense cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CacheLayout {
    /// `[num_blocks, block_size, num_kv_heads, head_dim]`.
    Nhd,
    /// `[num_blocks, num_kv_heads, block_size, head_dim]`.
    Hnd,
}

impl CacheLayout {
    /// The strides of a dense cache in this order. Products saturate; validation refuses those.
    pub fn strides(self, block_size: usize, num_kv_heads: usize, head_dim: usize) -> CacheStrides {
        let block = block_size
            .saturating_mul(num_kv_heads)
            .saturating_mul(head_dim);
        match self {
            CacheLayout::Nhd => CacheStrides {
                block,
                token: num_kv_heads.saturating_mul(head_dim),
                head: head_dim,
            },
            CacheLayout::Hnd => CacheStrides {
                block,
                token: head_dim,
                head: block_size.saturating_mul(head_dim),
            },
        }
    }
}

/// Strides of a key or value cache in elements: element (block, slot, kv head, i) stands at
/// `block * strides.block + slot * strides.token + head * strides.head + i`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CacheStrides {
    /// From one physical block to the next.
    pub block: usize,
    /// From one slot of a block to the next.
    pub token: usize,
    /// From one kv head to the next.
    pub head: usize,
}

/// Reads a key or value cache of `num_blocks` physical blocks, each with `block_size` slots of
/// every kv head.
#[derive(Clone, Copy, Debug)]
pub struct CacheView<'a, T> {
    data: &'a [T],
    shape: CacheShape,
}

/// Shape and strides of a cache view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CacheShape {
    pub num_blocks: usize,
    pub block_size: usize,
    pub num_kv_heads: usize,
    pub head_dim: usize,
    pub strides: CacheStrides,
}

impl CacheShape {
    pub(crate) fn dense(
        layout: CacheLayout,
        num_blocks: usize,
        block_size: usize,
        num_kv_heads: usize,
        head_dim: usize,
    ) -> Self {
        Self {
            num_blocks,
            block_size,
            num_kv_heads,
            head_dim,
            strides: layout.strides(block_size, num_kv_heads, head_dim),
        }
    }
}

impl<'a, T: Element> CacheView<'a, T> {
    /// A dense cache in the given order of dimensions.
    pub fn dense(
        data: &'a [T],
        layout: CacheLayout,
        num_blocks: usize,
        block_size: usize,
        num_kv_heads: usize,
        head_dim: usize,
    ) -> Self {
        let shape = CacheShape::dense(layout, num_blocks, block_size, num_kv_heads, head_dim);
        Self { data, shape }
    }

    /// A strided cache, for instance the key or value half of a fused pool
    /// `[num_blocks, 2, block_size, num_kv_heads, head_dim]`: pass the pool from the half's first
    /// element on, and a block stride of two halves.
    pub fn with_strides(
        data: &'a [T],
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
        Self { data, shape }
    }

    /// The elements, gaps included.
    #[inline]
    pub fn data(&self) -> &'a [T] {
        self.data
    }

    /// Number of physical blocks.
    #[inline]
    pub fn num_blocks(&self) -> usize {
        self.shape.num_blocks
    }

    /// Slots per block.
    #[inline]
    pub fn block_size(&self) -> usize {
        self.shape.block_size
    }

    /// Number of kv heads.
    #[inline]
    pub fn num_kv_heads(&self) -> usize {
        self.shape.num_kv_heads
    }

    /// Elements per head.
    #[inline]
    pub fn head_dim(&self) -> usize {
        self.shape.head_dim
    }

    /// Strides in elements.
    #[inline]
    pub fn strides(&self) -> CacheStrides {
        self.shape.strides
    }

    pub(crate) fn shape(&self) -> CacheShape {
        self.shape
    }
}
