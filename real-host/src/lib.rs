//! Work on the real machine that this program runs on: lock benchmarks, calibration, guests on the host's KVM,
//! recordings of the kernel's tracepoints, and comparison of measured locks with the simulator's predictions.
//!
//! # Where things are
//! `bench.rs`, `calibrate.rs`, `kvm.rs`, `doctor.rs`, `record.rs`, `tracing.rs`, and `scheduler.rs`: the host scheduler
//! against real kernels, which `platforms/kvm/testhost/schedule` plays. Results of a real host have no lost time,
//! convoys or histories.
#![forbid(unsafe_code)]

pub mod bench;
pub mod calibrate;
pub mod doctor;
mod hammer;
pub mod kvm;
pub mod linux;
pub mod machine;
pub mod record;
pub mod scheduler;
pub mod tracing;
pub mod validate;
mod work;

/// Returns a new folder for a test, which is removed when it is dropped. It is next to the test's program, because
/// `TMPDIR` may name anything.
#[cfg(test)]
fn scratch() -> tempfile::TempDir {
    let program = std::env::current_exe().expect("Linux knows it");
    tempfile::tempdir_in(program.parent().expect("it is in a folder")).expect("cargo has just written there")
}
