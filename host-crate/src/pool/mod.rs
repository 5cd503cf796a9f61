//! The cache's blocks: who holds which, without touching keys or values.
//!
//! A [`BlockPool`] counts references to a fixed number of physical blocks; [`SequenceBlocks`] is one
//! sequence's share of it: where its tokens lie (rows of the block table, slots to write), forks that
//! share blocks until one of them writes, and prefixes found again by their token ids.
//!
//! ```
//! use paged_attention::pool::{BlockPool, SequenceBlocks};
//!
//! let pool = BlockPool::new(8, 4)?;
//! let mut sequence = SequenceBlocks::new(&pool);
//! sequence.append(6)?; // room for 6 tokens: two blocks
//! let mut fork = sequence.fork(); // shares both
//! assert_eq!(pool.num_held(), 2);
//! // Writing into the half-full block would disturb the other one: the fork gets a block of its own,
//! // and the copy has to be run before its token is written.
//! let copy = fork.append(1)?.expect("a shared block to copy");
//! assert_eq!(copy.pair(), [i64::from(sequence.blocks()[1]), i64::from(fork.blocks()[1])]);
//! drop(copy); // once it has run
//! assert_eq!(fork.slots(6..7)?, [i64::from(fork.blocks()[1]) * 4 + 2]);
//! drop((sequence, fork));
//! assert_eq!(pool.num_available(), 8);
//! # Ok::<(), paged_attention::pool::PoolError>(())
//! ```
//!
//! # Threads
//! A pool is a handle: its clones, and the sequences, blocks and copies that come from it, share one
//! set of books behind one lock. All of them are `Send` and `Sync`; every method is atomic, takes the
//! lock once, and holds it for O(blocks touched). Two operations in a row are not atomic together:
//! what [`BlockPool::num_available`] says may be gone by the next call, and [`SequenceBlocks::append`]
//! says so and changes nothing. The order of reads and writes of the cache itself is the caller's:
//! see [`BlockCopy`] and [`SequenceBlocks::publish`].

mod error;
mod sequence;
mod state;
#[cfg(test)]
mod tests;

pub use error::PoolError;
pub use sequence::{BlockCopy, SequenceBlocks};

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use state::{Content, State};

/// A fixed number of physical blocks with reference counts. Clones are handles to the same pool.
#[derive(Clone, Debug)]
pub struct BlockPool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    num_blocks: usize,
    block_size: usize,
    /// Keys of the two halves of a content hash: random, so that nobody can aim for a collision.
    keys: [RandomState; 2],
    state: Mutex<State>,
}

impl BlockPool {
    /// A pool of `num_blocks` free blocks of `block_size` tokens.
    ///
    /// # Errors
    /// [`PoolError::OutOfRange`] for more blocks than table entries can number, or a block size of 0
    /// or past `i32::MAX`.
    pub fn new(num_blocks: usize, block_size: usize) -> Result<Self, PoolError> {
        let max = i32::MAX as usize;
        for (argument, value, min) in [("num_blocks", num_blocks, 0), ("block_size", block_size, 1)]
        {
            if !(min..=max).contains(&value) {
                return Err(PoolError::OutOfRange {
                    argument,
                    value,
                    min,
                    max,
                });
            }
        }
        let shared = Arc::new(Shared {
            num_blocks,
            block_size,
            keys: [RandomState::new(), RandomState::new()],
            state: Mutex::new(State::new(num_blocks as u32)),
        });
        Ok(Self { shared })
    }

    /// Blocks in all.
    pub fn num_blocks(&self) -> usize {
        self.shared.num_blocks
    }

    /// Tokens per block.
    pub fn block_size(&self) -> usize {
        self.shared.block_size
    }

    /// Blocks that can be allocated: free ones, and cached ones that nobody references.
    pub fn num_available(&self) -> usize {
        self.lock().available()
    }

    /// Blocks that a sequence, a [`BlockRef`] or a pending [`BlockCopy`] holds.
    pub fn num_held(&self) -> usize {
        self.num_blocks() - self.num_available()
    }

    /// Blocks that nobody references and whose content can still be found by a prefix.
    pub fn num_evictable(&self) -> usize {
        self.lock().evictable()
    }

    /// References to a block; 0 for one that is free, `None` for one that the pool does not have.
    pub fn ref_count(&self, block: i32) -> Option<usize> {
        let refs = self.lock().refs(u32::try_from(block).ok()?)?;
        Some(refs as usize)
    }

    /// One block outside any sequence.
    ///
    /// # Errors
    /// [`PoolError::NoBlock`] if none is available.
    pub fn allocate(&self) -> Result<BlockRef, PoolError> {
        let block = self.lock().allocate();
        let num_blocks = self.num_blocks();
        let block = block.ok_or(PoolError::NoBlock { num_blocks })?;
        let pool = self.clone();
        Ok(BlockRef { pool, block })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that holds the lock panics half-way through a change.
        self.shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The content of a full block after `parent`.
    fn content(&self, parent: Content, tokens: &[u32]) -> Content {
        let [high, low] = self
            .shared
            .keys
            .each_ref()
            .map(|key| key.hash_one((parent, tokens)));
        Content::from(high) << 64 | Content::from(low)
    }
}

/// A reference to one block. Clones count; the last one dropped frees the block.
#[derive(Debug)]
pub struct BlockRef {
    pool: BlockPool,
    block: u32,
}

impl BlockRef {
    /// The physical block.
    pub fn block(&self) -> i32 {
        self.block as i32
    }
}

impl Clone for BlockRef {
    fn clone(&self) -> Self {
        self.pool.lock().retain(self.block);
        Self {
            pool: self.pool.clone(),
            block: self.block,
        }
    }
}

impl Drop for BlockRef {
    fn drop(&mut self) {
        self.pool.lock().release(self.block);
    }
}
