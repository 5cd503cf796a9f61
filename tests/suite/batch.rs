//! A batch in paged memory: logical tokens scattered over shuffled blocks. Whatever must not be read
//! is NaN (tensors) or garbage (table).

use paged_attention::{
    AttentionConfig, BlockTable, CacheLayout, CacheStrides, CacheView, DecodeInputs, Element, Plan,
    RowsView,
};

use crate::case::{Case, Pool, Rows};
use crate::logical::{Logical, Sequence};
use crate::random::Random;

/// Tensors of a case, as f32 values of its storage type.
pub struct Batch {
    pub case: Case,
    pub plan: Plan,
    pub logical: Logical,
    pub q: Vec<f32>,
    pub q_strides: (usize, usize),
    /// One pool, or K's and V's.
    pub pools: Vec<Vec<f32>>,
    pub k: Place,
    pub v: Place,
    pub num_blocks: usize,
    pub table: Vec<i32>,
    pub table_width: usize,
    pub table_stride: usize,
    pub lens: Vec<i32>,
    pub out_strides: (usize, usize),
    pub out_len: usize,
}

/// A cache inside a pool.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub pool: usize,
    pub offset: usize,
    pub strides: CacheStrides,
}

/// q and the pools in the storage type.
pub struct Typed<'a, T> {
    batch: &'a Batch,
    q: Vec<T>,
    pools: Vec<Vec<T>>,
}

impl Batch {
    #[track_caller]
    pub fn new(case: &Case) -> Self {
        Self::of(case, Logical::generate(case))
    }

    /// A batch of given tokens: `case` says how they are stored.
    #[track_caller]
    pub fn of(case: &Case, logical: Logical) -> Self {
        let blocks = |seq: &Sequence| seq.len.div_ceil(case.block_size);
        let live: usize = logical.seqs.iter().map(blocks).sum();
        let mut blocks: Vec<i32> = (0..(live + case.spare_blocks) as i32).collect();
        Random::new(case.block_seed, 0).shuffle(&mut blocks);
        Self::placed(case, logical, blocks)
    }

    /// A batch of given tokens in given blocks: sequence after sequence takes the next of `in_turn`.
    #[track_caller]
    pub fn placed(case: &Case, logical: Logical, in_turn: Vec<i32>) -> Self {
        let lens = logical.lens();
        let case = Case {
            lens: lens.clone(),
            ..case.clone()
        };
        let plan = case.plan();
        let blocks = |len: usize| len.div_ceil(case.block_size);
        let live: usize = lens.iter().map(|&len| blocks(len)).sum();
        let num_blocks = live + case.spare_blocks;
        let mut next = in_turn.into_iter();

        let widest = lens.iter().map(|&len| blocks(len)).max().unwrap_or(0);
        let table_width = widest + case.spare_columns;
        let table_stride = table_width + case.table_gap;
        let garbage = [-1, i32::MAX, i32::MIN, num_blocks as i32];
        let mut table: Vec<i32> = (0..table_stride * lens.len())
            .map(|i| garbage[i % garbage.len()])
            .collect();
        for (s, &len) in lens.iter().enumerate() {
            for column in 0..blocks(len) {
                table[s * table_stride + column] = next.next().expect("a block for every column");
            }
        }

        let (k, v, sizes) = places(&case, num_blocks);
        let mut pools: Vec<Vec<f32>> = sizes.iter().map(|&n| vec![f32::NAN; n]).collect();
        let d = case.head_dim;
        for (s, seq) in logical.seqs.iter().enumerate() {
            for t in 0..seq.len {
                let block = table[s * table_stride + t / case.block_size] as usize;
                for h in 0..case.num_kv_heads {
                    let from = (t * case.num_kv_heads + h) * d;
                    for (place, tokens) in [(k, &seq.keys), (v, &seq.values)] {
                        let at = place.at(block, t % case.block_size, h);
                        pools[place.pool][at..at + d].copy_from_slice(&tokens[from..from + d]);
                    }
                }
            }
        }

        let (q_strides, out_strides) = row_strides(&case);
        let heads = case.num_q_heads;
        let mut q = vec![f32::NAN; extent(lens.len(), heads, d, q_strides)];
        for (s, seq) in logical.seqs.iter().enumerate() {
            for h in 0..heads {
                let at = s * q_strides.0 + h * q_strides.1;
                q[at..at + d].copy_from_slice(&seq.q[h * d..(h + 1) * d]);
            }
        }
        Self {
            plan,
            q,
            q_strides,
            pools,
            k,
            v,
            num_blocks,
            table,
            table_width,
            table_stride,
            out_len: extent(lens.len(), heads, d, out_strides),
            lens: lens.iter().map(|&len| len as i32).collect(),
            out_strides,
            case,
            logical,
        }
    }

