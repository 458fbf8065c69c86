//! Handover: a vCPU that waits gives time of its slice to the vCPU that it waits for, wherever that one is.

use alloc::vec::Vec;

use super::section::{awaited, ready};
use crate::boundary::{Nanos, PcpuId, TaskId, VcpuId};
use crate::sched::seam::{Pause, Policy, RunState, ThreadView, View, Yield};

/// For how long a vCPU gets the pCPU of one that spins, and of one that has halted. The first is short: a section or
/// the answer to an IPI is, and then the spinner goes on.
const OF_SPINNER: Nanos = Nanos(200_000);
const OF_SLEEPER: Nanos = Nanos(3_000_000);
/// How long the kernel's choice may wait for the sake of others. Nanoseconds.
const PATIENCE_NS: u64 = 50_000_000;

/// A vCPU that takes a pause exit in kernel code, or halts in the queue of a lock, hands its pCPU over to the sibling
/// that it waits for.
///
/// That is the receiver of its IPI if its word names one. Otherwise it is, of the siblings that were preempted, the one
/// in a critical section that has waited longest, and after that one in the queue of a lock. The sibling is moved if it
/// waits for another pCPU, and returns when that pCPU picks a thread. It is charged for what it runs. While it is more
/// than 3 ms ahead of its turn, on any level of groups, there is no handover to it.
#[derive(Clone, Debug, Default)]
pub struct Handover {
    /// For each pCPU the thread that was picked last.
    last: Vec<Option<TaskId>>,
    /// The thread to which the present pause exit hands over.
    heir: Option<TaskId>,
    /// Threads on the pCPU of another one, and the pCPUs to which they return.
    lent: Vec<(TaskId, PcpuId)>,
    /// The next slice: of which thread, and how long.
    rest: Option<(TaskId, Nanos)>,
}

/// Returns `task` if it is ready, may run on `pcpu` and is not too far ahead of its turn.
fn ready_for(view: &View<'_>, task: TaskId, pcpu: PcpuId) -> Option<ThreadView> {
    ready(view, task).filter(|_| view.may_run_on(task, pcpu))
}

/// Returns whether `task` sleeps because it waits for a lock, as far as the host can know. An idle CPU halts with
/// interrupts enabled.
fn halts_for_lock(view: &View<'_>, task: TaskId) -> bool {
    let Some(thread) = view.thread(task) else { return false };
    let guest = thread.guest;
    let waits = guest.word.map_or(guest.masked, |word| word.in_queue);
    thread.run == RunState::Asleep && guest.halted && guest.in_kernel && waits
}

impl Handover {
    /// Notes that `task` is handed over from its pCPU to `pcpu`.
    fn lend(&mut self, view: &View<'_>, task: TaskId, pcpu: PcpuId) {
        let home = view.thread(task).map(|thread| thread.pcpu).filter(|&home| home != pcpu);
        if let Some(home) = home
            && !self.lent.iter().any(|&(lent, _)| lent == task)
        {
            self.lent.push((task, home));
        }
    }

    fn last(&mut self, pcpu: PcpuId) -> &mut Option<TaskId> {
        let index = pcpu.0 as usize;
        self.last.resize(self.last.len().max(index + 1), None);
        &mut self.last[index]
    }

    /// Returns a thread that was lent by `pcpu` and is ready elsewhere.
    fn comes_home(&mut self, view: &View<'_>, pcpu: PcpuId) -> Option<TaskId> {
        // The kernel has placed one that has slept since, or moved it.
        self.lent.retain(|&(task, home)| {
            let thread = view.thread(task);
            thread.is_some_and(|thread| thread.run != RunState::Asleep && thread.pcpu != home)
        });
        let waits = |&(task, home): &(TaskId, PcpuId)| home == pcpu && ready_for(view, task, pcpu).is_some();
        let index = self.lent.iter().position(waits)?;
        Some(self.lent.remove(index).0)
    }
}

impl Policy for Handover {
    fn about(&self) -> &'static str {
        "a vCPU that waits hands its pCPU over to the sibling that it waits for"
    }

    fn reports_yields(&self) -> bool {
        true
    }

    fn pick(&mut self, view: &View<'_>, pcpu: PcpuId, kernel: Option<TaskId>) -> Option<TaskId> {
        let waited = kernel
            .and_then(|task| view.thread(task))
            .map_or(0, |thread| thread.waited.0);
        if waited > PATIENCE_NS {
            return kernel;
        }
        // A handover after a pause exit comes as the kernel's choice.
        if self.rest.is_some_and(|(heir, _)| kernel == Some(heir)) {
            return kernel;
        }
        let before = self.last(pcpu).take();
        if let Some(waiter) = before.filter(|&task| halts_for_lock(view, task))
            && let Some((task, _)) = awaited(view, waiter, |task| ready_for(view, task, pcpu))
        {
            self.lend(view, task, pcpu);
            self.rest = Some((task, OF_SLEEPER));
            return Some(task);
        }
        self.comes_home(view, pcpu).or(kernel)
    }

    fn slice(&mut self, _: &View<'_>, pcpu: PcpuId, task: TaskId) -> Option<Nanos> {
        *self.last(pcpu) = Some(task);
        let rest = self.rest.take().filter(|&(heir, _)| heir == task);
        rest.map(|(_, ns)| ns)
    }

    fn pause_exit(&mut self, view: &View<'_>, spinner: VcpuId) -> Pause {
        let waiter = view
            .thread_of(spinner)
            .and_then(|task| Some((task, view.thread(task)?)));
        let waiter = waiter.filter(|(_, thread)| thread.guest.in_kernel);
        let heir = waiter.and_then(|(task, thread)| awaited(view, task, |task| ready_for(view, task, thread.pcpu)));
        self.heir = heir.map(|(heir, _)| heir);
        let vcpu = heir.and_then(|(_, thread)| thread.vcpu);
        vcpu.map_or(Pause::Kernel, |(_, vcpu)| Pause::YieldTo(vcpu))
    }

    fn yields(&mut self, view: &View<'_>, from: TaskId, to: TaskId) -> Yield {
        let is_heir = self.heir.take() == Some(to);
        let Some(thread) = view.thread(from).filter(|_| is_heir) else {
            return Yield::Kernel;
        };
        self.lend(view, to, thread.pcpu);
        self.rest = Some((to, OF_SPINNER));
        Yield::Handover
    }
}
