//! Counters of one worker.

use super::Env;
use super::memory::Request;
use crate::counters::{ByteCounts, SectorCounts, SharedCounts};
use crate::fault::Access;
use crate::memory::Allocation;

/// Bytes of a sector, as a shift.
const SECTOR_SHIFT: u32 = 5;

/// Sectors of one allocation that the current block has loaded.
#[derive(Default)]
struct Touched {
    bits: Vec<u64>,
    /// Indices of words of `bits` that are not 0.
    dirty: Vec<u32>,
}

pub(crate) struct Tally {
    /// Warp instructions by index of the instruction.
    pub executed: Vec<u64>,
    pub partial: u64,
    pub allocations: Vec<SectorCounts>,
    pub shared: SharedCounts,
    pub bytes: ByteCounts,
    pub barriers: u64,
    pub blocks: u64,
    touched: Vec<Touched>,
}

impl Tally {
    pub(crate) fn new(env: &Env<'_>) -> Self {
        Tally {
            executed: vec![0; env.code.insts.len()],
            partial: 0,
            allocations: vec![SectorCounts::default(); env.allocs.len()],
            shared: SharedCounts::default(),
            bytes: ByteCounts::default(),
            barriers: 0,
            blocks: 0,
            touched: env.allocs.iter().map(|_| Touched::default()).collect(),
        }
    }

    pub(crate) fn add(&mut self, other: &Tally) {
        for (a, b) in self.executed.iter_mut().zip(&other.executed) {
            *a += b;
        }
        for (a, b) in self.allocations.iter_mut().zip(&other.allocations) {
            a.requests += b.requests;
            a.loaded += b.loaded;
            a.stored += b.stored;
            a.loaded_per_block += b.loaded_per_block;
        }
        self.partial += other.partial;
        self.barriers += other.barriers;
        self.blocks += other.blocks;
        self.shared.requests += other.shared.requests;
        self.shared.wavefronts += other.shared.wavefronts;
        self.shared.least_wavefronts += other.shared.least_wavefronts;
        let (a, b) = (&mut self.bytes, &other.bytes);
        a.global_read += b.global_read;
        a.global_written += b.global_written;
        a.shared_read += b.shared_read;
        a.shared_written += b.shared_written;
        a.local_read += b.local_read;
        a.local_written += b.local_written;
    }

    /// The lanes `mask` of a request, which touch allocation number `index`.
    pub(crate) fn global_request(
        &mut self,
        allocation: &Allocation,
        index: usize,
        request: &Request<'_>,
        mask: u32,
    ) {
        let mut sectors = [0u64; 64];
        let mut count = 0;
        let mut sorted = true;
        let mut left = mask;
        while left != 0 {
            let lane = left.trailing_zeros() as usize;
            left &= left - 1;
            // An access is aligned to its size of at most 16 bytes: it lies in one sector.
            let sector = (request.addresses[lane] - allocation.base) >> SECTOR_SHIFT;
            if count > 0 {
                let last = sectors[count - 1];
                if last == sector {
                    continue;
                }
                sorted &= last < sector;
            }
            sectors[count] = sector;
            count += 1;
        }
        let list = &mut sectors[..count];
        if !sorted {
            list.sort_unstable();
            let mut kept = 1;
            for i in 1..count {
                if list[i] != list[kept - 1] {
                    list[kept] = list[i];
                    kept += 1;
                }
            }
            count = kept;
        }
        let counts = &mut self.allocations[index];
        counts.requests += 1;
        let moved = Request { mask, ..*request }.moved();
        if request.access == Access::Read {
            counts.loaded += count as u64;
            self.bytes.global_read += moved;
            let touched = &mut self.touched[index];
            if touched.bits.is_empty() {
                touched.bits = vec![0; (allocation.size >> SECTOR_SHIFT) as usize / 64 + 1];
            }
            for &sector in &sectors[..count] {
                let word = (sector >> 6) as usize;
                let old = touched.bits[word];
                if old == 0 {
                    touched.dirty.push(word as u32);
                }
                touched.bits[word] = old | 1 << (sector & 63);
            }
        } else {
            counts.stored += count as u64;
            self.bytes.global_written += moved;
        }
    }

    /// One request to shared memory: bank conflicts.
    pub(crate) fn shared_request(&mut self, request: &Request<'_>) {
        let Request {
            addresses,
            mask,
            bytes,
            ..
        } = *request;
        if request.access == Access::Read {
            self.bytes.shared_read += request.moved();
        } else {
            self.bytes.shared_written += request.moved();
        }
        self.shared.requests += 1;
        // Wide accesses go in groups of lanes that move 128 bytes together.
        let group = (128 / bytes.max(4)) as usize;
        let start = mask.trailing_zeros() as usize % 32;
        let step = u64::from(bytes);
        let in_order = (start..32).all(|l| {
            let expected = addresses[start].wrapping_add((l - start) as u64 * step);
            mask >> l & 1 == 0 || addresses[l] == expected
        });
        for first in (0..32).step_by(group) {
            let lanes = mask >> first & (u32::MAX >> (32 - group));
            if lanes == 0 {
                continue;
            }
            let (most, distinct) = if in_order {
                // Neighbours in neighbouring words: at most 32 words, no two in one bank.
                (1, 1)
            } else {
                bank_load(&addresses[first..first + group], lanes, bytes)
            };
            self.shared.wavefronts += u64::from(most);
            self.shared.least_wavefronts += u64::from(distinct.div_ceil(group as u32));
        }
    }

    /// The end of a block: what it has loaded counts once.
    pub(crate) fn end_block(&mut self) {
        self.blocks += 1;
        for (touched, counts) in self.touched.iter_mut().zip(&mut self.allocations) {
            for word in touched.dirty.drain(..) {
                let bits = std::mem::take(&mut touched.bits[word as usize]);
                counts.loaded_per_block += u64::from(bits.count_ones());
            }
        }
    }
}

/// The most distinct units that one bank (of the unit's width) serves, and the distinct units of
/// all banks. A unit is one lane's access: all are aligned to their size, so that two lanes touch
/// the same unit or have no word in common.
fn bank_load(addresses: &[u64], lanes: u32, bytes: u32) -> (u32, u32) {
    let shift = bytes.max(4).trailing_zeros();
    let last_bank = (128 >> shift) - 1;
    let mut units = [(0u32, 0u64); 32];
    let mut count = 0;
    let mut load = [0u8; 32];
    let mut most = 0;
    for (lane, address) in addresses.iter().enumerate() {
        if lanes >> lane & 1 == 0 {
            continue;
        }
        let unit = address >> shift;
        let bank = unit as u32 & last_bank;
        let load = &mut load[bank as usize];
        // Lanes that ask for the same unit share it.
        if *load != 0 && units[..count].contains(&(bank, unit)) {
            continue;
        }
        units[count] = (bank, unit);
        count += 1;
        *load += 1;
        most = most.max(*load);
    }
    (most.into(), count as u32)
}
