//! What `simulate` prints.

use std::io::{self, Write};

use super::machine::Machine;
use super::policy::Policy;
use super::sweep::Found;
use super::trace::{Lengths, Request};
use crate::text::{Align, Table, count, field};

/// The block size whose ratio to the others is printed, vLLM's default.
const USUAL: Policy = Policy::Paged(16);

pub fn introduce(
    preset: &str,
    machine: &Machine,
    limit: f64,
    max_len: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(out, "Serving {preset}: continuous batching, simulated")?;
    writeln!(out)?;
    let gb = |bytes: f64| format!("{:.1} GB", bytes / 1e9);
    field(out, "weights", gb(machine.weights))?;
    let tokens = count(machine.capacity() as u64);
    let each = machine.token_bytes / 1e3;
    field(
        out,
        "cache memory",
        format!("{}: {tokens} tokens of {each:.1} KB", gb(machine.cache)),
    )?;
    field(
        out,
        "bandwidth",
        format!("{:.0} GB/s", machine.bandwidth / 1e9),
    )?;
    field(
        out,
        "arithmetic",
        format!("{:.0} TFLOP/s", machine.flops / 1e12),
    )?;
    field(out, "batch, most", machine.max_batch)?;
    field(out, "context, most", max_len)?;
    field(
        out,
        "paging factor",
        format!("{:.2} on the time to read K and V", machine.paging),
    )?;
    field(
        out,
        "latency limit",
        format!("{:.1} ms per token, mean", limit * 1e3),
    )
}

pub fn trace(
    name: &str,
    requests: &[Request],
    lengths: &Lengths,
    machine: &Machine,
    found: &[Found],
    out: &mut dyn Write,
) -> io::Result<()> {
    let mean = |length: fn(&Request) -> usize| {
        requests.iter().map(|r| length(r) as f64).sum::<f64>() / requests.len() as f64
    };
    writeln!(out)?;
    writeln!(
        out,
        "{name}: {} requests, {:.0} tokens in and {:.0} out on average (sigma of the logarithm {} \
         and {})",
        count(requests.len() as u64),
        mean(|r| r.prompt),
        mean(|r| r.output),
        lengths.sigma[0],
        lengths.sigma[1]
    )?;
    writeln!(out)?;
    let usual = found
        .iter()
        .find(|f| f.policy == USUAL)
        .map_or(f64::NAN, |f| f.rate);
    let mut table = Table::new(&[
        ("policy", Align::Left),
        ("tokens", Align::Right),
        ("to come", Align::Right),
        ("inside", Align::Right),
        ("outside", Align::Right),
        ("batch", Align::Right),
        ("requests/s", Align::Right),
        ("paged 16 ÷ this", Align::Right),
    ]);
    for Found {
        policy,
        loaded,
        rate,
        ..
    } in found
    {
        let shares = loaded.shares;
        let outside = 1.0 - shares.tokens - shares.reserved - shares.internal;
        let percent = |share: f64| cell(100.0 * share, 1, " %");
        table.row([
            policy.name(),
            percent(shares.tokens),
            percent(shares.reserved),
            percent(shares.internal),
            percent(outside.clamp(0.0, 1.0)),
            cell(loaded.batch, 1, ""),
            cell(*rate, 2, ""),
            cell(usual / rate, 2, "×"),
        ]);
    }
    table.print(out)?;
    writeln!(out)?;
    conclude(machine, found, usual, out)
}

/// A number, or a dash where nothing was measured.
fn cell(value: f64, decimals: usize, unit: &str) -> String {
    if value.is_finite() {
        format!("{value:.decimals$}{unit}")
    } else {
        "-".into()
    }
}

/// The paper's 2–4× against what was found, with the reason where it did not come out.
fn conclude(machine: &Machine, found: &[Found], usual: f64, out: &mut dyn Write) -> io::Result<()> {
    let paged = found.iter().find(|f| f.policy == USUAL);
    for baseline in found.iter().filter(|f| !f.policy.is_paged()) {
        let (name, ratio) = (baseline.policy.name(), usual / baseline.rate);
        // A rate of 0: not even requests far apart are served within the latency.
        let too_slow = match (usual > 0.0, baseline.rate > 0.0) {
            (true, true) => None,
            (true, false) => Some("it never is"),
            (false, true) => Some("paged, blocks of 16, never is"),
            (false, false) => Some("neither ever is"),
        };
        if let Some(which) = too_slow {
            writeln!(
                out,
                "  No ratio to {name}: {which} within the latency limit, at any request rate."
            )?;
            continue;
        }
        let verdict = match ratio {
            ratio if ratio < 2.0 => "below the paper's 2-4×",
            ratio if ratio > 4.0 => "above the paper's 2-4×",
            _ => "as in the paper, 2-4×",
        };
        writeln!(
            out,
            "  {} the throughput of {name}: {verdict}.",
            cell(ratio, 2, "×")
        )?;
        let Some(paged) = paged else {
            continue;
        };
        let (small, large) = (baseline.loaded.batch, paged.loaded.batch);
        if ratio > 4.0 && large.is_finite() && small.is_finite() {
            writeln!(
                out,
                "    Tokens fill {} of its memory: {} sequences to a batch, not {}.",
                cell(100.0 * baseline.loaded.shares.tokens, 1, " %"),
                cell(small, 1, ""),
                cell(large, 1, "")
            )?;
        }
        if ratio >= 2.0 {
            continue;
        }
        if !(large / small).is_finite() {
            writeln!(
                out,
                "    Requests never wait for memory, so nothing says why: take more --requests."
            )?;
        } else if large >= 0.98 * machine.max_batch as f64 {
            writeln!(
                out,
                "    Paging is held back by the largest batch allowed, {}, not by memory.",
                machine.max_batch
            )?;
        } else if large / small < 1.2 {
            writeln!(out, "    Batches are alike: memory limits neither.")?;
        } else if large / small < 2.0 {
            writeln!(
                out,
                "    Paged batches are only {} as large: this policy knows what servers do not.",
                cell(large / small, 1, "×")
            )?;
        } else {
            writeln!(
                out,
                "    Batches are {} as large, but the time of a step grows with them: K and V are \
                 read, and prompts computed, for every sequence.",
                cell(large / small, 1, "×")
            )?;
        }
    }
    Ok(())
}
