//! State of one warp: registers, and its lanes in groups by where they are.

use super::copies::PendingCopies;
use super::race::LaneClocks;
use super::{Env, alu};
use crate::ast::Special;
use crate::code::{Lanes, Lanes32, Pred, R, Reg};

/// Stands for "no record".
pub(crate) const NO_RECORD: u32 = u32::MAX;

/// Lanes at one place.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub pc: u32,
    pub mask: u32,
    /// Innermost record that these lanes are awaited at.
    pub record: u32,
    /// Return addresses.
    pub stack: Vec<u32>,
    pub state: State,
    /// Executes its next warp instruction without the lanes that it lacks.
    pub forced: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Ready,
    /// At a warp instruction that needs these lanes together.
    Converge {
        need: u32,
    },
    /// At a barrier of the block.
    Barrier {
        id: u32,
    },
}

/// A place where the sides of a divergent branch meet.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub pc: u32,
    pub parent: u32,
    pub stack: Vec<u32>,
    /// Lanes still expected, those that arrived included.
    pub expected: u32,
    pub arrived: u32,
}

pub(crate) struct Warp {
    pub id: u32,
    /// Lanes that the block has.
    pub exists: u32,
    /// Lanes that have not exited.
    pub live: u32,
    pub r32: Vec<Lanes32>,
    pub r64: Vec<Lanes>,
    pub preds: Vec<u32>,
    pub groups: Vec<Group>,
    pub records: Vec<Record>,
    pub free_records: Vec<u32>,
    pub local: Vec<u8>,
    pub local_written: Vec<u8>,
    pub copies: PendingCopies,
    pub clocks: LaneClocks,
    /// Operands of a slow instruction; taken while it runs.
    pub scratch: Option<Box<[Lanes; 4]>>,
    /// Carry flag, one bit per lane.
    pub carry: u32,
}

impl Warp {
    pub(crate) fn new(env: &Env<'_>, id: u32) -> Self {
        let code = env.code;
        let count = (env.threads - id * 32).min(32);
        let local = code.local_bytes as usize * 32;
        Warp {
            id,
            exists: u32::MAX >> (32 - count),
            live: 0,
            r32: vec![[0; 32]; code.count32 as usize],
            r64: vec![[0; 32]; code.count64 as usize],
            preds: vec![0; code.count_pred as usize],
            groups: Vec::new(),
            records: Vec::new(),
            free_records: Vec::new(),
            local: vec![0; local],
            local_written: vec![0; local],
            copies: PendingCopies::default(),
            clocks: LaneClocks::default(),
            scratch: Some(Box::default()),
            carry: 0,
        }
    }

    /// Makes the warp ready for block `ctaid`.
    pub(crate) fn reset(&mut self, env: &Env<'_>, ctaid: [u32; 3]) {
        let code = env.code;
        self.r32.fill([0; 32]);
        self.r64.fill([0; 32]);
        self.preds.fill(0);
        self.preds[0] = u32::MAX;
        self.carry = 0;
        for &(r, value) in &code.const32 {
            self.r32[r as usize] = [value; 32];
        }
        for &(r, value) in &env.const64 {
            self.r64[r as usize] = [value; 32];
        }
        for &(special, reg) in &code.specials {
            for lane in 0..32 {
                let value = self.special(env, ctaid, special, lane);
                match reg {
                    Reg::R32(r) | Reg::R16(r) => self.r32[r as usize][lane as usize] = value as u32,
                    Reg::R64(r) => self.r64[r as usize][lane as usize] = value,
                    Reg::P(_) | Reg::Sink => {}
                }
            }
        }
        self.live = self.exists;
        self.groups.clear();
        self.records.clear();
        self.free_records.clear();
        self.groups.push(Group {
            pc: 0,
            mask: self.exists,
            record: NO_RECORD,
            stack: Vec::new(),
            state: State::Ready,
            forced: false,
        });
        self.local_written.fill(0);
        self.copies.reset();
        self.clocks.reset();
    }

    /// Index of a lane's thread in the block.
    pub(crate) fn thread(&self, lane: u32) -> u32 {
        self.id * 32 + lane
    }

    fn special(&self, env: &Env<'_>, ctaid: [u32; 3], special: Special, lane: u32) -> u64 {
        let tid = env.thread_index(self.thread(lane));
        let value = match special {
            Special::TidX => tid[0],
            Special::TidY => tid[1],
            Special::TidZ => tid[2],
            Special::NtidX => env.block[0],
            Special::NtidY => env.block[1],
            Special::NtidZ => env.block[2],
            Special::CtaidX => ctaid[0],
            Special::CtaidY => ctaid[1],
            Special::CtaidZ => ctaid[2],
            Special::NctaidX => env.grid[0],
            Special::NctaidY => env.grid[1],
            Special::NctaidZ => env.grid[2],
            Special::LaneId => lane,
            Special::WarpId => self.id,
            Special::NwarpId => env.warps(),
            Special::SmId => 0,
            Special::NsmId => 1,
            Special::LanemaskEq => 1 << lane,
            Special::LanemaskLe => u32::MAX >> (31 - lane),
            Special::LanemaskLt => (1 << lane) - 1,
            Special::LanemaskGe => u32::MAX << lane,
            Special::LanemaskGt => (u32::MAX << lane) << 1,
            Special::TotalSmem => env.shared_bytes,
            Special::DynamicSmem => env.dynamic_shared,
            Special::GridId
            | Special::Clock
            | Special::ClockHi
            | Special::Clock64
            | Special::GlobalTimer => 0,
        };
        value.into()
    }

