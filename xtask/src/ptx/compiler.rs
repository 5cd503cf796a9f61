//! The device compiler: any rustc with the NVPTX target's library source at hand.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context, Result, bail, ensure};

use crate::command::{output, root};

/// Least architecture of the shipped PTX.
const TARGET_CPU: &str = "sm_80";

/// A rustc that can compile `core` for nvptx64.
pub struct Compiler {
    rustc: PathBuf,
    version: String,
}

impl Compiler {
    /// `PTX_RUSTC`, else Debian's rustc-web, else a rustup nightly with rust-src.
    pub fn find() -> Result<Self> {
        if let Some(path) = env::var_os("PTX_RUSTC") {
            return Self::at(path.into()).context("the compiler named by PTX_RUSTC does not serve");
        }
        let debian = Path::new("/usr/bin/rustc");
        let nightly =
            output(Command::new("rustup").args(["which", "--toolchain", "nightly", "rustc"]));
        let mut reasons = Vec::new();
        for candidate in [
            Some(debian.into()),
            nightly.ok().map(|p| PathBuf::from(p.trim())),
        ] {
            match candidate.map(Self::at) {
                Some(Ok(compiler)) => return Ok(compiler),
                Some(Err(reason)) => reasons.push(format!("{reason:#}")),
                None => {}
            }
        }
        bail!(
            "no device compiler. Install one of:\n\
             - Debian: apt-get install rustc-web rust-web-src\n\
             - elsewhere: rustup toolchain install nightly --component rust-src\n\
             or name a rustc with library source in PTX_RUSTC. Looked at: {}",
            reasons.join("; ")
        )
    }

    fn at(rustc: PathBuf) -> Result<Self> {
        let version = output(Command::new(&rustc).arg("--version"))?
            .trim()
            .to_string();
        let sysroot = output(Command::new(&rustc).args(["--print", "sysroot"]))?;
        let library = Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library/core");
        ensure!(
            library.is_dir(),
            "{} has no library source at {}",
            rustc.display(),
            library.display()
        );
        Ok(Self { rustc, version })
    }

    /// The compiler's version line.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Compiles kernel-crate and gives the PTX of all entries as LLVM prints it.
    ///
    /// The variables that select the compiler are set on this child alone and its target folder is
    /// its own: toggled in the shared folder they would rebuild every host crate.
    pub fn compile(&self) -> Result<String> {
        let target = root().join("target/ptx");
        let deps = target.join("nvptx64-nvidia-cuda/release/deps");
        for old in assembly_files(&deps)? {
            fs::remove_file(old)?;
        }
        // Cargo would find nothing to do and print no PTX: the flag that asks for it is not tracked.
        let mut clean = self.cargo(&target);
        clean.args(["clean", "--release", "--target", "nvptx64-nvidia-cuda"]);
        clean.args(["-p", "paged-attention-kernels"]);
        output(&mut clean)?;
        let mut build = self.cargo(&target);
        build.args([
            "rustc",
            "--release",
            "--lib",
            "-p",
            "paged-attention-kernels",
        ]);
        build.args(["--target", "nvptx64-nvidia-cuda", "-Zbuild-std=core", "--"]);
        build.args(["--emit=asm", &format!("-Ctarget-cpu={TARGET_CPU}")]);
        // Below this threshold LLVM leaves loops over register arrays rolled, in local memory.
        build.arg("-Cllvm-args=-unroll-threshold=20000");
        output(&mut build)?;
        match &assembly_files(&deps)?[..] {
            [file] => Ok(fs::read_to_string(file)?),
            files => bail!(
                "expected one assembly file in {}, found {}",
                deps.display(),
                files.len()
            ),
        }
    }

    fn cargo(&self, target: &Path) -> Command {
        let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.current_dir(root());
        cargo.env("RUSTC", &self.rustc).env("RUSTC_BOOTSTRAP", "1");
        cargo.env("CARGO_TARGET_DIR", target);
        cargo.env("CARGO_PROFILE_RELEASE_LTO", "fat");
        cargo.env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1");
        cargo.env("CARGO_PROFILE_RELEASE_PANIC", "abort");
        cargo
            .env_remove("RUSTFLAGS")
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .env_remove("RUSTUP_TOOLCHAIN");
        cargo
    }
}

fn assembly_files(deps: &Path) -> Result<Vec<PathBuf>> {
    let Ok(entries) = fs::read_dir(deps) else {
        return Ok(Vec::new());
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("paged_attention_kernels") && name.ends_with(".s") {
            files.push(path);
        }
    }
    Ok(files)
}
