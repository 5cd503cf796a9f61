//! Planted bugs: the shipped PTX with one thing wrong. The detector or the oracle that should catch
//! each of them does, so that the tests that pass on the shipped PTX mean something.

use paged_attention::Error;
use paged_attention::artefacts::PtxSet;
use paged_attention::{DType, kernels::variants::DECODE};
use ptx_emulator::{Access, Fault, FaultKind, Module, Space};

pub mod edit;

use edit::{Instruction, Which, drop, edited, instructions, only_below, set_with};

use crate::backend::{Backend, Ptx};
use crate::batch::Batch;
use crate::case::{Case, Data};
use crate::compare::{check, close_to_exact};
use crate::far;

/// Runs `case` on the edited set; the unedited one computes it well.
#[track_caller]
fn run(
    entry: &str,
    which: Which,
    edit: impl Fn(&Instruction<'_>) -> Option<String>,
    case: &Case,
) -> (Ptx, Result<crate::backend::Output, Error>, Batch) {
    let plan = case.plan();
    let entries = [plan.decode_variant().entry, plan.merge_variant().entry];
    assert!(
        entries.contains(&entry),
        "{case} runs {entries:?}, not {entry}"
    );
    check(&Ptx::new(PtxSet::embedded().clone()), case).unwrap_or_else(|error| panic!("{error}"));
    let (file, text) = edited(entry, which, edit);
    let ptx = Ptx::new(set_with(&file, &text));
    let batch = Batch::new(case);
    let output = ptx.decode(&batch);
    (ptx, output, batch)
}

/// The edited kernel faults, and as `expected` says.
#[track_caller]
fn faults(
    entry: &str,
    which: Which,
    edit: impl Fn(&Instruction<'_>) -> Option<String>,
    case: &Case,
    expected: impl Fn(&Fault) -> bool,
) {
    let (_, output, _) = run(entry, which, edit, case);
    let error = output.expect_err("no fault was found");
    let text = error.to_string();
    let fault = fault_of(error).unwrap_or_else(|| panic!("{entry}: not a fault: {text}"));
    assert!(expected(&fault), "another fault was found: {fault}");
    assert_eq!(fault.kernel, entry);
}

/// The fault that an error reports, if it is one.
fn fault_of(error: Error) -> Option<Fault> {
    match error {
        Error::Emulated {
            source: ptx_emulator::Error::Fault(fault),
            ..
        } => Some(*fault),
        _ => None,
    }
}

/// The edited kernel runs through, and its output is noticed to be wrong.
#[track_caller]
fn is_wrong(
    entry: &str,
    which: Which,
    edit: impl Fn(&Instruction<'_>) -> Option<String>,
    case: &Case,
) {
    let (ptx, output, batch) = run(entry, which, edit, case);
    let output = output.unwrap_or_else(|error| panic!("{entry}: {error}"));
    let error = close_to_exact(&ptx, &batch, &output).expect_err("a wrong output was not noticed");
    println!("{error}");
}

/// The scalar kernel for one query head per kv head.
const SCALAR: &str = "decode_f32_d64_h1";
/// The tensor-core kernel.
const TENSOR: &str = "decode_f16_d64_mma";

/// Lengths around units, tiles and splits, with the last slots of blocks unused.
fn scalar() -> Case {
    Case::new(DType::F32, 64, &[13, 130, 1, 75])
        .heads(2, 2)
        .split(96)
}

fn tensor() -> Case {
    Case::new(DType::F16, 64, &[13, 130, 1, 75])
        .heads(8, 2)
        .split(96)
}

/// Both kernels, with a case that runs each.
fn kernels() -> [(&'static str, Case); 2] {
    [(SCALAR, scalar()), (TENSOR, tensor())]
}

fn is_race(fault: &Fault) -> bool {
    matches!(fault.kind, FaultKind::SharedRace { .. })
}

/// A read of a named buffer where nothing was written, or behind its end.
fn reads_dead(fault: &Fault, buffers: &[&str]) -> bool {
    match &fault.kind {
        FaultKind::Uninitialised {
            space: Space::Global,
            nearest,
            ..
        }
        | FaultKind::OutOfBounds {
            space: Space::Global,
            nearest,
            ..
        } => nearest
            .as_ref()
            .is_some_and(|nearest| buffers.contains(&nearest.name.as_str())),
        _ => false,
    }
}

#[test]
fn a_dropped_barrier_is_a_race() {
    let barriers = |entry| {
        instructions(entry)
            .filter(|i| i.opcode == "bar.sync")
            .count()
    };
    // The last two stand around the exchange of the states.
    for (entry, case) in kernels() {
        let count = barriers(entry);
        for n in [count - 2, count - 1] {
            faults(entry, Which::Nth(n), drop("bar.sync"), &case, is_race);
        }
    }
    // `merge` writes shared memory once: only its second barrier orders anything.
    let last = Which::Nth(barriers("merge_f32_d64") - 1);
    faults("merge_f32_d64", last, drop("bar.sync"), &scalar(), is_race);
    // Four warps of query heads read what all warps copied.
    let many = Case::new(DType::F16, 64, &[300]).heads(40, 1);
    for n in 0..barriers(TENSOR) - 2 {
        faults(TENSOR, Which::Nth(n), drop("bar.sync"), &many, is_race);
    }
}

#[test]
fn a_dropped_warp_barrier_is_a_race() {
    // Long enough for a third copy, the first that overwrites what was read.
    let case = Case {
        lens: vec![400],
        ..tensor().split(512)
    };
    for n in 0..2 {
        faults(TENSOR, Which::Nth(n), drop("bar.warp.sync"), &case, is_race);
    }
}

#[test]
fn a_dropped_or_weakened_wait_is_a_read_of_pending_bytes() {
    let pending = |fault: &Fault| matches!(fault.kind, FaultKind::AsyncPending { .. });
    let weaken = |i: &Instruction<'_>| {
        let waits = i.opcode == "cp.async.wait_group" && i.operands == ["1"];
        waits.then(|| String::from("cp.async.wait_group 2;"))
    };
    for (entry, case) in kernels() {
        faults(
            entry,
            Which::Nth(0),
            drop("cp.async.wait_group"),
            &case,
            pending,
        );
        faults(entry, Which::Every, weaken, &case, pending);
    }
}

#[test]
fn an_off_by_one_in_the_length_is_noticed() {
    // The only max.s32 makes a negative length 0.
    let by = |n: i32| {
        move |i: &Instruction<'_>| {
            let (to, operands) = (i.operands[0], i.operands.join(","));
            (i.opcode == "max.s32").then(|| format!("max.s32 {operands}; add.s32 {to},{to},{n};"))
        }
    };
    for (entry, case) in kernels() {
        // 33 tokens of 48 per split: the next slot exists and is unused.
        let case = Case {
            lens: vec![33],
            ..case
        };
        let live_only = |f: &Fault| reads_dead(f, &["k_cache", "v_cache"]);
        faults(entry, Which::Every, by(1), &case, live_only);
        is_wrong(entry, Which::Every, by(-1), &case);
    }
}

#[test]
fn an_unmasked_tail_copy_reads_a_dead_slot() {
    let unmask = |i: &Instruction<'_>| {
        let size = i.opcode == "selp.b32" && i.operands[1..3] == ["16", "0"];
        size.then(|| format!("mov.b32 {},16;", i.operands[0]))
    };
    for (entry, case) in kernels() {
        let dead = |f: &Fault| reads_dead(f, &["k_cache", "v_cache"]);
        faults(entry, Which::Every, unmask, &case, dead);
    }
}

#[test]
fn an_unmasked_tail_score_gives_a_wrong_output() {
    let unmask = |i: &Instruction<'_>| {
        let score = i.opcode == "selp.f32" && i.operands[2].eq_ignore_ascii_case("0fFF800000");
        score.then(|| format!("mov.b32 {},{};", i.operands[0], i.operands[1]))
    };
    for (entry, case) in kernels() {
        is_wrong(entry, Which::Every, unmask, &case);
    }
}

