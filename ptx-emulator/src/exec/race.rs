//! Who accessed shared memory, and what orders it: happens-before per byte.
//!
//! Time is counted per warp and moves on whenever a lane of the warp synchronises. An access is
//! stamped with the block-wide barrier generation and its warp's time. An earlier access of
//! thread v is ordered before a later one of thread u if
//! - u is v, or
//! - a barrier of the whole block lies between (its generation is older), or
//! - u has synchronised with v since, directly or through others: by `bar.warp` (known in
//!   [`LaneClocks`]) or by barriers of part of the block (known in [`Shadow::known`]).
//!
//! A word has one cell as long as all accesses are to whole words, otherwise one per byte.

use crate::fault::Access;

/// What the lanes of one warp know of each other.
#[derive(Default)]
pub(crate) struct LaneClocks {
    /// Time of the warp, from 1.
    pub time: u32,
    /// Everything before this time is known to all lanes.
    full: u32,
    /// `matrix[u][v]`: lane u knows all that lane v did before this time.
    matrix: Option<Box<[[u32; 32]; 32]>>,
}

impl LaneClocks {
    pub(crate) fn reset(&mut self) {
        self.time = 1;
        self.full = 0;
        self.matrix = None;
    }

    /// The lanes of `mask` synchronise; `exists` are the warp's lanes.
    pub(crate) fn sync(&mut self, mask: u32, exists: u32) {
        self.time += 1;
        if mask == exists {
            self.full = self.time;
            return;
        }
        let matrix = self.matrix.get_or_insert_with(|| Box::new([[0; 32]; 32]));
        let lanes = || (0..32).filter(|l| mask >> l & 1 == 1);
        let mut joined = [0u32; 32];
        for u in lanes() {
            for (j, known) in joined.iter_mut().zip(&matrix[u]) {
                *j = (*j).max(*known);
            }
            joined[u] = self.time;
        }
        for u in lanes() {
            joined[u] = self.time;
        }
        for u in lanes() {
            matrix[u] = joined;
        }
    }

    fn knows(&self, u: u32, v: u32, time: u32) -> bool {
        time < self.known(u, v)
    }

    /// Lane u knows all that lane v did before this time.
    fn known(&self, u: u32, v: u32) -> u32 {
        let single = self
            .matrix
            .as_ref()
            .map_or(0, |m| m[u as usize][v as usize]);
        self.full.max(single)
    }
}

/// The last write of a byte or word.
#[derive(Clone, Copy, Default)]
struct Write {
    /// Generation; 0 for none, `PENDING` for a copy under way.
    generation: u32,
    time: u32,
    pc: u32,
    thread: u16,
    kind: u8,
}

const PENDING: u32 = u32::MAX;
const PLAIN: u8 = 0;
const ATOMIC: u8 = 1;
const ASYNC: u8 = 2;

/// Lanes of a warp that read at one time.
#[derive(Clone, Copy, Default)]
struct Reads {
    generation: u32,
    time: u32,
    pc: u32,
    lanes: u32,
    warp: u16,
    /// Next record of the same cell in the pool, plus 1.
    next: u32,
}

#[derive(Clone, Copy, Default)]
struct Cell {
    write: Write,
    reads: Reads,
}

/// The accessing thread.
#[derive(Clone, Copy)]
pub(crate) struct Who<'a> {
    pub warp: u32,
    pub lane: u32,
    pub clocks: &'a LaneClocks,
    pub pc: u32,
}

impl Who<'_> {
    fn thread(&self) -> u16 {
        (self.warp * 32 + self.lane) as u16
    }
}

/// The other side of a conflict.
pub(crate) struct Conflict {
    pub byte: u64,
    pub thread: u32,
    pub pc: u32,
    pub access: Access,
    /// It is a copy that its thread has not waited for.
    pub pending: bool,
}

pub(crate) struct Shadow {
    generation: u32,
    threads: usize,
    cells: Vec<Cell>,
    /// Four cells for every word, once any word is split.
    bytes: Vec<Cell>,
    split: Vec<bool>,
    any_split: bool,
    pool: Vec<Reads>,
    /// `known[u * threads + v]`: thread u knows all that thread v did before this time of v's
    /// warp. Only once barriers of part of the block are used.
    known: Vec<u32>,
}

