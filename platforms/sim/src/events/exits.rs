//! The boundary between guest and host: exits, interrupts, the ends of host work and of tasks, and what a pCPU does
//! after the host's work: it enters a guest, runs a task, polls, or idles.

use holdfast_host::{
    Event, Exit, GuestState, HardwareEvent, HostInterrupt, Nanos, PcpuId, Run, TaskEvent, TaskId, VcpuId,
};
use holdfast_machine::Picos;

use crate::books::happened::Happened;
use crate::core::cause::Cause;
use crate::engine::Engine;
use crate::events::disk;
use crate::events::siblings::{computed, stretch};
use crate::parts::hardware::exit_cause;
use crate::parts::pcpu::{Activity, Handler, Interrupted};
use crate::parts::vcpu::Mode;
use crate::tasks::DeviceWork;
use crate::tasks::task::Task;

impl Engine {
    /// The flow of `vcpu`, which executes, leaves its guest.
    pub fn leave_guest(&mut self, vcpu: VcpuId, exit: Exit) {
        let Some(pcpu) = self.vcpus[vcpu].pcpu else {
            let what = format_args!("vcpu {} exits and is not in its guest", vcpu.0);
            return self.end.invalid(what);
        };
        if self.vcpus[vcpu].native {
            if exit == Exit::InterruptWindow {
                self.native_window(vcpu);
            } else {
                let what = format_args!("cpu {} of the bare-metal kernel exits for {exit:?}", vcpu.0);
                self.end.invalid(what);
            }
            return;
        }
        self.suspend(vcpu);
        let cause = exit_cause(&exit);
        self.emit(&Happened::Exited {
            vcpu,
            cause,
            exit: Some(&exit),
        });
        let outer = self.outer_of(vcpu, Some(&exit));
        if exit == Exit::Userspace && outer == vcpu {
            let remaining = self.vm_of(vcpu).fixed.settings.device;
            let work = DeviceWork { vcpu, remaining };
            self.tasks.in_vmm.insert(self.host.thread(vcpu), work);
        }
        self.host_exit(pcpu, outer, exit, self.hardware.costs.exit_hardware);
        self.emit(&Happened::ExitHandled);
    }

    /// The host handles `exit` of `vcpu` on `pcpu`, where the hardware still takes `hardware` for it.
    pub fn host_exit(&mut self, pcpu: PcpuId, vcpu: VcpuId, exit: Exit, hardware: Picos) {
        self.emit(&Happened::ExitReachedHost { vcpu });
        let guest = self.guest_state(vcpu);
        // An interrupt that waited for the host's work to end is taken there, before the guest is entered.
        let is_entered = self.clock.now > self.pcpus[pcpu].since || !matches!(exit, Exit::ExternalInterrupt(_));
        if is_entered {
            self.pcpus[pcpu].charged += hardware;
        }
        self.step_host(pcpu, Event::Hardware(HardwareEvent::Exit { pcpu, exit, guest }));
    }

    /// The state that `vcpu`, which has left its guest, shows to the host. Takes back the bit of its PV EOI word.
    pub fn guest_state(&mut self, vcpu: VcpuId) -> GuestState {
        let pv_eoi = match self.vcpus[vcpu].interrupts.pv_eoi.take() {
            Some(address) => self.vm_of(vcpu).fixed.memory.take_pv_eoi(address),
            None => false,
        };
        let record = self.vcpus[vcpu].replies.record;
        let word = record.map_or(0, |address| self.vm_of(vcpu).fixed.memory.guest_word(address));
        let this = &self.vcpus[vcpu];
        GuestState {
            // A vector that was injected and not yet taken has entered its handler, which runs with interrupts masked.
            interrupts_enabled: this.interrupts.enabled && this.interrupts.vector.is_none(),
            cpl: if this.announced.mode == Mode::User { 3 } else { 0 },
            cr8: this.interrupts.cr8,
            undelivered: None,
            pv_eoi,
            word,
        }
    }

