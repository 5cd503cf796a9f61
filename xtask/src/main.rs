//! Developer commands: `cargo xtask <command>`.

mod ci;
mod command;
mod compare;
mod cuda_emulated;
mod gpu_kit;
mod ptx;
mod ptxas;
mod recipes;
mod sass;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Developer commands of the paged-attention workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Compile the kernels to PTX and write host-crate/ptx/.
    Ptx(ptx::Args),
    /// Assemble every shipped entry and print registers, shared memory, stack and spills.
    Ptxas(ptxas::Args),
    /// Print what the main loops issue per byte of K and V, in machine code.
    Sass(sass::Args),
    /// Print what ptxas makes of each entry of the default set and of rust-cuda's.
    Compare(compare::Args),
    /// Run a cargo command with the emulated CUDA driver, to link and to run.
    CudaEmulated(cuda_emulated::Args),
    /// Make a folder that checks and measures the kernels on a machine with only an NVIDIA driver.
    GpuKit(gpu_kit::Args),
    /// Run the examples in other languages on the emulated CUDA driver.
    Recipes,
    /// Everything that continuous integration checks.
    Ci,
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        // Neither a backtrace nor a list: most errors are about what was asked for or is missing.
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Ptx(args) => ptx::run(&args),
        Command::Ptxas(args) => ptxas::run(&args),
        Command::Sass(args) => sass::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::CudaEmulated(args) => cuda_emulated::run(&args),
        Command::GpuKit(args) => gpu_kit::run(&args),
        Command::Recipes => recipes::run(),
        Command::Ci => ci::run(),
    }
}
