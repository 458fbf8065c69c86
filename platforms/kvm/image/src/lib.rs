//! The guest image: guest kernel, workloads and bare lock contention on the CPUs of a KVM guest.
//!
//! The VMM starts every CPU in long mode at `_start`, with memory mapped one to one (`holdfast_protocol::layout`), the CPU's
//! number in RDI and a stack of its own. CPU 0 reads its orders and sets up what all share; the others wait for that. Then
//! each runs what was ordered.
//!
//! All code runs at CPL 0, the workloads' user mode too: it is a matter of the kernel's own books. A host that asks whether a
//! preempted vCPU was in kernel mode hears yes.
//!
//! **One CPU, one block**: GS points to the `PerCpu` of the executing CPU and never changes.
//! **Interrupts leave IST stacks at once**: code compiled for the host's target uses the red zone, so handlers cannot start
//! on the interrupted stack; but they can switch tasks, so they cannot stay on a stack per CPU either. The entry moves to
//! below the interrupted flow's red zone before it calls anything.
#![no_std]
#![cfg(target_arch = "x86_64")]

extern crate alloc;

mod boot;
mod clock;
mod contend;
mod context;
mod cpu;
mod fault;
mod heap;
mod hypervisor;
mod instructions;
mod interrupts;
mod machine;
mod pace;
mod percpu;
mod probe;
mod ring;
mod tables;
mod word;

pub use boot::main;
pub use cpu::KvmCpu;
pub use heap::Heap;
pub use probe::{PROBES, Probe};
pub use ring::panicked;
pub use word::{KvmAddress, KvmWord};
