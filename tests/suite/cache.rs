//! Writing, copying and gathering cache contents: the same claims on every back end. Every byte of
//! every buffer is compared, with guards around the tensors and random bytes in every gap.

mod case;
#[cfg(feature = "cuda")]
mod device;
mod far;
mod planted;
mod runner;
#[cfg(feature = "cuda")]
mod runner_cuda;
mod sectors;
#[cfg(feature = "cuda")]
mod settable;
mod world;

use paged_attention::CacheLayout;

use crate::backend::{DTYPES, claims};
use crate::case::{Pool, Rows};
use crate::random::Random;
use crate::strategy::forall;
use case::{CacheCase, any_cache, variants};
use runner::{CacheBackend, check, refusal};
use world::{Call, Place, Table, World};

claims!(
    rows_go_to_their_slots_and_nothing_else_changes,
    only_the_slots_of_the_mapping_change_and_padding_is_ignored,
    skipped_and_missing_slots_change_nothing,
    more_slots_than_rows_are_refused,
    slots_past_the_cache_are_refused,
    blocks_are_copied_in_every_layer_and_nothing_else_changes,
    blocks_of_several_slices_are_copied_whole,
    pairs_that_leave_the_cache_or_conflict_are_refused,
    sequences_are_gathered_by_their_tables_and_nothing_else_changes,
    dead_table_entries_may_hold_anything,
    live_table_entries_outside_the_cache_are_refused,
    what_is_written_and_copied_is_gathered,
    nothing_to_do_changes_nothing,
);

/// Distinct slots in any order, with negative ones among them.
fn slots(random: &mut Random, num_slots: usize) -> Vec<i64> {
    let mut slots: Vec<i64> = (0..num_slots as i64).collect();
    random.shuffle(&mut slots);
    slots.truncate(1 + random.below(num_slots.min(40)));
    for slot in &mut slots {
        match random.below(8) {
            0 => *slot = -1,
            1 => *slot = [i64::MIN, -2, i64::from(i32::MIN)][random.below(3)],
            _ => {}
        }
    }
    slots
}

fn rows_go_to_their_slots_and_nothing_else_changes(backend: &dyn CacheBackend) {
    forall(backend.cases(24), any_cache(), |case| {
        let mut world = World::new(&case);
        let caches = world.caches(true);
        let slots = slots(&mut world.random, case.num_slots());
        // Rows past the mapping are padding.
        let padding = world.random.below(3);
        let rows = world.rows(slots.len() + padding);
        let call = Call::Write {
            rows: &rows,
            caches: &caches,
            slots: &slots,
        };
        check(backend, &mut world, &call)
    });
}

/// Four rows; three slots or four.
fn only_the_slots_of_the_mapping_change_and_padding_is_ignored(backend: &dyn CacheBackend) {
    // 32 heads of 128 are four turns of the kernel's threads per token.
    let many_heads = CacheCase {
        heads: 32,
        head_dim: 128,
        ..CacheCase::new(DTYPES[1], 3, 4)
    };
    for case in variants(&CacheCase::new(DTYPES[0], 3, 4)).chain([many_heads]) {
        for slots in [&[3, -1, 7][..], &[3, -1, 7, -1]] {
            let mut world = World::new(&case);
            let (caches, rows) = (world.caches(true), world.rows(4));
            // By hand: slot 3 is the last of block 0, slot 7 the last of block 1.
            let mut expected = world.buffers.clone();
            for (rows, cache) in rows.iter().zip(&caches) {
                for (token, block) in [(0, 0), (2, 1)] {
                    for head in 0..case.heads {
                        let row = &world.buffers[rows.buffer][rows.row(&[token, head])];
                        expected[cache.buffer][cache.row(&[block, 3, head])].copy_from_slice(row);
                    }
                }
            }
            let (rows, caches) = (&rows, &caches);
            let call = Call::Write {
                rows,
                caches,
                slots,
            };
            let ran = backend.run(&mut world, &call);
            ran.unwrap_or_else(|error| panic!("{error}\n{case:?}"));
            world.same(&expected).unwrap();
        }
    }
}

