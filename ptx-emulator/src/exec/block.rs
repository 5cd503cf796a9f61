//! One block: its warps take turns until all have ended.

use super::race::{Conflict, Shadow};
use super::sync::Barrier;
use super::tally::Tally;
use super::warp::{State, Warp};
use super::{Env, Res};
use crate::fault::{Access, Fault, FaultKind, Nearest, Other};

/// What the warps of a block share.
pub(crate) struct Cta {
    pub ctaid: [u32; 3],
    /// Warp instructions so far.
    pub executed: u64,
    pub shared: Vec<u8>,
    /// One bit per byte of the word with the same index.
    pub shared_written: Vec<u8>,
    pub shadow: Shadow,
    pub barriers: [Barrier; 16],
    pub tally: Tally,
    /// Allocation that the last global access hit.
    pub last_allocation: usize,
    /// Barriers that have just been completed: their warps are to be woken.
    pub completed: Vec<u32>,
}

pub(crate) struct Block {
    warps: Vec<Warp>,
    cta: Cta,
}

impl Block {
    pub(crate) fn new(env: &Env<'_>) -> Self {
        let words = env.shared_bytes.div_ceil(4) as usize;
        let tracked = if env.detectors.races {
            env.shared_bytes
        } else {
            0
        };
        Block {
            warps: (0..env.warps()).map(|id| Warp::new(env, id)).collect(),
            cta: Cta {
                ctaid: [0; 3],
                executed: 0,
                shared: vec![0; words * 4],
                shared_written: vec![0; words],
                shadow: Shadow::new(env.threads, tracked),
                barriers: Default::default(),
                tally: Tally::new(env),
                last_allocation: 0,
                completed: Vec::new(),
            },
        }
    }

    pub(crate) fn tally(&self) -> &Tally {
        &self.cta.tally
    }

    /// Runs block number `index` to its end.
    pub(crate) fn run(&mut self, env: &Env<'_>, index: u64) -> Res<()> {
        self.start(env, index);
        let mut running = true;
        while running {
            running = false;
            for w in 0..self.warps.len() {
                if self.warps[w].live == 0 {
                    continue;
                }
                running = true;
                self.warps[w].run(env, &mut self.cta)?;
                self.wake(env);
            }
            if running && !self.can_go_on() {
                self.resolve(env)?;
            }
        }
        self.cta.tally.end_block();
        Ok(())
    }

    fn start(&mut self, env: &Env<'_>, index: u64) {
        let [x, y, _] = env.grid.map(u64::from);
        let ctaid = [index % x, index / x % y, index / (x * y)].map(|i| i as u32);
        let cta = &mut self.cta;
        cta.ctaid = ctaid;
        cta.executed = 0;
        cta.shared.fill(0);
        cta.shared_written.fill(0);
        cta.barriers = Default::default();
        for warp in &mut self.warps {
            if env.detectors.races {
                warp.copies.words().for_each(|word| cta.shadow.forget(word));
            }
            warp.reset(env, ctaid);
        }
        cta.shadow.new_block();
    }

    /// Whether any lane of the block can execute an instruction.
    fn can_go_on(&self) -> bool {
        self.warps.iter().any(|w| {
            w.live != 0 && (w.groups.iter().any(|g| g.state == State::Ready) || w.groups.is_empty())
        }) || self.warps.iter().all(|w| w.live == 0)
    }

    /// Wakes the lanes that wait at barriers which are complete.
    fn wake(&mut self, env: &Env<'_>) {
        while let Some(id) = self.cta.completed.pop() {
            for warp in &mut self.warps {
                warp.pass_barrier(env, &mut self.cta, id);
            }
            self.cta.barriers[id as usize] = Barrier::default();
        }
    }

    /// No lane can go on: either the detector of what blocks them is off, and they are let go, or
    /// it is a fault. Warp instructions come before barriers, lower warps and barriers first.
    fn resolve(&mut self, env: &Env<'_>) -> Res<()> {
        for warp in &mut self.warps {
            if warp.resolve_convergence(env, &mut self.cta)? {
                return Ok(());
            }
        }
        self.resolve_barrier(env)?;
        self.wake(env);
        Ok(())
    }

