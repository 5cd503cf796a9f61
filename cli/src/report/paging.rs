//! What paging costs, over context lengths and block sizes.

use std::io::Write;
use std::time::{Duration, Instant};

use half::f16;
use paged_attention::contiguous::{self, ContiguousInputs};
#[cfg(feature = "cuda")]
use paged_attention::{AttentionConfig, DType};
use paged_attention::{DeviceLimits, RowsView, RowsViewMut, SplitPolicy, cpu};
use ptx_emulator::Detectors;

use super::counted::{self, Counted};
use super::machine::MACHINES;
use super::pages::Shape;
use crate::args::{ReportArgs, ReportDevice};
use crate::batch::Batch;
use crate::buffer::Buffer;
use crate::error::Error;
use crate::output::step_bar;
use crate::text::{Align, Table};

#[cfg(feature = "cuda")]
use super::on_cuda;

/// Rounds of (paged, contiguous) that are timed.
pub const ROUNDS: usize = 15;
/// Bytes of K and V of a CPU batch, as near as whole sequences come: more than caches hold.
const CPU_BYTES: usize = 32 << 20;
/// Overheads of the attention kernel that the PagedAttention paper reports (section 7.1).
const PAPER: [f64; 2] = [0.20, 0.26];

/// Paged against contiguous, all as ratios.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    pub block_size: usize,
    pub ctx: usize,
    pub cost: Cost,
}

/// What was compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cost {
    Counted {
        instructions: f64,
        sectors: f64,
    },
    Timed {
        time: f64,
        /// Bytes of K and V per second of the paged one, where a device read them from its memory.
        bandwidth: Option<f64>,
    },
}

/// What is said of a CUDA device.
pub struct About {
    pub name: String,
    /// Its driver is the emulated one, whose times say nothing.
    pub emulated: bool,
    /// Bytes per second that a copy reads and writes.
    pub copy: f64,
}

/// What the comparison runs on.
pub enum Timer {
    /// Counts, no times.
    Emulator,
    Cpu,
    #[cfg(feature = "cuda")]
    Cuda(Box<on_cuda::Device>),
}

impl Timer {
    /// What `--device` names.
    pub fn choose(device: ReportDevice) -> Result<Self, Error> {
        match device {
            ReportDevice::Emulator => Ok(Self::Emulator),
            ReportDevice::Cpu => Ok(Self::Cpu),
            #[cfg(feature = "cuda")]
            ReportDevice::Cuda => {
                let config = AttentionConfig::new(DType::F16, 1, 1, HEAD_DIM, 16);
                Ok(Self::Cuda(Box::new(on_cuda::Device::open(&config)?)))
            }
            #[cfg(not(feature = "cuda"))]
            ReportDevice::Cuda => Err(Error::WithoutCuda),
        }
    }

    /// The CUDA device, if it is one.
    fn about(&self) -> Option<&About> {
        match self {
            Self::Emulator | Self::Cpu => None,
            #[cfg(feature = "cuda")]
            Self::Cuda(device) => Some(&device.about),
        }
    }

    /// Whether times are those of the emulated driver.
    pub fn is_emulated_driver(&self) -> bool {
        self.about().is_some_and(|about| about.emulated)
    }

    /// Bytes of K and V of a batch, as near as whole sequences come.
    fn batch_bytes(&self) -> usize {
        match self {
            Self::Emulator => 0,
            Self::Cpu => CPU_BYTES,
            #[cfg(feature = "cuda")]
            Self::Cuda(device) => device.batch_bytes,
        }
    }
}

/// Cells of one head configuration.
pub struct Sweep {
    pub name: &'static str,
    pub cells: Vec<Cell>,
}

/// Compares with the twin over the same tokens.
type Compare<'a> = Box<dyn Fn(&Shape, &Batch<f16>) -> Result<Cost, Error> + 'a>;

const HEAD_DIM: usize = 128;

/// Head configurations: query heads and kv heads of an emulated batch, and of a timed one.
const HEADS: [(&str, [usize; 2], [usize; 2]); 2] = [
    ("MHA 32/32", [1, 1], [32, 32]),
    ("GQA 64/8", [8, 1], [64, 8]),
];

