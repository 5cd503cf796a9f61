//! One suite, several back ends: the same cases on the CPU back end, on the shipped PTX, executed by
//! the emulator with every detector on, and, with the feature `cuda`, on a CUDA device.
//!
//! `PROPTEST_CASES` raises the number of random cases, `PROPTEST_RNG_SEED` draws others, and
//! `PAGED_ATTENTION_PTX_DIR` names a folder with another build of the PTX. A failure prints its
//! [`case::Case`] as a literal.

mod backend;
mod batch;
mod bound;
mod case;
mod compare;
mod device;
mod logical;
mod oracle;
mod random;
mod strategy;

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
