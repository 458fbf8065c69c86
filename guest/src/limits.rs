//! How much of each kernel table a program needs, and what its tasks start with.

use serde::{Deserialize, Serialize};

/// What a task is started with. Its meaning is the program's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// The kind of task. 0 is the first task.
    pub role: u32,
    /// The number of the task within its role.
    pub argument: u32,
}

impl Start {
    /// Makes the start values of task `argument` of `role`.
    pub const fn new(role: u32, argument: u32) -> Self {
        Start { role, argument }
    }
}

/// The type of a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Format {
    /// One spinlock for everything that a file system shares.
    #[default]
    Plain,
    /// ext4 with its journal.
    Ext4,
    /// The file system XFS.
    Xfs,
}

/// How much of everything a program uses at most. The kernel makes its tables once, at boot. The default is one task on
/// one volume, and nothing else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// The most tasks that exist at a time, at least one.
    pub tasks: u32,
    /// The number of files and directories.
    pub files: u32,
    /// The number of mounted file systems, at least one. File `i` is on volume `i` modulo this number.
    pub volumes: u32,
    /// The type of the volumes.
    pub format: Format,
    /// The number of pipes.
    pub pipes: u32,
    /// The number of local sockets, connected in pairs: 0 with 1, 2 with 3.
    pub sockets: u32,
    /// The number of ends of stream connections, connected in pairs: 0 with 1, 2 with 3.
    pub streams: u32,
    /// The number of epoll instances.
    pub epolls: u32,
    /// The number of SysV semaphore arrays.
    pub semaphore_arrays: u32,
    /// The number of semaphores in each array.
    pub semaphores: u32,
    /// The number of drivers, each with a spinlock of its own.
    pub drivers: u32,
}
