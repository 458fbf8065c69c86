//! Lock and unlock of each kind, as functions of their own: a test executes them, and those that were compiled
//! natively, and compares.

#![expect(unsafe_code, reason = "functions that are looked up by their names")]

use holdfast_locks::{RawLock, for_each_lock_kind};

use crate::cpu::KvmCpu;
use crate::word::KvmWord;

/// Locks and unlocks.
pub type Probe = extern "sysv64" fn(&KvmCpu, &KvmWord);

macro_rules! probes {
    ([] $($module:ident: $kind:ident = $name:literal,)+) => {
        $(
            #[doc = concat!("Lock and unlock of [`", stringify!($kind), "`](holdfast_locks::", stringify!($kind), ").")]
            #[unsafe(export_name = concat!("holdfast_probe_", stringify!($module)))]
            #[inline(never)]
            pub extern "sysv64" fn $module(cpu: &KvmCpu, word: &KvmWord) {
                // By way of a name, which fills in its parameters' defaults.
                type Lock = holdfast_locks::$kind;
                Lock::lock(cpu, word);
                Lock::unlock(cpu, word);
            }
        )+

        /// The probes of all kinds, by their symbols.
        pub const PROBES: &[(&str, Probe)] = &[$((concat!("holdfast_probe_", stringify!($module)), $module),)+];
    };
}

for_each_lock_kind!(probes);
