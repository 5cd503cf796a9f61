//! A set of PTX files with its manifest, embedded or from a folder.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

use super::embedded;
use super::manifest::{CACHE_FILE, Manifest, ManifestEntry};
use super::requirements::LeastDriver;
use crate::kernels::abi::ABI_VERSION;
use crate::kernels::variants::{CacheKind, DECODE, MERGE};
use crate::{Error, Plan};

/// Name of the manifest in a folder of artefacts.
const MANIFEST_FILE: &str = "manifest.json";

/// PTX files and their manifest, checked against each other and against this crate's ABI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PtxSet {
    manifest: Manifest,
    files: BTreeMap<String, Cow<'static, str>>,
}

/// What a plan needs from a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedPtx<'a> {
    /// PTX file name.
    pub file: &'a str,
    /// PTX text with both entries.
    pub text: &'a str,
    /// The decode entry.
    pub decode: &'a ManifestEntry,
    /// The merge entry.
    pub merge: &'a ManifestEntry,
}

impl PtxSet {
    /// The set that is compiled into this crate.
    pub fn embedded() -> &'static PtxSet {
        static SET: LazyLock<PtxSet> = LazyLock::new(|| {
            // A test checks the same constants; there is no input that could change them.
            PtxSet::compiled_in(embedded::MANIFEST, embedded::FILES)
                .unwrap_or_else(|error| panic!("host-crate/ptx: {error}"))
        });
        &SET
    }

    /// The same kernels compiled by rust-cuda, perhaps from an older source: see
    /// [`PtxSet::source_note`]. It needs a newer driver than [`PtxSet::embedded`].
    #[cfg(feature = "rust-cuda-ptx")]
    pub fn embedded_rust_cuda() -> &'static PtxSet {
        use super::embedded_rust_cuda::{FILES, MANIFEST};
        static SET: LazyLock<PtxSet> = LazyLock::new(|| {
            PtxSet::compiled_in(MANIFEST, FILES).unwrap_or_else(|error| {
                panic!("host-crate/ptx/rust-cuda must be rebuilt or removed: {error}")
            })
        });
        &SET
    }

    /// Every set that is compiled into this crate, by name: `default`, and with the feature
    /// `rust-cuda-ptx` also `rust-cuda`.
    pub fn all_embedded() -> Vec<(&'static str, &'static PtxSet)> {
        vec![
            ("default", PtxSet::embedded()),
            #[cfg(feature = "rust-cuda-ptx")]
            ("rust-cuda", PtxSet::embedded_rust_cuda()),
        ]
    }

    fn compiled_in(manifest: &str, files: &[(&'static str, &'static str)]) -> Result<Self, Error> {
        let files = files.iter().map(|&(name, text)| (name.into(), text.into()));
        Self::new(manifest, files.collect())
    }

    /// Reads `manifest.json` and the files that it names from a folder.
    ///
    /// # Errors
    /// [`Error::ArtefactUnreadable`], [`Error::ManifestSyntax`], [`Error::AbiVersion`], and
    /// [`Error::ArtefactMismatch`] where the files, the manifest and this crate disagree.
    pub fn load(dir: &Path) -> Result<PtxSet, Error> {
        let read = |name: &str| {
            let path = dir.join(name);
            std::fs::read_to_string(&path).map_err(|error| Error::ArtefactUnreadable {
                path,
                kind: error.kind(),
            })
        };
        let text = read(MANIFEST_FILE)?;
        let manifest = parse(&text)?;
        let mut files = BTreeMap::new();
        for entry in &manifest.entries {
            // Before the name is used as a path.
            check_file_name(entry)?;
            if !files.contains_key(&entry.file) {
                files.insert(entry.file.clone(), read(&entry.file)?.into());
            }
        }
        Self::new(&text, files)
    }

    fn new(manifest: &str, files: BTreeMap<String, Cow<'static, str>>) -> Result<Self, Error> {
        let manifest = parse(manifest)?;
        for entry in &manifest.entries {
            check_file_name(entry)?;
            check_driver(entry, &manifest)?;
            check_abi(entry)?;
            check_text(entry, files.get(&entry.file).map_or("", |text| text))?;
        }
        Ok(Self { manifest, files })
    }

    /// What to know where the set was built from another kernel source than the default set. Its
    /// interface is this crate's all the same: loading has checked that.
    pub fn source_note(&self) -> Option<String> {
        let (found, present) = (self.manifest(), PtxSet::embedded().manifest());
        (found.source_hash != present.source_hash).then(|| {
            format!(
                "built from kernel source {}, the default set from {}: the same interface (ABI \
                 version {}), other instructions",
                found.source_hash, present.source_hash, found.abi_version
            )
        })
    }

    /// The manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The text of a PTX file.
    pub fn ptx(&self, file: &str) -> Option<&str> {
        self.files.get(file).map(|text| text.as_ref())
    }

    /// Every PTX file, by name: (name, text).
    pub fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files
            .iter()
            .map(|(name, text)| (name.as_str(), text.as_ref()))
    }

    /// The entry with this symbol.
    pub fn entry(&self, symbol: &str) -> Option<&ManifestEntry> {
        self.manifest
            .entries
            .iter()
            .find(|entry| entry.symbol == symbol)
    }

    /// The PTX that runs a plan.
    ///
    /// # Errors
    /// [`Error::MissingEntry`] if the set lacks the plan's decode or merge entry.
    pub fn for_plan(&self, plan: &Plan) -> Result<PlannedPtx<'_>, Error> {
        let (decode, merge) = (plan.decode_variant(), plan.merge_variant());
        let find = |symbol| {
            let (dtype, head_dim) = (decode.dtype, decode.head_dim);
            self.entry(symbol).ok_or(Error::MissingEntry {
                symbol,
                dtype,
                head_dim,
            })
        };
        let (decode, merge) = (find(decode.entry)?, find(merge.entry)?);
        let text = self.ptx(&decode.file).unwrap_or("");
        Ok(PlannedPtx {
            file: &decode.file,
            text,
            decode,
            merge,
        })
    }

    /// The PTX that runs the operations on the cache, in the file [`CACHE_FILE`].
    ///
    /// # Errors
    /// [`Error::MissingCacheEntry`] if the set lacks one of their entries.
    pub fn for_cache(&self) -> Result<&str, Error> {
        for symbol in CacheKind::ALL.map(CacheKind::entry) {
            if self.entry(symbol).is_none() {
                return Err(Error::MissingCacheEntry { symbol });
            }
        }
        Ok(self.ptx(CACHE_FILE).unwrap_or(""))
    }
}

