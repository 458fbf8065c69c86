//! Opportunistic spinning (Kashyap, Min and Kim, "Opportunistic spinlocks", 2016): a waiter spins while the holder of
//! the lock runs, and gives its pCPU to others while the holder is preempted.
//!
//! There waiters decide, by what the hypervisor shares with them. Here the host decides at the pause exit. It takes any
//! sibling for the holder that was preempted in a section, which the guest's word says, or in kernel code. The waiter
//! sleeps for a moment, since the end of the holder's section does not wake it.

use holdfast_host::{Nanos, Pause, Policy, RunState, TaskId, VcpuId, View};

/// How long a waiter sleeps.
const NAP: Nanos = Nanos(200_000);

/// The policy.
#[derive(Clone, Debug, Default)]
pub struct Opportunistic;

impl Policy for Opportunistic {
    fn about(&self) -> &'static str {
        "a waiter spins while the holder runs, and sleeps while it is preempted (2016)"
    }

    fn pause_exit(&mut self, view: &View<'_>, spinner: VcpuId) -> Pause {
        let Some(waiter) = view.thread_of(spinner) else {
            return Pause::Kernel;
        };
        let lonely = |at| view.runnable(at) < 2;
        match view.siblings(waiter).any(|task| may_hold(view, task)) {
            true if view.thread(waiter).is_none_or(|at| lonely(at.pcpu)) => Pause::Kernel,
            true => Pause::Sleep(NAP),
            false => Pause::Resume,
        }
    }
}

/// Returns whether `task` waits for a pCPU in a section.
fn may_hold(view: &View<'_>, task: TaskId) -> bool {
    let Some(at) = view.thread(task).filter(|at| at.run == RunState::Ready) else {
        return false;
    };
    match at.guest.word {
        Some(word) => word.in_section,
        None => at.guest.in_kernel && !at.guest.spins && !at.guest.halted,
    }
}
