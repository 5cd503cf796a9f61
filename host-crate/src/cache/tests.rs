use proptest::prelude::*;

use super::*;
use crate::cpu;
use crate::pool::{BlockCopy, BlockPool, SequenceBlocks};
use crate::{AttentionConfig, DType, DecodeInputs, DeviceLimits, Plan, SplitPolicy, contiguous};

const D: usize = 4;
const NAN: f32 = f32::NAN;

/// Rows of one head whose elements are all the row's number, from 1 on.
fn rows(count: usize) -> Vec<f32> {
    (0..count * D).map(|i| (i / D + 1) as f32).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn write(slots: &[i64], pool: &mut [f32], num_rows: usize) -> Result<(), Error> {
    let rows = rows(num_rows);
    let rows = RowsView::contiguous(&rows, num_rows, 1, D);
    let cache = CacheViewMut::dense(pool, CacheLayout::Nhd, 3, 4, 1, D);
    cpu::reshape_and_cache(rows, cache, slots)
}

#[test]
fn only_the_slots_of_the_mapping_change_and_padding_is_ignored() {
    for slots in [&[3, -1, 7][..], &[3, -1, 7, -1]] {
        let mut pool = vec![NAN; 12 * D];
        write(slots, &mut pool, 4).unwrap();
        let mut expected = vec![NAN; 12 * D];
        expected[3 * D..4 * D].fill(1.0);
        expected[7 * D..8 * D].fill(3.0);
        assert_eq!(bits(&pool), bits(&expected));
    }
}

#[test]
fn slots_that_cannot_be_written_are_refused_and_nothing_changes() {
    let mut pool = vec![NAN; 12 * D];
    let before = bits(&pool);
    let op = Op::ReshapeAndCache;
    let error = write(&[0, 1, 12], &mut pool, 3).unwrap_err();
    assert_eq!(
        error.to_string(),
        "reshape_and_cache: slot_mapping[2] = 12, must be < 3 blocks × block_size 4"
    );
    let (num_blocks, block_size) = (3, 4);
    assert_eq!(
        error,
        Error::Slot {
            op,
            index: 2,
            value: 12,
            num_blocks,
            block_size
        }
    );
    let error = write(&[0, 1, 2], &mut pool, 2).unwrap_err();
    assert_eq!(
        error,
        Error::MoreSlotsThanRows {
            op,
            slots: 3,
            rows: 2
        }
    );
    assert_eq!(
        error.to_string(),
        "reshape_and_cache: slot_mapping has 3 slots, must have at most the 2 rows"
    );
    assert_eq!(bits(&pool), before);
}

#[test]
fn blocks_are_copied_in_every_cache() {
    let (mut k, mut v) = (rows(12), rows(12).iter().map(|x| -x).collect::<Vec<_>>());
    let mut caches = [
        CacheViewMut::dense(&mut k, CacheLayout::Nhd, 3, 4, 1, D),
        CacheViewMut::dense(&mut v, CacheLayout::Nhd, 3, 4, 1, D),
    ];
    cpu::copy_blocks(&mut caches, &[[0, 2]]).unwrap();
    for (cache, sign) in [(&k, 1.0), (&v, -1.0)] {
        let expected: Vec<f32> = rows(8).iter().chain(&rows(4)).map(|x| sign * x).collect();
        assert_eq!(cache, &expected);
    }
}

#[test]
fn pairs_that_conflict_or_leave_the_cache_are_refused() {
    let mut pool = rows(12);
    let mut refused = |pairs: &[[i64; 2]]| {
        let mut caches = [CacheViewMut::dense(&mut pool, CacheLayout::Nhd, 3, 4, 1, D)];
        let error = cpu::copy_blocks(&mut caches, pairs).unwrap_err();
        assert_eq!(caches[0].data(), rows(12));
        error
    };
    let op = Op::CopyBlocks;
    let error = refused(&[[0, 1], [2, 3]]);
    assert_eq!(
        error.to_string(),
        "copy_blocks: the destination of pairs[1] = 3, must be >= 0 and < num_blocks 3"
    );
    let side = "destination";
    assert_eq!(
        error,
        Error::PairBlock {
            op,
            index: 1,
            side,
            value: 3,
            num_blocks: 3
        }
    );
    let side = "source";
    let expected = Error::PairBlock {
        op,
        index: 0,
        side,
        value: -1,
        num_blocks: 3,
    };
    assert_eq!(refused(&[[-1, 0]]), expected);
    let error = refused(&[[0, 1], [1, 2]]);
    assert_eq!(
        error,
        Error::PairConflict {
            op,
            index: 1,
            other: 0,
            block: 1
        }
    );
    assert_eq!(
        error.to_string(),
        "copy_blocks: pairs[1] takes part in block 1, which pairs[0] writes; must be in another call"
    );
    let expected = Error::PairConflict {
        op,
        index: 1,
        other: 0,
        block: 2,
    };
    assert_eq!(refused(&[[0, 2], [1, 2]]), expected);
}

#[test]
fn pairs_of_one_block_are_refused_as_such() {
    let mut pool = rows(12);
    for (pairs, index) in [(&[[2, 2]][..], 0), (&[[0, 1], [2, 2]], 1)] {
        let mut caches = [CacheViewMut::dense(&mut pool, CacheLayout::Nhd, 3, 4, 1, D)];
        let error = cpu::copy_blocks(&mut caches, pairs).unwrap_err();
        assert_eq!(caches[0].data(), rows(12));
        assert_eq!(
            error.to_string(),
            format!(
                "copy_blocks: pairs[{index}] copies block 2 onto itself, must name two blocks or be \
                 left out"
            )
        );
        let (op, block) = (Op::CopyBlocks, 2);
        assert_eq!(error, Error::PairOntoItself { op, index, block });
    }
}

#[test]
fn gathering_follows_the_table_and_wants_a_row_per_token() {
    let pool = rows(12);
    let cache = CacheView::dense(&pool, CacheLayout::Nhd, 3, 4, 1, D);
    let table = [2, 0, 1, -1];
    let table = BlockTable::new(&table, 2, 2);
    let mut out = vec![NAN; 8 * D];
    let view = RowsViewMut::contiguous(&mut out, 8, 1, D);
    cpu::gather_cache(cache, table, &[5, 3], view).unwrap();
    let first: Vec<f32> = out.chunks_exact(D).map(|row| row[0]).collect();
    assert_eq!(first, [9.0, 10.0, 11.0, 12.0, 1.0, 5.0, 6.0, 7.0]);
    let view = RowsViewMut::contiguous(&mut out, 8, 1, D);
    let error = cpu::gather_cache(cache, table, &[5, 2], view).unwrap_err();
    assert_eq!(
        error.to_string(),
        "gather_cache: out has num_tokens 8, must have 7"
    );
}

#[test]
fn strides_that_are_not_aligned_are_refused() {
    let mut pool = vec![0.0; 100];
    let strides = CacheStrides {
        block: 16,
        token: 4,
        head: 6,
    };
    let cache = CacheViewMut::with_strides(&mut pool, (3, 2, 2, D), strides);
    let rows = [0.0; 8].to_vec();
    let rows = RowsView::contiguous(&rows, 1, 2, D);
    let error = cpu::reshape_and_cache(rows, cache, &[0]).unwrap_err();
    assert!(
        error.to_string().contains("cache.head_stride = 6 elements"),
        "{error}"
    );
}

#[test]
fn caches_without_slots_heads_or_elements_are_refused_by_every_operation() {
    let (seq_lens, table) = ([], BlockTable::new(&[], 0, 0));
    for (argument, [block_size, heads, head_dim]) in [
        ("block_size", [0, 1, D]),
        ("num_kv_heads", [1, 0, D]),
        ("head_dim", [1, 1, 0]),
    ] {
        let mut pool = vec![NAN; 3 * D];
        let layout = CacheLayout::Nhd;
        let rows = RowsView::contiguous(&[], 0, heads, head_dim);
        let cache = CacheViewMut::dense(&mut pool, layout, 3, block_size, heads, head_dim);
        let written = cpu::reshape_and_cache(rows, cache, &[]);
        let cache = CacheViewMut::dense(&mut pool, layout, 3, block_size, heads, head_dim);
        let copied = cpu::copy_blocks(&mut [cache], &[[0, 1]]);
        let cache = CacheView::dense(&pool, layout, 3, block_size, heads, head_dim);
        let out = RowsViewMut::contiguous(&mut [], 0, heads, head_dim);
        let gathered = cpu::gather_cache(cache, table, &seq_lens, out);
        for (op, result) in [
            (Op::ReshapeAndCache, written),
            (Op::CopyBlocks, copied),
            (Op::GatherCache, gathered),
        ] {
            let error = result.unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("{op}: {argument} = 0, must be between 1 and 2147483647")
            );
            let (value, min, max) = (0, 1, i32::MAX as u64);
            let refusal = Error::OutOfRange {
                op,
                argument,
                value,
                min,
                max,
            };
            assert_eq!(error, refusal);
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    New(usize),
    Append(usize, usize),
    Fork(usize),
    Truncate(usize, usize),
    Free(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let any = 0usize..64;
    let step = prop_oneof![
        2 => (1usize..12).prop_map(Step::New),
        5 => (any.clone(), 1usize..9).prop_map(|(i, n)| Step::Append(i, n)),
        3 => any.clone().prop_map(Step::Fork),
        1 => (any.clone(), any.clone()).prop_map(|(i, n)| Step::Truncate(i, n)),
        2 => any.prop_map(Step::Free),
    ];
    proptest::collection::vec(step, 1..30)
}

const HEADS: usize = 2;
const HEAD_DIM: usize = 32;
const ROW: usize = HEADS * HEAD_DIM;

/// A sequence with its private contiguous keys and values.
struct Sequence {
    blocks: SequenceBlocks,
    keys: Vec<f32>,
    values: Vec<f32>,
}

/// The paged caches of all sequences.
struct Caches {
    block_size: usize,
    k: Vec<f32>,
    v: Vec<f32>,
    state: u64,
}

impl Caches {
    /// Numbers in [−1, 1), never the same again.
    fn fresh(&mut self, count: usize) -> Vec<f32> {
        let next = |_| {
            self.state = self
                .state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (self.state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        };
        (0..count).map(next).collect()
    }

    fn copy(&mut self, copy: Option<BlockCopy>) {
        let pairs: Vec<_> = copy.iter().map(BlockCopy::pair).collect();
        let blocks = self.k.len() / (self.block_size * ROW);
        let caches = [&mut self.k, &mut self.v];
        let mut caches = caches.map(|data| {
            CacheViewMut::dense(
                data,
                CacheLayout::Hnd,
                blocks,
                self.block_size,
                HEADS,
                HEAD_DIM,
            )
        });
        cpu::copy_blocks(&mut caches, &pairs).unwrap();
    }

    fn append(&mut self, sequence: &mut Sequence, tokens: usize) {
        let before = sequence.blocks.len();
        let Ok(copy) = sequence.blocks.append(tokens) else {
            return;
        };
        self.copy(copy);
        let slots = sequence.blocks.slots(before..before + tokens).unwrap();
        let (keys, values) = (self.fresh(tokens * ROW), self.fresh(tokens * ROW));
        let blocks = self.k.len() / (self.block_size * ROW);
        for (rows, data) in [(&keys, &mut self.k), (&values, &mut self.v)] {
            let rows = RowsView::contiguous(rows, tokens, HEADS, HEAD_DIM);
            let layout = CacheLayout::Hnd;
            let cache = CacheViewMut::dense(data, layout, blocks, self.block_size, HEADS, HEAD_DIM);
            cpu::reshape_and_cache(rows, cache, &slots).unwrap();
        }
        sequence.keys.extend(keys);
        sequence.values.extend(values);
    }

    /// Attention of all sequences, paged and contiguous: the same bits.
    fn compare(&mut self, sequences: &[Sequence]) {
        let (count, size) = (sequences.len(), self.block_size);
        let config = AttentionConfig::new(DType::F32, 2 * HEADS, HEADS, HEAD_DIM, size);
        let longest = sequences.iter().map(|s| s.blocks.len()).max().unwrap_or(0);
        let policy = SplitPolicy::Tokens(16);
        let plan = Plan::new(&config, count, longest, policy, &DeviceLimits::this_cpu()).unwrap();
        let width = longest.div_ceil(size);
        let mut table = vec![0; count * width];
        for (s, sequence) in sequences.iter().enumerate() {
            sequence
                .blocks
                .write_row(&mut table[s * width..][..width])
                .unwrap();
        }
        let lens: Vec<i32> = sequences.iter().map(|s| s.blocks.len() as i32).collect();
        let q = self.fresh(count * 2 * ROW);
        let q = RowsView::contiguous(&q, count, 2 * HEADS, HEAD_DIM);
        let blocks = self.k.len() / (size * ROW);
        let view = |data| CacheView::dense(data, CacheLayout::Hnd, blocks, size, HEADS, HEAD_DIM);
        let inputs = DecodeInputs {
            q,
            k_cache: view(&self.k),
            v_cache: view(&self.v),
            block_table: BlockTable::new(&table, count, width),
            seq_lens: &lens,
        };
        let mut workspace = vec![0.0; plan.workspace_len()];
        let [mut paged, mut private] = [vec![NAN; count * 2 * ROW], vec![NAN; count * 2 * ROW]];
        let out = RowsViewMut::contiguous(&mut paged, count, 2 * HEADS, HEAD_DIM);
        cpu::decode(&plan, &inputs, out, None, &mut workspace).unwrap();
        let keys: Vec<&[f32]> = sequences.iter().map(|s| &s.keys[..]).collect();
        let values: Vec<&[f32]> = sequences.iter().map(|s| &s.values[..]).collect();
        let (keys, values) = (&keys[..], &values[..]);
        let inputs = contiguous::ContiguousInputs {
            q,
            keys,
            values,
            seq_lens: &lens,
        };
        let out = RowsViewMut::contiguous(&mut private, count, 2 * HEADS, HEAD_DIM);
        contiguous::decode(&plan, &inputs, out, None, &mut workspace).unwrap();
        assert_eq!(bits(&paged), bits(&private));

        let total = lens.iter().map(|&len| len as usize).sum();
        let mut gathered = vec![NAN; total * ROW];
        let out = RowsViewMut::contiguous(&mut gathered, total, HEADS, HEAD_DIM);
        let table = BlockTable::new(&table, count, width);
        cpu::gather_cache(view(&self.v), table, &lens, out).unwrap();
        assert_eq!(bits(&gathered), bits(&values.concat()));
    }
}

proptest! {
    #[test]
    fn decode_through_forks_appends_and_frees_equals_private_contiguous_caches(
        num_blocks in 1usize..40, block_size in 1usize..8, steps in steps(),
    ) {
        let pool = BlockPool::new(num_blocks, block_size).unwrap();
        let [k, v] = [(); 2].map(|()| vec![NAN; num_blocks * block_size * ROW]);
        let mut caches = Caches { block_size, k, v, state: 1 };
        let mut sequences: Vec<Sequence> = vec![];
        for step in steps {
            let count = sequences.len();
            let pick = |i: usize| i.checked_rem(count);
            match step {
                Step::New(tokens) => {
                    let blocks = SequenceBlocks::new(&pool);
                    let mut sequence = Sequence { blocks, keys: vec![], values: vec![] };
                    caches.append(&mut sequence, tokens);
                    sequences.push(sequence);
                }
                Step::Append(i, tokens) => {
                    if let Some(i) = pick(i) {
                        caches.append(&mut sequences[i], tokens);
                    }
                }
                Step::Fork(i) => {
                    if let Some(i) = pick(i) {
                        let Sequence { blocks, keys, values } = &sequences[i];
                        let (keys, values) = (keys.clone(), values.clone());
                        sequences.push(Sequence { blocks: blocks.fork(), keys, values });
                    }
                }
                Step::Truncate(i, len) => {
                    if let Some(i) = pick(i) {
                        let sequence = &mut sequences[i];
                        let len = len % (sequence.blocks.len() + 1);
                        sequence.blocks.truncate(len).unwrap();
                        sequence.keys.truncate(len * ROW);
                        sequence.values.truncate(len * ROW);
                    }
                }
                Step::Free(i) => {
                    if let Some(i) = pick(i) {
                        sequences.swap_remove(i).blocks.free();
                    }
                }
            }
            caches.compare(&sequences);
        }
        drop(sequences);
        prop_assert_eq!(pool.num_available(), num_blocks);
    }
}

#[test]
fn caches_whose_rows_overlap_are_refused_for_writing() {
    let mut pool = vec![NAN; 64 * D];
    let (num_blocks, block_size, heads) = (4, 2, 2);
    let shape = (num_blocks, block_size, heads, D);
    for (block, token, head, apart) in [
        (4 * D, 2 * D, D, true),
        (4 * D, D, 2 * D, true),
        (D, 8 * D, 4 * D, true),
        (0, 2 * D, D, false),
        (4 * D, D, D, false),
        (3 * D, D, 2 * D, false),
    ] {
        let strides = CacheStrides { block, token, head };
        let rows = rows(2);
        let rows = RowsView::contiguous(&rows, 1, heads, D);
        let cache = CacheViewMut::with_strides(&mut pool, shape, strides);
        let written = cpu::reshape_and_cache(rows, cache, &[0]);
        let cache = CacheViewMut::with_strides(&mut pool, shape, strides);
        let copied = cpu::copy_blocks(&mut [cache], &[[0, 1]]);
        for (op, result) in [(Op::ReshapeAndCache, written), (Op::CopyBlocks, copied)] {
            let refusal = Error::CacheOverlap {
                op,
                argument: "cache",
                strides: [block, token, head],
                rows: [num_blocks, block_size, heads],
                head_dim: D,
            };
            let expected = if apart { Ok(()) } else { Err(refusal) };
            assert_eq!(result, expected, "{strides:?}");
        }
    }
    let strides = CacheStrides {
        block: 0,
        token: 2 * D,
        head: D,
    };
    let cache = CacheViewMut::with_strides(&mut pool, shape, strides);
    let error = cpu::copy_blocks(&mut [cache], &[[0, 1]]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "copy_blocks: strides of 0, 8 and 4 elements (block, token, head) make rows of cache \
         overlap, must keep 4 × 2 × 2 rows of 4 elements apart"
    );
}
