use proptest::prelude::*;

use super::*;
use crate::{DType, DeviceCache, DeviceRows, DeviceTable, DeviceTensors, LaunchArgs};

fn config() -> AttentionConfig {
    AttentionConfig::new(DType::F16, 32, 8, 128, 16)
}

fn plan(num_seqs: usize, max_seq_len: usize, policy: SplitPolicy) -> Result<Plan, Error> {
    Plan::new(
        &config(),
        num_seqs,
        max_seq_len,
        policy,
        &DeviceLimits::h100(),
    )
}

pub(crate) fn tensors() -> DeviceTensors {
    let rows = |address| DeviceRows {
        address,
        token_stride: 4096,
        head_stride: 128,
    };
    let strides = crate::CacheLayout::Nhd.strides(16, 8, 128);
    DeviceTensors {
        q: rows(0x1000),
        k_cache: DeviceCache {
            address: 0x2000,
            strides,
        },
        v_cache: DeviceCache {
            address: 0x3000,
            strides,
        },
        block_table: DeviceTable {
            address: 0x4004,
            row_stride: 7,
        },
        seq_lens: 0x5004,
        out: rows(0x6000),
        lse: None,
        workspace: 0x7000,
    }
}

#[test]
fn one_split_needs_no_workspace() {
    let plan = plan(3, 512, SplitPolicy::Tokens(512)).unwrap();
    assert_eq!((plan.num_splits(), plan.workspace_bytes()), (1, 0));
}

#[test]
fn workspace_is_exact() {
    let plan = plan(3, 513, SplitPolicy::Tokens(512)).unwrap();
    assert_eq!((plan.num_splits(), plan.split_tokens()), (2, 512));
    let out = 3 * 32 * 2 * 128;
    let ml = 3 * 32 * 2 * 2;
    assert_eq!(plan.workspace_bytes(), (out + ml) * 4);
    assert_eq!(plan.workspace_len(), out + ml);
    assert_eq!(plan.partial_out_len(), out);
}

#[test]
fn workspace_past_the_address_space_is_refused() {
    let config = AttentionConfig::new(DType::F16, 65_535, 65_535, 256, 16);
    let limits = DeviceLimits::h100();
    let error = Plan::new(
        &config,
        i32::MAX as usize,
        8192 * 16,
        SplitPolicy::Tokens(16),
        &limits,
    )
    .unwrap_err();
    let Error::Overflow {
        op: Op::Plan,
        argument: "the workspace",
        shape,
    } = &error
    else {
        panic!("{error:?}")
    };
    assert_eq!(shape.0[3], ("row_bytes", 258 * 4));
    assert_eq!(
        error.to_string(),
        "plan: the size of the workspace overflows 64 bits for num_seqs 2147483647, \
         num_q_heads 65535, num_splits 8192, row_bytes 1032"
    );
}

#[test]
fn an_empty_batch_is_planned_and_launches_nothing() {
    for policy in [SplitPolicy::Auto, SplitPolicy::Tokens(16)] {
        let plan = plan(0, 4096, policy).unwrap();
        assert_eq!(plan.workspace_bytes(), 0);
        // Not even the pointers matter.
        let nothing = DeviceTensors {
            workspace: 1,
            seq_lens: 0,
            ..tensors()
        };
        assert_eq!(plan.launches(&nothing).unwrap().iter().count(), 0);
    }
}

#[test]
fn more_than_65535_sequences_fit_the_grid() {
    let plan = plan(70_000, 33, SplitPolicy::Tokens(16)).unwrap();
    assert_eq!(plan.decode_grid(), [70_000, 8, 3]);
    assert_eq!(plan.merge_grid(), [70_000, 32, 1]);
}

#[test]
fn capacity_of_zero_still_launches_to_write_zeros() {
    let plan = plan(2, 0, SplitPolicy::Auto).unwrap();
    assert_eq!(plan.decode_grid(), [2, 8, 1]);
}

#[test]
fn split_lengths_that_are_no_multiples_of_16_are_refused() {
    for split_tokens in [0, 15, 17, 8208, u32::MAX] {
        let error = plan(1, 100, SplitPolicy::Tokens(split_tokens)).unwrap_err();
        assert_eq!(
            error,
            Error::SplitTokens {
                split_tokens,
                unit: 16,
                max: 8192
            }
        );
        assert_eq!(
            error.to_string(),
            format!(
                "plan: split_tokens = {split_tokens}, must be a positive multiple of 16 and at most 8192"
            )
        );
    }
}

#[test]
fn too_many_splits_are_refused() {
    assert_eq!(
        plan(1, 8192 * 16, SplitPolicy::Tokens(16))
            .unwrap()
            .num_splits(),
        8192
    );
    let error = plan(1, 8192 * 16 + 1, SplitPolicy::Tokens(16)).unwrap_err();
    let (max_seq_len, split_tokens) = (8192 * 16 + 1, 16);
    assert_eq!(
        error,
        Error::TooManySplits {
            max_seq_len,
            split_tokens,
            num_splits: 8193,
            max: 8192
        }
    );
    assert_eq!(
        error.to_string(),
        "plan: max_seq_len = 131073 with splits of 16 tokens makes 8193 splits, must be at most 8192"
    );
}

