//! Global memory accesses of a warp.

use super::block::Cta;
use super::memory::Data;
use super::warp::Warp;
use super::{Env, Res};
use crate::code::AtomOp;
use crate::fault::{Access, FaultKind, Space};
use crate::memory::Allocation;

/// The lanes of an access by the allocation they hit.
pub(crate) struct Groups {
    items: [(u32, u32); 32],
    len: usize,
}

impl Groups {
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
        self.items[..self.len]
            .iter()
            .map(|(index, lanes)| (*index as usize, *lanes))
    }
}

impl Cta {
    /// Finds the allocations of an access, or the fault of the lowest lane that is out of bounds
    /// or misaligned; `lens` are the bytes of each lane, `align` the alignment required.
    #[allow(clippy::too_many_arguments, reason = "the parts of one access")]
    pub(crate) fn locate(
        &mut self,
        env: &Env<'_>,
        warp: &Warp,
        pc: u32,
        addresses: &[u64; 32],
        mask: u32,
        lens: &[u32; 32],
        align: u32,
        access: Access,
    ) -> Res<Groups> {
        let mut groups = Groups {
            items: [(0, 0); 32],
            len: 0,
        };
        let unaligned = u64::from(align) - 1;
        let mut left = mask;
        while left != 0 {
            let lane = left.trailing_zeros() as usize;
            let address = addresses[lane];
            let index = self.allocation_at(env, address);
            let within = |l: usize, a: &Allocation| {
                addresses[l] >= a.base && addresses[l].saturating_add(lens[l].into()) <= a.end()
            };
            let Some(index) = index.filter(|i| within(lane, &env.allocs[*i])) else {
                let kind = FaultKind::OutOfBounds {
                    space: Space::Global,
                    access,
                    address,
                    bytes: lens[lane],
                    nearest: env.memory.nearest(address),
                };
                return Err(self.fault(env, warp.id, lane as u32, pc, kind));
            };
            let allocation = &env.allocs[index];
            let mut lanes = 0u32;
            for l in lane..32 {
                lanes |= u32::from(within(l, allocation)) << l;
            }
            lanes &= left;
            left &= !lanes;
            groups.items[groups.len] = (index as u32, lanes);
            groups.len += 1;
            // A misaligned lane is at fault only if no lower lane is out of bounds.
            let mut rest = lanes;
            while rest != 0 {
                let l = rest.trailing_zeros() as usize;
                rest &= rest - 1;
                if addresses[l] & unaligned != 0 {
                    let lower = left & ((1u32 << l) - 1);
                    if lower == 0 {
                        return Err(self.misaligned(env, warp, pc, l, addresses[l], align, access));
                    }
                    // Look at the lower lanes first; they may be out of bounds.
                    let mut only = *addresses;
                    only[l] = addresses[l];
                    self.locate(env, warp, pc, &only, lower, lens, align, access)?;
                    return Err(self.misaligned(env, warp, pc, l, addresses[l], align, access));
                }
            }
        }
        Ok(groups)
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of one access")]
    fn misaligned(
        &self,
        env: &Env<'_>,
        warp: &Warp,
        pc: u32,
        lane: usize,
        address: u64,
        required: u32,
        access: Access,
    ) -> Box<crate::fault::Fault> {
        let kind = FaultKind::Misaligned {
            space: Space::Global,
            access,
            address,
            required,
            nearest: env.memory.nearest(address),
        };
        self.fault(env, warp.id, lane as u32, pc, kind)
    }

    /// Index of the allocation that starts at or before the address.
    #[inline]
    fn allocation_at(&mut self, env: &Env<'_>, address: u64) -> Option<usize> {
        if let Some(last) = env.allocs.get(self.last_allocation)
            && address >= last.base
            && address < last.end()
        {
            return Some(self.last_allocation);
        }
        let index = env
            .allocs
            .partition_point(|a| a.base <= address)
            .checked_sub(1)?;
        self.last_allocation = index;
        Some(index)
    }

    /// The fault of the lowest lane that reads unwritten bytes.
    #[allow(clippy::too_many_arguments, reason = "the parts of one access")]
    pub(crate) fn check_written(
        &self,
        env: &Env<'_>,
        warp: &Warp,
        pc: u32,
        allocation: &Allocation,
        addresses: &[u64; 32],
        mask: u32,
        lens: &[u32; 32],
        access: Access,
    ) -> Res<()> {
        let mut left = mask;
        while left != 0 {
            let lane = left.trailing_zeros() as usize;
            left &= left - 1;
            let (address, bytes) = (addresses[lane], lens[lane]);
            if let Some(first) = allocation.first_unwritten(address, bytes.into()) {
                let nearest = env.memory.nearest(first);
                let kind = FaultKind::Uninitialised {
                    space: Space::Global,
                    access,
                    address,
                    bytes,
                    first,
                    nearest,
                };
                return Err(self.fault(env, warp.id, lane as u32, pc, kind));
            }
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of one access")]
    pub(crate) fn load_global(
        &mut self,
        env: &Env<'_>,
        warp: &Warp,
        pc: u32,
        addresses: &[u64; 32],
        mask: u32,
        bytes: u32,
        data: &mut Data,
    ) -> Res<()> {
        let lens = [bytes; 32];
        let groups = self.locate(env, warp, pc, addresses, mask, &lens, bytes, Access::Read)?;
        for (index, lanes) in groups.iter() {
            let allocation = &*env.allocs[index];
            if env.detectors.uninitialised && !allocation.is_complete() {
                self.check_written(
                    env,
                    warp,
                    pc,
                    allocation,
                    addresses,
                    lanes,
                    &lens,
                    Access::Read,
                )?;
            }
            if env.count_memory {
                let (base, size) = (allocation.base, allocation.size);
                self.tally
                    .global_request(index, base, size, addresses, lanes, bytes, true);
            }
            let mut left = lanes;
            while left != 0 {
                let lane = left.trailing_zeros() as usize;
                left &= left - 1;
                let offset = addresses[lane] - allocation.base;
                data[lane] = if bytes == 16 {
                    [
                        allocation.load_word(offset),
                        allocation.load_word(offset + 8),
                    ]
                } else {
                    [allocation.load(offset, bytes), 0]
                };
            }
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of one access")]
    pub(crate) fn store_global(
        &mut self,
        env: &Env<'_>,
        warp: &Warp,
        pc: u32,
        addresses: &[u64; 32],
        mask: u32,
        bytes: u32,
        data: &Data,
    ) -> Res<()> {
        let lens = [bytes; 32];
        let groups = self.locate(env, warp, pc, addresses, mask, &lens, bytes, Access::Write)?;
        for (index, lanes) in groups.iter() {
            let allocation = &*env.allocs[index];
            if env.count_memory {
                let (base, size) = (allocation.base, allocation.size);
                self.tally
                    .global_request(index, base, size, addresses, lanes, bytes, false);
            }
            let mut left = lanes;
            while left != 0 {
                let lane = left.trailing_zeros() as usize;
                left &= left - 1;
                let offset = addresses[lane] - allocation.base;
                let [low, high] = data[lane];
                if bytes == 16 {
                    allocation.store(offset, 8, low);
                    allocation.store(offset + 8, 8, high);
                } else {
                    allocation.store(offset, bytes, low);
                }
            }
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of one access")]
    pub(crate) fn atomic_global(
        &mut self,
        env: &Env<'_>,
        warp: &Warp,
        pc: u32,
        addresses: &[u64; 32],
        mask: u32,
        op: &AtomOp,
        old: &mut [u64; 32],
    ) -> Res<()> {
        let lens = [op.bytes; 32];
        let groups = self.locate(
            env,
            warp,
            pc,
            addresses,
            mask,
            &lens,
            op.bytes,
            Access::Atomic,
        )?;
        for (index, lanes) in groups.iter() {
            let allocation = &*env.allocs[index];
            if env.detectors.uninitialised && !allocation.is_complete() {
                self.check_written(
                    env,
                    warp,
                    pc,
                    allocation,
                    addresses,
                    lanes,
                    &lens,
                    Access::Atomic,
                )?;
            }
            if env.count_memory {
                let (base, size) = (allocation.base, allocation.size);
                self.tally
                    .global_request(index, base, size, addresses, lanes, op.bytes, false);
            }
            for lane in (0..32).filter(|l| lanes >> l & 1 == 1) {
                let offset = addresses[lane] - allocation.base;
                let (b, c) = (warp.lane(op.b, lane), warp.lane(op.c, lane));
                old[lane] = allocation.update(offset, op.bytes, |value| (op.f)(value, b, c));
            }
        }
        Ok(())
    }
}
