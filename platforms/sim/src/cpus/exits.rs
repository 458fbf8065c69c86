//! The boundary between guest and host: exits, entries, interrupts, and what the host's commands do to the machine.

use holdfast_host::{
    Command, Event, Exit, GuestState, HostInterrupt, Nanos, PauseControls, PcpuId, Run, VcpuId, VcpuState,
};
use holdfast_machine::{Key, PauseHardware, PauseLimit, Picos, Time};

use crate::books::cause::Cause;
use crate::core::engine::{CLASS_ACTIVITY, Engine};
use crate::core::failure::Failure;
use crate::cpus::costs::exit_cause;
use crate::cpus::pcpu::{Activity, Handler, Interrupted};
use crate::cpus::vcpu::Mode;

impl Engine {
    /// The flow of `vcpu`, which executes, leaves its guest.
    pub fn leave_guest(&mut self, vcpu: u32, exit: Exit) {
        let Some(pcpu) = self.vcpus[vcpu as usize].pcpu else {
            self.failure = Some(Failure::Invalid(format!("vcpu {vcpu} exits and is not in its guest")));
            return;
        };
        if self.vcpus[vcpu as usize].native {
            if exit == Exit::InterruptWindow {
                self.native_window(vcpu);
            } else {
                self.failure = Some(Failure::Invalid(format!("{exit:?} on the machine itself")));
            }
            return;
        }
        self.suspend(vcpu);
        self.vcpus[vcpu as usize].out_cause = exit_cause(&exit);
        self.record_exit(vcpu, &exit);
        self.host_exit(pcpu, vcpu, exit, self.costs.exit_hardware);
        self.record_exit_handled();
    }

    /// Stops `vcpu`, in guest mode, at this instant.
    pub fn suspend(&mut self, vcpu: u32) {
        self.audit_exit(vcpu);
        self.unpark_for_stop(vcpu);
        self.settle(vcpu);
        self.settle_wait(vcpu);
        let now = self.now;
        let this = &mut self.vcpus[vcpu as usize];
        this.remaining = this.clock.since(now);
        if let Some(pcpu) = this.pcpu.take() {
            let pcpu = &mut self.pcpus[pcpu as usize];
            pcpu.ran += now.since(pcpu.since);
        }
    }

    /// `vcpu` has left its guest on `pcpu`, where the hardware still takes `hardware` for it.
    pub fn host_exit(&mut self, pcpu: u32, vcpu: u32, exit: Exit, hardware: Picos) {
        self.count_exit(vcpu);
        let pv_eoi = self.take_pv_eoi(vcpu);
        let this = &self.vcpus[vcpu as usize];
        let guest = GuestState {
            // A vector that was injected and not yet taken has entered its handler, which runs with interrupts masked.
            interrupts_enabled: this.irqs_enabled && this.inject.is_none(),
            cpl: if this.mode == Mode::User { 3 } else { 0 },
            cr8: this.cr8,
            undelivered: None,
            pv_eoi,
        };
        // An interrupt that waited for the host's work to end is taken there, before the guest is entered.
        let is_entered = self.now > self.pcpus[pcpu as usize].since || !matches!(exit, Exit::ExternalInterrupt(_));
        if is_entered {
            self.pcpus[pcpu as usize].charged += hardware;
        }
        self.step_host(
            pcpu,
            Event::Exit {
                pcpu: PcpuId(pcpu),
                exit,
                guest,
            },
        );
    }

    /// Counts an exit of `vcpu` for the cause that was entered for it, while its guest's workload is measured.
    fn count_exit(&mut self, vcpu: u32) {
        let cause = self.vcpus[vcpu as usize].out_cause;
        let vm = self.vm_of(vcpu);
        if vm.begun.is_some() && vm.done.is_none() {
            vm.exits[cause as usize] += 1;
        }
    }

