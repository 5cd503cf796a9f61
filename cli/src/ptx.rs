//! `ptx`: the artefacts that the library carries, and `--ptx-set`, which chooses among them.

use std::borrow::Cow;
use std::fmt;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use paged_attention::artefacts::{EntryKind, ManifestEntry, PtxSet};

use crate::args::{PtxExportArgs, PtxListArgs};
use crate::error::Error;
use crate::output;
use crate::text::{Align, Table, bytes, escaped, field};

/// Name of the manifest beside the PTX files.
const MANIFEST: &str = "manifest.json";
/// Most characters of a manifest's text in a line.
const MOST: usize = 240;

/// A set by its name, `--ptx-set`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetName {
    /// One that this program carries.
    Embedded(&'static str),
    /// A folder with a manifest.
    Folder(PathBuf),
}

impl Default for SetName {
    fn default() -> Self {
        Self::Embedded(PtxSet::all_embedded()[0].0)
    }
}

impl FromStr for SetName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names: Vec<&str> = names().collect();
        if let Some(name) = names.iter().find(|name| **name == text) {
            return Ok(Self::Embedded(name));
        }
        match Path::new(text).is_dir() {
            true => Ok(Self::Folder(text.into())),
            false => Err(format!(
                "`{text}` must be {}, or a folder with a {MANIFEST}",
                names.join(" or ")
            )),
        }
    }
}

impl fmt::Display for SetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embedded(name) => f.write_str(name),
            Self::Folder(path) => path.display().fmt(f),
        }
    }
}

impl SetName {
    /// The set.
    pub fn load(&self) -> Result<Cow<'static, PtxSet>, Error> {
        match self {
            Self::Embedded(name) => {
                let mut sets = PtxSet::all_embedded().into_iter();
                let named = sets.find(|(known, _)| known == name);
                let (_, set) = named.expect("a name is made only from the same list");
                Ok(Cow::Borrowed(set))
            }
            Self::Folder(path) => Ok(Cow::Owned(PtxSet::load(path)?)),
        }
    }

    /// The set's line in a report: its name, its compiler, and what to know of its source.
    pub fn describe(&self, set: &PtxSet) -> String {
        let compiler = escaped(&set.manifest().compiler, MOST);
        match set.source_note() {
            Some(note) => format!("{self}, by {compiler}; {}", escaped(&note, MOST)),
            None => format!("{self}, by {compiler}"),
        }
    }
}

/// Help on an option that takes a set: what for, the names, and what else.
pub fn help(what: &str, or: &str) -> String {
    let names: Vec<String> = names().map(|name| format!("`{name}`")).collect();
    format!("{what}: {} or {or}", names.join(", "))
}

fn names() -> impl Iterator<Item = &'static str> {
    PtxSet::all_embedded().into_iter().map(|(name, _)| name)
}

/// `ptx list`.
pub fn list(args: &PtxListArgs, out: &mut dyn Write) -> Result<(), Error> {
    let sets = PtxSet::all_embedded();
    for (name, set) in &sets {
        summary(name, set, out)?;
        writeln!(out)?;
    }
    match args.entries {
        true => entries(&sets).print(out)?,
        false => files(&sets).print(out)?,
    }
    Ok(())
}

fn summary(name: &str, set: &PtxSet, out: &mut dyn Write) -> Result<(), Error> {
    let manifest = set.manifest();
    writeln!(out, "{name}")?;
    field(out, "compiler", escaped(&manifest.compiler, MOST))?;
    field(out, "PTX version", escaped(&manifest.ptx_version, MOST))?;
    let driver = match &manifest.least_driver {
        Some(driver) => driver.to_string(),
        None => format!("not known for PTX {}", manifest.ptx_version),
    };
    field(out, "least driver", escaped(&driver, MOST))?;
    field(out, "kernel source", escaped(&manifest.source_hash, MOST))?;
    if let Some(note) = set.source_note() {
        field(out, "note", escaped(&note, MOST))?;
    }
    field(out, "ABI version", manifest.abi_version)?;
    let total = set.files().map(|(_, text)| text.len() as u64).sum();
    let (files, entries) = (set.files().count(), manifest.entries.len());
    let total = format!("{entries} entries in {files} files, {}", bytes(total));
    field(out, "total", total)?;
    Ok(())
}

