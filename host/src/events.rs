//! The step function: an event is routed to its wing, and then every pCPU concerned gets its next command.
//!
//! - **One `Run`**: a step ends with one `Run` for the pCPU that executed it (`dispatch.rs`).
//! - **Nothing is left over**: before that, the pCPU's thread has been rescheduled if necessary, its requests have been
//!   processed, and its timer is set.

use alloc::vec::Vec;

use crate::boundary::{
    Command, Cost, Event, HardwareEvent, HostInterrupt, Nanos, PcpuId, Run, TaskEvent, TaskId, VcpuId, VmmEvent,
};
use crate::host::Host;
use crate::interrupts;
use crate::step::Step;
use crate::threads::{PendingWake, ThreadKind};
use crate::timers::Timer;
use crate::vcpu::after::After;
use crate::vcpu::exit;
use crate::vcpu::plug;
use crate::vcpu::userspace;

impl Host {
    /// Executes one step of the host: `event` happened at `now`. Appends what is to be done to `out`.
    ///
    /// # Panics
    /// If the caller breaks the boundary's contract: an exit from a pCPU that runs no vCPU, or time that goes
    /// backwards. No guest can cause a panic.
    pub fn handle(&mut self, event: Event, now: Nanos, out: &mut Vec<Command>) {
        assert!(self.started, "an event came before the host was started");
        self.wings.threads.sched.begin(now.0);
        let pcpu = event.pcpu();
        let mut step = Step::new(now, pcpu, out);
        let doing = self.pcpus.rows[pcpu].doing;
        match event {
            Event::Hardware(HardwareEvent::Exit { exit, guest, .. }) => {
                let Some(Run::Guest { vcpu, .. }) = doing else {
                    panic!("exit on pcpu {}, which is not in guest mode", pcpu.0)
                };
                match exit::exit(&mut self.wings, vcpu, exit, guest, &mut step) {
                    After::Resume => {}
                    After::Reschedule => self.reschedule(&mut step),
                    After::Interrupt(interrupt) => self.interrupt(interrupt, &mut step),
                }
            }
            Event::Hardware(HardwareEvent::Interrupt { interrupt, .. }) => {
                leave_idle(doing, pcpu, "interrupt", &mut step);
                self.interrupt(interrupt, &mut step);
            }
            Event::Hardware(HardwareEvent::Posted { .. }) => {
                // The polling loop sees it in memory.
                if self.poll_until(pcpu).is_some() {
                    self.finish(&mut step);
                }
                return self.end_polls(None, now, out);
            }
            Event::Vmm(event) => {
                leave_idle(doing, pcpu, "work of a VMM", &mut step);
                self.vmm_event(event, &mut step);
            }
            Event::Task(event) => {
                let Some(Run::Task(task)) = doing else {
                    panic!("{event:?} on pcpu {}, which runs no task", pcpu.0)
                };
                self.task_event(task, event, &mut step);
            }
        }
        // Loops that poll see what the event has changed before the executing pCPU goes on.
        self.end_polls(Some(pcpu), now, step.out);
        self.finish(&mut step);
        self.end_polls(None, now, out);
    }

    /// Handles `event` of a VMM or of the host's side of a device.
    fn vmm_event(&mut self, event: VmmEvent, step: &mut Step<'_>) {
        match event {
            VmmEvent::Msi { vm, address, data, .. } => self.wings.msi(vm, address, data, step),
            VmmEvent::Inhibit {
                vm, reason, inhibited, ..
            } => self.wings.set_inhibit(vm, reason, inhibited, step),
            VmmEvent::Affinity { vcpu, only, .. } => self.set_affinity(vcpu, only, step),
            VmmEvent::VmStarts { vm, .. } => plug::start_vm(&mut self.wings, vm, step),
            VmmEvent::VmEnds { vm, .. } => plug::end_vm(&mut self.wings, vm, step),
        }
    }

    /// Lets the thread of `vcpu` run on `only` from now on, or anywhere.
    fn set_affinity(&mut self, vcpu: VcpuId, only: Option<PcpuId>, step: &mut Step<'_>) {
        let task = self.wings.guests.vcpus[vcpu].thread.task;
        let mask = self.mask(only.as_ref().map_or(&[], |only| core::slice::from_ref(&only.0)));
        let mask = mask.unwrap_or_else(|error| panic!("{error}"));
        self.wings.threads.sched.set_affinity(task, mask, step);
    }

