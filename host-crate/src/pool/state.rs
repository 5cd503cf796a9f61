//! The pool's books: which blocks are free, shared, cached. Every operation is O(1).

use std::collections::HashMap;

/// Identity of a full block's content: a 128-bit keyed hash of its token ids and of its parent's
/// identity, and so of everything before it.
pub(super) type Content = u128;

/// No block: the end of a list.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Block {
    /// Sequences and [`super::BlockRef`]s that hold the block.
    refs: u32,
    /// Copies not run yet that read or write the block.
    pins: u32,
    /// Set while the block can be found by its content.
    content: Option<Content>,
    /// Neighbours in the list of unreferenced cached blocks, least recently used first.
    older: u32,
    newer: u32,
}

#[derive(Debug)]
pub(super) struct State {
    blocks: Vec<Block>,
    /// Blocks without content, the next one to hand out last.
    free: Vec<u32>,
    cached: HashMap<Content, u32>,
    /// Ends of the list of unreferenced cached blocks.
    oldest: u32,
    newest: u32,
    evictable: usize,
}

impl State {
    pub fn new(num_blocks: u32) -> Self {
        let block = Block {
            refs: 0,
            pins: 0,
            content: None,
            older: NONE,
            newer: NONE,
        };
        Self {
            blocks: vec![block; num_blocks as usize],
            free: (0..num_blocks).rev().collect(),
            cached: HashMap::new(),
            oldest: NONE,
            newest: NONE,
            evictable: 0,
        }
    }

    /// Blocks that [`State::allocate`] can still give.
    pub fn available(&self) -> usize {
        self.free.len() + self.evictable
    }

    pub fn evictable(&self) -> usize {
        self.evictable
    }

    pub fn refs(&self, block: u32) -> Option<u32> {
        self.blocks.get(block as usize).map(|block| block.refs)
    }

    /// A block with one reference and no content; evicts the least recently used one if need be.
    pub fn allocate(&mut self) -> Option<u32> {
        let block = match self.free.pop() {
            Some(block) => block,
            None if self.oldest == NONE => return None,
            None => {
                let block = self.oldest;
                self.unlink(block);
                self.forget(block);
                block
            }
        };
        self.blocks[block as usize].refs = 1;
        Some(block)
    }

    /// Another reference to a block that has one, or that is cached.
    pub fn retain(&mut self, block: u32) {
        if self.idle(block) {
            self.unlink(block);
        }
        self.blocks[block as usize].refs += 1;
    }

    /// Takes a reference back.
    pub fn release(&mut self, block: u32) {
        self.blocks[block as usize].refs -= 1;
        self.settle(block);
    }

    pub fn pin(&mut self, block: u32) {
        self.blocks[block as usize].pins += 1;
    }

    pub fn unpin(&mut self, block: u32) {
        self.blocks[block as usize].pins -= 1;
        self.settle(block);
    }

    /// The block with this content.
    pub fn find(&self, content: Content) -> Option<u32> {
        self.cached.get(&content).copied()
    }

    /// Makes a held block findable, unless another one with the same content already is.
    pub fn publish(&mut self, block: u32, content: Content) {
        if self.blocks[block as usize].content.is_none() && !self.cached.contains_key(&content) {
            self.cached.insert(content, block);
            self.blocks[block as usize].content = Some(content);
        }
    }

    /// The block can no longer be found: it is about to be written.
    pub fn forget(&mut self, block: u32) {
        if let Some(content) = self.blocks[block as usize].content.take() {
            self.cached.remove(&content);
        }
    }

    fn idle(&self, block: u32) -> bool {
        let Block { refs, pins, .. } = self.blocks[block as usize];
        refs == 0 && pins == 0
    }

    /// Puts a block that nobody needs any more where it can be had again.
    fn settle(&mut self, block: u32) {
        if !self.idle(block) {
            return;
        }
        if self.blocks[block as usize].content.is_none() {
            self.free.push(block);
            return;
        }
        let older = self.newest;
        let entry = &mut self.blocks[block as usize];
        (entry.older, entry.newer) = (older, NONE);
        match self.blocks.get_mut(older as usize) {
            Some(neighbour) => neighbour.newer = block,
            None => self.oldest = block,
        }
        self.newest = block;
        self.evictable += 1;
    }

    /// Takes a block out of the list of unreferenced cached ones.
    fn unlink(&mut self, block: u32) {
        let Block { older, newer, .. } = self.blocks[block as usize];
        match self.blocks.get_mut(older as usize) {
            Some(neighbour) => neighbour.newer = newer,
            None => self.oldest = newer,
        }
        match self.blocks.get_mut(newer as usize) {
            Some(neighbour) => neighbour.older = older,
            None => self.newest = older,
        }
        self.evictable -= 1;
    }

    /// Every block is in exactly one place, and the books agree with each other.
    #[cfg(test)]
    #[track_caller]
    pub fn check(&self) {
        let mut places = vec![0; self.blocks.len()];
        for &block in &self.free {
            places[block as usize] += 1;
            assert!(self.idle(block), "free block {block} is in use");
            assert_eq!(
                self.blocks[block as usize].content, None,
                "free block {block}"
            );
        }
        let (mut at, mut before, mut count) = (self.oldest, NONE, 0);
        while at != NONE {
            let entry = self.blocks[at as usize];
            places[at as usize] += 1;
            assert!(
                self.idle(at) && entry.content.is_some(),
                "evictable block {at}"
            );
            assert_eq!(entry.older, before, "block {at}");
            (before, at, count) = (at, entry.newer, count + 1);
        }
        assert_eq!((before, count), (self.newest, self.evictable));
        for (block, entry) in self.blocks.iter().enumerate() {
            let held = usize::from(!self.idle(block as u32));
            assert_eq!(
                places[block] + held,
                1,
                "block {block} is lost or in two places"
            );
            if let Some(content) = entry.content {
                assert_eq!(self.cached.get(&content), Some(&(block as u32)));
            }
        }
        let with_content = self.blocks.iter().filter(|b| b.content.is_some());
        assert_eq!(with_content.count(), self.cached.len());
    }
}
