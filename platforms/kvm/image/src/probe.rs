//! Lock and unlock of each kind of lock, as separate functions. A test executes these and natively compiled ones, and
//! compares them.

#![expect(unsafe_code, reason = "functions that are looked up by their names")]

use holdfast_locks::{RawLock, for_each_lock_kind};

use crate::cpu::KvmCpu;
use crate::word::KvmWord;

/// A function that locks and unlocks a word. The CPU comes in a register: a reference to it would be read from memory
/// wherever the compiler likes.
pub type Probe = extern "sysv64" fn(KvmCpu, &KvmWord);

macro_rules! probes {
    ([] $($module:ident: $kind:ident = $name:literal,)+) => {
        $(
            #[doc = concat!("Lock and unlock of [`", stringify!($kind), "`](holdfast_locks::", stringify!($kind), ").")]
            #[unsafe(export_name = concat!("holdfast_probe_", stringify!($module)))]
            #[inline(never)]
            pub extern "sysv64" fn $module(cpu: KvmCpu, word: &KvmWord) {
                // The type alias fills in the defaults of the lock's type parameters.
                type Lock = holdfast_locks::$kind;
                Lock::lock(&cpu, word);
                Lock::unlock(&cpu, word);
            }
        )+

        /// The probes of all kinds, by their symbols.
        pub const PROBES: &[(&str, Probe)] = &[$((concat!("holdfast_probe_", stringify!($module)), $module),)+];
    };
}

for_each_lock_kind!(probes);
