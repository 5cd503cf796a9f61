//! The interpreter loop.

use super::alu;
use super::block::Cta;
use super::copies;
use super::sync::Step;
use super::warp::{Group, NO_RECORD, Record, State, Warp};
use super::{Env, Res};
use crate::code::{Logic, Meet, NONE, Op, Reg, SetpOut, SlowFn};
use crate::fault::FaultKind;

/// Instructions that a group of lanes executes before others get a turn. Lanes that wait at a
/// meeting point then go on alone, so that a lane which spins until another acts sees it act.
const TURN: u32 = 100_000;

impl Warp {
    /// Runs the warp until all its lanes wait or have exited, or its turn is over.
    pub(crate) fn run(&mut self, env: &Env<'_>, cta: &mut Cta) -> Res<()> {
        let mut left = TURN;
        loop {
            let ready = self.groups.iter().position(|g| g.state == State::Ready);
            match ready {
                Some(gi) => self.run_group(env, cta, gi, &mut left)?,
                // Nobody can move: lanes at meeting points go on, perhaps the others need them.
                None if self.live != 0 && self.release_records() => {}
                None => return Ok(()),
            }
            self.groups.retain(|g| g.mask != 0);
            if left == 0 {
                self.release_records();
                let moved = self.groups.iter().position(|g| g.state == State::Ready);
                if let Some(gi) = moved {
                    let group = self.groups.remove(gi);
                    self.groups.push(group);
                }
                return Ok(());
            }
        }
    }

