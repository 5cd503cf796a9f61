//! The `paged-attention` binary: a demonstration, batches as safetensors files, and the PTX
//! artefacts.

mod args;
mod batch;
mod buffer;
mod check;
mod counters;
mod decode;
mod demo;
mod device;
mod error;
mod output;
mod ptx;
mod report;
mod sample;
mod simulate;
mod tensors;
mod text;

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command, PtxCommand};
use error::Error;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut out = BufWriter::new(io::stdout().lock());
    let result = run(&cli.command, &mut out).and_then(|()| Ok(out.flush()?));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // `paged-attention ptx list | head` is no failure.
        Err(Error::Stdout(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            // What was printed before the error belongs before it.
            let _ = out.flush();
            eprintln!("error: {}", text::printable(&error.to_string()));
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command, out: &mut dyn Write) -> Result<(), Error> {
    match command {
        Command::Demo(args) => demo::run(args, out),
        Command::Sample(args) => sample::run(args, out),
        Command::Decode(args) => decode::run(args, out),
        Command::Report(args) => report::run(args, out),
        Command::Simulate(args) => simulate::run(args, out),
        Command::Ptx { command } => match command {
            PtxCommand::List(args) => ptx::list(args, out),
            PtxCommand::Export(args) => ptx::export(args, out),
        },
    }
}

/// Evaluates `$body` with `$T` as the element type of a [`paged_attention::DType`].
macro_rules! with_element {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            paged_attention::DType::F32 => {
                type $T = f32;
                $body
            }
            paged_attention::DType::F16 => {
                type $T = half::f16;
                $body
            }
            paged_attention::DType::Bf16 => {
                type $T = half::bf16;
                $body
            }
        }
    };
}
pub(crate) use with_element;
