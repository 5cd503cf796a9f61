//! `cargo xtask gpu-kit`: a folder that runs on a machine with an NVIDIA driver and nothing else.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::command::{cargo, output, root, run as run_command};
use crate::cuda_emulated::{Artefact, EmulatedDriver, artefacts};

/// What the kit may weigh.
const MAX_BYTES: u64 = 40 << 20;

/// Arguments of `gpu-kit`.
#[derive(clap::Args)]
pub struct Args {
    /// Folder to make.
    #[arg(long, default_value = "target/gpu-kit")]
    out: PathBuf,
    /// Run the kit on the emulated driver afterwards, with small sizes.
    #[arg(long)]
    run_emulated: bool,
}

/// Builds the kit, and runs it if asked.
pub fn run(args: &Args) -> Result<()> {
    let driver = EmulatedDriver::build()?;
    let out = root().join(&args.out);
    let bin = out.join("bin");
    fs::create_dir_all(&bin)?;

    // Linked against the emulated driver's libcuda.so, whose soname is the real one's.
    // The whole workspace's features, as in the tests, so that nothing is compiled twice.
    let features = "--no-run --release --workspace --features cuda";
    let mut suite = cargo(&format!("test {features} --test suite"));
    install(&artefacts(driver.environment(&mut suite))?, "suite", &bin)?;
    let mut bench = cargo("bench --no-run --workspace --features cuda --bench gpu");
    install(&artefacts(driver.environment(&mut bench))?, "gpu", &bin)?;
    let mut example = cargo("build --release --locked --manifest-path examples/cudarc/Cargo.toml");
    example.env("CARGO_TARGET_DIR", root().join("target/recipes/cudarc"));
    let example = artefacts(&mut example)?;
    install(&example, "load_times", &bin)?;
    install(&example, "paged-attention-cudarc-example", &bin)?;
    copy_ptx(&root().join("host-crate/ptx"), &out.join("ptx"))?;
    fs::copy(root().join("xtask/src/gpu_kit/run.sh"), out.join("run.sh"))?;

    let (bytes, glibc) = weigh(&out)?;
    let commit = output(
        Command::new("git")
            .args(["describe", "--always", "--dirty"])
            .current_dir(root()),
    )
    .unwrap_or_else(|_| "unknown\n".into());
    let about =
        format!("commit: {commit}needs: x86-64 Linux, glibc {glibc} or newer, an NVIDIA driver\n");
    fs::write(out.join("about.txt"), &about)?;
    println!("{}: {:.1} MB\n{about}", out.display(), bytes as f64 / 1e6);
    ensure!(
        bytes <= MAX_BYTES,
        "the kit has {bytes} bytes, must be at most {MAX_BYTES}"
    );

    if args.run_emulated {
        let mut kit = Command::new("sh");
        kit.arg(out.join("run.sh"))
            .arg("--small")
            .arg(root().join("target/gpu-kit-results"));
        run_command(driver.environment(&mut kit)).context("gpu-kit on the emulated driver")?;
    }
    Ok(())
}

/// Copies the program of a target into the kit.
fn install(artefacts: &[Artefact], target: &str, bin: &Path) -> Result<()> {
    let program = artefacts
        .iter()
        .find_map(|artefact| match &artefact.program {
            Some(program) if artefact.target == target => Some(program),
            _ => None,
        });
    let program = program.with_context(|| format!("the build made no program {target}"))?;
    fs::copy(program, bin.join(target)).with_context(|| program.display().to_string())?;
    Ok(())
}

fn copy_ptx(from: &Path, to: &Path) -> Result<()> {
    // Files of an earlier kit that the set no longer has must not stay.
    if to.exists() {
        fs::remove_dir_all(to)?;
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        let kind = path.extension().and_then(|extension| extension.to_str());
        if let (Some("ptx" | "json"), Some(name)) = (kind, path.file_name()) {
            fs::copy(&path, to.join(name))?;
        }
    }
    Ok(())
}

/// Bytes of all files, and the least glibc that the programs start with.
fn weigh(kit: &Path) -> Result<(u64, String)> {
    let (mut bytes, mut glibc) = (0, (2, 0));
    for folder in [kit.to_path_buf(), kit.join("bin"), kit.join("ptx")] {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if metadata.is_file() {
                bytes += metadata.len();
            }
            if metadata.is_file() && folder.ends_with("bin") {
                glibc = glibc.max(newest_glibc(&fs::read(entry.path())?));
            }
        }
    }
    Ok((bytes, format!("{}.{}", glibc.0, glibc.1)))
}

/// The newest version among a program's `GLIBC_2.x` symbol versions.
fn newest_glibc(program: &[u8]) -> (u32, u32) {
    const PREFIX: &[u8] = b"GLIBC_";
    let starts = (0..program.len()).filter(|&at| program[at..].starts_with(PREFIX));
    let version = |at: usize| {
        let text = program[at + PREFIX.len()..]
            .split(|&byte| byte == 0)
            .next()?;
        let (major, rest) = std::str::from_utf8(text).ok()?.split_once('.')?;
        let minor = rest.split('.').next()?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    starts.filter_map(version).max().unwrap_or((2, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_glibc_is_the_largest_number_not_the_largest_text() {
        let program = b"..\0GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.9\0GLIBC_PRIVATE\0";
        assert_eq!(newest_glibc(program), (2, 34));
    }
}
