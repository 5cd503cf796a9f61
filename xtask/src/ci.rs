//! `cargo xtask ci`: what continuous integration runs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::command::{cargo, root, run as run_command};

/// proptest cases per property in CI, against the few of a plain `cargo test`.
const CI_CASES: &str = "64";

/// Packages that are published, in one dry run so that their path dependencies resolve.
const PUBLISHED: [&str; 4] = [
    "paged-attention-kernels",
    "ptx-emulator",
    "paged-attention",
    "paged-attention-cli",
];

/// Lints that the device code is held to. That compiler moves, so these are named.
const DEVICE_LINTS: [&str; 4] = [
    "-Dclippy::undocumented_unsafe_blocks",
    "-Dclippy::missing_safety_doc",
    "-Dunsafe_op_in_unsafe_fn",
    "-Dunused_must_use",
];

/// Runs every check in turn and stops at the first that fails.
pub fn run() -> Result<()> {
    let fresh = root().join("target/ptx-fresh");
    // Asked for now: a step that builds this program anew puts another file at its path, and the
    // answer would be the old one's.
    let program = std::env::current_exe()?;
    let xtask = |words: &str| {
        let mut xtask = Command::new(&program);
        xtask.args(words.split_whitespace());
        xtask
    };
    step("fmt", &mut cargo("fmt --all --check"))?;
    step(
        "clippy",
        &mut cargo("clippy --release --workspace --all-targets -- -D warnings"),
    )?;
    step("clippy for nvptx64", &mut device_clippy()?)?;
    step(
        "test, more cases",
        cargo("test --release --workspace").env("PROPTEST_CASES", CI_CASES),
    )?;
    step(
        "doc",
        cargo("doc --workspace --no-deps").env("RUSTDOCFLAGS", "-D warnings"),
    )?;
    forget_packaged()?;
    let packages = PUBLISHED.map(|p| format!("-p {p}")).join(" ");
    let publish = format!("publish --dry-run --allow-dirty {packages}");
    step(
        "publish --dry-run",
        cargo(&publish).env("CARGO_TARGET_DIR", root().join(PUBLISH_TARGET)),
    )?;
    step("ptx --check", &mut xtask("ptx --check"))?;
    step("ptxas", &mut xtask("ptxas"))?;
    step(
        "ptxas of rust-cuda's set",
        &mut xtask("ptxas --report-only --dir host-crate/ptx/rust-cuda"),
    )?;
    step("ptx, fresh", xtask("ptx --out").arg(&fresh))?;
    let mut suite = cargo("test --release --package paged-attention-suite");
    step(
        "suite on the fresh PTX",
        suite.env("PAGED_ATTENTION_PTX_DIR", &fresh),
    )?;
    step(
        "clippy with cuda",
        &mut xtask(
            "cuda-emulated -- clippy --release --workspace --all-targets --features cuda,cuda-both-sets -- -D warnings",
        ),
    )?;
    step(
        "doc with cuda",
        xtask("cuda-emulated -- doc -p paged-attention --no-deps --features cuda,emulator")
            .env("RUSTDOCFLAGS", "-D warnings"),
    )?;
    step(
        "suite on the emulated driver",
        &mut xtask("cuda-emulated -- test --release --workspace --features cuda,cuda-both-sets"),
    )?;
    step("recipes", &mut xtask("recipes"))?;
    step("gpu-kit", &mut xtask("gpu-kit --run-emulated"))?;
    println!("\nci: all checks passed");
    Ok(())
}

/// Target folder of the dry run of publishing, relative to the root.
const PUBLISH_TARGET: &str = "target/publish";

/// Removes what an earlier dry run unpacked and built: cargo keeps it by name and version, and would
/// verify the dependents of a package against its old source.
fn forget_packaged() -> Result<()> {
    let built = root().join(PUBLISH_TARGET);
    if built.is_dir() {
        std::fs::remove_dir_all(&built)
            .with_context(|| format!("cannot remove {}", built.display()))?;
    }
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(std::env::home_dir()?.join(".cargo")));
    let sources = home.context("no home folder")?.join("registry/src");
    let Ok(registries) = std::fs::read_dir(sources) else {
        return Ok(());
    };
    for registry in registries {
        let registry = registry?.path();
        for package in PUBLISHED {
            let unpacked = registry.join(format!("{package}-{}", env!("CARGO_PKG_VERSION")));
            if unpacked.is_dir() {
                std::fs::remove_dir_all(&unpacked)
                    .with_context(|| format!("cannot remove {}", unpacked.display()))?;
            }
        }
    }
    Ok(())
}

fn step(name: &str, command: &mut Command) -> Result<()> {
    println!("\n== {name}");
    let start = Instant::now();
    run_command(command).with_context(|| format!("ci: {name}"))?;
    println!("== {name}: ok in {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// Clippy over the device code, which the host's clippy does not see: Debian's clippy-driver with
/// the compiler of the same package.
fn device_clippy() -> Result<Command> {
    let driver = Path::new("/usr/bin/clippy-driver");
    ensure!(
        driver.is_file(),
        "clippy for nvptx64 needs Debian's package rust-web-clippy"
    );
    let mut check =
        cargo("check --release -p paged-attention-kernels --target nvptx64-nvidia-cuda");
    check.arg("-Zbuild-std=core");
    check
        .env("RUSTC", "/usr/bin/rustc")
        .env("RUSTC_BOOTSTRAP", "1");
    check.env("RUSTC_WORKSPACE_WRAPPER", driver);
    check.env(
        "CLIPPY_ARGS",
        DEVICE_LINTS
            .map(|lint| format!("{lint}__CLIPPY_HACKERY__"))
            .concat(),
    );
    check.env("CARGO_TARGET_DIR", root().join("target/ptx-clippy"));
    check.env_remove("RUSTUP_TOOLCHAIN");
    Ok(check)
}
