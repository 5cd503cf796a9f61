//! The back ends under test. A new one implements [`Backend`] and joins the macro [`claims`].

use paged_attention::DType;
use paged_attention::{Element, Error, RowsViewMut};

use crate::batch::Batch;
use crate::bound::Order;

mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
mod ptx;

pub use cpu::{Cpu, contiguous};
#[cfg(any(feature = "cuda", feature = "rust-cuda-ptx"))]
pub use ptx::Set;
pub use ptx::{KernelOrder, Ptx, ptx};

/// Dense results, widened.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// `[num_seqs, num_q_heads, head_dim]`.
    pub out: Vec<f32>,
    /// `[num_seqs, num_q_heads]`.
    pub lse: Vec<f32>,
}

/// Something that runs a plan.
pub trait Backend: Sync {
    /// As in test names.
    fn name(&self) -> &'static str;

    /// The order of its additions, for the error bound.
    fn order(&self) -> &dyn Order;

    /// Random cases to run of a property that has `usual` by default.
    fn cases(&self, usual: u32) -> u32 {
        usual
    }

    /// Runs a batch into an output that holds NaN before.
    fn decode(&self, batch: &Batch) -> Result<Output, Error>;
}

/// Calls `$body` with the type of `$dtype` as `$t`.
macro_rules! with_element {
    ($dtype:expr, $t:ident => $body:expr) => {
        match $dtype {
            paged_attention::DType::F32 => {
                type $t = f32;
                $body
            }
            paged_attention::DType::F16 => {
                type $t = half::f16;
                $body
            }
            paged_attention::DType::Bf16 => {
                type $t = half::bf16;
                $body
            }
        }
    };
}
pub(crate) use with_element;

/// One test per back end and function of this module's `fn(&dyn Backend)`: `cpu::name`, and for each
/// set of PTX `ptx_default::name` and `ptx_rust_cuda::name`; with the feature `cuda` also
/// `cuda_default::name`, with `cuda-both-sets` `cuda_rust_cuda::name` too.
macro_rules! claims {
    ($( $(#[$attribute:meta])* $name:ident ),* $(,)?) => {
        mod cpu {
            $( #[test] $(#[$attribute])* fn $name() { super::$name(&crate::backend::Cpu) } )*
        }
        crate::backend::device_claims! { $( $(#[$attribute])* $name ),* }
    };
}
pub(crate) use claims;

/// The same without the CPU's.
macro_rules! device_claims {
    ($( $(#[$attribute:meta])* $name:ident ),* $(,)?) => {
        crate::backend::sets! { $( $(#[$attribute])* $name ),* }
        #[cfg(feature = "cuda")]
        mod cuda_default {
            $( #[test] $(#[$attribute])* fn $name() { super::$name(crate::backend::cuda::cuda()) } )*
        }
        #[cfg(feature = "cuda-both-sets")]
        mod cuda_rust_cuda {
            use crate::backend::{Set, cuda::cuda_with};
            $( #[test] $(#[$attribute])* fn $name() { super::$name(cuda_with(Set::RustCuda)) } )*
        }
    };
}
pub(crate) use device_claims;

/// One test per set of PTX and function of this module's `fn(&'static Ptx)`: `ptx_default::name` and
/// `ptx_rust_cuda::name`.
macro_rules! sets {
    ($( $(#[$attribute:meta])* $name:ident ),* $(,)?) => {
        mod ptx_default {
            $( #[test] $(#[$attribute])* fn $name() { super::$name(crate::backend::ptx()) } )*
        }
        #[cfg(feature = "rust-cuda-ptx")]
        mod ptx_rust_cuda {
            use crate::backend::Set;
            $( #[test] $(#[$attribute])* fn $name() { super::$name(Set::RustCuda.ptx()) } )*
        }
    };
}
pub(crate) use sets;

/// Gives `run` an output view full of NaN, and takes the rows out of it; what lies between the rows
/// must not have been touched.
fn collect<T: Element>(
    batch: &Batch,
    run: impl FnOnce(RowsViewMut<'_, T>, &mut [f32]) -> Result<(), Error>,
) -> Result<Output, Error> {
    let (seqs, heads, d) = (
        batch.num_seqs(),
        batch.case.num_q_heads,
        batch.case.head_dim,
    );
    let (token, head) = batch.out_strides;
    let mut out = vec![T::from_f32(f32::NAN); batch.out_len];
    let mut lse = vec![f32::NAN; seqs * heads];
    run(
        RowsViewMut::with_strides(&mut out, seqs, heads, d, token, head),
        &mut lse,
    )?;
    let mut dense = Vec::with_capacity(seqs * heads * d);
    for s in 0..seqs {
        for h in 0..heads {
            let row = &mut out[s * token + h * head..][..d];
            dense.extend(row.iter().map(|x| x.to_f32()));
            row.fill(T::from_f32(f32::NAN));
        }
    }
    let touched = out.iter().position(|x| !x.to_f32().is_nan());
    assert_eq!(
        touched, None,
        "written between the rows of out\n{}",
        batch.case
    );
    Ok(Output { out: dense, lse })
}

/// Every storage type, for loops.
pub const DTYPES: [DType; 3] = DType::ALL;
