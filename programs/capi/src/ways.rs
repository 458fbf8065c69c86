//! The functions by which a lock is held in some way: alone, or together with other readers.

/// Defines the functions to take a lock in one way, to try it, to try it until a deadline, and to release it.
macro_rules! way {
    (
        $type:ty, $how:literal, ($access:expr):
        $lock:ident = $raw_lock:ident,
        $try_lock:ident = $raw_try_lock:ident,
        $timed_lock:ident = $raw_try_lock_until:ident,
        $unlock:ident = $raw_unlock:ident
    ) => {
        #[doc = concat!("Waits until the calling thread holds the lock", $how, ".")]
        ///
        /// # Safety
        /// `lock` must point to a lock, whose memory must stay valid until the call returns.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $lock(lock: *const $type) {
            // SAFETY: the caller promises that it is a lock, here and below. Other threads access it only through this
            // library, atomically.
            let lock = unsafe { &*lock };
            check::waits(stringify!($lock), lock, $access);
            lock.0.$raw_lock();
            check::holds(stringify!($lock), lock, $access);
        }

        #[doc = concat!("Takes the lock", $how, " if that needs no waiting. Returns whether it was taken.")]
        ///
        /// # Safety
        /// As for the function that waits.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $try_lock(lock: *const $type) -> bool {
            // SAFETY: as above.
            let lock = unsafe { &*lock };
            taken(stringify!($try_lock), lock, $access, lock.0.$raw_try_lock())
        }

        #[doc = concat!("Takes the lock", $how, ", and waits for that until `deadline` of CLOCK_MONOTONIC at the latest.")]
        /// Returns whether it was taken.
        ///
        /// # Safety
        /// As for the function that waits. `deadline` must point to a time.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $timed_lock(lock: *const $type, deadline: *const libc::timespec) -> bool {
            // SAFETY: as above.
            let lock = unsafe { &*lock };
            let until = |deadline: Option<_>| match deadline {
                Some(deadline) => lock.0.$raw_try_lock_until(deadline),
                None => {
                    lock.0.$raw_lock();
                    true
                }
            };
            // SAFETY: the caller promises that it is a time.
            let is_taken = unsafe { before(deadline, || lock.0.$raw_try_lock(), until) };
            taken(stringify!($timed_lock), lock, $access, is_taken)
        }

        #[doc = concat!("Releases the lock, which the calling thread holds", $how, ".")]
        ///
        /// # Safety
        /// `lock` must point to a lock that the calling thread holds so. Its memory must stay valid until the lock is
        /// released.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $unlock(lock: *const $type) {
            // SAFETY: as above. Once the lock is released its memory may be freed, and is not accessed any more: **Word
            // untouched after release**. (A reference to a type with interior mutability may outlive its memory.)
            let lock = unsafe { &*lock };
            check::releases(stringify!($unlock), lock, $access);
            // SAFETY: the caller promises that the calling thread holds it.
            unsafe { lock.0.$raw_unlock() };
        }
    };
}
pub(crate) use way;