    /// An interrupt reaches `pcpu`.
    pub fn interrupt(&mut self, pcpu: u32, interrupt: HostInterrupt) {
        let this = &mut self.pcpus[pcpu as usize];
        match this.activity {
            Activity::Host => this.hold(interrupt),
            Activity::Guest(cpu) if self.vcpus[cpu as usize].native => self.interrupt_native(pcpu, interrupt),
            Activity::Guest(vcpu) => {
                self.suspend(vcpu);
                self.vcpus[vcpu as usize].out_cause = Cause::ExitInterrupt;
                if interrupt == HostInterrupt::Call {
                    let this = &mut self.pcpus[pcpu as usize];
                    if self.now > this.since {
                        this.charged += self.costs.exit_hardware.halved();
                    }
                    self.call_handler(pcpu, Interrupted::Guest(vcpu));
                } else {
                    self.host_exit(pcpu, vcpu, Exit::ExternalInterrupt(interrupt), self.costs.exit_hardware);
                }
            }
            Activity::Task(task) => {
                let ran = self.now.since(this.since);
                this.ran += ran;
                if let Some(task) = self.tasks.get_mut(&task) {
                    task.remaining = Picos(task.remaining.0.saturating_sub(ran.0));
                }
                if interrupt == HostInterrupt::Call {
                    return self.call_handler(pcpu, Interrupted::Other);
                }
                self.step_host(
                    pcpu,
                    Event::Interrupt {
                        pcpu: PcpuId(pcpu),
                        interrupt,
                    },
                );
            }
            Activity::Idle | Activity::Poll if interrupt == HostInterrupt::Call => {
                if this.activity == Activity::Idle {
                    this.charged += self.costs.idle_exit;
                }
                self.call_handler(pcpu, Interrupted::Other);
            }
            Activity::Idle | Activity::Poll => {
                self.step_host(
                    pcpu,
                    Event::Interrupt {
                        pcpu: PcpuId(pcpu),
                        interrupt,
                    },
                );
            }
        }
    }

    /// The host's step for something that happened on `pcpu`, which executes host code from now until its next `Run`.
    pub fn step_host(&mut self, pcpu: u32, event: Event) {
        self.stats.host_steps += 1;
        self.pcpus[pcpu as usize].activity = Activity::Host;
        self.record_host(pcpu, true);
        let mut commands = std::mem::take(&mut self.commands);
        self.host.handle(event, Nanos(self.now.nanos()), &mut commands);
        self.obey(&mut commands);
        self.commands = commands;
    }

    /// Starts the host.
    pub fn start_host(&mut self) {
        let mut commands = std::mem::take(&mut self.commands);
        self.host.start(Nanos(self.now.nanos()), &mut commands);
        self.obey(&mut commands);
        self.commands = commands;
    }

    fn obey(&mut self, commands: &mut Vec<Command>) {
        for command in commands.drain(..) {
            match command {
                Command::Charge { pcpu, cost, count } => {
                    let cost = self.cost(cost).times(u64::from(count));
                    self.pcpus[pcpu.0 as usize].charged += cost;
                }
                Command::Run { pcpu, run } => self.schedule_run(pcpu.0, run),
                Command::Timer { pcpu, at } => self.set_timer(pcpu.0, at),
                Command::Ipi { from, to } => {
                    self.record_host_ipi(from.0, to.0);
                    let at = self.now + self.costs.ipi_latency;
                    self.send_ipi(to.0, HostInterrupt::Reschedule, at);
                }
                Command::InjectNmi { vcpu } => {
                    self.cannot(vcpu, "takes an NMI, which no kernel here has a handler for")
                }
                Command::SetCr8 { vcpu, value } => self.vcpus[vcpu.0 as usize].cr8 = value,
                // No kernel here writes CR8.
                Command::InterceptCr8 { .. } => {}
                Command::Init { vcpu } => self.init(vcpu.0),
                // The image knows where its other CPUs begin.
                Command::Startup { .. } => {}
                Command::Doorbell { to } => self.ring(to.0),
                Command::Notify { to, vector, .. } => self.notify(to.0, vector),
                Command::Reply { vcpu, value } => self.vcpus[vcpu.0 as usize].reply = value,
                Command::ReplyCpuid { vcpu, value } => self.vcpus[vcpu.0 as usize].reply_cpuid = value,
                Command::Fault { vcpu } => self.vcpus[vcpu.0 as usize].fault = true,
                Command::StealTime {
                    pcpu,
                    vcpu,
                    address,
                    steal,
                    flush,
                } => {
                    let asked = self.update_steal_time(vcpu.0, address, steal);
                    if asked && flush {
                        self.flush_for_guest(pcpu.0, vcpu.0);
                    }
                }
                Command::PvEoi { vcpu, address } => self.set_pv_eoi(vcpu.0, address),
                Command::SetPreempted { vcpu, address } => self.set_preempted(vcpu.0, address),
                Command::State { vcpu, state } => self.set_state(vcpu.0, state),
                Command::PauseControls { vcpu, controls } => {
                    let limit = self.pause_limit(controls);
                    self.vcpus[vcpu.0 as usize].pauses.set(limit);
                }
                Command::SkipPause { vcpu } => self.vcpus[vcpu.0 as usize].skip_pause = true,
                Command::DirectedYield { from, to, done } => {
                    self.record_yield(from.0, to.0, done);
                    self.watch_yield(from.0, to.0, done);
                }
                Command::AcceptIrq { vcpu, vector } => self.audit_sent(vcpu.0, vector),
                // No device here has resampled lines.
                Command::Resample { .. } => {}
                Command::TaskWaits { task, pcpu } => self.task_waits(task, pcpu.0),
            }
        }
    }

