//! The bare-metal kernel: its tasks are threads of the host's scheduler, its CPUs are the pCPUs. It may run next to
//! virtual machines.
//!
//! Each of its CPUs has a vCPU's record, for its flow, its locks and its ledger. Such a CPU takes no exits and always
//! has its pCPU. While none of the kernel's tasks runs there, the ledger says whether one is ready to run.
//!
//! **Kernel code keeps its pCPU**: interrupts of the host return to the flow that they interrupted. A flow loses its
//! pCPU only in a call of its own ([`Call`]).
//! **A call reaches a CPU whatever runs there**: the interrupt's handler is the kernel's. It executes on the task that
//! runs there, or else on the CPU's boot flow.

use holdfast_host::{Event, Exit, HardwareEvent, HostInterrupt, Nanos, PcpuId, TaskEvent, TaskId, VcpuId};
use holdfast_machine::Picos;

use crate::books::happened::Happened;
use crate::core::cause::Cause;
use crate::engine::Engine;
use crate::parts::pcpu::{Activity, Handler, Interrupted};
use crate::parts::vcpu::Mode;
use crate::stacks::context::Saved;
use crate::tasks::native::{CALL_VECTOR, Call, Flow, Native, PREEMPT, Place, Thread};

impl Engine {
    fn native(&mut self) -> &mut Native {
        self.tasks.native.as_mut().expect("the run has a bare-metal kernel")
    }

    /// The record of the bare-metal kernel's CPU on `pcpu`.
    fn native_cpu(&self, pcpu: PcpuId) -> VcpuId {
        let native = self.tasks.native.as_ref();
        native.expect("the run has a bare-metal kernel").cpu(pcpu)
    }

    /// Makes `count` threads.
    pub fn native_reserve(&mut self, count: u32) {
        for thread in 0..count {
            let native = self.native();
            let config = holdfast_host::TaskConfig {
                affinity: native.affinities.get(thread as usize).cloned().unwrap_or_default(),
                ..native.task.clone()
            };
            match self.host.add_task(&config) {
                Ok(task) if thread == 0 => self.native().first_task = task.0,
                Ok(_) => {}
                Err(error) => return self.end.invalid(error),
            }
        }
        self.native().threads = vec![Thread::NEW; count as usize];
    }

    /// Makes the host start `thread` when it starts itself. Returns `false` if it has started already.
    pub fn start_before_host(&mut self, thread: u32) -> bool {
        if self.native().booting == 0 {
            return false;
        }
        let task = self.native().task_of(thread);
        let started = self.host.activate_task(task);
        assert!(started.is_ok(), "the host has started before thread {thread}");
        true
    }

    /// Powers the machine on: the bare-metal kernel boots on every pCPU, or the host starts at once.
    pub fn power_on(&mut self) {
        if self.tasks.native.is_none() {
            return self.start_host();
        }
        for pcpu in self.pcpus.ids() {
            let flow = self.flow_of(self.native_cpu(pcpu));
            self.native().places[pcpu].idle = flow;
            self.enter_handler(pcpu, Interrupted::PowerOn);
        }
    }

    /// Whether `pcpu` executes a thread of the bare-metal kernel.
    pub fn runs_native_thread(&self, pcpu: PcpuId) -> bool {
        let native = self.tasks.native.as_ref();
        native.is_some_and(|native| native.places[pcpu].thread.is_some())
    }

    /// `pcpu` executes the boot flow after the charged work, for a call that found it in `interrupted`.
    pub fn call_handler(&mut self, pcpu: PcpuId, interrupted: Interrupted) {
        let this = &mut self.pcpus[pcpu];
        this.activity = Activity::Host;
        this.handler = Handler::Due(interrupted);
        let at = self.clock.now + std::mem::take(&mut this.charged);
        self.clock.set_activity(pcpu, at);
    }

    /// `pcpu` begins to execute the boot flow.
    pub fn enter_handler(&mut self, pcpu: PcpuId, interrupted: Interrupted) {
        self.pcpus[pcpu].handler = Handler::Runs(interrupted);
        let idle = std::mem::replace(&mut self.native().places[pcpu].idle, Flow::NONE);
        self.enter_flow(pcpu, idle);
        if interrupted != Interrupted::PowerOn {
            let cpu = self.native_cpu(pcpu);
            self.vcpus[cpu].interrupts.enabled = true;
            self.inject(pcpu, CALL_VECTOR);
        }
    }

