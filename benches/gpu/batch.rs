//! Batches on the device: sets of sequences in one pool, through shuffled tables or one behind the
//! other.

use cust::memory::{CopyDestination, DeviceBuffer, DeviceSlice};
use cust::stream::Stream;
use half::f16;
use paged_attention::cuda::CudaBackend;
use paged_attention::{
    AttentionConfig, BlockTable, CacheLayout, CacheStrides, CacheView, DType, DecodeInputs,
    DeviceCache, DeviceRows, DeviceTable, DeviceTensors, Plan, RowsView, SplitPolicy, reference,
};

use crate::memory;

pub const HEAD_DIM: usize = 128;
pub const BLOCK_SIZE: usize = 16;

/// Every sequence has `ctx` tokens, a multiple of the block size.
#[derive(Clone, Copy)]
pub struct Shape {
    pub name: &'static str,
    pub seqs: usize,
    pub ctx: usize,
    pub q_heads: usize,
    pub kv_heads: usize,
}

impl Shape {
    pub const fn new(
        name: &'static str,
        seqs: usize,
        ctx: usize,
        q_heads: usize,
        kv_heads: usize,
    ) -> Self {
        assert!(ctx.is_multiple_of(BLOCK_SIZE));
        Self {
            name,
            seqs,
            ctx,
            q_heads,
            kv_heads,
        }
    }

    /// Elements of one token's keys.
    fn row(&self) -> usize {
        self.kv_heads * HEAD_DIM
    }

    /// Elements of one set's keys.
    fn elements(&self) -> usize {
        self.seqs * self.ctx * self.row()
    }

    /// Bytes of one set's keys and values.
    pub fn bytes(&self) -> usize {
        2 * 2 * self.elements()
    }

    fn blocks_per_seq(&self) -> usize {
        self.ctx / BLOCK_SIZE
    }
}

/// Random numbers that fill a pool over and over; their count has nothing to do with a block's.
struct Pattern(Vec<f16>);

impl Pattern {
    const LEN: usize = (1 << 21) + 8 * 37;

    fn new(random: &mut impl FnMut() -> u64) -> Self {
        let mut unit = || (random() >> 40) as f32 / (1u64 << 23) as f32 - 1.0;
        Self((0..Self::LEN).map(|_| f16::from_f32(unit())).collect())
    }

