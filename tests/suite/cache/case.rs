//! Sizes, layouts and contents of caches and rows.

use proptest::prelude::*;

use paged_attention::{CacheLayout, CacheSizes, DType};

use crate::backend::DTYPES;
use crate::case::{Pool, Rows};

/// What decides the buffers of a call. Its `Debug` is almost a Rust literal.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheCase {
    pub dtype: DType,
    pub num_blocks: usize,
    pub block_size: usize,
    pub heads: usize,
    pub head_dim: usize,
    pub order: CacheLayout,
    pub pool: Pool,
    pub rows: Rows,
    pub seed: u64,
}

impl CacheCase {
    /// A plain case; change what the test is about.
    pub fn new(dtype: DType, num_blocks: usize, block_size: usize) -> Self {
        Self {
            dtype,
            num_blocks,
            block_size,
            heads: 2,
            head_dim: 64,
            order: CacheLayout::Nhd,
            pool: Pool::Dense,
            rows: Rows::Dense,
            seed: 1,
        }
    }

    pub fn sizes(&self) -> CacheSizes {
        let (heads, d) = (self.heads, self.head_dim);
        CacheSizes::new(self.dtype, self.num_blocks, self.block_size, heads, d)
            .unwrap_or_else(|error| panic!("{error}\n{self:?}"))
    }

    pub fn num_slots(&self) -> usize {
        self.num_blocks * self.block_size
    }

    /// Bytes of an element.
    pub fn element(&self) -> usize {
        self.dtype.bytes() as usize
    }

    /// Bytes of a head's row.
    pub fn row(&self) -> usize {
        self.head_dim * self.element()
    }
}

/// Every storage type, layout and pool around one shape.
pub fn variants(case: &CacheCase) -> impl Iterator<Item = CacheCase> {
    let case = case.clone();
    let orders = [CacheLayout::Nhd, CacheLayout::Hnd];
    let pools = [Pool::Dense, Pool::Fused, Pool::Padded];
    DTYPES.into_iter().flat_map(move |dtype| {
        let case = case.clone();
        orders.into_iter().flat_map(move |order| {
            let case = case.clone();
            pools.into_iter().map(move |pool| CacheCase {
                dtype,
                order,
                pool,
                ..case.clone()
            })
        })
    })
}

const BLOCK_SIZES: [usize; 9] = [16, 1, 2, 3, 7, 8, 17, 32, 48];
/// 16-byte chunks of a head's row: one, around a warp and a sector, and some hundred.
const CHUNKS: [usize; 11] = [16, 1, 2, 3, 5, 8, 15, 17, 32, 33, 64];
/// Most bytes of a cache without its gaps.
const CACHE_BYTES: usize = 64 << 10;

/// Any case that the operations take, in caches of up to 64 KB.
pub fn any_cache() -> impl Strategy<Value = CacheCase> {
    let shape = (
        prop::sample::select(DTYPES.to_vec()),
        0usize..12,
        prop::sample::select(BLOCK_SIZES.to_vec()),
        1usize..9,
        prop::sample::select(CHUNKS.to_vec()),
    );
    let storage = (
        prop::sample::select(vec![CacheLayout::Nhd, CacheLayout::Hnd]),
        prop::sample::select(vec![Pool::Dense, Pool::Fused, Pool::Padded]),
        prop::sample::select(vec![Rows::Dense, Rows::PackedQkv, Rows::Padded]),
        any::<u16>(),
    );
    (shape, storage).prop_map(|(shape, (order, pool, rows, seed))| {
        let (dtype, blocks, block_size, heads, chunks) = shape;
        let row = chunks * 16;
        // Shrinks with the rest; one block at least.
        let heads = heads.min((CACHE_BYTES / (block_size * row)).max(1));
        let most = CACHE_BYTES / (block_size * heads * row);
        CacheCase {
            dtype,
            num_blocks: 1 + blocks.min(most),
            block_size,
            heads,
            head_dim: row / dtype.bytes() as usize,
            order,
            pool,
            rows,
            seed: seed.into(),
        }
    })
}
