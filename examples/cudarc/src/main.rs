//! Decode attention through cudarc: the shipped PTX and its manifest, without the paged-attention
//! crate. Compares the result with plain attention and fails if they differ. The folder of PTX files
//! is this repository's, or the one given as argument.

mod manifest;
mod problem;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use cudarc::driver::sys::CUfunction_attribute_enum as Attribute;
use cudarc::driver::{
    CudaContext, CudaModule, CudaStream, DevicePtr, DevicePtrMut, DeviceRepr, LaunchConfig,
    PushKernelArg,
};
use cudarc::nvrtc::Ptx;
use half::f16;

use manifest::{Entry, Manifest, Value};
use problem::Problem;

/// An argument struct as bytes. Every entry has one parameter, at most this long.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Arguments([u8; 256]);

// SAFETY: plain bytes; the driver copies as many as the entry's parameter has.
unsafe impl DeviceRepr for Arguments {}

fn main() -> Result<()> {
    let shipped = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../host-crate/ptx");
    let dir = std::env::args_os()
        .nth(1)
        .map_or_else(shipped, PathBuf::from);
    let manifest = Manifest::read(&dir)?;
    let context = CudaContext::new(0)?;
    println!("device: {}", context.name()?);
    let problems = [
        Problem {
            lengths: vec![60, 0, 17, 200],
            head_dim: 128,
            block_size: 16,
            q_heads: 8,
            kv_heads: 2,
        },
        Problem {
            lengths: vec![129, 1],
            head_dim: 64,
            block_size: 3,
            q_heads: 4,
            kv_heads: 4,
        },
    ];
    for problem in &problems {
        run(&context, &manifest, &dir, problem)?;
    }
    Ok(())
}

/// Tokens per split; what the splits compute is merged by a second launch.
const SPLIT_TOKENS: usize = 64;