/// The token whose table entry a lane looks up is clamped to the last live one. Which minimum does
/// that, and which of its sides is the clamp, is for the compiler to say: one of them must.
#[test]
fn a_table_read_past_the_last_live_entry_is_caught() {
    for (entry, case) in kernels() {
        let case = Case {
            lens: vec![5],
            ..case.block_size(1)
        };
        let minima = instructions(entry)
            .filter(|i| i.opcode == "min.u32")
            .count();
        let caught = (0..2 * minima).any(|n| {
            let unclamp = |i: &Instruction<'_>| {
                let other = i.operands.get(1 + n % 2)?;
                (i.opcode == "min.u32").then(|| format!("mov.b32 {},{other};", i.operands[0]))
            };
            let fault = run(entry, Which::Nth(n / 2), unclamp, &case)
                .1
                .err()
                .and_then(fault_of);
            fault.is_some_and(|fault| reads_dead(&fault, &["block_table"]))
        });
        assert!(
            caught,
            "{entry}: none of {minima} minima keeps the table read inside"
        );
    }
}

#[test]
fn a_wrong_merge_gives_a_wrong_output() {
    // Weight 1 whatever the maxima: in turn what was summed before, the next split, the lane rows.
    let unweighted = |i: &Instruction<'_>| {
        let exponential = i.opcode.starts_with("ex2.approx");
        exponential.then(|| format!("mov.b32 {},0f3F800000;", i.operands[0]))
    };
    for (entry, case) in [("merge_f32_d64", scalar()), ("merge_f16_d64", tensor())] {
        let case = Case {
            lens: vec![700, 95, 97],
            ..case.split(16).data(Data::Sharp)
        };
        for n in 0..3 {
            is_wrong(entry, Which::Nth(n), unweighted, &case);
        }
    }
}

