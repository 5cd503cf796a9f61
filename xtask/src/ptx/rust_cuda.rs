//! The other compiler: rust-cuda, through the builder package in xtask/rust-cuda.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context, Result, bail};

use crate::command::{output, root};

/// Revision of rust-cuda in the builder's manifests.
const REVISION: &str = "946c91f";
/// Variables that name a CUDA folder, as rust-cuda reads them.
const CUDA_FOLDERS: [&str; 3] = ["CUDA_PATH", "CUDA_ROOT", "CUDA_TOOLKIT_ROOT_DIR"];
/// Where rust-cuda looks without them.
const USUAL_CUDA_FOLDERS: [&str; 2] = ["/usr/local/cuda", "/opt/cuda"];

/// What the builder package needs on this machine.
pub struct RustCuda {
    /// A rustc with a rust-cuda back end of one's own, instead of the pinned nightly and LLVM 7.
    own_rustc: Option<PathBuf>,
}

impl RustCuda {
    /// Looks for everything that the build needs, and names all that is missing.
    ///
    /// `RUST_CUDA_RUSTC` names a rustc that is used as it is; the back end of its version,
    /// librustc_codegen_nvvm.so, then has to be on `LD_LIBRARY_PATH`.
    pub fn find() -> Result<Self> {
        let own_rustc = env::var_os("RUST_CUDA_RUSTC").map(PathBuf::from);
        let mut missing = Vec::new();
        match &own_rustc {
            Some(rustc) => missing.extend(missing_rustc(rustc)),
            None => {
                missing.extend(missing_toolchain()?);
                missing.extend(missing_llvm());
            }
        }
        missing.extend(missing_libnvvm());
        if !missing.is_empty() {
            bail!(
                "the kernels cannot be compiled with rust-cuda here:\n- {}",
                missing.join("\n- ")
            );
        }
        Ok(Self { own_rustc })
    }

    /// Compiles kernel-crate: the PTX of all entries, and the compiler's name for the manifest.
    pub fn compile(&self) -> Result<(String, String)> {
        let target = root().join("target/rust-cuda");
        let module = target.join("kernels.ptx");
        fs::create_dir_all(&target)?;
        let mut build = self.command("cargo");
        build.args(["run", "--release", "--locked"]);
        if self.own_rustc.is_some() {
            build.arg("--no-default-features");
        }
        build.arg("--").arg(&module);
        build.env("CARGO_TARGET_DIR", &target);
        output(&mut build)?;
        let text = fs::read_to_string(&module)
            .with_context(|| format!("the builder wrote no {}", module.display()))?;
        let rustc = self.own_rustc.clone().unwrap_or_else(|| "rustc".into());
        let rustc = output(self.command(rustc).arg("--version"))?;
        let compiler = format!(
            "rust-cuda {REVISION}, {}, libnvvm {}",
            rustc.trim(),
            nvvm_release(&text)?
        );
        Ok((text, compiler))
    }

    /// A program in the builder's folder, under the toolchain that the folder asks for.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(root().join("xtask/rust-cuda"));
        for variable in ["CARGO", "RUSTC", "RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"] {
            command.env_remove(variable);
        }
        match &self.own_rustc {
            Some(rustc) => command.env("RUSTC", rustc).env("RUSTC_BOOTSTRAP", "1"),
            None => command.env_remove("RUSTUP_TOOLCHAIN"),
        };
        command
    }
}

/// The release that libnvvm writes into the PTX: `Cuda compilation tools, release 13.5, V13.5.37`.
fn nvvm_release(ptx: &str) -> Result<&str> {
    let line = ptx
        .lines()
        .find_map(|line| line.split_once("Cuda compilation tools, release "));
    let (_, release) = line.context("the PTX of rust-cuda does not name its libnvvm")?;
    Ok(release
        .split_once(", V")
        .map_or(release, |(_, version)| version)
        .trim())
}