fn run(
    context: &Arc<CudaContext>,
    manifest: &Manifest,
    dir: &Path,
    problem: &Problem,
) -> Result<()> {
    let &Problem {
        head_dim,
        block_size,
        q_heads,
        kv_heads,
        ..
    } = problem;
    let group = q_heads / kv_heads;
    let (decode, merge) = manifest.find("f16", head_dim, group)?;
    let module = context.load_module(Ptx::from_file(dir.join(&decode.file)))?;
    let stream = context.new_stream()?;
    let data = problem.data();

    let num_seqs = problem.lengths.len();
    let longest = problem.lengths.iter().max().copied().unwrap_or(0);
    let num_splits = longest.div_ceil(SPLIT_TOKENS).max(1);
    let partials = num_seqs * q_heads * num_splits;
    let lengths: Vec<i32> = problem
        .lengths
        .iter()
        .map(|&length| length as i32)
        .collect();

    // cudarc would know f16 with a feature; its bits will do.
    let bits = |values: &[f16]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    let q = stream.clone_htod(&bits(&data.q))?;
    let k = stream.clone_htod(&bits(&data.k))?;
    let v = stream.clone_htod(&bits(&data.v))?;
    let table = stream.clone_htod(&data.table)?;
    let lengths = stream.clone_htod(&lengths)?;
    let mut out = stream.alloc_zeros::<u16>(data.q.len())?;
    let mut lse = stream.alloc_zeros::<f32>(num_seqs * q_heads)?;
    // SAFETY: decode writes every partial that merge reads.
    let (mut partial_out, mut partial_ml) = unsafe {
        (
            stream.alloc::<f32>(partials * head_dim)?,
            stream.alloc::<f32>(partials * 2)?,
        )
    };

    let tiles = decode.head_tiles(group);
    let (magic, shift) = divisor(block_size);
    // The guards keep the buffers until the launches have been given to the stream.
    let (q, _q) = q.device_ptr(&stream);
    let (k, _k) = k.device_ptr(&stream);
    let (v, _v) = v.device_ptr(&stream);
    let (table, _table) = table.device_ptr(&stream);
    let (lengths, _lengths) = lengths.device_ptr(&stream);
    let (out_ptr, out_guard) = out.device_ptr_mut(&stream);
    let (lse_ptr, lse_guard) = lse.device_ptr_mut(&stream);
    let (partial_out, _partial_out) = partial_out.device_ptr_mut(&stream);
    let (partial_ml, _partial_ml) = partial_ml.device_ptr_mut(&stream);

    let value = |name: &str| {
        let (token, head) = ((kv_heads * head_dim) as i64, head_dim as i64);
        Some(match name {
            "q" => Value::U64(q),
            "k_cache" => Value::U64(k),
            "v_cache" => Value::U64(v),
            "block_table" => Value::U64(table),
            "seq_lens" => Value::U64(lengths),
            "out" => Value::U64(out_ptr),
            "lse" => Value::U64(lse_ptr),
            "partial_out" => Value::U64(if num_splits > 1 { partial_out } else { 0 }),
            "partial_ml" => Value::U64(if num_splits > 1 { partial_ml } else { 0 }),
            "q_token_stride" | "out_token_stride" => Value::I64((q_heads * head_dim) as i64),
            "q_head_stride" | "out_head_stride" => Value::I64(head),
            "k_block_stride" | "v_block_stride" => Value::I64(block_size as i64 * token),
            "k_token_stride" | "v_token_stride" => Value::I64(token),
            "k_head_stride" | "v_head_stride" => Value::I64(head),
            "table_stride" => Value::I64(data.columns as i64),
            "scale_log2" => Value::F32(problem.scale() as f32 * std::f32::consts::LOG2_E),
            "num_q_heads" => Value::U32(q_heads as u32),
            "group_size" => Value::U32(group as u32),
            "head_tiles" => Value::U32(tiles as u32),
            "block_size" => Value::U32(block_size as u32),
            "block_magic" => Value::U32(magic),
            "block_shift" => Value::U32(shift),
            "split_tokens" => Value::U32(SPLIT_TOKENS as u32),
            "num_splits" => Value::U32(num_splits as u32),
            "reserved" => Value::U32(0),
            _ => return None,
        })
    };
    let decode_grid = [num_seqs, kv_heads * tiles, num_splits];
    launch(
        &module,
        &stream,
        decode,
        decode_grid,
        &Arguments(decode.pack(value)?),
    )?;
    if num_splits > 1 {
        launch(
            &module,
            &stream,
            merge,
            [num_seqs, q_heads, 1],
            &Arguments(merge.pack(value)?),
        )?;
    }
    drop((out_guard, lse_guard));

    let (out, lse) = (stream.clone_dtoh(&out)?, stream.clone_dtoh(&lse)?);
    let (want_out, want_lse) = problem.attention(&data);
    let error = largest_error(out.iter().map(|&x| f16::from_bits(x).to_f64()), &want_out);
    let lse_error = largest_error(lse.iter().map(|&x| f64::from(x)), &want_lse);
    println!(
        "{}: {num_seqs} sequences, {num_splits} splits, max |error| {error:.2e} (lse {lse_error:.2e})",
        decode.symbol
    );
    // Inputs lie in [-1, 1]: rounding out and the softmax's weights to 16 bits costs most.
    ensure!(
        error <= 1e-3,
        "{}: out differs by {error:.2e}, must be within 1e-3",
        decode.symbol
    );
    ensure!(
        lse_error <= 1e-4,
        "{}: lse differs by {lse_error:.2e}, must be within 1e-4",
        decode.symbol
    );
    Ok(())
}

fn launch(
    module: &Arc<CudaModule>,
    stream: &CudaStream,
    entry: &Entry,
    grid: [usize; 3],
    arguments: &Arguments,
) -> Result<()> {
    let function = module.load_function(&entry.symbol)?;
    function.set_attribute(
        Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
        entry.shared_bytes as i32,
    )?;
    let [x, y, z] = grid.map(|extent| extent as u32);
    let [block_x, block_y, block_z] = entry.block;
    let config = LaunchConfig {
        grid_dim: (x, y, z),
        block_dim: (block_x, block_y, block_z),
        shared_mem_bytes: entry.shared_bytes,
    };
    // SAFETY: the arguments are laid out as the manifest says, over buffers of this context that the
    // caller keeps, and table and lengths stay inside them.
    unsafe {
        stream
            .launch_builder(&function)
            .arg(arguments)
            .launch(config)
    }
    .with_context(|| entry.symbol.clone())?;
    Ok(())
}

/// (magic, shift) with t / block_size == (2 * t * magic >> 32) >> shift for t < 2^31.
fn divisor(block_size: usize) -> (u32, u32) {
    let shift = block_size.next_power_of_two().trailing_zeros();
    (
        (1u64 << (31 + shift)).div_ceil(block_size as u64) as u32,
        shift,
    )
}

/// NaN unless every pair is close or equal; minus infinity equals itself.
fn largest_error(found: impl Iterator<Item = f64>, wanted: &[f64]) -> f64 {
    let error = |(x, y): (f64, &f64)| if x == *y { 0.0 } else { (x - y).abs() };
    let larger = |a: f64, b: f64| if a.is_nan() || b <= a { a } else { b };
    found.zip(wanted).map(error).fold(0.0, larger)
}
