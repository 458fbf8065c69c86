//! The step function: what happened, and then what every pCPU concerned does next.
//!
//! - **One Run**: a step ends with one `Run` for the pCPU that executed it.
//! - **Nothing is left over**: before that, its thread has been rescheduled if need be, its requests have been processed and
//!   its timer is set.

use alloc::vec;
use alloc::vec::Vec;

use crate::boundary::{Command, Cost, Event, HostInterrupt, Nanos, PcpuId, Run, VcpuId, VcpuState, VmId};
use crate::host::{Host, ThreadKind};
use crate::interrupts::lapic::Message;
use crate::step::Step;
use crate::timer::Timer;
use crate::vcpu::Activity;

/// What a vCPU's thread comes to when it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resume {
    /// This is what its pCPU does.
    Run(Run),
    /// It sleeps: the pCPU is free.
    Sleep,
    /// It got one step further, and may be preempted before the next.
    Again,
}

impl Host {
    /// The host's step: `event` happened at `now`. Appends what is to be done to `out`.
    ///
    /// # Panics
    /// If the caller breaks the boundary's contract (an exit from a pCPU that runs no vCPU, time going backwards). No
    /// guest can cause a panic.
    pub fn handle(&mut self, event: Event, now: Nanos, out: &mut Vec<Command>) {
        assert!(self.started, "an event before the host was started");
        self.sched.begin(now.0);
        let pcpu = event.pcpu();
        let mut step = Step::new(now, pcpu, out);
        match event {
            Event::Exit { exit, guest, .. } => {
                let Some(Run::Guest { vcpu, .. }) = self.pcpus[pcpu.0 as usize].doing else {
                    panic!("exit on pcpu {}, which is not in guest mode", pcpu.0)
                };
                self.exit(vcpu, exit, guest, &mut step);
            }
            Event::Interrupt { interrupt, .. } => {
                match self.pcpus[pcpu.0 as usize].doing {
                    Some(Run::Guest { .. }) | None => {
                        panic!(
                            "interrupt on pcpu {}, which is in guest mode or has not started",
                            pcpu.0
                        )
                    }
                    Some(Run::Idle) => step.charge(Cost::IdleExit, 1),
                    Some(Run::Task(_) | Run::Poll(_)) => {}
                }
                self.interrupt(interrupt, &mut step);
            }
            Event::Msi { vm, address, data, .. } => {
                self.begin_device_work(pcpu, &mut step);
                self.msi(vm, address, data, &mut step);
            }
            Event::Line { vm, pin, level, .. } => {
                self.begin_device_work(pcpu, &mut step);
                self.set_line(vm, pin, level, &mut step);
            }
            Event::Inhibit {
                vm, reason, inhibited, ..
            } => {
                self.begin_device_work(pcpu, &mut step);
                self.set_apicv_inhibit(vm, reason, inhibited, &mut step);
            }
            Event::Affinity { vcpu, only, .. } => {
                self.begin_device_work(pcpu, &mut step);
                let task = self.at(vcpu).task;
                let allowed = only.map_or(Vec::new(), |only| vec![only.0]);
                let mask = self.mask(&allowed).unwrap_or_else(|error| panic!("{error}"));
                self.sched.set_affinity(task, mask, &mut step);
            }
            Event::Posted { .. } => {
                // The polling loop sees it in memory.
                if self.poll_until(pcpu.0).is_some() {
                    self.finish(&mut step);
                }
                return self.end_polls(now, out);
            }
            Event::VcpuRuns { vcpu, .. } => {
                let Some(Run::Task(task)) = self.pcpus[pcpu.0 as usize].doing else {
                    panic!("a vcpu's run on pcpu {}, which runs no task", pcpu.0)
                };
                self.enter_run(task, vcpu, &mut step);
            }
            Event::TaskSleeps { .. }
            | Event::TaskYields { .. }
            | Event::TaskGivesWay { .. }
            | Event::TaskWakes { .. }
            | Event::TaskStarts { .. }
            | Event::TaskExecutes { .. }
            | Event::TaskEnds { .. } => {
                let Some(Run::Task(task)) = self.pcpus[pcpu.0 as usize].doing else {
                    panic!("{event:?} on pcpu {}, which runs no task", pcpu.0)
                };
                self.task_event(task, event, &mut step);
            }
        }
        self.finish(&mut step);
        self.end_polls(now, out);
    }

