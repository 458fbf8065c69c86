//! Reader-writer locks.

pub(crate) mod biased_rwlock;
pub(crate) mod qrwlock;
pub(crate) mod readers;

pub use biased_rwlock::BiasedRwlock;
pub use qrwlock::{BootRwlock, Qrwlock, READERS_MAX};
pub use readers::{ReaderLine, Readers};