fn skipped_and_missing_slots_change_nothing(backend: &dyn CacheBackend) {
    for slots in [&[][..], &[-1], &[i64::MIN, -1, -100]] {
        let mut world = World::new(&CacheCase::new(DTYPES[1], 3, 4));
        let (caches, rows) = (world.caches(true), world.rows(5));
        let before = world.buffers.clone();
        let (rows, caches) = (&rows, &caches);
        let call = Call::Write {
            rows,
            caches,
            slots,
        };
        backend.run(&mut world, &call).unwrap();
        world.same(&before).unwrap();
    }
}

/// The sentence with which slots for so many rows are refused.
#[track_caller]
fn refused_slots(backend: &dyn CacheBackend, num_rows: usize, slots: &[i64]) -> String {
    let mut world = World::new(&CacheCase::new(DTYPES[2], 3, 4));
    let (caches, rows) = (world.caches(true), world.rows(num_rows));
    let (rows, caches) = (&rows, &caches);
    let call = Call::Write {
        rows,
        caches,
        slots,
    };
    refusal(backend, &mut world, &call)
}

fn more_slots_than_rows_are_refused(backend: &dyn CacheBackend) {
    for (rows, slots) in [(2, &[0, 1, 2][..]), (0, &[-1])] {
        let text = format!(
            "reshape_and_cache: slot_mapping has {} slots, must have at most the {rows} rows",
            slots.len()
        );
        assert_eq!(refused_slots(backend, rows, slots), text);
    }
}

fn slots_past_the_cache_are_refused(backend: &dyn CacheBackend) {
    for value in [12, 13, i64::from(u32::MAX) + 1, i64::MAX] {
        let text = format!(
            "reshape_and_cache: slot_mapping[2] = {value}, must be < 3 blocks × block_size 4"
        );
        assert_eq!(refused_slots(backend, 3, &[0, 11, value]), text);
    }
}

/// K and V of several layers.
fn layers(world: &mut World, count: usize) -> Vec<Place> {
    (0..count).flat_map(|_| world.caches(false)).collect()
}

fn blocks_are_copied_in_every_layer_and_nothing_else_changes(backend: &dyn CacheBackend) {
    forall(backend.cases(24), any_cache(), |case| {
        let mut world = World::new(&case);
        let count = 1 + world.random.below(3);
        let caches = layers(&mut world, count);
        let random = &mut world.random;
        let mut blocks: Vec<i64> = (0..case.num_blocks as i64).collect();
        random.shuffle(&mut blocks);
        // A source may serve several destinations.
        let sources = blocks.split_off(random.below(case.num_blocks));
        let pair = |destination: i64| [sources[random.below(sources.len())], destination];
        let pairs: Vec<[i64; 2]> = blocks.into_iter().map(pair).collect();
        let call = Call::Copy {
            caches: &caches,
            pairs: &pairs,
        };
        check(backend, &mut world, &call)
    });
}

/// 122,880 bytes: four slices of 32 KB, the last one not full.
fn blocks_of_several_slices_are_copied_whole(backend: &dyn CacheBackend) {
    for pool in [Pool::Dense, Pool::Padded] {
        let case = CacheCase {
            heads: 8,
            head_dim: 80,
            pool,
            ..CacheCase::new(DTYPES[0], 3, 48)
        };
        let mut world = World::new(&case);
        let caches = world.caches(false);
        let call = Call::Copy {
            caches: &caches,
            pairs: &[[1, 2]],
        };
        check(backend, &mut world, &call).unwrap();
    }
}

fn pairs_that_leave_the_cache_or_conflict_are_refused(backend: &dyn CacheBackend) {
    let takes_part = |pair, block, other| {
        format!(
            "copy_blocks: pairs[{pair}] takes part in block {block}, which pairs[{other}] writes; \
             must be in another call"
        )
    };
    let outside = |side, pair, value: i64| {
        format!(
            "copy_blocks: the {side} of pairs[{pair}] = {value}, must be >= 0 and < num_blocks 3"
        )
    };
    let itself =
        "copy_blocks: pairs[1] copies block 1 onto itself, must name two blocks or be left out";
    let cases: [(&[[i64; 2]], String); 7] = [
        (&[[0, 1], [2, 3]], outside("destination", 1, 3)),
        (&[[-1, 0]], outside("source", 0, -1)),
        (&[[0, 2], [i64::MAX, 1]], outside("source", 1, i64::MAX)),
        (&[[0, 2], [1, 2]], takes_part(1, 2, 0)),
        (&[[0, 1], [1, 2]], takes_part(1, 1, 0)),
        (&[[1, 2], [0, 1]], takes_part(0, 1, 1)),
        (&[[0, 2], [1, 1]], itself.into()),
    ];
    for (pairs, text) in cases {
        let mut world = World::new(&CacheCase::new(DTYPES[1], 3, 4));
        let caches = layers(&mut world, 2);
        let caches = &caches;
        assert_eq!(
            refusal(backend, &mut world, &Call::Copy { caches, pairs }),
            text
        );
    }
}

