//! The shipped PTX and its manifest.
//!
//! [`PtxSet::embedded`] is compiled into the crate; with the feature `rust-cuda-ptx` so is a second
//! set, the same kernels compiled by rust-cuda; [`PtxSet::load`] reads any other build of them from a
//! folder. Each holds one PTX file per (dtype, head_dim) with its decode and merge entries, one for the
//! operations on the cache, and a [`Manifest`] that says how to launch them without this crate. The
//! back ends take any set.

mod embedded;
#[cfg(feature = "rust-cuda-ptx")]
mod embedded_rust_cuda {
    // Included, so that rustfmt leaves the generated table alone.
    include!("embedded_rust_cuda.rs");
}
mod manifest;
mod requirements;
mod set;
mod text;

pub use manifest::{
    CACHE_FILE, EntryKind, Manifest, ManifestEntry, Parameter, ParameterField, file_name,
};
pub use requirements::LeastDriver;
pub use set::{PlannedPtx, PtxSet};

/// The manifest of the embedded set.
pub fn manifest() -> &'static Manifest {
    PtxSet::embedded().manifest()
}
