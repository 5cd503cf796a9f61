//! Compiles kernel-crate with rust-cuda and writes its one PTX module to the path given.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cuda_builder::{CudaBuilder, NvvmArch};

fn main() -> ExitCode {
    let Some(out) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: paged-attention-rust-cuda FILE.ptx");
        return ExitCode::from(2);
    };
    let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
    let built = CudaBuilder::new(kernels)
        .arch(NvvmArch::Compute80)
        // The kernels write their fused multiply-adds; a contraction elsewhere would change results.
        .fma_contraction(false)
        .copy_to(out)
        .build();
    match built {
        Ok(path) => {
            println!("{}", path.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("rust-cuda did not compile the kernels: {error}");
            ExitCode::FAILURE
        }
    }
}
