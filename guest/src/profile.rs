//! A measured kernel: what each of its operations costs, and which spinlocks it takes (`docs/kernels.md`).
//!
//! The profile is data. Which lock of this kernel a row means, and which other CPUs meet there, is code
//! ([`measured`](crate::measured)).

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::class::{LockClass, named};

named! {
    /// The operations that are measured.
    Operation {
        /// fork, exit and wait.
        Fork = "fork",
        /// The first touch of anonymous memory.
        AnonymousFault = "anonymous_fault",
        /// The write to a page that is shared since a fork.
        CopyFault = "copy_fault",
        /// A fault in a file's mapping. It maps the pages around, too.
        FileFault = "file_fault",
        /// mmap, touch and munmap of a page.
        MapUnmap = "map_unmap",
        /// Touch and `madvise(MADV_DONTNEED)` of a page.
        TouchDiscard = "touch_discard",
        /// open and close of a file.
        OpenClose = "open_close",
        /// stat of a file.
        Stat = "stat",
        /// Reading a page that is in the page cache.
        ReadPage = "read_page",
        /// Writing a page that is in the page cache.
        OverwritePage = "overwrite_page",
        /// Appending a page to a file.
        AppendPage = "append_page",
        /// Creating, closing and removing a file.
        CreateUnlink = "create_unlink",
        /// A write to a pipe and a read of it, without a wakeup.
        Pipe = "pipe",
        /// A message through a local socket, without a wakeup.
        Socket = "socket",
        /// FUTEX_WAKE that finds no task.
        FutexWake = "futex_wake",
    }
}

named! {
    /// Which CPUs and tasks share a lock.
    #[derive(Serialize, Deserialize)]
    Scope {
        /// One lock for the machine.
        Global = "global",
        /// One lock that is not a variable of the kernel's image, such as a mounted file system's.
        Shared = "shared",
        /// One for each memory node.
        Node = "node",
        /// One for each CPU.
        Cpu = "cpu",
        /// One for each process.
        Process = "process",
        /// One for each object, such as an inode.
        Object = "object",
    }
}

/// A measured kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelProfile {
    /// Its name, for example "linux-6.18".
    pub name: String,
    /// The operations, in the order of [`Operation::ALL`].
    pub operations: Vec<OperationProfile>,
}

/// A measured operation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationProfile {
    /// Time outside spinlocks, in picoseconds.
    pub work_ps: u64,
    /// Where it takes spinlocks, in the order of the operation.
    pub locks: Vec<LockProfile>,
}

/// Where an operation takes a spinlock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockProfile {
    /// What the lock protects.
    pub class: LockClass,
    /// Which CPUs and tasks share it.
    pub scope: Scope,
    /// Acquisitions in a million operations.
    pub per_million: u64,
    /// Mean hold in picoseconds, without the holds of locks nested in it.
    pub own_ps: u64,
    /// The index of the row whose lock is held then, the outermost of these.
    pub under: Option<u32>,
    /// Cache lines of other CPUs that the section touches. `None`: not measured.
    pub lines: Option<LineProfile>,
}

/// Cache lines that a section touches and that are not in its CPU's caches since another CPU has used them, in
/// thousandths. The lock's own line does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineProfile {
    /// Lines if the same CPU held the lock before.
    pub stayed_milli: u32,
    /// Lines if another CPU held the lock before.
    pub moved_milli: u32,
    /// Whether each line has the address of the next one, as on a list, so that they come one after another.
    pub chained: bool,
}
