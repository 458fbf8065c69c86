//! Guests that an emulated host loses: a correct guest, also stock Linux, hangs or takes a triple fault. Older
//! emulators lose up to a tenth of all guests at their start, that of the test host one in thirty to a hundred. Such a
//! guest runs again, and the loss is counted and printed. On hardware no guest is repeated.

use std::arch::x86_64::__cpuid;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use holdfast_kvm::{Error, Options, Report, Vm, run};

/// Largest number of losses in one run of the tests. More are not accidental.
const LOST_MAX: u32 = 3;

/// Returns whether QEMU emulates the host that executes this.
pub fn is_emulated() -> bool {
    let found = __cpuid(0x4000_0000);
    [found.ebx, found.ecx, found.edx].map(u32::to_le_bytes).concat() == b"TCGTCGTCGTCG"
}

/// Runs `vms`.
///
/// # Errors
/// As [`run`], unless an emulated host has lost a guest, and no more than [`LOST_MAX`] before.
pub fn run_again_if_lost(vms: &[Vm], options: &Options<'_>) -> Result<Report, Error> {
    static LOST: AtomicU32 = AtomicU32::new(0);
    loop {
        match run(vms, options) {
            Err(error @ (Error::TripleFault { .. } | Error::Hang { .. }))
                if is_emulated() && LOST.fetch_add(1, Relaxed) < LOST_MAX =>
            {
                println!("LOST, run again: {error}");
            }
            report => return report,
        }
    }
}
