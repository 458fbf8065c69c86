//! Takes the place of pthread mutexes and condition variables in programs that are not compiled for it:
//!
//! ```text
//! cargo build --release -p holdfast-preload
//! LD_PRELOAD=$PWD/target/release/libholdfast_preload.so program
//! ```
//!
//! - **Normal, default and adaptive mutexes** become hybrid locks, whose word is the first of the 40 bytes. All others
//!   (recursive, error-checking, robust, with priority inheritance or protection, shared by processes) stay those of
//!   the C library. The kind word of each mutex decides that at each call. Initializers are the C library's.
//! - **Condition variables** become those of `RawRequeueCondvar`, for mutexes of every kind. Those that processes share
//!   stay those of the C library, and then only work with mutexes that do: `EINVAL` otherwise. Waits are cancellation
//!   points.
//! - **No allocation** in any call, nor when the library is loaded, since the program's own `malloc` may lock mutexes.
//!
//! The layouts are those of glibc on 64-bit Linux since 2.25. On other systems the library has no functions, so it
//! changes nothing. A program that unlocks a mutex which is not locked is ended with a message, and a debugger sees no
//! owner.

#![cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]
#![expect(unsafe_code, reason = "functions that C calls, on memory that C owns")]

#[cfg(not(panic = "unwind"))]
compile_error!("a cancelled thread unwinds through this library: build it with panic = \"unwind\"");

use std::io::Write;

mod cond;
mod layout;
mod mutex;
mod real;

/// The lock that takes the place of a mutex.
#[cfg(not(feature = "slice_extension"))]
type Lock = holdfast_threads::RawHybrid;
/// The lock that takes the place of a mutex. Its holder asks the kernel for more time.
#[cfg(feature = "slice_extension")]
type Lock = holdfast_threads::Extended<holdfast_threads::RawHybrid>;

extern "C" fn prepare() {
    real::look_up_all();
    // Of this library only. A function takes no memory.
    std::panic::set_hook(Box::new(panicked));
    #[cfg(feature = "slice_extension")]
    holdfast_threads::has_slice_extension();
}

/// Ends the process with a message in one line: a panic is a mutex unlocked that is not locked, or a fault of ours.
fn panicked(info: &std::panic::PanicHookInfo<'_>) {
    // A constant message is a `&str`, any other one a `String`.
    let payload = info.payload();
    let constant = payload.downcast_ref::<&str>().copied();
    let message = constant.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let message = message.unwrap_or("a panic");
    let function = if message.starts_with("cannot unlock") {
        "pthread_mutex_unlock: "
    } else {
        ""
    };
    let (mut text, end) = ([0_u8; 512], 511);
    let mut rest = &mut text[..end];
    // A longer message is cut off.
    let _ = write!(rest, "holdfast: {function}{message}");
    let bytes = end - rest.len();
    text[bytes] = b'\n';
    // SAFETY: the text has so many bytes, and the newline.
    unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), bytes + 1) };
    // SAFETY: the function has no preconditions.
    unsafe { libc::abort() }
}

/// Calls [`prepare`] when the library is loaded, before the program runs.
// SAFETY: the section holds addresses of functions without arguments, and this is one.
#[used]
#[unsafe(link_section = ".init_array.00101")]
static AT_LOAD: extern "C" fn() = prepare;
