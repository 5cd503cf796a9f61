//! `simulate`: what paging buys when many requests are served.

mod buddy;
mod chart;
mod engine;
mod machine;
mod policy;
mod report;
mod sweep;
mod trace;

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use crate::args::{Preset, SimulateArgs, Trace};
use crate::error::Error;
use crate::output::{self, step_bar};

use machine::Machine;
use policy::Policy;
use trace::Lengths;

/// Every policy, in the order of the table.
const POLICIES: [Policy; 12] = [
    Policy::Maximum,
    Policy::PowerOfTwo,
    Policy::Final,
    Policy::Paged(1),
    Policy::Paged(2),
    Policy::Paged(4),
    Policy::Paged(8),
    Policy::Paged(16),
    Policy::Paged(32),
    Policy::Paged(64),
    Policy::Paged(128),
    Policy::Paged(256),
];

impl Preset {
    fn machine(self) -> Machine {
        let (max_batch, paging) = (self.max_batch(), 1.0);
        match self {
            // Table 1 of the paper: 26 GB of weights and 12 GB (GiB: 15.7K tokens) for the cache.
            Preset::Opt13bA100 => Machine {
                weights: 26e9,
                token_bytes: (2 * 40 * 5120 * 2) as f64,
                cache: 12.0 * (1u64 << 30) as f64,
                bandwidth: 1.555e12,
                flops: 312e12,
                max_batch,
                paging,
            },
            // 90 % of 80 GB, less the weights and 2 GB of activations.
            Preset::Llama3H100 => Machine {
                weights: 16.06e9,
                token_bytes: (2 * 32 * 8 * 128 * 2) as f64,
                cache: 72e9 - 16.06e9 - 2e9,
                bandwidth: 3.35e12,
                flops: 989e12,
                max_batch,
                paging,
            },
        }
    }

    fn max_batch(self) -> usize {
        match self {
            Preset::Opt13bA100 => 256,
            Preset::Llama3H100 => 1024,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Preset::Opt13bA100 => "OPT-13B on A100-40G",
            Preset::Llama3H100 => "Llama-3-8B on H100",
        }
    }
}

impl Trace {
    /// Means as the paper gives them. It gives no spread: the sigmas are this program's choice.
    fn lengths(self) -> Lengths {
        match self {
            Trace::Sharegpt => Lengths {
                prompt: 161.31,
                output: 337.99,
                sigma: [1.2, 0.9],
            },
            Trace::Alpaca => Lengths {
                prompt: 19.31,
                output: 58.45,
                sigma: [0.6, 0.9],
            },
        }
    }

    fn name(self) -> &'static str {
        match self {
            Trace::Sharegpt => "ShareGPT",
            Trace::Alpaca => "Alpaca",
        }
    }
}

/// Runs the command.
pub fn run(args: &SimulateArgs, out: &mut dyn Write) -> Result<(), Error> {
    let machine = machine(args)?;
    let limit = args.latency.unwrap_or(5.0 * machine.least_latency());
    let traces = match args.trace {
        Some(trace) => vec![trace],
        None => vec![Trace::Sharegpt, Trace::Alpaca],
    };
    for trace in &traces {
        check_lengths(&trace.lengths(), args.max_len)?;
    }
    fs::create_dir_all(&args.charts).map_err(Error::write(&args.charts))?;
    report::introduce(args.preset.name(), &machine, limit, args.max_len, out)?;

    let bar = step_bar(
        "simulating",
        (traces.len() * POLICIES.len()) as u64 * sweep::RUNS,
    );
    let mut written = Vec::new();
    for trace in traces {
        let lengths = trace.lengths();
        let requests = trace::requests(&lengths, args.max_len, args.requests, args.seed);
        let found = sweep::sweep(&machine, &POLICIES, args.max_len, &requests, limit, &bar)?;
        bar.suspend(|| report::trace(trace.name(), &requests, &lengths, &machine, &found, out))?;
        let on = format!("{}, {}", args.preset.name(), trace.name());
        let charts = [
            (
                "memory",
                chart::memory(&format!("What the cache memory holds: {on}"), &found),
            ),
            (
                "latency",
                chart::latency(&format!("Latency and request rate: {on}"), &found, limit),
            ),
        ];
        for (kind, svg) in charts {
            let name = format!("{kind}-{}.svg", trace.name().to_lowercase());
            let path = args.charts.join(name);
            save(&path, svg)?;
            written.push(path);
        }
    }
    bar.finish_and_clear();
    writeln!(out)?;
    writeln!(out, "Charts:")?;
    for path in written {
        writeln!(out, "  {}", path.display())?;
    }
    Ok(())
}

fn save(path: &Path, svg: Result<String, chart::Failure>) -> Result<(), Error> {
    let svg = svg.map_err(|error| Error::write(path)(io::Error::other(error.to_string())))?;
    output::write(path, |file| file.write_all(svg.as_bytes()))
}
/// Requests that a run may have: past this it takes hours.
const MAX_REQUESTS: usize = 1_000_000;

/// Lengths are drawn again where they exceed `max_len`: near or below the mean that would take for
/// ever, and miss the mean.
fn check_lengths(lengths: &trace::Lengths, max_len: usize) -> Result<(), Error> {
    let min = (3.0 * (lengths.prompt + lengths.output)) as usize;
    if max_len >= min {
        return Ok(());
    }
    Err(Error::SimulatedRange {
        argument: "--max-len",
        value: max_len,
        min,
        max: 1 << 30,
        why: ", three times the trace's mean length and more",
    })
}

fn machine(args: &SimulateArgs) -> Result<Machine, Error> {
    let preset = args.preset.machine();
    let machine = Machine {
        weights: args.weights_gb.map_or(preset.weights, |gb| gb * 1e9),
        token_bytes: args.token_kb.map_or(preset.token_bytes, |kb| kb * 1e3),
        cache: args.cache_gb.map_or(preset.cache, |gb| gb * 1e9),
        bandwidth: args.bandwidth_gbs.map_or(preset.bandwidth, |gbs| gbs * 1e9),
        flops: args.tflops.map_or(preset.flops, |t| t * 1e12),
        max_batch: args.max_batch.unwrap_or(preset.max_batch),
        paging: args.paging_factor,
    };
    for (argument, value) in [
        ("--weights-gb", machine.weights),
        ("--token-kb", machine.token_bytes),
        ("--cache-gb", machine.cache),
        ("--bandwidth-gbs", machine.bandwidth),
        ("--tflops", machine.flops),
        ("--max-batch", machine.max_batch as f64),
        ("--paging-factor", machine.paging),
        ("--latency", args.latency.unwrap_or(1.0)),
        ("--requests", args.requests as f64),
    ] {
        if !(value > 0.0 && value.is_finite()) {
            return Err(Error::NotPositive { argument, value });
        }
    }
    if args.requests > MAX_REQUESTS {
        return Err(Error::SimulatedRange {
            argument: "--requests",
            value: args.requests,
            min: 1,
            max: MAX_REQUESTS,
            why: "",
        });
    }
    // A region of the longest context must fit, after rounding up to a power of two.
    let (found, max) = (machine.capacity(), 1 << 30);
    let needed = args.max_len.clamp(2, max).next_power_of_two().max(256);
    if !(2..=max).contains(&args.max_len) || found < needed || found > max {
        let max_len = args.max_len;
        return Err(Error::SimulatedMemory {
            found,
            needed,
            max,
            max_len,
        });
    }
    Ok(machine)
}