    /// A barrier is waited at by lanes of the block, and the others will not come.
    fn resolve_barrier(&mut self, env: &Env<'_>) -> Res<()> {
        let waiting_at = |warps: &[Warp], id: u32| {
            warps
                .iter()
                .any(|w| w.groups.iter().any(|g| g.state == State::Barrier { id }))
        };
        let Some(id) = (0..16).find(|id| waiting_at(&self.warps, *id)) else {
            // Nothing waits and nothing runs: all lanes have exited.
            return Ok(());
        };
        let waits = |thread: u32| {
            let warp = &self.warps[thread as usize / 32];
            let bit = 1u32 << (thread % 32);
            let there = warp.groups.iter().find(|g| g.mask & bit != 0);
            there.is_some_and(|g| g.state == State::Barrier { id })
        };
        let all_others_exited = (0..env.threads)
            .all(|t| waits(t) || self.warps[t as usize / 32].live >> (t % 32) & 1 == 0);
        if !env.detectors.barriers && all_others_exited {
            self.cta.complete_barrier(env, id);
            return Ok(());
        }
        let barrier = &self.cta.barriers[id as usize];
        let (pc, arrived) = (barrier.pc, barrier.arrived);
        let expected = barrier.expected(env);
        let missing = (0..env.threads).find(|t| !waits(*t)).unwrap_or(0);
        let whereabouts = self.warps[missing as usize / 32].whereabouts(env, missing % 32);
        let first = (0..env.threads).find(|t| waits(*t)).unwrap_or(0);
        let kind = FaultKind::BarrierPartial {
            barrier: id,
            arrived,
            expected,
            missing: env.thread_index(missing),
            whereabouts,
        };
        Err(self.cta.fault(env, first / 32, first % 32, pc, kind))
    }
}

impl Cta {
    /// A fault of one lane at instruction `pc`.
    pub(crate) fn fault(
        &self,
        env: &Env<'_>,
        warp: u32,
        lane: u32,
        pc: u32,
        kind: FaultKind,
    ) -> Box<Fault> {
        Box::new(Fault {
            kernel: env.kernel.to_string(),
            line: env.code.insts[pc as usize].line,
            instruction: env.code.texts[pc as usize].clone(),
            block: self.ctaid,
            thread: env.thread_index(warp * 32 + lane),
            kind,
        })
    }

    /// The fault for a conflict in shared memory.
    pub(crate) fn conflict(
        &self,
        env: &Env<'_>,
        warp: u32,
        lane: u32,
        pc: u32,
        access: Access,
        conflict: Conflict,
    ) -> Box<Fault> {
        let other = Other {
            access: conflict.access,
            line: env.code.insts[conflict.pc as usize].line,
            thread: env.thread_index(conflict.thread),
        };
        let address = conflict.byte;
        let nearest = self.nearest_shared(env, address);
        let kind = if conflict.pending {
            FaultKind::AsyncPending {
                access,
                address,
                copy: other,
                nearest,
            }
        } else {
            FaultKind::SharedRace {
                access,
                address,
                other,
                nearest,
            }
        };
        self.fault(env, warp, lane, pc, kind)
    }

    /// The shared variable at or before an address.
    pub(crate) fn nearest_shared(&self, env: &Env<'_>, address: u64) -> Option<Nearest> {
        let total = u64::from(env.shared_bytes);
        let size = |v: &crate::code::SharedVar| {
            if v.size == 0 {
                total - v.offset.min(total)
            } else {
                v.size
            }
        };
        let before = env.code.shared.iter().filter(|v| v.offset <= address);
        let var = before
            .max_by_key(|v| (v.offset, v.size == 0))
            .or(env.code.shared.first())?;
        Some(Nearest {
            name: var.name.clone(),
            base: var.offset,
            size: size(var),
            offset: address.wrapping_sub(var.offset) as i64,
            freed: false,
        })
    }
}
