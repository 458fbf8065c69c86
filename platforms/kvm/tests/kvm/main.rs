//! Guests on a real KVM, and what of it can be tested without one.
//!
//! Tests that need a KVM which executes guests are ignored by default: `platforms/kvm/testhost/check` runs them in a host made
//! for it; on a machine with a KVM of its own, `cargo test -p holdfast-kvm --test kvm -- --ignored --test-threads=1` does.

mod contention;
mod faults;
mod kernel;
mod linux;
mod lost;
mod machine_code;
mod paravirtual;
mod quiet;
mod tracing;
mod without;