fn parse(text: &str) -> Result<Manifest, Error> {
    let manifest: Manifest = serde_json::from_str(text).map_err(|error| Error::ManifestSyntax {
        line: error.line(),
        column: error.column(),
        // serde_json repeats the place at the end.
        reason: error
            .to_string()
            .split(" at line ")
            .next()
            .unwrap_or_default()
            .into(),
    })?;
    match manifest.abi_version {
        ABI_VERSION => Ok(manifest),
        found => Err(Error::AbiVersion {
            found,
            expected: ABI_VERSION,
        }),
    }
}

fn mismatch(
    entry: &ManifestEntry,
    property: &'static str,
    found: impl ToString,
    expected: impl ToString,
) -> Error {
    Error::ArtefactMismatch {
        file: entry.file.clone(),
        symbol: entry.symbol.clone(),
        property,
        found: found.to_string(),
        expected: expected.to_string(),
    }
}

fn check_file_name(entry: &ManifestEntry) -> Result<(), Error> {
    let plain = entry
        .file
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b))
        && !entry.file.starts_with('.')
        && entry.file.ends_with(".ptx");
    if plain {
        return Ok(());
    }
    Err(mismatch(
        entry,
        "file name",
        &entry.file,
        "a plain name that ends in .ptx",
    ))
}

