//! How the library ends a process that misuses it: with a message that names the function and the lock.

use core::cell::Cell;
use std::io::Write;
use std::panic::PanicHookInfo;

/// Sets the panic hook of the library. It is the library's own: a Rust program or plugin has another one.
pub(crate) fn at_load() {
    std::panic::set_hook(Box::new(panicked));
}

thread_local! {
    /// The function that the thread is in, if it is none of those that the message implies.
    static FUNCTION: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Makes a call that may unlock or lock for the C function `function`.
pub(crate) fn within<R>(function: &'static str, call: impl FnOnce() -> R) -> R {
    FUNCTION.set(Some(function));
    let result = call();
    FUNCTION.set(None);
    result
}

/// A panic is misuse that the locks find, or a fault of theirs. Either ends the process.
fn panicked(info: &PanicHookInfo<'_>) {
    // A constant message is a `&str`, any other one a `String`.
    let payload = info.payload();
    let constant = payload.downcast_ref::<&str>().copied();
    let message = constant.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let message = message.unwrap_or("a panic");
    let implied = if message.starts_with("cannot unlock the lock at ") {
        Some("holdfast_lock_unlock")
    } else if message.starts_with("cannot read the lock at ") {
        Some("holdfast_rwlock_rdlock")
    } else {
        None
    };
    match (implied, info.location()) {
        (Some(implied), _) => say(format_args!("{}: {message}", FUNCTION.get().unwrap_or(implied))),
        (None, Some(location)) => say(format_args!("fault in the library: {message} ({location})")),
        (None, None) => say(format_args!("fault in the library: {message}")),
    }
    end();
}

/// Prints a message, as one piece if it is short. A message that cannot be printed is lost.
pub(crate) fn say(message: core::fmt::Arguments<'_>) {
    let mut text = [0_u8; 512];
    let mut rest = &mut text[..];
    // Longer ones are cut off.
    let _ = writeln!(rest, "holdfast: {message}");
    let left = rest.len();
    let bytes = text.len() - left;
    // SAFETY: the text has so many bytes.
    unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), bytes) };
}

/// Ends the process.
pub(crate) fn end() -> ! {
    // SAFETY: the function has no preconditions.
    unsafe { libc::abort() }
}
