//! What the emulator counted, as a table with a column per launch.

use std::io::{self, Write};
use std::time::Duration;

use paged_attention::Plan;
use paged_attention::emulator::Reports;

use crate::text::{Align, Table, bytes, count};

/// Prints the counters of a call that took `elapsed`.
pub fn print(
    plan: &Plan,
    reports: &Reports,
    elapsed: Duration,
    out: &mut dyn Write,
) -> io::Result<()> {
    let launches = [
        (plan.decode_variant().entry, &reports.decode),
        (plan.merge_variant().entry, &reports.merge),
    ];
    let launches: Vec<_> = launches
        .into_iter()
        .filter_map(|(entry, report)| Some((entry, &report.as_ref()?.counters)))
        .collect();
    if launches.is_empty() {
        return writeln!(out, "counters: none, the batch is empty");
    }
    writeln!(out, "counters")?;
    let mut columns = vec![("", Align::Left)];
    columns.extend(launches.iter().map(|&(entry, _)| (entry, Align::Right)));
    let mut table = Table::new(&columns);
    // A row for a counter, with the cell that `$cell` makes of the counters `$c`.
    macro_rules! row {
        ($name:expr, $c:ident => $cell:expr) => {
            table.row(
                [$name.to_string()]
                    .into_iter()
                    .chain(launches.iter().map(|(_, $c)| $cell)),
            )
        };
    }
    row!("blocks", c => count(c.blocks));
    row!("warp instructions", c => count(c.total()));
    let mut classes: Vec<_> = launches
        .iter()
        .flat_map(|(_, c)| c.warp_instructions.keys().copied())
        .collect();
    classes.sort();
    classes.dedup();
    for class in classes {
        row!(format!("  {class}"), c => count(c.class(class)));
    }
    row!("  by part of a warp", c => count(c.partial_warp_instructions));
    for cache in ["k_cache", "v_cache"] {
        if launches
            .iter()
            .all(|(_, c)| !c.allocations.contains_key(cache))
        {
            continue;
        }
        row!(format!("{cache} sectors"), c => {
            c.allocations.get(cache).map_or("-".into(), |s| count(s.loaded))
        });
        row!("  relative to least", c => {
            let sectors = c.allocations.get(cache).filter(|s| s.loaded_per_block > 0);
            sectors.map_or("-".into(), |s| {
                format!("{:.4}", s.loaded as f64 / s.loaded_per_block as f64)
            })
        });
    }
    row!("global sectors", c => count(c.global().loaded + c.global().stored));
    row!("global read", c => bytes(c.bytes.global_read));
    row!("global written", c => bytes(c.bytes.global_written));
    row!("shared wavefronts", c => count(c.shared.wavefronts));
    row!("  by bank conflicts", c => count(c.shared.conflicts()));
    row!("local bytes", c => bytes(c.bytes.local_read + c.bytes.local_written));
    row!("barriers", c => count(c.barriers));
    table.print(out)?;
    let total: u64 = launches.iter().map(|(_, c)| c.total()).sum();
    let rate = total as f64 / elapsed.as_secs_f64().max(1e-9);
    let rate = count(rate as u64);
    writeln!(
        out,
        "  {rate} warp instructions per second, loading the PTX included"
    )
}