/// The manifest's PTX version is every entry's, and the driver that it names is what that needs.
fn check_driver(entry: &ManifestEntry, manifest: &Manifest) -> Result<(), Error> {
    let version = &manifest.ptx_version;
    if *version != entry.ptx_version {
        return Err(mismatch(entry, "ptx_version", &entry.ptx_version, version));
    }
    let needed = LeastDriver::of(version);
    if needed.is_some() && manifest.least_driver != needed {
        let words = |driver: &Option<LeastDriver>| match driver {
            Some(driver) => driver.to_string(),
            None => "none".into(),
        };
        let (found, needed) = (words(&manifest.least_driver), words(&needed));
        return Err(mismatch(entry, "least_driver", found, needed));
    }
    Ok(())
}

/// Entries of the instantiation table must be exactly as this crate launches them. Others are
/// somebody else's business.
fn check_abi(entry: &ManifestEntry) -> Result<(), Error> {
    let (version, target) = (&entry.ptx_version, &entry.target);
    let decode = DECODE.iter().find(|v| v.entry == entry.symbol);
    let merge = MERGE.iter().find(|v| v.entry == entry.symbol);
    let expected = match (decode, merge) {
        (Some(v), _) => ManifestEntry::decode(v, version, target),
        (_, Some(v)) => ManifestEntry::merge(v, version, target),
        _ => match CacheKind::ALL.iter().find(|c| c.entry() == entry.symbol) {
            Some(&cache) => ManifestEntry::cache(cache, version, target),
            None => return Ok(()),
        },
    };
    macro_rules! same {
        ($property:literal, $($field:ident).+) => {
            if entry.$($field).+ != expected.$($field).+ {
                let (found, wanted) = (&entry.$($field).+, &expected.$($field).+);
                return Err(mismatch(entry, $property, format!("{found:?}"), format!("{wanted:?}")));
            }
        };
    }
    same!("file", file);
    same!("kind", kind);
    same!("products", products);
    same!("dtype", dtype);
    same!("head_dim", head_dim);
    same!("heads_per_tile", heads_per_tile);
    same!("parameter", parameter);
    same!("grid", grid);
    same!("block", block);
    same!("shared_bytes", shared_bytes);
    Ok(())
}

