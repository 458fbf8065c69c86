//! A small virtual machine monitor (VMM) that runs the Holdfast guest on a real KVM, as a library with the guest image
//! embedded.
//!
//! Guest kernel, workloads and locks are those of the simulator, unchanged. Halts, kicks, directed yields and steal
//! time are KVM's. A caller describes virtual machines, runs them together, and gets the counts of guests and host:
//!
//! ```no_run
//! use holdfast_kvm::{Contention, Options, Task, Vm, run};
//!
//! let contended = Vm::new("vm1", 4, Task::Contention(Contention::default()));
//! let report = run(&[contended], &Options::default())?;
//! println!("{} acquisitions", report.vms[0].acquisitions());
//! # Ok::<(), holdfast_kvm::Error>(())
//! ```
//!
//! **No orphans**: when [`run`] returns, even with an error, all vCPU threads have ended and all virtual machines are
//! gone.
//!
//! **No trust**: the VMM checks every length that a guest writes. A hostile guest ends its run with an error. What is
//! kept of its reports is bounded, and its text is escaped for terminals.
//!
//! # Where things are
//! `vm.rs` says what a VM is, `run.rs` `run` runs several together, and `linux.rs` boots a stock Linux instead. Guest,
//! workloads and locks know nothing of this crate.
//!
//! Tests that need a KVM are ignored by default: `platforms/kvm/testhost/check` runs them in a host made of packages,
//! or says SKIPPED. `platforms/kvm/image/src/hostile.rs` is a guest that attacks the VMM.
//! `platforms/kvm/testhost/locks/measure` measures what a stock kernel locks, by a probe in the emulator, and
//! `platforms/kvm/examples/lock_profile/main.rs` makes the files in `kernels/` from its records.

mod changes;
mod cpuid;
mod crash;
mod error;
mod gate;
mod guest;
mod image;
mod instance;
mod linux;
mod memory;
mod migration;
mod printable;
mod report;
mod reported;
mod ring;
mod run;
mod state;
mod stats;
mod system;
mod vcpu;
mod vm;

pub use error::Error;
pub use holdfast_protocol::{Contention, Fault, KernelPath, Task};
pub use image::Image;
pub use linux::{BzImage, BzImageError, Linux};
pub use report::{Report, VcpuReport, VmReport};
pub use run::{Migration, Options, run};
pub use state::{Frame, GuestState};
pub use system::Host;
pub use vcpu::pin_to;
pub use vm::{Feature, Vm};
