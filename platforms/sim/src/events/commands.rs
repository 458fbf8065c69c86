//! Steps of the host, and what its commands do to the machine.

use holdfast_host::{Command, Cost, Event, HostInterrupt, Nanos, PcpuId, Run, VcpuId, VcpuState};
use holdfast_machine::{Picos, Time};

use crate::books::happened::Happened;
use crate::core::cause::Cause;
use crate::engine::Engine;
use crate::engine::boot::boot_flow;
use crate::parts::pcpu::Activity;

impl Engine {
    /// The host handles `event`, which happened on `pcpu`. The pCPU executes host code from now until its next `Run`.
    pub fn step_host(&mut self, pcpu: PcpuId, event: Event) {
        self.books.stats.host_steps += 1;
        self.pcpus[pcpu].activity = Activity::Host;
        self.emit(&Happened::HostRuns { pcpu, executes: true });
        let commands = self.with_host(|host, now, commands| host.handle(event, now, commands));
        if self.books.is_recording() {
            self.stepped();
        }
        self.apply_commands(pcpu, commands);
    }

    /// The timeline looks which host tasks sleep after a step of the host.
    #[cold]
    fn stepped(&mut self) {
        self.emit(&Happened::HostStepped);
    }

    /// Starts the host.
    pub fn start_host(&mut self) {
        let commands = self.with_host(|host, now, commands| host.start(now, commands));
        self.apply_commands(PcpuId(0), commands);
    }

    /// Starts the host to which the guests have migrated.
    pub fn start_migrated_host(&mut self, draw: &mut dyn FnMut(usize) -> usize) {
        let commands = self.with_host(|host, now, commands| host.start_migrated(draw, now, commands));
        self.apply_commands(PcpuId(0), commands);
    }

    /// Applies what the host did in one step on `pcpu`. Work takes time: each command has its effect when the work that
    /// was charged before it is done.
    fn apply_commands(&mut self, pcpu: PcpuId, mut commands: Vec<Command>) {
        for &command in &commands {
            self.apply(pcpu, command);
        }
        commands.clear();
        self.reuse_commands(commands);
    }

    #[inline]
    fn apply(&mut self, executing: PcpuId, command: Command) {
        let delay = self.pcpus[executing].charged;
        match command {
            Command::Charge { pcpu, cost, count } => {
                let time = match cost {
                    // No computing: the hardware is on its way out of an idle state.
                    Cost::IdleExit => self.idle_exit(pcpu),
                    Cost::Wake => {
                        let wake = self.wake_time(pcpu);
                        self.stretched(pcpu, wake)
                    }
                    _ => self.stretched(pcpu, self.hardware.cost(cost).times(u64::from(count))),
                };
                self.pcpus[pcpu].charged += time;
            }
            Command::Run { pcpu, run } if pcpu == executing => self.schedule_run(pcpu, run, Picos::ZERO),
            // A polling loop sees what the executing pCPU has done.
            Command::Run { pcpu, run } => self.schedule_run(pcpu, run, delay),
            Command::Timer { pcpu, at } => {
                let late = |at: Nanos| Time::from_nanos(at.0) + self.hardware.timer_delay(pcpu, at);
                self.clock.set_timer(pcpu, at.map(late));
            }
            Command::Ipi { from, to } => {
                self.emit(&Happened::HostIpiSent { from, to });
                self.send_ipi(to, HostInterrupt::Reschedule, delay);
            }
            Command::Doorbell { to } => {
                self.emit(&Happened::HostRang { from: executing, to });
                self.send_doorbell(to, delay);
            }
            Command::Notify { to, vector, .. } => {
                self.emit(&Happened::HostRang { from: executing, to });
                self.send_notification(to, vector, delay);
            }
            Command::StealTime {
                pcpu,
                vcpu,
                address,
                steal,
                flush,
            } => {
                let flush = self.update_steal_time(vcpu, address, steal, flush);
                self.pcpus[pcpu].charged += flush;
            }
            Command::LeaveNested { vcpu } => self.leave_nested(vcpu),
            // The guest's memory is kept for the report.
            Command::VmEnded { .. } => {}
            // No simulated device has resampled lines.
            Command::TaskWaits { task, pcpu } => self.task_waits(task, pcpu),
            other => self.apply_to_vcpu(other),
        }
    }

