//! A set of PTX files with its manifest, embedded or from a folder.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

use super::embedded;
use super::manifest::{CACHE_FILE, Manifest, ManifestEntry};
use super::requirements::LeastDriver;
use super::text::Header;
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
    /// [`Error::ArtefactUnreadable`], [`Error::ArtefactNotRegular`], [`Error::ManifestSyntax`],
    /// [`Error::AbiVersion`], and [`Error::ArtefactMismatch`] where the files, the manifest and this
    /// crate disagree.
    pub fn load(dir: &Path) -> Result<PtxSet, Error> {
        let read = |name: &str| {
            let path = dir.join(name);
            // A pipe may never be written to, and a device may never end.
            if std::fs::metadata(&path).is_ok_and(|found| !found.is_file()) {
                return Err(Error::ArtefactNotRegular { path });
            }
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

    /// A set from texts, for instance one that a program carries: `manifest.json` and the files that
    /// it names, by name.
    ///
    /// # Errors
    /// As for [`PtxSet::load`], but for what is about reading.
    pub fn new(manifest: &str, files: BTreeMap<String, Cow<'static, str>>) -> Result<Self, Error> {
        let manifest = parse(manifest)?;
        let headers = files.iter().map(|(name, text)| (name, Header::of(text)));
        let headers: BTreeMap<_, _> = headers.collect();
        for entry in &manifest.entries {
            check_file_name(entry)?;
            check_driver(entry, &manifest)?;
            check_abi(entry)?;
            let header = headers.get(&entry.file);
            check_text(entry, header.unwrap_or(&Header::default()))?;
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
        Ok(PlannedPtx {
            file: &decode.file,
            text: self.text(&decode.file),
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
        Ok(self.text(CACHE_FILE))
    }

    /// The text of the file of one of the entries.
    fn text(&self, file: &str) -> &str {
        self.ptx(file)
            .expect("every entry's file was looked through when the set was made")
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

fn check_text(entry: &ManifestEntry, header: &Header<'_>) -> Result<(), Error> {
    for (property, found, expected) in [
        ("ptx_version", header.version, &entry.ptx_version),
        ("target", header.target, &entry.target),
    ] {
        if found != expected {
            let found = if found.is_empty() { "none" } else { found };
            return Err(mismatch(entry, property, found, expected));
        }
    }
    if !header.entries.contains(entry.symbol.as_str()) {
        let expected = format!(".entry {}", entry.symbol);
        return Err(mismatch(entry, "definition", "none", expected));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
