//! Warps issue warp-synchronous instructions as often as the algorithm says, and whole.
//!
//! A compiler that takes such an instruction for ordinary code may copy it into both sides of a
//! divergent branch, where half a warp waits for the other half. How often it stands in the text says
//! little of that: compilers unroll, peel and copy in uniform control flow as they like. Three things
//! hold whatever they do, and are tested for each set (the last is printed, not tested, where a set was
//! compiled from an older source, whose loops may be others):
//!
//! - a part of a warp that issues one is a fault, in every test of this suite;
//! - every one that stands in the text is issued by a case below, so that none hides from the first
//!   (broadcasts excepted: the loop that they stand in has a trip count that compilers do not know, and
//!   of its copies some may never run);
//! - the warps issue as many as the kernels' loops ask for.
//!
//! For the default set `xtask` counts them in the text, too: it has one compiler.

use std::collections::{BTreeMap, BTreeSet};

use paged_attention::kernels::geometry::{LaneMap, TileMap, UNIT_TOKENS, WARPS, head_warps};
use paged_attention::kernels::variants::{CacheKind, DecodeKind, DecodeVariant, head_dims};
use paged_attention::{DType, Plan};
use ptx_emulator::{Options, Report};

use crate::backend::{Ptx, sets};
use crate::batch::Batch;
use crate::case::Case;
use crate::entries::GROUPS;
use crate::planted::edit::{Which, edited, set_with};

sets!(
    entries_for_f32_issue_the_expected_number,
    entries_for_f16_issue_the_expected_number,
    entries_for_bf16_issue_the_expected_number,
    cache_entries_hold_none,
);

/// Every kind and how its instructions begin. Waits and commits of asynchronous copies concern one
/// thread; that they are counted shows a loop that takes other turns.
const KINDS: [(&str, &[&str]); 9] = [
    ("butterfly", &["shfl.sync.bfly"]),
    ("broadcast", &["shfl.sync.idx"]),
    ("vote", &["vote."]),
    ("warp barrier", &["bar.warp.sync"]),
    ("barrier", &["bar.sync", "barrier."]),
    ("matrix load", &["ldmatrix"]),
    ("product", &["mma."]),
    ("commit", &["cp.async.commit_group"]),
    ("wait", &["cp.async.wait_"]),
];

/// Instructions by kind; none of a kind is no entry.
type Counts = BTreeMap<&'static str, u64>;

/// The kind of the instruction on a line, guarded or not.
fn kind(line: &str) -> Option<&'static str> {
    let line = line.trim_start();
    let code = match line.strip_prefix('@') {
        Some(guarded) => guarded.split_once(' ').map_or("", |(_, code)| code),
        None => line,
    };
    let mut kinds = KINDS.iter();
    let known = kinds.find(|(_, starts)| starts.iter().any(|start| code.starts_with(start)));
    if known.is_none() {
        let hidden = KINDS.iter().flat_map(|(_, starts)| *starts);
        let hidden = hidden.copied().chain([".sync", ".aligned"]);
        for word in hidden {
            assert!(!code.contains(word), "no kind of {KINDS:?}: {line}");
        }
    }
    known.map(|(name, _)| *name)
}

/// Lines of an entry in its file, counted from 1, with an instruction of a kind.
fn standing(text: &str, entry: &str) -> BTreeMap<u32, &'static str> {
    let mut inside = false;
    let mut lines = BTreeMap::new();
    for (number, line) in (1..).zip(text.lines()) {
        if let Some((_, rest)) = line.split_once(".entry ") {
            let name = rest.split(|c: char| c == '(' || c.is_whitespace()).next();
            inside = name == Some(entry);
        }
        if let Some(kind) = kind(line).filter(|_| inside) {
            lines.insert(number, kind);
        }
    }
    lines
}

/// What the warps of a launch issued.
fn issued(report: &Report, standing: &BTreeMap<u32, &'static str>) -> Counts {
    let mut counts = Counts::new();
    for line in &report.hot_lines {
        if let Some(kind) = standing.get(&line.line) {
            *counts.entry(kind).or_default() += line.warp_instructions;
        }
    }
    counts
}

