//! Reader-writer locks.

pub(crate) mod biased_rwlock;
pub(crate) mod boot_rwlock;
pub(crate) mod qrwlock;
pub(crate) mod readers;
pub(crate) mod unqueued_rwlock;

pub use biased_rwlock::BiasedRwlock;
pub use boot_rwlock::BootRwlock;
pub use qrwlock::{Qrwlock, READERS_MAX};
pub use readers::{ReaderLine, Readers};
pub use unqueued_rwlock::UnqueuedRwlock;
