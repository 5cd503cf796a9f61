//! Every entry of every PTX file of every set runs at least once with every detector on.

use std::collections::BTreeSet;

use paged_attention::DType;
use paged_attention::kernels::variants::{CacheKind, DECODE, MERGE};

use crate::backend::{Ptx, sets};
use crate::batch::Batch;
use crate::case::Case;
use crate::compare::close_to_exact;

/// (query heads, kv heads) that reach each head tile of the table, more than one tile, and one, two
/// and four warps of heads on tensor cores.
pub const GROUPS: [(usize, usize); 5] = [(2, 2), (8, 1), (11, 1), (24, 1), (67, 1)];

/// Runs the entries of one (dtype, head_dim): one live split, then several.
fn run(ptx: &Ptx, dtype: DType, head_dim: usize) -> BTreeSet<&'static str> {
    let mut entries = BTreeSet::new();
    for (q, kv) in GROUPS {
        let case = Case::new(dtype, head_dim, &[19, 100, 0])
            .heads(q, kv)
            .split(48);
        let batch = Batch::new(&case);
        let (output, reports) = ptx
            .reports(&batch)
            .unwrap_or_else(|e| panic!("{e}\n{case}"));
        close_to_exact(ptx, &batch, &output).unwrap_or_else(|e| panic!("{e}"));
        for (report, entry) in [
            (reports.decode, batch.plan.decode_variant().entry),
            (reports.merge, batch.plan.merge_variant().entry),
        ] {
            let report = report.unwrap_or_else(|| panic!("{entry} was not launched"));
            assert!(report.counters.total() > 0, "{entry}");
            entries.insert(entry);
        }
    }
    entries
}

/// A test per storage type and head size, for each set.
macro_rules! entries {
    ($($dtype:ident [$($test:ident $head_dim:literal),* $(,)?];)*) => {
        $($(fn $test(ptx: &Ptx) {
            all_run(ptx, DType::$dtype, $head_dim);
        })*)*

        sets!($($($test,)*)* the_other_tests_cover_every_entry);

        const RUN: &[(DType, u32)] = &[$($((DType::$dtype, $head_dim),)*)*];
    };
}

entries! {
    F32 [
        f32_d32 32, f32_d64 64, f32_d80 80, f32_d96 96, f32_d112 112,
        f32_d120 120, f32_d128 128, f32_d160 160, f32_d192 192, f32_d256 256,
    ];
    F16 [
        f16_d32 32, f16_d64 64, f16_d80 80, f16_d96 96, f16_d112 112,
        f16_d120 120, f16_d128 128, f16_d160 160, f16_d192 192, f16_d256 256,
    ];
    Bf16 [
        bf16_d32 32, bf16_d64 64, bf16_d80 80, bf16_d96 96, bf16_d112 112,
        bf16_d120 120, bf16_d128 128, bf16_d160 160, bf16_d192 192, bf16_d256 256,
    ];
}

#[track_caller]
fn all_run(ptx: &Ptx, dtype: DType, head_dim: u32) {
    assert_eq!(
        run(ptx, dtype, head_dim as usize),
        of_table(dtype, head_dim)
    );
}

/// The table's entries of one (dtype, head_dim).
fn of_table(dtype: DType, head_dim: u32) -> BTreeSet<&'static str> {
    let decode = DECODE
        .iter()
        .filter(|v| v.dtype == dtype && v.head_dim == head_dim);
    let merge = MERGE
        .iter()
        .filter(|v| v.dtype == dtype && v.head_dim == head_dim);
    decode
        .map(|v| v.entry)
        .chain(merge.map(|v| v.entry))
        .collect()
}

fn the_other_tests_cover_every_entry(ptx: &Ptx) {
    let run: BTreeSet<&str> = RUN
        .iter()
        .flat_map(|&(dtype, d)| of_table(dtype, d))
        .collect();
    let table: BTreeSet<&str> = DECODE
        .iter()
        .map(|v| v.entry)
        .chain(MERGE.iter().map(|v| v.entry))
        .collect();
    assert_eq!(run, table);
    let mut shipped = BTreeSet::new();
    for (name, text) in ptx.set().files() {
        let module = ptx_emulator::Module::parse(text).unwrap_or_else(|e| panic!("{name}: {e}"));
        shipped.extend(module.entries().map(|entry| entry.name.clone()));
    }
    // The cache kernels are run by the module `cache`.
    let cache = CacheKind::ALL.map(CacheKind::entry);
    let table: BTreeSet<&str> = table.into_iter().chain(cache).collect();
    assert!(shipped.iter().map(String::as_str).eq(table));
}
