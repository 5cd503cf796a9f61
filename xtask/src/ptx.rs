//! `cargo xtask ptx`: from kernel-crate to host-crate/ptx/ and its manifest.

mod compiler;
#[cfg(test)]
mod convergence;
mod rust_cuda;
mod set;
mod source_hash;
pub mod split;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use paged_attention::artefacts::Manifest;

use crate::command::root;
use compiler::Compiler;
use rust_cuda::RustCuda;
use set::{Place, Set};
use split::Module;

/// Arguments of `cargo xtask ptx`.
#[derive(clap::Args)]
pub struct Args {
    /// The compiler: rustc's own NVPTX back end writes host-crate/ptx/, rust-cuda its folder rust-cuda/.
    #[arg(long, value_enum, default_value_t = Backend::Rustc)]
    backend: Backend,
    /// Write nothing; fail if a rebuild differs from what is committed.
    #[arg(long)]
    check: bool,
    /// Write the set into this folder instead (manifest.json and PTX, nothing else).
    #[arg(long, value_name = "DIR", conflicts_with = "check")]
    out: Option<PathBuf>,
}

/// What makes the PTX.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Backend {
    /// rustc's own NVPTX back end.
    Rustc,
    /// rust-cuda's back end on libnvvm.
    RustCuda,
}

/// Name of the twin's file: no shipped kernel, kept in cli/ptx/ for reports and tests.
const TWIN: &str = "contiguous_f16_d128.ptx";

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    if args.backend == Backend::RustCuda {
        return run_rust_cuda(args);
    }
    let compiler = Compiler::find()?;
    println!("compiler: {}", compiler.version());
    let text = compiler.compile()?;
    let module = Module::parse(&text)?;
    let (set, twin) = (Set::of(&module, compiler.version())?, twin(&module)?);
    if let Some(dir) = &args.out {
        return set.write(dir);
    }
    let twin_path = root().join("cli/ptx").join(TWIN);
    if args.check {
        return check(&set, &twin_path, &twin, compiler.version());
    }
    fs::create_dir_all(twin_path.parent().expect("a file in a folder"))?;
    fs::write(&twin_path, &twin)?;
    Place::DEFAULT.write(&set)
}

fn run_rust_cuda(args: &Args) -> Result<()> {
    ensure!(
        !args.check,
        "--check rebuilds the default set; rust-cuda's is checked by the tests that run it"
    );
    let (text, compiler) = RustCuda::find()?.compile()?;
    println!("compiler: {compiler}");
    let set = Set::of(&Module::parse(&text)?, &compiler)?;
    match &args.out {
        Some(dir) => set.write(dir)?,
        None => Place::RUST_CUDA.write(&set)?,
    }
    println!();
    let dir = args.out.clone();
    crate::compare::with_default(&dir.unwrap_or_else(|| Place::RUST_CUDA.folder()))
        .context("the set is written, but cannot be compared with the default one")
}

fn twin(module: &Module) -> Result<String> {
    module.file(&["contiguous_f16_d128_mma", "merge_f16_d128"])
}