    /// Runs one group until it waits, splits, meets others or ends.
    fn run_group(&mut self, env: &Env<'_>, cta: &mut Cta, gi: usize, left: &mut u32) -> Res<()> {
        let insts = &env.code.insts[..];
        let group = &self.groups[gi];
        let (mut pc, mut mask) = (group.pc, group.mask);
        let meet = match self.records.get(group.record as usize) {
            Some(record) => (record.pc, record.stack.len()),
            None => (u32::MAX, 0),
        };
        macro_rules! stop {
            () => {{
                self.groups[gi].pc = pc;
                self.groups[gi].mask = mask;
                return Ok(());
            }};
        }
        // A warp instruction that may wait: with a guard, the lanes that skip it go on alone.
        macro_rules! warp_step {
            ($active:expr, $step:expr) => {{
                self.groups[gi].pc = pc;
                self.groups[gi].mask = mask;
                if $active != mask {
                    self.split_guarded(gi, $active);
                    return Ok(());
                }
                match $step {
                    Step::Done(all) => {
                        pc += 1;
                        if all != mask {
                            // Other groups have joined, and the record may have changed.
                            mask = all;
                            stop!();
                        }
                        continue;
                    }
                    Step::Blocked => return Ok(()),
                }
            }};
        }
        loop {
            if pc == meet.0 && self.groups[gi].stack.len() == meet.1 {
                let record = self.groups[gi].record;
                self.groups[gi].mask = 0;
                self.records[record as usize].arrived |= mask;
                self.complete(record);
                return Ok(());
            }
            if *left == 0 {
                stop!();
            }
            *left -= 1;
            let inst = &insts[pc as usize];
            cta.executed += 1;
            cta.tally.executed[pc as usize] += 1;
            cta.tally.partial += u64::from(mask != self.exists);
            if cta.executed > env.limit {
                let kind = FaultKind::InstructionLimit { limit: env.limit };
                return Err(cta.fault(env, self.id, mask.trailing_zeros(), pc, kind));
            }
            let m = mask & self.pred(inst.guard);
            if m == 0 {
                pc += 1;
                continue;
            }
            match &inst.op {
                Op::Nop | Op::Fence => {}
                Op::Mov32 { d, a } => {
                    let value = self.r32[*a as usize];
                    self.set32(*d, &value, m);
                }
                Op::Mov64 { d, a } => {
                    let value = self.r64[*a as usize];
                    self.set64(*d, &value, m);
                }
                Op::MovP { d, a } => {
                    let value = self.pred(*a);
                    self.set_pred(*d, value, m);
                }
                Op::Pack64 { d, lo, hi } => {
                    let (lo, hi) = (&self.r32[*lo as usize], &self.r32[*hi as usize]);
                    let mut value = [0; 32];
                    for i in 0..32 {
                        value[i] = u64::from(lo[i]) | u64::from(hi[i]) << 32;
                    }
                    self.set64(*d, &value, m);
                }
                Op::Unpack64 { lo, hi, a } => {
                    let value = self.r64[*a as usize];
                    self.set32(*lo, &value.map(|v| v as u32), m);
                    self.set32(*hi, &value.map(|v| (v >> 32) as u32), m);
                }
                Op::Unpack32 { lo, hi, a } => {
                    let value = self.r32[*a as usize];
                    self.set32(*lo, &value.map(|v| v & 0xffff), m);
                    self.set32(*hi, &value.map(|v| v >> 16), m);
                }
                Op::Pack32 { d, lo, hi } => {
                    let (lo, hi) = (&self.r32[*lo as usize], &self.r32[*hi as usize]);
                    let mut value = [0; 32];
                    for i in 0..32 {
                        value[i] = lo[i] & 0xffff | hi[i] << 16;
                    }
                    self.set32(*d, &value, m);
                }
                Op::Clock { d, shift } => {
                    let value = cta.executed >> shift;
                    self.set(*d, &[value; 32], m);
                }
                Op::Int32 { f, d, a, b } => {
                    let mut out = [0; 32];
                    alu::int32(*f, &self.r32[*a as usize], &self.r32[*b as usize], &mut out);
                    self.set32(*d, &out, m);
                }
                Op::Int64 { f, d, a, b } => {
                    use crate::code::Int2::{Shl, ShrS, ShrU};
                    let mut out = [0; 32];
                    let a = &self.r64[*a as usize];
                    if matches!(f, Shl | ShrU | ShrS) {
                        alu::shift64(*f, a, &self.r32[*b as usize], &mut out);
                    } else {
                        alu::int64(*f, a, &self.r64[*b as usize], &mut out);
                    }
                    self.set64(*d, &out, m);
                }
                Op::Mad32 { d, a, b, c } => {
                    let (a, b) = (&self.r32[*a as usize], &self.r32[*b as usize]);
                    let c = &self.r32[*c as usize];
                    let mut out = [0; 32];
                    for i in 0..32 {
                        out[i] = a[i].wrapping_mul(b[i]).wrapping_add(c[i]);
                    }
                    self.set32(*d, &out, m);
                }
                Op::Mad64 { d, a, b, c } => {
                    let (a, b) = (&self.r64[*a as usize], &self.r64[*b as usize]);
                    let c = &self.r64[*c as usize];
                    let mut out = [0; 32];
                    for i in 0..32 {
                        out[i] = a[i].wrapping_mul(b[i]).wrapping_add(c[i]);
                    }
                    self.set64(*d, &out, m);
                }
                Op::MadWide { signed, d, a, b, c } => {
                    let (a, b) = (&self.r32[*a as usize], &self.r32[*b as usize]);
                    let c = &self.r64[*c as usize];
                    let mut out = [0u64; 32];
                    if *signed {
                        for i in 0..32 {
                            let product = i64::from(a[i] as i32) * i64::from(b[i] as i32);
                            out[i] = (product as u64).wrapping_add(c[i]);
                        }
                    } else {
                        for i in 0..32 {
                            out[i] = (u64::from(a[i]) * u64::from(b[i])).wrapping_add(c[i]);
                        }
                    }
                    self.set64(*d, &out, m);
                }
                Op::Lane1 { f, ftz, d, a } => {
                    let mut out = [0; 32];
                    f(*ftz, &self.r32[*a as usize], &mut out);
                    self.set32(*d, &out, m);
                }
                Op::Lane2 { f, ftz, d, a, b } => {
                    let mut out = [0; 32];
                    f(
                        *ftz,
                        &self.r32[*a as usize],
                        &self.r32[*b as usize],
                        &mut out,
                    );
                    self.set32(*d, &out, m);
                }
                Op::Lane3 { f, ftz, d, a, b, c } => {
                    let mut out = [0; 32];
                    let (a, b) = (&self.r32[*a as usize], &self.r32[*b as usize]);
                    f(*ftz, a, b, &self.r32[*c as usize], &mut out);
                    self.set32(*d, &out, m);
                }
                Op::SetpI32 {
                    cmp,
                    signed,
                    a,
                    b,
                    out,
                } => {
                    let (a, b) = (&self.r32[*a as usize], &self.r32[*b as usize]);
                    let holds = alu::compare32(*cmp, *signed, a, b);
                    self.set_compared(&env.code.setp[*out as usize], holds, m);
                }
                Op::SetpI64 {
                    cmp,
                    signed,
                    a,
                    b,
                    out,
                } => {
                    let (a, b) = (&self.r64[*a as usize], &self.r64[*b as usize]);
                    let holds = alu::compare64(*cmp, *signed, a, b);
                    self.set_compared(&env.code.setp[*out as usize], holds, m);
                }
                Op::SetpF32 {
                    cmp,
                    ftz,
                    a,
                    b,
                    out,
                } => {
                    let (a, b) = (&self.r32[*a as usize], &self.r32[*b as usize]);
                    let holds = alu::compare_f32(*cmp, *ftz, a, b);
                    self.set_compared(&env.code.setp[*out as usize], holds, m);
                }
                Op::LogicP { f, d, a, b } => {
                    let value = logic(*f, self.pred(*a), self.pred(*b));
                    self.set_pred(*d, value, m);
                }
                Op::Selp32 { d, a, b, p } => {
                    let p = self.pred(*p);
                    let (a, b) = (&self.r32[*a as usize], &self.r32[*b as usize]);
                    let mut out = [0; 32];
                    for i in 0..32 {
                        out[i] = if p >> i & 1 == 1 { a[i] } else { b[i] };
                    }
                    self.set32(*d, &out, m);
                }
                Op::Selp64 { d, a, b, p } => {
                    let p = self.pred(*p);
                    let (a, b) = (&self.r64[*a as usize], &self.r64[*b as usize]);
                    let mut out = [0; 32];
                    for i in 0..32 {
                        out[i] = if p >> i & 1 == 1 { a[i] } else { b[i] };
                    }
                    self.set64(*d, &out, m);
                }
                Op::Widen { signed, d, a } => {
                    let a = &self.r32[*a as usize];
                    let mut out = [0; 32];
                    if *signed {
                        for i in 0..32 {
                            out[i] = i64::from(a[i] as i32) as u64;
                        }
                    } else {
                        for i in 0..32 {
                            out[i] = u64::from(a[i]);
                        }
                    }
                    self.set64(*d, &out, m);
                }
                Op::Narrow { d, a } => {
                    let value = self.r64[*a as usize].map(|v| v as u32);
                    self.set32(*d, &value, m);
                }
                Op::Slow(index) => self.slow(env, cta, pc, *index, m)?,
                Op::Ld(index) => self.load(env, cta, pc, &env.code.mem[*index as usize], m)?,
                Op::St(index) => self.store(env, cta, pc, &env.code.mem[*index as usize], m)?,
                Op::Atom(index) => {
                    self.atomic(env, cta, pc, &env.code.atoms[*index as usize], m)?
                }
                Op::CpAsync(index) => {
                    copies::cp_async(env, cta, self, pc, &env.code.copies[*index as usize], m)?;
                }
                Op::CpCommit => self.copies.commit(m),
                Op::CpWait { pending } => copies::wait(cta, self, m, *pending),
                Op::CpWaitAll => {
                    self.copies.commit(m);
                    copies::wait(cta, self, m, 0);
                }
                Op::ActiveMask { d } => self.set32(*d, &[m; 32], m),
                Op::LdMatrix(index) => warp_step!(m, {
                    let op = &env.code.ldmatrix[*index as usize];
                    match self.whole_warp(env, cta, gi)? {
                        Some(all) => {
                            self.ldmatrix(env, cta, pc, op, all)?;
                            Step::Done(all)
                        }
                        None => Step::Blocked,
                    }
                }),
                Op::MovMatrix { d, a } => warp_step!(
                    m,
                    match self.whole_warp(env, cta, gi)? {
                        Some(all) => {
                            self.movmatrix(*d, *a, all);
                            Step::Done(all)
                        }
                        None => Step::Blocked,
                    }
                ),
                Op::Mma(index) => warp_step!(
                    m,
                    match self.whole_warp(env, cta, gi)? {
                        Some(all) => {
                            self.mma(&env.code.mma[*index as usize], all);
                            Step::Done(all)
                        }
                        None => Step::Blocked,
                    }
                ),
                Op::Shfl(index) => {
                    warp_step!(m, self.shfl(env, cta, gi, &env.code.shfl[*index as usize])?)
                }
                Op::Vote(index) => {
                    warp_step!(m, self.vote(env, cta, gi, &env.code.vote[*index as usize])?)
                }
                Op::WarpSync { mask: masks } => {
                    warp_step!(m, self.warp_sync(env, cta, gi, *masks)?)
                }
                Op::Bar(index) => {
                    warp_step!(
                        m,
                        self.barrier(env, cta, gi, &env.code.bar[*index as usize])?
                    )
                }
                Op::Bra { target } => {
                    if m == mask {
                        pc = *target;
                        continue;
                    }
                    self.groups[gi].pc = pc + 1;
                    self.groups[gi].mask = mask;
                    self.diverge(gi, m, *target, inst.meet);
                    return Ok(());
                }
                Op::Brx { index, table } => {
                    self.groups[gi].pc = pc;
                    self.groups[gi].mask = mask;
                    if m != mask {
                        self.diverge(gi, mask & !m, pc + 1, inst.meet);
                        return Ok(());
                    }
                    self.jump_through(env, cta, gi, *index, *table)?;
                    return Ok(());
                }
                Op::CopyLocal { dst, src, bytes } => self.copy_local(env, *dst, *src, *bytes, m),
                Op::Call { target } => {
                    if m != mask {
                        self.groups[gi].pc = pc;
                        self.groups[gi].mask = mask;
                        self.split_guarded(gi, m);
                        return Ok(());
                    }
                    self.groups[gi].stack.push(pc + 1);
                    pc = *target;
                    continue;
                }
                Op::Ret if !self.groups[gi].stack.is_empty() => {
                    if m != mask {
                        self.groups[gi].pc = pc;
                        self.groups[gi].mask = mask;
                        self.split_guarded_return(gi, m);
                        return Ok(());
                    }
                    pc = self.groups[gi].stack.pop().unwrap_or(pc + 1);
                    continue;
                }
                Op::Ret | Op::Exit => {
                    self.live &= !m;
                    mask &= !m;
                    self.groups[gi].mask = mask;
                    self.leave_records(m);
                    if mask == 0 {
                        return Ok(());
                    }
                }
                Op::Trap => {
                    return Err(cta.fault(env, self.id, m.trailing_zeros(), pc, FaultKind::Trap));
                }
            }
            pc += 1;
        }
    }

