//! Concurrency Kit: its default spinlock (fetch-and-store) and its ticket lock. Calls, not inlined as in C.

#![expect(unsafe_code, reason = "calls C, and vouches for the exclusion of C's locks")]

use core::cell::UnsafeCell;
use core::ffi::c_uchar;

use lock_api::{GuardNoSend, RawMutex};

macro_rules! spinlocks {
    ($($(#[$doc:meta])* $name:ident([$word:ty; $words:literal]) =
        $lock:ident, $trylock:ident, $unlock:ident, $locked:ident;)+) => {$(
        $(#[$doc])*
        #[repr(C)]
        pub struct $name(UnsafeCell<[$word; $words]>);

        unsafe extern "C" {
            fn $lock(lock: *mut [$word; $words]);
            fn $trylock(lock: *mut [$word; $words]) -> c_uchar;
            fn $unlock(lock: *mut [$word; $words]);
            fn $locked(lock: *mut [$word; $words]) -> c_uchar;
        }

        // SAFETY: made to be used by several threads at the same time.
        unsafe impl Sync for $name {}

        // SAFETY: the library promises exclusion. Nothing remembers where a lock is that nobody waits for.
        unsafe impl RawMutex for $name {
            const INIT: Self = $name(UnsafeCell::new([0; $words]));

            type Guard = GuardNoSend;

            #[inline]
            fn lock(&self) -> GuardNoSend {
                // SAFETY: all zero, as initialised by `INIT`, is a free lock.
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
                // SAFETY: the caller holds it.
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
    /// `ck_spinlock_fas_t`.
    FasSpinlock([u32; 1]) =
        holdfast_ck_fas_lock, holdfast_ck_fas_trylock, holdfast_ck_fas_unlock, holdfast_ck_fas_locked;
    /// `ck_spinlock_ticket_t`.
    TicketSpinlock([u32; 2]) =
        holdfast_ck_ticket_lock, holdfast_ck_ticket_trylock, holdfast_ck_ticket_unlock, holdfast_ck_ticket_locked;
}