impl Shadow {
    pub(crate) fn new(threads: u32, shared_bytes: u32) -> Self {
        let words = shared_bytes.div_ceil(4) as usize;
        Shadow {
            generation: 1,
            threads: threads as usize,
            cells: vec![Cell::default(); words],
            bytes: Vec::new(),
            split: vec![false; words],
            any_split: false,
            pool: Vec::new(),
            known: Vec::new(),
        }
    }

    /// A new block, or a barrier of the whole block: everything so far is ordered.
    pub(crate) fn new_generation(&mut self) {
        self.generation += 1;
        self.pool.clear();
    }

    pub(crate) fn new_block(&mut self) {
        self.new_generation();
        self.known.clear();
        if self.any_split {
            self.split.fill(false);
            self.any_split = false;
        }
    }

    fn ordered(&self, who: &Who<'_>, thread: u16, generation: u32, time: u32) -> bool {
        if generation < self.generation || thread == who.thread() {
            return true;
        }
        let (warp, lane) = (u32::from(thread) / 32, u32::from(thread) % 32);
        if warp == who.warp && who.clocks.knows(who.lane, lane, time) {
            return true;
        }
        let at = usize::from(who.thread()) * self.threads + usize::from(thread);
        self.known.get(at).is_some_and(|known| time < *known)
    }

    /// A lane arrives at a barrier of part of the block: what it has done and what it knows of
    /// go into `joined`. The caller moves its warp's time on.
    pub(crate) fn publish(&mut self, who: &Who<'_>, joined: &mut Vec<u32>) {
        let threads = self.threads;
        self.known.resize(threads * threads, 0);
        joined.resize(threads, 0);
        let own = usize::from(who.thread());
        for (v, j) in joined.iter_mut().enumerate() {
            *j = (*j).max(self.known[own * threads + v]);
            if v as u32 / 32 == who.warp {
                *j = (*j).max(who.clocks.known(who.lane, v as u32 % 32));
            }
        }
        joined[own] = who.clocks.time + 1;
    }

    /// A lane leaves a barrier of part of the block: it knows what was published there.
    pub(crate) fn learn(&mut self, thread: u32, joined: &[u32]) {
        let row = thread as usize * self.threads;
        for (known, j) in self.known[row..row + self.threads].iter_mut().zip(joined) {
            *known = (*known).max(*j);
        }
    }

    /// `bar.warp.sync`: lanes of a warp share what they know of other warps.
    pub(crate) fn share(&mut self, warp: u32, mask: u32) {
        if self.known.is_empty() {
            return;
        }
        let lanes = || (0..32).filter(|l| mask >> l & 1 == 1);
        let mut joined = vec![0u32; self.threads];
        for lane in lanes() {
            let row = (warp * 32 + lane) as usize * self.threads;
            for (j, known) in joined.iter_mut().zip(&self.known[row..row + self.threads]) {
                *j = (*j).max(*known);
            }
        }
        for lane in lanes() {
            self.learn(warp * 32 + lane, &joined);
        }
    }

    /// Whether an access of a thread lies before what all lanes of the warp of `who` know of.
    #[inline]
    fn settled(&self, who: &Who<'_>, warp: u32, generation: u32, time: u32) -> bool {
        generation < self.generation
            || (generation == self.generation && warp == who.warp && time < who.clocks.full)
    }

    /// A read of the bytes `within` (a mask of 4) of `word`.
    #[inline]
    pub(crate) fn read(&mut self, word: usize, within: u8, who: Who<'_>) -> Result<(), Conflict> {
        if within == 0xf && !self.split[word] {
            let Cell { write: w, reads: r } = self.cells[word];
            let mine = w.thread == who.thread() && w.generation != PENDING;
            if (mine || self.settled(&who, u32::from(w.thread) / 32, w.generation, w.time))
                && self.join_read(word, r, &who, 1 << who.lane)
            {
                return Ok(());
            }
        }
        self.each_cell(word, within, |shadow, cell| {
            shadow.check_write(cell, &who, false)?;
            shadow.record_read(cell, &who);
            Ok(())
        })
    }

