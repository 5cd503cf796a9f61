//! Integers of the cache operations on the device, of which this module alone writes the contents.
//!
//! Slots, pairs, addresses and starts decide where a kernel writes. They are checked on the host and
//! copied by `set`, so that a launch needs no look at them, no copy and no allocation.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::context::ContextRef;
use super::held::Held;
use super::{CudaBackend, CudaCacheMut};
use crate::cache::{MAX_INDEX, range};
use crate::checks::{check_len, equal};
use crate::{CacheSizes, Error, Op};

/// As many as a launch takes, so that no size in bytes overflows.
fn check_capacity(op: Op, argument: &'static str, capacity: usize) -> Result<(), Error> {
    range(op, argument, capacity as u64, 0, MAX_INDEX)
}

fn check_room(
    op: Op,
    argument: &'static str,
    capacity: usize,
    count: (&'static str, usize),
) -> Result<(), Error> {
    check_len(op, argument, capacity, Some(count.1), &[count])
}

/// The slots of [`CudaBackend::reshape_and_cache`], from [`CudaBackend::slots`].
pub struct CudaSlots {
    held: Held<i64>,
    sizes: CacheSizes,
    capacity: usize,
    /// As on the device, as far as anything was ever set: what is not set now is skipped.
    slots: Vec<i64>,
    len: usize,
}

impl CudaSlots {
    /// Replaces the slots, at once: launches that have not run yet see the new ones. Earlier ones
    /// behind them become −1, so that a captured call can be replayed with fewer slots.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`] for more slots than the capacity, [`Error::Slot`] past the cache.
    /// The slots stay as they were then. [`Error::Driver`], after which none are set.
    pub fn set(&mut self, slot_mapping: &[i64]) -> Result<(), Error> {
        let (op, len) = (Op::ReshapeAndCache, slot_mapping.len());
        check_room(op, "slot_mapping", self.capacity, ("slots", len))?;
        self.sizes.check_slots(len, slot_mapping)?;
        self.slots.fill(-1);
        self.slots.resize(self.slots.len().max(len), -1);
        self.slots[..len].copy_from_slice(slot_mapping);
        self.len = 0;
        self.held.set(&self.slots, false)?;
        self.len = len;
        Ok(())
    }

    /// Slots set last.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none are set.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn sizes(&self) -> &CacheSizes {
        &self.sizes
    }

    pub(super) fn address(&self, context: &ContextRef) -> Result<u64, Error> {
        self.held.address(Op::ReshapeAndCache, context)
    }
}

/// The pairs of [`CudaBackend::copy_blocks`], from [`CudaBackend::pairs`].
pub struct CudaPairs {
    held: Held<i64>,
    sizes: CacheSizes,
    capacity: usize,
    len: usize,
    /// Most pairs of a captured call.
    captured: AtomicUsize,
}

impl CudaPairs {
    /// Replaces the pairs. Waits for everything that has been launched in the context: a launch keeps
    /// its number of pairs, and with fewer new ones would find old ones behind them, which may name
    /// the same blocks. For the same reason the number cannot change any more once a call with pairs
    /// has been captured. Not to be called during a capture, where the driver refuses to wait.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`] for more pairs than the capacity, [`Error::ShapeMismatch`] for
    /// another number than was captured; what [`CacheSizes::check_pairs`] refuses. The pairs stay as
    /// they were then. [`Error::Driver`], after which none are set.
    pub fn set(&mut self, pairs: &[[i64; 2]]) -> Result<(), Error> {
        let count = ("pairs", pairs.len());
        check_room(Op::CopyBlocks, "pairs", self.capacity, count)?;
        match *self.captured.get_mut() {
            0 => {}
            captured => equal(Op::CopyBlocks, "pairs", "length", pairs.len(), captured)?,
        }
        self.sizes.check_pairs(pairs)?;
        self.len = 0;
        self.held.set(pairs.as_flattened(), true)?;
        self.len = pairs.len();
        Ok(())
    }

    /// A call with these pairs has been captured.
    pub(super) fn bind(&self) {
        self.captured.fetch_max(self.len, Relaxed);
    }

    /// Pairs set last.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none are set.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn sizes(&self) -> &CacheSizes {
        &self.sizes
    }

    pub(super) fn address(&self, context: &ContextRef) -> Result<u64, Error> {
        self.held.address(Op::CopyBlocks, context)
    }
}

/// The addresses of the caches of [`CudaBackend::copy_blocks`], from [`CudaBackend::cache_table`].
pub struct CudaCacheTable {
    held: Held<u64>,
    addresses: Vec<u64>,
}

impl CudaCacheTable {
    /// The addresses, in order.
    pub(super) fn addresses(&self) -> &[u64] {
        &self.addresses
    }

    pub(super) fn address(&self, context: &ContextRef) -> Result<u64, Error> {
        self.held.address(Op::CopyBlocks, context)
    }
}

/// The lengths of [`CudaBackend::gather_cache`], from [`CudaBackend::lengths`].
pub struct CudaLengths {
    /// 0 and the sums of the lengths.
    held: Held<i64>,
    capacity: usize,
    /// Most sequences that were ever set.
    most_seqs: usize,
    num_seqs: usize,
    num_tokens: usize,
    /// The longest sequence and its length.
    longest: (usize, i32),
    /// Least number, sum and maximum of the lengths of a captured call.
    captured: [AtomicUsize; 3],
}

