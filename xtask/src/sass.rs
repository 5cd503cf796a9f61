//! `cargo xtask sass`: what the decode entries' main loops issue per byte of K and V, in machine
//! code for sm_90.
//!
//! The main loop is the smallest one that holds both asynchronous copies and products. Every
//! instruction in it counts, copies, addresses and branches that are never taken included, but for
//! a nested loop that holds copies and no products: it serves block sizes that are no multiple of
//! 16, and is not executed for others. So the figure is an upper bound of what is issued at block
//! size 16. One pass takes `bytes` of K and V per warp.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use paged_attention::artefacts::{PtxSet, file_name};
use paged_attention::kernels::geometry::{LaneMap, TileMap, UNIT_TOKENS, WARP, WARPS, head_warps};
use paged_attention::kernels::variants::{DECODE, DecodeKind, DecodeVariant, MERGE};
use serde_json::{Value, json};

use crate::command::{find, output, root};
use crate::ptxas::assemble;

mod code;

use code::{Code, Loop};

/// Arguments of `cargo xtask sass`.
#[derive(clap::Args)]
pub struct Args {
    /// Folder of PTX files.
    #[arg(long, value_name = "DIR", default_value_os_t = root().join("host-crate/ptx"))]
    dir: PathBuf,
    /// Only entries whose name contains this.
    #[arg(long, value_name = "TEXT", default_value = "")]
    entry: String,
    /// Write the table that `paged-attention report` prints, with ptxas' register counts.
    #[arg(long, conflicts_with = "entry")]
    write: bool,
}

/// The table of `paged-attention report`.
const TABLE: &str = "cli/src/report/assembled.json";

/// A decode entry's main loop. Instructions of each part once, without those of the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MainLoop {
    /// The loop without what follows.
    outer: u32,
    /// Nested loops with products.
    products: u32,
    /// How often a pass executes these: on tensor cores, for up to 16 query heads.
    turns: u32,
    /// Nested loops with copies alone.
    small_blocks: u32,
    /// Asynchronous copies of `outer`.
    copies: u32,
}

/// ptxas and nvdisasm.
pub fn tools() -> Result<(PathBuf, PathBuf)> {
    let wheel = "the PyPI wheels nvidia-cuda-nvcc and nvidia-cuda-nvdisasm have them";
    let ptxas = find("ptxas", "PTXAS")
        .with_context(|| format!("no ptxas on PATH and PTXAS is not set; {wheel}"))?;
    let nvdisasm = find("nvdisasm", "NVDISASM")
        .with_context(|| format!("no nvdisasm on PATH and NVDISASM is not set; {wheel}"))?;
    Ok((ptxas, nvdisasm))
}

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    let (ptxas, nvdisasm) = tools()?;
    println!("sm_90 instructions of the main loop per byte of K and V that a pass takes");
    println!(
        "{:24}{:>7}{:>14}{:>14}{:>10}{:>10}",
        "entry", "outer", "products", "small blocks", "bytes", "per byte"
    );
    let mut groups = Vec::new();
    let mut rows = Vec::new();
    for merge in MERGE {
        let mut wanted = DECODE.iter().filter(|v| {
            (v.dtype, v.head_dim) == (merge.dtype, merge.head_dim) && v.entry.contains(&args.entry)
        });
        let Some(first) = wanted.next() else { continue };
        let file = args.dir.join(file_name(merge.dtype, merge.head_dim));
        let text = disassemble(&ptxas, &nvdisasm, &file)?;
        let registers = if args.write {
            registers(&ptxas, &file)?
        } else {
            BTreeMap::new()
        };
        for variant in std::iter::once(first).chain(wanted) {
            let main = main_loop(&text, variant).with_context(|| variant.entry.to_string())?;
            let bytes = bytes_per_pass(variant);
            println!(
                "{:24}{:>7}{:>14}{:>14}{:>10}{:>10.4}",
                variant.entry,
                main.outer,
                format!("{} x {}", main.turns, main.products),
                main.small_blocks,
                bytes,
                per_byte(variant, main, 1)
            );
            rows.push(json!({
                "entry": variant.entry,
                "registers": registers.get(variant.entry),
                "outer": main.outer,
                "products": main.products,
                "turns": main.turns,
                "small_blocks": main.small_blocks,
                "bytes": bytes,
            }));
            if variant.kind == DecodeKind::TensorCore {
                groups.push((variant, main));
            }
        }
    }
    if args.write {
        write(&ptxas, &args.dir, &rows)?;
    }
    if !groups.is_empty() {
        println!();
        println!("tensor cores, several warps of 16 query heads over the same tokens: per byte,");
        println!("with the nested copy loop of small blocks in parentheses");
        println!(
            "{:24}{:>22}{:>22}{:>22}",
            "entry", "to 16 heads", "to 32 heads", "more heads"
        );
    }
    for (variant, main) in groups {
        print!("{:24}", variant.entry);
        for group in [16, 32, 64] {
            let warps = head_warps(group);
            let small = per_byte_of_small_blocks(variant, main, warps);
            let text = format!("{:.4} ({small:.4})", per_byte(variant, main, warps));
            print!("{text:>22}");
        }
        println!();
    }
    Ok(())
}

/// Main loops' instructions per byte of K and V for up to 16 query heads of a group, by entry of the
/// file. An entry in whose code no such loop is recognised is left out.
pub fn instructions_per_byte<'v>(
    ptxas: &Path,
    nvdisasm: &Path,
    file: &Path,
    variants: &[&'v DecodeVariant],
) -> Result<BTreeMap<&'v str, f64>> {
    if variants.is_empty() {
        return Ok(BTreeMap::new());
    }
    let text = disassemble(ptxas, nvdisasm, file)?;
    let figure = |variant: &&'v DecodeVariant| {
        let main = main_loop(&text, variant).ok()?;
        Some((variant.entry, per_byte(variant, main, 1)))
    };
    Ok(variants.iter().filter_map(figure).collect())
}