    /// A read of `word` by all lanes of a warp, `lanes`, together; `who` is the one that names
    /// the address. An error says which lane is at fault.
    pub(crate) fn read_by_warp(
        &mut self,
        word: usize,
        who: Who<'_>,
        lanes: u32,
    ) -> Result<(), (u32, Conflict)> {
        if !self.split[word] {
            let Cell { write: w, reads: r } = self.cells[word];
            if self.settled(&who, u32::from(w.thread) / 32, w.generation, w.time)
                && self.join_read(word, r, &who, lanes)
            {
                return Ok(());
            }
        }
        // Whichever thread wrote the word, one of two lanes is another one.
        let next = (who.lane + 1) % 32;
        for lane in [who.lane, next] {
            if lanes >> lane & 1 == 1 {
                self.read(word, 0xf, Who { lane, ..who })
                    .map_err(|conflict| (lane, conflict))?;
            }
        }
        Ok(())
    }

    /// Adds lanes to the readers of an unsplit word if one record holds them all.
    #[inline]
    fn join_read(&mut self, word: usize, r: Reads, who: &Who<'_>, lanes: u32) -> bool {
        let time = who.clocks.time;
        let warp = u32::from(r.warp);
        let same = r.generation == self.generation && warp == who.warp && r.time == time;
        let replaced = self.settled(who, warp, r.generation, r.time) && r.next == 0;
        if !same && !replaced && r.generation == self.generation {
            return false;
        }
        self.cells[word].reads = Reads {
            generation: self.generation,
            time,
            pc: who.pc,
            lanes: lanes | if same { r.lanes } else { 0 },
            warp: who.warp as u16,
            next: if same { r.next } else { 0 },
        };
        true
    }

    /// A write; `access` says which kind. An asynchronous copy stays pending.
    #[inline]
    pub(crate) fn write(
        &mut self,
        word: usize,
        within: u8,
        who: Who<'_>,
        access: Access,
    ) -> Result<(), Conflict> {
        let (kind, generation) = match access {
            Access::Atomic => (ATOMIC, self.generation),
            Access::AsyncCopy => (ASYNC, PENDING),
            _ => (PLAIN, self.generation),
        };
        let write = Write {
            generation,
            time: who.clocks.time,
            pc: who.pc,
            thread: who.thread(),
            kind,
        };
        if within == 0xf && !self.split[word] {
            let Cell { write: w, reads: r } = self.cells[word];
            let mine = w.thread == who.thread() && w.generation != PENDING;
            let alone = r.lanes == 1 << who.lane && u32::from(r.warp) == who.warp;
            let unread = r.generation != self.generation
                || (r.next == 0
                    && (alone || self.settled(&who, r.warp.into(), r.generation, r.time)));
            if unread
                && (mine || self.settled(&who, u32::from(w.thread) / 32, w.generation, w.time))
            {
                self.cells[word] = Cell {
                    write,
                    reads: Reads::default(),
                };
                return Ok(());
            }
        }
        let atomic = kind == ATOMIC;
        self.each_cell(word, within, |shadow, cell| {
            shadow.check_write(cell, &who, atomic)?;
            shadow.check_reads(cell, &who)?;
            *cell = Cell {
                write,
                reads: Reads::default(),
            };
            Ok(())
        })
    }

    /// The copy that thread `who` issued at `pc` into `word` is done.
    pub(crate) fn copy_done(&mut self, word: usize, who: Who<'_>) {
        let generation = self.generation;
        let time = who.clocks.time;
        let finish = |w: &mut Write| {
            if w.generation == PENDING && w.thread == who.thread() && w.pc == who.pc {
                w.generation = generation;
                w.time = time;
            }
        };
        if self.split[word] {
            self.bytes[word * 4..word * 4 + 4]
                .iter_mut()
                .for_each(|c| finish(&mut c.write));
        } else {
            finish(&mut self.cells[word].write);
        }
    }

    /// Forgets a pending copy: its block has ended.
    pub(crate) fn forget(&mut self, word: usize) {
        self.cells[word] = Cell::default();
    }

