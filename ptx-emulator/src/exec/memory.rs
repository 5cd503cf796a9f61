//! Loads, stores and atomics: addresses, and the way to the right space.

use super::block::Cta;
use super::warp::Warp;
use super::{Env, Res, windows};
use crate::code::{Addr, AtomOp, MemOp, MemSpace, Reg};
use crate::fault::{Access, FaultKind, Space};

/// Up to 16 bytes of every lane, as two little-endian words.
pub(crate) type Data = [[u64; 2]; 32];

impl Warp {
    /// Addresses of all lanes.
    #[inline]
    pub(crate) fn addresses(&self, addr: &Addr) -> [u64; 32] {
        let mut out = [0; 32];
        match addr.base {
            Reg::R64(r) => {
                let base = &self.r64[r as usize];
                for i in 0..32 {
                    out[i] = base[i].wrapping_add_signed(addr.offset);
                }
            }
            Reg::R32(r) | Reg::R16(r) => {
                let base = &self.r32[r as usize];
                for i in 0..32 {
                    // A 32-bit address space wraps at 32 bits.
                    out[i] = u64::from(base[i].wrapping_add(addr.offset as u32));
                }
            }
            Reg::P(_) | Reg::Sink => {}
        }
        out
    }

    /// Puts loaded bytes into the destination registers.
    #[inline]
    fn set_loaded(&mut self, op: &MemOp, data: &Data, mask: u32) {
        for (e, &reg) in op.regs[..op.count as usize].iter().enumerate() {
            let at = e as u32 * op.width;
            let (word, shift) = ((at >> 3) as usize, (at & 7) * 8);
            match (reg, op.width) {
                (Reg::R32(r), 4) => {
                    let value: [u32; 32] = std::array::from_fn(|i| (data[i][word] >> shift) as u32);
                    self.set32(r, &value, mask);
                }
                (Reg::R64(r), 8) => {
                    let value: [u64; 32] = std::array::from_fn(|i| data[i][word]);
                    self.set64(r, &value, mask);
                }
                _ => {
                    let unused = 64 - 8 * op.width;
                    let value: [u64; 32] = std::array::from_fn(|i| {
                        let top = (data[i][word] >> shift) << unused;
                        if op.signed {
                            ((top as i64) >> unused) as u64
                        } else {
                            top >> unused
                        }
                    });
                    self.set(reg, &value, mask);
                }
            }
        }
    }

    /// The bytes that a store writes.
    #[inline]
    fn stored(&self, op: &MemOp) -> Data {
        let mut data = [[0u64; 2]; 32];
        let keep = u64::MAX >> (64 - 8 * op.width);
        for (e, &reg) in op.regs[..op.count as usize].iter().enumerate() {
            let at = e as u32 * op.width;
            let (word, shift) = ((at >> 3) as usize, (at & 7) * 8);
            match reg {
                Reg::R16(r) | Reg::R32(r) => {
                    let from = &self.r32[r as usize];
                    for i in 0..32 {
                        data[i][word] |= (u64::from(from[i]) & keep) << shift;
                    }
                }
                Reg::R64(r) => {
                    let from = &self.r64[r as usize];
                    for i in 0..32 {
                        data[i][word] |= (from[i] & keep) << shift;
                    }
                }
                Reg::P(_) | Reg::Sink => {}
            }
        }
        data
    }

    /// Lanes of a generic access by space, with their addresses in it.
    fn spaces(addresses: &mut [u64; 32], mask: u32) -> [(MemSpace, u32); 4] {
        let mut out = [
            (MemSpace::Global, 0),
            (MemSpace::Shared, 0),
            (MemSpace::Local, 0),
            (MemSpace::Param, 0),
        ];
        let mut left = mask;
        while left != 0 {
            let lane = left.trailing_zeros() as usize;
            left &= left - 1;
            let (space, address) = windows::classify(addresses[lane]);
            addresses[lane] = address;
            let slot = match space {
                MemSpace::Shared => 1,
                MemSpace::Local => 2,
                MemSpace::Param => 3,
                _ => 0,
            };
            out[slot].1 |= 1 << lane;
        }
        out
    }

