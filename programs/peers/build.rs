//! Looks for the headers of Concurrency Kit and of Abseil, and compiles functions that call them.

use std::path::Path;

fn main() {
    println!("cargo::rustc-check-cfg=cfg(concurrency_kit)");
    println!("cargo::rustc-check-cfg=cfg(abseil)");
    let ck = Library {
        name: "Concurrency Kit",
        cfg: "concurrency_kit",
        variable: "CK_INCLUDE_DIR",
        header: "ck_spinlock.h",
        source: "src/ck.c",
    };
    ck.compile(cc::Build::new().opt_level(2));
    let abseil = Library {
        name: "Abseil",
        cfg: "abseil",
        variable: "ABSL_INCLUDE_DIR",
        header: "absl/synchronization/mutex.h",
        source: "src/absl.cc",
    };
    // As Debian's library is compiled: other versions of C++ name other types.
    if abseil.compile(
        cc::Build::new()
            .opt_level(2)
            .cpp(true)
            .std("c++14")
            .define("NDEBUG", None),
    ) {
        println!("cargo::rustc-link-lib=dylib=absl_synchronization");
    }
}

/// A library to compare with, which may be installed.
struct Library {
    name: &'static str,
    /// What is set if it is.
    cfg: &'static str,
    /// The variable that names the folder of its headers, if that is not the system's.
    variable: &'static str,
    header: &'static str,
    source: &'static str,
}

impl Library {
    /// Compiles the functions that call the library. Returns whether it is installed.
    fn compile(&self, build: &mut cc::Build) -> bool {
        println!("cargo::rerun-if-changed={}", self.source);
        println!("cargo::rerun-if-env-changed={}", self.variable);
        let directory = std::env::var(self.variable).unwrap_or_else(|_| "/usr/include".into());
        let header = Path::new(&directory).join(self.header);
        if !header.exists() {
            // Not watched: a missing file would cause a rebuild of all dependent crates each time.
            return false;
        }
        println!("cargo::rerun-if-changed={}", header.display());
        let compiled = build
            .file(self.source)
            .include(directory)
            .try_compile(&format!("holdfast_{}", self.cfg));
        match &compiled {
            Ok(()) => println!("cargo::rustc-cfg={}", self.cfg),
            Err(error) => println!(
                "cargo::warning={} is installed, but does not compile: {error}",
                self.name
            ),
        }
        compiled.is_ok()
    }
}
