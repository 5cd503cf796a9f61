//! `cargo xtask recipes`: the examples in other languages, on the emulated driver.

use std::process::Command;

use anyhow::{Context, Result};

use crate::command::{cargo, root, run as run_command};
use crate::cuda_emulated::EmulatedDriver;

/// Runs every recipe on the shipped PTX; each checks its own result.
pub fn run() -> Result<()> {
    let driver = EmulatedDriver::build()?;
    let target = root().join("target/recipes");

    println!("== cudarc");
    run_command(&mut cargo(
        "fmt --check --manifest-path examples/cudarc/Cargo.toml",
    ))?;
    let mut cudarc =
        cargo("run --release --quiet --locked --manifest-path examples/cudarc/Cargo.toml");
    run_command(driver.environment(cudarc.env("CARGO_TARGET_DIR", target.join("cudarc"))))
        .context("recipes: cudarc")?;

    println!("== python");
    let packages = target.join("python");
    // Packages of their own, so that the system's stay as they are.
    let mut pip = Command::new("python3");
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]);
    pip.args(["--root-user-action=ignore", "--upgrade", "--requirement"]);
    pip.arg("examples/python/requirements.txt");
    run_command(pip.arg("--target").arg(&packages)).context("recipes: python packages")?;
    let mut python = Command::new("python3");
    python
        .arg("examples/python/decode.py")
        .env("PYTHONPATH", &packages);
    run_command(driver.environment(&mut python)).context("recipes: python")?;
    Ok(())
}
