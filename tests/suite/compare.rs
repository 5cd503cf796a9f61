//! Comparisons: equal bits, or within a derived bound. They are never mixed.

use crate::backend::{Backend, Output};
use crate::batch::Batch;
use crate::bound::bounds;
use crate::case::Case;
use crate::oracle;

/// The largest error of a batch as a share of its bound, and absolutely.
#[derive(Clone, Copy, Debug, Default)]
pub struct Worst {
    pub share: f64,
    pub error: f64,
    pub bound: f64,
}

/// Compares every output element and lse of a batch with exact attention.
pub fn close_to_exact(
    backend: &dyn Backend,
    batch: &Batch,
    output: &Output,
) -> Result<Worst, String> {
    let (heads, d) = (batch.case.num_q_heads, batch.case.head_dim);
    let mut worst = Worst::default();
    for (s, seq) in batch.logical.seqs.iter().enumerate() {
        for h in 0..heads {
            let row = oracle::row(batch.config(), seq, h);
            let bounds = bounds(backend.order(), &batch.plan, seq, h, &row);
            let at = s * heads + h;
            let lse = ("lse", output.lse[at], row.lse, bounds.lse);
            let out = (0..d).map(|i| ("out", output.out[at * d + i], row.out[i], bounds.out[i]));
            for (i, (what, found, exact, bound)) in out.chain([lse]).enumerate() {
                let place = (s, h, i);
                let error = within(what, place, found, exact, bound)
                    .map_err(|e| format!("{}: {e}\n{}", backend.name(), batch.case))?;
                if what == "out" {
                    worst.error = worst.error.max(error);
                    worst.bound = worst.bound.max(bound);
                    worst.share = worst
                        .share
                        .max(if error > 0.0 { error / bound } else { 0.0 });
                }
            }
        }
    }
    Ok(worst)
}

/// The error, if it is at most `bound`. Infinities must be equal, NaN never is.
pub fn within(
    what: &str,
    place: (usize, usize, usize),
    found: f32,
    exact: f64,
    bound: f64,
) -> Result<f64, String> {
    let found = f64::from(found);
    if found == exact {
        return Ok(0.0);
    }
    let error = (found - exact).abs();
    if error <= bound {
        return Ok(error);
    }
    let (s, h, i) = place;
    Err(format!(
        "{what} of sequence {s}, head {h}, element {i} is {found:e}, must be {exact:e} within \
         {bound:e}, is off by {error:e}"
    ))
}

/// Runs a case and compares it with exact attention.
pub fn check(backend: &dyn Backend, case: &Case) -> Result<Worst, String> {
    let batch = Batch::new(case);
    let output = decode(backend, &batch)?;
    close_to_exact(backend, &batch, &output)
}

/// [`check`], and a panic with the case where it fails.
#[track_caller]
pub fn assert_close(backend: &dyn Backend, case: &Case) -> Worst {
    check(backend, case).unwrap_or_else(|error| panic!("{error}"))
}

/// Runs a batch; a refusal or a fault becomes text with the case.
pub fn decode(backend: &dyn Backend, batch: &Batch) -> Result<Output, String> {
    let output = backend.decode(batch);
    output.map_err(|error| format!("{}: {error}\n{}", backend.name(), batch.case))
}

/// Whether two outputs have the same bits; `what` says what differs between their cases.
pub fn bits_eq(what: &str, found: &Output, expected: &Output) -> Result<(), String> {
    for (name, a, b) in [
        ("out", &found.out, &expected.out),
        ("lse", &found.lse, &expected.lse),
    ] {
        if a.len() != b.len() {
            return Err(format!(
                "{what}: {name} has {} elements, not {}",
                a.len(),
                b.len()
            ));
        }
        let differs = a
            .iter()
            .zip(b)
            .position(|(a, b)| a.to_bits() != b.to_bits());
        if let Some(i) = differs {
            let (a, b) = (a[i], b[i]);
            return Err(format!(
                "{what}: {name}[{i}] is {a:e}, must have the bits of {b:e}"
            ));
        }
    }
    Ok(())
}