    /// Applies `command`, which changes a vCPU and takes no time.
    pub fn apply_to_vcpu(&mut self, command: Command) {
        match command {
            Command::InjectNmi { vcpu } => self.vcpus[vcpu].interrupts.nmi = true,
            Command::SetCr8 { vcpu, value } => self.vcpus[vcpu].interrupts.cr8 = value,
            Command::Init { vcpu } => self.init(vcpu),
            Command::Reply { vcpu, value } => self.vcpus[vcpu].replies.value = value,
            Command::ReplyCpuid { vcpu, value } => self.vcpus[vcpu].replies.cpuid = value,
            Command::Fault { vcpu } | Command::InvalidOpcode { vcpu } => self.vcpus[vcpu].replies.fault = true,
            Command::PvEoi { vcpu, address } => {
                self.vcpus[vcpu].interrupts.pv_eoi = Some(address);
                self.vm_of(vcpu).fixed.memory.set_pv_eoi(address);
            }
            Command::Grant { vcpu, address, granted } => self.vm_of(vcpu).fixed.memory.tell_grant(address, granted),
            Command::SliceEnd { vcpu, address, ends } => self.vm_of(vcpu).fixed.memory.tell_slice_end(address, ends),
            Command::SetPreempted { vcpu, address } => self.vm_of(vcpu).fixed.memory.set_preempted(address),
            Command::State { vcpu, state } => self.set_state(vcpu, state),
            Command::PauseControls { vcpu, controls } => {
                let limit = self.hardware.pause_limit(controls);
                self.vcpus[vcpu].spin.pauses.set(limit);
            }
            Command::SkipPause { vcpu } => self.vcpus[vcpu].spin.skip_pause = true,
            Command::DirectedYield { from, to, done } => self.emit(&Happened::DirectedYield { from, to, done }),
            Command::AcceptIrq { vcpu, vector } => self.emit(&Happened::Accepted { vcpu, vector }),
            // No simulated kernel writes CR8, and the image knows the entry point of its other CPUs.
            Command::InterceptCr8 { .. } | Command::Startup { .. } => {}
            other => unreachable!("{other:?} is not for a vcpu"),
        }
    }

    /// The time that `pcpu` needs to wake a thread now.
    pub fn wake_time(&mut self, pcpu: PcpuId) -> Picos {
        let costs = &self.hardware.costs;
        costs.wake + self.pcpus[pcpu].caches.warm_up(costs.wake_cold)
    }

    /// The time that `pcpu`, which an interrupt reaches now, needs to leave the idle loop.
    pub fn idle_exit(&self, pcpu: PcpuId) -> Picos {
        self.hardware.idle_exit(self.clock.now.since(self.pcpus[pcpu].since))
    }

    /// INIT resets `vcpu`, which is out of its guest: its flow ends where it is, and the next one begins at the
    /// kernel's entry. What the flow holds stays held, as on hardware. Its stack is kept, since other flows may use
    /// what is on it.
    fn init(&mut self, vcpu: VcpuId) {
        if !self.vcpus[vcpu].flow.has_begun {
            return;
        }
        self.empty_tlb(vcpu);
        let contended = self.vcpus[vcpu].reset();
        if let Some(line) = contended {
            self.emit(&Happened::ContentionEnded { vcpu, line });
        }
        boot_flow(self, vcpu);
    }

    /// A host brings the steal-time record of `vcpu`, which it is about to run, up to date. It flushes the TLB if the
    /// guest has asked for that and `flush` allows it. Returns the time of the flush.
    pub fn update_steal_time(&mut self, vcpu: VcpuId, address: u64, steal: u64, flush: bool) -> Picos {
        let number = self.vcpus[vcpu].number;
        self.vcpus[vcpu].replies.record = Some(address);
        let memory = &self.vm_of(vcpu).fixed.memory;
        let is_asked = memory.update_steal_time(number, address, steal);
        let flushes = is_asked && flush && memory.host_flushes();
        if !flushes {
            return Picos::ZERO;
        }
        self.empty_tlb(vcpu);
        self.hardware.costs.tlb_flush
    }