/// What the warps of a plan's decode launch must issue for sequences of these lengths.
fn expected_of_decode(plan: &Plan, lens: &[usize]) -> Counts {
    let variant = plan.decode_variant();
    let group = plan.config().group_size();
    let tiles = group.div_ceil(plan.heads_per_cta() as usize) * plan.config().num_kv_heads;
    let split = plan.split_tokens() as usize;
    let mut counts = Counts::new();
    for &len in lens {
        // The first split of an empty sequence writes its zeros.
        for tokens in (0..len.max(1))
            .step_by(split)
            .map(|begin| split.min(len - begin))
        {
            let block_size = plan.config().block_size;
            let in_block = block_size.is_multiple_of(UNIT_TOKENS as usize);
            let of_cta = match variant.kind {
                DecodeKind::CudaCore => cuda_core_cta(variant, tokens as u64, in_block),
                DecodeKind::TensorCore => {
                    let head_warps = u64::from(head_warps(group as u32));
                    tensor_core_cta(variant, head_warps, tokens as u64, in_block)
                }
            };
            for (kind, count) in of_cta {
                *counts.entry(kind).or_default() += count * tiles as u64;
            }
        }
    }
    counts.retain(|_, count| *count > 0);
    counts
}

/// Shuffles that fetch two addresses, each in halves.
const ADDRESSES: u64 = 4;

fn cuda_core_cta(variant: &DecodeVariant, tokens: u64, in_block: bool) -> Counts {
    let map = LaneMap::new(variant.head_dim, variant.dtype.bytes());
    let (warps, unit) = (u64::from(WARPS), u64::from(UNIT_TOKENS));
    let units = tokens.div_ceil(unit);
    // The last unit has no stage that starts past the end, but for one that is copied ahead.
    let stage = u64::from(map.stage_tokens());
    let stages = tokens.div_ceil(stage);
    let copied = stages + u64::from(stages < units * (unit / stage));
    let steps = u64::from(map.steps);
    let sums = u64::from(variant.heads_per_tile * map.lanes_per_row.ilog2());
    // A warp copies one stage ahead: it takes a turn more than it has stages, if it has any.
    let busy = units.min(warps);
    [
        ("butterfly", stages * steps * sums),
        // Once where a unit lies in a block, else for every step.
        (
            "broadcast",
            ADDRESSES * if in_block { units } else { copied * steps },
        ),
        ("barrier", 2 * warps),
        ("commit", stages + busy),
        ("wait", stages + warps),
    ]
    .into()
}

fn tensor_core_cta(
    variant: &DecodeVariant,
    head_warps: u64,
    tokens: u64,
    in_block: bool,
) -> Counts {
    let d = u64::from(variant.head_dim);
    let warps = u64::from(WARPS);
    let units = tokens.div_ceil(u64::from(UNIT_TOKENS));
    let steps = u64::from(TileMap::new(variant.head_dim).steps);
    // All warps take the same turns, one unit of tokens by each, computed by each warp of heads.
    let turns = warps * units.div_ceil(warps);
    let tiles = units * head_warps;
    let own = head_warps == 1;
    [
        // The maxima of two rows over four lanes; the denominators of two rows at the end.
        ("butterfly", 4 * tiles + 4 * warps),
        (
            "broadcast",
            ADDRESSES * units * if in_block { 1 } else { steps },
        ),
        ("vote", tiles),
        ("warp barrier", if own { 2 * turns } else { 0 }),
        ("barrier", 2 * warps + if own { 0 } else { 2 * turns }),
        // 16 x 16 elements of K, then of V; two products with each.
        ("matrix load", tiles * (d / 16 + d / 16)),
        ("product", tiles * 2 * (d / 16 + d / 16)),
        ("commit", turns + if units > 0 { warps } else { 0 }),
        ("wait", turns + warps),
    ]
    .into()
}

/// The exchange of the states, for every query head of a sequence with more than one split.
fn expected_of_merge(plan: &Plan, lens: &[usize]) -> Counts {
    let split = plan.split_tokens() as usize;
    let merged = lens.iter().filter(|&&len| len > split).count() * plan.config().num_q_heads;
    [("barrier", 2 * u64::from(WARPS) * merged as u64)].into()
}

/// Lines of each entry that no case has issued yet.
type Unissued = BTreeMap<&'static str, BTreeSet<u32>>;

