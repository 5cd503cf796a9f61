//! Every instruction set of this machine against the f64 reference.

use half::{bf16, f16};

use super::*;
use crate::{
    AttentionConfig, BlockTable, CacheLayout, CacheView, DeviceLimits, RowsView, SplitPolicy,
    reference,
};

/// A batch with a shuffled table, NaN in unused slots and −1 past the live entries.
struct Batch<T> {
    config: AttentionConfig,
    q: Aligned<T>,
    k: Aligned<T>,
    v: Aligned<T>,
    table: Vec<i32>,
    width: usize,
    lens: Vec<i32>,
    layout: CacheLayout,
    num_blocks: usize,
}

/// A buffer at a 64-byte boundary.
struct Aligned<T> {
    data: Vec<T>,
    start: usize,
    len: usize,
}

impl<T: Element> Aligned<T> {
    fn new(values: impl ExactSizeIterator<Item = f32>) -> Self {
        let len = values.len();
        let pad = 64 / size_of::<T>();
        let mut data: Vec<T> = Vec::with_capacity(len + pad);
        let start = data.as_ptr().align_offset(64);
        data.resize(start, T::from_f32(0.0));
        data.extend(values.map(T::from_f32));
        Self { data, start, len }
    }

    fn get(&self) -> &[T] {
        &self.data[self.start..][..self.len]
    }
}

/// xorshift: uniform in [−1, 1].
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}

impl<T: Element> Batch<T> {
    fn new(
        (q_heads, kv_heads, d, block_size): (usize, usize, usize, usize),
        lens: &[i32],
        layout: CacheLayout,
        seed: u64,
    ) -> Self {
        let config = AttentionConfig::new(T::DTYPE, q_heads, kv_heads, d, block_size);
        let mut random = Random(seed * 2 + 1);
        let blocks_of = |&len: &i32| (len as usize).div_ceil(block_size);
        let width = lens.iter().map(blocks_of).max().unwrap_or(0) + 2;
        let used: usize = lens.iter().map(blocks_of).sum();
        let num_blocks = used + 3;
        let mut free: Vec<i32> = (0..num_blocks as i32).collect();
        for i in (1..free.len()).rev() {
            free.swap(i, random.bits() as usize % (i + 1));
        }
        let mut table = vec![-1; width * lens.len()];
        let strides = layout.strides(block_size, kv_heads, d);
        let mut cache = [
            vec![f32::NAN; num_blocks * strides.block],
            vec![f32::NAN; num_blocks * strides.block],
        ];
        for (s, &len) in lens.iter().enumerate() {
            for t in 0..len as usize {
                if t % block_size == 0 {
                    table[s * width + t / block_size] = free.pop().unwrap();
                }
                let block = table[s * width + t / block_size] as usize;
                for cache in &mut cache {
                    for h in 0..kv_heads {
                        let at = block * strides.block + t % block_size * strides.token;
                        let row = &mut cache[at + h * strides.head..][..d];
                        row.iter_mut().for_each(|x| *x = random.unit());
                    }
                }
            }
        }
        let [k, v] = cache;
        let q = Aligned::new((0..lens.len() * q_heads * d).map(|_| random.unit() * 4.0));
        let (k, v) = (Aligned::new(k.into_iter()), Aligned::new(v.into_iter()));
        let lens = lens.to_vec();
        Self {
            config,
            q,
            k,
            v,
            table,
            width,
            lens,
            layout,
            num_blocks,
        }
    }

    fn cache<'a>(&self, data: &'a Aligned<T>) -> CacheView<'a, T> {
        let c = &self.config;
        let (heads, d) = (c.num_kv_heads, c.head_dim);
        CacheView::dense(
            data.get(),
            self.layout,
            self.num_blocks,
            c.block_size,
            heads,
            d,
        )
    }

    fn inputs(&self) -> DecodeInputs<'_, T> {
        let c = &self.config;
        DecodeInputs {
            q: RowsView::contiguous(self.q.get(), self.lens.len(), c.num_q_heads, c.head_dim),
            k_cache: self.cache(&self.k),
            v_cache: self.cache(&self.v),
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

    fn decode(&self, set: InstructionSet, policy: SplitPolicy) -> (Vec<T>, Vec<f32>) {
        let c = &self.config;
        let rows = self.lens.len() * c.num_q_heads;
        let plan = self.plan(policy);
        let mut out = Aligned::<T>::new(vec![f32::NAN; rows * c.head_dim].into_iter());
        let mut lse = vec![f32::NAN; rows];
        let mut workspace = vec![f32::NAN; plan.workspace_len()];
        let view = &mut out.data[out.start..];
        let view = RowsViewMut::contiguous(view, self.lens.len(), c.num_q_heads, c.head_dim);
        decode_on(
            set,
            &plan,
            &self.inputs(),
            view,
            Some(&mut lse),
            &mut workspace,
        )
        .unwrap();
        (out.get().to_vec(), lse)
    }

    #[track_caller]
    fn check(&self, set: InstructionSet, policy: SplitPolicy) {
        let (out, lse) = self.decode(set, policy);
        let reference = reference::decode(&self.config, &self.inputs()).unwrap();
        let u = match T::DTYPE {
            crate::DType::F32 => 2f64.powi(-24),
            crate::DType::F16 => 2f64.powi(-11),
            crate::DType::Bf16 => 2f64.powi(-8),
        };
        let mut worst = 0.0f64;
        for (i, &found) in out.iter().enumerate() {
            let (exact, sum) = (reference.out[i], reference.abs_out[i]);
            let bound = u * exact.abs() + 200.0 * 2f64.powi(-24) * sum + 1e-30;
            let error = (f64::from(found.to_f32()) - exact).abs();
            worst = worst.max(error / bound);
            assert!(
                error <= bound,
                "{set:?} {:?} [{i}]: {found_} vs {exact}",
                self.config,
                found_ = found.to_f32()
            );
        }
        for (found, exact) in lse.iter().zip(&reference.lse) {
            assert!(
                (f64::from(*found) - exact).abs() < 1e-5 * exact.abs().max(1.0)
                    || f64::from(*found) == *exact,
                "{found} {exact}"
            );
        }
        println!("{set:?} {:?} worst {worst}", self.config.dtype);
    }
}

fn sets() -> impl Iterator<Item = InstructionSet> {
    InstructionSet::ALL
        .into_iter()
        .filter(|set| set.is_available())
}

fn smoke<T: Element>() {
    for set in sets() {
        for shape in [
            (4, 4, 128, 16),
            (8, 1, 128, 16),
            (7, 1, 80, 3),
            (10, 2, 120, 16),
            (6, 2, 64, 1),
        ] {
            for layout in [CacheLayout::Nhd, CacheLayout::Hnd] {
                let batch = Batch::<T>::new(shape, &[0, 1, 33, 500, 5000], layout, 1);
                batch.check(set, SplitPolicy::Auto);
                batch.check(set, SplitPolicy::Tokens(512));
            }
        }
    }
}

#[test]
fn smoke_f32() {
    smoke::<f32>();
    smoke::<f16>();
    smoke::<bf16>();
}