#[test]
fn sizes_past_i32_and_devices_without_processors_are_refused() {
    let max = i32::MAX as u64;
    let too_long = plan(1, 1 << 31, SplitPolicy::Auto).unwrap_err();
    let (op, argument, value, min) = (Op::Plan, "max_seq_len", 1 << 31, 0);
    assert_eq!(
        too_long,
        Error::OutOfRange {
            op,
            argument,
            value,
            min,
            max
        }
    );
    let too_many = plan(1 << 31, 1, SplitPolicy::Auto).unwrap_err();
    assert_eq!(
        too_many.to_string(),
        "plan: num_seqs = 2147483648, must be between 0 and 2147483647"
    );
    let limits = DeviceLimits::cpu(0);
    let none = Plan::new(&config(), 1, 1, SplitPolicy::Auto, &limits).unwrap_err();
    assert_eq!(
        none.to_string(),
        "plan: limits.sm_count = 0, must be between 1 and 4294967295"
    );
}

#[test]
fn grid_refusals_name_the_entry() {
    let (entry, num_seqs, num_kv_heads, num_splits) = ("decode_f16_d128_mma", 1, 2, 3);
    let error = Error::GridTooLarge {
        entry,
        num_seqs,
        num_kv_heads,
        num_splits,
    };
    assert_eq!(
        error.to_string(),
        "plan: decode_f16_d128_mma would launch 1 sequences × 2 kv heads × 3 splits, must fit a \
         grid of 2147483647 × 65535 × 65535"
    );
}

/// The choice of kernel must not look at the batch: the promise of batch invariance rests on it.
#[test]
fn fixed_splits_do_not_depend_on_the_batch() {
    let one = plan(1, 100, SplitPolicy::Tokens(512)).unwrap();
    let many = plan(999, 100_000, SplitPolicy::Tokens(512)).unwrap();
    assert_eq!(one.decode_variant(), many.decode_variant());
    assert_eq!(one.split_tokens(), many.split_tokens());
}

#[test]
fn launches_carry_geometry_and_arguments() {
    let plan = plan(3, 1000, SplitPolicy::Tokens(512)).unwrap();
    let tensors = DeviceTensors {
        lse: Some(0x8004),
        ..tensors()
    };
    let launches = plan.launches(&tensors).unwrap();
    let [decode, merge] = launches.iter().collect::<Vec<_>>()[..] else {
        panic!("{launches:?}")
    };
    assert_eq!(
        (decode.entry, decode.grid),
        (plan.decode_variant().entry, [3, 8, 2])
    );
    assert_eq!((merge.entry, merge.grid), ("merge_f16_d128", [3, 32, 1]));
    assert_eq!((decode.block, merge.block), ([128, 1, 1], [128, 1, 1]));
    let (LaunchArgs::Decode(d), LaunchArgs::Merge(m)) = (decode.args, merge.args) else {
        panic!("{launches:?}")
    };
    assert_eq!(
        (d.partial_out, d.partial_ml),
        (0x7000, 0x7000 + 3 * 32 * 2 * 128 * 4)
    );
    assert_eq!((m.partial_out, m.partial_ml), (d.partial_out, d.partial_ml));
    assert_eq!(
        (d.lse, m.lse, m.out, m.seq_lens),
        (0x8004, 0x8004, 0x6000, 0x5004)
    );
    assert_eq!(
        (d.k_block_stride, d.k_token_stride, d.k_head_stride),
        (16 * 1024, 1024, 128)
    );
    assert_eq!((d.table_stride, d.group_size, d.block_size), (7, 4, 16));
    assert_eq!((d.split_tokens, d.num_splits, d.num_q_heads), (512, 2, 32));
    let scale = std::f32::consts::LOG2_E / 128f32.sqrt();
    assert!(
        (d.scale_log2 - scale).abs() <= f32::EPSILON * scale,
        "{}",
        d.scale_log2
    );
    assert_eq!(decode.args.to_bytes().len(), 200);
    assert_eq!(merge.args.to_bytes().len(), 72);
}

#[test]
fn a_single_split_launches_decode_alone() {
    let plan = plan(3, 1000, SplitPolicy::Tokens(1008)).unwrap();
    let launches = plan
        .launches(&DeviceTensors {
            workspace: 0,
            ..tensors()
        })
        .unwrap();
    assert!(launches.decode.is_some() && launches.merge.is_none());
}

