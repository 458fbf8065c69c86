//! Ctrl-C, SIGTERM and SIGHUP: the first one ends the work and keeps what is finished. A second Ctrl-C or a second
//! SIGTERM ends the program.

use std::fs;
use std::process;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};
#[cfg(feature = "real-host")]
use std::sync::{Mutex, PoisonError};
use std::thread;

use holdfast_lab::run::CallOff;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::error::{Error, Result};
use crate::output::say;

static CALL_OFF: CallOff = CallOff::new();

/// The signal that called the work off.
static SIGNAL: AtomicU8 = AtomicU8::new(SIGINT as u8);

/// Returns the exit status of a program that the signal ended, as shells report it: 130 for Ctrl-C.
pub fn interrupted() -> u8 {
    128 + SIGNAL.load(Ordering::Relaxed)
}

/// Returns the flag that the signals set. The first call installs the handler.
pub fn call_off() -> Result<&'static CallOff> {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    if INSTALLED.set(()).is_ok() {
        let mut wanted = vec![SIGINT, SIGTERM];
        // A program under nohup outlives its terminal.
        if !is_ignored(SIGHUP) {
            wanted.push(SIGHUP);
        }
        let failed = || Error::of("cannot install the handler for Ctrl-C");
        let mut signals = Signals::new(wanted).map_err(failed())?;
        let listen = move || signals.forever().for_each(called);
        thread::Builder::new().spawn(listen).map_err(failed())?;
    }
    Ok(&CALL_OFF)
}

/// What a second signal does before it ends the program.
#[cfg(feature = "real-host")]
static AT_EXIT: Mutex<Option<Box<dyn Fn() + Send>>> = Mutex::new(None);

/// Lets a second signal do `this` before it ends the program. The work itself is not ended, so it may go on meanwhile.
#[cfg(feature = "real-host")]
pub fn at_exit(this: impl Fn() + Send + 'static) {
    *AT_EXIT.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(this));
}

/// Takes back what [`at_exit`] has set. Does not return if a second signal does it just now: that ends the program, and
/// what the work has met since is no error of its own.
#[cfg(feature = "real-host")]
pub fn forget_at_exit() {
    *AT_EXIT.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

/// Lets the signals that would end the program call the work off as well. Those that report a fault of the program are
/// not among them.
#[cfg(feature = "real-host")]
pub fn call_off_by_all() -> Result<()> {
    use signal_hook::consts::{SIGALRM, SIGQUIT, SIGUSR1, SIGUSR2, SIGVTALRM, SIGXCPU};
    call_off()?;
    let failed = || Error::of("cannot install the handler for signals");
    let mut signals = Signals::new([SIGALRM, SIGQUIT, SIGUSR1, SIGUSR2, SIGVTALRM, SIGXCPU]).map_err(failed())?;
    let listen = move || signals.forever().for_each(called);
    thread::Builder::new().spawn(listen).map_err(failed())?;
    Ok(())
}

/// Handles `signal`.
fn called(signal: i32) {
    if CALL_OFF.call() {
        SIGNAL.store(signal as u8, Ordering::Relaxed);
        say!("\ninterrupted: keeping what is finished (press Ctrl-C again to stop at once)");
        return;
    }
    // SIGHUP comes twice, from the terminal and from the shell, and after the SIGTERM of some service managers.
    let first = i32::from(SIGNAL.load(Ordering::Relaxed));
    if signal == SIGINT || (signal == SIGTERM && first == SIGTERM) {
        // Held until the program has ended: see `forget_at_exit`.
        #[cfg(feature = "real-host")]
        let at_exit = AT_EXIT.lock().unwrap_or_else(PoisonError::into_inner);
        #[cfg(feature = "real-host")]
        if let Some(this) = &*at_exit {
            this();
        }
        process::exit(i32::from(interrupted()));
    }
}

/// Returns whether the parent process made this one ignore `signal`. Returns `false` where only Linux knows.
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}
