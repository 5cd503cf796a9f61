//! One sequence's blocks.

use std::ops::Range;

use super::state::Content;
use super::{BlockPool, PoolError};

/// Most tokens of a sequence: lengths are i32.
const MAX_LEN: usize = i32::MAX as usize;
/// The parent of a first block.
const ROOT: Content = 0;

/// The blocks that hold one sequence's keys and values, in logical order. Dropping it frees them.
#[derive(Debug)]
pub struct SequenceBlocks {
    pool: BlockPool,
    blocks: Vec<i32>,
    len: usize,
    /// Token ids of the first tokens, as far as they are known.
    tokens: Vec<u32>,
    /// Contents of the first blocks, as far as they are published.
    published: Vec<Content>,
}

/// A block to copy before the new owner writes to it: keys and values, of every layer.
///
/// Run all copies of a step before its tokens are written, in any order or at once, and drop them
/// then: until that, neither block is handed out again, so that no copy reads what another writes.
#[derive(Debug)]
#[must_use = "the new block holds nothing until the copy has run"]
pub struct BlockCopy {
    pool: BlockPool,
    from: u32,
    to: u32,
}

impl BlockCopy {
    /// The physical blocks, source and destination, as the copying kernels take them.
    pub fn pair(&self) -> [i64; 2] {
        [self.from.into(), self.to.into()]
    }
}

impl Drop for BlockCopy {
    fn drop(&mut self) {
        let mut state = self.pool.lock();
        state.unpin(self.from);
        state.unpin(self.to);
    }
}

impl SequenceBlocks {
    /// An empty sequence.
    pub fn new(pool: &BlockPool) -> Self {
        Self {
            pool: pool.clone(),
            blocks: Vec::new(),
            len: 0,
            tokens: Vec::new(),
            published: Vec::new(),
        }
    }

    /// A sequence that begins with as many published full blocks as fit the start of `tokens`. Its
    /// [`len`](Self::len) says how many tokens need not be computed: never the last one, whose
    /// query is wanted in any case.
    pub fn with_prefix(pool: &BlockPool, tokens: &[u32]) -> Self {
        let mut sequence = Self::new(pool);
        let size = pool.block_size();
        let usable = tokens.len().min(MAX_LEN).saturating_sub(1);
        let mut state = pool.lock();
        for full in tokens[..usable].chunks_exact(size) {
            let content = pool.content(sequence.parent(), full);
            let Some(block) = state.find(content) else {
                break;
            };
            state.retain(block);
            sequence.blocks.push(block as i32);
            sequence.published.push(content);
        }
        drop(state);
        sequence.len = sequence.blocks.len() * size;
        sequence.tokens.extend(&tokens[..sequence.len]);
        sequence
    }

    /// Tokens.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no token.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The pool it belongs to.
    pub fn pool(&self) -> &BlockPool {
        &self.pool
    }

    /// Physical blocks in logical order: its row of the block table.
    pub fn blocks(&self) -> &[i32] {
        &self.blocks
    }

    /// Writes the row of the block table, and −1 into the columns past it.
    ///
    /// # Errors
    /// [`PoolError::RowTooShort`].
    pub fn write_row(&self, row: &mut [i32]) -> Result<(), PoolError> {
        let (columns, blocks) = (row.len(), self.blocks.len());
        if columns < blocks {
            return Err(PoolError::RowTooShort { columns, blocks });
        }
        row[..blocks].copy_from_slice(&self.blocks);
        row[blocks..].fill(-1);
        Ok(())
    }

    /// Slots of the tokens at these positions, `block * block_size + position % block_size`: the
    /// slot mapping with which their keys and values are written.
    ///
    /// # Errors
    /// [`PoolError::PastEnd`].
    pub fn slots(&self, positions: Range<usize>) -> Result<Vec<i64>, PoolError> {
        if let Some(position) = [positions.start, positions.end]
            .into_iter()
            .find(|&position| position > self.len)
        {
            let (op, len) = ("slots", self.len);
            return Err(PoolError::PastEnd { op, position, len });
        }
        let size = self.pool.block_size();
        // The pool bounds blocks and block sizes by 2^31, so the product fits.
        let slot = |t: usize| i64::from(self.blocks[t / size]) * size as i64 + (t % size) as i64;
        Ok(positions.map(slot).collect())
    }