    /// Writes the results of a comparison.
    fn set_compared(&mut self, out: &SetpOut, holds: u32, m: u32) {
        let (p, q) = match out.combine {
            None => (holds, !holds),
            Some((f, c)) => {
                let c = self.pred(c);
                (logic(f, holds, c), logic(f, !holds, c))
            }
        };
        self.set_pred(out.p, p, m);
        if out.q != NONE {
            self.set_pred(out.q, q, m);
        }
    }

    fn slow(&mut self, env: &Env<'_>, cta: &mut Cta, pc: u32, index: u32, m: u32) -> Res<()> {
        let slow = &env.code.slow[index as usize];
        let mut scratch = self.scratch.take().unwrap_or_default();
        for (lanes, &src) in scratch.iter_mut().zip(&slow.src) {
            self.widen(src, lanes);
        }
        let mut out = [0u64; 32];
        match &slow.f {
            SlowFn::Value(f) => {
                f(&scratch, &mut out);
                self.set(slow.d, &out, m);
            }
            SlowFn::Division(f) => {
                if env.detectors.division
                    && let Some(lane) = (0..32).find(|l| m >> l & 1 == 1 && scratch[1][*l] == 0)
                {
                    let kind = FaultKind::DivisionByZero;
                    return Err(cta.fault(env, self.id, lane as u32, pc, kind));
                }
                f(&scratch, &mut out);
                self.set(slow.d, &out, m);
            }
            SlowFn::Compare(f, to) => {
                let holds = f(&scratch);
                self.set_compared(to, holds, m);
            }
            SlowFn::Carry(f, writes) => {
                let carry = f(&scratch, self.carry, &mut out);
                self.set(slow.d, &out, m);
                if *writes {
                    self.carry = self.carry & !m | carry & m;
                }
            }
            SlowFn::Unpack(parts) => {
                for &(reg, shift, bits) in parts {
                    if reg != Reg::Sink {
                        let value = scratch[0].map(|v| v >> shift & (u64::MAX >> (64 - bits)));
                        self.set(reg, &value, m);
                    }
                }
            }
        }
        self.scratch = Some(scratch);
        Ok(())
    }

