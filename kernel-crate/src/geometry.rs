//! Launch geometry of the kernels: grid, block and shared memory, once for host and device.

use crate::variants::{DType, DecodeVariant};

/// Threads per warp.
pub const WARP: u32 = 32;
/// Warps per CTA, in `decode` and in `merge`.
pub const WARPS: u32 = 4;
/// Threads per CTA, in `decode` and in `merge`.
pub const THREADS: u32 = WARP * WARPS;
/// Tokens that a warp takes at a time; units go to the warps of a CTA in turn. A physical block of
/// 16 tokens is one unit. Split lengths are multiples of it.
pub const UNIT_TOKENS: u32 = 16;
/// Loads in flight per lane: while one stage is computed, the next one is on its way.
pub const STAGES: u32 = 2;
/// Longest split in tokens. A lane adds at most `MAX_SPLIT_TOKENS / WARPS` = 2048 terms in a chain.
pub const MAX_SPLIT_TOKENS: u32 = 8192;
/// Most splits per sequence. A lane of `merge` adds at most `MAX_SPLITS / WARPS` = 2048 terms in a chain.
pub const MAX_SPLITS: u32 = 8192;
/// Largest second and third grid dimension of any CUDA device.
pub const MAX_GRID_YZ: u32 = 65_535;

/// How a warp's lanes share out the rows of K, V or partial outputs.
///
/// A row of `head_dim` elements is cut into 16-byte chunks. `lanes_per_row` lanes, a power of two,
/// read neighbouring chunks; `rows_per_step` rows are read by one warp instruction. Where the
/// chunk count is not a multiple of the lanes, the last lanes of a row have nothing to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneMap {
    /// Elements per 16-byte chunk.
    pub chunk: u32,
    /// 16-byte chunks per row.
    pub chunks_per_row: u32,
    /// Lanes that read one row.
    pub lanes_per_row: u32,
    /// Chunks that one lane reads of a row (`lanes_per_row` chunks apart).
    pub chunks_per_lane: u32,
    /// Rows that the warp reads in one step.
    pub rows_per_step: u32,
    /// Steps per stage.
    pub steps: u32,
}

impl LaneMap {
    /// The map for rows of `head_dim` elements of `bytes` bytes. `head_dim * bytes` is a multiple of 16.
    pub const fn new(head_dim: u32, bytes: u32) -> Self {
        let chunk = 16 / bytes;
        let chunks_per_row = head_dim / chunk;
        let lanes_per_row = min(chunks_per_row.next_power_of_two(), WARP);
        let chunks_per_lane = chunks_per_row.div_ceil(lanes_per_row);
        let rows_per_step = WARP / lanes_per_row;
        // At most 64 bytes of K a lane and stage, and a stage is never longer than a unit.
        let steps = min(4 / chunks_per_lane, UNIT_TOKENS / rows_per_step);
        Self {
            chunk,
            chunks_per_row,
            lanes_per_row,
            chunks_per_lane,
            rows_per_step,
            steps,
        }
    }

    /// Elements of a row that one lane holds.
    pub const fn columns(&self) -> u32 {
        self.chunk * self.chunks_per_lane
    }

    /// Tokens per stage of one warp.
    pub const fn stage_tokens(&self) -> u32 {
        self.rows_per_step * self.steps
    }

    /// Bytes of shared memory that one warp's K (or V) of one stage takes.
    pub const fn stage_bytes(&self) -> u32 {
        self.steps * self.chunks_per_lane * WARP * 16
    }
}

/// Dynamic shared memory of a decode entry in bytes: the ring of stages, later overlaid by one
/// partial state per lane row and head. Does not depend on the context length.
pub const fn decode_shared_bytes(dtype: DType, head_dim: u32, heads_per_tile: u32) -> u32 {
    let map = LaneMap::new(head_dim, dtype.bytes());
    let ring = WARPS * STAGES * 2 * map.stage_bytes();
    max(ring, partial_bytes(map, head_dim, heads_per_tile))
}

