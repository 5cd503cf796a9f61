//! Random cases that shrink, and the runner for properties over them.

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};

use paged_attention::kernels::variants::head_dims;
use paged_attention::{CacheLayout, SplitPolicy};

use crate::backend::DTYPES;
use crate::case::{Case, Data, Pool, Rows};

/// Runs `property` on `cases` random cases, or on as many as `PROPTEST_CASES` says. The cases are the
/// same in every run unless `PROPTEST_RNG_SEED` draws others.
#[track_caller]
pub fn forall<S: Strategy>(
    cases: u32,
    strategy: S,
    property: impl Fn(S::Value) -> Result<(), String>,
) {
    let mut config = Config {
        failure_persistence: None,
        max_shrink_iters: 1000,
        ..Config::default()
    };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = cases;
    }
    if std::env::var_os("PROPTEST_RNG_SEED").is_none() {
        config.rng_seed = RngSeed::Fixed(7);
    }
    let outcome = TestRunner::new(config).run(&strategy, |value| {
        property(value).map_err(TestCaseError::fail)
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}

/// Any case that the back ends take, a few hundred tokens per sequence.
pub fn any_case() -> impl Strategy<Value = Case> {
    let shape = (
        prop::sample::select(DTYPES.to_vec()),
        0usize..10,
        prop::sample::select(HEADS.to_vec()),
        prop::sample::select(BLOCK_SIZES.to_vec()),
        policy(),
        prop::collection::vec(length(), 0..5),
    );
    let storage = (
        prop::sample::select(vec![CacheLayout::Nhd, CacheLayout::Hnd]),
        prop::sample::select(vec![Pool::Dense, Pool::Fused, Pool::Padded]),
        prop::sample::select(vec![Rows::Dense, Rows::PackedQkv, Rows::Padded]),
        (0usize..3, 0usize..3, 0usize..3),
        prop_oneof![3 => Just(0usize), 1 => 0usize..700],
    );
    let contents = (
        data(),
        prop::sample::select(vec![1.0f32, 0.25, -1.0]),
        any::<u16>(),
        any::<u16>(),
    );
    (shape, storage, contents).prop_map(|(shape, storage, contents)| {
        let (dtype, dim, (num_q_heads, num_kv_heads), block_size, policy, lengths) = shape;
        let (order, pool, rows, (spare_columns, table_gap, spare_blocks), spare_capacity) = storage;
        let (data, scale, seed, block_seed) = contents;
        let dims: Vec<u32> = head_dims(dtype).collect();
        let split = match policy {
            SplitPolicy::Tokens(n) => n as usize,
            SplitPolicy::Auto => 256,
        };
        Case {
            dtype,
            head_dim: dims[dim % dims.len()] as usize,
            num_q_heads,
            num_kv_heads,
            block_size,
            order,
            pool,
            rows,
            policy,
            lens: lengths
                .iter()
                .map(|l| l.tokens(block_size, split))
                .collect(),
            spare_capacity,
            spare_columns,
            table_gap,
            spare_blocks,
            data,
            scale,
            seed: seed.into(),
            block_seed: block_seed.into(),
        }
    })
}

/// Cases with at least one sequence.
pub fn nonempty_case() -> impl Strategy<Value = Case> {
    any_case().prop_filter("no sequence", |case| !case.lens.is_empty())
}

const HEADS: [(usize, usize); 10] = [
    (1, 1),
    (2, 1),
    (3, 3),
    (4, 2),
    (5, 1),
    (6, 3),
    (7, 1),
    (8, 1),
    (9, 1),
    (16, 2),
];

const BLOCK_SIZES: [usize; 11] = [16, 1, 2, 3, 8, 12, 17, 32, 48, 64, 128];

fn policy() -> impl Strategy<Value = SplitPolicy> {
    prop_oneof![
        2 => Just(SplitPolicy::Tokens(512)),
        4 => (1u32..13).prop_map(|units| SplitPolicy::Tokens(units * 16)),
        1 => Just(SplitPolicy::Auto),
    ]
}

fn data() -> impl Strategy<Value = Data> {
    prop_oneof![
        4 => Just(Data::Uniform),
        2 => Just(Data::Sharp),
        1 => Just(Data::Rising),
        1 => Just(Data::Falling),
        1 => Just(Data::ZeroQuery),
        1 => (-3i8..4).prop_map(|c| Data::ConstantValues(f32::from(c))),
    ]
}

/// A length before block size and split are known.
#[derive(Clone, Copy, Debug)]
enum Length {
    /// Any number.
    Free(usize),
    /// k blocks, less one, exactly, or one more.
    Blocks(usize, usize),
    /// k splits, likewise.
    Splits(usize, usize),
}

impl Length {
    fn tokens(self, block_size: usize, split: usize) -> usize {
        let edge = |size: usize, count: usize, past: usize| (size * count + past).saturating_sub(1);
        match self {
            Length::Free(len) => len,
            // A few hundred tokens are enough for every path.
            Length::Blocks(k, past) => edge(block_size, k.min(1 + 300 / block_size), past),
            Length::Splits(k, past) => edge(split, k.min(1 + 300 / split), past),
        }
    }
}

fn length() -> impl Strategy<Value = Length> {
    prop_oneof![
        1 => (0usize..3).prop_map(Length::Free),
        3 => (0usize..300).prop_map(Length::Free),
        2 => (0usize..6, 0usize..3).prop_map(|(k, past)| Length::Blocks(k, past)),
        2 => (0usize..4, 0usize..3).prop_map(|(k, past)| Length::Splits(k, past)),
    ]
}
