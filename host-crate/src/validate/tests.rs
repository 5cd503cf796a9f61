use half::{bf16, f16};

use super::*;
use crate::error::Shape;
use crate::{CacheLayout, CacheStrides, DType, DeviceLimits, SplitPolicy};

mod plan;
mod properties;
mod table;

/// 2 sequences, 4 query heads, 2 kv heads, head_dim 32, block size 16, 6 blocks, table of 3 columns.
struct Case {
    config: AttentionConfig,
    q: Vec<f16>,
    k: Vec<f16>,
    v: Vec<f16>,
    out: Vec<f16>,
    table: Vec<i32>,
    seq_lens: Vec<i32>,
}

const SEQS: usize = 2;
const BLOCKS: usize = 6;
const COLUMNS: usize = 3;

impl Case {
    fn new() -> Self {
        let cache = vec![f16::ZERO; BLOCKS * 16 * 2 * 32];
        Self {
            config: AttentionConfig::new(DType::F16, 4, 2, 32, 16),
            q: vec![f16::ZERO; SEQS * 4 * 32],
            k: cache.clone(),
            v: cache,
            out: vec![f16::ZERO; SEQS * 4 * 32],
            table: vec![5, 0, -1, 3, 2, 1],
            seq_lens: vec![20, 48],
        }
    }

    fn inputs(&self) -> DecodeInputs<'_, f16> {
        DecodeInputs {
            q: RowsView::contiguous(&self.q, SEQS, 4, 32),
            k_cache: CacheView::dense(&self.k, CacheLayout::Nhd, BLOCKS, 16, 2, 32),
            v_cache: CacheView::dense(&self.v, CacheLayout::Hnd, BLOCKS, 16, 2, 32),
            block_table: BlockTable::new(&self.table, SEQS, COLUMNS),
            seq_lens: &self.seq_lens,
        }
    }

    fn plan(&self) -> Plan {
        let limits = DeviceLimits::cpu(1);
        Plan::new(&self.config, SEQS, 64, SplitPolicy::Tokens(32), &limits).unwrap()
    }

    #[track_caller]
    fn refused(&self, expected: Error, text: &str) {
        assert_refused(
            self.inputs().validate(Op::Decode, &self.config),
            expected,
            text,
        );
    }
}

#[track_caller]
fn assert_refused(found: Result<(), Error>, expected: Error, text: &str) {
    let found = found.expect_err(text);
    assert_eq!(found, expected);
    assert_eq!(found.to_string(), text);
}

const OP: Op = Op::Decode;

#[test]
fn accepts_a_good_batch_with_garbage_past_the_live_entries() {
    let case = Case::new();
    let (plan, mut out) = (case.plan(), case.out.clone());
    let out = RowsViewMut::contiguous(&mut out, SEQS, 4, 32);
    let lse = [0.0; 8];
    let bytes = plan.workspace_bytes();
    plan.validate(OP, &case.inputs(), &out, Some(&lse), bytes)
        .unwrap();
    plan.validate(OP, &case.inputs(), &out, None, bytes)
        .unwrap();
}

