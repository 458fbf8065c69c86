//! Ctrl-C: the first ends the runs and keeps what is done; the second ends the program.

use std::process;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use holdfast_lab::run::CallOff;

static CALL_OFF: CallOff = AtomicBool::new(false);

/// Exit status of a program that SIGINT ended, as shells count it.
const INTERRUPTED: i32 = 130;

/// The flag that Ctrl-C sets; the handler is installed with the first call.
pub fn call_off() -> anyhow::Result<&'static CallOff> {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    if INSTALLED.set(()).is_ok() {
        ctrlc::set_handler(|| {
            if CALL_OFF.swap(true, Ordering::Relaxed) {
                process::exit(INTERRUPTED);
            }
            eprintln!("\ninterrupted: keeping the runs that are done (again to stop at once)");
        })
        .context("cannot install the handler for Ctrl-C")?;
    }
    Ok(&CALL_OFF)
}
