//! Launch geometry of the kernels: grid, block and shared memory, once for host and device.

use crate::variants::{CacheKind, DecodeKind, DecodeVariant};

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
/// 16-byte chunks of a block that one CTA of `copy_blocks` copies: 32 KiB.
pub const COPY_SLICE: u32 = 2048;
/// Tokens that one CTA of `gather_cache` copies.
pub const GATHER_TOKENS: u32 = 16;
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

    /// Steps that share one update of the softmax: all of a stage for one head, two for a tile of
    /// heads, whose scores would take too many registers.
    pub const fn batch(&self, heads_per_tile: u32) -> u32 {
        if heads_per_tile == 1 {
            self.steps
        } else {
            min(self.steps, 2)
        }
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

/// How a warp copies 16 tokens of K or V for the tensor cores, and how they stand in shared memory.
///
/// At most 8 lanes read one row: 128 neighbouring bytes, and the fewer row addresses the fewer
/// instructions. A row in shared memory is one chunk longer than the data, so that the 8 rows that
/// `ldmatrix` reads at once lie in different banks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileMap {
    /// Lanes that read one row.
    pub lanes_per_row: u32,
    /// 16-byte chunks that one lane reads of a row (`lanes_per_row` chunks apart).
    pub chunks_per_lane: u32,
    /// Rows that the warp reads in one step.
    pub rows_per_step: u32,
    /// Steps per tile of [`UNIT_TOKENS`] tokens.
    pub steps: u32,
    /// Bytes from one row to the next in shared memory.
    pub row_bytes: u32,
}

impl TileMap {
    /// The map for rows of `head_dim` 16-bit elements; `head_dim` is a multiple of 16.
    pub const fn new(head_dim: u32) -> Self {
        let chunks = head_dim / 8;
        let lanes_per_row = min(1 << chunks.trailing_zeros(), 8);
        let rows_per_step = min(WARP / lanes_per_row, UNIT_TOKENS);
        Self {
            lanes_per_row,
            chunks_per_lane: chunks / lanes_per_row,
            rows_per_step,
            steps: UNIT_TOKENS / rows_per_step,
            row_bytes: (chunks + 1) * 16,
        }
    }

    /// Bytes of one tile of K or of V in shared memory.
    pub const fn tile_bytes(&self) -> u32 {
        UNIT_TOKENS * self.row_bytes
    }
}

/// Where partial states stand in shared memory: the outputs f32 `[rows][heads][stride]`, then
/// (maximum, denominator) f32 `[rows][heads][2]`. Offsets are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateArea {
    rows: u32,
    heads: u32,
    stride: u32,
}

impl StateArea {
    /// One state per lane row of the CTA and head.
    pub const fn of_lane_rows(map: LaneMap, head_dim: u32, heads: u32) -> Self {
        Self {
            rows: WARPS * map.rows_per_step,
            heads,
            stride: head_dim,
        }
    }

    /// One state per token part and head, of all head warps together. The stride keeps the rows of
    /// a tensor-core fragment in different banks.
    pub const fn of_mma(head_dim: u32, head_warps: u32) -> Self {
        Self {
            rows: WARPS / head_warps,
            heads: head_warps * MMA_ROWS,
            stride: head_dim + 8,
        }
    }

    /// Offset of a column of a state's output.
    #[inline(always)]
    pub const fn acc(&self, row: u32, head: u32, column: u32) -> u32 {
        ((row * self.heads + head) * self.stride + column) * 4
    }

    /// Offset of a state's (maximum, denominator).
    #[inline(always)]
    pub const fn pair(&self, row: u32, head: u32) -> u32 {
        (self.rows * self.heads * self.stride + (row * self.heads + head) * 2) * 4
    }

    /// Bytes in all.
    pub const fn bytes(&self) -> u32 {
        self.rows * self.heads * (self.stride + 2) * 4
    }
}

/// Dynamic shared memory of a decode entry in bytes: the ring of stages, later overlaid by the
/// partial states. Does not depend on the context length.
pub const fn decode_shared_bytes(variant: &DecodeVariant) -> u32 {
    let DecodeVariant {
        dtype,
        head_dim,
        heads_per_tile,
        ..
    } = *variant;
    match variant.kind {
        DecodeKind::CudaCore => {
            let map = LaneMap::new(head_dim, dtype.bytes());
            let ring = WARPS * STAGES * 2 * map.stage_bytes();
            max(
                ring,
                StateArea::of_lane_rows(map, head_dim, heads_per_tile).bytes(),
            )
        }
        DecodeKind::TensorCore => {
            let ring = WARPS * STAGES * 2 * TileMap::new(head_dim).tile_bytes();
            max(ring, StateArea::of_mma(head_dim, 1).bytes())
        }
    }
}