fn check_text(entry: &ManifestEntry, text: &str) -> Result<(), Error> {
    let directive = |name: &str| {
        text.lines()
            .find_map(|line| line.trim().strip_prefix(name))
            .unwrap_or("none")
            .trim()
    };
    let (version, target) = (directive(".version"), directive(".target"));
    if version != entry.ptx_version {
        return Err(mismatch(entry, "ptx_version", version, &entry.ptx_version));
    }
    // `.target sm_80, debug` and the like name the target first.
    let target = target.split(',').next().unwrap_or(target).trim();
    if target != entry.target {
        return Err(mismatch(entry, "target", target, &entry.target));
    }
    let defined = text.match_indices(".entry").any(|(at, word)| {
        let rest = text[at + word.len()..].trim_start();
        rest.strip_prefix(entry.symbol.as_str())
            .is_some_and(|rest| rest.starts_with('(') || rest.starts_with(char::is_whitespace))
    });
    if !defined {
        return Err(mismatch(
            entry,
            "definition",
            "none",
            format!(".entry {}", entry.symbol),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::artefacts::file_name;

    fn sample() -> (Manifest, BTreeMap<String, Cow<'static, str>>) {
        let decode = ManifestEntry::decode(&DECODE[0], "7.0", "sm_80");
        let merge = ManifestEntry::merge(&MERGE[0], "7.0", "sm_80");
        let text = format!(
            "//\n.version 7.0\n.target sm_80\n.visible .entry {}(\n.visible .entry {} (\n",
            decode.symbol, merge.symbol
        );
        let files = [(decode.file.clone(), text.into())].into();
        let manifest = Manifest {
            abi_version: ABI_VERSION,
            compiler: "rustc".into(),
            source_hash: "00".into(),
            ptx_version: "7.0".into(),
            least_driver: LeastDriver::of("7.0"),
            entries: vec![decode, merge],
        };
        (manifest, files)
    }

    fn build(
        manifest: &Manifest,
        files: BTreeMap<String, Cow<'static, str>>,
    ) -> Result<PtxSet, Error> {
        PtxSet::new(&serde_json::to_string(manifest).unwrap(), files)
    }

    #[test]
    fn the_embedded_set_is_consistent() {
        PtxSet::compiled_in(embedded::MANIFEST, embedded::FILES).unwrap();
        let [first, ..] = PtxSet::all_embedded()[..] else {
            panic!("no set")
        };
        assert_eq!(first, ("default", PtxSet::embedded()));
        assert_eq!(PtxSet::embedded().source_note(), None);
    }

    /// All that the default set holds, for the same interface.
    #[cfg(feature = "rust-cuda-ptx")]
    #[test]
    fn the_embedded_rust_cuda_set_is_consistent_and_complete() {
        use super::super::embedded_rust_cuda::{FILES, MANIFEST};
        let set = PtxSet::compiled_in(MANIFEST, FILES).unwrap();
        let symbols = |set: &PtxSet| -> Vec<String> {
            let entries = set.manifest().entries.iter();
            entries.map(|entry| entry.symbol.clone()).collect()
        };
        assert_eq!(symbols(&set), symbols(PtxSet::embedded()));
        let names: Vec<&str> = PtxSet::all_embedded()
            .iter()
            .map(|(name, _)| *name)
            .collect();
        assert_eq!(names, ["default", "rust-cuda"]);
    }

    #[test]
    fn a_set_from_another_source_carries_a_note() {
        let (manifest, files) = sample();
        let note = build(&manifest, files).unwrap().source_note().unwrap();
        let present = &PtxSet::embedded().manifest().source_hash;
        assert_eq!(
            note,
            format!(
                "built from kernel source 00, the default set from {present}: the same interface \
                 (ABI version {ABI_VERSION}), other instructions"
            )
        );
    }

    #[test]
    fn another_driver_than_the_ptx_version_needs_is_refused() {
        let (mut manifest, files) = sample();
        manifest.least_driver = LeastDriver::of("7.1");
        assert_eq!(
            build(&manifest, files.clone()).unwrap_err().to_string(),
            "ptx: decode_f32_d32_h1 in f32_d32.ptx has least_driver CUDA 11.1, on Linux 455 or later, \
             must have CUDA 11.0, on Linux 450 or later"
        );
        manifest.least_driver = None;
        let error = build(&manifest, files).unwrap_err();
        assert!(error.to_string().contains("least_driver none"), "{error}");
    }

    #[test]
    fn a_folder_round_trips() {
        let dir = std::env::temp_dir().join(format!("paged-attention-set-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (manifest, files) = sample();
        std::fs::write(dir.join(MANIFEST_FILE), manifest.to_json()).unwrap();
        for (name, text) in &files {
            std::fs::write(dir.join(name), text.as_bytes()).unwrap();
        }
        let loaded = PtxSet::load(&dir);
        std::fs::remove_file(dir.join("f32_d32.ptx")).unwrap();
        let missing = PtxSet::load(&dir);
        std::fs::remove_dir_all(&dir).unwrap();
        assert_eq!(loaded, build(&manifest, files));
        let path = dir.join("f32_d32.ptx");
        let kind = std::io::ErrorKind::NotFound;
        let text = format!("ptx: cannot read {}: entity not found", path.display());
        let missing = missing.unwrap_err();
        assert_eq!(missing.to_string(), text);
        assert_eq!(missing, Error::ArtefactUnreadable { path, kind });
    }

    #[test]
    fn plans_find_their_entries() {
        let (manifest, files) = sample();
        let set = build(&manifest, files).unwrap();
        let config = crate::AttentionConfig::new(crate::DType::F32, 4, 4, 32, 16);
        let plan = |config| {
            let limits = crate::DeviceLimits::a100();
            Plan::new(&config, 1, 16, crate::SplitPolicy::Auto, &limits).unwrap()
        };
        let found = plan(config);
        let found = set.for_plan(&found).unwrap();
        assert_eq!((found.file, found.decode.head_dim), ("f32_d32.ptx", 32));
        assert!(found.text.starts_with("//\n.version"));
        let error = set.for_cache().unwrap_err();
        let symbol = "reshape_and_cache";
        assert_eq!(error, Error::MissingCacheEntry { symbol });
        assert_eq!(
            error.to_string(),
            "ptx: the manifest lists no entry reshape_and_cache, must list it for operations on the \
             cache"
        );
        let text = PtxSet::embedded().for_cache().unwrap();
        assert!(text.contains(".entry gather_cache"));

        let other = plan(crate::AttentionConfig {
            head_dim: 64,
            ..config
        });
        let error = set.for_plan(&other).unwrap_err();
        let (symbol, dtype, head_dim) = ("decode_f32_d64_h1", crate::DType::F32, 64);
        assert_eq!(
            error,
            Error::MissingEntry {
                symbol,
                dtype,
                head_dim
            }
        );
        assert_eq!(
            error.to_string(),
            "ptx: the manifest lists no entry decode_f32_d64_h1, must list it for f32 with head_dim 64"
        );
    }

    #[test]
    fn other_abi_versions_are_refused() {
        let (mut manifest, files) = sample();
        manifest.abi_version += 1;
        let error = build(&manifest, files).unwrap_err();
        assert_eq!(
            error,
            Error::AbiVersion {
                found: ABI_VERSION + 1,
                expected: ABI_VERSION
            }
        );
        assert_eq!(
            error.to_string(),
            format!(
                "ptx: the manifest has abi_version {}, must have {ABI_VERSION}",
                ABI_VERSION + 1
            )
        );
    }

    #[test]
    fn bad_manifests_are_refused_with_the_place() {
        let error =
            PtxSet::new("{\n \"abi_version\": 1,\n \"x\": 2}", BTreeMap::new()).unwrap_err();
        let Error::ManifestSyntax {
            line: 3,
            column,
            reason,
        } = &error
        else {
            panic!("{error:?}")
        };
        assert_eq!(
            error.to_string(),
            format!("ptx: manifest.json line 3, column {column}: {reason}")
        );
        assert!(
            reason.contains("unknown field `x`") && !reason.contains("at line"),
            "{reason}"
        );
    }

    /// Each contradiction is refused, naming the property.
    #[test]
    fn contradictions_are_refused() {
        type Change = fn(&mut ManifestEntry);
        let cases: [(&str, Change); 11] = [
            ("file name", |e| e.file = "../f32_d32.ptx".into()),
            ("file", |e| e.file = "f32_d33.ptx".into()),
            ("kind", |e| e.kind = super::super::EntryKind::Merge),
            ("dtype", |e| e.dtype = "f16".into()),
            ("heads_per_tile", |e| e.heads_per_tile = 2),
            ("parameter", |e| e.parameter.fields[3].offset += 4),
            ("grid", |e| e.grid = "[1, 1, 1]".into()),
            ("block", |e| e.block = [64, 1, 1]),
            ("shared_bytes", |e| e.shared_bytes -= 1),
            ("ptx_version", |e| e.ptx_version = "8.0".into()),
            ("target", |e| e.target = "sm_90".into()),
        ];
        for (property, change) in cases {
            let (mut manifest, files) = sample();
            change(&mut manifest.entries[0]);
            match build(&manifest, files) {
                Err(Error::ArtefactMismatch {
                    property: found,
                    symbol,
                    ..
                }) => {
                    assert_eq!((found, symbol.as_str()), (property, DECODE[0].entry));
                }
                other => panic!("{property}: {other:?}"),
            }
        }
        let (manifest, mut files) = sample();
        for text in files.values_mut() {
            *text = text.replace(MERGE[0].entry, "merge_f32_d32x").into();
        }
        let error = build(&manifest, files).unwrap_err();
        assert_eq!(
            error.to_string(),
            "ptx: merge_f32_d32 in f32_d32.ptx has definition none, must have .entry merge_f32_d32"
        );
    }

    #[test]
    fn file_names_spell_dtype_and_head_dim() {
        assert_eq!(file_name(crate::DType::Bf16, 128), "bf16_d128.ptx");
    }
}
