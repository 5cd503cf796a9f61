//! Shared memory accesses of a warp.

use super::block::Cta;
use super::memory::Data;
use super::race::Who;
use super::warp::Warp;
use super::{Env, Res};
use crate::code::AtomOp;
use crate::fault::{Access, FaultKind, Space};

impl Cta {
    /// Bounds and alignment of all lanes: the fault of the lowest lane that breaks them.
    #[allow(clippy::too_many_arguments, reason = "the parts of one access")]
    pub(crate) fn check_shared(
        &self,
        env: &Env<'_>,
        warp: &Warp,
        pc: u32,
        addresses: &[u64; 32],
        mask: u32,
        bytes: u32,
        access: Access,
    ) -> Res<()> {
        let limit = u64::from(env.shared_bytes);
        let size = u64::from(bytes);
        let wrong =
            |address: u64| address.saturating_add(size) > limit || address & (size - 1) != 0;
        let any = (0..32).any(|l| mask >> l & 1 == 1 && wrong(addresses[l]));
        if !any {
            return Ok(());
        }
        let lane = (0..32)
            .find(|l| mask >> l & 1 == 1 && wrong(addresses[*l]))
            .unwrap_or(0);
        let address = addresses[lane];
        let nearest = self.nearest_shared(env, address);
        let space = Space::Shared;
        let kind = if address.saturating_add(size) > limit {
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
        Err(self.fault(env, warp.id, lane as u32, pc, kind))
    }

    /// Races and uninitialised bytes of one lane's read of an aligned range.
    #[allow(clippy::too_many_arguments, reason = "the parts of one access")]
    pub(crate) fn check_shared_read(
        &mut self,
        env: &Env<'_>,
        warp: &Warp,
        pc: u32,
        lane: u32,
        address: u64,
        bytes: u32,
        access: Access,
    ) -> Res<()> {
        let first = (address >> 2) as usize;
        let words = bytes.div_ceil(4) as usize;
        let within = ((1u32 << bytes.min(4)) - 1 << (address & 3)) as u8;
        for word in first..first + words {
            if env.detectors.races && access == Access::Read {
                let who = Who {
                    warp: warp.id,
                    lane,
                    clocks: &warp.clocks,
                    pc,
                };
                if let Err(conflict) = self.shadow.read(word, within, who) {
                    return Err(self.conflict(env, warp.id, lane, pc, access, conflict));
                }
            }
            if env.detectors.uninitialised {
                let missing = within & !self.shared_written[word];
                if missing != 0 {
                    let first = word as u64 * 4 + u64::from(missing.trailing_zeros());
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
                    return Err(self.fault(env, warp.id, lane, pc, kind));
                }
            }
        }
        Ok(())
    }

    /// Races of one lane's write of an aligned range.
    #[allow(clippy::too_many_arguments, reason = "the parts of one access")]
    fn check_shared_write(
        &mut self,
        env: &Env<'_>,
        warp: &Warp,
        pc: u32,
        lane: u32,
        address: u64,
        bytes: u32,
        access: Access,
    ) -> Res<()> {
        let first = (address >> 2) as usize;
        let words = bytes.div_ceil(4) as usize;
        let within = ((1u32 << bytes.min(4)) - 1 << (address & 3)) as u8;
        for word in first..first + words {
            let who = Who {
                warp: warp.id,
                lane,
                clocks: &warp.clocks,
                pc,
            };
            if let Err(conflict) = self.shadow.write(word, within, who, access) {
                return Err(self.conflict(env, warp.id, lane, pc, access, conflict));
            }
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn load_shared_bytes(&self, address: usize, bytes: usize) -> [u64; 2] {
        let mut buffer = [0u8; 16];
        match bytes {
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
            self.shared_written[address / 4] |=
                (((1u32 << bytes.len()) - 1) << (address & 3)) as u8;
        }
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of one access")]
    pub(crate) fn load_shared(
        &mut self,
        env: &Env<'_>,
        warp: &Warp,
        pc: u32,
        addresses: &[u64; 32],
        mask: u32,
        bytes: u32,
        data: &mut Data,
    ) -> Res<()> {
        self.check_shared(env, warp, pc, addresses, mask, bytes, Access::Read)?;
        let checked = env.detectors.races || env.detectors.uninitialised;
        let mut left = mask;
        while left != 0 {
            let lane = left.trailing_zeros();
            left &= left - 1;
            let address = addresses[lane as usize];
            if checked {
                self.check_shared_read(env, warp, pc, lane, address, bytes, Access::Read)?;
            }
            data[lane as usize] = self.load_shared_bytes(address as usize, bytes as usize);
        }
        if env.count_memory {
            self.tally.shared_request(addresses, mask, bytes, true);
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of one access")]
    pub(crate) fn store_shared(
        &mut self,
        env: &Env<'_>,
        warp: &Warp,
        pc: u32,
        addresses: &[u64; 32],
        mask: u32,
        bytes: u32,
        data: &Data,
    ) -> Res<()> {
        self.check_shared(env, warp, pc, addresses, mask, bytes, Access::Write)?;
        let mut left = mask;
        while left != 0 {
            let lane = left.trailing_zeros();
            left &= left - 1;
            let address = addresses[lane as usize];
            if env.detectors.races {
                self.check_shared_write(env, warp, pc, lane, address, bytes, Access::Write)?;
            }
            let [low, high] = data[lane as usize];
            let value = (u128::from(low) | u128::from(high) << 64).to_le_bytes();
            self.store_shared_bytes(address as usize, &value[..bytes as usize]);
        }
        if env.count_memory {
            self.tally.shared_request(addresses, mask, bytes, false);
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of one access")]
    pub(crate) fn atomic_shared(
        &mut self,
        env: &Env<'_>,
        warp: &Warp,
        pc: u32,
        addresses: &[u64; 32],
        mask: u32,
        op: &AtomOp,
        old: &mut [u64; 32],
    ) -> Res<()> {
        let (bytes, access) = (op.bytes, Access::Atomic);
        self.check_shared(env, warp, pc, addresses, mask, bytes, access)?;
        for lane in (0..32u32).filter(|l| mask >> l & 1 == 1) {
            let at = lane as usize;
            let address = addresses[at];
            if env.detectors.races {
                self.check_shared_write(env, warp, pc, lane, address, bytes, access)?;
            }
            self.check_shared_read(env, warp, pc, lane, address, bytes, access)?;
            let [value, _] = self.load_shared_bytes(address as usize, bytes as usize);
            old[at] = value;
            let new = (op.f)(value, warp.lane(op.b, at), warp.lane(op.c, at));
            self.store_shared_bytes(address as usize, &new.to_le_bytes()[..bytes as usize]);
        }
        if env.count_memory {
            self.tally.shared_request(addresses, mask, bytes, false);
        }
        Ok(())
    }
}
