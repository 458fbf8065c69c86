//! Guests that an emulated host loses: a triple fault or a hang of a guest that did neither, stock Linux among them, up to a
//! tenth of all starts with older emulators, one of a hundred or two with the test host's. They are run once more, counted and shown; on hardware nothing is.

use std::arch::x86_64::__cpuid;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use holdfast_kvm::{Error, Options, Report, Vm, run};

/// More in one run of the tests are no accident.
const LOST_MAX: u32 = 3;

/// Whether QEMU emulates the host that executes this.
fn is_emulated() -> bool {
    let found = __cpuid(0x4000_0000);
    [found.ebx, found.ecx, found.edx].map(u32::to_le_bytes).concat() == b"TCGTCGTCGTCG"
}

/// Runs `vms`.
///
/// # Errors
/// As [`run`], unless an emulated host has lost a guest for the first time.
pub fn run_or_once_more(vms: &[Vm], options: &Options<'_>) -> Result<Report, Error> {
    static LOST: AtomicU32 = AtomicU32::new(0);
    let report = run(vms, options);
    match report {
        Err(error @ (Error::TripleFault { .. } | Error::Hang { .. }))
            if is_emulated() && LOST.fetch_add(1, Relaxed) < LOST_MAX =>
        {
            println!("LOST, run once more: {error}");
            run(vms, options)
        }
        report => report,
    }
}
