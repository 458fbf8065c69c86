//! Locks of other crates: as values, so that a kernel can be given one by name at boot.
//!
//! A lock is an algorithm for any CPU, and a value can hold it for known CPUs only. So a simulator makes the
//! [`Operations`] for its CPUs from the algorithm, and [`LockKind::Registered`] carries them to where the lock is used.

use alloc::boxed::Box;
use core::any::{Any, type_name};
use core::cmp::Ordering;
use core::fmt;
use core::hash::{Hash, Hasher};

use crate::cpu::platform::Platform;
use crate::raw::{Described, Description, Instead, RawLock};
use crate::spin::kind::LockKind;

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

/// A lock of another crate, with its name and its operations.
pub struct Registered {
    pub(crate) name: &'static str,
    pub(crate) description: Description,
    pub(crate) without_kicks: Option<LockKind>,
    /// One for each type of CPU.
    operations: &'static [&'static OperationsOfSome],
}

impl LockKind {
    /// Makes a kind of the lock `L`, which is called `name` and has these `operations`. `known` are the kinds among
    /// which is what a kernel takes instead of a lock that kicks, if the host kicks no CPUs.
    ///
    /// A kind is never freed: a program makes one for each of its locks, at its start.
    ///
    /// # Panics
    /// If `known` lacks that lock, or has one that is called `name`.
    #[track_caller]
    pub fn registered<L: Described>(
        name: &'static str,
        operations: &'static [&'static OperationsOfSome],
        known: &[LockKind],
    ) -> LockKind {
        let find = |name: &str| known.iter().copied().find(|kind| kind.name() == name);
        assert!(find(name).is_none(), "two locks are called {name}");
        let without_kicks = match L::WITHOUT_KICKS {
            Instead::Itself => None,
            Instead::Native(other) | Instead::Unfair(other) => {
                let found = find(other);
                assert!(found.is_some(), "{name} needs {other}, which must be registered before");
                found
            }
        };
        LockKind::Registered(Box::leak(Box::new(Registered {
            name,
            description: Description::of::<L>(),
            without_kicks,
            operations,
        })))
    }
}

impl Registered {
    /// Returns the operations on the CPU `P`.
    #[track_caller]
    pub(crate) fn on<P: Platform + 'static>(&self) -> &'static Operations<P> {
        let found = self.operations.iter().find_map(|each| each.downcast_ref());
        found.unwrap_or_else(|| panic!("the lock {} has no operations for {}", self.name, type_name::<P>()))
    }
}

// A lock is its name.

impl fmt::Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Registered {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Registered {}

impl PartialOrd for Registered {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Registered {
    fn cmp(&self, other: &Self) -> Ordering {
        self.name.cmp(other.name)
    }
}

impl Hash for Registered {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}
