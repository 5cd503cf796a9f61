//! Warp instructions and barriers: which lanes take part, and who waits for whom.

use super::block::Cta;
use super::race::Who;
use super::warp::{NO_RECORD, State, Warp};
use super::{Env, Res};
use crate::code::{BarKind, BarOp, Lanes, Op, Reg, ShflMode, ShflOp, VoteMode, VoteOp};
use crate::fault::{FaultKind, Whereabouts};

/// A barrier of the block while threads arrive at it.
#[derive(Clone, Default)]
pub(crate) struct Barrier {
    /// Threads that have arrived.
    pub arrived: u32,
    /// Instruction of the last arrival.
    pub pc: u32,
    /// Thread count that the instruction gives.
    count: Option<u32>,
    /// Threads that arrived without waiting.
    passing: u32,
    /// What the arrived threads had done and knew of, by thread; only with a thread count.
    joined: Vec<u32>,
    /// Whether the barrier ordered the whole block.
    whole: bool,
    trues: u32,
    falses: u32,
}

impl Barrier {
    pub(crate) fn expected(&self, env: &Env<'_>) -> u32 {
        self.count.unwrap_or(env.threads)
    }
}

/// How a warp instruction goes on.
pub(crate) enum Step {
    /// It was executed by these lanes.
    Done(u32),
    /// The group waits.
    Blocked,
}

impl Warp {
    /// The lanes that execute the warp instruction at which group `gi` stands: all of `need`, or
    /// `None` while some have still to come.
    pub(crate) fn converge(&mut self, gi: usize, need: u32) -> Option<u32> {
        let group = &self.groups[gi];
        let (pc, mask, record) = (group.pc, group.mask, group.record);
        if need & !mask == 0 || group.forced {
            self.groups[gi].forced = false;
            return Some(mask);
        }
        let mut union = mask;
        let mut all_need = need;
        let mut same_record = true;
        for (i, other) in self.groups.iter().enumerate() {
            if let State::Converge { need } = other.state
                && i != gi
                && other.pc == pc
                && other.stack == self.groups[gi].stack
            {
                union |= other.mask;
                all_need |= need;
                same_record &= other.record == record;
            }
        }
        if all_need & !union != 0 {
            self.groups[gi].state = State::Converge { need };
            return None;
        }
        // All are here. The merged group takes the place of this one; the others go.
        self.groups[gi].mask = union;
        for (i, other) in self.groups.iter_mut().enumerate() {
            if i != gi && other.mask & union != 0 {
                other.mask = 0;
            }
        }
        if !same_record {
            self.leave_records(union);
            self.groups[gi].record = NO_RECORD;
        }
        Some(union)
    }

    /// Where a lane is that others wait for.
    pub(crate) fn whereabouts(&self, env: &Env<'_>, lane: u32) -> Whereabouts {
        let bit = 1u32 << lane;
        if self.exists & bit == 0 {
            return Whereabouts::NeverExisted;
        }
        let group = self.groups.iter().find(|g| g.mask & bit != 0).map(|g| g.pc);
        let record = || {
            self.records
                .iter()
                .find(|r| r.arrived & bit != 0)
                .map(|r| r.pc)
        };
        match group.or_else(record) {
            Some(pc) if self.live & bit != 0 => {
                Whereabouts::WaitingAt(env.code.insts[pc as usize].line)
            }
            _ => Whereabouts::Exited,
        }
    }

    /// The block is stuck: a group that waits for lanes of its warp is at fault, or is let go.
    pub(crate) fn resolve_convergence(&mut self, env: &Env<'_>, cta: &mut Cta) -> Res<bool> {
        let waiting = |g: &&mut super::warp::Group| matches!(g.state, State::Converge { .. });
        let lowest = self
            .groups
            .iter_mut()
            .filter(waiting)
            .min_by_key(|g| g.mask.trailing_zeros());
        let Some(group) = lowest else {
            return Ok(false);
        };
        let State::Converge { need } = group.state else {
            return Ok(false);
        };
        if !env.detectors.lanes {
            group.state = State::Ready;
            group.forced = true;
            return Ok(true);
        }
        let (pc, mask) = (group.pc, group.mask);
        Err(self.missing_lanes(env, cta, pc, mask, need))
    }