    /// The host changes the state of `vcpu`.
    pub fn set_state(&mut self, vcpu: VcpuId, state: VcpuState) {
        let before = std::mem::replace(&mut self.vcpus[vcpu].state, state);
        self.note_wakeup(vcpu, before, state);
        self.emit(&Happened::StateChanged { vcpu, before });
        self.carrier_changed(vcpu);
    }

    /// Notes how long `vcpu` of a recorded guest waited for a pCPU since it was woken.
    fn note_wakeup(&mut self, vcpu: VcpuId, before: VcpuState, now: VcpuState) {
        let (id, at) = (self.vcpus[vcpu].vm, self.clock.now);
        let Some(wakes) = &mut self.vms[id].report.wakes else {
            return;
        };
        match (before, now) {
            (VcpuState::Blocked, VcpuState::Woken | VcpuState::Throttled) => self.vcpus[vcpu].spin.woken = Some(at),
            (_, VcpuState::HandlingExit) => {
                if let Some(woken) = self.vcpus[vcpu].spin.woken.take() {
                    wakes.record(at.since(woken).0 / 1000);
                }
            }
            _ => {}
        }
    }

    /// The host has chosen `run` for `pcpu`. A vCPU's thread that is preempted in the VMM's user space is a preempted
    /// vCPU in the books, although the host does not count it as one.
    fn vmm_chosen(&mut self, pcpu: PcpuId, run: Run) {
        let of = |engine: &Engine, run| match run {
            Run::Task(task) => engine.tasks.vcpu_in_vmm(task),
            _ => None,
        };
        let (before, now) = (of(self, self.pcpus[pcpu].next), of(self, run));
        if let Some(vcpu) = before.filter(|_| before != now) {
            self.set_state(vcpu, VcpuState::Preempted);
        }
        if let Some(vcpu) = now.filter(|&vcpu| self.vcpus[vcpu].state == VcpuState::Preempted) {
            self.set_state(vcpu, VcpuState::Userspace);
        }
    }

    /// The host has chosen what `pcpu` does next: `run`, when `delay` and then the work that was charged have passed.
    fn schedule_run(&mut self, pcpu: PcpuId, run: Run, delay: Picos) {
        let task = match run {
            Run::Task(task) => Some(task),
            _ => None,
        };
        let has_moved = match run {
            Run::Guest { vcpu, .. } => self.vcpus[vcpu].last_pcpu != pcpu,
            _ => false,
        };
        // The thread whose lines the caches have to hold. A switch between two tasks of the bare-metal kernel costs
        // what a switch between two tasks of a guest costs, so all of them count as one thread.
        let thread = match (run, &self.tasks.native) {
            (Run::Guest { vcpu, .. }, _) => Some(Run::Poll(vcpu)),
            (Run::Task(task), Some(native)) if native.thread_of(task).is_some() => Some(Run::Task(native.task_of(0))),
            // The vCPU's own thread, in the VMM.
            (Run::Task(task), _) => Some(self.tasks.vcpu_in_vmm(task).map_or(run, Run::Poll)),
            (Run::Poll(_) | Run::Idle, _) => None,
        };
        self.native_chosen(pcpu, task);
        if let (Run::Task(_), _) | (_, Run::Task(_)) = (run, self.pcpus[pcpu].next) {
            self.vmm_chosen(pcpu, run);
        }
        let refill = self.hardware.costs.cache_refill;
        if let Some(thread) = thread {
            let this = &mut self.pcpus[pcpu];
            let span = this.caches.switch_to(thread, has_moved, refill);
            this.charged += span;
            if let (Run::Guest { vcpu, .. }, true) = (run, span != Picos::ZERO) {
                self.emit(&Happened::Slowed {
                    vcpu,
                    within: Cause::HostOverhead,
                    cause: Cause::ColdCaches,
                    span,
                });
            }
        }
        let this = &mut self.pcpus[pcpu];
        this.activity = Activity::Host;
        this.next = run;
        self.emit(&Happened::Chosen { pcpu, run });
        let charged = std::mem::replace(&mut self.pcpus[pcpu].charged, Picos::ZERO);
        self.clock.set_activity(pcpu, self.clock.now + delay + charged);
    }
}