    /// `interrupt` reaches `pcpu`.
    pub fn interrupt(&mut self, pcpu: PcpuId, interrupt: HostInterrupt) {
        let is_call = interrupt == HostInterrupt::Call;
        match self.pcpus[pcpu].activity {
            Activity::Host => self.pcpus[pcpu].held.hold(interrupt),
            Activity::Guest(cpu) if self.vcpus[cpu].native => self.interrupt_native(pcpu, interrupt),
            Activity::Guest(vcpu) => self.interrupt_vcpu(pcpu, vcpu, interrupt),
            Activity::Task(task) => {
                self.stop_task(pcpu, task);
                if is_call {
                    return self.call_handler(pcpu, Interrupted::Other);
                }
                self.step_host(pcpu, Event::Hardware(HardwareEvent::Interrupt { pcpu, interrupt }));
            }
            activity @ (Activity::Idle | Activity::Poll) if is_call => {
                if activity == Activity::Idle {
                    let leaving = self.idle_exit(pcpu);
                    self.pcpus[pcpu].charged += leaving;
                }
                self.call_handler(pcpu, Interrupted::Other);
            }
            Activity::Idle | Activity::Poll => {
                self.step_host(pcpu, Event::Hardware(HardwareEvent::Interrupt { pcpu, interrupt }))
            }
        }
    }

    /// `interrupt` reaches `pcpu`, where `vcpu` is in guest mode.
    fn interrupt_vcpu(&mut self, pcpu: PcpuId, vcpu: VcpuId, interrupt: HostInterrupt) {
        self.suspend(vcpu);
        // The pCPU wakes up for the interrupt. It sleeps again when the guest is entered.
        if let Some(since) = &mut self.vcpus[vcpu].spin.asleep {
            let slept = self.clock.now.since(*since);
            *since = self.clock.now;
            self.pcpus[pcpu].charged += self.hardware.wake_up(slept);
        }
        self.emit(&Happened::Exited {
            vcpu,
            cause: Cause::ExitInterrupt,
            exit: None,
        });
        if interrupt == HostInterrupt::Call {
            let this = &mut self.pcpus[pcpu];
            if self.clock.now > this.since {
                this.charged += self.hardware.costs.exit_hardware.halved();
            }
            self.call_handler(pcpu, Interrupted::Guest(vcpu));
        } else {
            let hardware = self.hardware.costs.exit_hardware;
            let outer = self.outer_of(vcpu, None);
            self.host_exit(pcpu, outer, Exit::ExternalInterrupt(interrupt), hardware);
        }
    }

    /// The host work on `pcpu`, or the busy time of its task, ends.
    pub fn activity_ends(&mut self, pcpu: PcpuId) {
        match self.pcpus[pcpu].activity {
            Activity::Host => self.begin_next(pcpu),
            Activity::Task(id) => {
                let now = self.clock.now;
                self.pcpus[pcpu].stop(now);
                self.pcpus[pcpu].since = now;
                if let Some(work) = self.tasks.in_vmm.remove(&id) {
                    return self.step_host(pcpu, Event::Task(TaskEvent::RunsVcpu { pcpu, vcpu: work.vcpu }));
                }
                if let Some(vmm) = self.tasks.vmms.get_mut(&id) {
                    let event = vmm.next(pcpu, now.nanos());
                    return self.step_host(pcpu, event);
                }
                let rest = self.tasks.all.get_mut(&id).map(Task::rest);
                if self.tasks.is_network_thread(id) {
                    return self.run_network_thread(pcpu, id);
                }
                if self.tasks.is_disk_thread(id) {
                    return disk::run_thread(self, pcpu, id);
                }
                let until = rest.map(|rest| Nanos((now + rest).nanos()));
                self.step_host(pcpu, Event::Task(TaskEvent::Sleeps { pcpu, until }));
            }
            activity @ (Activity::Guest(_) | Activity::Idle | Activity::Poll) => {
                unreachable!("pcpu {} is {activity:?} and has an end event", pcpu.0)
            }
        }
    }

    /// `pcpu` does what the host has chosen for it. An interrupt that was held back comes right after.
    pub fn begin_next(&mut self, pcpu: PcpuId) {
        if let Handler::Due(interrupted) = self.pcpus[pcpu].handler {
            return self.enter_handler(pcpu, interrupted);
        }
        self.emit(&Happened::HostRuns { pcpu, executes: false });
        let this = &mut self.pcpus[pcpu];
        let interrupt = this.held.take();
        this.since = self.clock.now;
        match this.next {
            Run::Guest { vcpu, inject, window } => {
                this.activity = Activity::Guest(vcpu);
                match self.enter_nested(pcpu, vcpu) {
                    None => self.enter_guest(pcpu, vcpu, inject, window),
                    // Its own host has decided on both, and hardware keeps the wish for the window.
                    Some(inner) => self.enter_guest(pcpu, inner, None, self.vcpus[inner].interrupts.window),
                }
            }
            Run::Task(task) => self.begin_task(pcpu, task),
            Run::Poll(_) => {
                this.activity = Activity::Poll;
                self.clock.clear_activity(pcpu);
            }
            Run::Idle => {
                this.activity = Activity::Idle;
                self.clock.clear_activity(pcpu);
            }
        }
        if let Some(interrupt) = interrupt {
            self.interrupt(pcpu, interrupt);
        }
    }

