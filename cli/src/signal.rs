//! Ctrl-C: the first ends the work and keeps what is done; the second ends the program.

use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::process;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use holdfast_lab::run::CallOff;

use crate::output::say;

static CALL_OFF: CallOff = AtomicBool::new(false);

/// Exit status of a program that SIGINT ended, as shells count it.
pub const INTERRUPTED: u8 = 130;

/// How often is looked for Ctrl-C. Few wake-ups: what runs meanwhile is measured.
const LOOK: Duration = Duration::from_millis(100);
/// How long work may take to end by itself after that.
const GRACE: Duration = Duration::from_millis(300);

/// The flag that Ctrl-C sets; the handler is installed with the first call.
pub fn call_off() -> anyhow::Result<&'static CallOff> {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    if INSTALLED.set(()).is_ok() {
        ctrlc::set_handler(|| {
            if CALL_OFF.swap(true, Ordering::Relaxed) {
                process::exit(i32::from(INTERRUPTED));
            }
            say!("\ninterrupted: keeping what is done (again to stop at once)");
        })
        .context("cannot install the handler for Ctrl-C")?;
    }
    Ok(&CALL_OFF)
}

/// Whether Ctrl-C came.
pub fn is_called_off() -> bool {
    CALL_OFF.load(Ordering::Relaxed)
}

/// To go on, unless `call_off` says otherwise.
pub fn unless(call_off: &CallOff) -> ControlFlow<()> {
    if call_off.load(Ordering::Relaxed) {
        ControlFlow::Break(())
    } else {
        ControlFlow::Continue(())
    }
}

/// Has `work` done on another thread until Ctrl-C comes; `None` if it had not ended [`GRACE`] later. Threads that stand in a
/// queue for somebody's lock cannot be called back: they are left behind, and end with the program, which has nothing to do by
/// then but to show what `work` has put elsewhere.
pub fn unless_called_off<T: Send + 'static>(
    work: impl FnOnce(&'static CallOff) -> T + Send + 'static,
) -> anyhow::Result<Option<T>> {
    let call_off = call_off()?;
    let (done, outcome) = mpsc::channel();
    let worker = thread::spawn(move || {
        // Nobody listens any more: then nobody waits for it either.
        let _ = done.send(work(call_off));
    });
    let mut wait = LOOK;
    loop {
        match outcome.recv_timeout(wait) {
            Ok(value) => return Ok(Some(value)),
            Err(RecvTimeoutError::Disconnected) => match worker.join() {
                Err(panic) => resume_unwind(panic),
                Ok(()) => return Ok(None),
            },
            Err(RecvTimeoutError::Timeout) if wait == GRACE => return Ok(None),
            Err(RecvTimeoutError::Timeout) if is_called_off() => wait = GRACE,
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}