#[test]
fn a_forgotten_rescale_gives_a_wrong_output() {
    let unweighted = |i: &Instruction<'_>| {
        let exponential = i.opcode.starts_with("ex2.approx");
        exponential.then(|| format!("mov.b32 {},0f3F800000;", i.operands[0]))
    };
    for (entry, case) in kernels() {
        // The first exponential of a tile is the factor on what was summed before.
        is_wrong(entry, Which::Nth(0), unweighted, &case.data(Data::Rising));
    }
}

#[test]
fn an_offset_of_32_bits_leaves_the_buffer() {
    for entry in [SCALAR, TENSOR, "decode_f32_d64_h8", "decode_bf16_d120_h8"] {
        // Products with the table's entry, which is the only signed number to be widened.
        let entries: Vec<&str> = instructions(entry)
            .filter(|i| i.opcode == "cvt.s64.s32")
            .map(|i| i.operands[0])
            .collect();
        let narrow = |i: &Instruction<'_>| {
            let (to, a, b, c) = match (i.opcode, &i.operands[..]) {
                ("mad.lo.s64", &[to, a, b, c]) => (to, a, b, c),
                ("mul.lo.s64", &[to, a, b]) => (to, a, b, "0"),
                _ => return None,
            };
            (entries.contains(&a) || entries.contains(&b)).then(|| {
                format!(
                    "{{ .reg .b32 low; .reg .b64 wide; mul.lo.s64 wide,{a},{b}; \
                     cvt.u32.u64 low,wide; cvt.s64.s32 wide,low; add.s64 {to},wide,{c}; }}"
                )
            })
        };
        let (_, text) = edited(entry, Which::Every, narrow);
        let module = Module::parse(&text).unwrap();
        let variant = DECODE.iter().find(|v| v.entry == entry).unwrap();
        for place in far::PLACES {
            let error = far::decode(&module, variant, place).unwrap_err();
            let ptx_emulator::Error::Fault(fault) = error else {
                panic!("{entry}: {error}")
            };
            assert!(
                matches!(fault.kind, FaultKind::OutOfBounds { .. }),
                "{fault}"
            );
        }
    }
}