/// Runs over all block sizes and contexts.
pub fn sweep(args: &ReportArgs, timer: &Timer) -> Result<Vec<Sweep>, Error> {
    let progress = step_bar(
        "comparing with contiguous",
        (HEADS.len() * args.ctx.len() * args.block_size.len()) as u64,
    );
    let interpreted = matches!(timer, Timer::Emulator) || timer.is_emulated_driver();
    let mut sweeps = Vec::new();
    for (name, emulated, timed) in HEADS {
        let [q_heads, kv_heads] = if interpreted { emulated } else { timed };
        let mut cells = Vec::new();
        for &ctx in &args.ctx {
            let mut shape = Shape {
                seqs: 1,
                q_heads,
                kv_heads,
                head_dim: HEAD_DIM,
                block_size: 16,
                ctx: ctx as usize,
                policy: SplitPolicy::Tokens(512),
            };
            shape.seqs = (timer.batch_bytes() / shape.kv_bytes() as usize).max(1);
            let side_by_side = shape.contiguous()?;
            let none = Detectors::none();
            // The twin's side is the same for every block size.
            let compare: Compare<'_> = match timer {
                Timer::Emulator => {
                    let twin = counted::contiguous(&shape, &side_by_side, none)?;
                    Box::new(move |shape, batch| {
                        Ok(count(&counted::paged(shape, batch, none)?, &twin))
                    })
                }
                Timer::Cpu => Box::new(|shape, batch| time(shape, batch, &side_by_side)),
                #[cfg(feature = "cuda")]
                Timer::Cuda(device) => {
                    let twin = device.contiguous(&shape, &side_by_side)?;
                    Box::new(move |shape, batch| twin.compare(shape, batch))
                }
            };
            for &block_size in &args.block_size {
                shape.block_size = block_size as usize;
                let batch = shape.paged(&side_by_side)?;
                cells.push(Cell {
                    block_size: shape.block_size,
                    ctx: shape.ctx,
                    cost: compare(&shape, &batch)?,
                });
                progress.inc(1);
            }
        }
        sweeps.push(Sweep { name, cells });
    }
    progress.finish_and_clear();
    Ok(sweeps)
}

fn count(paged: &Counted, twin: &Counted) -> Cost {
    Cost::Counted {
        instructions: paged.counters.total_without_moves() as f64
            / twin.counters.total_without_moves() as f64,
        sectors: paged.sectors() as f64 / twin.sectors() as f64,
    }
}

/// The median over rounds of (paged ÷ contiguous), each pair timed back to back.
fn time(shape: &Shape, batch: &Batch<f16>, side_by_side: &Batch<f16>) -> Result<Cost, Error> {
    let plan = shape.plan(&DeviceLimits::this_cpu())?;
    let row = shape.q_heads * shape.head_dim;
    let mut out = Buffer::<f16>::zeroed("out", shape.seqs * row)?;
    let mut expected = Buffer::<f16>::zeroed("out", shape.seqs * row)?;
    let mut workspace = Buffer::<f32>::zeroed("the workspace", plan.workspace_len())?;
    let sequence = shape.ctx * shape.kv_heads * shape.head_dim;
    let keys: Vec<&[f16]> = side_by_side.k_cache.chunks_exact(sequence).collect();
    let values: Vec<&[f16]> = side_by_side.v_cache.chunks_exact(sequence).collect();
    let twin = ContiguousInputs {
        q: RowsView::contiguous(&side_by_side.q, shape.seqs, shape.q_heads, shape.head_dim),
        keys: &keys,
        values: &values,
        seq_lens: &side_by_side.seq_lens,
    };
    let inputs = batch.inputs();
    let mut ratios = Vec::with_capacity(ROUNDS);
    // The first round warms up.
    for round in 0..=ROUNDS {
        let start = Instant::now();
        cpu::decode(&plan, &inputs, rows(shape, &mut out), None, &mut workspace)?;
        let paged = start.elapsed();
        let start = Instant::now();
        contiguous::decode(
            &plan,
            &twin,
            rows(shape, &mut expected),
            None,
            &mut workspace,
        )?;
        let contiguous = start.elapsed().max(Duration::from_nanos(1));
        if round > 0 {
            ratios.push(paged.as_secs_f64() / contiguous.as_secs_f64());
        }
    }
    ratios.sort_by(f64::total_cmp);
    Ok(Cost::Timed {
        time: ratios[ROUNDS / 2],
        bandwidth: None,
    })
}

fn rows<'a>(shape: &Shape, out: &'a mut [f16]) -> RowsViewMut<'a, f16> {
    RowsViewMut::contiguous(out, shape.seqs, shape.q_heads, shape.head_dim)
}

impl Cost {
    /// What a report calls the ratios, and the ratios.
    pub fn ratios(&self) -> Vec<(&'static str, f64)> {
        match *self {
            Cost::Counted {
                instructions,
                sectors,
            } => vec![("instructions", instructions), ("sectors", sectors)],
            Cost::Timed { time, .. } => vec![("time", time)],
        }
    }

    /// Overhead of the kernel: time where it was taken, else what counts predict for a GPU that
    /// memory limits.
    fn overhead(&self) -> f64 {
        match *self {
            Cost::Counted { sectors, .. } => sectors - 1.0,
            Cost::Timed { time, .. } => time - 1.0,
        }
    }

    fn bandwidth(&self) -> Option<f64> {
        match *self {
            Cost::Counted { .. } => None,
            Cost::Timed { bandwidth, .. } => bandwidth,
        }
    }
}

