//! Lock and unlock of each kind, as functions of their own: a test executes them, and those that were compiled natively, and
//! compares.

#![expect(unsafe_code, reason = "functions that are looked up by their names")]

use holdfast_locks::{
    CnaQspin, HybridPvQspin, PreemptableTicket, PvQspin, PvTicket, Qspin, RawLock, Tas, Ticket, Ttas, UnfairPvQspin,
    UnfairQspin,
};

use crate::cpu::KvmCpu;
use crate::word::KvmWord;

/// Locks and unlocks.
pub type Probe = extern "sysv64" fn(&KvmCpu, &KvmWord);

macro_rules! probes {
    ($($function:ident = $lock:ident,)+) => {
        $(
            #[doc = concat!("Lock and unlock of [`", stringify!($lock), "`].")]
            #[unsafe(no_mangle)]
            #[inline(never)]
            pub extern "sysv64" fn $function(cpu: &KvmCpu, word: &KvmWord) {
                // By way of a name, which fills in its parameters' defaults.
                type Lock = $lock;
                Lock::lock(cpu, word);
                Lock::unlock(cpu, word);
            }
        )+

        /// Every kind's, by the name of its function.
        pub const PROBES: &[(&str, Probe)] = &[$((stringify!($function), $function),)+];
    };
}

probes! {
    holdfast_probe_tas = Tas,
    holdfast_probe_ttas = Ttas,
    holdfast_probe_ticket = Ticket,
    holdfast_probe_preemptable_ticket = PreemptableTicket,
    holdfast_probe_pv_ticket = PvTicket,
    holdfast_probe_qspin = Qspin,
    holdfast_probe_cna_qspin = CnaQspin,
    holdfast_probe_unfair_qspin = UnfairQspin,
    holdfast_probe_pv_qspin = PvQspin,
    holdfast_probe_hybrid_pv_qspin = HybridPvQspin,
    holdfast_probe_unfair_pv_qspin = UnfairPvQspin,
}
