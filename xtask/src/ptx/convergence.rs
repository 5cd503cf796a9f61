//! Tests that warp-synchronous instructions stand in the PTX as often as in the source.
//!
//! A compiler that takes one of them for ordinary code may copy it into both sides of a divergent
//! branch, where half a warp waits for the other half. A count above the source's shows that.

use paged_attention::artefacts::{EntryKind, PtxSet};
use paged_attention::kernels::geometry::LaneMap;
use paged_attention::kernels::variants::{DECODE, DecodeKind, DecodeVariant};

use super::split::entry_text;

/// How often each warp-synchronous instruction occurs.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    /// `shfl.sync.bfly`: sums and maxima over lanes.
    butterflies: usize,
    /// `shfl.sync.idx`: row addresses.
    broadcasts: usize,
    /// `vote.sync`.
    votes: usize,
    /// `bar.warp.sync`.
    warp_barriers: usize,
    /// Barriers of the CTA.
    barriers: usize,
    /// `ldmatrix`.
    matrix_loads: usize,
    /// `mma.sync`.
    products: usize,
}

fn found(text: &str, symbol: &str) -> Counts {
    let body = entry_text(text, symbol).expect("the entry is in its file");
    let count = |words: &[&str]| {
        let starts = |line: &&str| {
            let code = line.trim_start_matches(|c| c != ' ').trim_start();
            let code = if line.starts_with('@') { code } else { line };
            words.iter().any(|word| code.starts_with(word))
        };
        body.lines().filter(starts).count()
    };
    Counts {
        butterflies: count(&["shfl.sync.bfly"]),
        broadcasts: count(&["shfl.sync.idx"]),
        votes: count(&["vote"]),
        warp_barriers: count(&["bar.warp.sync"]),
        barriers: count(&["bar.sync", "barrier.sync", "barrier.cta.sync"]),
        matrix_loads: count(&["ldmatrix"]),
        products: count(&["mma"]),
    }
}

fn expected(variant: &DecodeVariant) -> Counts {
    let d = variant.head_dim as usize;
    // Two 64-bit addresses are two shuffles each, for blocks of whole units and for others.
    let broadcasts = 8;
    match variant.kind {
        DecodeKind::CudaCore => {
            let map = LaneMap::new(variant.head_dim, variant.dtype.bytes());
            let heads = variant.heads_per_tile as usize;
            // A tile of heads takes two steps at a time, one head all of them.
            let batch = if heads > 1 {
                map.steps.min(2)
            } else {
                map.steps
            } as usize;
            Counts {
                butterflies: heads * batch * map.lanes_per_row.ilog2() as usize,
                broadcasts,
                barriers: 2,
                ..Counts::default()
            }
        }
        DecodeKind::TensorCore => Counts {
            // Two rows: maximum over four lanes each turn, denominator once.
            butterflies: 8,
            broadcasts,
            votes: 1,
            warp_barriers: 2,
            // Two in the loop for groups past 16 heads, two around the exchange.
            barriers: 4,
            matrix_loads: d / 16 + d / 16,
            products: 2 * (d / 16) + d / 8,
        },
    }
}

#[test]
fn warp_synchronous_instructions_stand_single_in_decode_entries() {
    let set = PtxSet::embedded();
    for variant in DECODE {
        let entry = set.entry(variant.entry).unwrap();
        let text = set.ptx(&entry.file).unwrap();
        assert_eq!(
            found(text, variant.entry),
            expected(variant),
            "{}",
            variant.entry
        );
    }
}

#[test]
fn warp_synchronous_instructions_stand_single_in_merge_entries() {
    let set = PtxSet::embedded();
    let merges = set
        .manifest()
        .entries
        .iter()
        .filter(|e| e.kind == EntryKind::Merge);
    for entry in merges {
        let expected = Counts {
            barriers: 2,
            ..Counts::default()
        };
        assert_eq!(
            found(set.ptx(&entry.file).unwrap(), &entry.symbol),
            expected,
            "{}",
            entry.symbol
        );
    }
}
