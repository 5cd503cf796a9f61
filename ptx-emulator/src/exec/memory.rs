//! Loads, stores and atomics: addresses, and the way to the right space.

use super::block::Cta;
use super::warp::Warp;
use super::{Env, Res, windows};
use crate::code::{Addr, AtomOp, MemOp, MemSpace, Reg};
use crate::fault::{Access, Fault, FaultKind, Space};

/// Up to 16 bytes of every lane, as two little-endian words.
pub(crate) type Data = [[u64; 2]; 32];

/// One memory instruction of a warp.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub pc: u32,
    pub addresses: &'a [u64; 32],
    pub mask: u32,
    /// Size of every lane's access, and its alignment.
    pub bytes: u32,
    /// Bytes that each lane really touches, if fewer.
    pub lens: Option<&'a [u32; 32]>,
    pub access: Access,
}

impl<'a> Request<'a> {
    #[inline]
    pub(crate) fn new(
        pc: u32,
        addresses: &'a [u64; 32],
        mask: u32,
        bytes: u32,
        access: Access,
    ) -> Self {
        Request {
            pc,
            addresses,
            mask,
            bytes,
            lens: None,
            access,
        }
    }

    /// The lanes of `mask`, ascending.
    #[inline]
    pub(crate) fn lanes(&self) -> impl Iterator<Item = usize> + use<> {
        let mut left = self.mask;
        std::iter::from_fn(move || {
            let lane = left.trailing_zeros() as usize;
            left &= left.wrapping_sub(1);
            (lane < 32).then_some(lane)
        })
    }

    /// Whether `f` holds for all lanes of `mask`. Nearly always it does, so no lane is skipped and
    /// the loop becomes vector code.
    #[inline]
    pub(crate) fn all(&self, f: impl Fn(usize) -> bool) -> bool {
        (0..32).fold(true, |all, lane| {
            all & (f(lane) | (self.mask >> lane & 1 == 0))
        })
    }

    #[inline]
    pub(crate) fn len(&self, lane: usize) -> u32 {
        self.lens.map_or(self.bytes, |lens| lens[lane])
    }

    /// Bytes of all lanes.
    pub(crate) fn moved(&self) -> u64 {
        u64::from(self.bytes) * u64::from(self.mask.count_ones())
    }
}

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

    pub(crate) fn load(
        &mut self,
        env: &Env<'_>,
        cta: &mut Cta,
        pc: u32,
        op: &MemOp,
        mask: u32,
    ) -> Res<()> {
        let mut addresses = self.addresses(&op.addr);
        let mut data = [[0u64; 2]; 32];
        for (space, lanes) in spaces(op.space, &mut addresses, mask) {
            let request = Request::new(pc, &addresses, lanes, op.bytes(), Access::Read);
            match space {
                _ if lanes == 0 => {}
                MemSpace::Global | MemSpace::Generic => {
                    cta.load_global(env, self, &request, &mut data)?;
                }
                MemSpace::Shared => cta.load_shared(env, self, &request, &mut data)?,
                MemSpace::Local => self.load_local(env, cta, &request, &mut data)?,
                MemSpace::Param => self.load_param(env, cta, &request, &mut data)?,
            }
        }
        self.set_loaded(op, &data, mask);
        Ok(())
    }

    fn load_param(
        &self,
        env: &Env<'_>,
        cta: &Cta,
        request: &Request<'_>,
        data: &mut Data,
    ) -> Res<()> {
        let bytes = request.bytes as usize;
        for lane in request.lanes() {
            let start = request.addresses[lane] as usize;
            let range = start.checked_add(bytes).map(|end| start..end);
            let Some(found) = range.and_then(|r| env.params.get(r)) else {
                return Err(self.no_such_access(env, cta, request, Space::Param));
            };
            let mut buffer = [0u8; 16];
            buffer[..bytes].copy_from_slice(found);
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
        let data = self.stored(op);
        for (space, lanes) in spaces(op.space, &mut addresses, mask) {
            let request = Request::new(pc, &addresses, lanes, op.bytes(), Access::Write);
            match space {
                _ if lanes == 0 => {}
                MemSpace::Global | MemSpace::Generic => {
                    cta.store_global(env, self, &request, &data)?
                }
                MemSpace::Shared => cta.store_shared(env, self, &request, &data)?,
                MemSpace::Local => self.store_local(env, cta, &request, &data)?,
                MemSpace::Param => {
                    return Err(self.no_such_access(env, cta, &request, Space::Param));
                }
            }
        }
        Ok(())
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
        for (space, lanes) in spaces(op.space, &mut addresses, mask) {
            let request = Request::new(pc, &addresses, lanes, op.bytes, Access::Atomic);
            match space {
                _ if lanes == 0 => {}
                MemSpace::Global | MemSpace::Generic => {
                    cta.atomic_global(env, self, &request, op, &mut old)?;
                }
                MemSpace::Shared => cta.atomic_shared(env, self, &request, op, &mut old)?,
                MemSpace::Local => {
                    return Err(self.no_such_access(env, cta, &request, Space::Local));
                }
                MemSpace::Param => {
                    return Err(self.no_such_access(env, cta, &request, Space::Param));
                }
            }
        }
        self.set(op.d, &old, mask);
        Ok(())
    }

    /// The fault of an access that its space does not have: outside the parameters, a store to
    /// them, an atomic on local memory.
    fn no_such_access(
        &self,
        env: &Env<'_>,
        cta: &Cta,
        request: &Request<'_>,
        space: Space,
    ) -> Box<Fault> {
        let lane = request.mask.trailing_zeros().min(31);
        let kind = FaultKind::OutOfBounds {
            space,
            access: request.access,
            address: request.addresses[lane as usize],
            bytes: request.bytes,
            nearest: None,
        };
        cta.fault(env, self.id, lane, request.pc, kind)
    }
}

/// The lanes of an access by space; generic addresses become addresses in their space.
fn spaces(space: MemSpace, addresses: &mut [u64; 32], mask: u32) -> [(MemSpace, u32); 4] {
    if space != MemSpace::Generic {
        return [(space, mask), (space, 0), (space, 0), (space, 0)];
    }
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
            MemSpace::Global | MemSpace::Generic => 0,
        };
        out[slot].1 |= 1 << lane;
    }
    out
}
