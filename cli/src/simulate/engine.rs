//! Continuous batching: requests join and leave the batch between any two steps.

use std::collections::VecDeque;

use paged_attention::pool::PoolError;

use super::machine::Machine;
use super::policy::{Memory, Policy, Share, Slots};
use super::trace::Request;

/// Prompt tokens that one step computes at most (a longer prompt has a step's share to itself).
const PREFILL_TOKENS: usize = 4096;

/// What a run measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Mean over the requests of (end − arrival) / output tokens, in seconds per token.
    pub latency: f64,
    /// Sequences per step, time-weighted, while requests waited.
    pub batch: f64,
    /// Shares of the cache memory, time-weighted, while requests waited.
    pub shares: Slots,
    /// Sequences that had to yield their memory and were computed again.
    pub preemptions: usize,
    /// Most sequences in a step.
    pub largest_batch: usize,
}

struct Waiting {
    request: usize,
    generated: usize,
}

struct Running {
    request: usize,
    /// Tokens with keys and values in the cache.
    tokens: usize,
    generated: usize,
    share: Share,
}

/// Serves the requests under a policy. They arrive `rate` per second, or all at once with an
/// infinite one. Gives up, with an infinite latency, once the mean latency must exceed `limit`.
pub fn serve(
    machine: &Machine,
    policy: Policy,
    max_len: usize,
    requests: &[Request],
    rate: f64,
    limit: f64,
) -> Result<Outcome, PoolError> {
    let capacity = machine.capacity();
    let mut memory = Memory::new(policy, capacity, max_len)?;
    let mut arrivals = requests
        .iter()
        .map(|r| r.arrival / rate)
        .enumerate()
        .peekable();
    let mut waiting: VecDeque<Waiting> = VecDeque::new();
    let mut running: Vec<Running> = Vec::new();
    let (mut now, mut latencies) = (0.0, 0.0);
    let (mut weight, mut batch, mut shares) = (0.0, 0.0, Slots::default());
    let (mut preemptions, mut largest_batch) = (0, 0);

    loop {
        while let Some((request, _)) = arrivals.next_if(|&(_, time)| time <= now) {
            waiting.push_back(Waiting {
                request,
                generated: 0,
            });
        }
        if running.is_empty() && waiting.is_empty() {
            match arrivals.peek() {
                Some(&(_, time)) => now = time,
                None => break,
            }
            continue;
        }

        // Oldest first; whoever came last yields.
        let mut grown = 0;
        let mut preempted = false;
        while grown < running.len() {
            if running[grown].share.grow() {
                running[grown].tokens += 1;
                grown += 1;
            } else if let Some(last) = running.pop() {
                let Running {
                    request,
                    generated,
                    share,
                    ..
                } = last;
                memory.free(share);
                waiting.push_front(Waiting { request, generated });
                preemptions += 1;
                preempted = true;
            }
        }

        let mut rows = running.len();
        while let Some(next) = waiting.front().filter(|_| !preempted) {
            let Waiting { request, generated } = *next;
            let tokens = requests[request].prompt + generated;
            let fits = rows == running.len() || rows - running.len() + tokens <= PREFILL_TOKENS;
            if running.len() == machine.max_batch || !fits {
                break;
            }
            let Some(share) = memory.admit(&requests[request], tokens, running.is_empty()) else {
                break;
            };
            waiting.pop_front();
            running.push(Running {
                request,
                tokens,
                generated,
                share,
            });
            rows += tokens;
        }

        let context = running.iter().map(|r| r.tokens).sum();
        let time = machine.step(rows, context, policy.is_paged());
        largest_batch = largest_batch.max(running.len());
        if !waiting.is_empty() {
            weight += time;
            batch += time * running.len() as f64;
            for sequence in &running {
                // The last token that is generated is never read again.
                let total = requests[sequence.request].total() - 1;
                let slots = sequence.share.slots(sequence.tokens, total);
                shares.tokens += time * slots.tokens;
                shares.reserved += time * slots.reserved;
                shares.internal += time * slots.internal;
            }
        }
        now += time;

        let mut done = Vec::new();
        for (i, sequence) in running.iter_mut().enumerate() {
            sequence.generated += 1;
            let Request {
                arrival, output, ..
            } = requests[sequence.request];
            if sequence.generated == output {
                latencies += (now - arrival / rate) / output as f64;
                done.push(i);
            }
        }
        for i in done.into_iter().rev() {
            memory.free(running.remove(i).share);
        }
        if latencies > limit * requests.len() as f64 {
            latencies = f64::INFINITY;
            break;
        }
    }

    let part = |slots: f64| slots / (weight * capacity as f64);
    Ok(Outcome {
        latency: latencies / requests.len() as f64,
        batch: batch / weight,
        shares: Slots {
            tokens: part(shares.tokens),
            reserved: part(shares.reserved),
            internal: part(shares.internal),
        },
        preemptions,
        largest_batch,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 10 ms per step for the weights, 1 ms for 1000 tokens of context.
    const MACHINE: Machine = Machine {
        weights: 10e9,
        token_bytes: 1e6,
        cache: 1024e6,
        bandwidth: 1e12,
        flops: 1e30,
        max_batch: 64,
        paging: 1.0,
    };

    const POLICIES: [Policy; 5] = [
        Policy::Paged(1),
        Policy::Paged(16),
        Policy::Maximum,
        Policy::PowerOfTwo,
        Policy::Final,
    ];

    fn same(count: usize, prompt: usize, output: usize) -> Vec<Request> {
        let request = |i| Request {
            arrival: i as f64,
            prompt,
            output,
        };
        (0..count).map(request).collect()
    }

    #[test]
    fn one_request_takes_its_steps() {
        for policy in POLICIES {
            let found = serve(&MACHINE, policy, 512, &same(1, 100, 3), 1.0, 1e9).unwrap();
            // Contexts of 100, 101 and 102 tokens.
            let expected = (3.0 * 10e-3 + 303.0 * 1e-6) / 3.0;
            assert!((found.latency - expected).abs() < 1e-12, "{found:?}");
            assert_eq!((found.preemptions, found.largest_batch), (0, 1));
        }
    }

    #[test]
    fn batches_are_as_large_as_the_memory_lets_them() {
        // 129 slots each, 128 of which are used at the end.
        let requests = same(200, 65, 64);
        for (policy, expected) in [
            (Policy::Paged(16), 11),
            (Policy::Maximum, 2),
            (Policy::PowerOfTwo, 4),
            (Policy::Final, 4),
        ] {
            let found = serve(&MACHINE, policy, 512, &requests, f64::INFINITY, 1e9).unwrap();
            let largest = found.largest_batch;
            if policy.is_paged() {
                assert!(largest >= expected, "{policy:?}: {largest}");
            } else {
                assert_eq!(largest, expected, "{policy:?}");
            }
        }
    }

    #[test]
    fn shares_of_reservations_are_exact_for_equal_requests() {
        // Two regions of 512 fill the memory; each request uses 9 + 4 - 1 = 12 slots at its end.
        let requests = same(40, 9, 4);
        let found = serve(
            &MACHINE,
            Policy::Maximum,
            512,
            &requests,
            f64::INFINITY,
            1e9,
        )
        .unwrap();
        let Slots {
            tokens,
            reserved,
            internal,
        } = found.shares;
        assert!(
            (tokens + reserved - 24.0 / 1024.0).abs() < 1e-12,
            "{found:?}"
        );
        assert!((internal - 1000.0 / 1024.0).abs() < 1e-12, "{found:?}");
    }

    #[test]
    fn every_request_is_served_though_memory_runs_out() {
        // 16 sequences of up to 200 tokens want 3200 slots of 1024.
        let requests = same(60, 20, 180);
        let found = serve(
            &MACHINE,
            Policy::Paged(8),
            512,
            &requests,
            f64::INFINITY,
            1e9,
        )
        .unwrap();
        assert!(
            found.preemptions > 0 && found.latency.is_finite(),
            "{found:?}"
        );
        assert!(
            found.shares.tokens > 0.8 && found.shares.tokens <= 1.0,
            "{found:?}"
        );
    }

    #[test]
    fn latency_grows_with_the_rate_and_is_given_up_past_the_limit() {
        let requests = same(100, 65, 64);
        let at = |rate, limit| {
            serve(&MACHINE, Policy::Maximum, 512, &requests, rate, limit)
                .unwrap()
                .latency
        };
        assert!(at(1.0, 1e9) < at(10.0, 1e9));
        assert_eq!(at(10.0, at(1.0, 1e9)), f64::INFINITY);
    }
}
