//! What the cache kernels ask of memory, in exact counts from the emulator.

use paged_attention::{CacheLayout, DType};
use ptx_emulator::{Counters, SectorCounts};

use super::case::CacheCase;
use super::runner::launch;
use super::world::{Call, Table, World};
use crate::backend::{Ptx, sets};
use crate::case::{Pool, Rows};

sets!(
    written_rows_are_requested_once_16_bytes_at_a_time,
    copied_blocks_are_requested_once_16_bytes_at_a_time,
    gathered_rows_are_requested_once_16_bytes_at_a_time,
    packed_rows_cost_no_more_than_dense_ones,
);

/// Tokens of the calls; more than a CTA of the gathering takes.
const TOKENS: usize = 40;

/// 16-byte accesses of a warp: a request moves 512 bytes where there are so many.
fn requests(chunks: usize) -> u64 {
    chunks.div_ceil(32) as u64
}

/// Runs a call and gives its counters.
#[track_caller]
fn counters(ptx: &Ptx, world: &mut World, call: &Call<'_>) -> Counters {
    let expected = world.after(call);
    let report = launch(ptx, world, call).unwrap_or_else(|e| panic!("{e}\n{:?}", world.case));
    world.same(&expected).unwrap();
    report.expect("a launch").counters
}

/// Sums over K and V: `[from, to]`.
fn sums(counters: &Counters, from: [&str; 2], to: [&str; 2]) -> [SectorCounts; 2] {
    [from, to].map(|names| {
        let mut sum = SectorCounts::default();
        for name in names {
            let counts = counters.allocations[name];
            sum.requests += counts.requests;
            sum.loaded += counts.loaded;
            sum.stored += counts.stored;
        }
        sum
    })
}

/// Whole sectors: every byte is asked for once, 32 at a time. Otherwise the ends of a request, and
/// of a row if rows lie apart, may share a sector with something else.
#[track_caller]
fn near_the_least(case: &CacheCase, [from, to]: [SectorCounts; 2], bytes: usize, expected: u64) {
    assert_eq!([from.requests, to.requests], [expected; 2], "{case:?}");
    let least = bytes.div_ceil(32) as u64;
    let spare = match case.row().is_multiple_of(32) && case.pool == Pool::Dense {
        true => 0,
        false => expected + (bytes / case.row()) as u64,
    };
    for sectors in [from.loaded, to.stored] {
        println!("{sectors} sectors, {least} at least: {case:?}");
        assert!((least..=least + spare).contains(&sectors), "{case:?}");
    }
}

/// Shapes whose rows are whole sectors, and one whose rows are not.
fn cases() -> impl Iterator<Item = CacheCase> {
    let shapes = [
        (DType::F16, 128, 8, 16),
        (DType::F32, 64, 2, 16),
        (DType::Bf16, 256, 1, 7),
        (DType::F16, 40, 5, 16),
    ];
    shapes
        .into_iter()
        .flat_map(|(dtype, head_dim, heads, block_size)| {
            let orders = [CacheLayout::Nhd, CacheLayout::Hnd];
            let pools = [Pool::Dense, Pool::Padded];
            orders.into_iter().flat_map(move |order| {
                pools.into_iter().map(move |pool| CacheCase {
                    heads,
                    head_dim,
                    order,
                    pool,
                    ..CacheCase::new(dtype, 9, block_size)
                })
            })
        })
}

fn chunks(case: &CacheCase) -> usize {
    case.heads * case.row() / 16
}

fn written_rows_are_requested_once_16_bytes_at_a_time(ptx: &Ptx) {
    for case in cases() {
        let mut world = World::new(&case);
        let (caches, rows) = (world.caches(true), world.rows(TOKENS + 3));
        // Every other row is skipped, and must not be looked at.
        let num_slots = case.num_slots();
        let slot = |token: usize| (token * 11 % num_slots) as i64;
        let slots: Vec<i64> = (0..TOKENS)
            .map(|token| if token % 2 == 0 { slot(token) } else { -1 })
            .collect();
        let call = Call::Write {
            rows: &rows,
            caches: &caches,
            slots: &slots,
        };
        let counters = counters(ptx, &mut world, &call);
        let sums = sums(&counters, ["k", "v"], ["k_cache", "v_cache"]);
        let bytes = TOKENS / 2 * 2 * case.heads * case.row();
        let expected = TOKENS as u64 / 2 * 2 * requests(chunks(&case));
        near_the_least(&case, sums, bytes, expected);
        // One slot per CTA.
        let slots = counters.allocations["slot_mapping"];
        assert!(slots.loaded <= 4 * 2 * TOKENS as u64, "{slots:?}");
    }
}

fn copied_blocks_are_requested_once_16_bytes_at_a_time(ptx: &Ptx) {
    for case in cases() {
        let mut world = World::new(&case);
        let caches = world.caches(false);
        let call = Call::Copy {
            caches: &caches,
            pairs: &[[8, 0], [7, 1], [8, 2]],
        };
        let counters = counters(ptx, &mut world, &call);
        let both = ["k_cache", "v_cache"];
        let [mut sums, _] = sums(&counters, both, both);
        // Loads and stores go to the same buffers.
        assert_eq!(sums.requests % 2, 0);
        sums.requests /= 2;
        let block = case.block_size * case.heads * case.row();
        assert!(block <= 32 << 10, "one slice per block");
        let expected = 3 * 2 * requests(block / 16);
        near_the_least(&case, [sums; 2], 3 * 2 * block, expected);
    }
}

fn gathered_rows_are_requested_once_16_bytes_at_a_time(ptx: &Ptx) {
    for case in cases() {
        let mut world = World::new(&case);
        let (caches, rows) = (world.caches(true), world.rows(TOKENS));
        let table = Table {
            entries: vec![8, 1, 5, 3, 0, 2],
            num_seqs: 1,
            width: 6,
            stride: 6,
        };
        let call = Call::Gather {
            caches: &caches,
            table: &table,
            lens: &[TOKENS as i32],
            rows: &rows,
        };
        let counters = counters(ptx, &mut world, &call);
        let sums = sums(&counters, ["k_cache", "v_cache"], ["k", "v"]);
        // CTAs of 16 tokens, the last one of 8.
        let ctas = [16, 16, 8].map(|tokens| requests(tokens * chunks(&case)));
        let expected = 2 * ctas.iter().sum::<u64>();
        near_the_least(&case, sums, 2 * TOKENS * case.heads * case.row(), expected);
        // A warp looks its tokens' blocks up once per request: all in one sector of this table.
        let entries = counters.allocations["block_table"];
        assert_eq!(entries.loaded, expected, "{case:?}");
    }
}

/// Packed rows of q, k and v: q is not looked at.
fn packed_rows_cost_no_more_than_dense_ones(ptx: &Ptx) {
    let case = CacheCase {
        heads: 8,
        head_dim: 128,
        rows: Rows::PackedQkv,
        ..CacheCase::new(DType::F16, 9, 16)
    };
    let mut world = World::new(&case);
    let (caches, rows) = (world.caches(true), world.rows(TOKENS));
    let slots: Vec<i64> = (0..TOKENS as i64).collect();
    let call = Call::Write {
        rows: &rows,
        caches: &caches,
        slots: &slots,
    };
    let counters = counters(ptx, &mut world, &call);
    let bytes = 2 * TOKENS * case.heads * case.row();
    assert_eq!(counters.allocations["qkv"].loaded, bytes as u64 / 32);
}