impl CudaLengths {
    /// Replaces the lengths. Waits for everything that has been launched in the context, since the
    /// sums say where the rows are written. For the same reason there are bounds once a call has been
    /// captured: it has rows for the sum of its lengths, and reads and writes for as many sequences,
    /// none longer than the longest one was. With fewer sequences a replay gathers just these. Not
    /// to be called during a capture, where the driver refuses to wait.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`] for more lengths than the capacity, [`Error::NegativeSeqLen`],
    /// [`Error::OutOfRange`] for more sequences, more tokens or a longer sequence than were captured.
    /// The lengths stay as they were then. [`Error::Driver`], after which none are set.
    pub fn set(&mut self, seq_lens: &[i32]) -> Result<(), Error> {
        let (op, num_seqs) = (Op::GatherCache, seq_lens.len());
        check_room(op, "seq_lens", self.capacity, ("num_seqs", num_seqs))?;
        let mut starts = CacheSizes::starts(seq_lens)?;
        let num_tokens = starts[num_seqs];
        let longest = seq_lens.iter().copied().enumerate();
        let longest = longest.max_by_key(|&(_, len)| len).unwrap_or((0, 0));
        for ((argument, value), most) in [
            ("num_seqs", num_seqs as u64),
            ("num_tokens", num_tokens as u64),
            ("max_seq_len", longest.1 as u64),
        ]
        .into_iter()
        .zip(&mut self.captured)
        {
            let (min, max) = (0, *most.get_mut() as u64);
            if value > max {
                return Err(Error::OutOfRange {
                    op,
                    argument,
                    value,
                    min,
                    max,
                });
            }
        }
        // A captured launch of more sequences finds empty ones behind these.
        self.most_seqs = self.most_seqs.max(num_seqs);
        starts.resize(self.most_seqs + 1, num_tokens);
        // Nothing is set if the copy fails half-way.
        (self.num_seqs, self.num_tokens, self.longest) = (0, 0, (0, 0));
        self.held.set(&starts, true)?;
        (self.num_seqs, self.num_tokens) = (num_seqs, num_tokens as usize);
        self.longest = longest;
        Ok(())
    }

    /// A call with these lengths has been captured.
    pub(super) fn bind(&self) {
        let captured = [self.num_seqs, self.num_tokens, self.longest.1 as usize];
        for (most, captured) in self.captured.iter().zip(captured) {
            most.fetch_min(captured, Relaxed);
        }
    }

    /// Sequences set last.
    pub fn num_seqs(&self) -> usize {
        self.num_seqs
    }

    /// The sum of the lengths.
    pub fn num_tokens(&self) -> usize {
        self.num_tokens
    }

    pub(super) fn longest(&self) -> (usize, i32) {
        self.longest
    }

    pub(super) fn address(&self, context: &ContextRef) -> Result<u64, Error> {
        self.held.address(Op::GatherCache, context)
    }
}

impl CudaBackend {
    /// Room on the device for up to `capacity` slots of caches of these sizes; none are set.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for more than a launch takes; [`Error::Driver`].
    pub fn slots(&self, sizes: &CacheSizes, capacity: usize) -> Result<CudaSlots, Error> {
        check_capacity(Op::ReshapeAndCache, "capacity", capacity)?;
        Ok(CudaSlots {
            held: Held::zeroed(&self.context, "slot_mapping", capacity)?,
            sizes: *sizes,
            capacity,
            slots: vec![],
            len: 0,
        })
    }

    /// Room on the device for up to `capacity` pairs of blocks of caches of these sizes; none are
    /// set.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for more than a launch takes; [`Error::Driver`].
    pub fn pairs(&self, sizes: &CacheSizes, capacity: usize) -> Result<CudaPairs, Error> {
        check_capacity(Op::CopyBlocks, "capacity", capacity)?;
        Ok(CudaPairs {
            held: Held::zeroed(&self.context, "pairs", capacity * 2)?,
            sizes: *sizes,
            capacity,
            len: 0,
            captured: AtomicUsize::new(0),
        })
    }

    /// Room on the device for the lengths of up to `max_seqs` sequences; none are set.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for more than a launch takes; [`Error::Driver`].
    pub fn lengths(&self, max_seqs: usize) -> Result<CudaLengths, Error> {
        check_capacity(Op::GatherCache, "max_seqs", max_seqs)?;
        Ok(CudaLengths {
            held: Held::zeroed(&self.context, "seq_lens", max_seqs + 1)?,
            capacity: max_seqs,
            most_seqs: 0,
            num_seqs: 0,
            num_tokens: 0,
            longest: (0, 0),
            captured: [const { AtomicUsize::new(usize::MAX) }; 3],
        })
    }

    /// The addresses of the caches of one model, for instance K and V of every layer, on the device.
    /// They are written once; each call takes the caches themselves again.
    ///
    /// # Errors
    /// [`Error::Driver`]. Shapes are checked by [`CudaBackend::copy_blocks`].
    pub fn cache_table(&self, caches: &[CudaCacheMut<'_>]) -> Result<CudaCacheTable, Error> {
        let addresses: Vec<u64> = caches.iter().map(CudaCacheMut::address).collect();
        let mut held = Held::zeroed(&self.context, "caches", addresses.len())?;
        held.set(&addresses, false)?;
        Ok(CudaCacheTable { held, addresses })
    }
}
