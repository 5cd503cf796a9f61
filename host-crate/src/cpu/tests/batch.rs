//! Batches for the tests: contents depend on (seed, sequence name, token), never on where they are
//! stored; unused slots hold NaN and table entries past the live ones −1.

use crate::contiguous::{self, ContiguousInputs};
use crate::cpu::{InstructionSet, decode_on};
use crate::{
    AttentionConfig, BlockTable, CacheLayout, CacheView, DecodeInputs, DeviceLimits, Element, Plan,
    RowsView, RowsViewMut, SplitPolicy,
};

/// A buffer at a 64-byte boundary, plus `shift` bytes.
#[derive(Clone)]
pub struct Aligned<T> {
    data: Vec<T>,
    start: usize,
    len: usize,
}

impl<T: Element> Aligned<T> {
    pub fn new(values: impl ExactSizeIterator<Item = f32>, shift: usize) -> Self {
        let len = values.len();
        let mut data: Vec<T> = Vec::with_capacity(len + 128 / size_of::<T>());
        let start = data.as_ptr().align_offset(64) + shift / size_of::<T>();
        data.resize(start, T::from_f32(f32::NAN));
        data.extend(values.map(T::from_f32));
        Self { data, start, len }
    }

    pub fn get(&self) -> &[T] {
        &self.data[self.start..][..self.len]
    }

    pub fn get_mut(&mut self) -> &mut [T] {
        &mut self.data[self.start..][..self.len]
    }
}

/// xorshift.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        random.bits();
        random.bits();
        random
    }

    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Uniform in [−1, 1].
    pub fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}

/// How a batch is stored.
#[derive(Clone, Copy, Debug)]
pub struct Storage {
    pub block_size: usize,
    pub layout: CacheLayout,
    /// Orders the physical blocks.
    pub seed: u64,
    /// Table columns past the longest sequence.
    pub padding: usize,
    /// Bytes between a 64-byte boundary and the caches.
    pub shift: usize,
}

impl Storage {
    pub const PLAIN: Self = Self {
        block_size: 16,
        layout: CacheLayout::Nhd,
        seed: 1,
        padding: 0,
        shift: 0,
    };
}

pub struct Batch<T> {
    pub config: AttentionConfig,
    pub q: Aligned<T>,
    k: Aligned<T>,
    v: Aligned<T>,
    table: Vec<i32>,
    width: usize,
    pub lens: Vec<i32>,
    /// By sequence, `[len, num_kv_heads, head_dim]`.
    keys: Vec<Aligned<T>>,
    values: Vec<Aligned<T>>,
    layout: CacheLayout,
    num_blocks: usize,
}

impl<T: Element> Batch<T> {
    /// `sequences`: (name, length); a name stands for contents.
    pub fn new(
        (q_heads, kv_heads, d): (usize, usize, usize),
        sequences: &[(u64, usize)],
        storage: Storage,
    ) -> Self {
        let Storage {
            block_size,
            layout,
            seed,
            padding,
            shift,
        } = storage;
        let blocks_of = |len: usize| len.div_ceil(block_size);
        let width = sequences.iter().map(|s| blocks_of(s.1)).max().unwrap_or(0) + padding;
        let num_blocks = sequences.iter().map(|s| blocks_of(s.1)).sum::<usize>() + 3;
        let mut random = Random::new(seed);
        let mut free: Vec<i32> = (0..num_blocks as i32).collect();
        for i in (1..free.len()).rev() {
            free.swap(i, random.bits() as usize % (i + 1));
        }
        let strides = layout.strides(block_size, kv_heads, d);
        let empty = vec![T::from_f32(f32::NAN); num_blocks * strides.block];
        let mut pools = [empty.clone(), empty];
        let mut table = vec![-1; width * sequences.len()];
        let (mut q, mut rows) = (vec![], [vec![], vec![]]);
        for (s, &(name, len)) in sequences.iter().enumerate() {
            let mut random = Random::new(name);
            q.extend((0..q_heads * d).map(|_| random.unit() * 4.0));
            for (which, (pool, rows)) in pools.iter_mut().zip(&mut rows).enumerate() {
                let mut all = vec![];
                for t in 0..len {
                    let entry = &mut table[s * width + t / block_size];
                    if *entry < 0 {
                        *entry = free.pop().unwrap();
                    }
                    let at = *entry as usize * strides.block + t % block_size * strides.token;
                    let mut random = Random::new(name << 32 | (t as u64) << 1 | which as u64);
                    for h in 0..kv_heads {
                        for i in 0..d {
                            let x = T::from_f32(random.unit());
                            pool[at + h * strides.head + i] = x;
                            all.push(x.to_f32());
                        }
                    }
                }
                rows.push(Aligned::new(all.into_iter(), shift));
            }
        }
        let pool = |pool: &[T]| Aligned::new(pool.iter().map(|x| x.to_f32()), shift);
        let [keys, values] = rows;
        Self {
            config: AttentionConfig::new(T::DTYPE, q_heads, kv_heads, d, block_size),
            q: Aligned::new(q.into_iter(), shift),
            k: pool(&pools[0]),
            v: pool(&pools[1]),
            table,
            width,
            lens: sequences.iter().map(|s| s.1 as i32).collect(),
            keys,
            values,
            layout,
            num_blocks,
        }
    }

