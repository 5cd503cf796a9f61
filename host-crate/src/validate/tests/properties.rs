//! Arbitrary inputs: validation never panics, and what it accepts is inside the buffers.

use proptest::prelude::*;

use super::*;

/// Sizes that are near what fits, and any others.
fn size(near: usize) -> impl Strategy<Value = usize> {
    prop_oneof![40 => Just(near), 2 => 0..=2 * near, 1 => any::<usize>()]
}

prop_compose! {
    fn any_sizes()(
        rows in (size(SEQS), size(4), size(32), size(128), size(32)),
        out in (size(SEQS), size(4), size(32), size(128), size(32)),
        cache in (size(BLOCKS), size(16), size(2), size(32)),
        strides in (size(1024), size(64), size(32)),
        table in (size(SEQS), size(COLUMNS), size(COLUMNS)),
        config in (size(4), size(2), size(32), size(16)),
        plan in (size(SEQS), size(64)),
    ) -> Sizes {
        Sizes { rows, out, cache, strides, table, config, plan }
    }
}

#[derive(Clone, Copy, Debug)]
struct Sizes {
    rows: (usize, usize, usize, usize, usize),
    out: (usize, usize, usize, usize, usize),
    cache: (usize, usize, usize, usize),
    strides: (usize, usize, usize),
    table: (usize, usize, usize),
    config: (usize, usize, usize, usize),
    plan: (usize, usize),
}

/// Whatever is accepted lies inside the buffers, reckoned anew in 128 bits.
fn assert_in_bounds(sizes: &Sizes, config: &AttentionConfig, case: &Case, seq_lens: &[i32]) {
    let (block, token, head) = sizes.strides;
    for (s, &len) in seq_lens.iter().enumerate() {
        let at = (s * sizes.rows.3 + (config.num_q_heads - 1) * sizes.rows.4) as u128;
        assert!(at + config.head_dim as u128 <= case.q.len() as u128);
        for t in 0..len as usize {
            let entry = case.table[s * sizes.table.2 + t / config.block_size];
            let at = entry as u128 * block as u128
                + (t % config.block_size) as u128 * token as u128
                + (config.num_kv_heads - 1) as u128 * head as u128;
            assert!(at + config.head_dim as u128 <= case.k.len() as u128);
        }
    }
}

proptest! {
    #[test]
    fn validation_never_panics_and_accepts_only_what_is_in_bounds(
        sizes in any_sizes(),
        table in prop::collection::vec(prop_oneof![20 => 0..BLOCKS as i32, 1 => any::<i32>()], 6..12),
        seq_lens in prop::collection::vec(prop_oneof![9 => 0..=48i32, 1 => any::<i32>()], 0..4),
        workspace in size(2176),
        lse in prop::option::of(0usize..16),
    ) {
        let mut case = Case::new();
        case.table = table;
        let (q, kv, d, b) = sizes.config;
        let config = AttentionConfig::new(DType::F16, q, kv, d, b);
        let rows = sizes.rows;
        let (n, cb, ch, cd) = sizes.cache;
        let strides = CacheStrides {
            block: sizes.strides.0, token: sizes.strides.1, head: sizes.strides.2,
        };
        let cache = CacheView::with_strides(&case.k, n, cb, ch, cd, strides);
        let (ts, tc, tr) = sizes.table;
        let inputs = DecodeInputs {
            q: RowsView::with_strides(&case.q, rows.0, rows.1, rows.2, rows.3, rows.4),
            k_cache: cache,
            v_cache: cache,
            block_table: BlockTable::with_stride(&case.table, ts, tc, tr),
            seq_lens: &seq_lens,
        };
        if inputs.validate(OP, &config).is_ok() {
            assert_in_bounds(&sizes, &config, &case, &seq_lens);
            crate::reference::decode(&config, &inputs).unwrap();
        }
        let limits = DeviceLimits::cpu(2);
        let (seqs, capacity) = sizes.plan;
        if let Ok(plan) = Plan::new(&config, seqs, capacity, SplitPolicy::Tokens(32), &limits) {
            let (s, h, d, token, head) = sizes.out;
            let mut out = case.out.clone();
            let out = RowsViewMut::with_strides(&mut out, s, h, d, token, head);
            let lse = lse.map(|n| vec![0f32; n]);
            if plan.validate(OP, &inputs, &out, lse.as_deref(), workspace).is_ok() {
                prop_assert!(inputs.validate(OP, &config).is_ok());
                prop_assert!(workspace >= plan.workspace_bytes());
            }
        }
    }
}
