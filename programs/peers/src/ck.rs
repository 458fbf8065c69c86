//! The default spinlock (fetch-and-store) and the ticket lock of Concurrency Kit. They are function calls here, not
//! inlined as in C.
//!
//! The types exist even if the library was not installed at compile time, so that users need no `cfg`; see
//! [`INSTALLED`].

#![expect(unsafe_code, reason = "calls C, and vouches for the exclusion of C's locks")]

use core::cell::UnsafeCell;

use lock_api::{GuardNoSend, RawMutex};

/// Whether Concurrency Kit was installed at compile time. If not, these locks panic when locked.
pub const INSTALLED: bool = cfg!(concurrency_kit);

macro_rules! spinlocks {
    ($($(#[$doc:meta])* $name:ident([$word:ty; $words:literal]) =
        $lock:ident, $trylock:ident, $unlock:ident, $locked:ident;)+) => {$(
        $(#[$doc])*
        #[repr(C)]
        pub struct $name(UnsafeCell<[$word; $words]>);

        #[cfg(concurrency_kit)]
        unsafe extern "C" {
            fn $lock(lock: *mut [$word; $words]);
            fn $trylock(lock: *mut [$word; $words]) -> u8;
            fn $unlock(lock: *mut [$word; $words]);
            fn $locked(lock: *mut [$word; $words]) -> u8;
        }

        #[cfg(not(concurrency_kit))]
        use missing::{$lock, $locked, $trylock, $unlock};

        // SAFETY: the library's lock is made for use by several threads at the same time.
        unsafe impl Sync for $name {}

        // SAFETY: the library promises exclusion, and keeps no address of a lock that no thread waits for.
        unsafe impl RawMutex for $name {
            const INIT: Self = $name(UnsafeCell::new([0; $words]));

            type Guard = GuardNoSend;

            #[inline]
            fn lock(&self) -> GuardNoSend {
                // SAFETY: zero, as initialized by `INIT`, is an unlocked lock.
                unsafe { $lock(self.0.get()) };
                GuardNoSend::new()
            }

            #[inline]
            fn try_lock(&self) -> Option<GuardNoSend> {
                // SAFETY: as for `lock`.
                let taken = unsafe { $trylock(self.0.get()) };
                (taken != 0).then(GuardNoSend::new)
            }

            #[inline]
            unsafe fn unlock(&self, _guard: GuardNoSend) {
                // SAFETY: the caller holds the lock.
                unsafe { $unlock(self.0.get()) };
            }

            fn is_locked(&self) -> bool {
                // SAFETY: as for `lock`.
                unsafe { $locked(self.0.get()) != 0 }
            }
        }
    )+};
}

spinlocks! {
    /// The fetch-and-store lock, `ck_spinlock_fas_t`.
    FasSpinlock([u32; 1]) =
        holdfast_ck_fas_lock, holdfast_ck_fas_trylock, holdfast_ck_fas_unlock, holdfast_ck_fas_locked;
    /// The ticket lock, `ck_spinlock_ticket_t`.
    TicketSpinlock([u32; 2]) =
        holdfast_ck_ticket_lock, holdfast_ck_ticket_trylock, holdfast_ck_ticket_unlock, holdfast_ck_ticket_locked;
}

/// Stands for the library's functions if it is not installed.
#[cfg(not(concurrency_kit))]
mod missing {
    macro_rules! missing {
        ($($name:ident)+) => {$(
            pub(super) unsafe fn $name<T>(_lock: *mut T) -> u8 {
                panic!("Concurrency Kit was not installed when this program was compiled");
            }
        )+};
    }
    missing!(
        holdfast_ck_fas_lock holdfast_ck_fas_trylock holdfast_ck_fas_unlock holdfast_ck_fas_locked
        holdfast_ck_ticket_lock holdfast_ck_ticket_trylock holdfast_ck_ticket_unlock holdfast_ck_ticket_locked
    );
}