/// Dynamic shared memory of a merge entry in bytes: one partial state per lane row.
pub const fn merge_shared_bytes(head_dim: u32) -> u32 {
    StateArea::of_lane_rows(LaneMap::new(head_dim, 4), head_dim, 1).bytes()
}

/// Rows of a tensor-core product: query heads that one warp serves.
pub const MMA_ROWS: u32 = 16;

/// Warps of a tensor-core CTA that take different query heads of the same tokens: 1, 2 or 4. The
/// remaining factor of [`WARPS`] takes different tokens.
#[inline(always)]
pub const fn head_warps(group_size: u32) -> u32 {
    if group_size <= MMA_ROWS {
        1
    } else if group_size <= 2 * MMA_ROWS {
        2
    } else {
        WARPS
    }
}

/// Query heads that one CTA serves.
pub const fn heads_per_cta(variant: &DecodeVariant, group_size: u32) -> u32 {
    match variant.kind {
        DecodeKind::CudaCore => variant.heads_per_tile,
        DecodeKind::TensorCore => variant.heads_per_tile * head_warps(group_size),
    }
}

/// CTAs that serve one kv head of one sequence and split.
pub const fn head_tiles(variant: &DecodeVariant, group_size: u32) -> u32 {
    group_size.div_ceil(heads_per_cta(variant, group_size))
}

/// Grid of a decode launch: (sequences, kv heads × head tiles, splits). `None` on overflow of a dimension.
pub fn decode_grid(
    variant: &DecodeVariant,
    num_seqs: u32,
    num_kv_heads: u32,
    group_size: u32,
    num_splits: u32,
) -> Option<[u32; 3]> {
    let tiles = head_tiles(variant, group_size);
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

/// The grid rule of `decode` in words, for the manifest.
pub const fn decode_grid_rule(kind: DecodeKind) -> &'static str {
    match kind {
        DecodeKind::CudaCore => {
            "[num_seqs, num_kv_heads * head_tiles, num_splits]; \
             head_tiles = ceil(group_size / heads_per_tile)"
        }
        DecodeKind::TensorCore => {
            "[num_seqs, num_kv_heads * head_tiles, num_splits]; \
             head_tiles = ceil(group_size / (heads_per_tile * head_warps)), \
             head_warps = 1 if group_size <= 16, 2 if group_size <= 32, else 4"
        }
    }
}
/// The grid rule of `merge` in words, for the manifest.
pub const MERGE_GRID_RULE: &str = "[num_seqs, num_q_heads, 1]";

/// Grid of a `reshape_and_cache` launch. `None` on overflow of a dimension.
pub fn reshape_and_cache_grid(num_tokens: u32) -> Option<[u32; 3]> {
    (num_tokens <= i32::MAX as u32).then_some([num_tokens, 2, 1])
}

/// Grid of a `copy_blocks` launch. `None` on overflow of a dimension.
pub fn copy_blocks_grid(num_pairs: u32, num_caches: u32, block_chunks: u32) -> Option<[u32; 3]> {
    let slices = block_chunks.div_ceil(COPY_SLICE);
    let fits = num_pairs <= i32::MAX as u32 && num_caches.max(slices) <= MAX_GRID_YZ;
    fits.then_some([num_pairs, num_caches, slices])
}

/// Grid of a `gather_cache` launch. `None` on overflow of a dimension.
pub fn gather_cache_grid(num_seqs: u32, max_seq_len: u32) -> Option<[u32; 3]> {
    let parts = max_seq_len.div_ceil(GATHER_TOKENS);
    (num_seqs <= i32::MAX as u32 && parts <= MAX_GRID_YZ).then_some([num_seqs, parts, 2])
}

