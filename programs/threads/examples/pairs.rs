//! An uncontended lock and unlock of each kind as a function of its own, for tests that read the machine code.
#![expect(unsafe_code, reason = "functions with a name that the assembler sees")]

use holdfast_threads::*;
use lock_api_04::RawMutex;

macro_rules! pairs {
    ($($(#[$doc:meta])* $raw:ident = $algorithm:ty;)+) => {$(
        const _: () = {
            /// Locks, then unlocks.
            // SAFETY: no other symbol of the library has this name, which begins with that of its package.
            #[unsafe(export_name = concat!("holdfast_pair_", stringify!($raw)))]
            pub fn pair(lock: &$raw) {
                lock.lock();
                // SAFETY: just locked.
                unsafe { lock.unlock() };
            }
        };
    )+};
}

for_each_raw_lock!(pairs);
