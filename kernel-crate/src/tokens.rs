//! Where the tokens' K and V rows stand: behind a block table, or side by side.
//!
//! A warp walks over units of `UNIT_TOKENS` tokens and takes each in tiles. A source gives the
//! addresses of a tile's rows. The decode body is generic over it; the contiguous source exists
//! to measure what paging costs.

use crate::abi::DecodeArgs;
use crate::device::math::{advance, nounroll, opaque};
use crate::device::{memory, warp};
use crate::geometry::UNIT_TOKENS;
use crate::offsets::{BlockDivisor, slot_offset};

/// Which part of the rows a lane reads.
#[derive(Clone, Copy)]
pub struct LaneSlice {
    /// Row of a step that the lane takes part in, `0..rows_per_step`.
    pub row: u32,
    /// Elements from the row's start to the lane's first chunk.
    pub column: u32,
    /// Bytes per element.
    pub bytes: u32,
}

/// Gives the addresses of K and V rows, unit by unit and tile by tile.
pub trait TokenSource {
    /// The source for one sequence and kv head; `slice` is this lane's part.
    fn new(args: &DecodeArgs, seq: u32, kv_head: u32, slice: LaneSlice) -> Self;

    /// Starts to fetch what [`enter`](Self::enter) needs for the unit at token `start`, if `start < end`.
    ///
    /// # Safety
    /// The caller's arguments uphold the kernel's contract; all lanes call it together.
    unsafe fn fetch(&mut self, start: u32, end: u32);

    /// Enters the unit at token `start`, the one that was fetched last.
    fn enter(&mut self, start: u32);

    /// Calls `row(step, k_address, v_address)` for every step of the tile whose first row is
    /// `first` within the unit, then moves on by the tile.
    ///
    /// # Safety
    /// All lanes call it together.
    unsafe fn tile<const STEPS: u32, const ROWS: u32>(&mut self, first: u32, row: impl Fn(u32, u64, u64));
}

/// Addresses of one lane's chunks of the first row of a tile, and the bytes from row to row.
#[derive(Clone, Copy)]
struct Rows {
    k: u64,
    v: u64,
    k_stride: i64,
    v_stride: i64,
}

impl Rows {
    /// The row of slot 0 of block 0.
    #[inline(always)]
    fn new(args: &DecodeArgs, kv_head: u32, slice: LaneSlice) -> Self {
        let bytes = slice.bytes as i64;
        let at = |base: u64, head_stride: i64| {
            base.wrapping_add(((kv_head as i64 * head_stride + slice.column as i64) * bytes) as u64)
        };
        Self {
            k: at(args.k_cache, args.k_head_stride),
            v: at(args.v_cache, args.v_head_stride),
            k_stride: args.k_token_stride * bytes,
            v_stride: args.v_token_stride * bytes,
        }
    }

    /// Moves on by `blocks` blocks of the given bytes and by `rows` rows.
    #[inline(always)]
    fn skip(&mut self, blocks: i32, [k_block, v_block]: [i64; 2], rows: u32) {
        self.k = self.k.wrapping_add(slot_offset(blocks, rows, k_block, self.k_stride) as u64);
        self.v = self.v.wrapping_add(slot_offset(blocks, rows, v_block, self.v_stride) as u64);
    }

    /// Calls `row` for `STEPS` rows that are `ROWS` rows apart, and moves behind them.
    #[inline(always)]
    fn walk<const STEPS: u32, const ROWS: u32>(&mut self, row: impl Fn(u32, u64, u64)) {
        let [k_step, v_step] = [self.k_stride, self.v_stride].map(|stride| (ROWS as i64 * stride) as u64);
        for step in 0..STEPS {
            row(step, self.k, self.v);
            self.k = advance(self.k, k_step);
            self.v = advance(self.v, v_step);
        }
    }
}

/// Rows behind the block table.
pub struct Paged {
    /// Slot 0 of block 0, this lane's chunk.
    pool: Rows,
    /// The current tile's rows, when its unit lies in one block.
    rows: Rows,
    lane_row: u32,
    table_row: u64,
    block_size: u32,
    divisor: BlockDivisor,
    /// Bytes from block to block of K and of V.
    block_bytes: [i64; 2],
    /// Every unit lies in one block: blocks are whole units, and so are splits.
    unit_in_block: bool,
    /// Table entry and slot of token `lane % UNIT_TOKENS` of the fetched unit; with
    /// `unit_in_block` the slot of the unit's first token.
    fetched: (i32, u32),
    /// The same of the entered unit.
    entered: (i32, u32),
}

