//! Immediate post-dominators of the branches of one function.

use crate::code::{Inst, Meet, Op, TRUE};

/// Sets `meet` of every instruction of `insts[start..end]`, one function with branch targets
/// resolved.
///
/// Algorithm: Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm", on the reversed
/// graph of basic blocks.
pub(crate) fn set_meeting_points(
    insts: &mut [Inst],
    tables: &[Vec<u32>],
    start: usize,
    end: usize,
) {
    let len = end - start;
    if len == 0 {
        return;
    }
    let mut leader = vec![false; len];
    leader[0] = true;
    for i in start..end {
        match &insts[i].op {
            Op::Bra { target } => leader[*target as usize - start] = true,
            Op::Brx { table, .. } => {
                for target in &tables[*table as usize] {
                    leader[*target as usize - start] = true;
                }
            }
            _ => {}
        }
        if is_terminator(&insts[i]) && i + 1 < end {
            leader[i + 1 - start] = true;
        }
    }
    let firsts: Vec<usize> = (0..len).filter(|&i| leader[i]).collect();
    let mut block_of = vec![0usize; len];
    for (b, &first) in firsts.iter().enumerate() {
        let last = firsts.get(b + 1).copied().unwrap_or(len);
        block_of[first..last].fill(b);
    }
    let exit = firsts.len();
    let mut successors: Vec<Vec<usize>> = vec![Vec::new(); exit];
    let mut predecessors: Vec<Vec<usize>> = vec![Vec::new(); exit + 1];
    for (b, successors) in successors.iter_mut().enumerate() {
        let last = firsts.get(b + 1).copied().unwrap_or(len) - 1;
        let inst = &insts[start + last];
        let falls = last + 1 < len;
        let mut add = |to: usize| {
            if !successors.contains(&to) {
                successors.push(to);
                predecessors[to].push(b);
            }
        };
        let guarded = inst.guard.reg != TRUE;
        let (jumps, may_fall) = match &inst.op {
            Op::Bra { target } => (Some(block_of[*target as usize - start]), guarded),
            Op::Brx { table, .. } => {
                for target in &tables[*table as usize] {
                    add(block_of[*target as usize - start]);
                }
                (None, guarded)
            }
            Op::Ret | Op::Exit | Op::Trap => (Some(exit), guarded),
            _ => (None, true),
        };
        if let Some(to) = jumps {
            add(to);
        }
        if may_fall {
            add(if falls { b + 1 } else { exit });
        }
    }
    let order = reverse_post_order(&predecessors, exit);
    let mut rank = vec![usize::MAX; exit + 1];
    for (i, &b) in order.iter().enumerate() {
        rank[b] = i;
    }
    let mut idom = vec![usize::MAX; exit + 1];
    idom[exit] = exit;
    let mut changed = true;
    while changed {
        changed = false;
        for &b in order.iter().skip(1) {
            let mut new = usize::MAX;
            for &s in &successors[b] {
                if idom[s] == usize::MAX {
                    continue;
                }
                new = if new == usize::MAX {
                    s
                } else {
                    intersect(&idom, &rank, new, s)
                };
            }
            if new != idom[b] {
                idom[b] = new;
                changed = true;
            }
        }
    }
    for i in start..end {
        // Blocks that cannot reach the exit (endless loops) have no meeting point but the end.
        let meet = match idom[block_of[i - start]] {
            m if m < exit => Meet::At((firsts[m] + start) as u32),
            _ => Meet::Return,
        };
        insts[i].meet = meet;
    }
}

fn is_terminator(inst: &Inst) -> bool {
    matches!(
        inst.op,
        Op::Bra { .. } | Op::Brx { .. } | Op::Ret | Op::Exit | Op::Trap
    )
}

/// Blocks that reach `exit`, each before the blocks it is reached from; `exit` first.
fn reverse_post_order(predecessors: &[Vec<usize>], exit: usize) -> Vec<usize> {
    let mut seen = vec![false; exit + 1];
    let mut post = Vec::with_capacity(exit + 1);
    let mut stack = vec![(exit, 0usize)];
    seen[exit] = true;
    while let Some((block, next)) = stack.pop() {
        match predecessors[block].get(next) {
            Some(&p) => {
                stack.push((block, next + 1));
                if !seen[p] {
                    seen[p] = true;
                    stack.push((p, 0));
                }
            }
            None => post.push(block),
        }
    }
    post.reverse();
    post
}

fn intersect(idom: &[usize], rank: &[usize], mut a: usize, mut b: usize) -> usize {
    while a != b {
        while rank[a] > rank[b] {
            a = idom[a];
        }
        while rank[b] > rank[a] {
            b = idom[b];
        }
    }
    a
}
