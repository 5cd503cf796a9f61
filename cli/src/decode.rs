//! `decode`: attention over a batch in a file.

use std::io::Write;
use std::time::{Duration, Instant};

use paged_attention::cpu::{self, InstructionSet};
use paged_attention::kernels::variants::DecodeKind;
use paged_attention::{Plan, RowsViewMut, SplitPolicy};
use ptx_emulator::Options;

use crate::args::DecodeArgs;
use crate::batch::{Batch, BatchFile, Storage};
use crate::buffer::Buffer;
use crate::check::{self, Bound, Deviation, Worst};
use crate::counters;
use crate::device::Target;
use crate::error::Error;
use crate::output::{self, byte_bar, spinner};
use crate::tensors::{self, Tensor};
use crate::text::{bandwidth, bytes, count, field, number, time};
use crate::with_element;

/// Runs the command.
pub fn run(args: &DecodeArgs, out: &mut dyn Write) -> Result<(), Error> {
    output::check(&args.output, Some(&args.input))?;
    let file = BatchFile::open(&args.input)?;
    let file_bytes = file.bytes();
    with_element!(file.dtype(), T => {
        let mut batch = file.read::<T>()?;
        if let Some(scale) = args.scale {
            batch.config = batch.config.with_scale(scale);
        }
        batch.validate()?;
        writeln!(out, "{} ({})", args.input.display(), bytes(file_bytes))?;
        batch.report(out)?;
        field(out, "scale", batch.config.scale)?;

        let result = decode(args, &batch, out)?;
        let checked = match args.check {
            true => Some(check::check(&batch, &result.plan, result.products, &result.out, &result.lse)?),
            false => None,
        };
        write(args, &batch, &result)?;
        writeln!(out, "{}", args.output.display())?;
        field(out, "out", format!("{:?} {}", batch.shapes.q, batch.config.dtype.name()))?;
        field(out, "lse", format!("{:?} f32", lse_shape(&batch)))?;
        if let Some(worst) = checked {
            writeln!(out, "comparison with the f64 reference")?;
            report_check(&worst, out)?;
        }
        Ok(())
    })
}

/// What a back end computed.
struct Decoded<T> {
    plan: Plan,
    /// Which units multiplied, or round as they do.
    products: DecodeKind,
    out: Buffer<T>,
    lse: Buffer<f32>,
}

fn decode<T: Storage>(
    args: &DecodeArgs,
    batch: &Batch<T>,
    report: &mut dyn Write,
) -> Result<Decoded<T>, Error> {
    let target = Target::choose(args.device, args.ptx_set.as_ref(), &batch.config)?;
    let limits = target.limits();
    let [num_seqs, num_q_heads, head_dim] = batch.shapes.q;
    let plan = Plan::new(
        &batch.config,
        num_seqs,
        batch.max_seq_len(),
        args.split.0,
        &limits,
    )?;
    let inputs = batch.inputs();
    let mut out = Buffer::<T>::zeroed("out", batch.q.len())?;
    let mut lse = Buffer::<f32>::zeroed("lse", num_seqs * num_q_heads)?;
    let rows = RowsViewMut::contiguous(&mut out, num_seqs, num_q_heads, head_dim);

    let products = match &target {
        Target::Cpu { instead } => {
            let threads = limits.sm_count;
            let plural = if threads == 1 { "" } else { "s" };
            let set = match InstructionSet::detect() {
                InstructionSet::Avx512 => "AVX-512",
                InstructionSet::Avx2 => "AVX2",
                _ => "portable code",
            };
            let device = format!("CPU, {threads} thread{plural}, {set}");
            field(report, "device", device)?;
            if let Some(reason) = instead {
                field(report, "not CUDA", reason)?;
            }
            report_plan(&plan, report)?;
            let mut workspace = Buffer::<f32>::zeroed("the workspace", plan.workspace_len())?;
            let start = Instant::now();
            cpu::decode(&plan, &inputs, rows, Some(&mut lse), &mut workspace)?;
            report_speed(batch, start.elapsed(), report)?;
            DecodeKind::CudaCore
        }
        #[cfg(feature = "cuda")]
        Target::Cuda { backend, ptx } => {
            let ((major, minor), (cuda, point)) =
                (backend.compute_capability(), backend.driver_version());
            let device = format!(
                "CUDA, {}, compute capability {major}.{minor}, driver for CUDA {cuda}.{point}",
                backend.device_name()
            );
            field(report, "device", device)?;
            field(report, "PTX set", ptx)?;
            report_plan(&plan, report)?;
            let elapsed = backend.decode_host(&plan, &inputs, rows, Some(&mut lse))?;
            report_speed(batch, elapsed, report)?;
            plan.decode_variant().kind
        }
        Target::Emulator { emulator, ptx } => {
            let device = "emulator, every check on, planned as for an H100";
            field(report, "device", device)?;
            field(report, "PTX set", ptx)?;
            report_plan(&plan, report)?;
            let progress = spinner("emulating");
            let start = Instant::now();
            let options = Options::default();
            let reports = emulator.decode(&plan, &inputs, rows, Some(&mut lse), &options)?;
            let elapsed = start.elapsed();
            progress.finish_and_clear();
            field(report, "time", time(elapsed))?;
            field(report, "K/V", bytes(batch.kv_bytes()))?;
            counters::print(&plan, &reports, elapsed, report)?;
            plan.decode_variant().kind
        }
    };
    Ok(Decoded {
        plan,
        products,
        out,
        lse,
    })
}