#[test]
fn accepts_halves_of_a_fused_pool_and_packed_qkv() {
    let case = Case::new();
    let half = 16 * 2 * 32;
    let pool = vec![f16::ZERO; BLOCKS * 2 * half];
    let strides = CacheStrides {
        block: 2 * half,
        token: 2 * 32,
        head: 32,
    };
    let qkv = vec![f16::ZERO; SEQS * (4 + 2 + 2) * 32];
    let inputs = DecodeInputs {
        q: RowsView::with_strides(&qkv, SEQS, 4, 32, 8 * 32, 32),
        k_cache: CacheView::with_strides(&pool, BLOCKS, 16, 2, 32, strides),
        v_cache: CacheView::with_strides(&pool[half..], BLOCKS, 16, 2, 32, strides),
        ..case.inputs()
    };
    inputs.validate(OP, &case.config).unwrap();
    // The value half starts one half later, so one more element would lie past the pool.
    let past = CacheView::with_strides(&pool[half + 8..], BLOCKS, 16, 2, 32, strides);
    let inputs = DecodeInputs {
        v_cache: past,
        ..inputs
    };
    let error = inputs.validate(OP, &case.config).unwrap_err();
    assert!(
        matches!(
            error,
            Error::BufferTooSmall {
                argument: "v_cache",
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn accepts_any_block_size() {
    for block_size in [1, 2, 3, 8, 16, 32, 64, 128, 256, 768] {
        let config = AttentionConfig::new(DType::F32, 1, 1, 32, block_size);
        let cache = vec![0f32; 3 * block_size * 32];
        let table = [2, 0, 1];
        for len in [block_size - 1, block_size, block_size + 1, 3 * block_size] {
            let inputs = DecodeInputs {
                q: RowsView::contiguous(&cache, 1, 1, 32),
                k_cache: CacheView::dense(&cache, CacheLayout::Nhd, 3, block_size, 1, 32),
                v_cache: CacheView::dense(&cache, CacheLayout::Hnd, 3, block_size, 1, 32),
                block_table: BlockTable::new(&table, 1, 3),
                seq_lens: &[len as i32],
            };
            inputs.validate(OP, &config).unwrap();
        }
    }
}

#[test]
fn refuses_another_storage_type() {
    let case = Case::new();
    let config = AttentionConfig {
        dtype: DType::Bf16,
        ..case.config
    };
    assert_refused(
        case.inputs().validate(OP, &config),
        Error::DTypeMismatch {
            op: OP,
            found: DType::F16,
            expected: DType::Bf16,
        },
        "decode: the tensors hold f16, must hold the configuration's bf16",
    );
}

/// Every dimension of every tensor, by name.
#[test]
fn refuses_shapes_that_disagree() {
    let case = Case::new();
    let good = case.inputs();
    let rows = |s, h, d| RowsView::contiguous(&case.q, s, h, d);
    let cache = |n, b, h, d| CacheView::dense(&case.k, CacheLayout::Nhd, n, b, h, d);
    let table = |s| BlockTable::new(&case.table, s, COLUMNS);
    let cases = [
        (
            DecodeInputs {
                q: rows(3, 4, 32),
                ..good
            },
            "q",
            "num_seqs",
            3,
            2,
        ),
        (
            DecodeInputs {
                q: rows(2, 5, 32),
                ..good
            },
            "q",
            "num_heads",
            5,
            4,
        ),
        (
            DecodeInputs {
                q: rows(2, 4, 64),
                ..good
            },
            "q",
            "head_dim",
            64,
            32,
        ),
        (
            DecodeInputs {
                k_cache: cache(6, 8, 2, 32),
                ..good
            },
            "k_cache",
            "block_size",
            8,
            16,
        ),
        (
            DecodeInputs {
                k_cache: cache(6, 16, 4, 32),
                ..good
            },
            "k_cache",
            "num_kv_heads",
            4,
            2,
        ),
        (
            DecodeInputs {
                k_cache: cache(6, 16, 2, 16),
                ..good
            },
            "k_cache",
            "head_dim",
            16,
            32,
        ),
        (
            DecodeInputs {
                v_cache: cache(6, 8, 2, 32),
                ..good
            },
            "v_cache",
            "block_size",
            8,
            16,
        ),
        (
            DecodeInputs {
                v_cache: cache(6, 16, 1, 32),
                ..good
            },
            "v_cache",
            "num_kv_heads",
            1,
            2,
        ),
        (
            DecodeInputs {
                v_cache: cache(6, 16, 2, 0),
                ..good
            },
            "v_cache",
            "head_dim",
            0,
            32,
        ),
        (
            DecodeInputs {
                v_cache: cache(5, 16, 2, 32),
                ..good
            },
            "v_cache",
            "num_blocks",
            5,
            6,
        ),
        (
            DecodeInputs {
                block_table: table(1),
                ..good
            },
            "block_table",
            "num_seqs",
            1,
            2,
        ),
    ];
    for (inputs, argument, dimension, found, expected) in cases {
        assert_refused(
            inputs.validate(OP, &case.config),
            Error::ShapeMismatch {
                op: OP,
                argument,
                dimension,
                found,
                expected,
            },
            &format!("decode: {argument} has {dimension} {found}, must have {expected}"),
        );
    }
}

#[test]
fn refuses_strides_that_are_no_multiples_of_16_bytes() {
    let case = Case::new();
    let q = RowsView::with_strides(&case.q, SEQS, 4, 32, 128, 36);
    assert_refused(
        DecodeInputs { q, ..case.inputs() }.validate(OP, &case.config),
        Error::StrideNotAligned {
            op: OP,
            argument: "q",
            stride: "head",
            elements: 36,
            bytes: 72,
        },
        "decode: q.head_stride = 36 elements (72 bytes), must be a multiple of 16 bytes",
    );
    let good = CacheLayout::Nhd.strides(16, 2, 32);
    for (stride, strides) in [
        (
            "block",
            CacheStrides {
                block: 1020,
                ..good
            },
        ),
        (
            "token",
            CacheStrides {
                token: 1020,
                ..good
            },
        ),
        ("head", CacheStrides { head: 1020, ..good }),
    ] {
        let v_cache = CacheView::with_strides(&case.v, BLOCKS, 16, 2, 32, strides);
        let (argument, elements, bytes) = ("v_cache", 1020, 2040);
        assert_refused(
            DecodeInputs {
                v_cache,
                ..case.inputs()
            }
            .validate(OP, &case.config),
            Error::StrideNotAligned {
                op: OP,
                argument,
                stride,
                elements,
                bytes,
            },
            &format!(
                "decode: v_cache.{stride}_stride = 1020 elements (2040 bytes), must be a multiple \
                 of 16 bytes"
            ),
        );
    }
}

/// Strides that no buffer can have are refused as such, and others by what they reach.
#[test]
fn refuses_strides_past_every_buffer_with_the_reason() {
    let case = Case::new();
    let with = |token_stride| DecodeInputs {
        q: RowsView::with_strides(&case.q, SEQS, 4, 32, token_stride, 32),
        ..case.inputs()
    };
    let (argument, stride, element_bytes) = ("q", "token", 2);
    for elements in [1 << 62, (1 << 63) + 8, usize::MAX] {
        assert_refused(
            with(elements).validate(OP, &case.config),
            Error::StrideTooLarge {
                op: OP,
                argument,
                stride,
                elements,
                element_bytes,
            },
            &format!(
                "decode: q.token_stride = {elements} elements of 2 bytes, must span at most \
                 9223372036854775807 bytes"
            ),
        );
    }
    let error = with((1 << 62) - 8).validate(OP, &case.config).unwrap_err();
    assert!(
        matches!(error, Error::BufferTooSmall { needed, .. } if needed == (1 << 62) + 120),
        "{error}"
    );
}

#[test]
fn refuses_tensors_that_do_not_start_at_16_bytes() {
    let case = Case::new();
    let shifted = vec![f16::ZERO; 8 + BLOCKS * 16 * 2 * 32];
    let data = &shifted[4..];
    let address = data.as_ptr().addr() as u64;
    let (argument, alignment) = ("k_cache", 16);
    let k_cache = CacheView::dense(data, CacheLayout::Nhd, BLOCKS, 16, 2, 32);
    assert_refused(
        DecodeInputs {
            k_cache,
            ..case.inputs()
        }
        .validate(OP, &case.config),
        Error::BaseNotAligned {
            op: OP,
            argument,
            address,
            alignment,
        },
        &format!("decode: k_cache starts at address {address:#x}, must be a multiple of 16 bytes"),
    );
}

#[test]
fn refuses_slot_past_cache_end() {
    let mut case = Case::new();
    case.k.pop();
    let Err(Error::BufferTooSmall {
        argument: "k_cache",
        found,
        needed,
        ..
    }) = case.inputs().validate(OP, &case.config)
    else {
        panic!("a cache that lacks its last element was accepted")
    };
    assert_eq!((found, needed), (6143, 6144));
    assert_eq!(
        case.inputs()
            .validate(OP, &case.config)
            .unwrap_err()
            .to_string(),
        "decode: k_cache holds 6143 elements, must hold at least 6144 for num_blocks 6, \
         block_size 16, num_kv_heads 2, head_dim 32, block_stride 1024, token_stride 64, \
         head_stride 32"
    );
}

#[test]
fn refuses_rows_and_tables_past_their_end() {
    let mut case = Case::new();
    case.q.truncate(255);
    let shape = Shape(vec![
        ("num_seqs", 2),
        ("num_heads", 4),
        ("head_dim", 32),
        ("token_stride", 128),
        ("head_stride", 32),
    ]);
    case.refused(
        Error::BufferTooSmall {
            op: OP,
            argument: "q",
            found: 255,
            needed: 256,
            shape,
        },
        "decode: q holds 255 elements, must hold at least 256 for num_seqs 2, num_heads 4, \
         head_dim 32, token_stride 128, head_stride 32",
    );
    let mut case = Case::new();
    case.table.pop();
    let shape = Shape(vec![
        ("num_seqs", 2),
        ("max_blocks_per_seq", 3),
        ("row_stride", 3),
    ]);
    case.refused(
        Error::BufferTooSmall {
            op: OP,
            argument: "block_table",
            found: 5,
            needed: 6,
            shape,
        },
        "decode: block_table holds 5 elements, must hold at least 6 for num_seqs 2, \
         max_blocks_per_seq 3, row_stride 3",
    );
}

/// Element offsets past 2^31, 2^32 and 2^64 do not wrap into the buffer.
#[test]
fn refuses_offsets_that_would_wrap() {
    let case = Case::new();
    let with = |num_blocks, block| {
        let strides = CacheStrides {
            block,
            ..CacheLayout::Nhd.strides(16, 2, 32)
        };
        let view = CacheView::with_strides(&case.k, num_blocks, 16, 2, 32, strides);
        let inputs = DecodeInputs {
            k_cache: view,
            v_cache: view,
            ..case.inputs()
        };
        inputs.validate(OP, &case.config).unwrap_err()
    };
    for (num_blocks, block) in [(33, 1 << 26), (65, 1 << 26), ((1 << 32) + 1, 1 << 31)] {
        let Error::BufferTooSmall { needed, .. } = with(num_blocks, block) else {
            panic!("{num_blocks} blocks of {block}")
        };
        assert_eq!(
            needed as u128,
            (num_blocks as u128 - 1) * block as u128 + 1024
        );
    }
    let error = with((1 << 32) + 1, 1 << 32);
    let Error::Overflow {
        op: Op::Decode,
        argument: "k_cache",
        shape,
    } = &error
    else {
        panic!("{error:?}")
    };
    assert_eq!(shape.0[0], ("num_blocks", (1 << 32) + 1));
    assert!(
        error.to_string().starts_with(
            "decode: the size of k_cache overflows 64 bits for num_blocks 4294967297, block_size 16"
        ),
        "{error}"
    );
}

#[test]
fn the_operation_leads_the_sentence() {
    let case = Case::new();
    let config = AttentionConfig {
        dtype: DType::F32,
        ..case.config
    };
    for (op, name) in [
        (Op::Config, "config"),
        (Op::Plan, "plan"),
        (Op::Decode, "decode"),
        (Op::Reference, "reference"),
        (Op::Contiguous, "contiguous"),
    ] {
        let text = case.inputs().validate(op, &config).unwrap_err().to_string();
        assert!(text.starts_with(&format!("{name}: the tensors")), "{text}");
    }
}

#[test]
fn bf16_tensors_are_taken_as_such() {
    let config = AttentionConfig::new(DType::Bf16, 1, 1, 32, 1);
    let data = [bf16::ONE; 40];
    let start = data.as_ptr().align_offset(16);
    let data = &data[start..start + 32];
    let inputs = DecodeInputs {
        q: RowsView::contiguous(data, 1, 1, 32),
        k_cache: CacheView::dense(data, CacheLayout::Nhd, 1, 1, 1, 32),
        v_cache: CacheView::dense(data, CacheLayout::Nhd, 1, 1, 1, 32),
        block_table: BlockTable::new(&[0], 1, 1),
        seq_lens: &[1],
    };
    inputs.validate(OP, &config).unwrap();
}
