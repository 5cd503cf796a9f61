//! `cargo xtask compare`: what ptxas makes of each entry of the two shipped sets.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use paged_attention::artefacts::{EntryKind, PtxSet};
use paged_attention::kernels::variants::DECODE;

use crate::command::{output, root};
use crate::ptx::split::entry_text;
use crate::ptxas::{Usage, assemble};
use crate::sass::{instructions_per_byte, tools};

/// Architecture that both sets are assembled for.
const ARCHITECTURE: &str = "sm_90";

/// Arguments of `cargo xtask compare`.
#[derive(clap::Args)]
pub struct Args {
    /// Folder of the default set.
    #[arg(long, value_name = "DIR", default_value_os_t = root().join("host-crate/ptx"))]
    default: PathBuf,
    /// Folder of the set that it is compared with.
    #[arg(long, value_name = "DIR", default_value_os_t = root().join("host-crate/ptx/rust-cuda"))]
    other: PathBuf,
    /// Only entries whose name contains this.
    #[arg(long, value_name = "TEXT", default_value = "")]
    entry: String,
}

/// One entry of one set.
struct Row {
    usage: Usage,
    /// Instructions of the main loop per byte of K and V; none where none is recognised.
    per_byte: Option<f64>,
    bytes: usize,
}

/// Compares the default set with the set in `other`.
pub fn with_default(other: &Path) -> Result<()> {
    run(&Args {
        default: root().join("host-crate/ptx"),
        other: other.into(),
        entry: String::new(),
    })
}

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    let (ptxas, nvdisasm) = tools()?;
    let version = output(Command::new(&ptxas).arg("--version"))?;
    let version = version.lines().find(|line| line.contains("release"));
    let date = output(Command::new("date").args(["-u", "+%F"]))?;
    println!(
        "{}, {ARCHITECTURE}, ptxas: {}",
        date.trim(),
        version.unwrap_or_default().trim()
    );
    let (default, other) = (PtxSet::load(&args.default)?, PtxSet::load(&args.other)?);
    for (name, set) in [("default", &default), ("other", &other)] {
        let manifest = set.manifest();
        println!(
            "{name}: {}, PTX {}, kernel source {}, {} bytes",
            manifest.compiler,
            manifest.ptx_version,
            manifest.source_hash,
            set.files().map(|(_, text)| text.len()).sum::<usize>()
        );
    }
    println!();
    println!("registers / stack bytes / spill bytes; instructions of the main loop per byte of");
    println!("K and V, - where the code has no loop of the shape that is counted; bytes of PTX");
    println!("{:26}{:^38}{:^38}", "entry", "default", "other");
    let rows = |dir: &Path, set: &PtxSet| rows(&ptxas, &nvdisasm, dir, set, &args.entry);
    let (mut default, other) = (rows(&args.default, &default)?, rows(&args.other, &other)?);
    ensure!(
        !(default.is_empty() && other.is_empty()),
        "no entry's name contains `{}`",
        args.entry
    );
    for (entry, second) in other {
        match default.remove(&entry) {
            Some(first) => println!("{entry:26}{}{}", cells(&first), cells(&second)),
            None => println!("{entry:26}{:38}{}", "", cells(&second)),
        }
    }
    for (entry, first) in default {
        println!("{entry:26}{}", cells(&first));
    }
    Ok(())
}

fn cells(row: &Row) -> String {
    let Usage {
        registers,
        stack,
        spills,
        ..
    } = row.usage;
    let per_byte = row.per_byte.map_or("-".into(), |x| format!("{x:.4}"));
    format!(
        "{:>18}{per_byte:>10}{:>10}",
        format!("{registers} / {stack} / {spills}"),
        row.bytes
    )
}

/// Every entry of a set whose name contains `wanted`.
fn rows(
    ptxas: &Path,
    nvdisasm: &Path,
    dir: &Path,
    set: &PtxSet,
    wanted: &str,
) -> Result<BTreeMap<String, Row>> {
    let mut rows = BTreeMap::new();
    for (file, text) in set.files() {
        let entries: Vec<_> = set
            .manifest()
            .entries
            .iter()
            .filter(|e| e.file == file && e.symbol.contains(wanted))
            .collect();
        if entries.is_empty() {
            continue;
        }
        let path = dir.join(file);
        let usages: BTreeMap<_, _> = assemble(ptxas, &path, ARCHITECTURE)?.into_iter().collect();
        let variants: Vec<_> = DECODE
            .iter()
            .filter(|v| entries.iter().any(|e| e.symbol == v.entry))
            .collect();
        let loops = instructions_per_byte(ptxas, nvdisasm, &path, &variants)?;
        for entry in entries {
            let symbol = &entry.symbol;
            let usage = usages
                .get(symbol)
                .with_context(|| format!("ptxas said nothing of {symbol}"))?;
            let per_byte = match entry.kind {
                EntryKind::Decode => loops.get(symbol.as_str()).copied(),
                _ => None,
            };
            let row = Row {
                usage: *usage,
                per_byte,
                bytes: entry_text(text, symbol)
                    .with_context(|| format!("{file} holds no entry {symbol}"))?
                    .len(),
            };
            rows.insert(symbol.clone(), row);
        }
    }
    Ok(rows)
}
