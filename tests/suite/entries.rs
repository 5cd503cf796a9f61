//! Every entry of every PTX file of every set runs at least once with every detector on.

use std::collections::BTreeSet;

use paged_attention::DType;
use paged_attention::kernels::variants::{CacheKind, DECODE, MERGE};

use crate::backend::{Ptx, ptx};
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

/// Modules of a set of PTX and of a storage type; a test per head size.
macro_rules! entries {
    ($($module:ident $dtype:ident [$($test:ident $head_dim:literal),* $(,)?];)*) => {
        mod ptx_default {
            $(mod $module {
                $(#[test]
                fn $test() {
                    let ptx = crate::backend::ptx();
                    crate::entries::all_run(ptx, paged_attention::DType::$dtype, $head_dim);
                })*
            })*
        }

        #[cfg(feature = "rust-cuda-ptx")]
        mod ptx_rust_cuda {
            $(mod $module {
                $(#[test]
                fn $test() {
                    let ptx = crate::backend::Set::RustCuda.ptx();
                    crate::entries::all_run(ptx, paged_attention::DType::$dtype, $head_dim);
                })*
            })*
        }

        const RUN: &[(DType, u32)] = &[$($((DType::$dtype, $head_dim),)*)*];
    };
}

entries! {
    f32 F32 [d32 32, d64 64, d80 80, d96 96, d112 112, d120 120, d128 128, d160 160, d192 192, d256 256];
    f16 F16 [d32 32, d64 64, d80 80, d96 96, d112 112, d120 120, d128 128, d160 160, d192 192, d256 256];
    bf16 Bf16 [d32 32, d64 64, d80 80, d96 96, d112 112, d120 120, d128 128, d160 160, d192 192, d256 256];
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

#[test]
fn the_tests_above_cover_every_entry_of_the_default_set() {
    covers(ptx());
}

#[cfg(feature = "rust-cuda-ptx")]
#[test]
fn the_tests_above_cover_every_entry_of_the_rust_cuda_set() {
    covers(crate::backend::Set::RustCuda.ptx());
}

fn covers(ptx: &Ptx) {
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