    /// `pcpu` runs `task`, for `span` of computing if nothing comes in between.
    pub fn run_task(&mut self, pcpu: PcpuId, task: TaskId, span: Picos) {
        let slowdown = self.slowdown(pcpu);
        self.pcpus[pcpu].activity = Activity::Task(task);
        self.pcpus[pcpu].slowdown = slowdown;
        let end = self.clock.now + (span + stretch(span, slowdown));
        self.clock.set_activity(pcpu, end);
    }

    /// `task`, which runs on `pcpu`, is interrupted.
    pub fn stop_task(&mut self, pcpu: PcpuId, task: TaskId) {
        let this = &mut self.pcpus[pcpu];
        let ran = this.stop(self.clock.now);
        self.tasks.ran(task, computed(ran, this.slowdown));
    }

    fn begin_task(&mut self, pcpu: PcpuId, task: TaskId) {
        if let Some(thread) = self.tasks.native_thread(task) {
            return self.enter_thread(pcpu, thread);
        }
        if self.tasks.is_network_thread(task) {
            return self.run_network_thread(pcpu, task);
        }
        if self.tasks.is_disk_thread(task) {
            return disk::run_thread(self, pcpu, task);
        }
        let in_vmm = self.tasks.in_vmm.get(&task).map(|work| work.remaining);
        let ordinary = self.tasks.all.get(&task).map(|task| task.remaining);
        let span = in_vmm.or(ordinary).or(self.tasks.vmm_time(task));
        let span = span.unwrap_or(Picos(u64::MAX));
        self.run_task(pcpu, task, span);
    }

    /// `vcpu` enters its guest on `pcpu`: with the vector `inject`, and with the wish for an exit when interrupts can
    /// be taken if `window`.
    fn enter_guest(&mut self, pcpu: PcpuId, vcpu: VcpuId, inject: Option<u8>, window: bool) {
        let this = &self.vcpus[vcpu];
        assert!(
            this.pcpu.is_none(),
            "vcpu {} is entered on pcpu {} and is in its guest already",
            vcpu.0,
            pcpu.0
        );
        self.emit(&Happened::Entered {
            vcpu,
            vector: inject,
            has_moved: this.last_pcpu != pcpu,
        });
        self.vm_of(vcpu)
            .fixed
            .memory
            .finish_torn_exchange(self.vcpus[vcpu].number);
        self.check_translations(vcpu);
        if self.vcpus[vcpu].last_pcpu != pcpu {
            self.empty_tlb(vcpu);
        }
        let now = self.clock.now;
        let socket = self.hardware.topology.socket_of(pcpu.0) as usize;
        let this = &mut self.vcpus[vcpu];
        this.memory.delay = this.memory.delays[socket];
        this.last_pcpu = pcpu;
        this.flow.has_begun = true;
        this.interrupts.window = window;
        this.spin.pauses.enter();
        if inject.is_some() {
            assert!(
                this.interrupts.vector.is_none(),
                "vcpu {} gets a second vector before it took the first one",
                vcpu.0
            );
            this.interrupts.vector = inject;
        }
        this.enter(pcpu, now);
        // Hardware evaluates pending interrupts at every entry.
        self.take_notification(pcpu, vcpu);
        if let Some(vector) = self.take_from_hardware(vcpu) {
            self.vcpus[vcpu].interrupts.vector = Some(vector);
        }
        self.clock.set_activity(pcpu, self.vcpus[vcpu].next_step(now));
        self.emit(&Happened::Waits { vcpu });
    }

    /// Brings every account up to now: the run ends.
    pub fn close_accounts(&mut self) {
        for vcpu in self.vcpus.ids() {
            if self.vcpus[vcpu].pcpu.is_some() {
                self.suspend(vcpu);
            } else {
                self.emit(&Happened::Ended { vcpu });
            }
        }
    }
}
