//! The manifest's format: `manifest.json` beside the PTX files.

use serde::{Deserialize, Serialize};

use super::requirements::LeastDriver;
use crate::DType;
use crate::kernels::abi::{
    CopyBlocksArgs, DecodeArgs, Field, GatherCacheArgs, MergeArgs, ReshapeAndCacheArgs,
};
use crate::kernels::geometry::{
    MERGE_GRID_RULE, THREADS, cache_grid_rule, decode_grid_rule, decode_shared_bytes,
    merge_shared_bytes,
};
use crate::kernels::variants::{CacheKind, DecodeVariant, MergeVariant};

/// Name of the PTX file that holds the entries of a (dtype, head_dim).
pub fn file_name(dtype: DType, head_dim: u32) -> String {
    format!("{}_d{head_dim}.ptx", dtype.name())
}

/// Name of the PTX file that holds the entries for the cache.
pub const CACHE_FILE: &str = "cache.ptx";

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
    /// PTX ISA version of every file, `major.minor`.
    pub ptx_version: String,
    /// The least driver that reads it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub least_driver: Option<LeastDriver>,
    /// Every entry, in the order of the instantiation table.
    pub entries: Vec<ManifestEntry>,
}

impl Manifest {
    /// The manifest as JSON, indented, with a newline at the end.
    pub fn to_json(&self) -> String {
        // Neither maps with keys that are no strings nor failing serialisers occur in it.
        let mut json = serde_json::to_string_pretty(self).expect("plain data serialises");
        json.push('\n');
        json
    }
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
    /// Which units do a decode entry's products: `cuda cores` or `tensor cores`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub products: Option<String>,
    /// Storage type of the tensors: `f32`, `f16` or `bf16`; `any` for a cache entry.
    pub dtype: String,
    /// Elements per head; 0, for any, of a cache entry.
    pub head_dim: u32,
    /// Query heads per tile, the grid rule's `heads_per_tile`; 1 for a merge entry.
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

impl ManifestEntry {
    /// The entry of a row of the instantiation table, in a file with this PTX version and target.
    pub fn decode(variant: &DecodeVariant, ptx_version: &str, target: &str) -> Self {
        let &DecodeVariant {
            entry,
            dtype,
            head_dim,
            heads_per_tile,
            kind,
        } = variant;
        Self {
            file: file_name(dtype, head_dim),
            symbol: entry.into(),
            kind: EntryKind::Decode,
            products: Some(kind.name().into()),
            dtype: dtype.name().into(),
            head_dim,
            heads_per_tile,
            parameter: Parameter::new(
                DecodeArgs::NAME,
                size_of::<DecodeArgs>(),
                align_of::<DecodeArgs>(),
                DecodeArgs::FIELDS,
            ),
            grid: decode_grid_rule(kind).into(),
            block: [THREADS, 1, 1],
            shared_bytes: decode_shared_bytes(variant),
            ptx_version: ptx_version.into(),
            target: target.into(),
        }
    }

    /// Likewise for a merge entry.
    pub fn merge(variant: &MergeVariant, ptx_version: &str, target: &str) -> Self {
        let &MergeVariant {
            entry,
            dtype,
            head_dim,
        } = variant;
        Self {
            file: file_name(dtype, head_dim),
            symbol: entry.into(),
            kind: EntryKind::Merge,
            products: None,
            dtype: dtype.name().into(),
            head_dim,
            heads_per_tile: 1,
            parameter: Parameter::new(
                MergeArgs::NAME,
                size_of::<MergeArgs>(),
                align_of::<MergeArgs>(),
                MergeArgs::FIELDS,
            ),
            grid: MERGE_GRID_RULE.into(),
            block: [THREADS, 1, 1],
            shared_bytes: merge_shared_bytes(head_dim),
            ptx_version: ptx_version.into(),
            target: target.into(),
        }
    }
}

impl ManifestEntry {
    /// Likewise for a cache entry, which serves every storage type and head dim.
    pub fn cache(cache: CacheKind, ptx_version: &str, target: &str) -> Self {
        macro_rules! parameter {
            ($args:ident) => {
                Parameter::new(
                    $args::NAME,
                    size_of::<$args>(),
                    align_of::<$args>(),
                    $args::FIELDS,
                )
            };
        }
        let (kind, parameter) = match cache {
            CacheKind::ReshapeAndCache => {
                (EntryKind::ReshapeAndCache, parameter!(ReshapeAndCacheArgs))
            }
            CacheKind::CopyBlocks => (EntryKind::CopyBlocks, parameter!(CopyBlocksArgs)),
            CacheKind::GatherCache => (EntryKind::GatherCache, parameter!(GatherCacheArgs)),
        };
        Self {
            file: CACHE_FILE.into(),
            symbol: cache.entry().into(),
            kind,
            products: None,
            dtype: "any".into(),
            head_dim: 0,
            heads_per_tile: 1,
            parameter,
            grid: cache_grid_rule(cache).into(),
            block: [THREADS, 1, 1],
            shared_bytes: 0,
            ptx_version: ptx_version.into(),
            target: target.into(),
        }
    }
}

/// What an entry computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EntryKind {
    /// Attention over one split.
    Decode,
    /// Combination of the splits.
    Merge,
    /// Writing new keys and values into the cache.
    #[serde(rename = "reshape_and_cache")]
    ReshapeAndCache,
    /// Copying blocks of the cache.
    #[serde(rename = "copy_blocks")]
    CopyBlocks,
    /// Gathering sequences into contiguous rows.
    #[serde(rename = "gather_cache")]
    GatherCache,
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

impl Parameter {
    fn new(name: &str, bytes: usize, align: usize, fields: &[Field]) -> Self {
        let fields = fields.iter().map(|field| ParameterField {
            name: field.name.into(),
            ty: field.ty.into(),
            offset: field.offset,
        });
        Self {
            name: name.into(),
            bytes,
            align,
            fields: fields.collect(),
        }
    }
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
