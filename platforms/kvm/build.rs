//! Builds the guest image and the first process of Linux guests, both freestanding, for the library to embed.
//!
//! The stable host toolchain is enough. The image has its own target directory, which all profiles of the outer build
//! share and which the outer build does not lock.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

const TARGET: &str = "x86_64-unknown-linux-gnu";

fn main() {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let root = here.join("../..");
    for watched in [
        "abi",
        "locks",
        "guest",
        "workloads",
        "locks/words",
        "platforms/kvm/image",
        "platforms/kvm/protocol",
    ] {
        for part in ["src", "Cargo.toml", "link.ld"] {
            let path = root.join(watched).join(part);
            if path.exists() {
                println!("cargo::rerun-if-changed={}", path.display());
            }
        }
    }
    println!("cargo::rerun-if-changed={}", here.join("build.rs").display());
    let built = build(&here, &target_directory(&out));
    for name in ["image", "init"] {
        let from = built.join(name);
        std::fs::copy(&from, out.join(name).with_extension("elf"))
            .unwrap_or_else(|error| panic!("{}: {error}", from.display()));
    }
}

/// Returns the image's target directory, `target/kvm-image`, next to the folders of the outer build's profiles.
fn target_directory(out: &Path) -> PathBuf {
    let profile = out
        .ancestors()
        .find(|path| path.ends_with("build"))
        .and_then(Path::parent);
    profile
        .and_then(Path::parent)
        .map_or_else(|| out.join("image"), |target| target.join("kvm-image"))
}

/// Builds both binaries. Returns their folder.
fn build(here: &Path, target_directory: &Path) -> PathBuf {
    let script = here.join("image/link.ld");
    let flags = [
        "-Crelocation-model=static",
        "-Cno-redzone=yes",
        "-Cforce-unwind-tables=no",
        // The VMM's backtraces of a failed guest follow frame pointers.
        "-Cforce-frame-pointers=yes",
        "-Clinker=rust-lld",
        "-Clinker-flavor=ld.lld",
        "-Clink-self-contained=no",
        &format!("-Clink-arg=-T{}", script.display()),
        "-Clink-arg=--gc-sections",
        "-Clink-arg=-static",
        "-Clink-arg=--no-dynamic-linker",
        "-Clink-arg=--build-id=none",
        "-Clink-arg=-zmax-page-size=4096",
    ];
    let mut cargo = Command::new(env::var_os("CARGO").expect("cargo sets it"));
    cargo
        .args([
            "build",
            "--release",
            "--quiet",
            "--locked",
            "--features=boot",
            "--bin=image",
            "--bin=init",
        ])
        .arg(format!("--target={TARGET}"))
        .arg("--manifest-path")
        .arg(here.join("image/Cargo.toml"))
        .arg("--target-dir")
        .arg(target_directory);
    // Flags, wrappers and profiles of the outer build do not fit freestanding code.
    for (name, _) in env::vars_os() {
        let Some(name) = name.to_str() else { continue };
        let outer =
            name.starts_with("CARGO_PROFILE_") || name.starts_with("CARGO_TARGET_") || name.starts_with("CARGO_BUILD_");
        if outer || ["RUSTFLAGS", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "CLIPPY_ARGS"].contains(&name) {
            cargo.env_remove(name);
        }
    }
    cargo
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
        .env("CARGO_PROFILE_RELEASE_PANIC", "abort")
        .env("CARGO_PROFILE_RELEASE_LTO", "thin")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "false")
        .env("CARGO_PROFILE_RELEASE_STRIP", "none");
    let status = cargo
        .status()
        .unwrap_or_else(|error| panic!("cannot start cargo: {error}"));
    assert!(status.success(), "cargo failed to build the guest image: {status}");
    target_directory.join(TARGET).join("release")
}