/// Runs a case and compares what its launches issue with what they must.
fn compare(ptx: &Ptx, case: &Case, unissued: &mut Unissued) -> Result<(), String> {
    let batch = Batch::new(case);
    let options = Options {
        hot_lines: true,
        ..Options::default()
    };
    let reports = ptx.with_options(options).reports(&batch);
    let (_, reports) = reports.map_err(|error| format!("{error}\n{case}"))?;
    let (plan, lens) = (&batch.plan, &case.lens);
    let decode = (plan.decode_variant().entry, reports.decode);
    let merge = (plan.merge_variant().entry, reports.merge);
    for ((entry, report), expected) in [
        (decode, expected_of_decode(plan, lens)),
        (merge, expected_of_merge(plan, lens)),
    ] {
        let report = report.ok_or(format!("{entry} was not launched"))?;
        let file = &ptx.set().entry(entry).unwrap().file;
        let standing = standing(ptx.set().ptx(file).unwrap(), entry);
        let lines = standing.iter().filter(|(_, kind)| **kind != "broadcast");
        let lines = lines.map(|(line, _)| *line).collect();
        let left = unissued.entry(entry).or_insert(lines);
        for line in &report.hot_lines {
            left.remove(&line.line);
        }
        let found = issued(&report, &standing);
        if found == expected {
            continue;
        }
        let text = format!("{entry} issued {found:?}, must issue {expected:?}\n{case}");
        // A set from another source may have had other loops. That all of its instructions are issued,
        // by whole warps, holds for it as well.
        match ptx.set().source_note() {
            Some(note) => println!("{text}\nnote: {note}"),
            None => return Err(text),
        }
    }
    Ok(())
}

/// Every entry of a storage type, with every number of warps that take heads, on whole and on odd
/// blocks.
fn check(ptx: &Ptx, dtype: DType) {
    let mut unissued = Unissued::new();
    for head_dim in head_dims(dtype) {
        let mut done = BTreeSet::new();
        for (q, kv) in GROUPS {
            let case = case(dtype, head_dim, (q, kv));
            let plan = case.plan();
            if !done.insert((plan.decode_variant().entry, plan.heads_per_cta())) {
                continue;
            }
            for block_size in [16, 24] {
                let case = case.clone().block_size(block_size);
                compare(ptx, &case, &mut unissued).unwrap_or_else(|error| panic!("{error}"));
            }
        }
    }
    unissued.retain(|_, lines| !lines.is_empty());
    assert!(
        unissued.is_empty(),
        "lines that no case issues: {unissued:?}"
    );
}

/// Two splits, the first with more units than warps, and an empty sequence.
fn case(dtype: DType, head_dim: u32, (q, kv): (usize, usize)) -> Case {
    let case = Case::new(dtype, head_dim as usize, &[85, 0]);
    case.heads(q, kv).split(80)
}

fn entries_for_f32_issue_the_expected_number(ptx: &Ptx) {
    check(ptx, DType::F32);
}

fn entries_for_f16_issue_the_expected_number(ptx: &Ptx) {
    check(ptx, DType::F16);
}

fn entries_for_bf16_issue_the_expected_number(ptx: &Ptx) {
    check(ptx, DType::Bf16);
}

/// Their threads do not wait for each other.
fn cache_entries_hold_none(ptx: &Ptx) {
    for entry in CacheKind::ALL.map(CacheKind::entry) {
        let file = &ptx.set().entry(entry).unwrap().file;
        let found = standing(ptx.set().ptx(file).unwrap(), entry);
        assert_eq!(found, BTreeMap::new(), "{entry}");
    }
}

/// Edits the first butterfly of an entry of the default set: how its case compares, and how many
/// butterflies it does not issue.
fn edited_case(edit: impl Fn(&str) -> String) -> (Result<(), String>, usize) {
    let entry = "decode_f16_d64_mma";
    let (file, text) = edited(entry, Which::Nth(0), |i| {
        let shuffle = format!("{} {};", i.opcode, i.operands.join(","));
        (i.opcode == "shfl.sync.bfly.b32").then(|| edit(&shuffle))
    });
    let mut unissued = Unissued::new();
    let case = case(DType::F16, 64, (11, 1));
    let ptx = Ptx::new(set_with(&file, &text));
    let result = compare(&ptx, &case, &mut unissued);
    let standing = standing(&text, entry);
    let left = unissued[entry].iter();
    let left = left.filter(|line| standing[line] == "butterfly").count();
    (result, left)
}

#[test]
fn a_copy_that_whole_warps_issue_is_counted() {
    let (result, unissued) = edited_case(|shuffle| format!("{shuffle}\n{shuffle}"));
    let error = result.unwrap_err();
    assert!(error.contains("must issue {"), "{error}");
    assert_eq!(unissued, 0);
}

#[test]
fn a_copy_that_no_case_issues_is_noticed() {
    let (result, unissued) =
        edited_case(|shuffle| format!("bra.uni PAST;\n{shuffle}\nPAST:\n{shuffle}"));
    assert_eq!((result, unissued), (Ok(()), 1));
}
