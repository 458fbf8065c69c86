//! The traits of lock algorithms: of spinlocks, which operate on one word, and of reader-writer locks.
//!
//! A lock stores nothing but its word. So an algorithm is a type without values, such as [`Ticket`](crate::Ticket). The
//! bounds of its implementation state what it needs from the CPU: [`Platform`], [`Nodes`](crate::Nodes),
//! [`Paravirt`](crate::Paravirt).

use crate::cpu::platform::Platform;

/// What a spinlock algorithm is like, on any CPU. Each algorithm states all of it: tests and documents read it here.
pub trait Described {
    /// Whether waiters are always served in the order of their arrival.
    const FIFO: bool;
    /// Whether a waiter halts once it has spun for long enough, and the unlocker kicks it.
    const HALTS: bool;
    /// Whether a CPU kicks others, which needs a host: because they have halted, or because they seem absent.
    const KICKS: bool;
    /// What a kernel takes instead on a host that kicks no CPUs.
    const WITHOUT_KICKS: Instead;
    /// Whether the word holds tickets, which wrap: bits 0-15 are the ticket being served, bits 16-31 the next one to
    /// draw. In some of these locks bit 0 or bit 16 is a flag and tickets advance by 2.
    const DRAWS_TICKETS: bool;
    /// On how many CPUs the lock excludes: how many its word can tell apart, or how many tickets it has.
    ///
    /// On a CPU with a greater number a queued lock panics. With more waiters than tickets a lock no longer excludes.
    const CPUS_MAX: u32;
    /// Whether no unlock accesses the word after it has released the lock, so that the next holder may free the lock at
    /// once.
    const MAY_BE_FREED_AT_ONCE: bool;
    /// Which kernels have the lock, or where it was proposed.
    const ORIGIN: &'static str;
}

/// What a kernel takes instead of a lock on a host that kicks no CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instead {
    /// The lock itself, which kicks none.
    Itself,
    /// The lock of this name where kicks bring nothing, and [`Ttas`](crate::Ttas) where the host does not offer them.
    Native(&'static str),
    /// The lock of this name, which is as unfair.
    Unfair(&'static str),
}

/// What a lock states of itself by [`Described`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "a row of a table")]
pub struct Description {
    /// The value of [`Described::FIFO`].
    pub is_fifo: bool,
    /// The value of [`Described::HALTS`].
    pub halts: bool,
    /// The value of [`Described::KICKS`].
    pub kicks: bool,
    /// The value of [`Described::WITHOUT_KICKS`].
    pub without_kicks: Instead,
    /// The value of [`Described::DRAWS_TICKETS`].
    pub draws_tickets: bool,
    /// The value of [`Described::CPUS_MAX`].
    pub cpus_max: u32,
    /// The value of [`Described::MAY_BE_FREED_AT_ONCE`].
    pub may_be_freed_at_once: bool,
    /// The value of [`Described::ORIGIN`].
    pub origin: &'static str,
}

impl Description {
    /// Returns what `L` states.
    pub const fn of<L: Described>() -> Description {
        Description {
            is_fifo: L::FIFO,
            halts: L::HALTS,
            kicks: L::KICKS,
            without_kicks: L::WITHOUT_KICKS,
            draws_tickets: L::DRAWS_TICKETS,
            cpus_max: L::CPUS_MAX,
            may_be_freed_at_once: L::MAY_BE_FREED_AT_ONCE,
            origin: L::ORIGIN,
        }
    }
}

/// A spinlock algorithm over one word of `P`. A word of zero is an unlocked lock.
///
/// All operations on one word must use the same algorithm. The operations are safe to call: if a CPU unlocks a word
/// that it does not hold, the lock no longer excludes, and nothing else breaks. [`SpinLock`](crate::SpinLock) therefore
/// keeps its word private.
pub trait RawLock<P: Platform>: Described {
    /// Waits until the caller holds the lock.
    fn lock(cpu: &P, word: &P::Word);
    /// Takes the lock if that needs no waiting. Returns whether the caller now holds the lock.
    fn try_lock(cpu: &P, word: &P::Word) -> bool;
    /// Releases the lock, which the caller must hold. Never accesses `word` after the store that releases the lock: by
    /// then another CPU may have freed its memory.
    fn unlock(cpu: &P, word: &P::Word);
    /// Returns whether a CPU held the lock at some moment during the call.
    fn is_locked(cpu: &P, word: &P::Word) -> bool;
    /// Returns whether a CPU waited for the lock at some moment during the call. Always `false` if the word does not
    /// show waiters.
    fn is_contended(cpu: &P, word: &P::Word) -> bool;
}

/// A reader-writer lock of `P`. As with [`RawLock`], only the calls of CPUs that hold it make sense.
pub trait RawRwlock<P: Platform> {
    /// Makes an unlocked lock.
    fn unlocked() -> Self;
    /// Waits until the caller holds the lock together with other readers.
    fn lock_shared(&self, cpu: &P);
    /// Releases the lock, which the caller must hold as a reader.
    fn unlock_shared(&self, cpu: &P);
    /// Waits until the caller alone holds the lock.
    fn lock_exclusive(&self, cpu: &P);
    /// Releases the lock, which the caller must hold as the writer.
    fn unlock_exclusive(&self, cpu: &P);
    /// Returns whether a CPU held the lock, or tried to take it, at some moment during the call.
    fn is_locked(&self, cpu: &P) -> bool;
}

/// A reader-writer lock that can be taken without waiting, and whose writer can become a reader.
pub trait TryRwlock<P: Platform>: RawRwlock<P> {
    /// Takes the lock together with other readers if that needs no waiting. Returns whether the caller now holds it.
    fn try_lock_shared(&self, cpu: &P) -> bool;
    /// Takes the lock alone if that needs no waiting. Returns whether the caller now holds it.
    fn try_lock_exclusive(&self, cpu: &P) -> bool;
    /// Makes the writer, which the caller must be, a reader: no other writer gets the lock in between.
    fn downgrade(&self, cpu: &P);
}

/// Implements [`RawRwlock`] by the methods of the same names.
macro_rules! forward_rwlock {
    ($lock:ident) => {
        fn unlocked() -> Self {
            Self::new()
        }

        fn lock_shared(&self, cpu: &P) {
            $lock::lock_shared(self, cpu);
        }

        fn unlock_shared(&self, cpu: &P) {
            $lock::unlock_shared(self, cpu);
        }

        fn lock_exclusive(&self, cpu: &P) {
            $lock::lock_exclusive(self, cpu);
        }

        fn unlock_exclusive(&self, cpu: &P) {
            $lock::unlock_exclusive(self, cpu);
        }

        fn is_locked(&self, cpu: &P) -> bool {
            $lock::is_locked(self, cpu)
        }
    };
}
pub(crate) use forward_rwlock;

/// Implements [`TryRwlock`] by the methods of the same names.
macro_rules! forward_try_rwlock {
    ($lock:ident) => {
        fn try_lock_shared(&self, cpu: &P) -> bool {
            $lock::try_lock_shared(self, cpu)
        }

        fn try_lock_exclusive(&self, cpu: &P) -> bool {
            $lock::try_lock_exclusive(self, cpu)
        }

        fn downgrade(&self, cpu: &P) {
            $lock::downgrade(self, cpu);
        }
    };
}
pub(crate) use forward_try_rwlock;