    /// The machine cannot do what the host asks of `vcpu`.
    fn cannot(&mut self, vcpu: VcpuId, what: &str) {
        self.failure = Some(Failure::Invalid(format!("vcpu {} {what}", vcpu.0)));
    }

    /// INIT resets `vcpu`, which has executed nothing since the last one: its flow stands at the kernel's entry.
    fn init(&mut self, vcpu: u32) {
        if self.vcpus[vcpu as usize].begun {
            self.cannot(
                VcpuId(vcpu),
                "gets an INIT in the middle of its work, which no kernel here does",
            );
        }
    }

    fn schedule_run(&mut self, pcpu: u32, run: Run) {
        if let Run::Guest {
            vcpu,
            inject: Some(vector),
            ..
        } = run
        {
            self.audit_taken(vcpu.0, vector);
        }
        self.hash.add(self.now.0);
        self.hash.add(u64::from(pcpu) << 40 | run_code(run));
        let cold = self.costs.cache_refill;
        let has_moved = match run {
            Run::Guest { vcpu, .. } => self.vcpus[vcpu.0 as usize].last_pcpu != pcpu,
            _ => false,
        };
        let thread = match run {
            Run::Guest { vcpu, .. } => Some(Run::Poll(vcpu)),
            Run::Task(_) => Some(run),
            Run::Poll(_) | Run::Idle => None,
        };
        let task = match run {
            Run::Task(task) => Some(task),
            _ => None,
        };
        // A kernel's switches between its own tasks cost what its own switches cost: the same as in a guest.
        let thread = match task.and_then(|task| self.native_thread(task)) {
            Some(_) => self.native.as_ref().map(|native| Run::Task(native.task_of(0))),
            None => thread,
        };
        self.native_chosen(pcpu, task);
        let this = &mut self.pcpus[pcpu as usize];
        if let Some(thread) = thread {
            let refill = this.warm(thread, has_moved, cold);
            this.charged += refill;
        }
        this.activity = Activity::Host;
        this.next = run;
        self.record_run(pcpu, run);
        let this = &mut self.pcpus[pcpu as usize];
        let at = self.now + this.charged;
        this.charged = Picos::ZERO;
        self.queue.set(pcpu, Key::new(at, CLASS_ACTIVITY, pcpu));
    }

    fn set_timer(&mut self, pcpu: u32, at: Option<Nanos>) {
        let slot = self.timer_slot(pcpu);
        if self.firing == Some(slot) {
            self.firing = None;
        }
        match at {
            Some(at) => {
                let at = Time::from_nanos(at.0).max(self.now);
                self.queue
                    .set(slot, Key::new(at, crate::core::engine::CLASS_INTERRUPT, slot));
            }
            None => self.queue.clear(slot),
        }
    }