    /// The host's side of a device works on `pcpu`, which is not in guest mode.
    fn begin_device_work(&self, pcpu: PcpuId, step: &mut Step<'_>) {
        match self.pcpus[pcpu.0 as usize].doing {
            Some(Run::Idle) => step.charge(Cost::IdleExit, 1),
            Some(Run::Task(_) | Run::Poll(_)) => {}
            Some(Run::Guest { .. }) | None => panic!(
                "a device's event on pcpu {}, which is in guest mode or has not started",
                pcpu.0
            ),
        }
    }

    /// A device signals `data` at `address`.
    pub(crate) fn msi(&mut self, vm: VmId, address: u64, data: u32, step: &mut Step<'_>) {
        let extended = self.vms[vm.0 as usize].config.msi_ext_dest_id;
        if let Some(message) = Message::of_msi(address, data, extended) {
            self.deliver(vm, &message, step);
        }
    }

    /// A host interrupt on the executing pCPU.
    pub(crate) fn interrupt(&mut self, interrupt: HostInterrupt, step: &mut Step<'_>) {
        match interrupt {
            HostInterrupt::Timer => self.timer_interrupt(step),
            HostInterrupt::Reschedule => {
                step.charge(Cost::HostInterrupt, 1);
                self.sched.interrupt(step.pcpu, step);
            }
            HostInterrupt::Call => step.charge(Cost::HostInterrupt, 1),
            HostInterrupt::Device(vector) => self.device_interrupt(vector, step),
            HostInterrupt::GaLog => self.ga_log_interrupt(step),
            HostInterrupt::PostedWakeup => {
                step.charge(Cost::HostInterrupt, 1);
                self.posted_wakeup(step.pcpu, step);
            }
        }
    }

    fn timer_interrupt(&mut self, step: &mut Step<'_>) {
        let pcpu = step.pcpu;
        self.pcpus[pcpu as usize].programmed = None;
        let tick = self.pcpus[pcpu as usize].tick_at.is_some_and(|at| at <= step.now);
        let timer = self.timers.next(pcpu).is_some_and(|at| at <= step.now);
        // The end of polling is no interrupt: the polling loop reads the clock.
        if tick || timer || self.poll_until(pcpu).is_none() {
            step.charge(Cost::HostInterrupt, 1);
        }
        while let Some(timer) = self.timers.pop(pcpu, step.now) {
            match timer {
                Timer::Lapic(task) => {
                    if let Some(vcpu) = self.first_threads[task.0 as usize] {
                        self.apic_timer_expired(vcpu, step);
                    }
                }
                Timer::Sleep(task) => match self.threads[task.0 as usize] {
                    ThreadKind::Vcpu(vcpu) => {
                        self.wake_thread(vcpu, step);
                    }
                    ThreadKind::Plain | ThreadKind::Voluntary => {
                        self.sched.wake(task, step);
                    }
                },
                Timer::Ioapic(vm) => self.ioapic_later(vm, step),
                Timer::Period(_) | Timer::Slack(_) => self.sched.bandwidth_timer(timer, step),
            }
        }
        if tick {
            self.pcpus[pcpu as usize].tick_at = Some(self.next_tick(pcpu, step.now));
            self.sched.tick(pcpu, step);
        }
    }

    /// The first tick of `pcpu` after `now`.
    fn next_tick(&self, pcpu: u32, now: u64) -> u64 {
        let phase = self.pcpus[pcpu as usize].tick_phase;
        let passed = if now < phase {
            return phase;
        } else {
            (now - phase) / self.tick_ns
        };
        phase + (passed + 1) * self.tick_ns
    }