    pub fn config(&self) -> &AttentionConfig {
        self.plan.config()
    }

    pub fn num_seqs(&self) -> usize {
        self.lens.len()
    }

    pub fn typed<T: Element>(&self) -> Typed<'_, T> {
        let cast = |values: &Vec<f32>| values.iter().map(|&x| T::from_f32(x)).collect();
        Typed {
            batch: self,
            q: cast(&self.q),
            pools: self.pools.iter().map(cast).collect(),
        }
    }
}

impl Place {
    pub fn at(&self, block: usize, slot: usize, head: usize) -> usize {
        let strides = self.strides;
        self.offset + block * strides.block + slot * strides.token + head * strides.head
    }
}

impl<T: Element> Typed<'_, T> {
    pub fn inputs(&self) -> DecodeInputs<'_, T> {
        let batch = self.batch;
        let case = &batch.case;
        let cache = |place: Place| {
            CacheView::with_strides(
                &self.pools[place.pool][place.offset..],
                batch.num_blocks,
                case.block_size,
                case.num_kv_heads,
                case.head_dim,
                place.strides,
            )
        };
        DecodeInputs {
            q: RowsView::with_strides(
                &self.q,
                batch.num_seqs(),
                case.num_q_heads,
                case.head_dim,
                batch.q_strides.0,
                batch.q_strides.1,
            ),
            k_cache: cache(batch.k),
            v_cache: cache(batch.v),
            block_table: BlockTable::with_stride(
                &batch.table,
                batch.num_seqs(),
                batch.table_width,
                batch.table_stride,
            ),
            seq_lens: &batch.lens,
        }
    }
}

/// Elements of 16 bytes, the granule of every stride.
fn granule(case: &Case) -> usize {
    16 / case.dtype.bytes() as usize
}

/// Where K and V lie, and the sizes of the pools.
fn places(case: &Case, num_blocks: usize) -> (Place, Place, Vec<usize>) {
    let (heads, d, tokens) = (case.num_kv_heads, case.head_dim, case.block_size);
    let place = |pool, offset, strides| Place {
        pool,
        offset,
        strides,
    };
    match case.pool {
        Pool::Dense => {
            let strides = case.order.strides(tokens, heads, d);
            let size = num_blocks * strides.block;
            (place(0, 0, strides), place(1, 0, strides), vec![size, size])
        }
        Pool::Fused => {
            let half = case.order.strides(tokens, heads, d);
            let strides = CacheStrides {
                block: 2 * half.block,
                ..half
            };
            let size = num_blocks * strides.block;
            let v = if num_blocks == 0 { 0 } else { half.block };
            (place(0, 0, strides), place(0, v, strides), vec![size])
        }
        Pool::Padded => {
            let padded = |gap: usize| {
                let row = d + gap;
                let mut strides = case.order.strides(tokens, heads, row);
                match case.order {
                    CacheLayout::Nhd => {
                        strides.token += gap;
                        strides.block = tokens * strides.token + gap;
                    }
                    CacheLayout::Hnd => {
                        strides.head += gap;
                        strides.block = heads * strides.head + gap;
                    }
                }
                strides
            };
            let (k, v) = (padded(granule(case)), padded(2 * granule(case)));
            let sizes = vec![num_blocks * k.block, num_blocks * v.block];
            (place(0, 0, k), place(1, 0, v), sizes)
        }
    }
}

/// (token, head) strides of q and of out.
fn row_strides(case: &Case) -> ((usize, usize), (usize, usize)) {
    let (heads, d) = (case.num_q_heads, case.head_dim);
    let dense = (heads * d, d);
    let gap = granule(case);
    match case.rows {
        Rows::Dense => (dense, dense),
        Rows::PackedQkv => (((heads + 2 * case.num_kv_heads) * d, d), dense),
        Rows::Padded => {
            let padded = |gap: usize| (heads * (d + gap) + 3 * gap, d + gap);
            (padded(gap), padded(2 * gap))
        }
    }
}

/// Elements up to the last row's end.
fn extent(seqs: usize, heads: usize, d: usize, strides: (usize, usize)) -> usize {
    match seqs {
        0 => 0,
        _ => (seqs - 1) * strides.0 + (heads - 1) * strides.1 + d,
    }
}