    /// `brx.idx`: group `gi` splits by the targets of its lanes.
    fn jump_through(
        &mut self,
        env: &Env<'_>,
        cta: &Cta,
        gi: usize,
        index: u32,
        table: u32,
    ) -> Res<()> {
        let (pc, mask) = (self.groups[gi].pc, self.groups[gi].mask);
        let targets = &env.code.tables[table as usize];
        let values = self.r32[index as usize];
        let active = || (0..32usize).filter(|l| mask >> l & 1 == 1);
        if let Some(lane) = active().find(|l| values[*l] as usize >= targets.len()) {
            let (index, count) = (values[lane], targets.len() as u32);
            let kind = FaultKind::BranchIndex { index, count };
            return Err(cta.fault(env, self.id, lane as u32, pc, kind));
        }
        let first = targets[values[mask.trailing_zeros() as usize & 31] as usize];
        for &target in targets {
            let lanes = active().fold(0, |m, l| {
                m | u32::from(targets[values[l] as usize] == target) << l
            });
            // Lanes that have been sent off are no longer in the group.
            let lanes = lanes & self.groups[gi].mask;
            if target != first && lanes != 0 {
                self.diverge(gi, lanes, target, env.code.insts[pc as usize].meet);
            }
        }
        self.groups[gi].pc = first;
        Ok(())
    }

