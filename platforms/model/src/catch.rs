//! Catches panics of executions without a message on standard error: a planted fault is expected to panic.

use std::any::Any;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs `body` and returns its panic as the error. Checkers run all threads of an execution on the caller's thread, so
/// the flag holds for all of them.
pub(crate) fn catch<T>(body: impl FnOnce() -> T) -> Result<T, Box<dyn Any + Send>> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        // Shuttle sets a panic hook when it is first used. This hook must be set after it, to silence that one, too.
        shuttle::check_random(|| (), 1);
        let loud = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                loud(info);
            }
        }));
    });
    let before = QUIET.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(body));
    QUIET.set(before);
    result
}

/// Returns the message of a panic.
pub(crate) fn message(payload: &(dyn Any + Send)) -> String {
    if let Some(text) = payload.downcast_ref::<String>() {
        text.clone()
    } else if let Some(text) = payload.downcast_ref::<&str>() {
        (*text).to_owned()
    } else {
        "a panic without a message".to_owned()
    }
}
