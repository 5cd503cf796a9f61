//! `cp.async`: copies that are under way until their thread waits for them.

use super::block::Cta;
use super::memory::Request;
use super::race::Who;
use super::warp::Warp;
use super::{Env, Res};
use crate::code::CpAsyncOp;
use crate::fault::Access;

/// One `cp.async` of a warp.
struct Copy {
    pc: u32,
    /// Lanes whose copy is under way.
    lanes: u32,
    bytes: u32,
    dst: [u32; 32],
    /// Group of each lane that the copy belongs to.
    group: [u32; 32],
}

#[derive(Default)]
pub(crate) struct PendingCopies {
    copies: Vec<Copy>,
    /// Group that each lane is filling.
    current: [u32; 32],
}

impl PendingCopies {
    pub(crate) fn reset(&mut self) {
        self.copies.clear();
        self.current = [0; 32];
    }

    /// Words of shared memory that copies are still writing.
    pub(crate) fn words(&self) -> impl Iterator<Item = usize> + '_ {
        self.copies.iter().flat_map(|c| {
            (0..32).filter(|l| c.lanes >> l & 1 == 1).flat_map(|l| {
                let first = c.dst[l] as usize / 4;
                first..first + c.bytes as usize / 4
            })
        })
    }

    pub(crate) fn commit(&mut self, mask: u32) {
        for (lane, group) in self.current.iter_mut().enumerate() {
            *group += mask >> lane & 1;
        }
    }
}

pub(crate) fn cp_async(
    env: &Env<'_>,
    cta: &mut Cta,
    warp: &mut Warp,
    pc: u32,
    op: &CpAsyncOp,
    mask: u32,
) -> Res<()> {
    let dst = warp.addresses(&op.dst);
    let src = warp.addresses(&op.src);
    let ignored = op.ignore.map_or(0, |p| warp.pred(p));
    let write = Request::new(pc, &dst, mask, op.bytes, Access::AsyncCopy);
    cta.check_shared(env, warp, &write)?;
    // How much of the source each lane reads.
    let mut lens = [op.bytes; 32];
    for (lane, len) in lens.iter_mut().enumerate() {
        if let Some(r) = op.src_bytes {
            *len = warp.r32[r as usize][lane].min(op.bytes);
        }
        if ignored >> lane & 1 == 1 {
            *len = 0;
        }
    }
    let reading = (0..32).fold(0u32, |m, l| m | u32::from(lens[l] != 0) << l) & mask;
    let read = Request {
        lens: Some(&lens),
        ..Request::new(pc, &src, reading, op.bytes, Access::Read)
    };
    let data = cta.read_for_copy(env, warp, &read)?;
    if env.detectors.races {
        for lane in write.lanes() {
            cta.check_shared_write(env, warp, &write, lane as u32)?;
        }
        let group = warp.copies.current;
        let dst = dst.map(|d| d as u32);
        warp.copies.copies.push(Copy {
            pc,
            lanes: mask,
            bytes: op.bytes,
            dst,
            group,
        });
    }
    // The bytes are put in place at once: whoever looks before the wait gets a fault, and without
    // the detector any moment until the wait is as good as another.
    for lane in write.lanes() {
        cta.store_shared_bytes(dst[lane] as usize, &data[lane][..op.bytes as usize]);
    }
    Ok(())
}

/// Waits until at most `pending` groups of each lane are under way.
pub(crate) fn wait(cta: &mut Cta, warp: &mut Warp, mask: u32, pending: u32) {
    let mut copies = std::mem::take(&mut warp.copies.copies);
    for copy in &mut copies {
        let mut left = copy.lanes & mask;
        while left != 0 {
            let lane = left.trailing_zeros();
            left &= left - 1;
            let l = lane as usize;
            if copy.group[l] >= warp.copies.current[l].saturating_sub(pending) {
                continue;
            }
            copy.lanes &= !(1 << lane);
            let first = copy.dst[l] as usize / 4;
            for word in first..first + copy.bytes as usize / 4 {
                let who = Who {
                    warp: warp.id,
                    lane,
                    clocks: &warp.clocks,
                    pc: copy.pc,
                };
                cta.shadow.copy_done(word, who);
            }
        }
    }
    copies.retain(|c| c.lanes != 0);
    warp.copies.copies = copies;
}

impl Cta {
    /// Reads up to 16 bytes of every lane, zeros behind its length.
    fn read_for_copy(
        &mut self,
        env: &Env<'_>,
        warp: &Warp,
        request: &Request<'_>,
    ) -> Res<[[u8; 16]; 32]> {
        let mut out = [[0u8; 16]; 32];
        let groups = self.locate(env, warp, request)?;
        self.check_written(env, warp, request, &groups)?;
        for (index, lanes) in groups.iter() {
            let allocation = &env.allocs[index];
            for lane in request.lanes().filter(|l| lanes >> l & 1 == 1) {
                let offset = request.addresses[lane] - allocation.base;
                let len = request.len(lane) as usize;
                if len == 16 {
                    let (low, high) = (
                        allocation.load_word(offset),
                        allocation.load_word(offset + 8),
                    );
                    out[lane][..8].copy_from_slice(&low.to_le_bytes());
                    out[lane][8..].copy_from_slice(&high.to_le_bytes());
                    continue;
                }
                let mut at = 0;
                while at < len {
                    let here = offset + at as u64;
                    let word = allocation.load_word(here).to_le_bytes();
                    let from = (here & 7) as usize;
                    let count = (8 - from).min(len - at);
                    out[lane][at..at + count].copy_from_slice(&word[from..from + count]);
                    at += count;
                }
            }
        }
        Ok(out)
    }
}