/// The sets by name.
type Sets = [(&'static str, &'static PtxSet)];

/// Every file, with its size in each set.
fn files(sets: &Sets) -> Table {
    let mut columns = vec![
        ("file", Align::Left),
        ("dtype", Align::Left),
        ("head dim", Align::Right),
        ("products on", Align::Left),
        ("query heads per warp", Align::Left),
        ("target", Align::Left),
    ];
    columns.extend(sets.iter().map(|&(name, _)| (name, Align::Right)));
    let mut table = Table::new(&columns);
    let mut done = vec![];
    for (_, set) in sets {
        for name in in_order(set) {
            let entries = || set.manifest().entries.iter().filter(|e| e.file == name);
            let tiles = entries().filter(|e| e.kind == EntryKind::Decode);
            let tiles: Vec<String> = tiles.map(|e| e.heads_per_tile.to_string()).collect();
            let Some(first) = entries().next().filter(|_| !done.contains(&name)) else {
                continue;
            };
            done.push(name);
            let row = [
                name.into(),
                first.dtype.clone(),
                match first.head_dim {
                    0 => "any".into(),
                    head_dim => head_dim.to_string(),
                },
                first.products.clone().unwrap_or_default(),
                tiles.join(", "),
                first.target.clone(),
            ];
            let sizes = sets.iter().map(|(_, set)| match set.ptx(name) {
                Some(text) => bytes(text.len() as u64),
                None => "-".into(),
            });
            table.row(row.into_iter().chain(sizes));
        }
    }
    table
}

/// Every entry once: a set that loads agrees with this program on all that is shown.
fn entries(sets: &Sets) -> Table {
    let mut table = Table::new(&[
        ("symbol", Align::Left),
        ("file", Align::Left),
        ("argument", Align::Left),
        ("grid", Align::Left),
        ("block", Align::Left),
        ("shared bytes", Align::Right),
        ("in", Align::Left),
    ]);
    let mut done = vec![];
    for entry in sets.iter().flat_map(|(_, set)| &set.manifest().entries) {
        let ManifestEntry {
            symbol,
            file,
            parameter,
            ..
        } = entry;
        if done.contains(&symbol) {
            continue;
        }
        done.push(symbol);
        let holds = |(name, set): &(&'static str, &PtxSet)| set.entry(symbol).map(|_| *name);
        let holders: Vec<&str> = sets.iter().filter_map(holds).collect();
        table.row([
            symbol.clone(),
            file.clone(),
            format!("{} ({} B)", parameter.name, parameter.bytes),
            entry.grid.clone(),
            format!("{:?}", entry.block),
            entry.shared_bytes.to_string(),
            holders.join(", "),
        ]);
    }
    table
}

/// Files in the manifest's order.
fn in_order(set: &PtxSet) -> Vec<&str> {
    let mut files: Vec<&str> = vec![];
    for entry in &set.manifest().entries {
        if !files.contains(&entry.file.as_str()) {
            files.push(&entry.file);
        }
    }
    files
}

/// `ptx export`.
pub fn export(args: &PtxExportArgs, out: &mut dyn Write) -> Result<(), Error> {
    let set = args.ptx_set.load()?;
    let dir = &args.dir;
    fs::create_dir_all(dir).map_err(Error::write(dir))?;
    let manifest = set.manifest().to_json();
    // The manifest goes first and comes last: where one stands, the files that it names do too.
    match fs::remove_file(dir.join(MANIFEST)) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(Error::write(&dir.join(MANIFEST))(error));
        }
        _ => {}
    }
    let files = set.files().chain([(MANIFEST, manifest.as_str())]);
    let mut count = 0;
    for (name, text) in files {
        let path = dir.join(name);
        output::check(&path, None)?;
        output::write(&path, |file| file.write_all(text.as_bytes()))?;
        count += 1;
    }
    writeln!(out, "wrote {count} files to {}", dir.display())?;
    Ok(())
}