    fn fill(&self, pool: &mut DeviceSlice<u16>) -> Result<(), String> {
        let bits: Vec<u16> = self.0.iter().map(|x| x.to_bits()).collect();
        for start in (0..pool.len()).step_by(bits.len()) {
            let len = bits.len().min(pool.len() - start);
            let copied = pool.index(start..start + len).copy_from(&bits[..len]);
            copied.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// The elements `start..start + len` of a filled pool.
    fn get(&self, start: usize, len: usize) -> impl Iterator<Item = f16> {
        (start..start + len).map(|i| self.0[i % self.0.len()])
    }
}

pub struct Batch<'a> {
    paged: &'a CudaBackend,
    /// Runs the contiguous twin of the shapes' decode entry: the same body, but for the table.
    twin: &'a CudaBackend,
    shape: Shape,
    pub plan: Plan,
    sets: usize,
    queries: Vec<f16>,
    /// `[sets, seqs, blocks_per_seq]`.
    tables: Vec<i32>,
    patterns: [Pattern; 2],
    q: DeviceBuffer<u16>,
    pools: [DeviceBuffer<u16>; 2],
    on_device_tables: DeviceBuffer<i32>,
    lens: DeviceBuffer<i32>,
    out: DeviceBuffer<u16>,
    workspace: DeviceBuffer<f32>,
}

fn xorshift(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

impl<'a> Batch<'a> {
    pub fn new(
        [paged, twin]: [&'a CudaBackend; 2],
        shape: Shape,
        sets: usize,
    ) -> Result<Self, String> {
        let text = |error: cust::error::CudaError| error.to_string();
        let Shape {
            seqs,
            ctx,
            q_heads,
            kv_heads,
            ..
        } = shape;
        let mut state = 0x9e37_79b9_7f4a_7c15;
        let mut random = || xorshift(&mut state);
        let config = AttentionConfig::new(DType::F16, q_heads, kv_heads, HEAD_DIM, BLOCK_SIZE);
        let limits = paged.limits();
        let plan = Plan::new(&config, seqs, ctx, SplitPolicy::Auto, &limits);
        let plan = plan.map_err(|error| error.to_string())?;

        let mut tables: Vec<i32> = (0..(sets * seqs * shape.blocks_per_seq()) as i32).collect();
        for i in (1..tables.len()).rev() {
            tables.swap(i, (random() % (i as u64 + 1)) as usize);
        }
        let patterns = [Pattern::new(&mut random), Pattern::new(&mut random)];
        let pool = |pattern: &Pattern, what| {
            let mut pool = memory(sets * shape.elements(), what)?;
            pattern.fill(&mut pool)?;
            Ok::<_, String>(pool)
        };
        let pools = [pool(&patterns[0], "keys")?, pool(&patterns[1], "values")?];
        let queries: Vec<f16> = patterns[1].get(5, seqs * q_heads * HEAD_DIM).collect();
        let bits: Vec<u16> = queries.iter().map(|x| x.to_bits()).collect();
        Ok(Self {
            q: DeviceBuffer::from_slice(&bits).map_err(text)?,
            pools,
            on_device_tables: DeviceBuffer::from_slice(&tables).map_err(text)?,
            lens: DeviceBuffer::from_slice(&vec![ctx as i32; seqs]).map_err(text)?,
            out: memory(bits.len(), "the output")?,
            workspace: memory(plan.workspace_len(), "the workspace")?,
            paged,
            twin,
            shape,
            plan,
            sets,
            queries,
            tables,
            patterns,
        })
    }

    /// Addresses of a set.
    fn tensors(&self, set: usize) -> DeviceTensors {
        let shape = self.shape;
        let rows = |buffer: &DeviceBuffer<u16>| DeviceRows {
            address: buffer.as_device_ptr().as_raw(),
            token_stride: shape.q_heads * HEAD_DIM,
            head_stride: HEAD_DIM,
        };
        let cache = |pool: &DeviceBuffer<u16>| DeviceCache {
            address: pool.as_device_ptr().as_raw(),
            strides: CacheLayout::Nhd.strides(BLOCK_SIZE, shape.kv_heads, HEAD_DIM),
        };
        let table = set * shape.seqs * shape.blocks_per_seq() * size_of::<i32>();
        DeviceTensors {
            q: rows(&self.q),
            k_cache: cache(&self.pools[0]),
            v_cache: cache(&self.pools[1]),
            block_table: DeviceTable {
                address: self.on_device_tables.as_device_ptr().as_raw() + table as u64,
                row_stride: shape.blocks_per_seq(),
            },
            seq_lens: self.lens.as_device_ptr().as_raw(),
            out: rows(&self.out),
            lse: None,
            workspace: self.workspace.as_device_ptr().as_raw(),
        }
    }

    /// Gives paged decode of a set to the stream.
    pub fn paged(&mut self, stream: &Stream, set: usize) -> Result<(), String> {
        self.launch(self.paged, stream, &self.tensors(set))
    }

    /// Gives decode of a set's tokens, as they lie in the pool, to the stream.
    pub fn contiguous(&mut self, stream: &Stream, set: usize) -> Result<(), String> {
        let mut tensors = self.tensors(set);
        for cache in [&mut tensors.k_cache, &mut tensors.v_cache] {
            cache.address += (set * self.shape.elements() * size_of::<f16>()) as u64;
            // From one sequence to the next.
            let block = self.shape.ctx * self.shape.row();
            cache.strides = CacheStrides {
                block,
                ..cache.strides
            };
        }
        self.launch(self.twin, stream, &tensors)
    }

    fn launch(
        &self,
        backend: &CudaBackend,
        stream: &Stream,
        tensors: &DeviceTensors,
    ) -> Result<(), String> {
        // SAFETY: everything lives until the stream has been waited for, and has the plan's sizes;
        // `new` made tables and lengths that fit the pool, and the twin reads no table; calls on one
        // stream run in order.
        let launched = unsafe { backend.decode_raw(stream.as_inner(), &self.plan, tensors) };
        launched.map_err(|error| error.to_string())
    }

    /// Compares the first set's first sequence and the last one's last with the f64 reference.
    pub fn verify(&mut self, stream: &Stream) -> Result<(), String> {
        let Shape { seqs, ctx, .. } = self.shape;
        let per_seq = self.shape.blocks_per_seq();
        let mut places = vec![(0, 0), (self.sets - 1, seqs - 1)];
        places.dedup();
        for (set, seq) in places {
            let sequence = set * seqs + seq;
            let row = &self.tables[sequence * per_seq..][..per_seq];
            let shuffled: Vec<usize> = row.iter().map(|&block| block as usize).collect();
            let in_order: Vec<usize> = (sequence * per_seq..(sequence + 1) * per_seq).collect();
            self.poison()?;
            self.paged(stream, set)?;
            self.compare("paged", stream, seq, &shuffled)?;
            self.poison()?;
            self.contiguous(stream, set)?;
            self.compare("contiguous", stream, seq, &in_order)?;
        }
        debug_assert!(ctx > 0);
        Ok(())
    }

    /// NaN, so that what is not written shows.
    fn poison(&mut self) -> Result<(), String> {
        self.out
            .set_16(f16::NAN.to_bits())
            .map_err(|error| error.to_string())
    }

    /// Compares a sequence whose tokens lie in `blocks` of the pool.
    fn compare(
        &self,
        kernel: &str,
        stream: &Stream,
        seq: usize,
        blocks: &[usize],
    ) -> Result<(), String> {
        let Shape {
            name,
            ctx,
            q_heads,
            kv_heads,
            ..
        } = self.shape;
        stream
            .synchronize()
            .map_err(|error| format!("{name}: {kernel}: {error}"))?;
        let block = BLOCK_SIZE * self.shape.row();
        let gather = |pattern: &Pattern| -> Vec<f16> {
            blocks
                .iter()
                .flat_map(|b| pattern.get(b * block, block).collect::<Vec<_>>())
                .collect()
        };
        let [k, v] = self.patterns.each_ref().map(gather);
        let view = |data| {
            let layout = CacheLayout::Nhd;
            CacheView::dense(data, layout, blocks.len(), BLOCK_SIZE, kv_heads, HEAD_DIM)
        };
        let len = q_heads * HEAD_DIM;
        let table: Vec<i32> = (0..blocks.len() as i32).collect();
        let inputs = DecodeInputs {
            q: RowsView::contiguous(&self.queries[seq * len..][..len], 1, q_heads, HEAD_DIM),
            k_cache: view(&k[..]),
            v_cache: view(&v[..]),
            block_table: BlockTable::new(&table, 1, blocks.len()),
            seq_lens: &[ctx as i32],
        };
        let exact = reference::decode(self.plan.config(), &inputs);
        let exact = exact.map_err(|error| error.to_string())?;
        let mut found = vec![0u16; len];
        let rows = self.out.index(seq * len..(seq + 1) * len);
        rows.copy_to(&mut found[..])
            .map_err(|error| error.to_string())?;
        for (i, bits) in found.into_iter().enumerate() {
            // Weights and outputs are rounded to f16, sums of f32 to less than half of that: the
            // suite derives a sharper bound, this one is there to catch another computation.
            let unit = 2f64.powi(-11);
            let bound = unit * (exact.out[i].abs() + 1.5 * exact.abs_out[i]);
            let (found, exact) = (f16::from_bits(bits).to_f64(), exact.out[i]);
            // Also false for NaN.
            let close = (found - exact).abs() <= bound;
            if !close {
                return Err(format!(
                    "{name}: {kernel}: out[{seq}][{}][{}] = {found:e}, must be {exact:e} within \
                     {bound:e}",
                    i / HEAD_DIM,
                    i % HEAD_DIM
                ));
            }
        }
        Ok(())
    }
}