/// Compares a rebuild with the committed set: every byte if the compiler is the manifest's, else
/// the entries and their parameters. Likewise the twin.
fn check(set: &Set, twin_path: &Path, twin: &str, compiler: &str) -> Result<()> {
    let dir = Place::DEFAULT.folder();
    let read = |path: &Path| {
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
    };
    let committed: Manifest = serde_json::from_str(&read(&dir.join("manifest.json"))?)?;
    let same_compiler = committed.compiler == compiler;
    if !same_compiler {
        println!(
            "note: the committed PTX was built by `{}`; comparing entries and parameters only",
            committed.compiler
        );
        let rebuilt = set.manifest()?;
        ensure!(
            committed.source_hash == rebuilt.source_hash,
            "host-crate/ptx was built from other device code; run `cargo xtask ptx`"
        );
        let names = |m: &Manifest| {
            m.entries
                .iter()
                .map(|e| (e.symbol.clone(), e.parameter.clone()))
                .collect::<Vec<_>>()
        };
        ensure!(
            names(&committed) == names(&rebuilt),
            "entries or parameters of host-crate/ptx/manifest.json differ from a rebuild; run `cargo xtask ptx`"
        );
        let shipped = set.ptx().map(|(name, text)| (dir.join(name), text));
        for (path, text) in shipped.chain([(twin_path.into(), twin)]) {
            ensure!(
                split::signatures(&read(&path)?) == split::signatures(text),
                "entries or parameters of {} differ from a rebuild; run `cargo xtask ptx`",
                path.strip_prefix(root()).unwrap_or(&path).display()
            );
        }
        println!("entries and parameters agree");
        return Ok(());
    }
    let mut differing = Place::DEFAULT.differing(set);
    if read(twin_path).ok().as_deref() != Some(twin) {
        differing.push(format!("cli/ptx/{TWIN}"));
    }
    if !differing.is_empty() {
        bail!(
            "a rebuild differs from what is committed; run `cargo xtask ptx`: {}",
            differing.join(", ")
        );
    }
    println!(
        "{} files agree byte for byte with a rebuild",
        set.files.len() + 1
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use paged_attention::kernels::variants::{CacheKind, DECODE, MERGE};

    use super::*;

    #[test]
    fn committed_ptx_was_built_from_the_present_device_code() {
        let manifest = paged_attention::artefacts::PtxSet::embedded().manifest();
        assert_eq!(
            manifest.source_hash,
            source_hash::of_kernel_crate().unwrap(),
            "kernel-crate changed since the PTX was built; run `cargo xtask ptx`"
        );
    }

    /// A rebuild by another compiler, as if it had given the committed bytes but for `change`.
    fn checked_with_another_compiler(change: impl Fn(&str, String) -> String) -> Result<()> {
        let read = |path: PathBuf| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let text = fs::read_to_string(&path).unwrap();
            (name.clone(), change(&name, text))
        };
        let twin_path = root().join("cli/ptx").join(TWIN);
        let files = fs::read_dir(Place::DEFAULT.folder()).unwrap();
        let files = files.map(|file| file.unwrap().path());
        let set = Set {
            files: files.filter(|path| path.is_file()).map(read).collect(),
        };
        check(
            &set,
            &twin_path,
            &read(twin_path.clone()).1,
            "another rustc",
        )
    }

    #[test]
    fn another_compilers_entries_and_parameters_must_be_the_same_those_of_the_twin_too() {
        let comment = |name: &str, text| match name {
            "manifest.json" => text,
            _ => format!("// by another compiler\n{text}"),
        };
        checked_with_another_compiler(comment).unwrap();
        for file in ["f16_d64.ptx", "cache.ptx", TWIN] {
            let shorter = |name: &str, text: String| {
                if name == file {
                    text.replace("_param_0[", "_param_0[1")
                } else {
                    text
                }
            };
            let error = checked_with_another_compiler(shorter).unwrap_err();
            let folder = if file == TWIN {
                "cli/ptx"
            } else {
                "host-crate/ptx"
            };
            assert_eq!(
                error.to_string(),
                format!(
                    "entries or parameters of {folder}/{file} differ from a rebuild; run `cargo \
                     xtask ptx`"
                )
            );
        }
    }

    #[test]
    fn entries_of_the_shipped_ptx_are_those_of_the_table() {
        let set = paged_attention::artefacts::PtxSet::embedded();
        let mut found: Vec<String> = set
            .files()
            .flat_map(|(_, text)| split::signatures(text))
            .map(|(symbol, _)| symbol)
            .collect();
        let mut table: Vec<String> = DECODE.iter().map(|v| v.entry.to_string()).collect();
        table.extend(MERGE.iter().map(|v| v.entry.to_string()));
        table.extend(CacheKind::ALL.iter().map(|kind| kind.entry().to_string()));
        found.sort();
        table.sort();
        assert_eq!(found, table);
    }

    #[test]
    fn param_lines_of_the_shipped_ptx_have_the_structs_size() {
        let set = paged_attention::artefacts::PtxSet::embedded();
        for (file, text) in set.files() {
            for (symbol, parameter) in split::signatures(text) {
                let entry = set.entry(&symbol).unwrap();
                let expected = format!(
                    ".param .align {} .b8 {symbol}_param_0[{}]",
                    entry.parameter.align, entry.parameter.bytes
                );
                assert_eq!(parameter, expected, "{file}");
            }
        }
    }

    #[test]
    fn shipped_ptx_holds_no_function_no_global_and_no_local_memory() {
        for (file, text) in paged_attention::artefacts::PtxSet::embedded().files() {
            for word in [".func", ".global .", ".local", "__local_depot", "call"] {
                let at = text
                    .lines()
                    .find(|line| line.contains(word) && !line.contains("ld.global."));
                assert_eq!(at, None, "{file} contains {word}");
            }
        }
    }

    /// A set that is there is tested and shipped, not forgotten; one that is not is not asked for.
    #[test]
    fn the_rust_cuda_set_is_on_by_default_where_it_is_committed() {
        let committed = Place::RUST_CUDA.folder().join("manifest.json").exists();
        for manifest in ["Cargo.toml", "cli/Cargo.toml"] {
            let text = fs::read_to_string(root().join(manifest)).unwrap();
            let line = text.lines().find(|line| line.starts_with("default = "));
            let line = line.unwrap_or_else(|| panic!("{manifest} has no default features"));
            assert_eq!(line.contains("\"rust-cuda-ptx\""), committed, "{manifest}");
        }
    }

    #[test]
    fn the_set_stays_within_two_megabytes_and_a_configuration_within_100_kb() {
        let set = paged_attention::artefacts::PtxSet::embedded();
        let total: usize = set.files().map(|(_, text)| text.len()).sum();
        assert!(total <= 2_000_000, "{total} bytes");
        for (file, text) in set.files() {
            assert!(text.len() <= 100_000, "{file}: {} bytes", text.len());
        }
    }
}
