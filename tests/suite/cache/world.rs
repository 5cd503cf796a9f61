//! The buffers of a call as bytes, and what a call must do to them. Offsets are computed here, in
//! bytes, with nothing of the library's.

use std::ops::Range;

use paged_attention::{BlockTable, CacheLayout};

use super::case::CacheCase;
use crate::case::{Pool, Rows};
use crate::random::Random;

/// Bytes around every tensor that nothing may touch.
const GUARD: usize = 64;
/// Query heads in packed rows.
const QUERY_HEADS: usize = 3;

/// A tensor in a buffer, all in bytes; rows are contiguous.
#[derive(Clone, Debug)]
pub struct Place {
    pub buffer: usize,
    pub offset: usize,
    /// (count, stride): block, slot and head of a cache, token and head of rows.
    pub dims: Vec<(usize, usize)>,
    pub row: usize,
}

impl Place {
    /// The bytes of one row.
    #[track_caller]
    pub fn row(&self, index: &[usize]) -> Range<usize> {
        assert_eq!(index.len(), self.dims.len());
        let mut at = self.offset;
        for (&i, &(count, stride)) in index.iter().zip(&self.dims) {
            assert!(i < count, "{index:?} of {self:?}");
            at += i * stride;
        }
        at..at + self.row
    }

    /// From the first byte to the last row's end; nothing if there are no rows.
    pub fn range(&self) -> Range<usize> {
        let last: Option<Vec<usize>> = self.dims.iter().map(|d| d.0.checked_sub(1)).collect();
        match last {
            Some(last) => self.offset..self.row(&last).end,
            None => 0..0,
        }
    }
}

/// A block table: i32 `[num_seqs, width]`, rows `stride` entries apart.
pub struct Table {
    pub entries: Vec<i32>,
    pub num_seqs: usize,
    pub width: usize,
    pub stride: usize,
}

impl Table {
    pub fn view(&self) -> BlockTable<'_> {
        BlockTable::with_stride(&self.entries, self.num_seqs, self.width, self.stride)
    }
}

/// One operation.
pub enum Call<'a> {
    /// Rows of K and V into slots.
    Write {
        rows: &'a [Place; 2],
        caches: &'a [Place; 2],
        slots: &'a [i64],
    },
    /// Blocks within caches: K and V of a layer, of the next one, and so on.
    Copy {
        caches: &'a [Place],
        pairs: &'a [[i64; 2]],
    },
    /// K and V of sequences into rows.
    Gather {
        caches: &'a [Place; 2],
        table: &'a Table,
        lens: &'a [i32],
        rows: &'a [Place; 2],
    },
}

/// Bytes that a call copies: buffer and range.
pub struct Move {
    pub from: (usize, Range<usize>),
    pub to: (usize, Range<usize>),
}

impl Call<'_> {
    /// What is read and written, in any order.
    pub fn moves(&self) -> Vec<Move> {
        let mut moves = vec![];
        let mut push = |from: (&Place, [usize; 3]), to: (&Place, [usize; 3])| {
            let row = |(place, index): (&Place, [usize; 3])| {
                (place.buffer, place.row(&index[..place.dims.len()]))
            };
            moves.push(Move {
                from: row(from),
                to: row(to),
            });
        };
        match self {
            Call::Write {
                rows,
                caches,
                slots,
            } => {
                for (rows, cache) in rows.iter().zip(*caches) {
                    let (block_size, heads) = (cache.dims[1].0, cache.dims[2].0);
                    for (token, &slot) in slots.iter().enumerate().filter(|(_, s)| **s >= 0) {
                        let slot = slot as usize;
                        for head in 0..heads {
                            let to = [slot / block_size, slot % block_size, head];
                            push((rows, [token, head, 0]), (cache, to));
                        }
                    }
                }
            }
            Call::Copy { caches, pairs } => {
                for cache in *caches {
                    for pair in *pairs {
                        let [source, destination] = pair.map(|block| block as usize);
                        for slot in 0..cache.dims[1].0 {
                            for head in 0..cache.dims[2].0 {
                                let from = [source, slot, head];
                                push((cache, from), (cache, [destination, slot, head]));
                            }
                        }
                    }
                }
            }
            Call::Gather {
                caches,
                table,
                lens,
                rows,
            } => {
                for (cache, rows) in caches.iter().zip(*rows) {
                    let block_size = cache.dims[1].0;
                    let mut row = 0;
                    for (seq, &len) in lens.iter().enumerate() {
                        for token in 0..len as usize {
                            let entry = table.entries[seq * table.stride + token / block_size];
                            for head in 0..cache.dims[2].0 {
                                let from = [entry as usize, token % block_size, head];
                                push((cache, from), (rows, [row, head, 0]));
                            }
                            row += 1;
                        }
                    }
                }
            }
        }
        moves
    }
}

