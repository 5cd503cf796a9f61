//! The targets, and what is counted beside them.

use std::io::Write;

use half::f16;
use paged_attention::SplitPolicy;
use paged_attention::kernels::variants::DecodeKind;
use ptx_emulator::Detectors;

use super::assembled;
use super::counted::{self, Counted, bytes_in_flight};
use super::machine::MACHINES;
use super::pages::Shape;
use crate::batch::Batch;
use crate::error::Error;
use crate::text::{Align, Table};

// Names of the figures. Machine code: instructions of the main loop.
const MACHINE: &str = "sm_90 instructions per K/V byte, main loop";
const SECTORS: &str = "K/V sectors ÷ each once per CTA";
const CONFLICTS: &str = "bank conflicts, share of shared passes";
// On an H100.
const IN_FLIGHT: &str = "in flight per multiprocessor";
const INSTRUCTIONS_TO_TWIN: &str = "instructions ÷ contiguous, block 16";
const SECTORS_TO_TWIN: &str = "sectors ÷ contiguous, block 16";

/// A row: a shape of the budget, cut down to `kv_heads` kv heads of one sequence. Figures per byte
/// do not depend on how many there are.
struct Row {
    name: &'static str,
    shape: Shape,
    /// Machine instructions per byte of K and V.
    machine: f64,
}

/// One split of up to 8192 tokens, as where the batch fills the device.
const WHOLE: SplitPolicy = SplitPolicy::Tokens(8192);
/// The batch-invariant policy that is recommended.
const SPLIT: SplitPolicy = SplitPolicy::Tokens(512);

const fn shape(
    q_heads: usize,
    kv_heads: usize,
    block_size: usize,
    ctx: usize,
    policy: SplitPolicy,
) -> Shape {
    Shape {
        seqs: 1,
        q_heads,
        kv_heads,
        head_dim: 128,
        block_size,
        ctx,
        policy,
    }
}

const ROWS: [Row; 3] = [
    Row {
        name: "MHA 32/32, block 16, 4k",
        shape: shape(2, 2, 16, 4096, WHOLE),
        machine: 0.045,
    },
    Row {
        name: "GQA 64/8, block 64, 8k",
        shape: shape(16, 2, 64, 8192, WHOLE),
        machine: 0.05,
    },
    Row {
        name: "MQA 64/1, block 1, 4k",
        shape: shape(64, 1, 1, 4096, SPLIT),
        machine: 0.16,
    },
];

/// What a figure may be.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Target {
    AtMost(f64),
    AtLeast(f64),
    /// A ratio that cannot be below 1: its excess over 1 is what is limited.
    Ratio(f64),
}

/// A figure and its target.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    pub row: &'static str,
    pub name: &'static str,
    value: f64,
    target: Target,
}

impl Figure {
    /// The share of what the target allows that is used up; at most 1 if it is met.
    pub fn share(&self) -> f64 {
        match self.target {
            Target::AtMost(most) => self.value / most,
            Target::AtLeast(least) => least / self.value,
            Target::Ratio(most) => (self.value - 1.0) / (most - 1.0),
        }
    }

    fn cell(&self) -> String {
        let missed = if self.share() > 1.0 { " missed" } else { "" };
        let value = self.value;
        match self.target {
            Target::AtLeast(least) => {
                format!("{:.0} KB (≥ {:.0}){missed}", value / 1024.0, least / 1024.0)
            }
            Target::AtMost(most) | Target::Ratio(most) => format!("{value:.4} (≤ {most}){missed}"),
        }
    }
}

/// A row's measurements.
pub struct Measured {
    pub name: &'static str,
    paged: Counted,
    /// At block size 16.
    paged_16: Counted,
    twin: Counted,
    /// Machine instructions per byte; none for an entry that is not in the table.
    machine: Option<f64>,
    in_flight: f64,
    target: f64,
}

/// Counts every row in the emulator, with every check on.
pub fn measure() -> Result<Vec<Measured>, Error> {
    ROWS.iter().map(measure_row).collect()
}

fn measure_row(row: &Row) -> Result<Measured, Error> {
    let count = |shape: &Shape, batch: &Batch<f16>| counted::paged(shape, batch, Detectors::all());
    let side_by_side = row.shape.contiguous()?;
    let paged = count(&row.shape, &row.shape.paged(&side_by_side)?)?;
    let shape_16 = Shape {
        block_size: 16,
        ..row.shape
    };
    let paged_16 = count(&shape_16, &shape_16.paged(&side_by_side)?)?;
    let entry = assembled::table().entry(&paged.plan);
    let resident = entry.map_or(0, |entry| {
        MACHINES[1].resident(entry.registers, paged.plan.decode_shared_bytes())
    });
    Ok(Measured {
        name: row.name,
        paged_16,
        twin: counted::contiguous(&shape_16, &side_by_side, Detectors::all())?,
        machine: entry.map(|entry| entry.instructions_per_byte(&paged.plan)),
        in_flight: f64::from(resident * bytes_in_flight(&paged.plan)),
        target: row.machine,
        paged,
    })
}

impl Measured {
    /// What is held to a target.
    pub fn figures(&self) -> Vec<Figure> {
        let figure = |name, value, target| Figure {
            row: self.name,
            name,
            value,
            target,
        };
        let ratio = |of: fn(&Counted) -> u64| of(&self.paged_16) as f64 / of(&self.twin) as f64;
        let instructions = ratio(|counted| counted.counters.total_without_moves());
        let sectors = ratio(Counted::sectors);
        let least = self.paged.sectors_to_least();
        let machine = Target::AtMost(self.target);
        let machine = self.machine.map(|value| figure(MACHINE, value, machine));
        let mut figures: Vec<_> = machine.into_iter().collect();
        figures.extend([
            figure(SECTORS, least, Target::Ratio(1.02)),
            figure(CONFLICTS, self.paged.conflicts(), Target::AtMost(0.05)),
            figure(IN_FLIGHT, self.in_flight, Target::AtLeast(32.0 * 1024.0)),
            figure(INSTRUCTIONS_TO_TWIN, instructions, Target::Ratio(1.05)),
            figure(SECTORS_TO_TWIN, sectors, Target::Ratio(1.005)),
        ]);
        figures
    }
}

