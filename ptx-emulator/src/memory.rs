//! Global memory: many named allocations, shared by host threads and by running blocks.
//!
//! The bytes live in relaxed 64-bit atomics, so that a program whose blocks race is a program
//! with an unspecified value and never undefined behaviour of the emulator itself.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::error::MemoryError;
use crate::fault::Nearest;

/// Addresses of global memory start here; the windows of the other spaces lie below.
pub(crate) const GLOBAL_BASE: u64 = 0x7000_0000_0000;
/// Unused bytes after every allocation.
const RED_ZONE: u64 = 4096;
/// Least alignment of an allocation.
const MIN_ALIGN: u64 = 256;

/// One allocation.
pub(crate) struct Allocation {
    pub name: String,
    pub base: u64,
    pub size: u64,
    /// Little-endian words; the last one is padded.
    words: Box<[AtomicU64]>,
    /// One bit per byte of the word with the same index: whether it was ever written.
    written: Box<[AtomicU8]>,
    /// Every byte was written: `written` need not be looked at.
    complete: AtomicBool,
}

impl Allocation {
    fn new(name: String, base: u64, size: u64) -> Self {
        let count = size.div_ceil(8) as usize;
        Allocation {
            name,
            base,
            size,
            words: (0..count).map(|_| AtomicU64::new(0)).collect(),
            written: (0..count).map(|_| AtomicU8::new(0)).collect(),
            complete: AtomicBool::new(size == 0),
        }
    }

    /// One past the last byte.
    #[inline]
    pub(crate) fn end(&self) -> u64 {
        self.base + self.size
    }

    #[inline]
    pub(crate) fn is_complete(&self) -> bool {
        self.complete.load(Relaxed)
    }

    /// Sets the `complete` flag if every byte was written.
    pub(crate) fn refresh_complete(&self) {
        if !self.is_complete() && self.first_unwritten(self.base, self.size).is_none() {
            self.complete.store(true, Relaxed);
        }
    }

    /// The word at byte `offset`, a multiple of 8.
    #[inline]
    pub(crate) fn load_word(&self, offset: u64) -> u64 {
        self.words[(offset >> 3) as usize].load(Relaxed)
    }

    /// `bytes` (1, 2, 4, 8) at the aligned byte `offset`, zero-extended.
    #[inline]
    pub(crate) fn load(&self, offset: u64, bytes: u32) -> u64 {
        let word = self.load_word(offset);
        (word >> ((offset & 7) * 8)) & mask(bytes)
    }

    /// Stores the low `bytes` (1, 2, 4, 8) of `value` at the aligned byte `offset`.
    #[inline]
    pub(crate) fn store(&self, offset: u64, bytes: u32, value: u64) {
        let index = (offset >> 3) as usize;
        let shift = (offset & 7) * 8;
        let word = &self.words[index];
        if bytes == 8 {
            word.store(value, Relaxed);
        } else {
            let keep = !(mask(bytes) << shift);
            let new = (value & mask(bytes)) << shift;
            let mut old = word.load(Relaxed);
            while let Err(now) = word.compare_exchange_weak(old, old & keep | new, Relaxed, Relaxed)
            {
                old = now;
            }
        }
        if !self.is_complete() {
            let bits = (((1u16 << bytes) - 1) as u8) << (offset & 7);
            self.written[index].fetch_or(bits, Relaxed);
        }
    }

    /// Replaces the aligned `bytes` (4 or 8) at `offset` by `f` of them, atomically; returns the old.
    pub(crate) fn update(&self, offset: u64, bytes: u32, f: impl Fn(u64) -> u64) -> u64 {
        let index = (offset >> 3) as usize;
        let shift = (offset & 7) * 8;
        let keep = !(mask(bytes) << shift);
        let word = &self.words[index];
        let mut old = word.load(Relaxed);
        loop {
            let field = (old >> shift) & mask(bytes);
            let new = old & keep | (f(field) & mask(bytes)) << shift;
            match word.compare_exchange_weak(old, new, Relaxed, Relaxed) {
                Ok(_) => {
                    if !self.is_complete() {
                        let bits = (((1u16 << bytes) - 1) as u8) << (offset & 7);
                        self.written[index].fetch_or(bits, Relaxed);
                    }
                    return field;
                }
                Err(now) => old = now,
            }
        }
    }

