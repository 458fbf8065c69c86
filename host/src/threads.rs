//! The threads of the host: which of them are vCPUs, what wakes them, and where a task can be preempted.
//!
//! - **No lost wakeup**: a wakeup or start that comes before its task is ready is kept until the task is.
//! - **Voluntary**: a task in kernel mode keeps its pCPU until it sleeps, ends or yields, whatever the scheduler wants.

use crate::boundary::{Command, PcpuId, TaskId, VcpuId};
use crate::ids::IdVec;
use crate::sched::Scheduler;
use crate::step::Step;
use crate::timers::{Timer, Timers};

/// What a thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThreadKind {
    /// The thread of a vCPU, in `KVM_RUN`.
    Vcpu(VcpuId),
    /// A task that can be preempted anywhere.
    Plain,
    /// A task that is preempted only at its own yield points.
    Voluntary,
}

/// A wakeup or start for a task that was not ready for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PendingWake {
    /// A wakeup came before the task slept.
    Wake,
    /// The task was started again before it ended.
    Start,
}

/// What the host keeps of a thread beside the scheduler's record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadRecord {
    pub(crate) kind: ThreadKind,
    /// The vCPU for which the thread was made.
    pub(crate) first: Option<VcpuId>,
    /// How many threads with this number have ended.
    pub(crate) generation: u32,
    pub(crate) pending_wake: Option<PendingWake>,
    /// `Host::start` does not start it.
    pub(crate) dormant: bool,
}

/// All threads of the host, with the scheduler and the timers that act on them.
#[derive(Clone, Debug)]
pub(crate) struct Threads {
    pub(crate) sched: Scheduler,
    pub(crate) timers: Timers,
    pub(crate) records: IdVec<TaskId, ThreadRecord>,
}

impl Threads {
    pub(crate) fn new(sched: Scheduler) -> Threads {
        Threads {
            timers: Timers::new(sched.pcpus()),
            sched,
            records: IdVec::new(),
        }
    }

    /// Records the thread that the scheduler has just added.
    pub(crate) fn push(&mut self, kind: ThreadKind) {
        // Every VM has a thread, so its number is no higher.
        self.timers.make_room(self.records.next_id().0);
        self.records.push(ThreadRecord {
            kind,
            first: match kind {
                ThreadKind::Vcpu(vcpu) => Some(vcpu),
                ThreadKind::Plain | ThreadKind::Voluntary => None,
            },
            generation: 0,
            pending_wake: None,
            dormant: false,
        });
    }

    pub(crate) fn kind(&self, task: TaskId) -> ThreadKind {
        self.records[task].kind
    }

    /// Ends the present sleep of `task`, or its next one.
    pub(crate) fn wake_task(&mut self, task: TaskId, step: &mut Step<'_>) {
        self.timers.cancel(Timer::Sleep(task));
        if !self.sched.wake(task, step) {
            self.records[task].pending_wake = Some(PendingWake::Wake);
        }
    }

    /// Starts `task` now, or when its present run has ended.
    pub(crate) fn start_task(&mut self, task: TaskId, step: &mut Step<'_>) {
        self.begin_task(task, Scheduler::start_thread, step);
    }

    /// Creates `task` asleep, if its present run has ended. Otherwise starts it then.
    pub(crate) fn create_task(&mut self, task: TaskId, step: &mut Step<'_>) {
        self.begin_task(task, Scheduler::create_thread, step);
    }

    /// Has the scheduler `begin` with `task`, or starts it when its present run has ended.
    fn begin_task(&mut self, task: TaskId, begin: fn(&mut Scheduler, TaskId, &mut Step<'_>), step: &mut Step<'_>) {
        if self.sched.can_start(task) {
            self.records[task].pending_wake = None;
            begin(&mut self.sched, task, step);
        } else {
            self.records[task].pending_wake = Some(PendingWake::Start);
        }
    }

    /// Checks that `task` is not a vCPU's thread, which only the hypervisor wakes.
    pub(crate) fn check_plain(&self, task: TaskId) {
        assert!(
            !matches!(self.kind(task), ThreadKind::Vcpu(_)),
            "task {} is a vCPU's thread, which no task wakes or starts",
            task.0
        );
    }

    /// Returns whether the thread on `pcpu` keeps it until its own yield point.
    pub(crate) fn is_voluntary(&self, pcpu: u32) -> bool {
        let current = self.sched.current(pcpu);
        current.is_some_and(|task| self.kind(task) == ThreadKind::Voluntary)
    }

    /// Reports that `task`, which has just lost the executing pCPU, waits for it, if it does.
    pub(crate) fn report_waiting(&self, task: TaskId, step: &mut Step<'_>) {
        if self.sched.waits_for(task, step.pcpu) {
            step.out.push(Command::TaskWaits {
                task,
                pcpu: PcpuId(step.pcpu),
            });
        }
    }
}
