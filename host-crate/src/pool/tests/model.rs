//! The pool against a model: random operations on sequences whose tokens the model keeps in private
//! contiguous lists, and a cache of one number per slot that is written and copied as told.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use proptest::prelude::*;

use crate::pool::{BlockCopy, BlockPool, BlockRef, PoolError, SequenceBlocks};
use crate::{BlockTable, Op};

#[derive(Clone, Debug)]
enum Step {
    /// A sequence that begins with these tokens, found or appended.
    Prompt(Vec<u32>),
    Append(usize, usize),
    AppendTokens(usize, Vec<u32>),
    Publish(usize),
    Fork(usize),
    Truncate(usize, usize),
    Free(usize),
    Allocate,
    Release,
    /// Runs the copies, then writes the new tokens.
    Run,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Few token ids, so that prefixes meet.
    let tokens = |max| proptest::collection::vec(0u32..2, 0..max);
    let any = 0usize..64;
    let step = prop_oneof![
        3 => tokens(14).prop_map(Step::Prompt),
        4 => (any.clone(), 0usize..7).prop_map(|(i, n)| Step::Append(i, n)),
        6 => (any.clone(), tokens(7)).prop_map(|(i, t)| Step::AppendTokens(i, t)),
        4 => any.clone().prop_map(Step::Publish),
        4 => any.clone().prop_map(Step::Fork),
        2 => (any.clone(), any.clone()).prop_map(|(i, n)| Step::Truncate(i, n)),
        3 => any.prop_map(Step::Free),
        1 => Just(Step::Allocate),
        1 => Just(Step::Release),
        3 => Just(Step::Run),
    ];
    proptest::collection::vec(step, 1..60)
}

/// A sequence and what the model knows of it.
struct Sequence {
    blocks: SequenceBlocks,
    /// What each token's slot must hold.
    values: Vec<u64>,
    /// Positions not written yet.
    pending: Vec<usize>,
}

struct Machine {
    pool: BlockPool,
    /// One number per slot.
    cache: Vec<u64>,
    sequences: Vec<Sequence>,
    copies: Vec<BlockCopy>,
    single: Vec<BlockRef>,
    /// Source of numbers for tokens of unknown ids.
    fresh: u64,
}

/// Keys and values depend on a token and on all before it.
fn value(before: Option<&u64>, token: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    (before, token).hash(&mut hasher);
    hasher.finish()
}

impl Machine {
    fn new(num_blocks: usize, block_size: usize) -> Self {
        Self {
            pool: BlockPool::new(num_blocks, block_size).unwrap(),
            cache: vec![0; num_blocks * block_size],
            sequences: vec![],
            copies: vec![],
            single: vec![],
            fresh: 1 << 32,
        }
    }

    fn apply(&mut self, step: &Step) {
        let count = self.sequences.len();
        let pick = |i: usize| i.checked_rem(count);
        match step {
            Step::Prompt(tokens) => self.prompt(tokens),
            Step::Append(i, n) => {
                let ids: Vec<u64> = (self.fresh..).take(*n).collect();
                self.fresh += *n as u64;
                if let Some(i) = pick(*i) {
                    self.append(i, &ids, |sequence| sequence.append(*n));
                }
            }
            Step::AppendTokens(i, tokens) => {
                let ids: Vec<u64> = tokens.iter().map(|&token| token.into()).collect();
                if let Some(i) = pick(*i) {
                    self.append(i, &ids, |sequence| sequence.append_tokens(tokens));
                }
            }
            Step::Publish(i) => {
                // Published content must be written.
                self.run();
                if let Some(i) = pick(*i) {
                    self.sequences[i].blocks.publish();
                }
            }
            Step::Fork(i) => {
                self.run();
                if let Some(i) = pick(*i) {
                    let Sequence { blocks, values, .. } = &self.sequences[i];
                    let (blocks, values) = (blocks.fork(), values.clone());
                    self.sequences.push(Sequence {
                        blocks,
                        values,
                        pending: vec![],
                    });
                }
            }
            Step::Truncate(i, len) => {
                if let Some(i) = pick(*i) {
                    let sequence = &mut self.sequences[i];
                    let len = len % (sequence.values.len() + 1);
                    sequence.blocks.truncate(len).unwrap();
                    sequence.values.truncate(len);
                    sequence.pending.retain(|&position| position < len);
                }
            }
            Step::Free(i) => {
                if let Some(i) = pick(*i) {
                    self.sequences.swap_remove(i).blocks.free();
                }
            }
            Step::Allocate => match self.pool.allocate() {
                Ok(block) => self.single.push(block),
                Err(error) => {
                    assert_eq!(self.pool.num_available(), 0);
                    let num_blocks = self.pool.num_blocks();
                    assert_eq!(error, PoolError::NoBlock { num_blocks });
                }
            },
            Step::Release => drop(self.single.pop()),
            Step::Run => self.run(),
        }
    }

    fn prompt(&mut self, tokens: &[u32]) {
        let blocks = SequenceBlocks::with_prefix(&self.pool, tokens);
        assert!(blocks.is_empty() || blocks.len() < tokens.len());
        let mut values: Vec<u64> = vec![];
        for &token in &tokens[..blocks.len()] {
            values.push(value(values.last(), token.into()));
        }
        let rest = &tokens[blocks.len()..];
        self.sequences.push(Sequence {
            blocks,
            values,
            pending: vec![],
        });
        let ids: Vec<u64> = rest.iter().map(|&token| token.into()).collect();
        self.append(self.sequences.len() - 1, &ids, |sequence| {
            sequence.append_tokens(rest)
        });
    }