    fn each_cell(
        &mut self,
        word: usize,
        within: u8,
        mut f: impl FnMut(&mut Self, &mut Cell) -> Result<(), Conflict>,
    ) -> Result<(), Conflict> {
        if within == 0xf && !self.split[word] {
            let mut cell = self.cells[word];
            let result = f(self, &mut cell);
            self.cells[word] = cell;
            return result.map_err(|c| Conflict {
                byte: word as u64 * 4,
                ..c
            });
        }
        if !self.split[word] {
            if self.bytes.is_empty() {
                self.bytes = vec![Cell::default(); self.cells.len() * 4];
            }
            for byte in 0..4 {
                let mut cell = self.cells[word];
                // Each byte has its own list of readers from here on.
                if cell.reads.generation == self.generation {
                    cell.reads.next = self.copy_list(cell.reads.next);
                }
                self.bytes[word * 4 + byte] = cell;
            }
            self.split[word] = true;
            self.any_split = true;
        }
        for byte in 0..4 {
            if within >> byte & 1 == 1 {
                let mut cell = self.bytes[word * 4 + byte];
                let result = f(self, &mut cell);
                self.bytes[word * 4 + byte] = cell;
                result.map_err(|c| Conflict {
                    byte: (word * 4 + byte) as u64,
                    ..c
                })?;
            }
        }
        Ok(())
    }

    fn copy_list(&mut self, first: u32) -> u32 {
        if first == 0 {
            return 0;
        }
        let record = self.pool[first as usize - 1];
        let next = self.copy_list(record.next);
        self.pool.push(Reads { next, ..record });
        self.pool.len() as u32
    }

    fn check_write(&self, cell: &Cell, who: &Who<'_>, atomic: bool) -> Result<(), Conflict> {
        let w = &cell.write;
        let pending = w.generation == PENDING;
        if !pending
            && (w.kind == ATOMIC && atomic || self.ordered(who, w.thread, w.generation, w.time))
        {
            return Ok(());
        }
        let access = match w.kind {
            ATOMIC => Access::Atomic,
            ASYNC => Access::AsyncCopy,
            _ => Access::Write,
        };
        Err(Conflict {
            byte: 0,
            thread: w.thread.into(),
            pc: w.pc,
            access,
            pending,
        })
    }

    fn check_reads(&self, cell: &Cell, who: &Who<'_>) -> Result<(), Conflict> {
        let mut r = cell.reads;
        if r.generation != self.generation {
            return Ok(());
        }
        loop {
            let mut left = r.lanes;
            while left != 0 {
                let lane = left.trailing_zeros();
                left &= left - 1;
                let thread = u32::from(r.warp) * 32 + lane;
                if !self.ordered(who, thread as u16, r.generation, r.time) {
                    let (access, pc) = (Access::Read, r.pc);
                    return Err(Conflict {
                        byte: 0,
                        thread,
                        pc,
                        access,
                        pending: false,
                    });
                }
            }
            if r.next == 0 {
                return Ok(());
            }
            r = self.pool[r.next as usize - 1];
        }
    }

    fn record_read(&mut self, cell: &mut Cell, who: &Who<'_>) {
        let new = Reads {
            generation: self.generation,
            time: who.clocks.time,
            pc: who.pc,
            lanes: 1 << who.lane,
            warp: who.warp as u16,
            next: 0,
        };
        let r = &mut cell.reads;
        if r.generation != self.generation {
            *r = new;
            return;
        }
        let same = |r: &Reads| r.warp == new.warp && r.time == new.time;
        if same(r) {
            r.lanes |= new.lanes;
            r.pc = new.pc;
            return;
        }
        // The first record of another time of the same warp that this lane knows of is replaced.
        let known = |r: &Reads| {
            u32::from(r.warp) == who.warp
                && (0..32).all(|l| {
                    r.lanes >> l & 1 == 0 || l == who.lane || who.clocks.knows(who.lane, l, r.time)
                })
        };
        if known(r) {
            *r = Reads {
                next: r.next,
                ..new
            };
            return;
        }
        let mut at = r.next;
        while at != 0 {
            let r = self.pool[at as usize - 1];
            if same(&r) || known(&r) {
                let lanes = if same(&r) {
                    r.lanes | new.lanes
                } else {
                    new.lanes
                };
                self.pool[at as usize - 1] = Reads {
                    lanes,
                    next: r.next,
                    ..new
                };
                return;
            }
            at = r.next;
        }
        self.pool.push(*r);
        *r = Reads {
            next: self.pool.len() as u32,
            ..new
        };
    }
}
