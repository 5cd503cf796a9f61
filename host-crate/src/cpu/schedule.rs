//! From a validated call to items, and from their parts to the output.

use super::InstructionSet;
use super::isa::Kernel;
use super::item::{Item, Job, run_item};
use super::merge::merge_row;
use super::scratch::Scratch;
use super::source::Source;
use super::threads;
use super::{SHORT_TILE, TILE};
use crate::{AttentionConfig, Element, Plan, RowsView, RowsViewMut};

/// Uneven items are at most one part in so many of a thread's share, so that the last thread ends
/// little after the first.
const PART_OF_SHARE: usize = 4;
/// Bytes of keys in a tile that groups share: its keys, its values and the next one's keys fit into a
/// second-level cache of 512 KB. Single heads read keys and values as they come, once.
const TILE_BYTES: usize = 96 << 10;

/// Runs a call.
///
/// # Safety
/// `plan` has validated q, lengths, out, lse and the workspace; `source` has the rows of
/// `seq_lens[s]` tokens of every sequence.
#[allow(clippy::too_many_arguments, reason = "the parts of a validated call")]
pub(crate) unsafe fn run<T: Element, Src: Source<T>>(
    set: InstructionSet,
    plan: &Plan,
    source: &Src,
    q: &RowsView<'_, T>,
    seq_lens: &[i32],
    mut out: RowsViewMut<'_, T>,
    lse: Option<&mut [f32]>,
    workspace: &mut [f32],
) {
    let config = plan.config();
    let set = if set.is_available() {
        set
    } else {
        InstructionSet::Portable
    };
    let split = plan.num_splits() > 1;
    let partial_out = workspace.as_mut_ptr();
    let job = Job {
        source,
        kernel: Kernel::of(set),
        q: q.data().as_ptr(),
        q_strides: (q.token_stride(), q.head_stride()),
        out_strides: (out.token_stride(), out.head_stride()),
        out: out.data_mut().as_mut_ptr(),
        lse: lse.map_or(std::ptr::null_mut(), |lse| lse.as_mut_ptr()),
        partial_out,
        partial_ml: partial_out.wrapping_add(if split { plan.partial_out_len() } else { 0 }),
        seq_lens,
        head_dim: config.head_dim,
        tile: tile_len::<T>(config),
        num_q_heads: config.num_q_heads,
        num_kv_heads: config.num_kv_heads,
        group: config.group_size(),
        scale_log2: config.scale * std::f32::consts::LOG2_E,
        split_tokens: plan.split_tokens() as usize,
        num_splits: plan.num_splits() as usize,
    };

    let tokens: usize = seq_lens.iter().map(|&len| len as usize).sum();
    let bytes = tokens.saturating_mul(2 * config.num_kv_heads * row_bytes::<T>(config));
    let threads = threads::count(bytes);
    let items = Items::new(&job, threads, most_heads::<T>(config));
    threads::for_each(
        threads,
        items.count(),
        Scratch::default,
        |scratch, index| {
            // SAFETY: the caller's promise; items are distinct, and `set` is available.
            unsafe { run_item(&job, items.get(index), scratch) }
        },
    );
    if !split {
        return;
    }

    // SAFETY: all items have run; rows are distinct.
    let merge = |sums: &mut [Vec<f32>; 2], row: usize| unsafe {
        let (seq, head) = (row / job.num_q_heads, row % job.num_q_heads);
        if job.live_splits(seq) > 1 {
            merge_row(&job, seq, head, sums);
        }
    };
    threads::for_each(
        threads,
        seq_lens.len() * job.num_q_heads,
        Default::default,
        merge,
    );
}

/// kv heads that an item takes at most; follows from the configuration alone.
fn most_heads<T>(config: &AttentionConfig) -> usize {
    if config.group_size() == 1 {
        return config.num_kv_heads;
    }
    (TILE_BYTES / SHORT_TILE / row_bytes::<T>(config)).clamp(1, config.num_kv_heads)
}

/// Tokens per tile; follows from the configuration alone.
fn tile_len<T>(config: &AttentionConfig) -> usize {
    if config.group_size() == 1 {
        return TILE;
    }
    let token_bytes = most_heads::<T>(config) * row_bytes::<T>(config);
    let fits = |&len: &usize| len * token_bytes <= TILE_BYTES;
    [TILE, TILE / 2]
        .into_iter()
        .find(fits)
        .unwrap_or(SHORT_TILE)
}

fn row_bytes<T>(config: &AttentionConfig) -> usize {
    config.head_dim * size_of::<T>()
}

