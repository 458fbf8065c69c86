//! The list of lock kinds, and a lock whose kind is chosen at boot.

use alloc::boxed::Box;
use core::fmt;
use core::str::FromStr;

use crate::cpu::paravirt::Paravirt;
use crate::cpu::platform::{Platform, Word};
use crate::cpu::queue::Nodes;
use crate::raw::{Described, Description, Instead, RawLock};
use crate::spin::registered::{OperationsOfSome, Registered};

/// Calls the macro `$callback` with the list of all [`LockKind`]s, which is written here and nowhere else.
///
/// The callback gets the caller's own arguments in brackets, then for each kind an identifier for modules and
/// functions, the name of its type, and its name in results. Tests of every lock, and tables with a row for each, are
/// made this way: a new lock is in them as soon as it is in this list.
///
/// ```
/// macro_rules! count_locks {
///     ([] $($module:ident: $kind:ident = $name:literal,)+) => { [$($name),+].len() };
/// }
/// let count = holdfast_locks::for_each_lock_kind!(count_locks);
/// assert_eq!(count, holdfast_locks::LockKind::ALL.len());
/// ```
#[macro_export]
macro_rules! for_each_lock_kind {
    ($callback:ident $($argument:tt)*) => {
        $callback! {
            [$($argument)*]
            tas: Tas = "tas",
            ttas: Ttas = "ttas",
            ticket: Ticket = "ticket",
            pv_ticket: PvTicket = "pv-ticket",
            qspin: Qspin = "qspin",
            pv_qspin: PvQspin = "pv-qspin",
            unfair_qspin: UnfairQspin = "unfair-qspin",
            unfair_pv_qspin: UnfairPvQspin = "unfair-pv-qspin",
            hybrid_pv_qspin: HybridPvQspin = "hybrid-pv-qspin",
            wide_qspin: WideQspin = "wide-qspin",
            wide_pv_qspin: WidePvQspin = "wide-pv-qspin",
        }
    };
}

/// Defines [`LockKind`].
macro_rules! kinds {
    ([] $($module:ident: $kind:ident = $name:literal,)+) => {
        /// A spinlock algorithm. Each kind works on one word, which is zero while the lock is free.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum LockKind {
            $(#[doc = concat!("The algorithm [`", stringify!($kind), "`](crate::", stringify!($kind), ").")] $kind,)+
            /// A lock from another crate.
            Registered(&'static Registered<LockKind>),
        }

        impl LockKind {
            /// Every kind of this crate.
            pub const ALL: &[LockKind] = &[$(LockKind::$kind),+];

            /// Returns the kind's name in results, on the command line and in experiments.
            pub const fn name(self) -> &'static str {
                match self {
                    $(LockKind::$kind => $name,)+
                    LockKind::Registered(lock) => lock.name,
                }
            }
        }
    };
}

for_each_lock_kind!(kinds);

/// Evaluates `$body` with `$algorithm` standing for the type of the kind `$which`, or `$other` with `$lock` standing
/// for the lock from another crate.
macro_rules! with_algorithm {
    ($which:expr, $algorithm:ident => $body:expr, $lock:ident => $other:expr) => {
        $crate::for_each_lock_kind!(match_kind $which, $algorithm, $body, $lock, $other)
    };
}
pub(crate) use with_algorithm;

macro_rules! match_kind {
    ([$which:expr, $algorithm:ident, $body:expr, $lock:ident, $other:expr] $($module:ident: $kind:ident = $name:literal,)+) => {
        match $which {
            $($crate::LockKind::$kind => {
                type $algorithm = $crate::$kind;
                $body
            })+
            $crate::LockKind::Registered($lock) => $other,
        }
    };
}
pub(crate) use match_kind;

impl LockKind {
    /// Returns what the lock states of itself.
    pub const fn description(self) -> Description {
        with_algorithm!(self, L => Description::of::<L>(), lock => lock.description)
    }

    /// Returns whether waiters are always served in the order of their arrival.
    pub const fn is_fifo(self) -> bool {
        self.description().is_fifo
    }

    /// Returns whether a waiter halts once it has spun for long enough, and the unlocker kicks it.
    pub const fn halts(self) -> bool {
        self.description().halts
    }

    /// Returns whether a CPU kicks others, which needs a host: because they have halted, or because they seem absent.
    pub const fn kicks(self) -> bool {
        self.description().kicks
    }

    /// Returns whether the word holds tickets; see [`Described::DRAWS_TICKETS`](crate::Described::DRAWS_TICKETS).
    pub const fn draws_tickets(self) -> bool {
        self.description().draws_tickets
    }

    /// Returns on how many CPUs the lock excludes; see [`Described::CPUS_MAX`](crate::Described::CPUS_MAX).
    pub const fn cpus_max(self) -> u32 {
        self.description().cpus_max
    }

    /// Returns whether no unlock accesses the word after it has released the lock, so that the next holder may free the
    /// lock at once.
    pub const fn may_be_freed_at_once(self) -> bool {
        self.description().may_be_freed_at_once
    }