/// Dynamic shared memory of a merge entry in bytes: one partial state per lane row.
pub const fn merge_shared_bytes(head_dim: u32) -> u32 {
    partial_bytes(LaneMap::new(head_dim, 4), head_dim, 1)
}

/// Shared memory for one (maximum, denominator, output) state per lane row and head, in bytes.
const fn partial_bytes(map: LaneMap, head_dim: u32, heads: u32) -> u32 {
    WARPS * map.rows_per_step * heads * (head_dim + 2) * 4
}

/// CTAs that serve one kv head of one sequence and split.
pub const fn head_tiles(group_size: u32, heads_per_tile: u32) -> u32 {
    group_size.div_ceil(heads_per_tile)
}

/// Grid of a decode launch: (sequences, kv heads × head tiles, splits). `None` on overflow of a dimension.
pub fn decode_grid(
    variant: &DecodeVariant,
    num_seqs: u32,
    num_kv_heads: u32,
    group_size: u32,
    num_splits: u32,
) -> Option<[u32; 3]> {
    let tiles = head_tiles(group_size, variant.heads_per_tile);
    let y = num_kv_heads
        .checked_mul(tiles)
        .filter(|&y| y <= MAX_GRID_YZ)?;
    (num_seqs <= i32::MAX as u32 && num_splits <= MAX_SPLITS).then_some([num_seqs, y, num_splits])
}

/// Grid of a merge launch: (sequences, query heads, 1). `None` on overflow of a dimension.
pub fn merge_grid(num_seqs: u32, num_q_heads: u32) -> Option<[u32; 3]> {
    (num_seqs <= i32::MAX as u32 && num_q_heads <= MAX_GRID_YZ).then_some([
        num_seqs,
        num_q_heads,
        1,
    ])
}

/// The grid rules in words, for the manifest.
pub const DECODE_GRID_RULE: &str = "[num_seqs, num_kv_heads * head_tiles, num_splits]";
/// The grid rule of `merge` in words, for the manifest.
pub const MERGE_GRID_RULE: &str = "[num_seqs, num_q_heads, 1]";

const fn min(a: u32, b: u32) -> u32 {
    if a < b { a } else { b }
}

const fn max(a: u32, b: u32) -> u32 {
    if a > b { a } else { b }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::variants::DECODE;

    #[test]
    fn lane_maps_cover_every_row_once() {
        for v in DECODE {
            let map = LaneMap::new(v.head_dim, v.dtype.bytes());
            assert_eq!(v.head_dim % map.chunk, 0, "{}", v.entry);
            assert!(
                map.lanes_per_row.is_power_of_two() && map.lanes_per_row <= WARP,
                "{}",
                v.entry
            );
            assert!(
                map.lanes_per_row * map.chunks_per_lane >= map.chunks_per_row,
                "{}",
                v.entry
            );
            assert!(
                map.steps >= 1 && UNIT_TOKENS.is_multiple_of(map.stage_tokens()),
                "{}",
                v.entry
            );
        }
    }

    #[test]
    fn shared_memory_needs_no_opt_in() {
        for v in DECODE {
            let bytes = decode_shared_bytes(v.dtype, v.head_dim, v.heads_per_tile);
            assert!(bytes <= 48 * 1024, "{}: {bytes}", v.entry);
        }
    }

    #[test]
    fn chains_of_additions_stay_within_2048() {
        assert_eq!(MAX_SPLIT_TOKENS / WARPS, 2048);
        assert_eq!(MAX_SPLITS / WARPS, 2048);
    }

    #[test]
    fn grids_past_a_dimension_are_refused() {
        let v = &DECODE[1];
        assert_eq!(v.heads_per_tile, 8);
        assert_eq!(decode_grid(v, 70_000, 1, 64, 3), Some([70_000, 8, 3]));
        assert_eq!(decode_grid(v, 1, 65_535, 9, 1), None);
        assert_eq!(decode_grid(v, 1, 1, 1, MAX_SPLITS + 1), None);
        assert_eq!(merge_grid(1, MAX_GRID_YZ + 1), None);
    }
}
