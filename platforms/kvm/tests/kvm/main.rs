//! Tests of guests on a real KVM, and of the VMM without one.
//!
//! Tests that need a KVM are ignored by default. `platforms/kvm/testhost/check` runs them in an emulated host. On a
//! machine with a KVM, `cargo test -p holdfast-kvm --test kvm -- --ignored --test-threads=1` runs them.

mod contention;
mod faults;
mod hostile;
mod kernel;
mod lines;
mod linux;
mod lost;
mod machine_code;
mod migration;
mod paravirtual;
mod quiet;
mod stay;
mod tracing;
mod without;