    /// Returns which lock a kernel takes instead on a host that kicks no CPUs; `None` if this lock kicks none.
    pub fn without_kicks(self) -> Option<LockKind> {
        match (self, self.description().without_kicks) {
            (LockKind::Registered(lock), _) => lock.without_kicks,
            (_, Instead::Itself) => None,
            (_, Instead::Native(name) | Instead::Unfair(name)) => name.parse().ok(),
        }
    }
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

impl fmt::Display for LockKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The error for a name that no lock has. Its message lists the names of all locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownLock;

impl fmt::Display for UnknownLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no such lock; expected one of")?;
        for (index, kind) in LockKind::ALL.iter().enumerate() {
            write!(f, "{}{kind}", if index == 0 { " " } else { ", " })?;
        }
        Ok(())
    }
}

impl core::error::Error for UnknownLock {}

impl FromStr for LockKind {
    type Err = UnknownLock;

    fn from_str(name: &str) -> Result<Self, UnknownLock> {
        LockKind::ALL
            .iter()
            .copied()
            .find(|kind| kind.name() == name)
            .ok_or(UnknownLock)
    }
}

/// A lock whose algorithm is an argument of each call: a kernel chooses it once, at boot.
///
/// All calls for one lock must be given the same [`LockKind`], or the lock does not exclude. The lock carries no data,
/// so all calls are safe. A type that protects data with it must keep the lock private.
///
/// ```
/// use holdfast_locks::{BootLock, LockKind, Nodes, Paravirt, Platform};
///
/// fn with<P: Nodes + Paravirt + 'static>(cpu: &P, kind: LockKind, lock: &BootLock<P::Word>, body: impl FnOnce()) {
///     lock.lock(kind, cpu);
///     body();
///     lock.unlock(kind, cpu);
/// }
/// ```
#[derive(Debug, Default)]
pub struct BootLock<W> {
    word: W,
}

impl<W> BootLock<W> {
    /// Makes a lock over `word`, which must be zero. Usable in a `static`.
    pub const fn from_word(word: W) -> Self {
        BootLock { word }
    }

    /// Makes an unlocked lock.
    pub fn new() -> Self
    where
        W: Word<u32>,
    {
        BootLock { word: W::new(0) }
    }

    /// Returns the word, by which tracepoints name a lock. The caller must not write it.
    pub fn word(&self) -> &W {
        &self.word
    }

    /// Waits until this CPU holds the lock.
    #[inline]
    pub fn lock<P>(&self, kind: LockKind, cpu: &P)
    where
        P: Nodes + Paravirt + Platform<Word = W> + 'static,
    {
        with_algorithm!(kind, L => L::lock(cpu, &self.word), lock => (lock.on::<P>().lock)(cpu, &self.word))
    }

    /// Takes the lock if that needs no waiting. Returns whether this CPU now holds it.
    #[inline]
    pub fn try_lock<P>(&self, kind: LockKind, cpu: &P) -> bool
    where
        P: Nodes + Paravirt + Platform<Word = W> + 'static,
    {
        with_algorithm!(kind, L => L::try_lock(cpu, &self.word), lock => (lock.on::<P>().try_lock)(cpu, &self.word))
    }

    /// Releases the lock, which this CPU must hold: otherwise the lock no longer excludes. The next holder may free the
    /// lock before this call returns, if its kind [may be freed at once](LockKind::may_be_freed_at_once).
    #[inline]
    pub fn unlock<P>(&self, kind: LockKind, cpu: &P)
    where
        P: Nodes + Paravirt + Platform<Word = W> + 'static,
    {
        with_algorithm!(kind, L => L::unlock(cpu, &self.word), lock => (lock.on::<P>().unlock)(cpu, &self.word))
    }

    /// Returns whether a CPU held the lock at some moment during the call.
    pub fn is_locked<P>(&self, kind: LockKind, cpu: &P) -> bool
    where
        P: Nodes + Paravirt + Platform<Word = W> + 'static,
    {
        with_algorithm!(kind, L => L::is_locked(cpu, &self.word), lock => (lock.on::<P>().is_locked)(cpu, &self.word))
    }

    /// Returns whether a CPU waited for the lock at some moment during the call. Always `false` for kinds whose word
    /// does not show waiters.
    pub fn is_contended<P>(&self, kind: LockKind, cpu: &P) -> bool
    where
        P: Nodes + Paravirt + Platform<Word = W> + 'static,
    {
        with_algorithm!(kind, L => L::is_contended(cpu, &self.word), lock => (lock.on::<P>().is_contended)(cpu, &self.word))
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn names_lead_back_to_their_kinds() {
        for &kind in LockKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        assert_eq!("mcs".parse::<LockKind>(), Err(UnknownLock));
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        assert_eq!(
            UnknownLock.to_string(),
            "no such lock; expected one of tas, ttas, ticket, pv-ticket, qspin, pv-qspin, unfair-qspin, \
             unfair-pv-qspin, hybrid-pv-qspin, wide-qspin, wide-pv-qspin"
        );
    }
}