    pub fn inputs(&self) -> DecodeInputs<'_, T> {
        let AttentionConfig {
            num_q_heads,
            num_kv_heads,
            head_dim,
            block_size,
            ..
        } = self.config;
        let cache = |data| {
            let (layout, blocks) = (self.layout, self.num_blocks);
            CacheView::dense(data, layout, blocks, block_size, num_kv_heads, head_dim)
        };
        DecodeInputs {
            q: RowsView::contiguous(self.q.get(), self.lens.len(), num_q_heads, head_dim),
            k_cache: cache(self.k.get()),
            v_cache: cache(self.v.get()),
            block_table: BlockTable::new(&self.table, self.lens.len(), self.width),
            seq_lens: &self.lens,
        }
    }

    fn plan(&self, policy: SplitPolicy) -> Plan {
        let longest = self.lens.iter().copied().max().unwrap_or(0) as usize;
        Plan::new(
            &self.config,
            self.lens.len(),
            longest,
            policy,
            &DeviceLimits::cpu(2),
        )
        .unwrap()
    }

    /// (out, lse) of the paged back end; the buffers held NaN before.
    pub fn paged(&self, set: InstructionSet, policy: SplitPolicy) -> (Vec<T>, Vec<f32>) {
        self.run(policy, |plan, out, lse, workspace| {
            decode_on(set, plan, &self.inputs(), out, Some(lse), workspace).unwrap();
        })
    }

    /// (out, lse) of contiguous attention on the same contents.
    pub fn contiguous(&self, set: InstructionSet, policy: SplitPolicy) -> (Vec<T>, Vec<f32>) {
        let keys: Vec<_> = self.keys.iter().map(|keys| keys.get()).collect();
        let values: Vec<_> = self.values.iter().map(|values| values.get()).collect();
        let inputs = ContiguousInputs {
            q: self.inputs().q,
            keys: &keys,
            values: &values,
            seq_lens: &self.lens,
        };
        self.run(policy, |plan, out, lse, workspace| {
            contiguous::decode_on(set, plan, &inputs, out, Some(lse), workspace).unwrap();
        })
    }

    fn run(
        &self,
        policy: SplitPolicy,
        decode: impl FnOnce(&Plan, RowsViewMut<'_, T>, &mut [f32], &mut [f32]),
    ) -> (Vec<T>, Vec<f32>) {
        let AttentionConfig {
            num_q_heads,
            head_dim,
            ..
        } = self.config;
        let rows = self.lens.len() * num_q_heads;
        let plan = self.plan(policy);
        let mut out = Aligned::<T>::new((0..rows * head_dim).map(|_| f32::NAN), 0);
        let mut lse = vec![f32::NAN; rows];
        let mut workspace = vec![f32::NAN; plan.workspace_len()];
        let view = RowsViewMut::contiguous(out.get_mut(), self.lens.len(), num_q_heads, head_dim);
        decode(&plan, view, &mut lse, &mut workspace);
        (out.get().to_vec(), lse)
    }
}
