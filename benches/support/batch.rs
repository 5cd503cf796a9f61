//! Batches to time: a shuffled block table over a pool without gaps, and the same rows contiguous.

use paged_attention::contiguous::{self, ContiguousInputs};
use paged_attention::cpu::{self, InstructionSet};
use paged_attention::{
    AttentionConfig, BlockTable, CacheLayout, CacheView, DecodeInputs, DeviceLimits, Element, Plan,
    RowsView, RowsViewMut, SplitPolicy, reference,
};

/// Alignment of every buffer, as allocators of engines give it.
const PAGE: usize = 4096;

/// A buffer that starts at a page.
pub struct Pages<T> {
    data: Vec<T>,
    start: usize,
    len: usize,
}

impl<T: Element> Pages<T> {
    pub fn new(len: usize, mut value: impl FnMut() -> f32) -> Self {
        let mut data: Vec<T> = Vec::with_capacity(len + PAGE / size_of::<T>());
        let start = data.as_ptr().align_offset(PAGE);
        data.resize(start, T::from_f32(0.0));
        data.extend((0..len).map(|_| T::from_f32(value())));
        Self { data, start, len }
    }

    pub fn get(&self) -> &[T] {
        &self.data[self.start..][..self.len]
    }

    pub fn get_mut(&mut self) -> &mut [T] {
        &mut self.data[self.start..][..self.len]
    }

    pub fn bytes(&self) -> &[u8] {
        let data = self.get();
        // SAFETY: elements are f32, f16 or bf16: no padding, and any byte is a u8.
        unsafe { std::slice::from_raw_parts(data.as_ptr().cast(), size_of_val(data)) }
    }
}

/// The shape of a batch; every sequence has `ctx` tokens, a multiple of `block_size`.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub seqs: usize,
    pub ctx: usize,
    pub q_heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub block_size: usize,
    pub layout: CacheLayout,
}

impl Shape {
    /// Bytes of K and V.
    pub fn bytes<T: Element>(&self) -> usize {
        2 * self.seqs * self.ctx * self.kv_heads * self.head_dim * size_of::<T>()
    }
}

pub struct Batch<T> {
    pub shape: Shape,
    pub plan: Plan,
    pub q: Pages<T>,
    pub k: Pages<T>,
    pub v: Pages<T>,
    pub out: Pages<T>,
    table: Vec<i32>,
    lens: Vec<i32>,
    workspace: Vec<f32>,
}

