//! What the program that runs this command adds to it: set once, before the command line is read.

use std::sync::OnceLock;

use holdfast_lab::extensions::Extensions;
use holdfast_lab::options::Options;
use holdfast_lab::units::Build;

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

/// Returns this program, as records of units name it.
pub fn build() -> Build {
    Build {
        id: env!("HOLDFAST_BUILD"),
        version: VERSION,
        extensions: extensions(),
    }
}
