//! `ldmatrix`, `movmatrix` and `mma`.

use super::block::Cta;
use super::memory::Request;
use super::race::Who;
use super::warp::Warp;
use super::{Env, Res, windows};
use crate::arith::ScalarType;
use crate::arith::mma::{self, MmaShape};
use crate::code::{LdMatrixOp, MemSpace, MmaOp, NONE, R};
use crate::fault::{Access, FaultKind, Space};

/// One 8 × 8 matrix: its rows.
type Rows = [[u8; 16]; 8];

impl Warp {
    pub(crate) fn ldmatrix(
        &mut self,
        env: &Env<'_>,
        cta: &mut Cta,
        pc: u32,
        op: &LdMatrixOp,
        mask: u32,
    ) -> Res<()> {
        let mut addresses = self.addresses(&op.addr);
        let used = u32::MAX >> (32 - 8 * op.count) & mask;
        if op.generic {
            for lane in (0..32).filter(|l| used >> l & 1 == 1) {
                let (space, address) = windows::classify(addresses[lane]);
                if space != MemSpace::Shared {
                    let kind = FaultKind::OutOfBounds {
                        space: Space::Shared,
                        access: Access::Read,
                        address: addresses[lane],
                        bytes: 16,
                        nearest: None,
                    };
                    return Err(cta.fault(env, self.id, lane as u32, pc, kind));
                }
                addresses[lane] = address;
            }
        }
        let request = Request::new(pc, &addresses, used, 16, Access::Read);
        cta.check_shared(env, self, &request)?;
        let mut rows: [Rows; 4] = [[[0; 16]; 8]; 4];
        for lane in request.lanes() {
            if env.detectors.races {
                self.ordered_for_all(env, cta, &request, lane, mask)?;
            }
            cta.check_shared_written(env, self, &request, lane as u32)?;
            let from = addresses[lane] as usize;
            rows[lane / 8][lane % 8].copy_from_slice(&cta.shared[from..from + 16]);
        }
        for (matrix, &d) in rows.iter().zip(&op.d[..op.count as usize]) {
            self.set32(d, &mma::ldmatrix(matrix, op.trans), mask);
        }
        Ok(())
    }

    /// The lane that gives a row's address is not the one that gets its elements: the whole warp
    /// reads the row.
    fn ordered_for_all(
        &self,
        env: &Env<'_>,
        cta: &mut Cta,
        request: &Request<'_>,
        lane: usize,
        mask: u32,
    ) -> Res<()> {
        let pc = request.pc;
        let first = request.addresses[lane] as usize / 4;
        for word in first..first + 4 {
            let lane = lane as u32;
            let who = Who {
                warp: self.id,
                lane,
                clocks: &self.clocks,
                pc,
            };
            if let Err((lane, conflict)) = cta.shadow.read_by_warp(word, who, mask) {
                return Err(cta.conflict(env, self.id, lane, pc, Access::Read, conflict));
            }
        }
        Ok(())
    }

    pub(crate) fn movmatrix(&mut self, d: R, a: R, mask: u32) {
        let source = &self.r32[a as usize];
        let mut rows: Rows = [[0; 16]; 8];
        for (lane, value) in source.iter().enumerate() {
            let at = lane % 4 * 4;
            rows[lane / 4][at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        self.set32(d, &mma::ldmatrix(&rows, true), mask);
    }

    /// Register `r` of all lanes, transposed into per-lane arrays.
    fn gather<const N: usize>(&self, regs: &[R]) -> [[u32; N]; 32] {
        let mut out = [[0; N]; 32];
        for (i, &r) in regs.iter().take(N).enumerate().filter(|(_, r)| **r != NONE) {
            for (lane, value) in self.r32[r as usize].iter().enumerate() {
                out[lane][i] = *value;
            }
        }
        out
    }

    pub(crate) fn mma(&mut self, op: &MmaOp, mask: u32) {
        let shape = if op.k == 16 {
            MmaShape::M16N8K16
        } else {
            MmaShape::M16N8K8
        };
        let (a, b) = (self.gather::<4>(&op.a), self.gather::<2>(&op.b));
        if op.c_type == ScalarType::F32 {
            let bf16 = op.input == ScalarType::BF16;
            let d = mma::mma_f32(shape, bf16, &a, &b, &self.gather::<4>(&op.c));
            for (i, &r) in op.d.iter().enumerate() {
                self.set32(r, &std::array::from_fn(|lane| d[lane][i]), mask);
            }
        } else {
            let d = mma::mma_f16(shape, &a, &b, &self.gather::<2>(&op.c[..2]));
            for (i, &r) in op.d[..2].iter().enumerate() {
                self.set32(r, &std::array::from_fn(|lane| d[lane][i]), mask);
            }
        }
    }
}
