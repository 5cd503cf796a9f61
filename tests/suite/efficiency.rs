//! What the kernels ask of memory, and what paging costs, in exact counts from the emulator.

use paged_attention::{CacheLayout, DType, LaunchArgs};
use ptx_emulator::{Counters, Module};

use crate::backend::{KernelOrder, Ptx, ptx, sets};
use crate::batch::Batch;
use crate::bound::bounds;
use crate::case::Case;
use crate::compare::within;
use crate::device::{Device, decode_args};
use crate::oracle;

/// The contiguous twin of `decode_f16_d128_mma`: the same body, but for the table.
const TWIN: &str = include_str!("../../cli/ptx/contiguous_f16_d128.ptx");

/// Sectors of K and V requested, against each once per head tile and CTA: a fiftieth for edges.
const SECTORS_TO_LEAST: f64 = 1.02;
/// Warp instructions of the paged kernel against those of its twin: paging may cost a twentieth. `mov` is not counted:
/// PTX needs it to name registers anew, and ptxas drops it.
const INSTRUCTIONS_TO_TWIN: f64 = 1.05;
/// Sectors of the paged kernel against those of its twin: at block size 16 an entry of the table, 4
/// bytes, serves 8 KB, and a warp fetches a sector for 8 of them at best, for one at worst: 1/256.
const SECTORS_TO_TWIN: f64 = 1.005;

/// The fixed shapes: f16, head_dim 128, blocks of 16.
fn shapes() -> [Case; 3] {
    let case = |lens: &[usize]| Case::new(DType::F16, 128, lens);
    [
        // Every query head has its own kv head.
        case(&[1024, 1000]).heads(4, 4),
        // Eight query heads per kv head.
        case(&[2048]).heads(16, 2),
        // Two warps of query heads; lengths that end inside a block, one of them inside the first.
        case(&[777, 1500, 9]).heads(48, 2),
    ]
}

sets!(keys_and_values_are_requested_once);

/// Counters of the decode launch of a set's kernel.
fn paged(ptx: &Ptx, batch: &Batch) -> Counters {
    let (_, reports) = ptx.reports(batch).unwrap();
    reports.decode.unwrap().counters
}

/// Counters of the contiguous twin over the same tokens; checks its output where one split
/// writes it.
fn contiguous(batch: &Batch) -> Counters {
    // Side by side: a batch whose blocks are as long as the longest sequence, in order.
    let case = &batch.case;
    let longest = case.max_seq_len();
    let layout = Case {
        spare_blocks: 0,
        ..case.clone().block_size(longest)
    };
    let in_order = (0..batch.num_seqs() as i32).collect();
    let batch = Batch::placed(&layout, batch.logical.clone(), in_order);
    let device = Device::upload(&batch, batch.plan.workspace_bytes());
    let launch = batch
        .plan
        .launches(&device.tensors)
        .unwrap()
        .decode
        .unwrap();
    let mut args = decode_args(&launch);
    // Nothing of the table may be looked at.
    args.block_table = 0;
    let entry = launch.entry.replace("decode", "contiguous");
    let module = Module::parse(TWIN).unwrap();
    let report = device
        .launch(&module, &entry, &launch, LaunchArgs::Decode(args))
        .unwrap();
    if batch.plan.num_splits() == 1 {
        let out = device.out(&batch, batch.out_len);
        for (s, seq) in batch.logical.seqs.iter().enumerate() {
            for h in 0..case.num_q_heads {
                let row = oracle::row(batch.config(), seq, h);
                let bounds = bounds(&KernelOrder, &batch.plan, seq, h, &row);
                for i in 0..128 {
                    let found = out[(s * case.num_q_heads + h) * 128 + i];
                    within("twin", (s, h, i), found, row.out[i], bounds.out[i]).unwrap();
                }
            }
        }
    }
    report.counters
}

fn table(paged: &Counters, twin: &Counters) -> String {
    let mut text = String::from("warp instructions by class: paged, contiguous\n");
    let mut classes: Vec<_> = paged
        .warp_instructions
        .keys()
        .chain(twin.warp_instructions.keys())
        .collect();
    classes.sort();
    classes.dedup();
    for &class in classes {
        text += &format!(
            "  {class:?}: {}, {}\n",
            paged.class(class),
            twin.class(class)
        );
    }
    for (name, counts) in &paged.allocations {
        text += &format!("  {name}: {counts:?}, {:?}\n", twin.allocations.get(name));
    }
    text
}

fn keys_and_values_are_requested_once(ptx: &Ptx) {
    for case in shapes() {
        for order in [CacheLayout::Nhd, CacheLayout::Hnd] {
            for split in [512, 8192] {
                let case = Case {
                    order,
                    ..case.clone()
                }
                .split(split);
                let batch = Batch::new(&case);
                let counters = paged(ptx, &batch);
                for name in ["k_cache", "v_cache"] {
                    let counts = counters.allocations[name];
                    let ratio = counts.loaded as f64 / counts.loaded_per_block as f64;
                    println!("{name}: {ratio:.4} {counts:?}");
                    assert!(
                        ratio <= SECTORS_TO_LEAST,
                        "{name}: {ratio} {counts:?}\n{case}"
                    );
                    // The least is what the tokens take, for every head tile.
                    let heads = batch.plan.heads_per_cta() as usize;
                    let tiles = case.group().div_ceil(heads) * case.num_kv_heads;
                    let tokens: usize = case.lens.iter().sum();
                    let sectors = tokens * tiles * case.head_dim * 2 / 32;
                    assert_eq!(counts.loaded_per_block, sectors as u64, "{name}\n{case}");
                }
            }
        }
    }
}

/// Runs shapes whole and in splits; the text of those for which `misses(paged, twin)` is true.
fn misses(shapes: &[Case], misses: impl Fn(&Counters, &Counters) -> bool) -> String {
    let mut all = String::new();
    for case in shapes {
        for split in [512, 8192] {
            let batch = Batch::new(&case.clone().split(split));
            let (paged, twin) = (paged(ptx(), &batch), contiguous(&batch));
            let text = format!(
                "{} query heads on {}, lengths {:?}, splits of {split}: warp instructions {:.4} \
                 (without moves {:.4}), sectors {:.4} of the twin's\n{}",
                case.num_q_heads,
                case.num_kv_heads,
                case.lens,
                paged.total() as f64 / twin.total() as f64,
                paged.total_without_moves() as f64 / twin.total_without_moves() as f64,
                paged.global().loaded as f64 / twin.global().loaded as f64,
                table(&paged, &twin)
            );
            println!("{text}");
            if misses(&paged, &twin) {
                all += &text;
            }
        }
    }
    all
}

#[test]
fn paging_costs_few_sectors() {
    let misses = misses(&shapes(), |paged, twin| {
        paged.global().loaded as f64 > SECTORS_TO_TWIN * twin.global().loaded as f64
    });
    assert!(misses.is_empty(), "{misses}");
}

#[test]
fn paging_costs_few_instructions() {
    let misses = misses(&shapes(), |paged, twin| {
        let [paged, twin] = [paged, twin].map(|c| c.total_without_moves() as f64);
        paged > INSTRUCTIONS_TO_TWIN * twin
    });
    assert!(misses.is_empty(), "{misses}");
}