    #[inline]
    pub(crate) fn pred(&self, p: Pred) -> u32 {
        self.preds[p.reg as usize] ^ p.flip
    }

    #[inline]
    pub(crate) fn set_pred(&mut self, r: R, value: u32, mask: u32) {
        if let Some(p) = self.preds.get_mut(r as usize) {
            *p = *p & !mask | value & mask;
        }
    }

    #[inline]
    pub(crate) fn set32(&mut self, r: R, value: &Lanes32, mask: u32) {
        if let Some(d) = self.r32.get_mut(r as usize) {
            alu::blend32(d, value, mask);
        }
    }

    #[inline]
    pub(crate) fn set64(&mut self, r: R, value: &Lanes, mask: u32) {
        if let Some(d) = self.r64.get_mut(r as usize) {
            alu::blend64(d, value, mask);
        }
    }

    /// A register of any file, zero-extended.
    pub(crate) fn widen(&self, reg: Reg, out: &mut Lanes) {
        match reg {
            Reg::R16(r) | Reg::R32(r) => {
                let from = &self.r32[r as usize];
                for i in 0..32 {
                    out[i] = from[i].into();
                }
            }
            Reg::R64(r) => *out = self.r64[r as usize],
            Reg::P(r) => {
                let bits = self.preds[r as usize];
                for (i, out) in out.iter_mut().enumerate() {
                    *out = u64::from(bits >> i & 1);
                }
            }
            Reg::Sink => {}
        }
    }

    /// One lane of a register of any file, zero-extended.
    pub(crate) fn lane(&self, reg: Reg, lane: usize) -> u64 {
        match reg {
            Reg::R16(r) | Reg::R32(r) => self.r32[r as usize][lane].into(),
            Reg::R64(r) => self.r64[r as usize][lane],
            Reg::P(r) => u64::from(self.preds[r as usize] >> lane & 1),
            Reg::Sink => 0,
        }
    }

    /// Writes a register of any file; the value is cut to its width.
    pub(crate) fn set(&mut self, reg: Reg, value: &Lanes, mask: u32) {
        match reg {
            Reg::R16(r) => self.set32(r, &value.map(|v| v as u32 & 0xffff), mask),
            Reg::R32(r) => self.set32(r, &value.map(|v| v as u32), mask),
            Reg::R64(r) => self.set64(r, value, mask),
            Reg::P(r) => {
                let bits = (0..32).fold(0, |bits, i| bits | ((value[i] & 1) as u32) << i);
                self.set_pred(r, bits, mask);
            }
            Reg::Sink => {}
        }
    }

    /// Takes lanes out of every record: they exit, or go on without waiting. Records that were
    /// only waiting for them let their lanes go.
    pub(crate) fn leave_records(&mut self, lanes: u32) {
        for i in 0..self.records.len() {
            self.records[i].expected &= !lanes;
            self.records[i].arrived &= !lanes;
            self.complete(i as u32);
        }
    }

    /// Lets the lanes of a record go on if all have arrived.
    pub(crate) fn complete(&mut self, index: u32) -> bool {
        let record = &mut self.records[index as usize];
        if record.pc == u32::MAX || record.arrived != record.expected {
            return false;
        }
        let mask = record.arrived;
        let pc = std::mem::replace(&mut record.pc, u32::MAX);
        let (parent, stack) = (record.parent, std::mem::take(&mut record.stack));
        record.arrived = 0;
        record.expected = 0;
        self.free_records.push(index);
        if mask != 0 {
            self.groups.push(Group {
                pc,
                mask,
                record: parent,
                stack,
                state: State::Ready,
                forced: false,
            });
            self.arrive_last();
        }
        true
    }

    /// If the last group already stands at its record's place, it arrives there.
    pub(crate) fn arrive_last(&mut self) {
        let Some(group) = self.groups.last() else {
            return;
        };
        if group.record == NO_RECORD {
            return;
        }
        let index = group.record;
        let record = &mut self.records[index as usize];
        if record.pc == group.pc && record.stack.len() == group.stack.len() {
            record.arrived |= group.mask;
            self.groups.pop();
            self.complete(index);
        }
    }

    pub(crate) fn new_record(&mut self, record: Record) -> u32 {
        match self.free_records.pop() {
            Some(index) => {
                self.records[index as usize] = record;
                index
            }
            None => {
                self.records.push(record);
                self.records.len() as u32 - 1
            }
        }
    }

    /// Gives up on all meeting points: every lane that waits at one goes on by itself. Returns
    /// whether any lane was waiting.
    pub(crate) fn release_records(&mut self) -> bool {
        let mut any = false;
        for group in &mut self.groups {
            group.record = NO_RECORD;
        }
        for record in self.records.drain(..) {
            if record.pc != u32::MAX && record.arrived != 0 {
                any = true;
                self.groups.push(Group {
                    pc: record.pc,
                    mask: record.arrived,
                    record: NO_RECORD,
                    stack: record.stack,
                    state: State::Ready,
                    forced: false,
                });
            }
        }
        self.free_records.clear();
        any
    }
}

impl Env<'_> {
    pub(crate) fn warps(&self) -> u32 {
        self.threads.div_ceil(32)
    }

    /// Three-dimensional index of a thread in its block.
    pub(crate) fn thread_index(&self, linear: u32) -> [u32; 3] {
        let [x, y, _] = self.block;
        [linear % x, linear / x % y, linear / (x * y)]
    }
}