    fn append(
        &mut self,
        i: usize,
        ids: &[u64],
        append: impl FnOnce(&mut SequenceBlocks) -> Result<Option<BlockCopy>, PoolError>,
    ) {
        let size = self.pool.block_size();
        let sequence = &mut self.sequences[i];
        let before = (sequence.blocks.len(), sequence.blocks.blocks().to_vec());
        let available = self.pool.num_available();
        let last_is_shared = !before.0.is_multiple_of(size)
            && self.pool.ref_count(before.1[before.1.len() - 1]).unwrap() > 1;
        match append(&mut sequence.blocks) {
            Ok(copy) => {
                assert_eq!(copy.is_some(), last_is_shared && !ids.is_empty());
                self.copies.extend(copy);
                for &id in ids {
                    sequence.pending.push(sequence.values.len());
                    sequence.values.push(value(sequence.values.last(), id));
                }
                // No writable block is shared, nor found by another sequence.
                let first = before.0 / size;
                let written = if ids.is_empty() {
                    &[]
                } else {
                    &sequence.blocks.blocks()[first..]
                };
                for &block in written {
                    assert_eq!(self.pool.ref_count(block), Some(1), "block {block}");
                }
            }
            Err(error) => {
                let (tokens, len) = (ids.len(), before.0);
                let needed =
                    (len + tokens).div_ceil(size) - before.1.len() + usize::from(last_is_shared);
                assert!(needed > available);
                let num_blocks = self.pool.num_blocks();
                let expected = PoolError::Exhausted {
                    tokens,
                    len,
                    needed,
                    available,
                    num_blocks,
                };
                assert_eq!(error, expected);
                assert_eq!(
                    (sequence.blocks.len(), sequence.blocks.blocks().to_vec()),
                    before
                );
                assert_eq!(self.pool.num_available(), available);
            }
        }
    }

    /// Runs all copies at once, then writes what is pending.
    fn run(&mut self) {
        let size = self.pool.block_size();
        let range = |block: i64| block as usize * size..(block as usize + 1) * size;
        let read: Vec<Vec<u64>> = self
            .copies
            .iter()
            .map(|copy| self.cache[range(copy.pair()[0])].to_vec())
            .collect();
        for (copy, content) in self.copies.drain(..).zip(read) {
            self.cache[range(copy.pair()[1])].copy_from_slice(&content);
        }
        for sequence in &mut self.sequences {
            for position in sequence.pending.drain(..) {
                let slot = sequence.blocks.slots(position..position + 1).unwrap()[0];
                self.cache[slot as usize] = sequence.values[position];
            }
        }
    }

    /// What holds after every step.
    fn check(&self) {
        self.pool.lock().check();
        let mut refs: HashMap<i32, usize> = HashMap::new();
        let held = self.sequences.iter().flat_map(|s| s.blocks.blocks());
        let single = self.single.iter().map(BlockRef::block);
        for block in held.copied().chain(single) {
            *refs.entry(block).or_default() += 1;
        }
        for block in 0..self.pool.num_blocks() as i32 {
            let expected = refs.get(&block).copied().unwrap_or(0);
            assert_eq!(self.pool.ref_count(block), Some(expected), "block {block}");
        }
        self.check_tables();
        for sequence in &self.sequences {
            let slots = sequence.blocks.slots(0..sequence.values.len()).unwrap();
            for (position, slot) in slots.into_iter().enumerate() {
                // A shared block may wait for its copy; what was written before must stand.
                if self.copies.is_empty() && !sequence.pending.contains(&position) {
                    let found = self.cache[slot as usize];
                    assert_eq!(found, sequence.values[position], "position {position}");
                }
            }
        }
    }

    fn check_tables(&self) {
        let width = self.sequences.iter().map(|s| s.blocks.blocks().len());
        let width = width.max().unwrap_or(0) + 1;
        let mut table = vec![0; self.sequences.len() * width];
        for (row, sequence) in table.chunks_exact_mut(width).zip(&self.sequences) {
            assert_eq!(sequence.blocks.len(), sequence.values.len());
            sequence.blocks.write_row(row).unwrap();
        }
        let lens: Vec<i32> = self
            .sequences
            .iter()
            .map(|s| s.blocks.len() as i32)
            .collect();
        let (size, num_blocks) = (self.pool.block_size(), self.pool.num_blocks());
        let table = BlockTable::new(&table, lens.len(), width);
        table.validate(Op::Decode, &lens, size, num_blocks).unwrap();
    }
}

proptest! {
    #[test]
    fn random_operations_lose_no_block_and_share_no_writable_one(
        num_blocks in 0usize..24, block_size in 1usize..6, steps in steps(),
    ) {
        let mut machine = Machine::new(num_blocks, block_size);
        for step in &steps {
            machine.apply(step);
            machine.check();
        }
        machine.run();
        machine.check();
        let Machine { pool, sequences, copies, single, .. } = machine;
        drop((sequences, copies, single));
        pool.lock().check();
        prop_assert_eq!(pool.num_available(), num_blocks);
    }
}
