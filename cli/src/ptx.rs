//! `ptx`: the artefacts that the library carries.

use std::fs;
use std::io::Write;

use paged_attention::artefacts::{EntryKind, ManifestEntry, PtxSet};

use crate::args::{PtxExportArgs, PtxListArgs};
use crate::error::Error;
use crate::output;
use crate::text::{Align, Table, bytes, field};

/// Name of the manifest beside the PTX files.
const MANIFEST: &str = "manifest.json";

/// `ptx list`.
pub fn list(args: &PtxListArgs, out: &mut dyn Write) -> Result<(), Error> {
    let set = PtxSet::embedded();
    let manifest = set.manifest();
    match args.entries {
        true => entries(set).print(out)?,
        false => files(set).print(out)?,
    }
    writeln!(out)?;
    let total = set.files().map(|(_, text)| text.len() as u64).sum();
    let (files, entries) = (set.files().count(), manifest.entries.len());
    field(
        out,
        "total",
        format!("{entries} entries in {files} files, {}", bytes(total)),
    )?;
    field(out, "compiler", &manifest.compiler)?;
    field(out, "source hash", &manifest.source_hash)?;
    field(out, "ABI version", manifest.abi_version)?;
    Ok(())
}

fn files(set: &PtxSet) -> Table {
    let mut table = Table::new(&[
        ("file", Align::Left),
        ("dtype", Align::Left),
        ("head dim", Align::Right),
        ("products on", Align::Left),
        ("query heads per warp", Align::Left),
        ("PTX", Align::Right),
        ("target", Align::Left),
        ("size", Align::Right),
    ]);
    for (name, text) in in_order(set) {
        let entries = || set.manifest().entries.iter().filter(|e| e.file == name);
        let tiles = entries().filter(|e| e.kind == EntryKind::Decode);
        let tiles: Vec<String> = tiles.map(|e| e.heads_per_tile.to_string()).collect();
        let Some(first) = entries().next() else {
            continue;
        };
        table.row([
            name.into(),
            first.dtype.clone(),
            match first.head_dim {
                0 => "any".into(),
                head_dim => head_dim.to_string(),
            },
            first.products.clone().unwrap_or_default(),
            tiles.join(", "),
            first.ptx_version.clone(),
            first.target.clone(),
            bytes(text.len() as u64),
        ]);
    }
    table
}

fn entries(set: &PtxSet) -> Table {
    let mut table = Table::new(&[
        ("symbol", Align::Left),
        ("file", Align::Left),
        ("argument", Align::Left),
        ("grid", Align::Left),
        ("block", Align::Left),
        ("shared bytes", Align::Right),
    ]);
    for entry in &set.manifest().entries {
        let ManifestEntry {
            symbol,
            file,
            parameter,
            ..
        } = entry;
        table.row([
            symbol.clone(),
            file.clone(),
            format!("{} ({} B)", parameter.name, parameter.bytes),
            entry.grid.clone(),
            format!("{:?}", entry.block),
            entry.shared_bytes.to_string(),
        ]);
    }
    table
}

/// Files in the manifest's order.
fn in_order(set: &PtxSet) -> Vec<(&str, &str)> {
    let mut files: Vec<(&str, &str)> = vec![];
    for entry in &set.manifest().entries {
        let name = entry.file.as_str();
        let known = files.iter().any(|&(known, _)| known == name);
        if let Some(text) = set.ptx(name).filter(|_| !known) {
            files.push((name, text));
        }
    }
    files
}

/// `ptx export`.
pub fn export(args: &PtxExportArgs, out: &mut dyn Write) -> Result<(), Error> {
    let set = PtxSet::embedded();
    let dir = &args.dir;
    fs::create_dir_all(dir).map_err(Error::write(dir))?;
    let manifest = set.manifest().to_json();
    // The manifest last: where it stands, the files that it names do too.
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
