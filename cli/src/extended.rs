//! What the program that runs this command adds to it: set once, before the command line is read.

use std::sync::OnceLock;

use holdfast_lab::extensions::Extensions;
use holdfast_lab::options::Options;
use holdfast_lab::units::{Build, digest};

use crate::args::VERSION;

static EXTENSIONS: OnceLock<Extensions> = OnceLock::new();

/// Sets what the program adds. Only the first call has an effect.
pub fn set(extensions: Extensions) {
    EXTENSIONS.get_or_init(|| extensions);
}

/// Returns what the program adds.
pub fn extensions() -> Extensions {
    EXTENSIONS.get().copied().unwrap_or_default()
}

/// Returns `options` with what the program adds.
pub fn options(options: &Options) -> Options {
    Options {
        extensions: extensions(),
        ..options.clone()
    }
}

/// Returns this program, as records of units name it. A program that adds types has an identity of its own, so that no
/// cache gives it what was run with other code of theirs.
pub fn build() -> Build {
    const SOURCES: &str = env!("HOLDFAST_BUILD");
    static OWN: OnceLock<String> = OnceLock::new();
    let own = || {
        // A program that cannot be read shares its cache with no other: the process is its identity.
        let executable = std::env::current_exe().and_then(std::fs::read);
        let executable = executable.unwrap_or_else(|_| std::process::id().to_le_bytes().to_vec());
        digest(&[SOURCES.as_bytes(), &executable])
    };
    Build {
        id: match extensions() == Extensions::shipped() {
            true => SOURCES,
            false => OWN.get_or_init(own),
        },
        version: VERSION,
        extensions: extensions(),
    }
}
