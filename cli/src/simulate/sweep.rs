//! All policies over one trace, at many request rates, on all cores.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use indicatif::ProgressBar;
use paged_attention::pool::PoolError;

use super::engine::{Outcome, serve};
use super::machine::Machine;
use super::policy::Policy;
use super::trace::Request;

/// Halvings of the interval in which the highest rate lies: to 1 part in 4000.
const HALVINGS: u32 = 12;
/// Rates of the latency curve, relative to the highest one within the limit.
const CURVE: [f64; 8] = [0.1, 0.5, 0.75, 0.9, 0.95, 1.0, 1.05, 1.1];

/// Runs of one policy, for the progress bar.
pub const RUNS: u64 = 1 + HALVINGS as u64 + CURVE.len() as u64;

/// What one policy achieves.
pub struct Found {
    pub policy: Policy,
    /// With every request there from the start.
    pub loaded: Outcome,
    /// Requests per second at which the mean latency reaches the limit.
    pub rate: f64,
    /// (requests per second, seconds per token), past the limit too.
    pub curve: Vec<(f64, f64)>,
}

/// Serves the trace under every policy.
pub fn sweep(
    machine: &Machine,
    policies: &[Policy],
    max_len: usize,
    requests: &[Request],
    limit: f64,
    bar: &ProgressBar,
) -> Result<Vec<Found>, PoolError> {
    let next = AtomicUsize::new(0);
    let found = Mutex::new(Vec::new());
    let work = || {
        while let Some(&policy) = policies.get(next.fetch_add(1, Ordering::Relaxed)) {
            let result = one(machine, policy, max_len, requests, limit, bar);
            found.lock().unwrap_or_else(|e| e.into_inner()).push(result);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|scope| {
        for _ in 1..threads.min(policies.len()) {
            scope.spawn(work);
        }
        work();
    });
    let found = found.into_inner().unwrap_or_else(|e| e.into_inner());
    let mut found = found.into_iter().collect::<Result<Vec<Found>, _>>()?;
    found.sort_by_key(|found| policies.iter().position(|&policy| policy == found.policy));
    Ok(found)
}

fn one(
    machine: &Machine,
    policy: Policy,
    max_len: usize,
    requests: &[Request],
    limit: f64,
    bar: &ProgressBar,
) -> Result<Found, PoolError> {
    let run = |rate, limit| {
        let outcome = serve(machine, policy, max_len, requests, rate, limit);
        bar.inc(1);
        outcome
    };
    let loaded = run(f64::INFINITY, f64::INFINITY)?;
    // No rate is sustained beyond what the GPU does without any memory limit.
    let rows = requests.iter().map(Request::total).sum::<usize>() as f64 / requests.len() as f64;
    let outputs = requests.iter().map(|r| r.output).sum::<usize>() as f64 / requests.len() as f64;
    let fastest = machine.step(machine.max_batch, 0, false) / machine.max_batch as f64;
    let compute = machine.weights / machine.flops * rows;
    let (mut low, mut high) = (0.0, 2.0 / f64::max(fastest * outputs, compute));
    for _ in 0..HALVINGS {
        let rate = (low + high) / 2.0;
        if run(rate, limit)?.latency <= limit {
            low = rate;
        } else {
            high = rate;
        }
    }
    let mut curve = Vec::new();
    for part in CURVE {
        // Far past the limit there is nothing to see.
        let latency = run(part * low, 8.0 * limit)?.latency;
        if low > 0.0 && latency.is_finite() {
            curve.push((part * low, latency));
        }
    }
    Ok(Found {
        policy,
        loaded,
        rate: low,
        curve,
    })
}
