//! `cargo bench --bench cpu_bandwidth`: the CPU back end against what this machine's memory and
//! arithmetic allow.
//!
//! For every shape the output is verified against contiguous attention and the f64 reference before
//! anything is timed. Then decode, a plain read loop over the same bytes on the same threads, and a
//! register-only loop of multiply-adds run in turn; the share is the median over the rounds of
//! (decode's bandwidth ÷ the bound of the same round), where the bound is the lower of the read
//! loop's bandwidth and (multiply-adds per second ÷ multiply-adds per byte). The last column is the
//! share of a loop that does both at once and nothing else of attention.
//!
//! Arguments select rows, those whose label contains every one: `… -- MHA f16`.

mod support;

fn main() {
    support::bandwidth::main();
}