/// Lengths and a table whose sequences share blocks; what no token needs is garbage.
fn batch(random: &mut Random, case: &CacheCase) -> (Vec<i32>, Table) {
    let size = case.block_size;
    let lens: Vec<usize> = (0..random.below(5))
        .map(|_| match random.below(4) {
            0 => random.below(3),
            // Around the end of a block, none for the first block's start.
            1 => (random.below(3) * size + random.below(3)).saturating_sub(1),
            _ => random.below(40),
        })
        .collect();
    let live = |len: &usize| len.div_ceil(size);
    let width = lens.iter().map(live).max().unwrap_or(0) + random.below(3);
    let stride = width + random.below(3);
    let mut table = Table {
        entries: vec![],
        num_seqs: lens.len(),
        width,
        stride,
    };
    for len in &lens {
        for column in 0..stride {
            let block = random.below(case.num_blocks) as i32;
            let garbage = [-1, i32::MIN, i32::MAX, block][random.below(4)];
            let entry = if column < live(len) { block } else { garbage };
            table.entries.push(entry);
        }
    }
    (lens.iter().map(|&len| len as i32).collect(), table)
}

fn sequences_are_gathered_by_their_tables_and_nothing_else_changes(backend: &dyn CacheBackend) {
    forall(backend.cases(24), any_cache(), |case| {
        let mut world = World::new(&case);
        let caches = world.caches(true);
        let (lens, table) = batch(&mut world.random, &case);
        let rows = world.rows(lens.iter().map(|&len| len as usize).sum());
        let call = Call::Gather {
            caches: &caches,
            table: &table,
            lens: &lens,
            rows: &rows,
        };
        check(backend, &mut world, &call)
    });
}

/// Row [5, 9, −1, −1] with 20 tokens.
fn dead_table_entries_may_hold_anything(backend: &dyn CacheBackend) {
    for garbage in [-1, i32::MAX, i32::MIN, 10] {
        let mut world = World::new(&CacheCase::new(DTYPES[1], 11, 16));
        let (caches, rows) = (world.caches(true), world.rows(20));
        let table = Table {
            entries: vec![5, 9, garbage, garbage],
            num_seqs: 1,
            width: 4,
            stride: 4,
        };
        let call = Call::Gather {
            caches: &caches,
            table: &table,
            lens: &[20],
            rows: &rows,
        };
        check(backend, &mut world, &call).unwrap();
    }
}

fn live_table_entries_outside_the_cache_are_refused(backend: &dyn CacheBackend) {
    let refused = |lens: &[i32], entries: [i32; 4]| {
        let mut world = World::new(&CacheCase::new(DTYPES[1], 11, 16));
        let tokens = lens.iter().map(|&len| len.max(0) as usize).sum();
        let (caches, rows) = (world.caches(true), world.rows(tokens));
        let table = Table {
            entries: entries.to_vec(),
            num_seqs: 2,
            width: 2,
            stride: 2,
        };
        let call = Call::Gather {
            caches: &caches,
            table: &table,
            lens,
            rows: &rows,
        };
        refusal(backend, &mut world, &call)
    };
    assert_eq!(
        refused(&[16, 20], [3, -1, 4, -1]),
        "gather_cache: block_table[1][1] = -1, must be >= 0 and < num_blocks 11"
    );
    assert_eq!(
        refused(&[16, 20], [3, -1, 11, 4]),
        "gather_cache: block_table[1][0] = 11, must be < num_blocks 11"
    );
    // 33 tokens need three blocks of 16, the table has two columns.
    assert_eq!(
        refused(&[16, 33], [3, -1, 4, 5]),
        "gather_cache: seq_lens[1] = 33, must be at most 32 (block table of 2 columns × block_size 16)"
    );
    assert_eq!(
        refused(&[-3, 20], [3, 1, 4, 5]),
        "gather_cache: seq_lens[0] = -3, must be at least 0"
    );
}