/// What there is to share out.
struct Load {
    /// (sequence, split) pairs, their tokens together and those of the longest one.
    pairs: usize,
    tokens: usize,
    longest: usize,
}

impl Load {
    /// kv heads per item: as many as keep the threads busy to the end, for long pieces of memory that
    /// are read in order.
    fn heads_per_range(&self, num_kv_heads: usize, most_heads: usize, threads: usize) -> usize {
        let busy = |&heads: &usize| {
            // Equal items: threads may be idle for a tenth of the call.
            let items = self.pairs * num_kv_heads.div_ceil(heads);
            let even = self.pairs * self.longest == self.tokens
                && num_kv_heads.is_multiple_of(heads)
                && items.next_multiple_of(threads) * 10 <= items * 11;
            let small = self.longest * heads * threads * PART_OF_SHARE
                <= self.tokens.saturating_mul(num_kv_heads);
            threads == 1 || even || small
        };
        (1..=most_heads).rev().find(busy).unwrap_or(1)
    }
}

/// The items of a call, found by index.
struct Items {
    /// For each sequence the (sequence, split) pairs before it, and last their number. A sequence
    /// without tokens has one, which writes its zeros.
    pairs: Vec<usize>,
    /// Ranges of kv heads per pair.
    ranges: usize,
    heads_per_range: usize,
    num_kv_heads: usize,
}

impl Items {
    fn new<T: Element, Src: Source<T>>(
        job: &Job<'_, T, Src>,
        threads: usize,
        most_heads: usize,
    ) -> Self {
        let mut pairs = Vec::with_capacity(job.seq_lens.len() + 1);
        let mut num_pairs = 0;
        for seq in 0..job.seq_lens.len() {
            pairs.push(num_pairs);
            num_pairs += job.live_splits(seq).max(1);
        }
        pairs.push(num_pairs);

        let num_kv_heads = job.num_kv_heads;
        let lens = (0..job.seq_lens.len()).map(|seq| job.len(seq));
        let load = Load {
            pairs: num_pairs,
            tokens: lens.clone().sum(),
            longest: lens.map(|len| len.min(job.split_tokens)).max().unwrap_or(0),
        };
        let heads_per_range = load.heads_per_range(num_kv_heads, most_heads, threads);
        let ranges = num_kv_heads.div_ceil(heads_per_range);
        Self {
            pairs,
            ranges,
            heads_per_range,
            num_kv_heads,
        }
    }

    fn count(&self) -> usize {
        self.pairs.last().map_or(0, |pairs| pairs * self.ranges)
    }

    fn get(&self, index: usize) -> Item {
        let (pair, range) = (index / self.ranges, index % self.ranges);
        let seq = self.pairs.partition_point(|&before| before <= pair) - 1;
        let first_head = range * self.heads_per_range;
        let heads = self.heads_per_range.min(self.num_kv_heads - first_head);
        Item {
            seq,
            split: pair - self.pairs[seq],
            first_head,
            heads,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Load;

    const HEADS: usize = 32;

    fn heads_per_range(lens: &[usize], threads: usize) -> usize {
        let load = Load {
            pairs: lens.len(),
            tokens: lens.iter().sum(),
            longest: lens.iter().copied().max().unwrap_or(0),
        };
        load.heads_per_range(HEADS, HEADS, threads)
    }

    #[test]
    fn one_thread_takes_all_heads_at_once() {
        assert_eq!(heads_per_range(&[10, 10_000, 0], 1), HEADS);
    }

    #[test]
    fn equal_sequences_share_out_evenly() {
        assert_eq!(heads_per_range(&[4096; 4], 2), HEADS);
        assert_eq!(heads_per_range(&[4096], 2), HEADS / 2);
        assert_eq!(heads_per_range(&[4096; 3], 2), HEADS / 2);
        assert_eq!(heads_per_range(&[4096], 64), 1);
    }

    #[test]
    fn a_long_sequence_is_cut_to_parts_of_a_threads_share() {
        let (lens, threads) = ([10_000, 100], 2);
        let heads = heads_per_range(&lens, threads);
        let share = lens.iter().sum::<usize>() * HEADS / threads;
        assert!(
            lens[0] * heads * super::PART_OF_SHARE <= share,
            "{heads} heads"
        );
        assert!(heads > 1);
    }

    #[test]
    fn sequences_without_tokens_are_one_item_each() {
        assert_eq!(heads_per_range(&[0, 0], 2), HEADS);
        assert_eq!(heads_per_range(&[], 2), HEADS);
    }
}
