//! What a program adds to the names that experiments use.

use std::sync::LazyLock;

use holdfast_locks::LockKind;
pub use holdfast_sim::SimLock;
use holdfast_sim::lock_kind;

/// The names that a program adds, by types of its own. Small, and never freed: a program makes one, at its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extensions {
    /// The locks that guests can have, those of the crate `locks` first.
    pub locks: &'static [LockKind],
}

impl Extensions {
    /// Nothing but the locks of `locks`.
    pub const NONE: Extensions = Extensions { locks: LockKind::ALL };

    /// Returns what the shipped command has: the locks of `locks`, and those of `locks/history`.
    pub fn shipped() -> Extensions {
        macro_rules! added {
            ([] $($module:ident: $kind:ident = $name:literal,)+) => {
                Extensions::NONE$(.lock::<holdfast_history::$kind>($name))+
            };
        }
        static SHIPPED: LazyLock<Extensions> = LazyLock::new(|| holdfast_history::for_each_historic_lock!(added));
        *SHIPPED
    }

    /// Adds the lock `L`, which experiments call `name`.
    ///
    /// # Panics
    /// If a lock of that name is known, or if the lock that `L` names in
    /// [`WITHOUT_KICKS`](holdfast_locks::Described::WITHOUT_KICKS) is not.
    #[must_use]
    #[track_caller]
    pub fn lock<L: SimLock>(self, name: &'static str) -> Extensions {
        let mut locks = self.locks.to_vec();
        locks.push(lock_kind::<L>(name, self.locks));
        Extensions { locks: locks.leak() }
    }

    /// Says of each lock where it comes from, and how many CPUs it is for.
    pub(crate) fn about_locks(&self) -> String {
        let about = |kind: &LockKind| {
            let description = kind.description();
            let cpus = match description.cpus_max {
                u32::MAX => String::new(),
                most => format!(", for up to {most} CPUs"),
            };
            format!("\"{kind}\": {}{cpus}.", description.origin)
        };
        self.locks.iter().map(about).collect::<Vec<_>>().join(" ")
    }
}

impl Default for Extensions {
    fn default() -> Self {
        Extensions::shipped()
    }
}
