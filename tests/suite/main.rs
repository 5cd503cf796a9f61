//! One suite, several back ends: the same cases on the CPU back end, on each shipped set of PTX,
//! executed by the emulator with every detector on, and, with the feature `cuda`, on a CUDA device.
//! Test names carry the back end and the set: `ptx_default`, `ptx_rust_cuda`.
//!
//! `PROPTEST_CASES` raises the number of random cases, `PROPTEST_RNG_SEED` draws others, and
//! `PAGED_ATTENTION_PTX_DIR` names a folder with another build of the PTX, which takes the place of
//! the default set. Without `PROPTEST_CASES` the set of rust-cuda runs one random case per property.
//! A failure prints its [`case::Case`] as a literal.

mod backend;
mod batch;
mod bound;
mod cache;
mod case;
mod compare;
mod device;
mod logical;
mod oracle;
mod random;
mod strategy;

mod agreement;
mod convergence;
#[cfg(feature = "cuda")]
mod cuda;
mod efficiency;
mod entries;
mod exact;
mod far;
mod faults;
mod invariance;
mod long;
mod oracles;
mod planted;
mod workspace;
