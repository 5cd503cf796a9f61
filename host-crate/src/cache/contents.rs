//! What the integers of a cache operation must say: slots, pairs of blocks, lengths. Engines that keep
//! them on a device check them here, before they are copied there.

use super::CacheSizes;
use crate::{Error, Op};

impl CacheSizes {
    /// Checks the slots of [`CacheSizes::reshape_and_cache`] for `num_rows` rows of K and V.
    ///
    /// # Errors
    /// [`Error::MoreSlotsThanRows`]; [`Error::Slot`] past the cache.
    pub fn check_slots(&self, num_rows: usize, slot_mapping: &[i64]) -> Result<(), Error> {
        check_slots(slot_mapping, num_rows, self.num_blocks(), self.block_size())
    }

    /// Checks the pairs of [`CacheSizes::copy_blocks`].
    ///
    /// # Errors
    /// [`Error::PairBlock`] past the cache; [`Error::PairOntoItself`]; [`Error::PairConflict`] for a
    /// destination that another pair reads or writes.
    pub fn check_pairs(&self, pairs: &[[i64; 2]]) -> Result<(), Error> {
        check_pairs(pairs, self.num_blocks())
    }

    /// The `starts` of [`CacheSizes::gather_cache`]: 0, and then the sums of the lengths.
    ///
    /// # Errors
    /// [`Error::NegativeSeqLen`].
    pub fn starts(seq_lens: &[i32]) -> Result<Vec<i64>, Error> {
        let mut starts = Vec::with_capacity(seq_lens.len() + 1);
        let mut start = 0;
        starts.push(start);
        for (index, &value) in seq_lens.iter().enumerate() {
            if value < 0 {
                let op = Op::GatherCache;
                return Err(Error::NegativeSeqLen { op, index, value });
            }
            start += i64::from(value);
            starts.push(start);
        }
        Ok(starts)
    }
}

pub(super) fn check_slots(
    slot_mapping: &[i64],
    rows: usize,
    num_blocks: usize,
    block_size: usize,
) -> Result<(), Error> {
    let (op, slots) = (Op::ReshapeAndCache, slot_mapping.len());
    if slots > rows {
        return Err(Error::MoreSlotsThanRows { op, slots, rows });
    }
    let num_slots = num_blocks.saturating_mul(block_size);
    let past = |&slot: &i64| usize::try_from(slot).is_ok_and(|slot| slot >= num_slots);
    match slot_mapping.iter().position(past) {
        None => Ok(()),
        Some(index) => Err(Error::Slot {
            op,
            index,
            value: slot_mapping[index],
            num_blocks,
            block_size,
        }),
    }
}

pub(super) fn check_pairs(pairs: &[[i64; 2]], num_blocks: usize) -> Result<(), Error> {
    let op = Op::CopyBlocks;
    // In which pair a block is the destination.
    let mut written = std::collections::HashMap::new();
    for (index, pair) in pairs.iter().enumerate() {
        for (side, &value) in ["source", "destination"].into_iter().zip(pair) {
            if usize::try_from(value).map_or(true, |block| block >= num_blocks) {
                return Err(Error::PairBlock {
                    op,
                    index,
                    side,
                    value,
                    num_blocks,
                });
            }
        }
        let [source, block] = *pair;
        if source == block {
            return Err(Error::PairOntoItself { op, index, block });
        }
        if let Some(other) = written.insert(block, index) {
            return Err(Error::PairConflict {
                op,
                index,
                other,
                block,
            });
        }
    }
    // All pairs are copied at once, so none may read what another writes.
    for (index, &[block, _]) in pairs.iter().enumerate() {
        if let Some(&other) = written.get(&block) {
            return Err(Error::PairConflict {
                op,
                index,
                other,
                block,
            });
        }
    }
    Ok(())
}
