//! The table of instantiations: one row per (dtype, head_dim).
//!
//! The same rows expand to the device's entry points (`entries`), the host's dispatch ([`find_decode`],
//! [`find_merge`]), the manifest and the per-variant tests. To add one, add a row.

/// Storage type of q, K, V and out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// bfloat16.
    Bf16,
}

impl DType {
    /// Every storage type, in the table's order.
    pub const ALL: [DType; 3] = [DType::F32, DType::F16, DType::Bf16];

    /// Bytes per element.
    pub const fn bytes(self) -> u32 {
        match self {
            DType::F32 => 4,
            DType::F16 | DType::Bf16 => 2,
        }
    }

    /// Name as in entry and file names: `f32`, `f16`, `bf16`.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::Bf16 => "bf16",
        }
    }
}

/// Which units of the device do a decode entry's products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DecodeKind {
    /// f32 arithmetic on CUDA cores.
    CudaCore,
    /// 16-bit products with f32 sums on tensor cores.
    TensorCore,
}

impl DecodeKind {
    /// Name in the manifest and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            DecodeKind::CudaCore => "cuda cores",
            DecodeKind::TensorCore => "tensor cores",
        }
    }
}

/// One decode entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeVariant {
    /// Symbol in the PTX.
    pub entry: &'static str,
    /// Which units do the products.
    pub kind: DecodeKind,
    /// Storage type.
    pub dtype: DType,
    /// Elements per head.
    pub head_dim: u32,
    /// Query heads that one warp serves from one read of K and V.
    pub heads_per_tile: u32,
}

/// One merge entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergeVariant {
    /// Symbol in the PTX.
    pub entry: &'static str,
    /// Storage type of out.
    pub dtype: DType,
    /// Elements per head.
    pub head_dim: u32,
}

/// What an entry for the cache does. It copies bytes: one entry serves every storage type and head dim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CacheKind {
    /// Writes new keys and values into their slots.
    ReshapeAndCache,
    /// Copies blocks.
    CopyBlocks,
    /// Gathers sequences into contiguous rows.
    GatherCache,
}

impl CacheKind {
    /// Every kind, in the order of the manifest.
    pub const ALL: [CacheKind; 3] = [
        CacheKind::ReshapeAndCache,
        CacheKind::CopyBlocks,
        CacheKind::GatherCache,
    ];

    /// Symbol in the PTX.
    pub const fn entry(self) -> &'static str {
        match self {
            CacheKind::ReshapeAndCache => "reshape_and_cache",
            CacheKind::CopyBlocks => "copy_blocks",
            CacheKind::GatherCache => "gather_cache",
        }
    }
}

/// Calls `$then!` with every row: `dtype head_dim merge_entry [kind decode_entry heads_per_tile, ...]`.
///
/// Head tiles of one row ascend; the planner takes the first that holds the group, else the last.
macro_rules! for_each_variant {
    ($then:path) => {
        $then! {
            F32 32 merge_f32_d32 [CudaCore decode_f32_d32_h1 1, CudaCore decode_f32_d32_h8 8];
            F32 64 merge_f32_d64 [CudaCore decode_f32_d64_h1 1, CudaCore decode_f32_d64_h8 8];
            F32 80 merge_f32_d80 [CudaCore decode_f32_d80_h1 1, CudaCore decode_f32_d80_h8 8];
            F32 96 merge_f32_d96 [CudaCore decode_f32_d96_h1 1, CudaCore decode_f32_d96_h8 8];
            F32 112 merge_f32_d112 [CudaCore decode_f32_d112_h1 1, CudaCore decode_f32_d112_h8 8];
            F32 120 merge_f32_d120 [CudaCore decode_f32_d120_h1 1, CudaCore decode_f32_d120_h8 8];
            F32 128 merge_f32_d128 [CudaCore decode_f32_d128_h1 1, CudaCore decode_f32_d128_h8 8];
            F32 160 merge_f32_d160 [CudaCore decode_f32_d160_h1 1, CudaCore decode_f32_d160_h8 8];
            F32 192 merge_f32_d192 [CudaCore decode_f32_d192_h1 1, CudaCore decode_f32_d192_h8 8];
            F32 256 merge_f32_d256 [CudaCore decode_f32_d256_h1 1, CudaCore decode_f32_d256_h8 8];
            F16 32 merge_f16_d32 [TensorCore decode_f16_d32_mma 16];
            F16 64 merge_f16_d64 [TensorCore decode_f16_d64_mma 16];
            F16 80 merge_f16_d80 [TensorCore decode_f16_d80_mma 16];
            F16 96 merge_f16_d96 [TensorCore decode_f16_d96_mma 16];
            F16 112 merge_f16_d112 [TensorCore decode_f16_d112_mma 16];
            F16 120 merge_f16_d120 [CudaCore decode_f16_d120_h1 1, CudaCore decode_f16_d120_h8 8];
            F16 128 merge_f16_d128 [TensorCore decode_f16_d128_mma 16];
            F16 160 merge_f16_d160 [TensorCore decode_f16_d160_mma 16];
            F16 192 merge_f16_d192 [CudaCore decode_f16_d192_h1 1, CudaCore decode_f16_d192_h8 8];
            F16 256 merge_f16_d256 [CudaCore decode_f16_d256_h1 1, CudaCore decode_f16_d256_h8 8];
            Bf16 32 merge_bf16_d32 [TensorCore decode_bf16_d32_mma 16];
            Bf16 64 merge_bf16_d64 [TensorCore decode_bf16_d64_mma 16];
            Bf16 80 merge_bf16_d80 [TensorCore decode_bf16_d80_mma 16];
            Bf16 96 merge_bf16_d96 [TensorCore decode_bf16_d96_mma 16];
            Bf16 112 merge_bf16_d112 [TensorCore decode_bf16_d112_mma 16];
            Bf16 120 merge_bf16_d120 [CudaCore decode_bf16_d120_h1 1, CudaCore decode_bf16_d120_h8 8];
            Bf16 128 merge_bf16_d128 [TensorCore decode_bf16_d128_mma 16];
            Bf16 160 merge_bf16_d160 [TensorCore decode_bf16_d160_mma 16];
            Bf16 192 merge_bf16_d192 [CudaCore decode_bf16_d192_h1 1, CudaCore decode_bf16_d192_h8 8];
            Bf16 256 merge_bf16_d256 [CudaCore decode_bf16_d256_h1 1, CudaCore decode_bf16_d256_h8 8];
        }
    };
}