/// The grid rule of a cache entry in words, for the manifest.
pub const fn cache_grid_rule(kind: CacheKind) -> &'static str {
    match kind {
        CacheKind::ReshapeAndCache => "[num_tokens, 2, 1]",
        CacheKind::CopyBlocks => "[num_pairs, num_caches, ceil(block_chunks / 2048)]",
        CacheKind::GatherCache => "[num_seqs, ceil(max_seq_len / 16), 2]",
    }
}

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
        for v in DECODE.iter().filter(|v| v.kind == DecodeKind::CudaCore) {
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
            assert!(
                map.steps.is_multiple_of(map.batch(v.heads_per_tile)),
                "{}",
                v.entry
            );
        }
    }

    #[test]
    fn the_grid_rule_in_words_says_what_the_functions_compute() {
        for v in DECODE {
            let rule = decode_grid_rule(v.kind);
            assert!(rule.starts_with("[num_seqs, num_kv_heads * head_tiles, num_splits]"));
            for group in 1..=71 {
                let warps = if group <= 16 {
                    1
                } else if group <= 32 {
                    2
                } else {
                    4
                };
                let heads = match v.kind {
                    DecodeKind::CudaCore => {
                        assert!(rule.ends_with("head_tiles = ceil(group_size / heads_per_tile)"));
                        v.heads_per_tile
                    }
                    DecodeKind::TensorCore => {
                        assert!(
                            rule.ends_with("1 if group_size <= 16, 2 if group_size <= 32, else 4")
                        );
                        v.heads_per_tile * warps
                    }
                };
                assert_eq!(
                    head_tiles(v, group),
                    group.div_ceil(heads),
                    "{} {group}",
                    v.entry
                );
                assert_eq!(
                    decode_grid(v, 3, 2, group, 5),
                    Some([3, 2 * group.div_ceil(heads), 5])
                );
            }
        }
    }

    #[test]
    fn tile_maps_cover_every_row_once() {
        for v in DECODE.iter().filter(|v| v.kind == DecodeKind::TensorCore) {
            let map = TileMap::new(v.head_dim);
            assert_eq!(v.head_dim % 16, 0, "{}", v.entry);
            assert_eq!(
                map.lanes_per_row * map.chunks_per_lane * 8,
                v.head_dim,
                "{}",
                v.entry
            );
            assert_eq!(map.rows_per_step * map.steps, UNIT_TOKENS, "{}", v.entry);
            // Rows an odd number of chunks apart: 8 of them start in 8 different bank groups.
            assert_eq!(map.row_bytes / 16 % 2, 1, "{}", v.entry);
        }
    }

    #[test]
    fn states_fit_the_shared_memory_for_every_group() {
        for v in DECODE.iter().filter(|v| v.kind == DecodeKind::TensorCore) {
            for group in [1, 16, 17, 32, 33, 64, 71] {
                let area = StateArea::of_mma(v.head_dim, head_warps(group));
                assert!(
                    area.bytes() <= decode_shared_bytes(v),
                    "{} group {group}",
                    v.entry
                );
            }
        }
    }

    #[test]
    fn shared_memory_fits_every_device_since_sm_80() {
        for v in DECODE {
            let bytes = decode_shared_bytes(v);
            // 99 KiB is the most that a CTA gets on sm_86, sm_89 and sm_120; 48 KiB without opting in.
            assert!(bytes <= 99 * 1024, "{}: {bytes}", v.entry);
            assert!(
                v.kind == DecodeKind::TensorCore || bytes <= 48 * 1024,
                "{}: {bytes}",
                v.entry
            );
        }
    }

    #[test]
    fn chains_of_additions_stay_within_2048() {
        assert_eq!(MAX_SPLIT_TOKENS / WARPS, 2048);
        assert_eq!(MAX_SPLITS / WARPS, 2048);
    }

    #[test]
    fn grids_of_the_cache_kernels_cover_all_and_fit() {
        assert_eq!(reshape_and_cache_grid(70_000), Some([70_000, 2, 1]));
        assert_eq!(copy_blocks_grid(3, 64, 2049), Some([3, 64, 2]));
        assert_eq!(copy_blocks_grid(3, MAX_GRID_YZ + 1, 1), None);
        assert_eq!(copy_blocks_grid(3, 1, COPY_SLICE * MAX_GRID_YZ + 1), None);
        assert_eq!(gather_cache_grid(70_000, 17), Some([70_000, 2, 2]));
        assert_eq!(gather_cache_grid(1, GATHER_TOKENS * MAX_GRID_YZ + 1), None);
        assert!(cache_grid_rule(CacheKind::CopyBlocks).contains(" 2048)") && COPY_SLICE == 2048);
        assert!(cache_grid_rule(CacheKind::GatherCache).contains(" 16)") && GATHER_TOKENS == 16);
    }

    #[test]
    fn grids_past_a_dimension_are_refused() {
        let v = &DECODE[1];
        assert_eq!((v.kind, v.heads_per_tile), (DecodeKind::CudaCore, 8));
        assert_eq!(decode_grid(v, 70_000, 1, 64, 3), Some([70_000, 8, 3]));
        assert_eq!(decode_grid(v, 1, 65_535, 9, 1), None);
        assert_eq!(decode_grid(v, 1, 1, 1, MAX_SPLITS + 1), None);
        assert_eq!(merge_grid(1, MAX_GRID_YZ + 1), None);
    }
}