    /// Sends the lanes `taken` of group `gi` to `target`; the rest stays at the group's pc. All
    /// meet again at `meet`.
    fn diverge(&mut self, gi: usize, taken: u32, target: u32, meet: Meet) {
        let stack = self.groups[gi].stack.clone();
        let place = match meet {
            Meet::At(pc) => Some((pc, stack.clone())),
            Meet::Return => stack.split_last().map(|(pc, rest)| (*pc, rest.to_vec())),
        };
        self.record_at(gi, place);
        let record = self.groups[gi].record;
        self.groups[gi].mask &= !taken;
        self.groups.push(Group {
            pc: target,
            mask: taken,
            record,
            stack,
            state: State::Ready,
            forced: false,
        });
        self.arrive_last();
    }

    /// Gives group `gi` a record at `place`, unless its innermost one is there already.
    fn record_at(&mut self, gi: usize, place: Option<(u32, Vec<u32>)>) {
        let Some((pc, stack)) = place else { return };
        let (mask, parent) = (self.groups[gi].mask, self.groups[gi].record);
        let current = self
            .records
            .get(parent as usize)
            .filter(|_| parent != NO_RECORD);
        if current.is_some_and(|r| r.pc == pc && r.stack == stack) {
            return;
        }
        let record = Record {
            pc,
            parent,
            stack,
            expected: mask,
            arrived: 0,
        };
        self.groups[gi].record = self.new_record(record);
    }

    /// Lanes outside `active` skip the instruction at which group `gi` stands and wait behind it.
    fn split_guarded(&mut self, gi: usize, active: u32) {
        let next = self.groups[gi].pc + 1;
        let stack = self.groups[gi].stack.clone();
        self.record_at(gi, Some((next, stack.clone())));
        let record = self.groups[gi].record;
        let skip = self.groups[gi].mask & !active;
        self.groups[gi].mask = active;
        self.groups.push(Group {
            pc: next,
            mask: skip,
            record,
            stack,
            state: State::Ready,
            forced: false,
        });
        self.arrive_last();
    }

    /// A guarded `ret` inside a function: the others go on behind it, all meet at the return.
    fn split_guarded_return(&mut self, gi: usize, active: u32) {
        let next = self.groups[gi].pc + 1;
        let rest = self.groups[gi].mask & !active;
        self.diverge(gi, rest, next, Meet::Return);
    }
}

fn logic(f: Logic, a: u32, b: u32) -> u32 {
    match f {
        Logic::And => a & b,
        Logic::Or => a | b,
        Logic::Xor => a ^ b,
    }
}