    /// What `pcpu` did came to its end: host work, or a task's busy time.
    pub fn activity_ends(&mut self, pcpu: u32) {
        let this = &mut self.pcpus[pcpu as usize];
        match this.activity {
            Activity::Host => self.begin(pcpu),
            Activity::Task(id) => {
                this.ran += self.now.since(this.since);
                this.since = self.now;
                if self.is_network_thread(id) {
                    if let Some(task) = self.tasks.get_mut(&id) {
                        task.remaining = Picos::ZERO;
                    }
                    return self.run_network_thread(pcpu, id);
                }
                let mut until = None;
                if let Some(task) = self.tasks.get_mut(&id) {
                    task.remaining = task.busy.unwrap_or(Picos(u64::MAX));
                    until = Some(Nanos((self.now + task.sleep).nanos()));
                }
                self.step_host(
                    pcpu,
                    Event::TaskSleeps {
                        pcpu: PcpuId(pcpu),
                        until,
                    },
                );
            }
            Activity::Guest(_) | Activity::Idle | Activity::Poll => {
                unreachable!("pcpu {pcpu} has an end event and is {:?}", this.activity)
            }
        }
    }

    /// `pcpu` does what the host told it to do next; an interrupt that waited comes right after.
    fn begin(&mut self, pcpu: u32) {
        if let Handler::Due(interrupted) = self.pcpus[pcpu as usize].handler {
            return self.enter_handler(pcpu, interrupted);
        }
        self.record_host(pcpu, false);
        let interrupt = self.pcpus[pcpu as usize].next_interrupt();
        let next = self.pcpus[pcpu as usize].next;
        let thread = match next {
            Run::Task(task) => self.native_thread(task),
            _ => None,
        };
        let is_network = matches!(next, Run::Task(task) if self.is_network_thread(task));
        let this = &mut self.pcpus[pcpu as usize];
        this.since = self.now;
        match next {
            Run::Task(_) if let Some(thread) = thread => self.enter_thread(pcpu, thread),
            Run::Guest { vcpu, inject, window } => {
                this.activity = Activity::Guest(vcpu.0);
                self.enter_guest(pcpu, vcpu.0, inject, window);
            }
            Run::Task(task) if is_network => self.run_network_thread(pcpu, task),
            Run::Task(task) => {
                this.activity = Activity::Task(task);
                let end = self
                    .tasks
                    .get(&task)
                    .map_or(Time::NEVER, |task| self.now + task.remaining);
                self.queue.set(pcpu, Key::new(end, CLASS_ACTIVITY, pcpu));
            }
            Run::Poll(_) => {
                this.activity = Activity::Poll;
                self.queue.clear(pcpu);
            }
            Run::Idle => {
                this.activity = Activity::Idle;
                self.queue.clear(pcpu);
            }
        }
        if let Some(interrupt) = interrupt {
            self.interrupt(pcpu, interrupt);
        }
    }

    fn enter_guest(&mut self, pcpu: u32, vcpu: u32, inject: Option<u8>, window: bool) {
        self.record_out(vcpu);
        if let Some(vector) = inject {
            self.record_inject(vcpu, vector);
        }
        let now = self.now;
        let this = &mut self.vcpus[vcpu as usize];
        assert!(
            this.pcpu.is_none(),
            "vcpu {vcpu} is entered on pcpu {pcpu} and is in its guest already"
        );
        self.finish_torn_exchange(vcpu);
        self.check_translations(vcpu);
        let this = &mut self.vcpus[vcpu as usize];
        this.ledger.enter_until(this.out_cause, now);
        this.pcpu = Some(pcpu);
        this.begun = true;
        let has_moved = std::mem::replace(&mut this.last_pcpu, pcpu) != pcpu;
        this.clock = now + this.remaining;
        this.remaining = Picos::ZERO;
        this.window = window;
        this.pauses.enter();
        if inject.is_some() {
            assert!(
                this.inject.is_none(),
                "vcpu {vcpu} gets a second vector before it took the first"
            );
            this.inject = inject;
        }
        self.audit_entry(has_moved);
        // The entry evaluates.
        self.take_notification(pcpu, vcpu);
        if let Some(vector) = self.evaluate(vcpu) {
            self.vcpus[vcpu as usize].inject = Some(vector);
        }
        let this = &self.vcpus[vcpu as usize];
        let turn = if this.inject.is_some() { now } else { this.clock };
        self.queue.set(pcpu, Key::new(turn, CLASS_ACTIVITY, pcpu));
        self.mark(vcpu);
    }