    /// The host runs `thread` on `pcpu`.
    pub fn enter_thread(&mut self, pcpu: PcpuId, thread: u32) {
        let native = self.native();
        let flow = std::mem::replace(&mut native.threads[thread as usize].flow, Flow::NONE);
        let before = native.places[pcpu].thread.replace(thread);
        if before == Some(thread) {
            self.reenter(pcpu);
        } else {
            assert_eq!(
                before, None,
                "thread {thread} gets pcpu {} while another thread executes there",
                pcpu.0
            );
            self.enter_flow(pcpu, flow);
        }
        let cpu = self.native_cpu(pcpu);
        let this = &mut self.vcpus[cpu];
        this.interrupts.window = self.pcpus[pcpu].held.any();
        let is_wanted = self.host.wants_to_reschedule(pcpu);
        if is_wanted && this.announced.mode == Mode::User && this.interrupts.vector.is_none() {
            self.inject(pcpu, PREEMPT);
        }
    }

    fn inject(&mut self, pcpu: PcpuId, vector: u8) {
        let cpu = self.native_cpu(pcpu);
        self.vcpus[cpu].interrupts.vector = Some(vector);
        self.clock.set_activity(pcpu, self.clock.now);
    }

    /// Continues `flow` on `pcpu`.
    fn enter_flow(&mut self, pcpu: PcpuId, flow: Flow) {
        assert!(
            flow.saved != Saved::NONE,
            "a flow that was never saved continues on pcpu {}",
            pcpu.0
        );
        let cpu = self.native_cpu(pcpu);
        let this = &mut self.vcpus[cpu];
        this.flow.saved = flow.saved;
        this.flow.stack_limit = flow.stack_limit;
        this.flow.remaining = Picos::ZERO;
        this.interrupts.enabled = false;
        self.reenter(pcpu);
    }

    /// Continues the flow that is on `pcpu`.
    fn reenter(&mut self, pcpu: PcpuId) {
        let (vcpu, now) = (self.native_cpu(pcpu), self.clock.now);
        self.pcpus[pcpu].activity = Activity::Guest(vcpu);
        self.pcpus[pcpu].since = now;
        self.emit(&Happened::Continued { vcpu });
        let this = &mut self.vcpus[vcpu];
        this.last_pcpu = pcpu;
        let step = this.enter(pcpu, now);
        self.clock.set_activity(pcpu, step);
        self.emit(&Happened::Waits { vcpu });
    }

    /// `interrupt` comes while a flow of the kernel executes on `pcpu`.
    pub fn interrupt_native(&mut self, pcpu: PcpuId, interrupt: HostInterrupt) {
        let cpu = self.native_cpu(pcpu);
        let interrupts = &self.vcpus[cpu].interrupts;
        let has_thread = self.runs_native_thread(pcpu);
        if !interrupts.enabled || interrupts.vector.is_some() || !has_thread {
            self.pcpus[pcpu].held.hold(interrupt);
            self.vcpus[cpu].interrupts.window = has_thread;
            return;
        }
        self.stop_native(cpu);
        if interrupt == HostInterrupt::Call {
            self.reenter(pcpu);
            self.inject(pcpu, CALL_VECTOR);
        } else {
            self.pcpus[pcpu].charged += self.hardware.costs.guest_interrupt;
            self.step_host(pcpu, Event::Hardware(HardwareEvent::Interrupt { pcpu, interrupt }));
        }
    }

    /// The CPU `cpu`, whose flow executes, can take interrupts again.
    pub fn native_window(&mut self, cpu: VcpuId) {
        let pcpu = self.vcpus[cpu].pcpu.expect("a flow executes on its pcpu");
        if let Some(interrupt) = self.pcpus[pcpu].held.take() {
            self.interrupt_native(pcpu, interrupt);
            self.vcpus[cpu].interrupts.window = self.pcpus[pcpu].held.any();
        }
    }

    fn stop_native(&mut self, cpu: VcpuId) {
        self.suspend(cpu);
        self.emit(&Happened::NativeStopped { vcpu: cpu });
    }

