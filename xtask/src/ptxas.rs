//! `cargo xtask ptxas`: assembles the shipped PTX and prints what each entry takes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use rayon::prelude::*;

use crate::command::{find, root};

/// Architectures that the set is assembled for.
const ARCHITECTURES: [&str; 3] = ["sm_80", "sm_90", "sm_100"];

/// Arguments of `cargo xtask ptxas`.
#[derive(clap::Args)]
pub struct Args {
    /// Folder of PTX files.
    #[arg(long, value_name = "DIR", default_value_os_t = root().join("host-crate/ptx"))]
    dir: PathBuf,
    /// Print spills and stack frames without failing on them.
    #[arg(long)]
    report_only: bool,
}

/// What ptxas says of one entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Registers per thread.
    pub registers: u32,
    /// Static shared memory in bytes.
    pub shared: u32,
    /// Stack frame in bytes.
    pub stack: u32,
    /// Spill stores and loads in bytes.
    pub spills: u32,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    let ptxas = find("ptxas", "PTXAS").context(
        "no ptxas on PATH and PTXAS is not set; the PyPI wheel nvidia-cuda-nvcc has one",
    )?;
    let mut files: Vec<PathBuf> = std::fs::read_dir(&args.dir)
        .with_context(|| format!("cannot read {}", args.dir.display()))?
        .map(|entry| entry.map(|e| e.path()))
        .collect::<Result<_, _>>()?;
    files.retain(|path| path.extension().is_some_and(|e| e == "ptx"));
    files.sort();
    let jobs: Vec<(&Path, &str)> = files
        .iter()
        .flat_map(|f| ARCHITECTURES.map(|a| (f.as_path(), a)))
        .collect();
    let results: Vec<_> = jobs
        .par_iter()
        .map(|&(file, arch)| assemble(&ptxas, file, arch).map(|usage| (arch, usage)))
        .collect::<Result<_>>()?;

    let mut table: BTreeMap<String, BTreeMap<&str, Usage>> = BTreeMap::new();
    for (arch, usage) in results {
        for (entry, usage) in usage {
            table.entry(entry).or_default().insert(arch, usage);
        }
    }
    println!("registers / static shared bytes / stack bytes / spill bytes");
    print!("{:28}", "entry");
    ARCHITECTURES.iter().for_each(|arch| print!("{arch:>18}"));
    println!();
    let mut bad = Vec::new();
    for (entry, row) in &table {
        print!("{entry:28}");
        for arch in ARCHITECTURES {
            let u = row
                .get(arch)
                .with_context(|| format!("ptxas said nothing of {entry} on {arch}"))?;
            print!(
                "{:>18}",
                format!(
                    "{} / {} / {} / {}",
                    u.registers, u.shared, u.stack, u.spills
                )
            );
            if u.stack + u.spills > 0 {
                bad.push(format!("{entry} on {arch}"));
            }
        }
        println!();
    }
    println!(
        "{} entries, {} with a stack frame or spills",
        table.len(),
        bad.len()
    );
    if !bad.is_empty() && !args.report_only {
        bail!("stack frame or spills in {}", bad.join(", "));
    }
    Ok(())
}

/// Assembles a file and gives every entry's usage.
pub fn assemble(ptxas: &Path, file: &Path, arch: &str) -> Result<Vec<(String, Usage)>> {
    let output = Command::new(ptxas)
        .args(["-v", "-arch", arch, "-o", "/dev/null"])
        .arg(file)
        .output()
        .with_context(|| format!("{} did not start", ptxas.display()))?;
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("ptxas refuses {} for {arch}:\n{text}", file.display());
    }
    Ok(parse(&text))
}

fn parse(text: &str) -> Vec<(String, Usage)> {
    let mut entries: Vec<(String, Usage)> = Vec::new();
    for line in text.lines() {
        if let Some(rest) = line.split("Compiling entry function '").nth(1) {
            let name = rest.split('\'').next().unwrap_or_default();
            entries.push((name.to_string(), Usage::default()));
        }
        let Some((_, usage)) = entries.last_mut() else {
            continue;
        };
        let before = |label: &str| {
            let head = line
                .split(label)
                .next()
                .filter(|head| head.len() < line.len())?;
            head.split_whitespace().next_back()?.parse::<u32>().ok()
        };
        if let Some(bytes) = before(" bytes stack frame") {
            usage.stack = bytes;
            usage.spills = before(" bytes spill stores").unwrap_or(0)
                + before(" bytes spill loads").unwrap_or(0);
        }
        if let Some(count) = before(" registers") {
            usage.registers = count;
        }
        if let Some(bytes) = before(" bytes smem") {
            usage.shared = bytes;
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_of_ptxas_is_read() {
        let text = "ptxas info    : 0 bytes gmem\n\
            ptxas info    : Compiling entry function 'one' for 'sm_90'\n\
            ptxas info    : Function properties for one\n\
            \x20   304 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads\n\
            ptxas info    : Used 40 registers, used 1 barriers, 304 bytes cumulative stack size, 128 bytes smem\n";
        let usage = Usage {
            registers: 40,
            shared: 128,
            stack: 304,
            spills: 28,
        };
        assert_eq!(parse(text), [("one".to_string(), usage)]);
    }
}
