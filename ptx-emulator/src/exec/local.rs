//! Local memory: each lane has its own, with one byte per byte that says whether it was written.

use super::block::Cta;
use super::memory::{Data, Request};
use super::warp::Warp;
use super::{Env, Res};
use crate::fault::{FaultKind, Nearest, Space};

impl Warp {
    /// Where a lane's access lies in `local`, or its fault.
    fn local_range(
        &self,
        env: &Env<'_>,
        cta: &Cta,
        request: &Request<'_>,
        lane: usize,
    ) -> Res<std::ops::Range<usize>> {
        let size = u64::from(env.code.local_bytes);
        let address = request.addresses[lane];
        let (space, access, bytes) = (Space::Local, request.access, request.bytes);
        let nearest = || nearest(env, address);
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
        Err(cta.fault(env, self.id, lane as u32, request.pc, kind))
    }

    pub(crate) fn load_local(
        &mut self,
        env: &Env<'_>,
        cta: &mut Cta,
        request: &Request<'_>,
        data: &mut Data,
    ) -> Res<()> {
        for lane in request.lanes() {
            let range = self.local_range(env, cta, request, lane)?;
            let unwritten = self.local_written[range.clone()]
                .iter()
                .position(|w| *w == 0);
            if let Some(at) = unwritten
                && env.detectors.uninitialised
            {
                let first = request.addresses[lane] + at as u64;
                let kind = FaultKind::Uninitialised {
                    space: Space::Local,
                    access: request.access,
                    address: request.addresses[lane],
                    bytes: request.bytes,
                    first,
                    nearest: nearest(env, first),
                };
                return Err(cta.fault(env, self.id, lane as u32, request.pc, kind));
            }
            let mut buffer = [0u8; 16];
            buffer[..request.bytes as usize].copy_from_slice(&self.local[range]);
            let value = u128::from_le_bytes(buffer);
            data[lane] = [value as u64, (value >> 64) as u64];
        }
        cta.tally.bytes.local_read += request.moved();
        Ok(())
    }

    pub(crate) fn store_local(
        &mut self,
        env: &Env<'_>,
        cta: &mut Cta,
        request: &Request<'_>,
        data: &Data,
    ) -> Res<()> {
        for lane in request.lanes() {
            let range = self.local_range(env, cta, request, lane)?;
            let [low, high] = data[lane];
            let value = (u128::from(low) | u128::from(high) << 64).to_le_bytes();
            self.local_written[range.clone()].fill(1);
            self.local[range].copy_from_slice(&value[..request.bytes as usize]);
        }
        cta.tally.bytes.local_written += request.moved();
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