    /// The fault of lanes `active` that execute a warp instruction without all of `need`.
    fn missing_lanes(
        &self,
        env: &Env<'_>,
        cta: &Cta,
        pc: u32,
        active: u32,
        need: u32,
    ) -> Box<crate::fault::Fault> {
        let lane = (need & !active).trailing_zeros().min(31);
        let whereabouts = self.whereabouts(env, lane);
        let aligned = matches!(
            env.code.insts[pc as usize].op,
            Op::Bar(_) | Op::Mma(_) | Op::LdMatrix(_) | Op::MovMatrix { .. }
        );
        let kind = if aligned {
            FaultKind::PartialWarp {
                active,
                required: need,
                lane,
                whereabouts,
            }
        } else {
            FaultKind::InactiveLane {
                mask: need,
                active,
                lane,
                whereabouts,
            }
        };
        cta.fault(env, self.id, active.trailing_zeros().min(31), pc, kind)
    }

    /// For `mma` and `ldmatrix`: the whole warp, or a fault.
    pub(crate) fn whole_warp(&mut self, env: &Env<'_>, cta: &Cta, gi: usize) -> Res<Option<u32>> {
        let (pc, mask) = (self.groups[gi].pc, self.groups[gi].mask);
        if env.detectors.lanes && self.live != u32::MAX {
            return Err(self.missing_lanes(env, cta, pc, mask & self.live, u32::MAX));
        }
        Ok(self.converge(gi, self.live))
    }

    /// Lanes that take part in a `.sync` instruction with member masks in register `masks`.
    fn members(&mut self, env: &Env<'_>, cta: &Cta, gi: usize, masks: u32) -> Res<Option<u32>> {
        let (pc, mask) = (self.groups[gi].pc, self.groups[gi].mask);
        let values = self.r32[masks as usize];
        let mut named = 0;
        for lane in (0..32u32).filter(|l| mask >> l & 1 == 1) {
            let value = values[lane as usize];
            if env.detectors.lanes && value >> lane & 1 == 0 {
                let kind = FaultKind::LaneNotInMask { mask: value, lane };
                return Err(cta.fault(env, self.id, lane, pc, kind));
            }
            named |= value;
        }
        // Lanes that had exited before are not waited for.
        Ok(self.converge(gi, named & self.live))
    }

    pub(crate) fn warp_sync(
        &mut self,
        env: &Env<'_>,
        cta: &mut Cta,
        gi: usize,
        masks: u32,
    ) -> Res<Step> {
        let Some(mask) = self.members(env, cta, gi, masks)? else {
            return Ok(Step::Blocked);
        };
        if env.detectors.races {
            // Lanes with different member masks synchronise among themselves only.
            let values = self.r32[masks as usize];
            let mut left = mask;
            while left != 0 {
                let value = values[left.trailing_zeros() as usize];
                let same = (0..32).fold(0, |m, l| m | u32::from(values[l] == value) << l);
                let set = same & left;
                self.clocks.sync(set, self.exists);
                cta.shadow.share(self.id, set);
                left &= !set;
            }
        }
        Ok(Step::Done(mask))
    }

    pub(crate) fn shfl(
        &mut self,
        env: &Env<'_>,
        cta: &mut Cta,
        gi: usize,
        op: &ShflOp,
    ) -> Res<Step> {
        let Some(mask) = self.members(env, cta, gi, op.mask)? else {
            return Ok(Step::Blocked);
        };
        let pc = self.groups[gi].pc;
        let (a, b) = (self.r32[op.a as usize], &self.r32[op.b as usize]);
        let (c, named) = (&self.r32[op.c as usize], &self.r32[op.mask as usize]);
        let mut result = [0u32; 32];
        let mut valid = 0u32;
        let mut bad = None;
        for lane in 0..32u32 {
            let l = lane as usize;
            let (bval, cval, segment) = (b[l] & 31, c[l] & 31, c[l] >> 8 & 31);
            let max_lane = (lane & segment) | (cval & !segment & 31);
            let (j, in_range) = match op.mode {
                ShflMode::Up => {
                    let j = lane as i32 - bval as i32;
                    (j as u32 & 31, j >= max_lane as i32)
                }
                ShflMode::Down => ((lane + bval) & 31, lane + bval <= max_lane),
                ShflMode::Bfly => (lane ^ bval, lane ^ bval <= max_lane),
                ShflMode::Idx => {
                    let j = (lane & segment) | (bval & !segment & 31);
                    (j, j <= max_lane)
                }
            };
            let j = if in_range { j } else { lane };
            if mask >> lane & 1 == 1 && (mask & named[l]) >> j & 1 == 0 && bad.is_none() {
                bad = Some((lane, j, named[l]));
            }
            result[l] = a[j as usize];
            valid |= u32::from(in_range) << lane;
        }
        if let Some((lane, j, named)) = bad
            && env.detectors.lanes
        {
            let whereabouts = self.whereabouts(env, j);
            let kind = FaultKind::InactiveLane {
                mask: named,
                active: mask,
                lane: j,
                whereabouts,
            };
            return Err(cta.fault(env, self.id, lane, pc, kind));
        }
        self.set32(op.d, &result, mask);
        self.set_pred(op.p, valid, mask);
        Ok(Step::Done(mask))
    }

