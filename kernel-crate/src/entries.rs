//! The PTX entry points: one per row of the instantiation table, and the contiguous twin.

use crate::abi::{CopyBlocksArgs, DecodeArgs, GatherCacheArgs, MergeArgs, ReshapeAndCacheArgs};
use crate::decode::decode;
use crate::decode_mma::decode_mma;
use crate::device::element::{Bf16, F16, F32};
use crate::device::entry;
use crate::geometry::{LaneMap, MMA_ROWS, TileMap};
use crate::merge::merge;
use crate::tokens::{Contiguous, Paged};
use crate::variants::{DType, for_each_variant};

macro_rules! decode_entry {
    (CudaCore $entry:ident, $dtype:ident, $source:ident, $d:literal, $h:literal) => {
        entry! {
            /// # Safety
            /// See [`decode`].
            unsafe fn $entry(args: DecodeArgs) {
                const MAP: LaneMap = LaneMap::new($d, DType::$dtype.bytes());
                // SAFETY: the launcher upholds the contract of `decode`.
                unsafe {
                    decode::<
                        $dtype,
                        $source,
                        $d,
                        { MAP.columns() as usize },
                        $h,
                        { MAP.steps },
                        { MAP.batch($h) as usize },
                        { MAP.rows_per_step },
                    >(&args)
                }
            }
        }
    };
    (TensorCore $entry:ident, $dtype:ident, $source:ident, $d:literal, $h:literal) => {
        entry! {
            /// # Safety
            /// See [`decode_mma`].
            unsafe fn $entry(args: DecodeArgs) {
                const MAP: TileMap = TileMap::new($d);
                const { assert!($h == MMA_ROWS) };
                // SAFETY: the launcher upholds the contract of `decode_mma`.
                unsafe {
                    decode_mma::<
                        $dtype,
                        $source,
                        $d,
                        { $d / 16 },
                        { $d / 8 },
                        { MAP.steps },
                        { MAP.rows_per_step },
                    >(&args)
                }
            }
        }
    };
}

macro_rules! entries {
    ($( $dtype:ident $d:literal $merge:ident [$( $kind:ident $decode:ident $h:literal ),*]; )*) => { $(
        $( decode_entry!($kind $decode, $dtype, Paged, $d, $h); )*

        entry! {
            /// # Safety
            /// See [`merge`].
            unsafe fn $merge(args: MergeArgs) {
                const MAP: LaneMap = LaneMap::new($d, 4);
                // SAFETY: the launcher upholds the contract of `merge`.
                unsafe { merge::<$dtype, $d, { MAP.columns() as usize }, { MAP.rows_per_step }>(&args) }
            }
        }
    )* };
}
for_each_variant!(entries);

macro_rules! cache_entry {
    ($module:ident, $args:ident) => {
        entry! {
            /// # Safety
            #[doc = concat!("See [`crate::", stringify!($module), "`].")]
            unsafe fn $module(args: $args) {
                // SAFETY: the launcher upholds the contract of the body.
                unsafe { crate::$module::$module(&args) }
            }
        }
    };
}
cache_entry!(reshape_and_cache, ReshapeAndCacheArgs);
cache_entry!(copy_blocks, CopyBlocksArgs);
cache_entry!(gather_cache, GatherCacheArgs);

// The contiguous twin of one entry: a test artefact that shows what paging costs, not shipped.
decode_entry!(TensorCore contiguous_f16_d128_mma, F16, Contiguous, 128, 16);
