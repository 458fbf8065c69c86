//! Locks of other crates: as values, so that a kernel can be given one by name at boot.
//!
//! A lock is an algorithm for any CPU, and a value can hold it for known CPUs only. So a simulator makes the
//! [`Operations`] for its CPUs from the algorithm, and [`LockKind::Registered`](crate::LockKind::Registered) carries
//! them to where the lock is used.

use core::any::{Any, type_name};
use core::cmp::Ordering;
use core::fmt;
use core::hash::{Hash, Hasher};

use crate::cpu::platform::Platform;
use crate::raw::{Description, RawLock};

/// The operations of a lock on the CPU `P`.
pub struct Operations<P: Platform> {
    pub(crate) lock: fn(&P, &P::Word),
    pub(crate) try_lock: fn(&P, &P::Word) -> bool,
    pub(crate) unlock: fn(&P, &P::Word),
    pub(crate) is_locked: fn(&P, &P::Word) -> bool,
    pub(crate) is_contended: fn(&P, &P::Word) -> bool,
}

impl<P: Platform> Operations<P> {
    /// Returns those of `L`.
    pub const fn of<L: RawLock<P>>() -> Self {
        Operations {
            lock: L::lock,
            try_lock: L::try_lock,
            unlock: L::unlock,
            is_locked: L::is_locked,
            is_contended: L::is_contended,
        }
    }
}

impl<P: Platform> fmt::Debug for Operations<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operations").finish_non_exhaustive()
    }
}

/// [`Operations`] for some CPU.
pub type OperationsOfSome = dyn Any + Send + Sync;

/// A lock of another crate, with its name and its operations. `K` is the type of the kinds of locks.
pub struct Registered<K> {
    pub(crate) name: &'static str,
    pub(crate) description: Description,
    pub(crate) without_kicks: Option<K>,
    /// One for each type of CPU.
    pub(crate) operations: &'static [&'static OperationsOfSome],
}

impl<K> Registered<K> {
    /// Returns the operations on the CPU `P`.
    #[track_caller]
    pub(crate) fn on<P: Platform + 'static>(&self) -> &'static Operations<P> {
        let found = self.operations.iter().find_map(|each| each.downcast_ref());
        found.unwrap_or_else(|| panic!("the lock {} has no operations for {}", self.name, type_name::<P>()))
    }
}

// A lock is its name.

impl<K> fmt::Debug for Registered<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl<K> PartialEq for Registered<K> {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl<K> Eq for Registered<K> {}

impl<K> PartialOrd for Registered<K> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<K> Ord for Registered<K> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.name.cmp(other.name)
    }
}

impl<K> Hash for Registered<K> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}