    pub(crate) fn vote(
        &mut self,
        env: &Env<'_>,
        cta: &mut Cta,
        gi: usize,
        op: &VoteOp,
    ) -> Res<Step> {
        let Some(mask) = self.members(env, cta, gi, op.mask)? else {
            return Ok(Step::Blocked);
        };
        let named = self.r32[op.mask as usize];
        let mut values: Lanes = [0; 32];
        self.widen(op.a, &mut values);
        let flip = u64::from(op.flip & 1);
        let mut result: Lanes = [0; 32];
        let mut flags = 0u32;
        let mut left = mask;
        while left != 0 {
            // Lanes with one member mask vote together.
            let first = left.trailing_zeros() as usize;
            let same = (0..32).fold(0u32, |m, l| m | u32::from(named[l] == named[first]) << l);
            let set = same & left;
            left &= !set;
            let lanes = || (0..32usize).filter(|l| set >> l & 1 == 1);
            let ballot = lanes().fold(0u32, |m, l| m | u32::from((values[l] ^ flip) & 1 == 1) << l);
            let reduce = |f: &dyn Fn(u32, u32) -> u32| {
                lanes().map(|l| values[l] as u32).reduce(f).unwrap_or(0)
            };
            let (value, flag) = match op.mode {
                VoteMode::All => (0, ballot == set),
                VoteMode::Any => (0, ballot != 0),
                VoteMode::Uni => (0, ballot == 0 || ballot == set),
                VoteMode::Ballot => (ballot, false),
                VoteMode::MatchAny => {
                    for l in lanes() {
                        let equal =
                            lanes().fold(0, |m, o| m | u64::from(values[o] == values[l]) << o);
                        result[l] = equal;
                    }
                    continue;
                }
                VoteMode::MatchAll => {
                    let all = lanes().all(|l| values[l] == values[first]);
                    (if all { set } else { 0 }, all)
                }
                VoteMode::Add => (reduce(&u32::wrapping_add), false),
                VoteMode::MinU => (reduce(&u32::min), false),
                VoteMode::MaxU => (reduce(&u32::max), false),
                VoteMode::MinS => (reduce(&|a, b| (a as i32).min(b as i32) as u32), false),
                VoteMode::MaxS => (reduce(&|a, b| (a as i32).max(b as i32) as u32), false),
                VoteMode::And => (reduce(&|a, b| a & b), false),
                VoteMode::Or => (reduce(&|a, b| a | b), false),
                VoteMode::Xor => (reduce(&|a, b| a ^ b), false),
            };
            for l in lanes() {
                result[l] = value.into();
            }
            flags |= if flag { set } else { 0 };
        }
        self.set(op.d, &result, mask);
        self.set_pred(op.p, flags, mask);
        Ok(Step::Done(mask))
    }

