//! Back ends against each other: every one that runs PTX against the CPU.

use crate::backend::{Backend, Cpu, device_claims};
use crate::batch::Batch;
use crate::bound::bounds;
use crate::compare::{decode, within};
use crate::oracle;
use crate::strategy::{any_case, forall};

device_claims!(results_agree_with_the_cpus);

fn results_agree_with_the_cpus(backend: &dyn Backend) {
    let cpu = &Cpu;
    forall(backend.cases(24), any_case(), |case| {
        let batch = Batch::new(&case);
        let (a, b) = (decode(cpu, &batch)?, decode(backend, &batch)?);
        let (heads, d) = (case.num_q_heads, case.head_dim);
        for (s, seq) in batch.logical.seqs.iter().enumerate() {
            for h in 0..heads {
                let row = oracle::row(batch.config(), seq, h);
                let bounds = |order| bounds(order, &batch.plan, seq, h, &row);
                let (left, right) = (bounds(cpu.order()), bounds(backend.order()));
                let at = s * heads + h;
                let lse = ("lse", a.lse[at], b.lse[at], left.lse + right.lse);
                let out = (0..d).map(|i| {
                    let bound = left.out[i] + right.out[i];
                    ("out", a.out[at * d + i], b.out[at * d + i], bound)
                });
                for (i, (what, a, b, bound)) in out.chain([lse]).enumerate() {
                    within(what, (s, h, i), a, b.into(), bound).map_err(|error| {
                        format!("cpu against {}: {error}\n{case}", backend.name())
                    })?;
                }
            }
        }
        Ok(())
    });
}