    /// Handles `event` of `task`, which runs on the executing pCPU.
    fn task_event(&mut self, task: TaskId, event: TaskEvent, step: &mut Step<'_>) {
        match event {
            TaskEvent::Sleeps { until, .. } => {
                let pending = &mut self.wings.threads.records[task].pending_wake;
                if pending.take_if(|pending| *pending == PendingWake::Wake).is_some() {
                    return self.yield_point(step);
                }
                if let Some(until) = until {
                    let at = until.0.max(step.now);
                    self.wings.threads.timers.arm(Timer::Sleep(task), step.pcpu, at);
                }
                self.wings.threads.sched.sleep(step.pcpu);
                self.reschedule(step);
            }
            TaskEvent::Yields { .. } => self.yield_point(step),
            TaskEvent::GivesWay { .. } => {
                self.wings.threads.sched.yield_current(step.pcpu);
                self.reschedule(step);
            }
            TaskEvent::Wakes { task: other, .. } | TaskEvent::WakesSync { task: other, .. } => {
                self.wings.threads.check_plain(other);
                step.sync = matches!(event, TaskEvent::WakesSync { .. });
                self.wings.threads.wake_task(other, step);
            }
            TaskEvent::Starts { task: other, .. } => {
                self.wings.threads.check_plain(other);
                self.wings.threads.start_task(other, step);
            }
            TaskEvent::Executes { .. } => {
                if let Some(to) = self.wings.threads.sched.leave_for_exec(task, step) {
                    self.reschedule(step);
                    self.wings.threads.sched.arrive(task, to, step);
                }
            }
            TaskEvent::Ends { .. } => {
                let kept = self.wings.guests.planted.pause.dead_threads_stay;
                self.wings.threads.records[task].generation += u32::from(!kept);
                self.wings.threads.sched.exit(step.pcpu);
                self.reschedule(step);
                if self.wings.threads.records[task].pending_wake.take() == Some(PendingWake::Start) {
                    self.wings.threads.start_task(task, step);
                }
            }
            TaskEvent::RunsVcpu { vcpu, .. } => userspace::enter_run(&mut self.wings, task, vcpu, step),
        }
    }

    /// Reschedules the executing pCPU if the scheduler wants to: its task is at a yield point.
    fn yield_point(&mut self, step: &mut Step<'_>) {
        if self.wings.threads.sched.need_resched(step.pcpu) {
            self.reschedule(step);
        }
    }

    /// Handles a host interrupt on the executing pCPU.
    fn interrupt(&mut self, interrupt: HostInterrupt, step: &mut Step<'_>) {
        match interrupt {
            HostInterrupt::Timer => self.timer_interrupt(step),
            HostInterrupt::Reschedule => {
                step.charge(Cost::HostInterrupt, 1);
                self.wings.threads.sched.interrupt(step.pcpu, step);
            }
            HostInterrupt::Call => step.charge(Cost::HostInterrupt, 1),
            HostInterrupt::Device(vector) => interrupts::device_interrupt(&mut self.wings, vector, step),
            HostInterrupt::GaLog => interrupts::ga_log_interrupt(&mut self.wings, step),
            HostInterrupt::PostedWakeup => {
                step.charge(Cost::HostInterrupt, 1);
                interrupts::posted_wakeup(&mut self.wings, step.pcpu, step);
            }
        }
    }

    fn timer_interrupt(&mut self, step: &mut Step<'_>) {
        let pcpu = PcpuId(step.pcpu);
        self.pcpus.rows[pcpu].programmed = None;
        let tick = self.pcpus.rows[pcpu].tick_at.is_some_and(|at| at <= step.now);
        let timer = self.wings.threads.timers.next(pcpu.0).is_some_and(|at| at <= step.now);
        let slice = self.wings.threads.sched.slice_due(pcpu.0);
        // The end of polling is not an interrupt: the polling loop reads the clock.
        if tick || timer || slice || self.poll_until(pcpu).is_none() {
            step.charge(Cost::HostInterrupt, 1);
        }
        while let Some(timer) = self.wings.threads.timers.pop(pcpu.0, step.now) {
            self.timer_expired(timer, step);
        }
        if slice {
            self.wings.threads.sched.slice_timer(pcpu.0, step);
        }
        if tick {
            self.pcpus.rows[pcpu].tick_at = Some(self.pcpus.next_tick(pcpu, step.now));
            self.wings.threads.sched.tick(pcpu.0, step);
        }
    }

    fn timer_expired(&mut self, timer: Timer, step: &mut Step<'_>) {
        match timer {
            Timer::Lapic(task) => {
                if let Some(vcpu) = self.wings.threads.records[task].first {
                    self.wings.apic_timer_expired(vcpu, step);
                }
            }
            Timer::Sleep(task) => match self.wings.threads.kind(task) {
                ThreadKind::Vcpu(vcpu) => {
                    self.wings.wake_thread(vcpu, step);
                }
                ThreadKind::Plain | ThreadKind::Voluntary => {
                    self.wings.threads.sched.wake(task, step);
                }
            },
            Timer::Period(_) | Timer::Slack(_) => self.wings.threads.sched.bandwidth_timer(timer, step),
        }
    }
}

/// Charges the way out of idle, if the pCPU is idle.
///
/// # Panics
/// If the pCPU is in guest mode or has not started: `what` cannot happen there.
fn leave_idle(doing: Option<Run>, pcpu: PcpuId, what: &str, step: &mut Step<'_>) {
    match doing {
        Some(Run::Idle) => step.charge(Cost::IdleExit, 1),
        Some(Run::Task(_) | Run::Poll(_)) => {}
        Some(Run::Guest { .. }) | None => {
            panic!("{what} on pcpu {}, which is in guest mode or has not started", pcpu.0)
        }
    }
}