    /// `bar` and `barrier`: the group arrives, and waits unless it is `bar.arrive`.
    pub(crate) fn barrier(
        &mut self,
        env: &Env<'_>,
        cta: &mut Cta,
        gi: usize,
        op: &BarOp,
    ) -> Res<Step> {
        let mut mask = self.groups[gi].mask;
        let pc = self.groups[gi].pc;
        if op.aligned {
            match self.converge(gi, self.live) {
                Some(all) => mask = all,
                None => return Ok(Step::Blocked),
            }
        }
        let first = mask.trailing_zeros().min(31);
        let ids = &self.r32[op.id as usize];
        let id = ids[first as usize];
        let count = op.count.map(|r| self.r32[r as usize][first as usize]);
        let agree = (0..32).filter(|l| mask >> l & 1 == 1).all(|l| {
            ids[l] == id
                && op
                    .count
                    .is_none_or(|r| Some(self.r32[r as usize][l]) == count)
        });
        let most = env.warps() * 32;
        let warp = self.id;
        let bad = |cta: &Cta, wanted| {
            let kind = FaultKind::BarrierOperands {
                barrier: id,
                count: count.unwrap_or(0),
                wanted,
            };
            Err(cta.fault(env, warp, first, pc, kind))
        };
        if !agree {
            return bad(
                cta,
                "all lanes of a warp must name the same barrier and thread count",
            );
        }
        if id > 15 {
            return bad(cta, "the barrier must be 0 to 15");
        }
        if count.is_some_and(|c| c == 0 || c % 32 != 0 || c > most) {
            return bad(
                cta,
                "the thread count must be a positive multiple of 32, at most the block",
            );
        }
        let barrier = &mut cta.barriers[id as usize];
        if barrier.arrived != 0 && barrier.count != count {
            return bad(cta, "all threads must give a barrier the same thread count");
        }
        // With a count, an aligned barrier counts whole warps; a warp with fewer lanes too.
        let whole_warp = op.aligned && count.is_some();
        let threads = if whole_warp { 32 } else { mask.count_ones() };
        barrier.count = count;
        barrier.pc = pc;
        barrier.arrived += threads;
        let passing = op.kind == BarKind::Arrive;
        barrier.passing += if passing { threads } else { 0 };
        let trues = self.preds[op.pred.reg as usize] ^ op.pred.flip;
        barrier.trues += (trues & mask).count_ones();
        barrier.falses += (!trues & mask).count_ones();
        if count.is_some() && env.detectors.races {
            let mut joined = std::mem::take(&mut barrier.joined);
            for lane in (0..32).filter(|l| mask >> l & 1 == 1) {
                let who = Who {
                    warp: self.id,
                    lane,
                    clocks: &self.clocks,
                    pc,
                };
                cta.shadow.publish(&who, &mut joined);
            }
            cta.barriers[id as usize].joined = joined;
            // What comes after is not published.
            self.clocks.time += 1;
        }
        if !passing {
            self.groups[gi].state = State::Barrier { id };
        }
        let barrier = &cta.barriers[id as usize];
        if barrier.arrived > barrier.expected(env) {
            return bad(
                cta,
                "no more threads may arrive at a barrier than it waits for",
            );
        }
        if barrier.arrived == barrier.expected(env) {
            cta.complete_barrier(env, id);
        }
        Ok(if passing {
            Step::Done(mask)
        } else {
            Step::Blocked
        })
    }

    /// Lets the groups that wait at barrier `id` go on.
    pub(crate) fn pass_barrier(&mut self, env: &Env<'_>, cta: &mut Cta, id: u32) {
        for gi in 0..self.groups.len() {
            if self.groups[gi].state != (State::Barrier { id }) {
                continue;
            }
            let (pc, mask) = (self.groups[gi].pc, self.groups[gi].mask);
            self.groups[gi].state = State::Ready;
            self.groups[gi].pc = pc + 1;
            let barrier = &cta.barriers[id as usize];
            if let Op::Bar(index) = env.code.insts[pc as usize].op {
                let op = &env.code.bar[index as usize];
                let value = match op.kind {
                    BarKind::RedPopc => barrier.trues,
                    BarKind::RedAnd => u32::from(barrier.falses == 0),
                    BarKind::RedOr => u32::from(barrier.trues != 0),
                    BarKind::Sync | BarKind::Arrive => 0,
                };
                if op.d != Reg::Sink {
                    self.set(op.d, &[value.into(); 32], mask);
                }
            }
            if !barrier.whole && !barrier.joined.is_empty() {
                for lane in (0..32).filter(|l| mask >> l & 1 == 1) {
                    cta.shadow.learn(self.thread(lane), &barrier.joined);
                }
            }
        }
    }
}

impl Cta {
    /// All threads that barrier `id` waits for have arrived.
    pub(crate) fn complete_barrier(&mut self, env: &Env<'_>, id: u32) {
        let barrier = &mut self.barriers[id as usize];
        let all = barrier.count.is_none_or(|c| c == env.warps() * 32);
        barrier.whole = all && barrier.passing == 0;
        self.tally.barriers += 1;
        if barrier.whole && env.detectors.races {
            self.shadow.new_generation();
        }
        self.completed.push(id);
    }
}
