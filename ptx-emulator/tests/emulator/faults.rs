//! One small program per kind of fault, in `tests/ptx`, each with the sentence that it must give
//! (or `no fault`). The head of a file says how it is launched.

use std::path::{Path, PathBuf};

use ptx_emulator::{Error, Launch, Memory, Options};

use crate::support::{checked, load};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ptx")
}

/// Runs a file as its head says; gives the sentence it wants and the one it gets.
#[track_caller]
fn outcome(name: &str, change: impl FnOnce(&mut Options)) -> (String, String) {
    let text = std::fs::read_to_string(folder().join(format!("{name}.ptx"))).expect("the file");
    let module = load(&text);
    let memory = Memory::new();
    let mut launch = Launch {
        grid: [1; 3],
        block: [1; 3],
        shared_bytes: 0,
    };
    let mut options = checked();
    let mut params = Vec::new();
    let mut wanted = None;
    for line in text.lines().map_while(|l| l.strip_prefix("// ")) {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |i: usize| words[i].parse::<u64>().expect("a number");
        match words[0] {
            "grid" => launch.grid = [1, 2, 3].map(|i| number(i) as u32),
            "block" => launch.block = [number(1) as u32, 1, 1],
            "limit" => options.instruction_limit = number(1),
            "buffer" => {
                let address = memory.alloc(number(2), 256, words[1]).expect("memory");
                if words[3] == "written" {
                    memory.fill(address, 1, number(2)).expect("inside");
                }
                params.extend(address.to_le_bytes());
            }
            "wanted:" => wanted = line.strip_prefix("wanted: ").map(str::to_string),
            other => panic!("{name}: unknown directive {other}"),
        }
    }
    change(&mut options);
    let found = match module.launch(&memory, name, launch, &params, &options) {
        Ok(_) => "no fault".to_string(),
        Err(Error::Fault(fault)) => fault.to_string(),
        Err(other) => panic!("{name}: {other}"),
    };
    (wanted.expect("a `// wanted:` line"), found)
}

macro_rules! programs {
    ($($name:ident,)*) => {
        const NAMES: &[&str] = &[$(stringify!($name),)*];

        $(
            #[test]
            fn $name() {
                let (wanted, found) = outcome(stringify!($name), |_| {});
                assert_eq!(found, wanted, "\nFOUND {} {}", stringify!($name), found);
            }
        )*
    };
}

programs! {
    async_barrier_before_wait,
    async_copy_over_what_others_read,
    async_overwrite_before_wait,
    async_read_before_wait,
    async_read_by_another_thread_without_barrier,
    async_source_out_of_bounds,
    async_wait_for_an_older_group_only,
    barrier_after_exit_of_others,
    barrier_in_a_divergent_branch,
    barrier_with_a_count_that_is_no_multiple_of_a_warp,
    barriers_that_differ,
    bounds_before_alignment,
    bounds_of_a_high_lane_before_a_race_of_a_low_one,
    branch_index_outside_its_table,
    race_before_uninitialised,
    stuck_shuffle_before_stuck_barrier,
    division_by_zero,
    endless_loop,
    generic_null_pointer,
    global_misaligned,
    global_out_of_bounds,
    global_uninitialised,
    global_write_out_of_bounds,
    ldmatrix_without_warp_sync,
    local_out_of_bounds,
    lowest_lane_first,
    local_uninitialised,
    mma_by_half_a_warp,
    mma_in_a_block_of_16_threads,
    ok_async_copy,
    ok_atomics_do_not_race,
    ok_barrier_orders,
    ok_halves_of_a_word_by_two_warps,
    ok_lane_spins_until_another_acts,
    ok_lanes_meet_at_a_shuffle_behind_an_early_exit,
    ok_lanes_of_a_partial_sync,
    ok_named_barrier_orders_its_warps,
    ok_producer_arrives_consumer_waits,
    ok_warp_sync_orders,
    race_atomic_and_plain_read,
    race_of_halves_of_a_word,
    race_overwrite_of_what_others_read,
    race_read_of_barrier_of_other_warps,
    race_read_without_barrier,
    race_two_lanes_write_one_word,
    race_with_a_lane_outside_a_partial_sync,
    race_within_a_warp,
    shared_misaligned,
    shared_out_of_bounds,
    shared_uninitialised,
    shuffle_by_a_lane_outside_its_mask,
    shuffle_from_an_exited_lane,
    shuffle_in_a_divergent_branch,
    trap_reached,
    uninitialised_half,
    vote_under_a_lane_condition,
    warp_sync_that_names_a_lane_elsewhere,
}

#[test]
fn every_program_in_the_folder_is_a_test() {
    let mut files: Vec<String> = std::fs::read_dir(folder())
        .expect("the folder")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "ptx"))
        .filter_map(|path| {
            path.file_stem()
                .map(|stem| stem.to_string_lossy().into_owned())
        })
        .collect();
    files.sort();
    let mut names = NAMES.to_vec();
    names.sort();
    assert_eq!(files, names);
}
