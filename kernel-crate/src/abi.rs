//! Kernel arguments: one `#[repr(C)]` struct by value per kernel.
//!
//! This is the binary interface between the shipped PTX and whoever launches it. Pointers are
//! device addresses in `u64`; 0 stands for an absent optional buffer. Strides are in elements.
//! The field lists ([`DecodeArgs::FIELDS`], [`MergeArgs::FIELDS`]) go into the manifest, so that
//! other languages can fill the structs without this crate.

/// Version of everything in this module, of the entry names and of the launch geometry.
///
/// A change that an existing launcher would notice raises it.
pub const ABI_VERSION: u32 = 1;

/// One field of an argument struct, for the manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Field name.
    pub name: &'static str,
    /// Rust type name: `u64`, `i64`, `u32` or `f32`.
    pub ty: &'static str,
    /// Offset in bytes from the start of the struct.
    pub offset: usize,
}

macro_rules! args_struct {
    (
        $(#[$doc:meta])*
        pub struct $name:ident { $( $(#[$fdoc:meta])* pub $field:ident : $ty:ty, )* }
    ) => {
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct $name { $( $(#[$fdoc])* pub $field: $ty, )* }

        impl $name {
            /// The struct's name, as the manifest gives it.
            pub const NAME: &'static str = stringify!($name);
            /// Every field in order, with its type and offset.
            pub const FIELDS: &'static [Field] = &[ $( Field {
                name: stringify!($field),
                ty: stringify!($ty),
                offset: core::mem::offset_of!($name, $field),
            }, )* ];

            /// The struct as the launch parameter's bytes (little endian, no padding inside).
            pub fn to_bytes(self) -> [u8; size_of::<$name>()] {
                let mut bytes = [0; size_of::<$name>()];
                $( {
                    let at = core::mem::offset_of!($name, $field);
                    bytes[at..at + size_of::<$ty>()].copy_from_slice(&self.$field.to_le_bytes());
                } )*
                bytes
            }
        }

        // No padding: the fields' sizes add up, so `to_bytes` and the C layout agree.
        const _: () = assert!(size_of::<$name>() == 0 $( + size_of::<$ty>() )*);
    };
}

args_struct! {
    /// Arguments of every `decode` entry (and of the contiguous twin, see `k_block_stride`).
    pub struct DecodeArgs {
        /// Queries, `[num_seqs, num_q_heads, head_dim]`, strides below.
        pub q: u64,
        /// Key cache; element of (block, slot, kv head, i) at
        /// `block * k_block_stride + slot * k_token_stride + head * k_head_stride + i`.
        pub k_cache: u64,
        /// Value cache, likewise with its own strides.
        pub v_cache: u64,
        /// Block table, i32 `[num_seqs, table_stride]`.
        pub block_table: u64,
        /// Lengths in tokens, i32 `[num_seqs]`; a negative length counts as 0.
        pub seq_lens: u64,
        /// Output, `[num_seqs, num_q_heads, head_dim]`, strides below.
        pub out: u64,
        /// Log-sum-exp, f32 `[num_seqs, num_q_heads]`, or 0.
        pub lse: u64,
        /// Unnormalised partial outputs, f32 `[num_seqs, num_q_heads, num_splits, head_dim]`;
        /// 0 when `num_splits` is 1.
        pub partial_out: u64,
        /// Partial (maximum in log2 units, denominator), f32 `[num_seqs, num_q_heads, num_splits, 2]`.
        pub partial_ml: u64,
        /// Elements from one query row to the next sequence's.
        pub q_token_stride: i64,
        /// Elements from one query head to the next.
        pub q_head_stride: i64,
        /// Elements from one output row to the next sequence's.
        pub out_token_stride: i64,
        /// Elements from one output head to the next.
        pub out_head_stride: i64,
        /// Elements from one key block to the next; in the contiguous twin, from one sequence to the next.
        pub k_block_stride: i64,
        /// Elements from one key slot to the next.
        pub k_token_stride: i64,
        /// Elements from one kv head's keys to the next's.
        pub k_head_stride: i64,
        /// Elements from one value block to the next.
        pub v_block_stride: i64,
        /// Elements from one value slot to the next.
        pub v_token_stride: i64,
        /// Elements from one kv head's values to the next's.
        pub v_head_stride: i64,
        /// Entries from one sequence's table row to the next.
        pub table_stride: i64,
        /// Softmax scale times log2(e).
        pub scale_log2: f32,
        /// Number of query heads; a multiple of `group_size`.
        pub num_q_heads: u32,
        /// Query heads per kv head.
        pub group_size: u32,
        /// Head tiles per kv head: `ceil(group_size / heads_per_tile)`.
        pub head_tiles: u32,
        /// Tokens per physical block, at least 1.
        pub block_size: u32,
        /// `magic` of the block size's [`BlockDivisor`](crate::offsets::BlockDivisor).
        pub block_magic: u32,
        /// `shift` of the block size's divisor.
        pub block_shift: u32,
        /// Tokens per split, a positive multiple of 16.
        pub split_tokens: u32,
        /// Splits that the grid covers: the third grid dimension.
        pub num_splits: u32,
        /// Zero; keeps the size a multiple of 8.
        pub reserved: u32,
    }
}

args_struct! {
    /// Arguments of every `merge` entry. Buffers and strides are those given to `decode`.
    pub struct MergeArgs {
        /// Partial outputs that `decode` wrote, f32 `[num_seqs, num_q_heads, num_splits, head_dim]`.
        pub partial_out: u64,
        /// Partial (maximum, denominator), f32 `[num_seqs, num_q_heads, num_splits, 2]`.
        pub partial_ml: u64,
        /// Lengths in tokens, i32 `[num_seqs]`.
        pub seq_lens: u64,
        /// Output, `[num_seqs, num_q_heads, head_dim]`.
        pub out: u64,
        /// Log-sum-exp, f32 `[num_seqs, num_q_heads]`, or 0.
        pub lse: u64,
        /// Elements from one output row to the next sequence's.
        pub out_token_stride: i64,
        /// Elements from one output head to the next.
        pub out_head_stride: i64,
        /// Number of query heads.
        pub num_q_heads: u32,
        /// Tokens per split.
        pub split_tokens: u32,
        /// Splits per sequence in the partial buffers.
        pub num_splits: u32,
        /// Zero; keeps the size a multiple of 8.
        pub reserved: u32,
    }
}

args_struct! {
    /// Arguments of `reshape_and_cache`. Strides are in bytes, multiples of 16.
    pub struct ReshapeAndCacheArgs {
        /// New keys, `[num_tokens, num_kv_heads, head_dim]`.
        pub k: u64,
        /// New values, likewise.
        pub v: u64,
        /// Key cache.
        pub k_cache: u64,
        /// Value cache.
        pub v_cache: u64,
        /// Slots, i64 `[num_tokens]`: below 2^31; negative ones skip their row.
        pub slot_mapping: u64,
        /// Bytes from one token's row of `k` to the next.
        pub k_token_stride: i64,
        /// Bytes from one head's row of `k` to the next.
        pub k_head_stride: i64,
        /// Bytes from one token's row of `v` to the next.
        pub v_token_stride: i64,
        /// Bytes from one head's row of `v` to the next.
        pub v_head_stride: i64,
        /// Bytes from one block of the key cache to the next.
        pub k_cache_block_stride: i64,
        /// Bytes from one slot of the key cache to the next.
        pub k_cache_token_stride: i64,
        /// Bytes from one head of the key cache to the next.
        pub k_cache_head_stride: i64,
        /// Bytes from one block of the value cache to the next.
        pub v_cache_block_stride: i64,
        /// Bytes from one slot of the value cache to the next.
        pub v_cache_token_stride: i64,
        /// Bytes from one head of the value cache to the next.
        pub v_cache_head_stride: i64,
        /// Key/value heads.
        pub num_kv_heads: u32,
        /// 16-byte chunks per row: `head_dim * element size / 16`.
        pub row_chunks: u32,
        /// `magic` of the [`BlockDivisor`](crate::offsets::BlockDivisor) of `row_chunks`.
        pub row_magic: u32,
        /// `shift` of that divisor.
        pub row_shift: u32,
        /// Tokens per physical block, at least 1.
        pub block_size: u32,
        /// `magic` of the block size's divisor.
        pub block_magic: u32,
        /// `shift` of the block size's divisor.
        pub block_shift: u32,
        /// Zero; keeps the size a multiple of 8.
        pub reserved: u32,
    }
}

args_struct! {
    /// Arguments of `copy_blocks`. Strides are in bytes, multiples of 16, the same for every cache.
    pub struct CopyBlocksArgs {
        /// Addresses of the caches, u64 `[num_caches]`.
        pub caches: u64,
        /// (source, destination) blocks, i64 `[num_pairs, 2]`.
        pub pairs: u64,
        /// Bytes from one block to the next.
        pub block_stride: i64,
        /// Bytes from one slot to the next.
        pub token_stride: i64,
        /// Bytes from one head to the next.
        pub head_stride: i64,
        /// 16-byte chunks per block: `block_size * num_kv_heads * row_chunks`, below 2^31.
        pub block_chunks: u32,
        /// Key/value heads.
        pub num_kv_heads: u32,
        /// `magic` of the divisor of `num_kv_heads`.
        pub head_magic: u32,
        /// `shift` of that divisor.
        pub head_shift: u32,
        /// 16-byte chunks per row: `head_dim * element size / 16`.
        pub row_chunks: u32,
        /// `magic` of the [`BlockDivisor`](crate::offsets::BlockDivisor) of `row_chunks`.
        pub row_magic: u32,
        /// `shift` of that divisor.
        pub row_shift: u32,
        /// Zero; keeps the size a multiple of 8.
        pub reserved: u32,
    }
}

args_struct! {
    /// Arguments of `gather_cache`. Strides are in bytes, multiples of 16, unless said otherwise.
    pub struct GatherCacheArgs {
        /// Key cache.
        pub k_cache: u64,
        /// Value cache.
        pub v_cache: u64,
        /// Block table, i32 `[num_seqs, table_stride]`.
        pub block_table: u64,
        /// Where each sequence's rows start, i64 `[num_seqs + 1]`: 0, then the sums of the lengths.
        pub starts: u64,
        /// Gathered keys, `[starts[num_seqs], num_kv_heads, head_dim]`.
        pub k: u64,
        /// Gathered values, likewise.
        pub v: u64,
        /// Bytes from one block of the key cache to the next.
        pub k_cache_block_stride: i64,
        /// Bytes from one slot of the key cache to the next.
        pub k_cache_token_stride: i64,
        /// Bytes from one head of the key cache to the next.
        pub k_cache_head_stride: i64,
        /// Bytes from one block of the value cache to the next.
        pub v_cache_block_stride: i64,
        /// Bytes from one slot of the value cache to the next.
        pub v_cache_token_stride: i64,
        /// Bytes from one head of the value cache to the next.
        pub v_cache_head_stride: i64,
        /// Bytes from one token's row of `k` to the next.
        pub k_token_stride: i64,
        /// Bytes from one head's row of `k` to the next.
        pub k_head_stride: i64,
        /// Bytes from one token's row of `v` to the next.
        pub v_token_stride: i64,
        /// Bytes from one head's row of `v` to the next.
        pub v_head_stride: i64,
        /// Entries from one sequence's table row to the next.
        pub table_stride: i64,
        /// Key/value heads.
        pub num_kv_heads: u32,
        /// `magic` of the divisor of `num_kv_heads`.
        pub head_magic: u32,
        /// `shift` of that divisor.
        pub head_shift: u32,
        /// 16-byte chunks per row: `head_dim * element size / 16`.
        pub row_chunks: u32,
        /// `magic` of the [`BlockDivisor`](crate::offsets::BlockDivisor) of `row_chunks`.
        pub row_magic: u32,
        /// `shift` of that divisor.
        pub row_shift: u32,
        /// Tokens per physical block, at least 1.
        pub block_size: u32,
        /// `magic` of the block size's divisor.
        pub block_magic: u32,
        /// `shift` of the block size's divisor.
        pub block_shift: u32,
        /// Zero; keeps the size a multiple of 8.
        pub reserved: u32,
    }
}

const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<DecodeArgs>() == 200 && align_of::<DecodeArgs>() == 8);
    assert!(offset_of!(DecodeArgs, q_token_stride) == 72);
    assert!(offset_of!(DecodeArgs, scale_log2) == 160);
    assert!(offset_of!(DecodeArgs, num_splits) == 192);
    assert!(size_of::<MergeArgs>() == 72 && align_of::<MergeArgs>() == 8);
    assert!(offset_of!(MergeArgs, num_q_heads) == 56);
    assert!(size_of::<ReshapeAndCacheArgs>() == 152 && align_of::<ReshapeAndCacheArgs>() == 8);
    assert!(offset_of!(ReshapeAndCacheArgs, num_kv_heads) == 120);
    assert!(size_of::<CopyBlocksArgs>() == 72 && align_of::<CopyBlocksArgs>() == 8);
    assert!(offset_of!(CopyBlocksArgs, block_chunks) == 40);
    assert!(size_of::<GatherCacheArgs>() == 176 && align_of::<GatherCacheArgs>() == 8);
    assert!(offset_of!(GatherCacheArgs, table_stride) == 128);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_follow_the_field_offsets() {
        let args = MergeArgs {
            partial_out: 1,
            partial_ml: 2,
            seq_lens: 3,
            out: 4,
            lse: 5,
            out_token_stride: -6,
            out_head_stride: 7,
            num_q_heads: 8,
            split_tokens: 9,
            num_splits: 10,
            reserved: 0,
        };
        let bytes = args.to_bytes();
        for field in MergeArgs::FIELDS {
            let expected: i64 = match field.name {
                "partial_out" => 1,
                "partial_ml" => 2,
                "seq_lens" => 3,
                "out" => 4,
                "lse" => 5,
                "out_token_stride" => -6,
                "out_head_stride" => 7,
                "num_q_heads" => 8,
                "split_tokens" => 9,
                "num_splits" => 10,
                "reserved" => 0,
                other => panic!("unknown field {other}"),
            };
            let raw = &bytes[field.offset..];
            let found = match field.ty {
                "u64" | "i64" => i64::from_le_bytes(raw[..8].try_into().unwrap()),
                "u32" => u32::from_le_bytes(raw[..4].try_into().unwrap()).into(),
                other => panic!("unknown type {other}"),
            };
            assert_eq!(found, expected, "{}", field.name);
        }
    }
}
