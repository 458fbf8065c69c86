//! The platform keeps the contract of its traits; the locks keep theirs on it.

mod conformance;
mod slots;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// CPU numbers belong to the process, so tests that name one take turns.
fn numbers() -> MutexGuard<'static, ()> {
    static NUMBERS: Mutex<()> = Mutex::new(());
    NUMBERS.lock().unwrap_or_else(PoisonError::into_inner)
}
