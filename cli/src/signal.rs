//! Ctrl-C: the first one ends the work and keeps what is finished; the second one ends the program.

use std::process;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use holdfast_lab::run::CallOff;

use crate::output::say;

static CALL_OFF: CallOff = AtomicBool::new(false);

/// Exit status of a program that SIGINT ended, as shells report it.
pub const INTERRUPTED: u8 = 130;

/// Returns the flag that Ctrl-C sets. The first call installs the handler.
pub fn call_off() -> anyhow::Result<&'static CallOff> {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    if INSTALLED.set(()).is_ok() {
        ctrlc::set_handler(|| {
            if CALL_OFF.swap(true, Ordering::Relaxed) {
                process::exit(i32::from(INTERRUPTED));
            }
            say!("\ninterrupted: keeping what is finished (press Ctrl-C again to stop at once)");
        })
        .context("cannot install the handler for Ctrl-C")?;
    }
    Ok(&CALL_OFF)
}
