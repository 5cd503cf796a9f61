//! Tells the kernels which compiler they are under.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(rust_cuda)");
    println!("cargo::rustc-cfg=rust_cuda");
    println!("cargo::rerun-if-changed=build.rs");
}
