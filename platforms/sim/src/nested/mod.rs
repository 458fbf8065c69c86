//! Nested guests: a guest whose kernel is the `host` crate again, with guests of its own.
//!
//! The *outer* host is that of the machine. A guest with guests of its own boots an *inner* host: `kernel.rs` executes
//! it on the guest's vCPUs, which are the inner host's pCPUs. It takes its time, its interrupts and its exits like any
//! other kernel of a guest, and the outer host preempts it when it likes. `parts/inner.rs` has the inner host's state.
//! `events/nesting.rs` has what its commands change at once, and the way into an inner guest and out of it, which the
//! outer host emulates ([`Exit::Vmrun`](holdfast_host::Exit::Vmrun)).
//!
//! The vCPUs of inner guests are in the same tables as all others, so they have ledgers, locks and blame. An inner
//! vCPU is *carried* by the vCPU of the outer host that executes it.

pub mod build;
pub mod kernel;
