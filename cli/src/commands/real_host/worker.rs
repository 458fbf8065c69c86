//! Work on another thread that Ctrl-C can leave behind.
//!
//! A thread that waits in the queue of a contended lock cannot be called back. So measurements run on a thread of their
//! own, and put what they have finished where the main thread can read it.

use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use holdfast_lab::run::CallOff;

use crate::error::Result;
use crate::signal;

/// Interval between looks at the flag of Ctrl-C. Long, because each look is a wakeup that disturbs the measurement.
const LOOK: Duration = Duration::from_millis(100);
/// Time that the work has after Ctrl-C to end by itself.
const GRACE: Duration = Duration::from_millis(300);

/// Returns `Break` if Ctrl-C has set `call_off`.
pub fn check(call_off: &CallOff) -> ControlFlow<()> {
    if call_off.is_called() {
        ControlFlow::Break(())
    } else {
        ControlFlow::Continue(())
    }
}

/// Runs `work` on another thread. Returns its result, or `None` if Ctrl-C came and the work had not ended [`GRACE`]
/// later. The thread then goes on until the program ends.
pub fn run<T: Send + 'static>(work: impl FnOnce(&'static CallOff) -> T + Send + 'static) -> Result<Option<T>> {
    let call_off = signal::call_off()?;
    let (done, outcome) = mpsc::channel();
    let worker = thread::spawn(move || {
        // Fails if the main thread no longer waits; the result is then not needed.
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
            Err(RecvTimeoutError::Timeout) if check(call_off).is_break() => wait = GRACE,
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}