    /// Until when `pcpu` polls, if it does.
    fn poll_until(&self, pcpu: u32) -> Option<u64> {
        match self.pcpus[pcpu as usize].doing {
            Some(Run::Poll(vcpu)) => match self.vcpus[vcpu.0 as usize].activity {
                Activity::Poll { until } => Some(until),
                _ => None,
            },
            _ => None,
        }
    }

    /// Has the scheduler pick who runs on the executing pCPU, and switches to it.
    pub(crate) fn reschedule(&mut self, step: &mut Step<'_>) {
        let pcpu = step.pcpu;
        let prev = self.sched.current(pcpu);
        let next = self.sched.schedule(pcpu, step);
        if prev == next {
            return;
        }
        match prev.map(|task| (task, self.threads[task.0 as usize])) {
            Some((_, ThreadKind::Vcpu(vcpu))) => self.put(vcpu, step),
            Some((task, ThreadKind::Voluntary)) => self.report_waiting(task, step),
            _ => {}
        }
        // A voluntary task's kernel counts what switching to it takes as its own time.
        if next.is_none_or(|task| self.threads[task.0 as usize] != ThreadKind::Voluntary) {
            step.charge(Cost::ContextSwitch, 1);
        }
        if let Some(ThreadKind::Vcpu(vcpu)) = next.map(|task| self.threads[task.0 as usize]) {
            self.load(vcpu, step);
            if self.vcpus[vcpu.0 as usize].ran {
                self.shrink_pause_window(vcpu, step);
            }
            self.at(vcpu).ran = true;
        }
        match (prev, next) {
            (None, Some(_)) => self.pcpus[pcpu as usize].tick_at = Some(self.next_tick(pcpu, step.now)),
            (_, None) => self.pcpus[pcpu as usize].tick_at = None,
            _ => {}
        }
    }

    /// Ends a step: finds what the executing pCPU does now, sets its timer and says `Run`.
    pub(crate) fn finish(&mut self, step: &mut Step<'_>) {
        let run = loop {
            if self.sched.need_resched(step.pcpu) && !self.polls(step.pcpu) && !self.is_voluntary(step.pcpu) {
                self.reschedule(step);
            }
            let Some(task) = self.sched.current(step.pcpu) else {
                break Run::Idle;
            };
            let ThreadKind::Vcpu(vcpu) = self.threads[task.0 as usize] else {
                break Run::Task(task);
            };
            match self.resume(vcpu, step) {
                Resume::Run(run) => break run,
                Resume::Sleep => self.reschedule(step),
                Resume::Again => {}
            }
        };
        let pcpu = step.pcpu;
        self.pcpus[pcpu as usize].doing = Some(run);
        self.note_throttling(step);
        while let Some((timer, at)) = self.sched.next_timer() {
            self.timers.arm(timer, pcpu, at);
        }
        self.program_timer(step);
        step.out.push(Command::Run {
            pcpu: PcpuId(pcpu),
            run,
        });
    }

    /// Says of vCPUs whose threads wait that they are throttled, or are no longer.
    fn note_throttling(&mut self, step: &mut Step<'_>) {
        while let Some(task) = self.sched.next_throttle_change() {
            let ThreadKind::Vcpu(vcpu) = self.threads[task.0 as usize] else {
                continue;
            };
            let throttled = self.sched.is_throttled(task);
            let at = self.at(vcpu);
            let waits = match at.state {
                VcpuState::Preempted | VcpuState::Woken if throttled => VcpuState::Throttled,
                VcpuState::Throttled if !throttled && at.preempted => VcpuState::Preempted,
                VcpuState::Throttled if !throttled => VcpuState::Woken,
                _ => continue,
            };
            at.set_state(waits, step);
        }
    }

    /// Whether the thread on `pcpu` polls: it looks after rescheduling itself.
    fn polls(&self, pcpu: u32) -> bool {
        let Some(task) = self.sched.current(pcpu) else {
            return false;
        };
        let ThreadKind::Vcpu(vcpu) = self.threads[task.0 as usize] else {
            return false;
        };
        matches!(self.vcpus[vcpu.0 as usize].activity, Activity::Poll { .. })
    }