    /// Makes room for `tokens` tokens of unknown ids; with the copy to run first where the last
    /// block was shared.
    ///
    /// # Errors
    /// [`PoolError::Exhausted`] and [`PoolError::SequenceTooLong`]; nothing has changed then.
    pub fn append(&mut self, tokens: usize) -> Result<Option<BlockCopy>, PoolError> {
        let (len, max) = (self.len, MAX_LEN);
        if tokens > max - len {
            return Err(PoolError::SequenceTooLong { tokens, len, max });
        }
        if tokens == 0 {
            return Ok(None);
        }
        let size = self.pool.block_size();
        let mut state = self.pool.lock();
        let last = self.blocks.last().map(|&block| block as u32);
        let partial = last.filter(|_| !len.is_multiple_of(size));
        let shared = partial.filter(|&block| state.refs(block) != Some(1));
        let blocks = (len + tokens).div_ceil(size);
        let needed = blocks - self.blocks.len() + usize::from(shared.is_some());
        let available = state.available();
        if needed > available {
            return Err(PoolError::Exhausted {
                tokens,
                len,
                needed,
                available,
                num_blocks: self.pool.num_blocks(),
            });
        }
        if let (Some(block), None) = (partial, shared) {
            // Published, and cut back since: about to hold something else.
            state.forget(block);
        }
        let copy = shared.and_then(|from| {
            let to = state.allocate()?;
            state.pin(from);
            state.pin(to);
            state.release(from);
            self.blocks.pop();
            self.blocks.push(to as i32);
            let pool = self.pool.clone();
            Some(BlockCopy { pool, from, to })
        });
        while self.blocks.len() < blocks {
            // `available` covers all of them, and the lock is held.
            let Some(block) = state.allocate() else { break };
            self.blocks.push(block as i32);
        }
        self.len += tokens;
        Ok(copy)
    }

    /// As [`append`](Self::append), with token ids, by which full blocks can be found again. Ids
    /// after tokens of unknown ids are not kept.
    ///
    /// # Errors
    /// As for [`append`](Self::append).
    pub fn append_tokens(&mut self, tokens: &[u32]) -> Result<Option<BlockCopy>, PoolError> {
        let known = self.tokens.len() == self.len;
        let copy = self.append(tokens.len())?;
        if known {
            self.tokens.extend(tokens);
        }
        Ok(copy)
    }

    /// Lets other sequences find the full blocks of known token ids. Call it once the keys and
    /// values of every token so far are written, or ordered before whatever reads them.
    pub fn publish(&mut self) {
        let size = self.pool.block_size();
        let full = self.tokens.len() / size;
        if self.published.len() == full {
            return;
        }
        let mut state = self.pool.lock();
        for i in self.published.len()..full {
            let parent = self.published.last().copied().unwrap_or(ROOT);
            let content = self.pool.content(parent, &self.tokens[i * size..][..size]);
            state.publish(self.blocks[i] as u32, content);
            self.published.push(content);
        }
    }

    /// The same tokens in the same blocks, for another continuation. Whoever writes first into a
    /// block that both hold gets a copy of it.
    pub fn fork(&self) -> Self {
        let mut state = self.pool.lock();
        for &block in &self.blocks {
            state.retain(block as u32);
        }
        drop(state);
        Self {
            pool: self.pool.clone(),
            blocks: self.blocks.clone(),
            len: self.len,
            tokens: self.tokens.clone(),
            published: self.published.clone(),
        }
    }

    /// Drops the tokens from position `len` on, and the blocks that held only those.
    ///
    /// # Errors
    /// [`PoolError::PastEnd`] if it has fewer tokens.
    pub fn truncate(&mut self, len: usize) -> Result<(), PoolError> {
        if len > self.len {
            let (op, position, len) = ("truncate", len, self.len);
            return Err(PoolError::PastEnd { op, position, len });
        }
        let size = self.pool.block_size();
        self.release_from(len.div_ceil(size));
        self.len = len;
        self.tokens.truncate(len);
        self.published.truncate(len / size);
        Ok(())
    }

    /// Gives all blocks back, as dropping does.
    pub fn free(self) {}

    fn parent(&self) -> Content {
        self.published.last().copied().unwrap_or(ROOT)
    }

    fn release_from(&mut self, kept: usize) {
        let mut state = self.pool.lock();
        // The last first: a prefix is of use without its continuation, not the other way round.
        for &block in self.blocks[kept..].iter().rev() {
            state.release(block as u32);
        }
        self.blocks.truncate(kept);
    }
}

impl Drop for SequenceBlocks {
    fn drop(&mut self) {
        self.release_from(0);
    }
}
