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

/// Implements [`Lock`] for mutexes with a guard and without poisoning. `$free` is a free one.
macro_rules! guarded {
    ($($mutex:ty: $free:expr;)*) => {$(
        impl Lock for $mutex {
            fn new() -> Self {
                $free
            }
            #[inline]
            fn with<T>(&self, section: impl FnOnce(&mut u64) -> T) -> T {
                section(&mut self.lock())
            }
        }
    )*};
}

guarded! {
    usync::Mutex<u64>: usync::const_mutex(0);
    spin::mutex::SpinMutex<u64>: Self::new(0);
    spin::mutex::TicketMutex<u64>: Self::new(0);
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