    /// The thread of `vcpu` has the executing pCPU: goes on with what it was doing.
    fn resume(&mut self, vcpu: VcpuId, step: &mut Step<'_>) -> Resume {
        if self.accept_events(vcpu, step) {
            return Resume::Again;
        }
        match self.at(vcpu).activity {
            Activity::Run => Resume::Run(self.enter(vcpu, step)),
            Activity::Poll { until } => self.poll(vcpu, until, step),
            Activity::Block => self.try_unblock(vcpu, step),
            Activity::PauseSleep => {
                self.at(vcpu).activity = Activity::Run;
                Resume::Again
            }
            Activity::Dead => Resume::Sleep,
        }
    }

    /// Sets the executing pCPU's hardware timer to the first thing that is due.
    fn program_timer(&mut self, step: &mut Step<'_>) {
        let pcpu = step.pcpu;
        let due = [
            self.pcpus[pcpu as usize].tick_at,
            self.poll_until(pcpu),
            self.timers.next(pcpu),
        ];
        let at = due.into_iter().flatten().min().map(|at| at.max(step.now));
        if at == self.pcpus[pcpu as usize].programmed {
            return;
        }
        self.pcpus[pcpu as usize].programmed = at;
        step.charge(Cost::TimerProgram, 1);
        step.out.push(Command::Timer {
            pcpu: PcpuId(pcpu),
            at: at.map(Nanos),
        });
    }

    /// Ends those polls that this step has given a reason to end: their loops see it in memory.
    fn end_polls(&mut self, now: Nanos, out: &mut Vec<Command>) {
        while let Some(pcpu) = self.poll_kicks.pop().or_else(|| self.sched.next_poll_end()) {
            if self.poll_until(pcpu).is_some() {
                self.finish(&mut Step::new(now, PcpuId(pcpu), out));
            }
        }
    }

    /// `vcpu` takes the executing pCPU (`kvm_arch_vcpu_load`): its thread does, or comes from user space.
    pub(crate) fn load(&mut self, vcpu: VcpuId, step: &mut Step<'_>) {
        step.charge(Cost::VcpuLoad, 1);
        let at = self.at(vcpu);
        at.preempted = false;
        at.ready = false;
        at.requests.steal_update = true;
        at.cpu = Some(step.pcpu);
        self.avic_load(vcpu, step.pcpu);
        self.apicv_load(vcpu, step.pcpu);
        let at = self.at(vcpu);
        at.set_state(VcpuState::HandlingExit, step);
        let task = at.timer;
        // A timer expires where its vCPU runs: it comes along.
        if let Some((pcpu, deadline)) = self.timers.armed(Timer::Lapic(task))
            && pcpu != step.pcpu
        {
            self.timers.arm(Timer::Lapic(task), step.pcpu, deadline);
        }
    }

    /// The thread of `vcpu` gives the executing pCPU away (`kvm_arch_vcpu_put`, preempt notifier `sched_out`).
    fn put(&mut self, vcpu: VcpuId, step: &mut Step<'_>) {
        step.charge(Cost::VcpuLoad, 1);
        let reports = self.reports_preemption(vcpu);
        self.avic_put(vcpu);
        let task = self.vcpus[vcpu.0 as usize].task;
        let (runnable, throttled) = (self.sched.is_runnable(task), self.sched.is_throttled(task));
        self.apicv_put(vcpu, runnable);
        let at = self.at(vcpu);
        if runnable {
            at.preempted = true;
            at.ready = true;
            at.preempted_in_kernel = at.guest.cpl == 0;
            if reports {
                at.counters.preemption_reported += 1;
            } else {
                at.counters.preemption_other += 1;
            }
            let waits = if throttled {
                VcpuState::Throttled
            } else {
                VcpuState::Preempted
            };
            at.set_state(waits, step);
        }
        if at.activity != Activity::Dead {
            self.report_preempted(vcpu, step);
        }
    }
}