    /// The first byte address in the range that was never written.
    pub(crate) fn first_unwritten(&self, address: u64, len: u64) -> Option<u64> {
        if self.is_complete() {
            return None;
        }
        let mut offset = address - self.base;
        let end = offset + len;
        while offset < end {
            let bits = self.written[(offset >> 3) as usize].load(Relaxed);
            let within = offset & 7;
            let count = (8 - within).min(end - offset);
            let need = (((1u16 << count) - 1) as u8) << within;
            let missing = need & !bits;
            if missing != 0 {
                let byte = (offset & !7) + u64::from(missing.trailing_zeros());
                return Some(self.base + byte);
            }
            offset += count;
        }
        None
    }

    fn write_bytes(&self, offset: u64, bytes: &[u8]) {
        let mut at = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            if at & 7 == 0 && rest.len() >= 8 {
                let (head, tail) = rest.split_at(8);
                let word = u64::from_le_bytes(head.try_into().expect("8 bytes"));
                self.words[(at >> 3) as usize].store(word, Relaxed);
                self.written[(at >> 3) as usize].store(0xff, Relaxed);
                at += 8;
                rest = tail;
            } else {
                self.store(at, 1, rest[0].into());
                at += 1;
                rest = &rest[1..];
            }
        }
        if offset == 0 && bytes.len() as u64 == self.size {
            self.complete.store(true, Relaxed);
        }
    }

    fn read_bytes(&self, offset: u64, bytes: &mut [u8]) {
        for (i, chunk) in (offset..).zip(bytes.iter_mut()) {
            *chunk = (self.load_word(i) >> ((i & 7) * 8)) as u8;
        }
    }
}

#[inline]
fn mask(bytes: u32) -> u64 {
    u64::MAX >> (64 - 8 * bytes)
}

/// A live allocation, as [`Memory::allocation_of`] describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocationInfo {
    /// The name given to [`Memory::alloc`].
    pub name: String,
    /// First byte.
    pub base: u64,
    /// Length in bytes.
    pub size: u64,
}

struct State {
    live: BTreeMap<u64, Arc<Allocation>>,
    /// Freed ranges by base: name and size. Addresses are never used again.
    freed: BTreeMap<u64, (String, u64)>,
    next: u64,
    /// Variables of modules: addresses by module and variable.
    modules: HashMap<u64, Arc<Vec<u64>>>,
}