/// Prints the targets and the bounds that follow from the counts.
pub fn print(rows: &[Measured], out: &mut dyn Write) -> Result<(), Error> {
    let table = assembled::table();
    writeln!(
        out,
        "What the decode kernel costs, f16, head_dim 128 (targets in parentheses)"
    )?;
    writeln!(out)?;
    let figures: Vec<_> = rows.iter().map(Measured::figures).collect();
    let mut columns = vec![("", Align::Left)];
    columns.extend(rows.iter().map(|row| (row.name, Align::Right)));
    let mut text = Table::new(&columns);
    let mut line = |name: &str, cell: &dyn Fn(usize) -> String| {
        text.row(std::iter::once(name.to_string()).chain((0..rows.len()).map(cell)));
    };
    line(
        "products on",
        &|i| match rows[i].paged.plan.decode_variant().kind {
            DecodeKind::TensorCore => "tensor cores".into(),
            DecodeKind::CudaCore => "CUDA cores".into(),
        },
    );
    let cell = |i: usize, name: &str| {
        let found = figures[i].iter().find(|figure| figure.name == name);
        found.map_or("-".into(), Figure::cell)
    };
    line("splits", &|i| {
        format!("{}", rows[i].paged.plan.num_splits())
    });
    line(MACHINE, &|i| cell(i, MACHINE));
    line("PTX instructions per K/V byte, whole launch", &|i| {
        format!("{:.4}", rows[i].paged.instructions_per_byte())
    });
    for name in [
        SECTORS,
        CONFLICTS,
        IN_FLIGHT,
        INSTRUCTIONS_TO_TWIN,
        SECTORS_TO_TWIN,
    ] {
        line(name, &|i| cell(i, name));
    }
    text.print(out)?;
    writeln!(out)?;
    writeln!(
        out,
        "  PTX counts come from the emulator, over one sequence and at most 2 kv heads, without register"
    )?;
    writeln!(
        out,
        "  moves, which few machine instructions come of. Machine code and registers: {}, {}.",
        table.ptxas, table.date
    )?;
    let shipped = &paged_attention::artefacts::manifest().source_hash;
    if *shipped != table.source_hash {
        writeln!(
            out,
            "  They are of the kernels {}, the kernels carried here are {shipped}: run `cargo xtask sass --write`.",
            table.source_hash
        )?;
    }
    writeln!(out)?;
    bounds(rows, out)
}

fn bounds(rows: &[Measured], out: &mut dyn Write) -> Result<(), Error> {
    writeln!(
        out,
        "Predicted bounds on K and V read, TB/s, from counts alone: nothing here ran on a GPU"
    )?;
    writeln!(out)?;
    let mut text = Table::new(&[
        ("", Align::Left),
        ("GPU", Align::Left),
        ("CTAs/SM", Align::Right),
        ("KB in flight/SM", Align::Right),
        ("memory", Align::Right),
        ("issue", Align::Right),
        ("shared", Align::Right),
        ("latency", Align::Right),
        ("lowest", Align::Right),
        ("of memory", Align::Right),
    ]);
    for row in rows {
        let Some(entry) = assembled::table().entry(&row.paged.plan) else {
            continue;
        };
        for machine in &MACHINES {
            let plan = &row.paged.plan;
            let resident = machine.resident(entry.registers, plan.decode_shared_bytes());
            let in_flight = f64::from(resident * bytes_in_flight(plan));
            let per_byte = row.paged.per_byte(row.machine.unwrap_or(0.0));
            let bounds = machine.bounds(&per_byte, in_flight);
            let tera = |x: f64| format!("{:.2}", x / 1e12);
            text.row([
                row.name.to_string(),
                machine.name.to_string(),
                resident.to_string(),
                format!("{:.0}", in_flight / 1024.0),
                tera(bounds.memory),
                tera(bounds.issue),
                tera(bounds.shared),
                tera(bounds.in_flight),
                tera(bounds.least()),
                format!("{:.0} %", 100.0 * bounds.least() / machine.bandwidth),
            ]);
        }
    }
    text.print(out)?;
    writeln!(out)?;
    writeln!(
        out,
        "  memory: bandwidth ÷ (bytes of sectors, each once per CTA ÷ K/V bytes); issue: 4 warp instructions per clock and SM;"
    )?;
    writeln!(
        out,
        "  shared: one pass over the banks per clock and SM; latency: bytes in flight ÷ 700 ns."
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With 5 % of slack, on the excess over 1 where the figure is a ratio: they must not drift.
    #[test]
    fn counted_figures_hold_their_targets() {
        let rows = measure().unwrap();
        let figures: Vec<_> = rows.iter().flat_map(Measured::figures).collect();
        assert_eq!(figures.len(), 18);
        let missed: Vec<_> = figures
            .iter()
            .filter(|figure| figure.share() > 1.05)
            .collect();
        assert!(missed.is_empty(), "{missed:#?}");
        for row in &rows {
            let kind = row.paged.plan.decode_variant().kind;
            assert_eq!(kind, DecodeKind::TensorCore, "{}", row.name);
        }
    }
}
