//! `cargo xtask cuda-emulated -- <cargo command>`: the emulated driver as this machine's CUDA driver.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::command::{cargo, output, root, run as run_command};

/// Arguments of `cuda-emulated`.
#[derive(clap::Args)]
pub struct Args {
    /// The cargo command, after `--`; without one, the environment is printed.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// The emulated driver, laid out as cust's build script, the linker and the loader want it.
pub struct EmulatedDriver {
    dir: PathBuf,
    /// The CUDA version that it stands for.
    version: OsString,
}

/// Names the CUDA version that the driver stands for.
const VERSION: &str = "PTX_EMULATOR_DRIVER_VERSION";

/// Builds the driver and runs the command with it.
pub fn run(args: &Args) -> Result<()> {
    let driver = EmulatedDriver::build()?;
    if args.command.is_empty() {
        println!("export CUDA_LIBRARY_PATH={}", driver.dir.display());
        // Without what cargo adds to the variable for the programs it starts.
        println!(
            "export LD_LIBRARY_PATH={}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}",
            driver.lib().display()
        );
        println!("export {VERSION}={}", driver.version.display());
        return Ok(());
    }
    let mut cargo = cargo("");
    run_command(driver.environment(cargo.args(&args.command)))
}

impl EmulatedDriver {
    /// Builds the driver and lays it out under target/cuda-emulated.
    pub fn build() -> Result<Self> {
        let built = artefacts(&mut cargo("build --release --package ptx-emulator-libcuda"))?;
        let mut files = built.iter().flat_map(|artefact| &artefact.files);
        let library = files.find(|file| file.ends_with("libcuda.so"));
        let library = library.context("the build of ptx-emulator-libcuda made no libcuda.so")?;
        let driver = Self {
            dir: root().join("target/cuda-emulated"),
            version: match std::env::var_os(VERSION) {
                Some(version) => version,
                None => version_for_the_sets()?.into(),
            },
        };
        let lib = driver.lib();
        fs::create_dir_all(&lib)?;
        for name in ["libcuda.so.1", "libcuda.so"] {
            replace(library, &lib.join(name))?;
        }
        Ok(driver)
    }

    fn lib(&self) -> PathBuf {
        self.dir.join("lib64")
    }

    /// The folder of libcuda.so.1, before what the loader searches already.
    fn library_path(&self) -> PathBuf {
        let before = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        // An empty entry would mean the working folder.
        let before = std::env::split_paths(&before).filter(|path| !path.as_os_str().is_empty());
        let paths = std::iter::once(self.lib()).chain(before);
        // Paths that were split at the separator can be joined again.
        std::env::join_paths(paths).unwrap_or_default().into()
    }

    /// Gives a command the environment in which this driver is found, to link and to load.
    pub fn environment<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .env("CUDA_LIBRARY_PATH", &self.dir)
            .env("LD_LIBRARY_PATH", self.library_path())
            .env(VERSION, &self.version)
    }
}

/// The CUDA version whose driver reads every committed set: the later of what they need.
fn version_for_the_sets() -> Result<String> {
    let mut newest = (0, 0);
    for folder in ["host-crate/ptx", "host-crate/ptx/rust-cuda"] {
        let path = root().join(folder).join("manifest.json");
        if !path.exists() {
            continue;
        }
        let manifest: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path)?)?;
        let needed = manifest["least_driver"]["cuda"].as_str();
        let needed = needed.and_then(|version| version.split_once('.'));
        let needed = needed.with_context(|| format!("{} names no driver", path.display()))?;
        newest = newest.max((needed.0.parse::<u32>()?, needed.1.parse::<u32>()?));
    }
    // No older than the driver's own default.
    let (major, minor) = newest.max((13, 0));
    Ok(format!("{major}.{minor}"))
}

/// Copies a file unless the copy is there already, so that nothing is linked anew for it.
fn replace(from: &Path, to: &Path) -> Result<()> {
    let bytes = fs::read(from).with_context(|| from.display().to_string())?;
    if fs::read(to).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    // Written beside it and renamed: a process that has the old file open keeps it.
    let new = to.with_extension("new");
    fs::write(&new, bytes)?;
    fs::rename(&new, to).with_context(|| to.display().to_string())
}

/// What cargo made of a target.
pub struct Artefact {
    /// The target's name.
    pub target: String,
    /// Every file.
    pub files: Vec<PathBuf>,
    /// The program, if it is one.
    pub program: Option<PathBuf>,
}

/// Runs a cargo build and says what it made.
pub fn artefacts(build: &mut Command) -> Result<Vec<Artefact>> {
    let messages = output(
        build
            .current_dir(root())
            .stderr(Stdio::inherit())
            .arg("--message-format=json-render-diagnostics"),
    )?;
    let mut made = vec![];
    for line in messages.lines() {
        let message: serde_json::Value = serde_json::from_str(line)?;
        if message["reason"] == "compiler-artifact" {
            let names = message["filenames"].as_array().into_iter().flatten();
            made.push(Artefact {
                target: message["target"]["name"]
                    .as_str()
                    .unwrap_or_default()
                    .into(),
                files: names
                    .filter_map(|name| name.as_str().map(PathBuf::from))
                    .collect(),
                program: message["executable"].as_str().map(PathBuf::from),
            });
        }
    }
    ensure!(!made.is_empty(), "cargo named no artefact");
    Ok(made)
}
