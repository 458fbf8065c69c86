//! Compiles the sleep that a thread's cancellation may end, which needs a macro of C, and says how the library is
//! linked.

fn main() {
    println!("cargo::rerun-if-changed=src/sleep.c");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        cc::Build::new()
            .file("src/sleep.c")
            .opt_level(2)
            .warnings(true)
            .compile("holdfast_preload_sleep");
        // The C library and the kernel keep addresses in this library. So it is never unloaded.
        println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
