//! Host tasks that are no vCPUs: how they sleep, wake and start each other, and where they can be preempted.
//!
//! - **No lost wake-up**: a wake-up or start that comes before its task is ready for it is kept, and taken up when it is.
//! - **Voluntary**: a task in its kernel keeps its pCPU until it sleeps, ends or yields, whatever the scheduler wants.

use crate::boundary::{Command, Event, PcpuId, TaskId};
use crate::host::{Host, ThreadKind};
use crate::step::Step;
use crate::timer::Timer;

/// What came for a task that was not ready for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Early {
    /// A wake-up, before it slept.
    Wake,
    /// A new life, before the last one's end.
    Start,
}

impl Host {
    /// `event` of `task`, which runs on the executing pCPU.
    pub(crate) fn task_event(&mut self, task: TaskId, event: Event, step: &mut Step<'_>) {
        match event {
            Event::TaskSleeps { until, .. } => {
                if self.early[task.0 as usize] == Some(Early::Wake) {
                    self.early[task.0 as usize] = None;
                    return self.yield_point(step);
                }
                if let Some(until) = until {
                    self.timers.arm(Timer::Sleep(task), step.pcpu, until.0.max(step.now));
                }
                self.sched.sleep(step.pcpu);
                self.reschedule(step);
            }
            Event::TaskYields { .. } => self.yield_point(step),
            Event::TaskGivesWay { .. } => {
                self.sched.yield_current(step.pcpu);
                self.reschedule(step);
            }
            Event::TaskWakes { task: other, .. } => {
                self.check_plain(other);
                self.wake_task(other, step);
            }
            Event::TaskStarts { task: other, .. } => {
                self.check_plain(other);
                if self.sched.can_start(other) {
                    self.start_task(other, step);
                } else {
                    self.early[other.0 as usize] = Some(Early::Start);
                }
            }
            Event::TaskExecutes { .. } => {
                if let Some(to) = self.sched.leave_for_exec(task, step) {
                    self.reschedule(step);
                    self.sched.arrive(task, to, step);
                }
            }
            Event::TaskEnds { .. } => {
                self.lives[task.0 as usize] += u32::from(!self.config.pause.faults.dead_threads_stay);
                self.sched.exit(step.pcpu);
                self.reschedule(step);
                if self.early[task.0 as usize].take() == Some(Early::Start) {
                    self.start_task(task, step);
                }
            }
            Event::Exit { .. }
            | Event::Interrupt { .. }
            | Event::Msi { .. }
            | Event::Inhibit { .. }
            | Event::Affinity { .. }
            | Event::Posted { .. }
            | Event::VcpuRuns { .. }
            | Event::Line { .. } => {
                unreachable!("no event of a task: {event:?}")
            }
        }
    }

    /// Ends the sleep of `task`, or its next one.
    pub(crate) fn wake_task(&mut self, task: TaskId, step: &mut Step<'_>) {
        self.timers.cancel(Timer::Sleep(task));
        if !self.sched.wake(task, step) {
            self.early[task.0 as usize] = Some(Early::Wake);
        }
    }

    /// The running task lets the scheduler have its way.
    fn yield_point(&mut self, step: &mut Step<'_>) {
        if self.sched.need_resched(step.pcpu) {
            self.reschedule(step);
        }
    }

    fn start_task(&mut self, task: TaskId, step: &mut Step<'_>) {
        self.early[task.0 as usize] = None;
        self.sched.start_thread(task, step);
    }

    /// Tasks have only each other to wake: a vCPU's thread is the hypervisor's.
    pub(crate) fn check_plain(&self, task: TaskId) {
        let kind = self.threads[task.0 as usize];
        assert!(
            !matches!(kind, ThreadKind::Vcpu(_)),
            "task {} is a vCPU's thread, which no task wakes or starts",
            task.0
        );
    }

    /// Whether the thread on `pcpu` keeps it until it says otherwise.
    pub(crate) fn is_voluntary(&self, pcpu: u32) -> bool {
        self.sched
            .current(pcpu)
            .is_some_and(|task| self.threads[task.0 as usize] == ThreadKind::Voluntary)
    }

    /// `task` has just lost the executing pCPU: says so if it wants it back.
    pub(crate) fn report_waiting(&self, task: TaskId, step: &mut Step<'_>) {
        if self.sched.waits_for(task, step.pcpu) {
            step.out.push(Command::TaskWaits {
                task,
                pcpu: PcpuId(step.pcpu),
            });
        }
    }
}