/// Prints the sweeps and what they mean for a step.
pub fn print(
    args: &ReportArgs,
    timer: &Timer,
    sweeps: &[Sweep],
    out: &mut dyn Write,
) -> Result<(), Error> {
    writeln!(out)?;
    let measured = format!("time ÷ contiguous, f16, head_dim {HEAD_DIM}");
    match (timer, timer.about()) {
        (Timer::Emulator, _) => writeln!(
            out,
            "What paging costs: the decode launch ÷ its contiguous twin's, f16, head_dim {HEAD_DIM}, \
             splits of 512,\ninstructions without register moves. The first table has MHA and GQA in \
             one split each; here each\nsplit is a CTA, whose start weighs more."
        )?,
        (_, None) => writeln!(
            out,
            "What paging costs on this CPU: {measured}, medians of {ROUNDS} pairs"
        )?,
        (_, Some(about)) => {
            writeln!(
                out,
                "What paging costs on {}:\n{measured}, splits of 512, merge included, events on one \
                 stream, medians of {ROUNDS} pairs",
                about.name
            )?;
            if about.emulated {
                writeln!(
                    out,
                    "  The driver is the emulated one: these times say nothing about a GPU. No \
                     bandwidth and no share\n  of a step is printed, and no chart of them is drawn."
                )?;
            }
        }
    }
    for sweep in sweeps {
        let Some(first) = sweep.cells.first() else {
            continue;
        };
        for (at, (kind, _)) in first.cost.ratios().into_iter().enumerate() {
            writeln!(out)?;
            writeln!(out, "{}: {kind}", sweep.name)?;
            grid(args, sweep, out, |cell| {
                format!("{:.4}", cell.cost.ratios()[at].1)
            })?;
        }
        let device = timer.about().filter(|about| !about.emulated);
        if let Some(copy) = device.map(|about| about.copy) {
            writeln!(out)?;
            writeln!(
                out,
                "{}: GB/s of K and V, paged; a copy on the device reads and writes {:.0}",
                sweep.name,
                copy / 1e9
            )?;
            grid(args, sweep, out, |cell| {
                let rate = cell.cost.bandwidth().unwrap_or(f64::NAN);
                format!("{:.0} ({:.0} %)", rate / 1e9, 100.0 * rate / copy)
            })?;
        }
    }
    if timer.is_emulated_driver() {
        return Ok(());
    }
    step(args, sweeps, !matches!(timer, Timer::Emulator), out)
}

/// A row per block size and a column per context.
fn grid(
    args: &ReportArgs,
    sweep: &Sweep,
    out: &mut dyn Write,
    text: impl Fn(&Cell) -> String,
) -> Result<(), Error> {
    let contexts: Vec<String> = args.ctx.iter().map(|ctx| format!("ctx {ctx}")).collect();
    let mut columns = vec![("block size", Align::Right)];
    columns.extend(contexts.iter().map(|text| (text.as_str(), Align::Right)));
    let mut table = Table::new(&columns);
    for &block_size in &args.block_size {
        let row = sweep
            .cells
            .iter()
            .filter(|cell| cell.block_size == block_size as usize);
        table.row(std::iter::once(block_size.to_string()).chain(row.map(&text)));
    }
    Ok(table.print(out)?)
}

/// The share of a step that paging costs, here and as published.
fn step(
    args: &ReportArgs,
    sweeps: &[Sweep],
    timed: bool,
    out: &mut dyn Write,
) -> Result<(), Error> {
    let share = args.attention_share;
    let percent = |x: f64| format!("{:.2} %", x * 100.0);
    writeln!(out)?;
    writeln!(
        out,
        "Of a whole step, if attention is {} of it",
        percent(share)
    )?;
    writeln!(out)?;
    let mut table = Table::new(&[
        ("", Align::Left),
        ("overhead of attention", Align::Right),
        ("of the step", Align::Right),
    ]);
    let basis = if timed { "time" } else { "sectors" };
    for sweep in sweeps {
        let blocks: Vec<usize> = args.block_size.iter().map(|&b| b as usize).collect();
        for block_size in blocks {
            let cells = sweep
                .cells
                .iter()
                .filter(|cell| cell.block_size == block_size);
            let worst = cells
                .map(|cell| cell.cost.overhead())
                .max_by(f64::total_cmp);
            if let Some(worst) = worst {
                table.row([
                    format!("{}, block {block_size}, worst context, {basis}", sweep.name),
                    percent(worst),
                    percent(share * worst),
                ]);
            }
        }
    }
    for overhead in PAPER {
        table.row([
            "PagedAttention paper (A100), time".into(),
            percent(overhead),
            percent(share * overhead),
        ]);
    }
    table.print(out)?;
    if !timed {
        writeln!(out)?;
        writeln!(
            out,
            "  Sectors predict the time where memory is the limit, as on {}, if the",
            machines()
        )?;
        writeln!(out, "  bounds above hold. Only a GPU can say.")?;
    }
    Ok(())
}

fn machines() -> String {
    let names: Vec<_> = MACHINES.iter().map(|machine| machine.name).collect();
    names.join(", ")
}