/// Registers per thread by entry and architecture.
fn registers(ptxas: &Path, file: &Path) -> Result<BTreeMap<String, BTreeMap<&'static str, u32>>> {
    let mut table: BTreeMap<String, BTreeMap<_, _>> = BTreeMap::new();
    for arch in ["sm_80", "sm_90"] {
        for (entry, usage) in assemble(ptxas, file, arch)? {
            table
                .entry(entry)
                .or_default()
                .insert(arch, usage.registers);
        }
    }
    Ok(table)
}

fn write(ptxas: &Path, dir: &Path, rows: &[Value]) -> Result<()> {
    let version = output(Command::new(ptxas).arg("--version"))?;
    let version = version.lines().find(|line| line.contains("release"));
    let date = output(Command::new("date").args(["-u", "+%F"]))?;
    let set = PtxSet::load(dir)?;
    // One line per entry.
    let rows: Vec<String> = rows.iter().map(|row| format!("    {row}")).collect();
    let text = format!(
        "{{\n  \"date\": {},\n  \"ptxas\": {},\n  \"source_hash\": {},\n  \"entries\": [\n{}\n  ]\n}}\n",
        json!(date.trim()),
        json!(version.context("ptxas --version names no release")?.trim()),
        json!(set.manifest().source_hash),
        rows.join(",\n")
    );
    let path = root().join(TABLE);
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Bytes of K and V that a warp takes in one pass.
fn bytes_per_pass(variant: &DecodeVariant) -> u32 {
    let tokens = match variant.kind {
        DecodeKind::TensorCore => UNIT_TOKENS,
        DecodeKind::CudaCore => {
            LaneMap::new(variant.head_dim, variant.dtype.bytes()).stage_tokens()
        }
    };
    tokens * 2 * variant.head_dim * variant.dtype.bytes()
}

/// Warp instructions of the CTA per byte that its warps copy, if each of `head_warps` warps takes
/// the products of the same tokens.
fn per_byte(variant: &DecodeVariant, main: MainLoop, head_warps: u32) -> f64 {
    let instructions = WARPS * (main.outer + head_warps * main.turns * main.products);
    f64::from(instructions) / f64::from(WARPS * bytes_per_pass(variant))
}

/// [`per_byte`] where every row of a tile is looked up: the nested copy loop comes on top.
fn per_byte_of_small_blocks(variant: &DecodeVariant, main: MainLoop, head_warps: u32) -> f64 {
    let steps = TileMap::new(variant.head_dim).steps;
    let more = f64::from(steps * main.small_blocks) / f64::from(bytes_per_pass(variant));
    per_byte(variant, main, head_warps) + more
}

fn disassemble(ptxas: &Path, nvdisasm: &Path, file: &Path) -> Result<String> {
    let cubin = std::env::temp_dir().join(format!("paged-attention-{}.cubin", std::process::id()));
    let text = output(
        Command::new(ptxas)
            .args(["-arch", "sm_90", "-o"])
            .arg(&cubin)
            .arg(file),
    )
    .and_then(|_| output(Command::new(nvdisasm).arg(&cubin)));
    // Nothing to remove where ptxas failed.
    let _ = std::fs::remove_file(&cubin);
    text
}

fn main_loop(text: &str, variant: &DecodeVariant) -> Result<MainLoop> {
    let code = Code::parse(text, variant.entry)?;
    let copies = |l: &Loop| code.count(l, "LDGSTS") > 0;
    let product = match variant.kind {
        DecodeKind::TensorCore => "HMMA",
        DecodeKind::CudaCore => "FFMA",
    };
    let products = |l: &Loop| code.count(l, product) > 0;
    let loops = code.loops();
    let main = loops
        .iter()
        .filter(|l| copies(l) && products(l))
        .min_by_key(|l| l.len())
        .context("no loop holds both copies and products")?;
    // Outermost nested loops: in no other nested one.
    let nested: Vec<&Loop> = loops.iter().filter(|l| main.holds(l)).collect();
    let nested: Vec<&Loop> = nested
        .iter()
        .filter(|l| !nested.iter().any(|other| other.holds(l)))
        .copied()
        .collect();
    let mut found = MainLoop {
        outer: main.len(),
        products: 0,
        turns: 1,
        small_blocks: 0,
        copies: code.count(main, "LDGSTS"),
    };
    for l in nested {
        found.outer -= l.len();
        match (copies(l), products(l)) {
            (true, false) => {
                found.small_blocks += l.len();
                found.copies -= code.count(l, "LDGSTS");
            }
            (false, true) => found.products += l.len(),
            _ => bail!("the main loop holds a loop without copies and products"),
        }
    }
    if variant.kind == DecodeKind::CudaCore && found.products > 0 {
        let map = LaneMap::new(variant.head_dim, variant.dtype.bytes());
        found.turns = map.steps / map.batch(variant.heads_per_tile);
    }
    let copies = match variant.kind {
        DecodeKind::TensorCore => bytes_per_pass(variant) / (WARP * 16),
        DecodeKind::CudaCore => {
            // Of K and of V; a row may leave lanes idle.
            let map = LaneMap::new(variant.head_dim, variant.dtype.bytes());
            2 * map.steps * map.chunks_per_lane
        }
    };
    ensure!(
        found.copies == copies,
        "the main loop holds {} copies, must be the {copies} of a pass",
        found.copies
    );
    Ok(found)
}
