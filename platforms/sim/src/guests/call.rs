//! Calls of the bare-metal kernel's flows to the host's scheduler.

/// What a flow of the bare-metal kernel wants from the host's scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// The running thread sleeps, until a time in nanoseconds or until it is woken.
    Sleep(Option<u64>),
    /// The running thread can be preempted.
    Preempt,
    /// The running thread gives way to others (`sched_yield`).
    GiveWay,
    /// The running thread executes a program.
    Execute,
    /// The running thread ends.
    End,
    /// The running thread wakes this one.
    Wake(u32),
    /// The running thread starts this one.
    Start(u32),
    /// A boot flow has nothing to do.
    Idle,
}

/// The vector of the kernel's calls to its other CPUs: Linux's `CALL_FUNCTION_VECTOR`.
pub const CALL_VECTOR: u8 = 0xfc;
/// Given as a vector to a flow in user mode whose pCPU the scheduler wants. No interrupt has this vector.
pub const PREEMPT: u8 = 0;
