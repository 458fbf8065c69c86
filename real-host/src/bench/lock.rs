//! One interface for the locks of all libraries.

use lock_api::RawMutex;

/// A lock around a counter.
pub trait Lock: Sync + Sized {
    /// Creates a free lock.
    fn new() -> Self;
    /// Runs `section` with the lock held.
    fn with<T>(&self, section: impl FnOnce(&mut u64) -> T) -> T;
}

impl<R: RawMutex + Sync> Lock for lock_api::Mutex<R, u64> {
    fn new() -> Self {
        Self::new(0)
    }
    #[inline]
    fn with<T>(&self, section: impl FnOnce(&mut u64) -> T) -> T {
        section(&mut self.lock())
    }
}

impl Lock for std::sync::Mutex<u64> {
    fn new() -> Self {
        Self::new(0)
    }
    #[inline]
    fn with<T>(&self, section: impl FnOnce(&mut u64) -> T) -> T {
        // The usual code of users. The sections do not panic, so the lock is never poisoned.
        section(&mut self.lock().expect("no section panics"))
    }
}

impl Lock for usync::Mutex<u64> {
    fn new() -> Self {
        usync::const_mutex(0)
    }
    #[inline]
    fn with<T>(&self, section: impl FnOnce(&mut u64) -> T) -> T {
        section(&mut self.lock())
    }
}

impl Lock for spin::mutex::SpinMutex<u64> {
    fn new() -> Self {
        Self::new(0)
    }
    #[inline]
    fn with<T>(&self, section: impl FnOnce(&mut u64) -> T) -> T {
        section(&mut self.lock())
    }
}

impl Lock for spin::mutex::TicketMutex<u64> {
    fn new() -> Self {
        Self::new(0)
    }
    #[inline]
    fn with<T>(&self, section: impl FnOnce(&mut u64) -> T) -> T {
        section(&mut self.lock())
    }
}

impl Lock for mcslock::raw::spins::Mutex<u64> {
    fn new() -> Self {
        Self::new(0)
    }
    #[inline]
    fn with<T>(&self, section: impl FnOnce(&mut u64) -> T) -> T {
        let mut node = mcslock::raw::MutexNode::new();
        self.lock_with_then(&mut node, section)
    }
}
