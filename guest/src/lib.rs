//! A guest kernel in miniature, generic over the machine below it, modeled on Linux 3.3.
//!
//! The kernel really schedules, takes its locks and waits for other CPUs. Its tables contain only what that needs.
//! Every spinlock in it is the lock under test.
//!
//! # Layers
//! Each file uses only layers above it in this list, so a subsystem reads without the kernel that contains it:
//! - values: `costs`, `class`, `profile`, `config`, `lines`, `limits`, `ids`, `local`, `mask`, `numa`, `pcid`,
//!   `parameter`, `policy`, `steal_governor`, and the machine's interface (`machine`);
//! - one CPU: `apic`, `haltpoll`, `word`, `cpu` (each CPU's own state, and the CPU that runs the caller), `seen`,
//!   `features`, `ipi`;
//! - spinlocks (`sync`, `rwlock`), and what is under them: `smp`, `nmi`, `task`, `tlb`, `pages`, `measured`, `driver`;
//! - `sched`, and on it `wait`, `time`;
//! - sleeping locks: `mutex`, `rwsem` (both over `spin`), `semaphore`;
//! - `mm`, then `net`, `block`, `fs` and `ipc`, then `process`;
//! - `kernel`, which puts them together, and its users: `interrupt`, `idle`, `boot`, `os`, `report`.
//!
//! A lower layer calls a higher one only through `sched`'s `TaskHooks`, where a task begins and where a dead one is
//! gone, and through the closure that interrupt dispatch gives to `smp`.
//!
//! # Where things are
//! A guest begins in `boot.rs` `image`. `costs.rs` has hold times and costs with their sources, `lines.rs` the
//! cache lines of holds. `measured.rs` `execute`
//! does instead what a profile in `kernels/` says, which `lab/src/kernel.rs` reads. `fs/disk.rs` has what files on a
//! disk lock, and `fs/journal.rs` how ext4 commits. `ipi.rs` chooses how interrupts to several CPUs are sent.
//! `micro.rs` runs on bare CPUs instead of the kernel, for `calibrate --kvm`. The machine's terms are the hardware's:
//! MSRs, LAPIC registers, HLT, hypercalls. Tests run on the simulator.
//!
//! # Bare metal
//! With `bare_metal` there is no guest. The same kernel and workload run on the pCPUs, under the host's scheduler
//! (`machine.rs` `Threads`, `hosted.rs`). Each task is a host thread that is preempted only where a kernel without
//! `CONFIG_PREEMPT` is.
#![no_std]

extern crate alloc;

mod apic;
mod average;
mod block;
mod boot;
mod class;
mod config;
mod costs;
mod cpu;
mod driver;
mod features;
mod fs;
mod haltpoll;
mod handle;
mod idle;
mod ids;
mod interrupt;
mod ipc;
mod ipi;
mod kernel;
mod limits;
mod lines;
mod local;
pub mod lock_name;
mod machine;
mod mask;
mod measured;
pub mod micro;
mod mm;
mod mutex;
mod net;
mod nmi;
mod numa;
mod os;
mod pages;
mod parameter;
mod pcid;
mod policy;
mod process;
mod profile;
mod program;
mod pthread;
mod report;
mod rwlock;
mod rwsem;
mod sched;
mod seen;
mod semaphore;
mod smp;
mod spin;
mod steal_governor;
mod sync;
mod task;
mod time;
mod tlb;
mod user;
mod wait;
mod word;

pub use apic::{LocalApic, RESCHEDULE_VECTOR, TIMER_VECTOR};
pub use boot::image;
pub use class::LockClass;
pub use config::{ApicOptions, Config, Idle, MmapLock, OwnerSpinning, Placement, RwLocks};
pub use features::choose_lock;
pub use fs::FileId;
pub use ids::TaskId;
pub use ipc::Events;
pub use limits::{Format, Limits, Start};
pub use machine::{Caches, Cpu, GuestImage, Machine, Mode, Report, TakenPage, Threads};
pub use net::DriverQueue;
pub use os::{Os, Touch};
pub use parameter::{Parameter, Parameters, Place};
pub use pcid::Pcid;
pub use policy::{Cpus, GuestPolicy, GuestPolicyKind, Placed};
pub use process::{Executable, Exited, Fork};
pub use profile::{KernelProfile, LineProfile, LockProfile, Operation, OperationProfile, Scope};
pub use program::Program;
pub use pthread::{UserCondition, UserMutex, UserMutexGuard};
pub use smp::{Callees, Function};
pub use steal_governor::StealGovernor;
pub use user::{UserLine, UserLock};
