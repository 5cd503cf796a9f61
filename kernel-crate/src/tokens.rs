//! Where the tokens' K and V rows stand: behind a block table, or side by side.
//!
//! A warp walks over units of `UNIT_TOKENS` tokens and takes each in tiles. A source gives the
//! addresses of a tile's rows. The decode body is generic over it; the contiguous source exists
//! to measure what paging costs.

use core::hint::cold_path;

use crate::abi::DecodeArgs;
use crate::device::math::{advance, element, nounroll, opaque};
use crate::device::{memory, warp};
use crate::geometry::{UNIT_TOKENS, WARP, WARPS};
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

/// Tokens from one of a warp's units to its next: the CTA's other warps take those between.
pub const UNIT_STRIDE: u32 = UNIT_TOKENS * WARPS;

/// Gives the addresses of K and V rows, unit by unit and tile by tile.
pub trait TokenSource {
    /// The source for one sequence and kv head, whose first unit is at token `start` and whose live
    /// tokens end at `end`; `slice` is this lane's part.
    ///
    /// # Safety
    /// The caller's arguments uphold the kernel's contract; all lanes call it together.
    unsafe fn new(
        args: &DecodeArgs,
        seq: u32,
        kv_head: u32,
        slice: LaneSlice,
        start: u32,
        end: u32,
    ) -> Self;

    /// Calls `row(step, k_address, v_address)` for every step of the tile whose first row is
    /// `first` within the unit at token `start`. Tiles come in order, units `UNIT_STRIDE` apart.
    ///
    /// # Safety
    /// All lanes call it together, and `start` is a live token.
    unsafe fn tile<const STEPS: u32, const ROWS: u32>(
        &mut self,
        start: u32,
        first: u32,
        row: impl Fn(u32, u64, u64),
    );
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
        self.k = self
            .k
            .wrapping_add(slot_offset(blocks, rows, k_block, self.k_stride) as u64);
        self.v = self
            .v
            .wrapping_add(slot_offset(blocks, rows, v_block, self.v_stride) as u64);
    }

    /// Calls `row` for `STEPS` rows that are `ROWS` rows apart, and moves behind them if the unit
    /// has more.
    #[inline(always)]
    fn walk<const STEPS: u32, const ROWS: u32>(&mut self, row: impl Fn(u32, u64, u64)) {
        let [k_step, v_step] =
            [self.k_stride, self.v_stride].map(|stride| (ROWS as i64 * stride) as u64);
        for step in 0..STEPS {
            row(step, self.k, self.v);
            if step + 1 < STEPS || STEPS * ROWS < UNIT_TOKENS {
                self.k = advance(self.k, k_step);
                self.v = advance(self.v, v_step);
            }
        }
    }
}

/// Rows behind the block table.
///
/// Each lane looks up one token's block and computes its offsets; the others get them by shuffles.
/// Where blocks are whole units, a unit lies in one block, and the lanes look up the first tokens
/// of the warp's next `WARP` units; else the tokens of one unit. The lookup is issued a whole
/// window before its use.
pub struct Paged {
    /// Where offsets count from: slot 0 of block 0, or with `unit_in_block` the lane's row from there.
    origin: Rows,
    /// The current tile's rows; with `unit_in_block` only.
    rows: Rows,
    lane_row: u32,
    table_row: u64,
    block_size: u32,
    divisor: BlockDivisor,
    /// Bytes from block to block of K and of V.
    block_bytes: [i64; 2],
    /// Every unit lies in one block.
    unit_in_block: bool,
    /// Tokens from one window to the next, and where the next one starts.
    window_tokens: u32,
    next_window: u32,
    /// Tokens from a window's start to the token that this lane looks up.
    ahead: u32,
    /// End of the live tokens.
    end: u32,
    /// Table entry and slot of this lane's token in the next window.
    fetched: (i32, u32),
    /// Offsets in K and V of this lane's token in the current window.
    k_offset: warp::Halves,
    v_offset: warp::Halves,
    /// Units done.
    units: u32,
}

impl Paged {
    /// Starts to fetch the table entries of the window from token `start` on, if any of it is live.
    ///
    /// # Safety
    /// The kernel's arguments uphold its contract.
    #[inline(always)]
    unsafe fn fetch(&mut self, start: u32) {
        if start < self.end {
            // Lanes past the end look at the last live token again: nothing behind it is read.
            let token = core::cmp::min(start + self.ahead, self.end - 1);
            let (column, slot) = self.divisor.column_and_slot(token, self.block_size);
            // SAFETY: the column is that of a live token, so the entry is live.
            let entry = unsafe { memory::load_i32(element(self.table_row, column, 4)) };
            self.fetched = (entry, slot);
        }
    }

