//! A guest kernel in miniature, generic over the machine beneath it: Linux 3.3 in spirit.
//!
//! It really schedules, really takes its locks, and really waits for other CPUs; what it keeps in its tables is as little
//! as that needs. Every spinlock in it is the lock under test.
#![no_std]

extern crate alloc;

mod apic;
mod boot;
mod class;
mod costs;
mod driver;
mod fs;
mod handle;
mod interrupt;
mod ipc;
mod ipi;
mod kernel;
mod local;
mod machine;
mod mask;
pub mod micro;
mod mm;
mod mutex;
mod net;
mod numa;
mod os;
mod percpu;
mod process;
mod program;
mod pthread;
mod report;
mod rwsem;
mod sched;
mod semaphore;
mod smp;
mod sync;
mod task;
mod time;
mod user;
mod wait;

pub use boot::{choose_lock, image};
pub use class::{Event, LockClass};
pub use fs::{FileId, Format};
pub use ipc::Events;
pub use ipi::ApicOptions;
pub use kernel::Config;
pub use machine::{Cpu, GuestImage, Machine, Mode, Report, Threads};
pub use mm::MmapLock;
pub use mutex::OwnerSpinning;
pub use net::DriverQueue;
pub use os::{Os, Touch};
pub use process::{Executable, Exited, Fork};
pub use program::{Limits, Program, Start};
pub use pthread::{UserCondition, UserMutex, UserMutexGuard};
pub use smp::{Callees, Function};
pub use task::TaskId;
pub use user::{UserGuard, UserLine, UserLock};