impl TokenSource for Paged {
    #[inline(always)]
    fn new(args: &DecodeArgs, seq: u32, kv_head: u32, slice: LaneSlice) -> Self {
        let pool = Rows::new(args, kv_head, slice);
        let bytes = slice.bytes as i64;
        Self {
            pool,
            rows: pool,
            lane_row: slice.row,
            table_row: args.block_table.wrapping_add((seq as i64 * args.table_stride * 4) as u64),
            block_size: args.block_size,
            divisor: BlockDivisor { magic: args.block_magic, shift: args.block_shift },
            block_bytes: [args.k_block_stride * bytes, args.v_block_stride * bytes],
            unit_in_block: args.block_size % UNIT_TOKENS == 0,
            fetched: (0, 0),
            entered: (0, 0),
        }
    }

    #[inline(always)]
    unsafe fn fetch(&mut self, start: u32, end: u32) {
        if start < end {
            // Lanes past the end look at the last live token again: nothing behind it is read.
            let ahead = core::cmp::min(warp::thread() % UNIT_TOKENS, end - 1 - start);
            let (column, slot) = self.divisor.column_and_slot(start + ahead, self.block_size);
            // SAFETY: the column is that of a live token, so the entry is live.
            let entry = unsafe { memory::load_i32(self.table_row + column as u64 * 4) };
            let slot = if self.unit_in_block { slot.wrapping_sub(ahead) } else { slot };
            self.fetched = (entry, slot);
        }
    }

    #[inline(always)]
    fn enter(&mut self, _start: u32) {
        self.entered = self.fetched;
        if self.unit_in_block {
            let (entry, slot) = self.entered;
            self.rows.k = self.pool.k;
            self.rows.v = self.pool.v;
            self.rows.skip(entry, self.block_bytes, slot + self.lane_row);
        }
    }

    #[inline(always)]
    unsafe fn tile<const STEPS: u32, const ROWS: u32>(
        &mut self,
        first: u32,
        row: impl Fn(u32, u64, u64),
    ) {
        if self.unit_in_block {
            self.rows.walk::<STEPS, ROWS>(row);
            return;
        }
        // Small and odd block sizes. Kept rolled: the code is rarely used, and long.
        for step in 0..opaque(STEPS) {
            nounroll();
            let owner = first + step * ROWS + self.lane_row;
            // SAFETY: `block_size` is the same for all lanes, so all of them are here.
            let (entry, slot) = unsafe {
                (
                    warp::shuffle_from(self.entered.0 as u32, owner) as i32,
                    warp::shuffle_from(self.entered.1, owner),
                )
            };
            let mut place = self.pool;
            place.skip(entry, self.block_bytes, slot);
            row(step, place.k, place.v);
        }
    }
}

/// Rows of one sequence side by side: token t at `seq * block_stride + t * token_stride`.
pub struct Contiguous {
    first: Rows,
    rows: Rows,
}

impl TokenSource for Contiguous {
    #[inline(always)]
    fn new(args: &DecodeArgs, seq: u32, kv_head: u32, slice: LaneSlice) -> Self {
        let mut first = Rows::new(args, kv_head, slice);
        let bytes = slice.bytes as i64;
        let sequence_bytes = [args.k_block_stride * bytes, args.v_block_stride * bytes];
        first.skip(seq as i32, sequence_bytes, slice.row);
        Self { first, rows: first }
    }

    #[inline(always)]
    unsafe fn fetch(&mut self, _start: u32, _end: u32) {}

    #[inline(always)]
    fn enter(&mut self, start: u32) {
        self.rows = self.first;
        self.rows.skip(0, [0, 0], start);
    }

    #[inline(always)]
    unsafe fn tile<const STEPS: u32, const ROWS: u32>(
        &mut self,
        _first: u32,
        row: impl Fn(u32, u64, u64),
    ) {
        self.rows.walk::<STEPS, ROWS>(row);
    }
}
