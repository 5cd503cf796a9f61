//! Local memory: each lane has its own, with one byte per byte that says whether it was written.

use super::block::Cta;
use super::memory::Data;
use super::warp::Warp;
use super::{Env, Res};
use crate::fault::{Access, FaultKind, Nearest, Space};

impl Warp {
    /// Where a lane's access lies in `local`, or its fault.
    #[allow(clippy::too_many_arguments, reason = "the parts of one access")]
    fn local_range(
        &self,
        env: &Env<'_>,
        cta: &Cta,
        pc: u32,
        lane: usize,
        address: u64,
        bytes: u32,
        access: Access,
    ) -> Res<std::ops::Range<usize>> {
        let size = u64::from(env.code.local_bytes);
        let nearest = || nearest(env, address);
        let space = Space::Local;
        let kind = if address.saturating_add(bytes.into()) > size {
            FaultKind::OutOfBounds {
                space,
                access,
                address,
                bytes,
                nearest: nearest(),
            }
        } else if address & (u64::from(bytes) - 1) != 0 {
            FaultKind::Misaligned {
                space,
                access,
                address,
                required: bytes,
                nearest: nearest(),
            }
        } else {
            let start = lane * size as usize + address as usize;
            return Ok(start..start + bytes as usize);
        };
        Err(cta.fault(env, self.id, lane as u32, pc, kind))
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of one access")]
    pub(crate) fn load_local(
        &mut self,
        env: &Env<'_>,
        cta: &mut Cta,
        pc: u32,
        addresses: &[u64; 32],
        mask: u32,
        bytes: u32,
        data: &mut Data,
    ) -> Res<()> {
        for lane in (0..32).filter(|l| mask >> l & 1 == 1) {
            let address = addresses[lane];
            let range = self.local_range(env, cta, pc, lane, address, bytes, Access::Read)?;
            if env.detectors.uninitialised
                && let Some(at) = self.local_written[range.clone()]
                    .iter()
                    .position(|w| *w == 0)
            {
                let kind = FaultKind::Uninitialised {
                    space: Space::Local,
                    access: Access::Read,
                    address,
                    bytes,
                    first: address + at as u64,
                    nearest: nearest(env, address + at as u64),
                };
                return Err(cta.fault(env, self.id, lane as u32, pc, kind));
            }
            let mut buffer = [0u8; 16];
            buffer[..bytes as usize].copy_from_slice(&self.local[range]);
            let value = u128::from_le_bytes(buffer);
            data[lane] = [value as u64, (value >> 64) as u64];
        }
        cta.tally.bytes.local_read += u64::from(mask.count_ones() * bytes);
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of one access")]
    pub(crate) fn store_local(
        &mut self,
        env: &Env<'_>,
        cta: &mut Cta,
        pc: u32,
        addresses: &[u64; 32],
        mask: u32,
        bytes: u32,
        data: &Data,
    ) -> Res<()> {
        for lane in (0..32).filter(|l| mask >> l & 1 == 1) {
            let range =
                self.local_range(env, cta, pc, lane, addresses[lane], bytes, Access::Write)?;
            let [low, high] = data[lane];
            let value = (u128::from(low) | u128::from(high) << 64).to_le_bytes();
            self.local_written[range.clone()].fill(1);
            self.local[range].copy_from_slice(&value[..bytes as usize]);
        }
        cta.tally.bytes.local_written += u64::from(mask.count_ones() * bytes);
        Ok(())
    }

    /// Copies a parameter of a call, with what was and was not written of it.
    pub(crate) fn copy_local(&mut self, env: &Env<'_>, dst: u32, src: u32, bytes: u32, mask: u32) {
        let size = env.code.local_bytes as usize;
        for lane in (0..32).filter(|l| mask >> l & 1 == 1) {
            let from = lane * size + src as usize;
            let to = lane * size + dst as usize;
            self.local.copy_within(from..from + bytes as usize, to);
            self.local_written
                .copy_within(from..from + bytes as usize, to);
        }
    }
}

/// A thread's local memory is one piece; its variables have no names of their own here.
fn nearest(env: &Env<'_>, address: u64) -> Option<Nearest> {
    Some(Nearest {
        name: "local memory".to_string(),
        base: 0,
        size: env.code.local_bytes.into(),
        offset: address as i64,
        freed: false,
    })
}