    pub fn set_state(&mut self, vcpu: u32, state: VcpuState) {
        self.audit_state(vcpu, state);
        self.hash.add(u64::from(vcpu) << 8 | state as u64);
        let now = self.now;
        let this = &mut self.vcpus[vcpu as usize];
        let (before, was_running, was_throttled) = (this.state, this.is_running(), this.is_throttled());
        if this.pcpu.is_none() {
            this.ledger.enter_until(this.out_cause, now);
            self.record_out(vcpu);
        }
        let this = &mut self.vcpus[vcpu as usize];
        this.state = state;
        let lock_wait = this.contending.is_some();
        this.out_cause = match state {
            VcpuState::HandlingExit | VcpuState::InGuest if was_running => this.out_cause,
            VcpuState::HandlingExit | VcpuState::InGuest => Cause::HostOverhead,
            VcpuState::Polling | VcpuState::Blocked if lock_wait => Cause::HaltedForLock,
            VcpuState::Polling | VcpuState::Blocked => Cause::Idle,
            VcpuState::Preempted => Cause::Runnable,
            VcpuState::Throttled => Cause::Throttled,
            VcpuState::Woken => Cause::WakeLatency,
            VcpuState::PauseSleep => Cause::ExitPause,
            // No device of a simulated guest is emulated in user space.
            VcpuState::Userspace => Cause::HostOverhead,
            VcpuState::Dead => Cause::Off,
        };
        let (holding, waiting) = (u64::from(!this.held.is_empty()), u64::from(lock_wait));
        let vm = self.vm_of(vcpu);
        match state {
            VcpuState::Preempted if before != VcpuState::Throttled => {
                vm.preempted_holding += holding;
                vm.preempted_waiting += waiting;
            }
            VcpuState::Throttled => {
                vm.throttled_holding += holding;
                vm.throttled_waiting += waiting;
            }
            _ => {}
        }
        self.record_state(vcpu, before);
        let this = &mut self.vcpus[vcpu as usize];
        if this.is_running() != was_running {
            match this.off_since.take() {
                Some(since) => this.off_time += now.since(since).0,
                None => this.off_since = Some(now),
            }
            self.running_changed(vcpu);
        } else if this.is_throttled() != was_throttled {
            self.running_changed(vcpu);
        }
    }

    /// Brings every ledger up to now.
    pub fn close_ledgers(&mut self) {
        for vcpu in 0..self.vcpus.len() as u32 {
            if self.vcpus[vcpu as usize].pcpu.is_some() {
                self.suspend(vcpu);
            } else {
                let now = self.now;
                self.record_out(vcpu);
                let this = &mut self.vcpus[vcpu as usize];
                this.ledger.enter_until(this.out_cause, now);
            }
        }
    }

    /// The control fields in the machine's units. What the part does not have, it ignores.
    ///
    /// The machine counts from one PAUSE's begin to the next one's, the part from its end (uncertain: manuals say "between
    /// executions"). Else no loop would be one on a part whose PAUSE alone takes longer than KVM's gap of 128 cycles, and
    /// directed yield was measured on those with that gap (Skylake, Linux commit d73eb57b80b9).
    fn pause_limit(&self, controls: PauseControls) -> PauseLimit {
        let cycles = |cycles: u32| Picos::from_cycles(u64::from(cycles), self.frequency_hz);
        match (self.pause_hardware, controls) {
            (Some(PauseHardware::Ple), PauseControls::Ple { gap, window }) => PauseLimit::Ple {
                gap: cycles(gap) + self.costs.pause,
                window: cycles(window),
            },
            (Some(PauseHardware::Filter), PauseControls::Filter { count, threshold }) => PauseLimit::Filter {
                count: u64::from(count),
                threshold: match threshold {
                    0 => Picos::ZERO,
                    _ => cycles(threshold) + self.costs.pause,
                },
            },
            _ => PauseLimit::Off,
        }
    }
}

fn run_code(run: Run) -> u64 {
    match run {
        Run::Idle => 0,
        Run::Guest { vcpu, inject, window } => {
            let vector = inject.map_or(0, |vector| u64::from(vector) | 0x100);
            1 | u64::from(vcpu.0) << 3 | vector << 24 | u64::from(window) << 2
        }
        Run::Task(task) => 2 | u64::from(task.0) << 3,
        Run::Poll(vcpu) => 3 | u64::from(vcpu.0) << 3,
    }
}
