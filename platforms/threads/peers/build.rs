//! Looks for Concurrency Kit, which consists of headers only, and compiles functions that call it.

use std::path::Path;

fn main() {
    println!("cargo::rustc-check-cfg=cfg(concurrency_kit)");
    println!("cargo::rerun-if-changed=src/ck.c");
    println!("cargo::rerun-if-env-changed=CK_INCLUDE_DIR");
    let directory = std::env::var("CK_INCLUDE_DIR").unwrap_or_else(|_| "/usr/include".into());
    let header = Path::new(&directory).join("ck_spinlock.h");
    if !header.exists() {
        // Not watched: a missing file would cause a rebuild of all dependent crates each time.
        return;
    }
    println!("cargo::rerun-if-changed={}", header.display());
    let compiled = cc::Build::new()
        .file("src/ck.c")
        .include(directory)
        .opt_level(2)
        .try_compile("holdfast_ck");
    match compiled {
        Ok(()) => println!("cargo::rustc-cfg=concurrency_kit"),
        Err(error) => println!("cargo::warning=Concurrency Kit is installed, but does not compile: {error}"),
    }
}