#[cfg(target_arch = "nvptx64")]
pub(crate) use for_each_variant;

macro_rules! variant_tables {
    ($( $dtype:ident $d:literal $merge:ident [$( $kind:ident $decode:ident $h:literal ),*]; )*) => {
        /// Every decode entry, by dtype, head_dim and head tile.
        pub const DECODE: &[DecodeVariant] = &[ $( $( DecodeVariant {
            entry: stringify!($decode),
            kind: DecodeKind::$kind,
            dtype: DType::$dtype,
            head_dim: $d,
            heads_per_tile: $h,
        }, )* )* ];

        /// Every merge entry, by dtype and head_dim.
        pub const MERGE: &[MergeVariant] = &[ $( MergeVariant {
            entry: stringify!($merge),
            dtype: DType::$dtype,
            head_dim: $d,
        }, )* ];
    };
}
for_each_variant!(variant_tables);

/// The decode entry for a group of `group_size` query heads per kv head: the smallest head tile
/// that holds the group, else the largest. `None` if the (dtype, head_dim) is not in the table.
///
/// The choice looks at the configuration alone, never at the batch.
pub fn find_decode(dtype: DType, head_dim: u32, group_size: u32) -> Option<&'static DecodeVariant> {
    let mut rows = DECODE
        .iter()
        .filter(|v| v.dtype == dtype && v.head_dim == head_dim);
    rows.clone()
        .find(|v| v.heads_per_tile >= group_size)
        .or_else(|| rows.next_back())
}

/// The merge entry of a (dtype, head_dim), if the table has one.
pub fn find_merge(dtype: DType, head_dim: u32) -> Option<&'static MergeVariant> {
    MERGE
        .iter()
        .find(|v| v.dtype == dtype && v.head_dim == head_dim)
}

/// The head dims that the table lists for a dtype, ascending: what error messages print.
pub fn head_dims(dtype: DType) -> impl Iterator<Item = u32> {
    MERGE
        .iter()
        .filter(move |v| v.dtype == dtype)
        .map(|v| v.head_dim)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::format;

    #[test]
    fn entry_names_spell_their_row() {
        for v in DECODE {
            let row = format!("decode_{}_d{}", v.dtype.name(), v.head_dim);
            let name = match v.kind {
                DecodeKind::CudaCore => format!("{row}_h{}", v.heads_per_tile),
                DecodeKind::TensorCore => format!("{row}_mma"),
            };
            assert_eq!(v.entry, name);
        }
        for v in MERGE {
            assert_eq!(v.entry, format!("merge_{}_d{}", v.dtype.name(), v.head_dim));
        }
    }

    #[test]
    fn the_smallest_tile_that_holds_the_group_is_chosen() {
        for (group, tile) in [(1, 1), (2, 8), (8, 8), (9, 8), (71, 8)] {
            let found = find_decode(DType::F32, 128, group).unwrap();
            assert_eq!(found.heads_per_tile, tile, "group {group}");
        }
        assert_eq!(
            find_decode(DType::F16, 128, 1).unwrap().kind,
            DecodeKind::TensorCore
        );
        assert_eq!(find_decode(DType::F16, 72, 1), None);
    }

    #[test]
    fn head_dims_are_those_of_the_design() {
        for dtype in DType::ALL {
            assert!(head_dims(dtype).eq([32, 64, 80, 96, 112, 120, 128, 160, 192, 256]));
        }
    }
}