#[test]
fn an_unaligned_vector_load_is_a_fault() {
    let shift = |i: &Instruction<'_>| {
        let vector = i.opcode.starts_with("ld.global") && i.opcode.contains(".v4");
        vector.then(|| {
            let address = i.operands[1].trim_matches(['[', ']']);
            format!("{} {},[{address}+4];", i.opcode, i.operands[0])
        })
    };
    let misaligned = |fault: &Fault| {
        let expected = (Space::Global, Access::Read, 16);
        matches!(fault.kind, FaultKind::Misaligned { space, access, required, .. }
            if (space, access, required) == expected)
    };
    faults(SCALAR, Which::Nth(0), shift, &scalar(), misaligned);
    faults("merge_f16_d64", Which::Nth(0), shift, &tensor(), misaligned);
}

#[test]
fn a_shuffle_under_a_lane_condition_is_a_fault() {
    let lanes = |fault: &Fault| {
        matches!(
            fault.kind,
            FaultKind::InactiveLane { .. } | FaultKind::PartialWarp { .. }
        )
    };
    for (entry, case) in kernels() {
        let butterfly = only_below("shfl.sync.bfly.b32", "%laneid", 16);
        faults(entry, Which::Nth(0), butterfly, &case, lanes);
        // Blocks of three tokens take the path that shuffles table entries.
        let index = only_below("shfl.sync.idx.b32", "%laneid", 31);
        faults(entry, Which::Every, index, &case.block_size(3), lanes);
    }
    let matrix = "ldmatrix.sync.aligned.m8n8.x4.shared.b16";
    faults(
        TENSOR,
        Which::Nth(0),
        only_below(matrix, "%laneid", 8),
        &tensor(),
        lanes,
    );
}

#[test]
fn a_barrier_after_which_one_warp_has_left_is_a_fault() {
    let leave = |i: &Instruction<'_>| {
        (i.opcode == "bar.sync").then(|| {
            let operands = i.operands.join(",");
            format!(
                "{{ .reg .pred some; .reg .b32 place; mov.u32 place,%tid.x; \
                 setp.ge.u32 some,place,96; @some exit; bar.sync {operands}; }}"
            )
        })
    };
    let partial = |fault: &Fault| matches!(fault.kind, FaultKind::BarrierPartial { .. });
    for (entry, case) in kernels() {
        faults(entry, Which::Every, leave, &case, partial);
    }
}

#[test]
fn values_that_are_not_transposed_give_a_wrong_output() {
    let plain = |i: &Instruction<'_>| {
        let transposed = i.opcode.contains("ldmatrix") && i.opcode.contains(".trans");
        transposed.then(|| {
            format!(
                "{} {};",
                i.opcode.replace(".trans", ""),
                i.operands.join(",")
            )
        })
    };
    is_wrong(TENSOR, Which::Every, plain, &tensor());
}

#[test]
fn a_log_sum_exp_in_log2_units_is_noticed() {
    let unscaled = |i: &Instruction<'_>| {
        let scales = i.opcode.starts_with("mul") && i.operands.contains(&"0f3F317218");
        scales.then(|| format!("mov.b32 {},{};", i.operands[0], i.operands[1]))
    };
    for (entry, case) in kernels() {
        is_wrong(entry, Which::Every, unscaled, &case);
    }
}

#[test]
fn a_store_that_is_missing_is_noticed() {
    let store = |i: &Instruction<'_>| i.opcode.starts_with("st.global").then(String::new);
    for entry in ["merge_f32_d64", SCALAR] {
        let (_, output, _) = run(entry, Which::Every, store, &scalar());
        let error = output.unwrap_err().to_string();
        let unwritten = error.contains("unwritten") || error.contains("uninitialised");
        assert!(unwritten, "{error}");
    }
}
