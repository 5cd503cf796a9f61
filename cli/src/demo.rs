//! `demo`: the worked case, 60 tokens in blocks 7, 1, 12 and 4.

use std::io::{self, Write};

use fastrand::Rng;
use paged_attention::contiguous::{self, ContiguousInputs};
use paged_attention::{
    CacheLayout, DeviceLimits, Plan, RowsView, RowsViewMut, SplitPolicy, cpu, reference,
};

use crate::args::DemoArgs;
use crate::batch::{Batch, CacheDims, Shapes, Storage};
use crate::buffer::Buffer;
use crate::error::Error;
use crate::sample::uniform;
use crate::text::{Align, Table, field, number};
use crate::with_element;

const TOKENS: usize = 60;
const TABLE: [i32; 4] = [7, 1, 12, 4];
const DIMS: CacheDims = CacheDims {
    num_blocks: 16,
    block_size: 16,
    num_kv_heads: 1,
    head_dim: 64,
};
const Q_HEADS: usize = 2;
/// Elements per row of K, V, q and out.
const D: usize = DIMS.head_dim;
/// Elements of the output that are printed.
const SHOWN: usize = 6;

/// Runs the command.
pub fn run(args: &DemoArgs, out: &mut dyn Write) -> Result<(), Error> {
    with_element!(args.dtype.into(), T => demo::<T>(args.seed, out))
}

fn demo<T: Storage>(seed: u64, out: &mut dyn Write) -> Result<(), Error> {
    let mut rng = Rng::with_seed(seed);
    let batch = batch::<T>(&mut rng)?;
    introduce::<T>(out)?;
    let whole = show_parts(&batch, out)?;

    let plan = Plan::new(
        &batch.config,
        1,
        TOKENS,
        SplitPolicy::Tokens(512),
        &DeviceLimits::this_cpu(),
    )?;
    let mut paged = Buffer::<T>::zeroed("out", Q_HEADS * D)?;
    let mut lse = Buffer::<f32>::zeroed("lse", Q_HEADS)?;
    let mut workspace = Buffer::<f32>::zeroed("the workspace", plan.workspace_len())?;
    let rows = RowsViewMut::contiguous(&mut paged, 1, Q_HEADS, D);
    cpu::decode(&plan, &batch.inputs(), rows, Some(&mut lse), &mut workspace)?;

    let (keys, values) = (gather(&batch.k_cache)?, gather(&batch.v_cache)?);
    let inputs = ContiguousInputs {
        q: RowsView::contiguous(&batch.q, 1, Q_HEADS, D),
        keys: &[&keys],
        values: &[&values],
        seq_lens: &batch.seq_lens,
    };
    let mut dense = Buffer::<T>::zeroed("out", Q_HEADS * D)?;
    let rows = RowsViewMut::contiguous(&mut dense, 1, Q_HEADS, D);
    contiguous::decode(&plan, &inputs, rows, None, &mut workspace)?;
    let reference = reference::decode(&batch.config, &batch.inputs())?;

    writeln!(out)?;
    let (merged, computed) = (whole.m + whole.l.ln(), lse[0]);
    writeln!(
        out,
        "The log-sum-exp, m + ln l, is {merged:.6}; the library says {computed:.6}."
    )?;
    writeln!(out)?;
    writeln!(
        out,
        "The output of query head 0, its first {SHOWN} elements of {D}:"
    )?;
    writeln!(out)?;
    let mut table = Table::new(&[
        ("element", Align::Right),
        ("blocks merged", Align::Right),
        ("paged", Align::Right),
        ("contiguous", Align::Right),
        ("f64 reference", Align::Right),
    ]);
    for i in 0..SHOWN {
        let cell = |x: f64| format!("{x:.6}");
        table.row([
            i.to_string(),
            cell(whole.o[i] / whole.l),
            cell(paged[i].to_f32().into()),
            cell(dense[i].to_f32().into()),
            cell(reference.out[i]),
        ]);
    }
    table.print(out)?;
    writeln!(out)?;
    let pairs = |i: usize| (f64::from(paged[i].to_f32()), f64::from(dense[i].to_f32()));
    let all = || (0..Q_HEADS * D).map(pairs);
    let to_reference = all()
        .zip(&reference.out)
        .map(|((paged, _), r)| (paged - r).abs());
    let to_dense = all().map(|(paged, dense)| (paged - dense).abs());
    writeln!(
        out,
        "Largest differences over all {} elements:",
        Q_HEADS * D
    )?;
    writeln!(out)?;
    field(out, "to reference", number(largest(to_reference)))?;
    field(out, "to contiguous", number(largest(to_dense)))?;
    Ok(())
}

