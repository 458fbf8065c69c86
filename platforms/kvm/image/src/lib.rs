//! The guest image: guest kernel, workloads and bare lock contention on the CPUs of a KVM guest.
//!
//! The VMM starts every CPU in long mode at `_start`, with memory mapped one to one (`holdfast_protocol::layout`), the
//! CPU's number in RDI and a stack of its own. CPU 0 reads the orders and sets up the shared state, for which the
//! others wait. Then every CPU runs the ordered task.
//!
//! All code runs at CPL 0, even the workloads' user mode, which exists in the kernel's accounting only. So the host
//! finds every preempted vCPU in kernel mode.
//!
//! **One CPU, one block**: GS points to the `PerCpu` of the executing CPU and never changes.
//!
//! **Interrupts leave IST stacks at once**: code compiled for the host's target uses the red zone, so a handler cannot
//! start on the interrupted stack. But a handler can switch tasks, so it cannot stay on a per-CPU stack either. The
//! entry moves below the interrupted flow's red zone before it calls anything.
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
mod hostile;
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