fn report_plan(plan: &Plan, out: &mut dyn Write) -> Result<(), Error> {
    let policy = match plan.policy() {
        SplitPolicy::Auto => "chosen for this batch and device",
        SplitPolicy::Tokens(_) => "fixed",
    };
    let (splits, tokens) = (plan.num_splits(), plan.split_tokens());
    field(
        out,
        "splits",
        format!("up to {splits} of {tokens} tokens, {policy}"),
    )?;
    field(out, "workspace", bytes(plan.workspace_bytes() as u64))?;
    Ok(())
}

fn report_speed<T: Storage>(
    batch: &Batch<T>,
    elapsed: Duration,
    out: &mut dyn Write,
) -> Result<(), Error> {
    let read = batch.kv_bytes();
    field(out, "time", time(elapsed))?;
    field(out, "K/V read", bytes(read))?;
    field(out, "bandwidth", bandwidth(read, elapsed))?;
    Ok(())
}

fn lse_shape<T: Storage>(batch: &Batch<T>) -> [usize; 2] {
    let [num_seqs, num_q_heads, _] = batch.shapes.q;
    [num_seqs, num_q_heads]
}

fn write<T: Storage>(
    args: &DecodeArgs,
    batch: &Batch<T>,
    result: &Decoded<T>,
) -> Result<(), Error> {
    let lse = Tensor::new("lse", &lse_shape(batch), &result.lse);
    let out = Tensor::new("out", &batch.shapes.q, &result.out);
    let tensors = [lse, out];
    let progress = byte_bar("writing", tensors::data_bytes(&tensors));
    output::write(&args.output, |file| {
        tensors::write(file, &tensors, &[], &progress)
    })?;
    progress.finish_and_clear();
    Ok(())
}

fn report_check(worst: &Worst, out: &mut dyn Write) -> Result<(), Error> {
    let place = |d: &Deviation| format!("{}{:?}", d.tensor, d.index);
    if let Some(d) = &worst.share {
        let share = format!("{:.1} % of the bound, at {}", 100.0 * d.share(), place(d));
        field(out, "largest share", share)?;
    }
    if worst.unresolved > 0 {
        let unresolved = format!(
            "{} of {} elements of out: scores are so large that rounding explains any weights. There \
             the check says only that the result lies in the range of its column of V",
            count(worst.unresolved),
            count(worst.elements)
        );
        field(out, "unresolved", unresolved)?;
    }
    let error = |d: &Deviation| {
        format!(
            "{} at {} = {}, reference {}, {}",
            number(d.error()),
            place(d),
            number(d.found),
            number(d.expected),
            match d.bound {
                Bound::Rounding(bound) => format!("bound {}", number(bound)),
                Bound::Class => "as no finite number can be".into(),
            }
        )
    };
    if let Some(d) = &worst.lse {
        field(out, "lse error", error(d))?;
    }
    match &worst.out {
        Some(d) => field(out, "largest error", error(d))?,
        None => field(out, "largest error", "0, the batch is empty")?,
    }
    Ok(())
}