fn missing_rustc(rustc: &Path) -> Option<String> {
    let found = match output(Command::new(rustc).arg("--version")) {
        Ok(version) if version.starts_with("rustc ") => return None,
        Ok(_) => "is no rustc",
        Err(_) => "does not run",
    };
    Some(format!(
        "the rustc that RUST_CUDA_RUSTC names: {} {found}",
        rustc.display()
    ))
}

fn missing_toolchain() -> Result<Option<String>> {
    let path = root().join("xtask/rust-cuda/rust-toolchain.toml");
    let text = fs::read_to_string(&path)?;
    let channel = text
        .lines()
        .find_map(|line| line.strip_prefix("channel = "))
        .with_context(|| format!("{} names no channel", path.display()))?
        .trim_matches('"');
    let sysroot =
        output(Command::new("rustup").args(["run", channel, "rustc", "--print", "sysroot"]));
    let complete = sysroot.is_ok_and(|sysroot| {
        let lib = Path::new(sysroot.trim()).join("lib/rustlib");
        lib.join("src/rust/library/core").is_dir() && has_rustc_dev(&lib)
    });
    Ok((!complete).then(|| {
        format!(
            "the toolchain: rustup toolchain install {channel} --component \
             llvm-tools-preview,rust-src,rustc-dev"
        )
    }))
}

/// Whether the compiler's own crates are installed for the host.
fn has_rustc_dev(rustlib: &Path) -> bool {
    let Ok(targets) = fs::read_dir(rustlib) else {
        return false;
    };
    targets.flatten().any(|target| {
        fs::read_dir(target.path().join("lib")).is_ok_and(|files| {
            files.flatten().any(|file| {
                file.file_name()
                    .to_string_lossy()
                    .starts_with("librustc_middle")
            })
        })
    })
}

fn missing_llvm() -> Option<String> {
    let config = env::var_os("LLVM_CONFIG").unwrap_or_else(|| "llvm-config".into());
    let version = output(Command::new(&config).arg("--version"));
    let found = match version {
        Ok(version) if version.starts_with("7.") => return None,
        Ok(version) => format!("{} is of version {}", config.display(), version.trim()),
        Err(_) => format!("{} does not run", config.display()),
    };
    Some(format!(
        "LLVM 7 with its static libraries, LLVM_CONFIG naming its llvm-config ({found})"
    ))
}

fn missing_libnvvm() -> Option<String> {
    let named = CUDA_FOLDERS
        .iter()
        .filter_map(env::var_os)
        .map(PathBuf::from);
    let usual = USUAL_CUDA_FOLDERS.map(PathBuf::from);
    let complete = |folder: &PathBuf| {
        folder.join("nvvm/libdevice/libdevice.10.bc").is_file()
            && ["nvvm/lib64", "nvvm/lib", "nvvm/bin"]
                .iter()
                .any(|lib| folder.join(lib).join("libnvvm.so").exists())
    };
    (!named.chain(usual).any(|folder| complete(&folder))).then(|| {
        format!(
            "libnvvm and libdevice: a CUDA toolkit of 12.0 or newer, its folder named in {}",
            CUDA_FOLDERS[0]
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_of_libnvvm_is_read_from_the_ptx() {
        let text = "//\n// Cuda compilation tools, release 13.5, V13.5.37\n.version 9.5\n";
        assert_eq!(nvvm_release(text).unwrap(), "13.5.37");
        assert!(nvvm_release(".version 9.5\n").is_err());
    }

    #[test]
    fn revision_is_that_of_the_builders_manifests() {
        for manifest in ["Cargo.toml", "kernels/Cargo.toml"] {
            let path = root().join("xtask/rust-cuda").join(manifest);
            let text = fs::read_to_string(path).unwrap();
            assert!(
                text.contains(&format!("rev = \"{REVISION}\"")),
                "{manifest}"
            );
        }
        let lock = fs::read_to_string(root().join("xtask/rust-cuda/Cargo.lock")).unwrap();
        assert!(lock.contains(&format!("?rev={REVISION}#{REVISION}")));
    }
}