    /// Addresses in K and V of the row that lane `owner % WARP` looked up.
    ///
    /// # Safety
    /// All lanes call it together.
    #[inline(always)]
    unsafe fn row_of(&self, owner: u32) -> [u64; 2] {
        // SAFETY: by this function's contract.
        let (k, v) = unsafe {
            (
                self.k_offset.shuffle_from(owner),
                self.v_offset.shuffle_from(owner),
            )
        };
        [self.origin.k.wrapping_add(k), self.origin.v.wrapping_add(v)]
    }
}

impl TokenSource for Paged {
    #[inline(always)]
    unsafe fn new(
        args: &DecodeArgs,
        seq: u32,
        kv_head: u32,
        slice: LaneSlice,
        start: u32,
        end: u32,
    ) -> Self {
        let unit_in_block = args.block_size.is_multiple_of(UNIT_TOKENS);
        let mut origin = Rows::new(args, kv_head, slice);
        if unit_in_block {
            origin.skip(0, [0, 0], slice.row);
        }
        let bytes = slice.bytes as i64;
        let lane = warp::thread() % WARP;
        let mut source = Self {
            origin,
            rows: origin,
            lane_row: slice.row,
            table_row: args
                .block_table
                .wrapping_add((seq as i64 * args.table_stride * 4) as u64),
            block_size: args.block_size,
            // Opaque, or LLVM loads both in one piece and takes them apart at every use.
            divisor: BlockDivisor {
                magic: opaque(args.block_magic),
                shift: args.block_shift % 32,
            },
            block_bytes: [args.k_block_stride * bytes, args.v_block_stride * bytes],
            unit_in_block,
            window_tokens: if unit_in_block {
                WARP * UNIT_STRIDE
            } else {
                UNIT_STRIDE
            },
            next_window: start,
            ahead: if unit_in_block {
                lane * UNIT_STRIDE
            } else {
                lane % UNIT_TOKENS
            },
            end,
            fetched: (0, 0),
            k_offset: warp::Halves::new(0),
            v_offset: warp::Halves::new(0),
            units: 0,
        };
        // SAFETY: by this function's contract.
        unsafe { source.fetch(start) };
        source
    }

    #[inline(always)]
    unsafe fn tile<const STEPS: u32, const ROWS: u32>(
        &mut self,
        start: u32,
        first: u32,
        row: impl Fn(u32, u64, u64),
    ) {
        if first == 0 && start == self.next_window {
            cold_path();
            let mut place = Rows {
                k: 0,
                v: 0,
                ..self.origin
            };
            place.skip(self.fetched.0, self.block_bytes, self.fetched.1);
            self.k_offset = warp::Halves::new(place.k);
            self.v_offset = warp::Halves::new(place.v);
            self.next_window = start + self.window_tokens;
            // SAFETY: by this function's contract.
            unsafe { self.fetch(self.next_window) };
        }
        if self.unit_in_block {
            if first == 0 {
                // SAFETY: `block_size` and `first` are the same for all lanes, so all of them are here.
                [self.rows.k, self.rows.v] = unsafe { self.row_of(self.units) };
            }
            self.rows.walk::<STEPS, ROWS>(row);
        } else {
            // Small and odd block sizes. Kept rolled: the code is rarely used, and long.
            cold_path();
            for step in 0..opaque(STEPS) {
                nounroll();
                // SAFETY: as above.
                let [k, v] = unsafe { self.row_of(first + step * ROWS + self.lane_row) };
                row(step, k, v);
            }
        }
        if first + STEPS * ROWS == UNIT_TOKENS {
            self.units += 1;
        }
    }
}

/// Rows of one sequence side by side: token t at `seq * block_stride + t * token_stride`.
pub struct Contiguous {
    /// The lane's row of the first token of the next unit.
    next: Rows,
    /// The current tile's rows.
    rows: Rows,
}

impl TokenSource for Contiguous {
    #[inline(always)]
    unsafe fn new(
        args: &DecodeArgs,
        seq: u32,
        kv_head: u32,
        slice: LaneSlice,
        start: u32,
        _end: u32,
    ) -> Self {
        let mut next = Rows::new(args, kv_head, slice);
        let bytes = slice.bytes as i64;
        let sequence_bytes = [args.k_block_stride * bytes, args.v_block_stride * bytes];
        next.skip(seq as i32, sequence_bytes, start + slice.row);
        Self { next, rows: next }
    }

    #[inline(always)]
    unsafe fn tile<const STEPS: u32, const ROWS: u32>(
        &mut self,
        _start: u32,
        first: u32,
        row: impl Fn(u32, u64, u64),
    ) {
        if first == 0 {
            self.rows = self.next;
            self.next.skip(0, [0, 0], UNIT_STRIDE);
        }
        self.rows.walk::<STEPS, ROWS>(row);
    }
}
