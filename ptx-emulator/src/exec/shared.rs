//! Shared memory accesses of a warp.

use super::block::Cta;
use super::memory::{Data, Request};
use super::race::Who;
use super::warp::Warp;
use super::{Env, Res};
use crate::code::AtomOp;
use crate::fault::{FaultKind, Space};

/// Bits of the bytes that an access of `bytes` bytes touches in a word.
#[inline]
fn within(address: u64, bytes: u32) -> u8 {
    (((1u32 << bytes.min(4)) - 1) << (address & 3)) as u8
}

impl Cta {
    /// Bounds and alignment of all lanes: the fault of the lowest lane that breaks them.
    pub(crate) fn check_shared(
        &mut self,
        env: &Env<'_>,
        warp: &Warp,
        request: &Request<'_>,
    ) -> Res<()> {
        let limit = u64::from(env.shared_bytes);
        let size = u64::from(request.bytes);
        let outside = |address: u64| address.saturating_add(size) > limit;
        let right = |l: usize| {
            let address = request.addresses[l];
            !outside(address) & (address & (size - 1) == 0)
        };
        if !request.all(right)
            && let Some(lane) = request.lanes().find(|l| !right(*l))
        {
            let address = request.addresses[lane];
            let nearest = self.nearest_shared(env, address);
            let (space, access, bytes) = (Space::Shared, request.access, request.bytes);
            let kind = if outside(address) {
                FaultKind::OutOfBounds {
                    space,
                    access,
                    address,
                    bytes,
                    nearest,
                }
            } else {
                FaultKind::Misaligned {
                    space,
                    access,
                    address,
                    required: bytes,
                    nearest,
                }
            };
            return Err(self.fault(env, warp.id, lane as u32, request.pc, kind));
        }
        if env.count_memory {
            self.tally.shared_request(request);
        }
        Ok(())
    }

    /// Races and uninitialised bytes of one lane's read.
    pub(crate) fn check_shared_read(
        &mut self,
        env: &Env<'_>,
        warp: &Warp,
        request: &Request<'_>,
        lane: u32,
    ) -> Res<()> {
        let Request {
            pc, bytes, access, ..
        } = *request;
        if env.detectors.races {
            let address = request.addresses[lane as usize];
            let first = (address >> 2) as usize;
            let bits = within(address, bytes);
            for word in first..first + bytes.div_ceil(4) as usize {
                let who = Who {
                    warp: warp.id,
                    lane,
                    clocks: &warp.clocks,
                    pc,
                };
                if let Err(conflict) = self.shadow.read(word, bits, who) {
                    return Err(self.conflict(env, warp.id, lane, pc, access, conflict));
                }
            }
        }
        self.check_shared_written(env, warp, request, lane)
    }

    /// Uninitialised bytes of one lane's read.
    pub(crate) fn check_shared_written(
        &self,
        env: &Env<'_>,
        warp: &Warp,
        request: &Request<'_>,
        lane: u32,
    ) -> Res<()> {
        if !env.detectors.uninitialised {
            return Ok(());
        }
        let Request {
            pc, bytes, access, ..
        } = *request;
        let address = request.addresses[lane as usize];
        let first = (address >> 2) as usize;
        let bits = within(address, bytes);
        let written = &self.shared_written[first..first + bytes.div_ceil(4) as usize];
        let Some(word) = written.iter().position(|w| bits & !w != 0) else {
            return Ok(());
        };
        let missing = bits & !written[word];
        let first = (first + word) as u64 * 4 + u64::from(missing.trailing_zeros());
        let nearest = self.nearest_shared(env, first);
        let space = Space::Shared;
        let kind = FaultKind::Uninitialised {
            space,
            access,
            address,
            bytes,
            first,
            nearest,
        };
        Err(self.fault(env, warp.id, lane, pc, kind))
    }

    /// Races of one lane's write.
    pub(crate) fn check_shared_write(
        &mut self,
        env: &Env<'_>,
        warp: &Warp,
        request: &Request<'_>,
        lane: u32,
    ) -> Res<()> {
        let Request {
            pc, bytes, access, ..
        } = *request;
        let address = request.addresses[lane as usize];
        let first = (address >> 2) as usize;
        let bits = within(address, bytes);
        for word in first..first + bytes.div_ceil(4) as usize {
            let who = Who {
                warp: warp.id,
                lane,
                clocks: &warp.clocks,
                pc,
            };
            if let Err(conflict) = self.shadow.write(word, bits, who, access) {
                return Err(self.conflict(env, warp.id, lane, pc, access, conflict));
            }
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn load_shared_bytes(&self, address: usize, bytes: usize) -> [u64; 2] {
        let mut buffer = [0u8; 16];
        match bytes {
            // The widths of attention kernels, as copies of constant size.
            4 => buffer[..4].copy_from_slice(&self.shared[address..address + 4]),
            16 => buffer.copy_from_slice(&self.shared[address..address + 16]),
            _ => buffer[..bytes].copy_from_slice(&self.shared[address..address + bytes]),
        }
        let value = u128::from_le_bytes(buffer);
        [value as u64, (value >> 64) as u64]
    }

    #[inline]
    pub(crate) fn store_shared_bytes(&mut self, address: usize, bytes: &[u8]) {
        self.shared[address..address + bytes.len()].copy_from_slice(bytes);
        if bytes.len() >= 4 {
            self.shared_written[address / 4..(address + bytes.len()) / 4].fill(0xf);
        } else {
            self.shared_written[address / 4] |= within(address as u64, bytes.len() as u32);
        }
    }

    pub(crate) fn load_shared(
        &mut self,
        env: &Env<'_>,
        warp: &Warp,
        request: &Request<'_>,
        data: &mut Data,
    ) -> Res<()> {
        self.check_shared(env, warp, request)?;
        let checked = env.detectors.races || env.detectors.uninitialised;
        for lane in request.lanes() {
            if checked {
                self.check_shared_read(env, warp, request, lane as u32)?;
            }
            let address = request.addresses[lane] as usize;
            data[lane] = self.load_shared_bytes(address, request.bytes as usize);
        }
        Ok(())
    }

    pub(crate) fn store_shared(
        &mut self,
        env: &Env<'_>,
        warp: &Warp,
        request: &Request<'_>,
        data: &Data,
    ) -> Res<()> {
        self.check_shared(env, warp, request)?;
        for lane in request.lanes() {
            if env.detectors.races {
                self.check_shared_write(env, warp, request, lane as u32)?;
            }
            let [low, high] = data[lane];
            let value = (u128::from(low) | u128::from(high) << 64).to_le_bytes();
            let address = request.addresses[lane] as usize;
            self.store_shared_bytes(address, &value[..request.bytes as usize]);
        }
        Ok(())
    }

    pub(crate) fn atomic_shared(
        &mut self,
        env: &Env<'_>,
        warp: &Warp,
        request: &Request<'_>,
        op: &AtomOp,
        old: &mut [u64; 32],
    ) -> Res<()> {
        self.check_shared(env, warp, request)?;
        for lane in request.lanes() {
            if env.detectors.races {
                self.check_shared_write(env, warp, request, lane as u32)?;
            }
            self.check_shared_written(env, warp, request, lane as u32)?;
            let address = request.addresses[lane] as usize;
            let [value, _] = self.load_shared_bytes(address, op.bytes as usize);
            old[lane] = value;
            let new = (op.f)(value, warp.lane(op.b, lane), warp.lane(op.c, lane));
            self.store_shared_bytes(address, &new.to_le_bytes()[..op.bytes as usize]);
        }
        Ok(())
    }
}