/// NaN counts as largest.
fn largest(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, |a, b| if b > a || b.is_nan() { b } else { a })
}

/// The batch: NaN wherever no token lies.
fn batch<T: Storage>(rng: &mut Rng) -> Result<Batch<T>, Error> {
    let layout = CacheLayout::Nhd;
    let shapes = Shapes {
        layout,
        q: [1, Q_HEADS, D],
        k_cache: DIMS.ordered(layout),
        v_cache: DIMS.ordered(layout),
        block_table: [1, TABLE.len()],
        seq_lens: [1],
        unsigned: [false; 2],
    };
    let pool = DIMS.num_blocks * DIMS.block_size * D;
    let mut batch = Batch {
        shapes,
        config: shapes.config(T::DTYPE),
        q: Buffer::zeroed("q", Q_HEADS * D)?,
        k_cache: Buffer::zeroed("k_cache", pool)?,
        v_cache: Buffer::zeroed("v_cache", pool)?,
        block_table: Buffer::zeroed("block_table", TABLE.len())?,
        seq_lens: Buffer::zeroed("seq_lens", 1)?,
    };
    batch.block_table.copy_from_slice(&TABLE);
    batch.seq_lens[0] = TOKENS as i32;
    batch.k_cache.fill(T::from_f32(f32::NAN));
    batch.v_cache.fill(T::from_f32(f32::NAN));
    // Larger queries make the weights differ enough to see.
    batch.q.fill_with(|| T::from_f32(4.0 * uniform::<f32>(rng)));
    for t in 0..TOKENS {
        let row = row_of(t);
        batch.k_cache[row.clone()].fill_with(|| uniform(rng));
        batch.v_cache[row].fill_with(|| uniform(rng));
    }
    Ok(batch)
}

/// Where the block table says that token `t` lies, in elements.
fn row_of(t: usize) -> std::ops::Range<usize> {
    let block = TABLE[t / DIMS.block_size] as usize;
    let slot = t % DIMS.block_size;
    let start = (block * DIMS.block_size + slot) * D;
    start..start + D
}

/// The sequence's tokens one after the other.
fn gather<T: Storage>(cache: &[T]) -> Result<Buffer<T>, Error> {
    let mut tokens = Buffer::zeroed("contiguous keys and values", TOKENS * D)?;
    for (t, row) in tokens.chunks_exact_mut(D).enumerate() {
        row.copy_from_slice(&cache[row_of(t)]);
    }
    Ok(tokens)
}

/// First and last token of logical block `b`.
fn tokens_of(b: usize) -> (usize, usize) {
    let first = b * DIMS.block_size;
    (first, (first + DIMS.block_size).min(TOKENS) - 1)
}

