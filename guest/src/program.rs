//! What runs on the kernel: a program of tasks.

use crate::fs::Format;
use crate::machine::Machine;
use crate::os::Os;

/// What a task is started with. Its meaning is the program's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// What the task is; 0 is the first task.
    pub role: u32,
    /// Which one.
    pub argument: u32,
}

impl Start {
    /// Task `argument` of `role`.
    pub const fn new(role: u32, argument: u32) -> Self {
        Start { role, argument }
    }
}

/// How much of everything a program uses at most: the kernel's tables are made once, at boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Tasks alive at a time.
    pub tasks: u32,
    /// Files and directories.
    pub files: u32,
    /// Mounted file systems; at least one. File `i` is on volume `i` modulo their number.
    pub volumes: u32,
    /// What they are.
    pub format: Format,
    /// Pipes.
    pub pipes: u32,
    /// Local sockets, connected in pairs: 0 with 1, 2 with 3.
    pub sockets: u32,
    /// Ends of stream connections, connected in pairs: 0 with 1, 2 with 3.
    pub streams: u32,
    /// epoll instances.
    pub epolls: u32,
    /// SysV semaphore arrays.
    pub semaphore_arrays: u32,
    /// Semaphores per array.
    pub semaphores: u32,
    /// Drivers, each with a spinlock of its own.
    pub drivers: u32,
}

impl Default for Limits {
    /// One task, nothing else.
    fn default() -> Self {
        Limits {
            tasks: 1,
            files: 0,
            volumes: 1,
            format: Format::Plain,
            pipes: 0,
            sockets: 0,
            streams: 0,
            epolls: 0,
            semaphore_arrays: 0,
            semaphores: 0,
            drivers: 0,
        }
    }
}

/// A program: what its tasks do. All tasks share it; what they change in it is theirs to protect.
pub trait Program<M: Machine> {
    /// What it needs.
    fn limits(&self) -> Limits;
    /// Runs a task; the task exits when this returns. The first one gets `Start::default()`.
    fn run(&self, os: &Os<M>, start: Start);
}