fn xorshift(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

impl<T: Element> Batch<T> {
    pub fn new(shape: Shape) -> Self {
        let mut state = 0x9e37_79b9_7f4a_7c15;
        let Shape {
            seqs,
            ctx,
            q_heads,
            kv_heads,
            head_dim,
            block_size,
            ..
        } = shape;
        assert!(
            ctx.is_multiple_of(block_size),
            "the pool has no unused slots"
        );
        let mut unit = || (xorshift(&mut state) >> 40) as f32 / (1u64 << 23) as f32 - 1.0;
        let pool = seqs * ctx * kv_heads * head_dim;
        let (k, v) = (Pages::new(pool, &mut unit), Pages::new(pool, &mut unit));
        let q = Pages::new(seqs * q_heads * head_dim, &mut unit);
        let out = Pages::new(seqs * q_heads * head_dim, || 0.0);
        let mut table: Vec<i32> = (0..(seqs * ctx / block_size) as i32).collect();
        for i in (1..table.len()).rev() {
            table.swap(i, (xorshift(&mut state) % (i as u64 + 1)) as usize);
        }
        let config = AttentionConfig::new(T::DTYPE, q_heads, kv_heads, head_dim, block_size);
        let limits = DeviceLimits::cpu(rayon::current_num_threads() as u32);
        let plan = Plan::new(&config, seqs, ctx, SplitPolicy::Auto, &limits).unwrap();
        let workspace = vec![0.0; plan.workspace_len()];
        let lens = vec![ctx as i32; seqs];
        Self {
            shape,
            plan,
            q,
            k,
            v,
            out,
            table,
            lens,
            workspace,
        }
    }

    fn cache<'a>(&self, data: &'a [T]) -> CacheView<'a, T> {
        let Shape {
            seqs,
            ctx,
            kv_heads,
            head_dim,
            block_size,
            layout,
            ..
        } = self.shape;
        CacheView::dense(
            data,
            layout,
            seqs * ctx / block_size,
            block_size,
            kv_heads,
            head_dim,
        )
    }

    /// The first `seqs` sequences.
    fn inputs(&self, seqs: usize) -> DecodeInputs<'_, T> {
        let Shape {
            ctx,
            q_heads,
            head_dim,
            block_size,
            ..
        } = self.shape;
        let q = &self.q.get()[..seqs * q_heads * head_dim];
        DecodeInputs {
            q: RowsView::contiguous(q, seqs, q_heads, head_dim),
            k_cache: self.cache(self.k.get()),
            v_cache: self.cache(self.v.get()),
            block_table: BlockTable::new(&self.table, seqs, ctx / block_size),
            seq_lens: &self.lens[..seqs],
        }
    }

    /// Keys and values of each block, in the order of the table.
    pub fn blocks(&self) -> Vec<[&[u8]; 2]> {
        let Shape {
            kv_heads,
            head_dim,
            block_size,
            ..
        } = self.shape;
        let bytes = block_size * kv_heads * head_dim * size_of::<T>();
        let pools = [self.k.bytes(), self.v.bytes()];
        let blocks = self.table.iter();
        blocks
            .map(|&i| pools.map(|pool| &pool[i as usize * bytes..][..bytes]))
            .collect()
    }

    /// Attention through the table.
    pub fn decode(&mut self, set: InstructionSet) {
        let Shape {
            seqs,
            q_heads,
            head_dim,
            ..
        } = self.shape;
        let mut out = std::mem::replace(&mut self.out, Pages::new(0, || 0.0));
        let mut workspace = std::mem::take(&mut self.workspace);
        let view = RowsViewMut::contiguous(out.get_mut(), seqs, q_heads, head_dim);
        cpu::decode_on(
            set,
            &self.plan,
            &self.inputs(seqs),
            view,
            None,
            &mut workspace,
        )
        .unwrap();
        (self.out, self.workspace) = (out, workspace);
    }

    /// Panics unless decode gives the bits of contiguous attention for the first sequence, and the
    /// reference's result within a bound.
    pub fn verify(&mut self, set: InstructionSet) {
        let Shape {
            ctx,
            q_heads,
            kv_heads,
            head_dim,
            block_size,
            layout,
            ..
        } = self.shape;
        self.decode(set);
        let len = q_heads * head_dim;
        let found = &self.out.get()[..len];

        let row = kv_heads * head_dim;
        let strides = layout.strides(block_size, kv_heads, head_dim);
        let gather = |pool: &[T]| {
            let mut at = 0;
            Pages::<T>::new(ctx * row, || {
                let (t, h, i) = (at / row, at % row / head_dim, at % head_dim);
                at += 1;
                let block = self.table[t / block_size] as usize * strides.block;
                let slot = t % block_size * strides.token;
                pool[block + slot + h * strides.head + i].to_f32()
            })
        };
        let (keys, values) = (gather(self.k.get()), gather(self.v.get()));
        let inputs = ContiguousInputs {
            q: RowsView::contiguous(&self.q.get()[..len], 1, q_heads, head_dim),
            keys: &[keys.get()],
            values: &[values.get()],
            seq_lens: &self.lens[..1],
        };
        let mut contiguous = Pages::<T>::new(len, || f32::NAN);
        let view = RowsViewMut::contiguous(contiguous.get_mut(), 1, q_heads, head_dim);
        let policy = SplitPolicy::Tokens(self.plan.split_tokens());
        let limits = DeviceLimits::cpu(1);
        let plan = Plan::new(self.plan.config(), 1, ctx, policy, &limits).unwrap();
        let mut workspace = vec![0.0; plan.workspace_len()];
        contiguous::decode_on(set, &plan, &inputs, view, None, &mut workspace).unwrap();

        let exact = reference::decode(self.plan.config(), &self.inputs(1)).unwrap();
        // Unit roundoff of the output type, and 200 roundings of f32. Numerator and denominator are
        // added in chains of at most 2016 terms; a rounding deviates by 2^-24/√3 of the sum so far,
        // and independent ones come to √2016/√3 = 26 in each chain, 37 in the quotient. What scores
        // and weights add averages out over the tokens. So 200 are five standard deviations: no
        // worst case, which the test suite derives, but a bound that a kernel meets only if it
        // computes the right thing.
        let unit = [2f64.powi(-24), 2f64.powi(-11), 2f64.powi(-8)][T::DTYPE as usize];
        for (i, x) in found.iter().enumerate() {
            let (x, twin) = (x.to_f32(), contiguous.get()[i].to_f32());
            assert_eq!(
                x.to_bits(),
                twin.to_bits(),
                "{:?}: paged [{i}] is not contiguous",
                self.shape
            );
            let bound = unit * exact.out[i].abs() + 200.0 * 2f64.powi(-24) * exact.abs_out[i];
            let error = (f64::from(x) - exact.out[i]).abs();
            assert!(
                error <= bound,
                "{:?}: [{i}] is off by {error:e}, bound {bound:e}",
                self.shape
            );
        }
    }
}