fn introduce<T: Storage>(out: &mut dyn Write) -> io::Result<()> {
    let (size, pool) = (DIMS.block_size, DIMS.num_blocks);
    let last = TABLE[TABLE.len() - 1];
    let unused = TABLE.len() * size - TOKENS;
    writeln!(
        out,
        "Attention through a block table: {TOKENS} tokens, block size {size}, {Q_HEADS} query heads \
         on one kv head of {D}, {}",
        T::DTYPE.name()
    )?;
    writeln!(out)?;
    writeln!(
        out,
        "The block table is {TABLE:?}: the first {size} tokens lie in physical block 7, the next in"
    )?;
    writeln!(
        out,
        "block 1, and so on. The pool has {pool} blocks. Those without tokens, and the last {unused}"
    )?;
    writeln!(out, "slots of block {last}, hold NaN: they are never read.")?;
    for half in [0..pool / 2, pool / 2..pool] {
        writeln!(out)?;
        let mut blocks = format!("  {:<8}", "block");
        let mut tokens = format!("  {:<8}", "tokens");
        for block in half {
            let logical = TABLE.iter().position(|&entry| entry as usize == block);
            let held = logical.map(tokens_of);
            blocks += &format!("{block:^8}");
            tokens += &match held {
                Some((first, last)) => format!("{:^8}", format!("{first}-{last}")),
                None => format!("{:^8}", "NaN"),
            };
        }
        writeln!(out, "{}", blocks.trim_end())?;
        writeln!(out, "{}", tokens.trim_end())?;
    }
    Ok(())
}

/// State of the softmax over some tokens.
struct State {
    /// Largest score.
    m: f64,
    /// Σ e^(x − m)
    l: f64,
    /// Σ e^(x − m)·v
    o: [f64; D],
}

impl State {
    const EMPTY: Self = Self {
        m: f64::NEG_INFINITY,
        l: 0.0,
        o: [0.0; D],
    };

    /// The state over the tokens of both.
    fn merge(&self, other: &Self) -> Self {
        let m = self.m.max(other.m);
        let (a, b) = ((self.m - m).exp(), (other.m - m).exp());
        let mut o = [0.0; D];
        for (i, o) in o.iter_mut().enumerate() {
            *o = self.o[i] * a + other.o[i] * b;
        }
        Self {
            m,
            l: self.l * a + other.l * b,
            o,
        }
    }
}

/// Prints what every block adds for query head 0, and returns the whole.
fn show_parts<T: Storage>(batch: &Batch<T>, out: &mut dyn Write) -> io::Result<State> {
    writeln!(out)?;
    writeln!(
        out,
        "Query head 0 meets one block after the other. With scores x = q·k / sqrt({D}), a block"
    )?;
    writeln!(
        out,
        "yields m = max x and l = Σ e^(x-m); two parts merge to m = max(m1, m2) and"
    )?;
    writeln!(
        out,
        "l = l1·e^(m1-m) + l2·e^(m2-m), and the sums over v in the same way."
    )?;
    writeln!(out)?;
    let mut table = Table::new(&[
        ("tokens", Align::Left),
        ("physical block", Align::Right),
        ("slots", Align::Left),
        ("m", Align::Right),
        ("l", Align::Right),
        ("merged m", Align::Right),
        ("merged l", Align::Right),
    ]);
    let mut whole = State::EMPTY;
    for (b, block) in TABLE.iter().enumerate() {
        let (first, last) = tokens_of(b);
        let part = part(batch, first..=last);
        whole = whole.merge(&part);
        let cell = |x: f64| format!("{x:.6}");
        table.row([
            format!("{first}-{last}"),
            block.to_string(),
            format!("0-{}", last - first),
            cell(part.m),
            cell(part.l),
            cell(whole.m),
            cell(whole.l),
        ]);
    }
    table.print(out)?;
    Ok(whole)
}

fn part<T: Storage>(batch: &Batch<T>, tokens: std::ops::RangeInclusive<usize>) -> State {
    let wide = |x: &T| f64::from(x.to_f32());
    let score = |t: usize| {
        let k = batch.k_cache[row_of(t)].iter();
        let dot: f64 = batch.q[..D]
            .iter()
            .zip(k)
            .map(|(q, k)| wide(q) * wide(k))
            .sum();
        dot * f64::from(batch.config.scale)
    };
    let mut state = State::EMPTY;
    for t in tokens {
        let mut one = State {
            m: score(t),
            l: 1.0,
            o: [0.0; D],
        };
        for (o, v) in one.o.iter_mut().zip(&batch.v_cache[row_of(t)]) {
            *o = wide(v);
        }
        state = state.merge(&one);
    }
    state
}