/// The buffers of a case, full of random bytes.
#[derive(Clone)]
pub struct World {
    pub case: CacheCase,
    pub names: Vec<&'static str>,
    pub buffers: Vec<Vec<u8>>,
    pub random: Random,
}

impl World {
    pub fn new(case: &CacheCase) -> Self {
        Self {
            case: case.clone(),
            names: vec![],
            buffers: vec![],
            random: Random::new(case.seed, 0),
        }
    }

    fn buffer(&mut self, name: &'static str, len: usize) -> usize {
        let words = (len + 2 * GUARD) / 8;
        let bytes = (0..words).flat_map(|_| self.random.bits().to_le_bytes());
        self.buffers.push(bytes.collect());
        self.names.push(name);
        self.names.len() - 1
    }

    /// A tensor alone in a buffer.
    fn alone(&mut self, name: &'static str, dims: Vec<(usize, usize)>) -> Place {
        let (offset, row) = (GUARD, self.case.row());
        let mut place = Place {
            buffer: 0,
            offset,
            dims,
            row,
        };
        place.buffer = self.buffer(name, place.range().len());
        place
    }

    /// K and V. Padded ones have different strides if `different`.
    pub fn caches(&mut self, different: bool) -> [Place; 2] {
        let CacheCase {
            num_blocks,
            block_size,
            heads,
            order,
            pool,
            ..
        } = self.case;
        let row = self.case.row();
        // Gaps after a head, a slot and a block, in units of 16 bytes.
        let dims = |gaps: [usize; 3]| {
            let [head_gap, slot_gap, block_gap] = gaps.map(|gap| gap * 16);
            let (slot, head, block) = match order {
                CacheLayout::Nhd => {
                    let head = row + head_gap;
                    let slot = heads * head + slot_gap;
                    (slot, head, block_size * slot)
                }
                CacheLayout::Hnd => {
                    let slot = row + slot_gap;
                    let head = block_size * slot + head_gap;
                    (slot, head, heads * head)
                }
            };
            vec![
                (num_blocks, block + block_gap),
                (block_size, slot),
                (heads, head),
            ]
        };
        match pool {
            Pool::Dense => ["k_cache", "v_cache"].map(|name| self.alone(name, dims([0; 3]))),
            Pool::Padded => {
                let v = if different { [2, 0, 1] } else { [1, 2, 3] };
                [("k_cache", [1, 2, 3]), ("v_cache", v)]
                    .map(|(name, gaps)| self.alone(name, dims(gaps)))
            }
            Pool::Fused => {
                let mut dims = dims([0; 3]);
                let block = dims[0].1;
                dims[0].1 *= 2;
                let buffer = self.buffer("pool", 2 * num_blocks * block);
                [0, block].map(|offset| Place {
                    buffer,
                    offset: GUARD + offset,
                    dims: dims.clone(),
                    row,
                })
            }
        }
    }

    /// Rows of K and V for this many tokens.
    pub fn rows(&mut self, tokens: usize) -> [Place; 2] {
        let (row, heads) = (self.case.row(), self.case.heads);
        match self.case.rows {
            Rows::Dense => {
                ["k", "v"].map(|name| self.alone(name, vec![(tokens, heads * row), (heads, row)]))
            }
            Rows::Padded => [("k", 16), ("v", 48)].map(|(name, gap)| {
                let head = row + gap;
                self.alone(name, vec![(tokens, heads * head + 32), (heads, head)])
            }),
            Rows::PackedQkv => {
                let token = (QUERY_HEADS + 2 * heads) * row;
                let buffer = self.buffer("qkv", tokens * token);
                [QUERY_HEADS, QUERY_HEADS + heads].map(|before| Place {
                    buffer,
                    offset: GUARD + before * row,
                    dims: vec![(tokens, token), (heads, row)],
                    row,
                })
            }
        }
    }

    /// The buffers after a call.
    pub fn after(&self, call: &Call<'_>) -> Vec<Vec<u8>> {
        let mut buffers = self.buffers.clone();
        for Move { from, to } in call.moves() {
            buffers[to.0][to.1].copy_from_slice(&self.buffers[from.0][from.1]);
        }
        buffers
    }

    /// Whether every byte is as expected.
    pub fn same(&self, expected: &[Vec<u8>]) -> Result<(), String> {
        for ((name, found), expected) in self.names.iter().zip(&self.buffers).zip(expected) {
            let differs = |i: &usize| found[*i] != expected[*i];
            if let Some(at) = (0..expected.len()).find(differs) {
                let count = (0..expected.len()).filter(differs).count();
                return Err(format!(
                    "{count} bytes of {name} differ, the first is byte {} of the tensor: {:#04x}, \
                     must be {:#04x}\n{:?}",
                    at as i64 - GUARD as i64,
                    found[at],
                    expected[at],
                    self.case
                ));
            }
        }
        Ok(())
    }
}