/// Rows of sequences are written to private blocks, each sequence's last block moves to a spare one,
/// and the sequences are gathered again: the rows that were written, in order. No offset in a cache
/// is computed here.
fn what_is_written_and_copied_is_gathered(backend: &dyn CacheBackend) {
    forall(backend.cases(16), any_cache(), |case| {
        let size = case.block_size;
        let mut random = Random::new(case.seed, 1);
        let lens: Vec<usize> = (0..1 + random.below(3))
            .map(|_| 1 + random.below(25))
            .collect();
        let live: usize = lens.iter().map(|len| len.div_ceil(size)).sum();
        let num_blocks = live + lens.len() + random.below(3);
        let case = CacheCase { num_blocks, ..case };
        let mut world = World::new(&case);
        let caches = world.caches(false);
        let mut blocks: Vec<i32> = (0..num_blocks as i32).collect();
        random.shuffle(&mut blocks);
        let width = lens.iter().map(|len| len.div_ceil(size)).max().unwrap_or(0);
        let mut table = Table {
            entries: vec![-1; lens.len() * width],
            num_seqs: lens.len(),
            width,
            stride: width,
        };
        let mut slots = vec![];
        for (seq, &len) in lens.iter().enumerate() {
            for entry in &mut table.entries[seq * width..][..len.div_ceil(size)] {
                *entry = blocks.pop().unwrap();
            }
            for token in 0..len {
                let block = table.entries[seq * width + token / size] as usize;
                slots.push((block * size + token % size) as i64);
            }
        }
        let [rows, gathered] = [(); 2].map(|()| world.rows(slots.len()));
        let (written, lens_i32) = (
            world.buffers.clone(),
            lens.iter().map(|&len| len as i32).collect::<Vec<_>>(),
        );
        let failed = |error| format!("{error}\n{case:?}");
        let call = Call::Write {
            rows: &rows,
            caches: &caches,
            slots: &slots,
        };
        backend.run(&mut world, &call).map_err(failed)?;
        let mut pairs = vec![];
        for (seq, &len) in lens.iter().enumerate() {
            let entry = &mut table.entries[seq * width + (len - 1) / size];
            let spare = blocks.pop().unwrap();
            pairs.push([i64::from(*entry), i64::from(spare)]);
            *entry = spare;
        }
        let call = Call::Copy {
            caches: &caches,
            pairs: &pairs,
        };
        backend.run(&mut world, &call).map_err(failed)?;
        let call = Call::Gather {
            caches: &caches,
            table: &table,
            lens: &lens_i32,
            rows: &gathered,
        };
        backend.run(&mut world, &call).map_err(failed)?;
        for (from, to) in rows.iter().zip(&gathered) {
            for token in 0..slots.len() {
                for head in 0..case.heads {
                    let expected = &written[from.buffer][from.row(&[token, head])];
                    let found = &world.buffers[to.buffer][to.row(&[token, head])];
                    if found != expected {
                        return Err(format!("token {token}, head {head} differs\n{case:?}"));
                    }
                }
            }
        }
        Ok(())
    });
}

fn nothing_to_do_changes_nothing(backend: &dyn CacheBackend) {
    let case = CacheCase {
        order: CacheLayout::Hnd,
        rows: Rows::Padded,
        ..CacheCase::new(DTYPES[0], 3, 4)
    };
    let mut world = World::new(&case);
    let (caches, rows) = (world.caches(true), world.rows(0));
    let before = world.buffers.clone();
    let table = |num_seqs| Table {
        entries: vec![-1; num_seqs],
        num_seqs,
        width: 1,
        stride: 1,
    };
    let (none, three) = (table(0), table(3));
    let (rows, caches) = (&rows, &caches);
    let slots = &[];
    let gather = |table, lens| Call::Gather {
        caches,
        table,
        lens,
        rows,
    };
    for call in [
        Call::Write {
            rows,
            caches,
            slots,
        },
        Call::Copy { caches, pairs: &[] },
        Call::Copy {
            caches: &[],
            pairs: &[[0, 1]],
        },
        gather(&none, &[]),
        gather(&three, &[0; 3]),
    ] {
        backend.run(&mut world, &call).unwrap();
        world.same(&before).unwrap();
    }
}
