//! How long the driver takes to load each PTX file of a folder: compiled anew, and again.
//!
//! `load_times FOLDER [CSV]` prints the device and a summary, and writes one row per file.

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use cudarc::driver::CudaContext;
use cudarc::driver::sys::cuDriverGetVersion;
use cudarc::nvrtc::Ptx;

fn main() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let folder = arguments.next().context("usage: load_times FOLDER [CSV]")?;
    let csv_path = arguments.next();

    let context = CudaContext::new(0)?;
    let (major, minor) = context.compute_capability()?;
    let mut driver = 0;
    // SAFETY: the result is written to a live integer.
    unsafe { cuDriverGetVersion(&mut driver) }.result()?;
    println!("device: {}", context.name()?);
    println!("compute capability: {major}.{minor}");
    println!("driver: CUDA {}.{}", driver / 1000, driver % 1000 / 10);

    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .with_context(|| folder.display().to_string())?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "ptx"));
    files.sort();
    ensure!(!files.is_empty(), "{} holds no PTX", folder.display());

    let mut csv = String::from("file,bytes,first_ms,again_ms\n");
    let mut first: Vec<f64> = vec![];
    for path in &files {
        let text = std::fs::read_to_string(path)?;
        // A comment makes the text new to the driver's cache of compiled kernels.
        let fresh = format!("{text}\n// {:?} {}\n", Instant::now(), std::process::id());
        let mut milliseconds = [0.0; 2];
        for time in &mut milliseconds {
            let start = Instant::now();
            let module = context.load_module(Ptx::from_src(fresh.as_str()))?;
            *time = start.elapsed().as_secs_f64() * 1e3;
            drop(module);
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let [cold, warm] = milliseconds;
        writeln!(csv, "{name},{},{cold:.3},{warm:.3}", text.len())?;
        first.push(cold);
    }
    first.sort_by(f64::total_cmp);
    println!(
        "{} files: first load median {:.1} ms, longest {:.1} ms",
        first.len(),
        first[first.len() / 2],
        first[first.len() - 1]
    );
    if let Some(path) = csv_path {
        std::fs::write(&path, csv).with_context(|| path.display().to_string())?;
    }
    Ok(())
}