#[test]
fn device_pointers_that_are_null_or_unaligned_are_refused() {
    let plan = plan(3, 1000, SplitPolicy::Tokens(512)).unwrap();
    type Set = fn(&mut DeviceTensors, u64);
    let arguments: [(&'static str, usize, Set); 8] = [
        ("q", 16, |t, a| t.q.address = a),
        ("k_cache", 16, |t, a| t.k_cache.address = a),
        ("v_cache", 16, |t, a| t.v_cache.address = a),
        ("block_table", 4, |t, a| t.block_table.address = a),
        ("seq_lens", 4, |t, a| t.seq_lens = a),
        ("out", 16, |t, a| t.out.address = a),
        ("lse", 4, |t, a| t.lse = Some(a)),
        ("workspace", 16, |t, a| t.workspace = a),
    ];
    for (argument, alignment, set) in arguments {
        let op = Op::Decode;
        let mut t = tensors();
        set(&mut t, 0);
        let error = plan.launches(&t).unwrap_err();
        assert_eq!(error, Error::NullPointer { op, argument });
        assert_eq!(
            error.to_string(),
            format!("decode: {argument} is the null address, must point to device memory")
        );
        let address = 0x9000 + alignment as u64 / 2;
        set(&mut t, address);
        let error = plan.launches(&t).unwrap_err();
        assert_eq!(
            error,
            Error::BaseNotAligned {
                op,
                argument,
                address,
                alignment
            }
        );
        assert_eq!(
            error.to_string(),
            format!(
                "decode: {argument} starts at address {address:#x}, must be a multiple of \
                 {alignment} bytes"
            )
        );
    }
}

#[test]
fn device_strides_that_are_no_multiples_of_16_bytes_are_refused() {
    let plan = plan(3, 1000, SplitPolicy::Tokens(512)).unwrap();
    type Set = fn(&mut DeviceTensors, usize);
    let strides: [(&'static str, &'static str, Set); 10] = [
        ("q", "token", |t, s| t.q.token_stride = s),
        ("q", "head", |t, s| t.q.head_stride = s),
        ("out", "token", |t, s| t.out.token_stride = s),
        ("out", "head", |t, s| t.out.head_stride = s),
        ("k_cache", "block", |t, s| t.k_cache.strides.block = s),
        ("k_cache", "token", |t, s| t.k_cache.strides.token = s),
        ("k_cache", "head", |t, s| t.k_cache.strides.head = s),
        ("v_cache", "block", |t, s| t.v_cache.strides.block = s),
        ("v_cache", "token", |t, s| t.v_cache.strides.token = s),
        ("v_cache", "head", |t, s| t.v_cache.strides.head = s),
    ];
    for (argument, stride, set) in strides {
        let mut t = tensors();
        set(&mut t, 4100);
        let (op, elements, bytes) = (Op::Decode, 4100, 8200);
        let error = plan.launches(&t).unwrap_err();
        assert_eq!(
            error,
            Error::StrideNotAligned {
                op,
                argument,
                stride,
                elements,
                bytes
            }
        );
        // The first multiple of 16 bytes that is past what an i64 counts.
        let (elements, element_bytes) = (1 << 62, 2);
        set(&mut t, elements);
        assert_eq!(
            plan.launches(&t).unwrap_err(),
            Error::StrideTooLarge {
                op,
                argument,
                stride,
                elements,
                element_bytes
            }
        );
        set(&mut t, elements - 8);
        assert!(plan.launches(&t).is_ok(), "{argument}.{stride}");
    }
}

proptest! {
    #[test]
    fn planning_never_panics(
        heads in (any::<usize>(), any::<usize>()), small in (0usize..80, 0usize..80),
        use_small in any::<bool>(), head_dim in prop_oneof![Just(128usize), any::<usize>()],
        block_size in any::<usize>(), scale in any::<f32>(),
        num_seqs in any::<usize>(), max_seq_len in any::<usize>(),
        small_sizes in any::<bool>(),
        policy in prop_oneof![Just(SplitPolicy::Auto), any::<u32>().prop_map(SplitPolicy::Tokens),
            (0..600u32).prop_map(|n| SplitPolicy::Tokens(16 * n))],
        limits in any::<[u32; 5]>(),
    ) {
        let (q, kv) = if use_small { small } else { heads };
        let config = AttentionConfig::new(DType::Bf16, q, kv, head_dim, block_size).with_scale(scale);
        let [sm_count, threads, blocks, shared, registers] = limits;
        let limits = DeviceLimits::gpu(sm_count, threads, blocks, shared, registers);
        let shrink = |n: usize| if small_sizes { n % (1 << 20) } else { n };
        let (num_seqs, max_seq_len) = (shrink(num_seqs), shrink(max_seq_len));
        match Plan::new(&config, num_seqs, max_seq_len, policy, &limits) {
            Ok(plan) => {
                prop_assert!(plan.num_splits() as usize * plan.split_tokens() as usize >= max_seq_len);
                let _ = plan.launches(&tensors());
            }
            Err(error) => prop_assert!(error.to_string().contains("must")
                || error.to_string().contains("overflows"), "{error}"),
        }
    }
}