    pub(crate) fn load(
        &mut self,
        env: &Env<'_>,
        cta: &mut Cta,
        pc: u32,
        op: &MemOp,
        mask: u32,
    ) -> Res<()> {
        let mut addresses = self.addresses(&op.addr);
        let bytes = op.bytes();
        let mut data = [[0u64; 2]; 32];
        if op.space == MemSpace::Generic {
            for (space, lanes) in Self::spaces(&mut addresses, mask) {
                if lanes != 0 {
                    self.load_from(env, cta, pc, space, &addresses, lanes, bytes, &mut data)?;
                }
            }
        } else {
            self.load_from(env, cta, pc, op.space, &addresses, mask, bytes, &mut data)?;
        }
        self.set_loaded(op, &data, mask);
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of one access")]
    fn load_from(
        &mut self,
        env: &Env<'_>,
        cta: &mut Cta,
        pc: u32,
        space: MemSpace,
        addresses: &[u64; 32],
        mask: u32,
        bytes: u32,
        data: &mut Data,
    ) -> Res<()> {
        match space {
            MemSpace::Global | MemSpace::Generic => {
                cta.load_global(env, self, pc, addresses, mask, bytes, data)
            }
            MemSpace::Shared => cta.load_shared(env, self, pc, addresses, mask, bytes, data),
            MemSpace::Local => self.load_local(env, cta, pc, addresses, mask, bytes, data),
            MemSpace::Param => self.load_param(env, cta, pc, addresses, mask, bytes, data),
        }
    }

    /// `ld.param` of a kernel parameter.
    pub(crate) fn load_entry_param(
        &mut self,
        env: &Env<'_>,
        cta: &Cta,
        pc: u32,
        op: &MemOp,
        mask: u32,
    ) -> Res<()> {
        let addresses = self.addresses(&op.addr);
        let mut data = [[0u64; 2]; 32];
        self.load_param(env, cta, pc, &addresses, mask, op.bytes(), &mut data)?;
        self.set_loaded(op, &data, mask);
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of one access")]
    fn load_param(
        &self,
        env: &Env<'_>,
        cta: &Cta,
        pc: u32,
        addresses: &[u64; 32],
        mask: u32,
        bytes: u32,
        data: &mut Data,
    ) -> Res<()> {
        for lane in (0..32).filter(|l| mask >> l & 1 == 1) {
            let address = addresses[lane];
            let range = (address as usize)
                .checked_add(bytes as usize)
                .map(|end| address as usize..end);
            let Some(found) = range.and_then(|r| env.params.get(r)) else {
                let kind = FaultKind::OutOfBounds {
                    space: Space::Param,
                    access: Access::Read,
                    address,
                    bytes,
                    nearest: None,
                };
                return Err(cta.fault(env, self.id, lane as u32, pc, kind));
            };
            let mut buffer = [0u8; 16];
            buffer[..found.len()].copy_from_slice(found);
            let value = u128::from_le_bytes(buffer);
            data[lane] = [value as u64, (value >> 64) as u64];
        }
        Ok(())
    }

    pub(crate) fn store(
        &mut self,
        env: &Env<'_>,
        cta: &mut Cta,
        pc: u32,
        op: &MemOp,
        mask: u32,
    ) -> Res<()> {
        let mut addresses = self.addresses(&op.addr);
        let bytes = op.bytes();
        let data = self.stored(op);
        if op.space == MemSpace::Generic {
            for (space, lanes) in Self::spaces(&mut addresses, mask) {
                if lanes != 0 {
                    self.store_to(env, cta, pc, space, &addresses, lanes, bytes, &data)?;
                }
            }
            Ok(())
        } else {
            self.store_to(env, cta, pc, op.space, &addresses, mask, bytes, &data)
        }
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of one access")]
    fn store_to(
        &mut self,
        env: &Env<'_>,
        cta: &mut Cta,
        pc: u32,
        space: MemSpace,
        addresses: &[u64; 32],
        mask: u32,
        bytes: u32,
        data: &Data,
    ) -> Res<()> {
        match space {
            MemSpace::Global | MemSpace::Generic => {
                cta.store_global(env, self, pc, addresses, mask, bytes, data)
            }
            MemSpace::Shared => cta.store_shared(env, self, pc, addresses, mask, bytes, data),
            MemSpace::Local => self.store_local(env, cta, pc, addresses, mask, bytes, data),
            MemSpace::Param => {
                let lane = mask.trailing_zeros();
                let kind = FaultKind::OutOfBounds {
                    space: Space::Param,
                    access: Access::Write,
                    address: addresses[lane as usize],
                    bytes,
                    nearest: None,
                };
                Err(cta.fault(env, self.id, lane, pc, kind))
            }
        }
    }

    pub(crate) fn atomic(
        &mut self,
        env: &Env<'_>,
        cta: &mut Cta,
        pc: u32,
        op: &AtomOp,
        mask: u32,
    ) -> Res<()> {
        let mut addresses = self.addresses(&op.addr);
        let mut old = [0u64; 32];
        let spaces = match op.space {
            MemSpace::Generic => Self::spaces(&mut addresses, mask),
            space => {
                let mut spaces = [(space, 0); 4];
                spaces[0].1 = mask;
                spaces
            }
        };
        for (space, lanes) in spaces {
            if lanes == 0 {
                continue;
            }
            match space {
                MemSpace::Shared => {
                    cta.atomic_shared(env, self, pc, &addresses, lanes, op, &mut old)?
                }
                MemSpace::Global | MemSpace::Generic => {
                    cta.atomic_global(env, self, pc, &addresses, lanes, op, &mut old)?;
                }
                MemSpace::Local | MemSpace::Param => {
                    let lane = lanes.trailing_zeros();
                    let kind = FaultKind::OutOfBounds {
                        space: if space == MemSpace::Local {
                            Space::Local
                        } else {
                            Space::Param
                        },
                        access: Access::Atomic,
                        address: addresses[lane as usize],
                        bytes: op.bytes,
                        nearest: None,
                    };
                    return Err(cta.fault(env, self.id, lane, pc, kind));
                }
            }
        }
        self.set(op.d, &old, mask);
        Ok(())
    }
}
