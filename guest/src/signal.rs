//! Signals: only SIGCHLD is modeled, as an interruption of a sleep.

use crate::costs;
use crate::machine::Machine;
use crate::sched::OnCpu;

/// Runs the signal handler when the caller's task returns from an interrupted system call. Returns `false` if no signal
/// was pending.
pub(crate) fn take<M: Machine>(on: &OnCpu<'_, M>) -> bool {
    let task = on.current_task();
    if task.signal_pending.get() == 0 {
        return false;
    }
    task.signal_pending.set(0);
    let _signals = task.signal_lock.lock_irq(on);
    on.work(costs::SIGNAL);
    true
}
