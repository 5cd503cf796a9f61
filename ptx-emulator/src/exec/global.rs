//! Global memory accesses of a warp.

use super::block::Cta;
use super::memory::{Data, Request};
use super::warp::Warp;
use super::{Env, Res};
use crate::code::AtomOp;
use crate::fault::{FaultKind, Space};
use crate::memory::Allocation;

/// The lanes of an access by the allocation they hit.
pub(crate) struct Groups {
    items: [(u32, u32); 32],
    len: usize,
}

impl Groups {
    fn new() -> Self {
        Groups {
            items: [(0, 0); 32],
            len: 0,
        }
    }

    fn add(&mut self, allocation: usize, lanes: u32) {
        let known = self.items[..self.len]
            .iter_mut()
            .find(|i| i.0 == allocation as u32);
        match known {
            Some(item) => item.1 |= lanes,
            None => {
                self.items[self.len] = (allocation as u32, lanes);
                self.len += 1;
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
        self.items[..self.len]
            .iter()
            .map(|(index, lanes)| (*index as usize, *lanes))
    }
}

/// Whether a lane's access lies in the allocation.
#[inline]
fn within(allocation: &Allocation, request: &Request<'_>, lane: usize) -> bool {
    let address = request.addresses[lane];
    let end = address.saturating_add(request.len(lane).into());
    (address >= allocation.base) & (end <= allocation.end())
}

impl Cta {
    /// Finds the allocations of an access, or the fault of the lowest lane that is out of bounds
    /// or misaligned, and tells the counters.
    pub(crate) fn locate(
        &mut self,
        env: &Env<'_>,
        warp: &Warp,
        request: &Request<'_>,
    ) -> Res<Groups> {
        let unaligned = u64::from(request.bytes) - 1;
        let mut groups = Groups::new();
        // Nearly always all lanes are in the allocation of the last access.
        let last = env.allocs.get(self.last_allocation);
        let all = last.is_some_and(|a| {
            request.all(|l| within(a, request, l) & (request.addresses[l] & unaligned == 0))
        });
        if all {
            groups.add(self.last_allocation, request.mask);
        } else {
            for lane in request.lanes() {
                let address = request.addresses[lane];
                let index = env
                    .allocs
                    .partition_point(|a| a.base <= address)
                    .checked_sub(1);
                let (space, access) = (Space::Global, request.access);
                let nearest = || env.memory.nearest(address);
                let kind = match index.filter(|i| within(&env.allocs[*i], request, lane)) {
                    Some(index) if address & unaligned == 0 => {
                        groups.add(index, 1 << lane);
                        self.last_allocation = index;
                        continue;
                    }
                    Some(_) => {
                        let required = request.bytes;
                        FaultKind::Misaligned {
                            space,
                            access,
                            address,
                            required,
                            nearest: nearest(),
                        }
                    }
                    None => {
                        let bytes = request.len(lane);
                        FaultKind::OutOfBounds {
                            space,
                            access,
                            address,
                            bytes,
                            nearest: nearest(),
                        }
                    }
                };
                return Err(self.fault(env, warp.id, lane as u32, request.pc, kind));
            }
        }
        if env.count_memory {
            for (index, lanes) in groups.iter() {
                self.tally
                    .global_request(&env.allocs[index], index, request, lanes);
            }
        }
        Ok(groups)
    }

    /// The fault of the lowest lane that reads unwritten bytes.
    pub(crate) fn check_written(
        &self,
        env: &Env<'_>,
        warp: &Warp,
        request: &Request<'_>,
        groups: &Groups,
    ) -> Res<()> {
        if !env.detectors.uninitialised {
            return Ok(());
        }
        let mut lowest: Option<(usize, u64)> = None;
        for (index, lanes) in groups.iter() {
            let allocation = &env.allocs[index];
            if allocation.is_complete() {
                continue;
            }
            let found = request
                .lanes()
                .filter(|l| lanes >> l & 1 == 1)
                .find_map(|lane| {
                    let len = request.len(lane).into();
                    let first = allocation.first_unwritten(request.addresses[lane], len)?;
                    Some((lane, first))
                });
            if let Some((lane, first)) = found
                && lowest.is_none_or(|(l, _)| lane < l)
            {
                lowest = Some((lane, first));
            }
        }
        let Some((lane, first)) = lowest else {
            return Ok(());
        };
        let kind = FaultKind::Uninitialised {
            space: Space::Global,
            access: request.access,
            address: request.addresses[lane],
            bytes: request.len(lane),
            first,
            nearest: env.memory.nearest(first),
        };
        Err(self.fault(env, warp.id, lane as u32, request.pc, kind))
    }

    pub(crate) fn load_global(
        &mut self,
        env: &Env<'_>,
        warp: &Warp,
        request: &Request<'_>,
        data: &mut Data,
    ) -> Res<()> {
        let groups = self.locate(env, warp, request)?;
        self.check_written(env, warp, request, &groups)?;
        for (index, lanes) in groups.iter() {
            let allocation = &*env.allocs[index];
            let mut left = lanes;
            while left != 0 {
                let lane = left.trailing_zeros() as usize;
                left &= left - 1;
                let offset = request.addresses[lane] - allocation.base;
                data[lane] = if request.bytes == 16 {
                    [
                        allocation.load_word(offset),
                        allocation.load_word(offset + 8),
                    ]
                } else {
                    [allocation.load(offset, request.bytes), 0]
                };
            }
        }
        Ok(())
    }

    pub(crate) fn store_global(
        &mut self,
        env: &Env<'_>,
        warp: &Warp,
        request: &Request<'_>,
        data: &Data,
    ) -> Res<()> {
        let groups = self.locate(env, warp, request)?;
        for (index, lanes) in groups.iter() {
            let allocation = &*env.allocs[index];
            let mut left = lanes;
            while left != 0 {
                let lane = left.trailing_zeros() as usize;
                left &= left - 1;
                let offset = request.addresses[lane] - allocation.base;
                let [low, high] = data[lane];
                if request.bytes == 16 {
                    allocation.store(offset, 8, low);
                    allocation.store(offset + 8, 8, high);
                } else {
                    allocation.store(offset, request.bytes, low);
                }
            }
        }
        Ok(())
    }

    pub(crate) fn atomic_global(
        &mut self,
        env: &Env<'_>,
        warp: &Warp,
        request: &Request<'_>,
        op: &AtomOp,
        old: &mut [u64; 32],
    ) -> Res<()> {
        let groups = self.locate(env, warp, request)?;
        self.check_written(env, warp, request, &groups)?;
        for (index, lanes) in groups.iter() {
            let allocation = &*env.allocs[index];
            for lane in request.lanes().filter(|l| lanes >> l & 1 == 1) {
                let offset = request.addresses[lane] - allocation.base;
                let (b, c) = (warp.lane(op.b, lane), warp.lane(op.c, lane));
                old[lane] = allocation.update(offset, op.bytes, |value| (op.f)(value, b, c));
            }
        }
        Ok(())
    }
}
