//! The manifest's format: `manifest.json` beside the PTX files.

use serde::{Deserialize, Serialize};

/// All that another language needs to launch the shipped kernels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Version of the launch interface: argument structs, entry names, geometry
    /// ([`crate::kernels::abi::ABI_VERSION`]).
    pub abi_version: u32,
    /// The compiler's version line.
    pub compiler: String,
    /// Hash over the device modules' tokens, hexadecimal.
    pub source_hash: String,
    /// Every entry, in the order of the instantiation table.
    pub entries: Vec<ManifestEntry>,
}

/// One kernel entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManifestEntry {
    /// PTX file, relative to the manifest: `{dtype}_d{head_dim}.ptx`.
    pub file: String,
    /// Symbol in that file.
    pub symbol: String,
    /// What it computes.
    pub kind: EntryKind,
    /// Storage type of the tensors: `f32`, `f16` or `bf16`.
    pub dtype: String,
    /// Elements per head.
    pub head_dim: u32,
    /// Query heads that one CTA serves; 1 for a merge entry.
    pub heads_per_tile: u32,
    /// The single kernel parameter.
    pub parameter: Parameter,
    /// Grid dimensions, in words of the call's sizes.
    pub grid: String,
    /// CTA dimensions.
    pub block: [u32; 3],
    /// Dynamic shared memory in bytes.
    pub shared_bytes: u32,
    /// PTX ISA version of the file, `major.minor`.
    pub ptx_version: String,
    /// Least target of the file, for example `sm_80`.
    pub target: String,
}

/// What an entry computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EntryKind {
    /// Attention over one split.
    Decode,
    /// Combination of the splits.
    Merge,
}

/// A struct passed by value as the entry's only parameter. Little endian, no padding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// The struct's name.
    pub name: String,
    /// Its size in bytes.
    pub bytes: usize,
    /// Its alignment in bytes.
    pub align: usize,
    /// Its fields in order.
    pub fields: Vec<ParameterField>,
}

/// One field of a parameter struct.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParameterField {
    /// Name.
    pub name: String,
    /// `u64`, `i64`, `u32` or `f32`.
    #[serde(rename = "type")]
    pub ty: String,
    /// Offset in bytes.
    pub offset: usize,
}