/// Global memory of one emulated device.
///
/// An allocation starts uninitialised, has unused bytes around it, and its addresses are not
/// given out again after [`free`](Memory::free).
pub struct Memory {
    state: Mutex<State>,
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl Memory {
    /// An empty memory.
    pub fn new() -> Self {
        Self::starting_at(GLOBAL_BASE)
    }

    /// An empty memory whose addresses lie at or above `base`, for programs with several memories
    /// that tell them apart by address. A `base` below the default's is raised to it, since the
    /// windows of the other spaces lie there.
    pub fn starting_at(base: u64) -> Self {
        let state = State {
            live: BTreeMap::new(),
            freed: BTreeMap::new(),
            next: base.max(GLOBAL_BASE),
            modules: HashMap::new(),
        };
        Memory {
            state: Mutex::new(state),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The state is consistent between statements, so a panic elsewhere does not spoil it.
        self.state
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Reserves `bytes` at a multiple of `align` (at least 256) under a name for messages.
    ///
    /// # Errors
    /// Sizes above 2^40 and alignments that are not a power of two up to 2^20.
    pub fn alloc(&self, bytes: u64, align: u64, name: &str) -> Result<u64, MemoryError> {
        if bytes > 1 << 40 || !align.is_power_of_two() || align > 1 << 20 {
            let name = name.to_string();
            return Err(MemoryError::BadRequest { name, bytes, align });
        }
        let mut state = self.state();
        let base = state.next.next_multiple_of(align.max(MIN_ALIGN));
        state.next = base + bytes + RED_ZONE;
        let allocation = Arc::new(Allocation::new(name.to_string(), base, bytes));
        state.live.insert(base, allocation);
        Ok(base)
    }

    /// Ends the allocation that starts at `address`.
    ///
    /// # Errors
    /// `address` is not the start of a live allocation.
    pub fn free(&self, address: u64) -> Result<(), MemoryError> {
        let mut state = self.state();
        match state.live.remove(&address) {
            Some(old) => {
                state.freed.insert(old.base, (old.name.clone(), old.size));
                Ok(())
            }
            None => {
                let nearest = clause(nearest(&state, address));
                Err(MemoryError::NotAnAllocation { address, nearest })
            }
        }
    }

    /// Copies `bytes` to `address`.
    ///
    /// # Errors
    /// The range is not inside one live allocation.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<(), MemoryError> {
        let allocation = self.range("write", address, bytes.len() as u64)?;
        allocation.write_bytes(address - allocation.base, bytes);
        Ok(())
    }

    /// Copies from `address`; bytes that were never written read as 0.
    ///
    /// # Errors
    /// The range is not inside one live allocation.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), MemoryError> {
        let allocation = self.range("read", address, bytes.len() as u64)?;
        allocation.read_bytes(address - allocation.base, bytes);
        Ok(())
    }

    /// Sets `len` bytes to `byte`.
    ///
    /// # Errors
    /// The range is not inside one live allocation.
    pub fn fill(&self, address: u64, byte: u8, len: u64) -> Result<(), MemoryError> {
        let allocation = self.range("fill", address, len)?;
        let chunk = [byte; 4096];
        let mut done = 0;
        while done < len {
            let count = (len - done).min(4096);
            allocation.write_bytes(address - allocation.base + done, &chunk[..count as usize]);
            done += count;
        }
        allocation.refresh_complete();
        Ok(())
    }

    /// The first byte of the range that nothing has written, `None` if all of it was.
    ///
    /// # Errors
    /// The range is not inside one live allocation.
    pub fn first_unwritten(&self, address: u64, len: u64) -> Result<Option<u64>, MemoryError> {
        let allocation = self.range("first_unwritten", address, len)?;
        Ok(allocation.first_unwritten(address, len))
    }

    /// The live allocation that holds `address`.
    pub fn allocation_of(&self, address: u64) -> Option<AllocationInfo> {
        let state = self.state();
        let (_, a) = state.live.range(..=address).next_back()?;
        let info = AllocationInfo {
            name: a.name.clone(),
            base: a.base,
            size: a.size,
        };
        (address < a.end()).then_some(info)
    }

    fn range(
        &self,
        operation: &'static str,
        address: u64,
        bytes: u64,
    ) -> Result<Arc<Allocation>, MemoryError> {
        let state = self.state();
        let found = state.live.range(..=address).next_back().map(|(_, a)| a);
        match found {
            Some(a) if address.checked_add(bytes).is_some_and(|end| end <= a.end()) => {
                Ok(Arc::clone(a))
            }
            _ => {
                let nearest = clause(nearest(&state, address));
                Err(MemoryError::OutOfBounds {
                    operation,
                    address,
                    bytes,
                    nearest,
                })
            }
        }
    }

    /// All live allocations, ascending, with their `complete` flags brought up to date.
    pub(crate) fn snapshot(&self) -> Vec<Arc<Allocation>> {
        let all: Vec<_> = self.state().live.values().cloned().collect();
        for allocation in &all {
            allocation.refresh_complete();
        }
        all
    }

    /// The allocation or freed range closest to `address`, if one is near.
    pub(crate) fn nearest(&self, address: u64) -> Option<Nearest> {
        nearest(&self.state(), address)
    }

    /// Addresses of a module's variables, made by `make` at the first call.
    pub(crate) fn module_variables(
        &self,
        module: u64,
        make: impl FnOnce() -> Result<Vec<u64>, MemoryError>,
    ) -> Result<Arc<Vec<u64>>, MemoryError> {
        if let Some(known) = self.state().modules.get(&module) {
            return Ok(Arc::clone(known));
        }
        let made = Arc::new(make()?);
        Ok(Arc::clone(
            self.state().modules.entry(module).or_insert(made),
        ))
    }
}

/// The closest allocation within this distance is worth a mention.
const NEAR: u64 = 1 << 32;

fn nearest(state: &State, address: u64) -> Option<Nearest> {
    let live = |entry: (&u64, &Arc<Allocation>)| {
        let a = entry.1;
        (a.base, a.size, a.name.clone(), false)
    };
    let freed = |entry: (&u64, &(String, u64))| (*entry.0, entry.1.1, entry.1.0.clone(), true);
    let candidates = [
        state.live.range(..=address).next_back().map(live),
        state.live.range(address..).next().map(live),
        state.freed.range(..=address).next_back().map(freed),
        state.freed.range(address..).next().map(freed),
    ];
    candidates
        .into_iter()
        .flatten()
        .map(|(base, size, name, freed)| {
            let distance = if address < base {
                base - address
            } else {
                (address - base).saturating_sub(size.saturating_sub(1))
            };
            let offset = address.wrapping_sub(base) as i64;
            (
                distance,
                Nearest {
                    name,
                    base,
                    size,
                    offset,
                    freed,
                },
            )
        })
        .filter(|(distance, _)| *distance <= NEAR)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, nearest)| nearest)
}

fn clause(nearest: Option<Nearest>) -> String {
    nearest.map_or(String::new(), |n| format!(" ({n})"))
}