    /// The flow of the kernel's CPU `cpu`, which executes, makes `call`.
    pub fn leave_native(&mut self, cpu: VcpuId, call: Call) {
        let Some(pcpu) = self.vcpus[cpu].pcpu else {
            let what = format_args!("cpu {} calls the scheduler and does not run", cpu.0);
            return self.end.invalid(what);
        };
        self.stop_native(cpu);
        let event = match call {
            Call::Idle => return self.handler_ends(pcpu),
            Call::Wake(thread) => Event::Task(TaskEvent::Wakes {
                pcpu,
                task: self.native().task_of(thread),
            }),
            Call::Start(thread) => Event::Task(TaskEvent::Starts {
                pcpu,
                task: self.native().task_of(thread),
            }),
            Call::Sleep(until) => Event::Task(TaskEvent::Sleeps {
                pcpu,
                until: until.map(Nanos),
            }),
            Call::Preempt => Event::Task(TaskEvent::Yields { pcpu }),
            Call::GiveWay => Event::Task(TaskEvent::GivesWay { pcpu }),
            Call::Execute => Event::Task(TaskEvent::Executes { pcpu }),
            Call::End => Event::Task(TaskEvent::Ends { pcpu }),
        };
        if !matches!(call, Call::Wake(_) | Call::Start(_)) {
            let flow = self.flow_of(cpu);
            let native = self.native();
            let thread = native.places[pcpu].thread.take();
            let thread = thread.expect("only a thread leaves its pcpu");
            native.threads[thread as usize].flow = flow;
        }
        self.step_host(pcpu, event);
    }

    fn flow_of(&self, cpu: VcpuId) -> Flow {
        let this = &self.vcpus[cpu].flow;
        Flow {
            saved: this.saved,
            stack_limit: this.stack_limit,
        }
    }

    /// The boot flow on `pcpu` has finished what it was entered for.
    fn handler_ends(&mut self, pcpu: PcpuId) {
        let flow = self.flow_of(self.native_cpu(pcpu));
        self.native().places[pcpu].idle = flow;
        let Handler::Runs(interrupted) = std::mem::take(&mut self.pcpus[pcpu].handler) else {
            unreachable!("the boot flow of pcpu {} executes without a call", pcpu.0)
        };
        self.pcpus[pcpu].activity = Activity::Host;
        self.clock.clear_activity(pcpu);
        self.refresh_native(pcpu);
        let interrupt = HostInterrupt::Call;
        match interrupted {
            Interrupted::PowerOn => {
                self.native().booting -= 1;
                if self.native().booting == 0 {
                    self.start_host();
                }
            }
            Interrupted::Guest(vcpu) => {
                let exit = self.hardware.costs.exit_hardware;
                let rest = exit - exit.halved();
                self.host_exit(pcpu, vcpu, Exit::ExternalInterrupt(interrupt), rest);
            }
            Interrupted::Other => self.step_host(pcpu, Event::Hardware(HardwareEvent::Interrupt { pcpu, interrupt })),
        }
    }

    /// The host says that `task` waits for `pcpu`.
    pub fn task_waits(&mut self, task: TaskId, pcpu: PcpuId) {
        let Some(thread) = self.tasks.native_thread(task) else {
            return;
        };
        self.stop_waiting(thread);
        let native = self.native();
        native.threads[thread as usize].waits_for = Some(pcpu);
        native.places[pcpu].waiting += 1;
        self.refresh_native(pcpu);
    }

    /// `thread` no longer waits for a pCPU.
    fn stop_waiting(&mut self, thread: u32) {
        let native = self.native();
        if let Some(pcpu) = native.threads[thread as usize].waits_for.take() {
            native.places[pcpu].waiting -= 1;
            self.refresh_native(pcpu);
        }
    }

    /// The host has chosen what `pcpu` does next: `task`, if that is a task.
    pub fn native_chosen(&mut self, pcpu: PcpuId, task: Option<TaskId>) {
        if self.tasks.native.is_none() {
            return;
        }
        match task.and_then(|task| self.tasks.native_thread(task)) {
            Some(thread) => {
                self.stop_waiting(thread);
                self.native_is(pcpu, Cause::HostOverhead);
            }
            None => self.refresh_native(pcpu),
        }
    }

    /// Finds out again what the kernel's CPU on `pcpu` does while none of its flows executes there.
    fn refresh_native(&mut self, pcpu: PcpuId) {
        let cause = match self.native().places[pcpu] {
            Place { thread: Some(_), .. } => return,
            Place { waiting: 0, .. } => Cause::Idle,
            _ => Cause::Runnable,
        };
        self.native_is(pcpu, cause);
    }

    fn native_is(&mut self, pcpu: PcpuId, cause: Cause) {
        let vcpu = self.native_cpu(pcpu);
        self.emit(&Happened::NativeIs { vcpu, cause });
    }
}
