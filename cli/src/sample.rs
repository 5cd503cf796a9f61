//! `sample`: a random batch, written to a file.

use std::io::Write;

use fastrand::Rng;
use paged_attention::supports;

use crate::args::SampleArgs;
use crate::batch::{Batch, CacheDims, Shapes, Storage, layout_name};
use crate::buffer::Buffer;
use crate::error::Error;
use crate::output::{self, byte_bar, step_bar};
use crate::tensors::{self, Tensor};
use crate::text::{bytes, field};
use crate::with_element;

/// Runs the command.
pub fn run(args: &SampleArgs, out: &mut dyn Write) -> Result<(), Error> {
    output::check(&args.output, None)?;
    with_element!(args.dtype.into(), T => {
        let batch = random::<T>(args)?;
        let written = write(args, &batch)?;
        report(args, &batch, written, out)
    })
}

/// A number uniform in [−1, 1).
pub fn uniform<T: Storage>(rng: &mut Rng) -> T {
    T::from_f32(rng.f32() * 2.0 - 1.0)
}

/// Lengths, table and values come from generators of their own, and values are drawn in logical
/// order: the same seed gives the same attention in every layout and block size.
pub fn random<T: Storage>(args: &SampleArgs) -> Result<Batch<T>, Error> {
    let mut rng = Rng::with_seed(args.seed);
    let (mut lens_rng, mut table_rng, mut values_rng) = (rng.fork(), rng.fork(), rng.fork());
    let layout = args.layout.into();
    let mut dims = CacheDims {
        num_blocks: 0,
        block_size: args.block_size,
        num_kv_heads: args.kv_heads.unwrap_or(args.heads),
        head_dim: args.head_dim,
    };
    let mut shapes = Shapes {
        layout,
        q: [args.num_seqs, args.heads, args.head_dim],
        k_cache: dims.ordered(layout),
        v_cache: dims.ordered(layout),
        block_table: [args.num_seqs, 0],
        seq_lens: [args.num_seqs],
        unsigned: [false; 2],
    };
    let config = shapes.config(T::DTYPE);
    // Before any number is relied on. The usual scale follows from head_dim, and is not to blame.
    supports(&config.with_scale(1.0))?;

    let mut q = zeroed("q", &shapes.q)?;
    let mut seq_lens = zeroed::<i32>("seq_lens", &shapes.seq_lens)?;
    seq_lens.fill_with(|| lens_rng.u32(args.ctx.0.clone()) as i32);
    let blocks_of = |len: i32| (len as usize).div_ceil(dims.block_size);
    let columns = seq_lens.iter().map(|&len| blocks_of(len)).max();
    shapes.block_table[1] = columns.unwrap_or(0);
    let live: usize = seq_lens.iter().map(|&len| blocks_of(len)).sum();
    // Some to spare: nothing may read them.
    dims.num_blocks = live + live / 8 + 1;
    let max = i32::MAX as usize;
    if dims.num_blocks > max {
        let blocks = dims.num_blocks;
        return Err(Error::TooManyBlocks { blocks, max });
    }
    shapes.k_cache = dims.ordered(layout);
    shapes.v_cache = shapes.k_cache;

    let mut block_table = zeroed::<i32>("block_table", &shapes.block_table)?;
    block_table.fill(-1);
    let mut blocks: Vec<i32> = (0..dims.num_blocks as i32).collect();
    table_rng.shuffle(&mut blocks);
    let mut free = blocks.into_iter();
    let rows = block_table.chunks_mut(shapes.block_table[1].max(1));
    for (row, &len) in rows.zip(&*seq_lens) {
        row[..blocks_of(len)].fill_with(|| free.next().unwrap_or(-1));
    }

    q.fill_with(|| uniform(&mut values_rng));
    let mut k_cache = zeroed::<T>("k_cache", &shapes.k_cache)?;
    let mut v_cache = zeroed::<T>("v_cache", &shapes.v_cache)?;
    k_cache.fill(T::from_f32(f32::NAN));
    v_cache.fill(T::from_f32(f32::NAN));
    let strides = layout.strides(dims.block_size, dims.num_kv_heads, dims.head_dim);
    let progress = step_bar(
        "drawing tokens",
        seq_lens.iter().map(|&len| len as u64).sum(),
    );
    let rows = block_table.chunks(shapes.block_table[1].max(1));
    for (row, &len) in rows.zip(&*seq_lens) {
        for t in 0..len as usize {
            let (block, slot) = (row[t / dims.block_size] as usize, t % dims.block_size);
            for head in 0..dims.num_kv_heads {
                let at = block * strides.block + slot * strides.token + head * strides.head;
                k_cache[at..at + dims.head_dim].fill_with(|| uniform(&mut values_rng));
                v_cache[at..at + dims.head_dim].fill_with(|| uniform(&mut values_rng));
            }
        }
        progress.inc(len as u64);
    }
    progress.finish_and_clear();
    Ok(Batch {
        shapes,
        config,
        q,
        k_cache,
        v_cache,
        block_table,
        seq_lens,
    })
}

fn zeroed<T: crate::buffer::Number>(
    tensor: &'static str,
    shape: &[usize],
) -> Result<Buffer<T>, Error> {
    let elements = shape.iter().try_fold(1usize, |n, &dim| n.checked_mul(dim));
    let elements = elements.ok_or_else(|| Error::SampleTooLarge {
        tensor,
        shape: shape.to_vec(),
    })?;
    Buffer::zeroed(tensor, elements)
}

/// Writes the file and returns its data's bytes.
fn write<T: Storage>(args: &SampleArgs, batch: &Batch<T>) -> Result<u64, Error> {
    let shapes = &batch.shapes;
    let tensors = [
        Tensor::new("block_table", &shapes.block_table, &batch.block_table),
        Tensor::new("seq_lens", &shapes.seq_lens, &batch.seq_lens),
        Tensor::new("q", &shapes.q, &batch.q),
        Tensor::new("k_cache", &shapes.k_cache, &batch.k_cache),
        Tensor::new("v_cache", &shapes.v_cache, &batch.v_cache),
    ];
    let metadata = [
        ("layout", layout_name(shapes.layout).to_owned()),
        ("scale", batch.config.scale.to_string()),
    ];
    let bytes = tensors::data_bytes(&tensors);
    let progress = byte_bar("writing", bytes);
    output::write(&args.output, |file| {
        tensors::write(file, &tensors, &metadata, &progress)
    })?;
    progress.finish_and_clear();
    Ok(bytes)
}

fn report<T: Storage>(
    args: &SampleArgs,
    batch: &Batch<T>,
    written: u64,
    out: &mut dyn Write,
) -> Result<(), Error> {
    let name = batch.config.dtype.name();
    writeln!(out, "{}", args.output.display())?;
    batch.report(out)?;
    let pool = CacheDims::named(batch.shapes.layout, batch.shapes.k_cache).num_blocks;
    let live = batch
        .block_table
        .iter()
        .filter(|&&entry| entry >= 0)
        .count();
    field(
        out,
        "pool",
        format!("{live} of {pool} blocks used, NaN in every unused slot"),
    )?;
    field(
        out,
        "values",
        format!("{name}, uniform in [-1, 1), seed {}", args.seed),
    )?;
    field(out, "size", bytes(written))?;
    Ok(())
}
