//! As much of manifest.json as a launch needs.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

/// The `abi_version` that this program was written for.
const ABI_VERSION: u32 = 1;

#[derive(Deserialize)]
pub struct Manifest {
    abi_version: u32,
    entries: Vec<Entry>,
}

#[derive(Deserialize)]
pub struct Entry {
    pub file: String,
    pub symbol: String,
    kind: String,
    #[serde(default)]
    products: String,
    dtype: String,
    head_dim: usize,
    heads_per_tile: usize,
    parameter: Parameter,
    pub block: [u32; 3],
    pub shared_bytes: u32,
}

#[derive(Deserialize)]
struct Parameter {
    bytes: usize,
    fields: Vec<Field>,
}

#[derive(Deserialize)]
struct Field {
    name: String,
    #[serde(rename = "type")]
    ty: String,
    offset: usize,
}

/// A field's value.
pub enum Value {
    U64(u64),
    I64(i64),
    U32(u32),
    F32(f32),
}

impl Manifest {
    pub fn read(dir: &Path) -> Result<Self> {
        let path = dir.join("manifest.json");
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let manifest: Manifest = serde_json::from_str(&text)?;
        let found = manifest.abi_version;
        ensure!(
            found == ABI_VERSION,
            "abi_version is {found}, must be {ABI_VERSION}"
        );
        Ok(manifest)
    }

    /// The decode and merge entries for a group of `group` query heads per kv head: the smallest
    /// tile that holds the group, else the largest. The manifest lists tiles ascending.
    pub fn find(&self, dtype: &str, head_dim: usize, group: usize) -> Result<(&Entry, &Entry)> {
        let of_kind = |kind: &'static str| {
            self.entries.iter().filter(move |entry| {
                entry.kind == kind && entry.dtype == dtype && entry.head_dim == head_dim
            })
        };
        let decode = of_kind("decode")
            .find(|entry| entry.heads_per_tile >= group)
            .or_else(|| of_kind("decode").next_back());
        match (decode, of_kind("merge").next()) {
            (Some(decode), Some(merge)) => Ok((decode, merge)),
            _ => bail!("no kernels for {dtype} with head_dim {head_dim}"),
        }
    }
}

impl Entry {
    /// `head_tiles` of the grid rule.
    pub fn head_tiles(&self, group: usize) -> usize {
        let warps = match (self.products.as_str(), group) {
            ("tensor cores", 33..) => 4,
            ("tensor cores", 17..) => 2,
            _ => 1,
        };
        group.div_ceil(self.heads_per_tile * warps)
    }

    /// The argument struct, field by field, little endian.
    pub fn pack<const N: usize>(&self, value: impl Fn(&str) -> Option<Value>) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        ensure!(
            self.parameter.bytes <= N,
            "{}: {} bytes",
            self.symbol,
            self.parameter.bytes
        );
        for Field { name, ty, offset } in &self.parameter.fields {
            let value = value(name).with_context(|| format!("{}: field {name}", self.symbol))?;
            let (wanted, encoded) = match value {
                Value::U64(x) => ("u64", x.to_le_bytes().to_vec()),
                Value::I64(x) => ("i64", x.to_le_bytes().to_vec()),
                Value::U32(x) => ("u32", x.to_le_bytes().to_vec()),
                Value::F32(x) => ("f32", x.to_le_bytes().to_vec()),
            };
            ensure!(
                ty == wanted,
                "{}: field {name} is {ty}, must be {wanted}",
                self.symbol
            );
            bytes[*offset..][..encoded.len()].copy_from_slice(&encoded);
        }
        Ok(bytes)
    }
}
