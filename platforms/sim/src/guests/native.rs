//! A kernel on the machine itself, beside virtual machines: its tasks are threads of the host's scheduler, its CPUs are the
//! pCPUs.
//!
//! Each of its CPUs has a vCPU's record here, for its flow, its locks and its ledger; it takes no exits and is never
//! without its pCPU. Where no task of its own runs, its ledger says whether one wants to.
//!
//! **Kernel code keeps its pCPU**: interrupts of the host return to the flow that they found. A flow loses its pCPU only in
//! a call of its own ([`Call`]).
//! **A call reaches a CPU whatever runs there**: the interrupt's handler is the kernel's, on the task that runs there, or on
//! the CPU's boot flow in between.

use holdfast_host::{Event, Exit, HostInterrupt, Nanos, PcpuId, TaskId, VcpuState};
use holdfast_machine::{Key, Picos};

use crate::books::cause::Cause;
use crate::core::engine::{CLASS_ACTIVITY, Engine};
use crate::core::failure::Failure;
use crate::cpus::pcpu::{Activity, Handler, Interrupted};
use crate::cpus::vcpu::Mode;
use crate::flows::context::Saved;

/// The vector of the kernel's calls to other CPUs: Linux's `CALL_FUNCTION_VECTOR`. A kernel that calls itself has one only.
pub const CALL_VECTOR: u8 = 0xfc;
/// Given to a flow in user mode whose pCPU the scheduler wants, as if it were a vector: no interrupt has this one.
pub const PREEMPT: u8 = 0;

/// What a flow of the kernel wants from the scheduler beneath it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// The running thread sleeps, until a time in nanoseconds or until it is woken.
    Sleep(Option<u64>),
    /// It can be preempted.
    Yield,
    /// It gives way (`sched_yield`).
    GiveWay,
    /// It executes a program.
    Execute,
    /// It ends.
    End,
    /// It wakes a thread.
    Wake(u32),
    /// It starts a thread.
    Start(u32),
    /// A boot flow has nothing to do.
    Idle,
}

/// A flow of the kernel that is not on a pCPU.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    /// Where it continues.
    pub saved: Saved,
    /// Stack pointers of it stay above this.
    pub stack_limit: usize,
}

impl Flow {
    /// None yet.
    const NONE: Flow = Flow {
        saved: Saved::NONE,
        stack_limit: 0,
    };
}

/// A thread of the host that is a task of the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Thread {
    /// Its flow, while it has no pCPU.
    pub flow: Flow,
    /// The pCPU that it waits for.
    waits_for: Option<u32>,
}

/// The kernel on one pCPU.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// The thread that runs there, interrupted by the host or not.
    thread: Option<u32>,
    /// The boot flow, which takes the interrupts that find no thread.
    idle: Flow,
    /// Threads that wait for it.
    waiting: u32,
}

/// The kernel.
#[derive(Clone, Debug)]
pub struct Native {
    /// Its number among all guests and it.
    pub vm: u32,
    /// The record of its first CPU.
    first: u32,
    /// pCPUs that have not booted it.
    booting: u32,
    places: Vec<Place>,
    /// Its threads.
    pub threads: Vec<Thread>,
    /// The host's name for the first of them; the others follow.
    first_task: u32,
    /// How the host is to schedule them.
    task: holdfast_host::TaskConfig,
    /// For each thread the pCPUs that it may run on; none for the others: all.
    pub affinities: Vec<Vec<u32>>,
}

impl Native {
    /// A kernel that is guest number `vm`, if it were one; its CPUs' records begin at `first`.
    pub fn new(vm: u32, first: u32, pcpus: u32, task: holdfast_host::TaskConfig) -> Native {
        Native {
            vm,
            first,
            booting: pcpus,
            places: vec![
                Place {
                    thread: None,
                    idle: Flow::NONE,
                    waiting: 0,
                };
                pcpus as usize
            ],
            threads: Vec::new(),
            first_task: 0,
            task,
            affinities: Vec::new(),
        }
    }

    /// The thread that the host calls `task`.
    fn thread_of(&self, task: TaskId) -> Option<u32> {
        let thread = task.0.checked_sub(self.first_task)?;
        (thread < self.threads.len() as u32).then_some(thread)
    }

    /// What the host calls `thread`.
    pub fn task_of(&self, thread: u32) -> TaskId {
        TaskId(self.first_task + thread)
    }
}

impl Engine {
    fn native(&mut self) -> &mut Native {
        self.native.as_mut().expect("a kernel on the machine itself")
    }

    /// The thread of the kernel on the machine itself that `task` is, if it is one.
    pub fn native_thread(&self, task: TaskId) -> Option<u32> {
        self.native.as_ref().and_then(|native| native.thread_of(task))
    }

    /// The record of that kernel's CPU `pcpu`.
    fn native_cpu(&self, pcpu: u32) -> u32 {
        self.native.as_ref().map_or(u32::MAX, |native| native.first) + pcpu
    }

    /// Makes room for `count` threads.
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
                Err(error) => {
                    self.failure.get_or_insert(Failure::Invalid(error.to_string()));
                    return;
                }
            }
        }
        self.native().threads = vec![
            Thread {
                flow: Flow::NONE,
                waits_for: None,
            };
            count as usize
        ];
    }

    /// Before the host starts, threads are started by having it start them.
    pub fn native_rouse(&mut self, thread: u32) -> bool {
        if self.native().booting == 0 {
            return false;
        }
        let task = self.native().task_of(thread);
        let roused = self.host.activate_task(task);
        assert!(roused.is_ok(), "a kernel that boots is there before the host");
        true
    }

    /// Powers the machine on: the kernel on the machine itself boots on every pCPU, or the host starts at once.
    pub fn power_on(&mut self) {
        if self.native.is_none() {
            return self.start_host();
        }
        for pcpu in 0..self.pcpus.len() as u32 {
            let cpu = self.native_cpu(pcpu) as usize;
            self.native().places[pcpu as usize].idle = Flow {
                saved: self.vcpus[cpu].flow,
                stack_limit: self.vcpus[cpu].stack_limit,
            };
            self.enter_handler(pcpu, Interrupted::PowerOn);
        }
    }

    /// Whether the records's CPU `cpu` is one of the kernel on the machine itself and executes one of its threads.
    pub fn runs_native_thread(&self, pcpu: u32) -> bool {
        self.native
            .as_ref()
            .is_some_and(|native| native.places[pcpu as usize].thread.is_some())
    }

    /// Executes the boot flow on `pcpu`, after what was charged, for a call that found `interrupted`.
    pub fn call_handler(&mut self, pcpu: u32, interrupted: Interrupted) {
        let this = &mut self.pcpus[pcpu as usize];
        this.activity = Activity::Host;
        this.handler = Handler::Due(interrupted);
        let at = self.now + std::mem::take(&mut this.charged);
        self.queue.set(pcpu, Key::new(at, CLASS_ACTIVITY, pcpu));
    }

    /// Begins to execute the boot flow on `pcpu`.
    pub fn enter_handler(&mut self, pcpu: u32, interrupted: Interrupted) {
        self.pcpus[pcpu as usize].handler = Handler::Runs(interrupted);
        let idle = std::mem::replace(&mut self.native().places[pcpu as usize].idle, Flow::NONE);
        let powered_on = interrupted != Interrupted::PowerOn;
        self.enter_flow(pcpu, idle);
        let cpu = self.native_cpu(pcpu) as usize;
        if powered_on {
            self.vcpus[cpu].irqs_enabled = true;
            self.inject(pcpu, CALL_VECTOR);
        }
    }

    /// The host has `thread` run on `pcpu`.
    pub fn enter_thread(&mut self, pcpu: u32, thread: u32) {
        let native = self.native();
        let flow = std::mem::replace(&mut native.threads[thread as usize].flow, Flow::NONE);
        let before = native.places[pcpu as usize].thread.replace(thread);
        if before == Some(thread) {
            self.reenter(pcpu);
        } else {
            assert_eq!(
                before, None,
                "thread {thread} gets pcpu {pcpu} while another one executes"
            );
            self.enter_flow(pcpu, flow);
        }
        let cpu = self.native_cpu(pcpu) as usize;
        self.vcpus[cpu].window = self.pcpus[pcpu as usize].is_interrupted();
        let wanted = self.host.wants_to_reschedule(PcpuId(pcpu));
        if wanted && self.vcpus[cpu].mode == Mode::User && self.vcpus[cpu].inject.is_none() {
            self.inject(pcpu, PREEMPT);
        }
    }

    fn inject(&mut self, pcpu: u32, vector: u8) {
        let cpu = self.native_cpu(pcpu) as usize;
        self.vcpus[cpu].inject = Some(vector);
        self.queue.set(pcpu, Key::new(self.now, CLASS_ACTIVITY, pcpu));
    }

    /// Continues `flow` on `pcpu`.
    fn enter_flow(&mut self, pcpu: u32, flow: Flow) {
        assert!(
            flow.saved != Saved::NONE,
            "a flow continues on pcpu {pcpu} that was never saved"
        );
        let cpu = self.native_cpu(pcpu) as usize;
        self.vcpus[cpu].flow = flow.saved;
        self.vcpus[cpu].stack_limit = flow.stack_limit;
        self.vcpus[cpu].irqs_enabled = false;
        self.vcpus[cpu].remaining = Picos::ZERO;
        self.reenter(pcpu);
    }

    /// Continues the flow that is on `pcpu`.
    fn reenter(&mut self, pcpu: u32) {
        let (cpu, now) = (self.native_cpu(pcpu), self.now);
        self.pcpus[pcpu as usize].activity = Activity::Guest(cpu);
        self.pcpus[pcpu as usize].since = now;
        let this = &mut self.vcpus[cpu as usize];
        this.ledger.enter_until(this.out_cause, now);
        this.pcpu = Some(pcpu);
        this.last_pcpu = pcpu;
        this.clock = now + this.remaining;
        this.remaining = Picos::ZERO;
        let turn = if this.inject.is_some() { now } else { this.clock };
        self.queue.set(pcpu, Key::new(turn, CLASS_ACTIVITY, pcpu));
        self.mark(cpu);
    }

    /// `interrupt` comes while a flow of the kernel executes on `pcpu`.
    pub fn interrupt_native(&mut self, pcpu: u32, interrupt: HostInterrupt) {
        let cpu = self.native_cpu(pcpu);
        let this = &self.vcpus[cpu as usize];
        let takes = this.irqs_enabled && this.inject.is_none() && self.runs_native_thread(pcpu);
        if !takes {
            self.pcpus[pcpu as usize].hold(interrupt);
            self.vcpus[cpu as usize].window = self.runs_native_thread(pcpu);
            return;
        }
        self.stop_native(cpu);
        if interrupt == HostInterrupt::Call {
            self.reenter(pcpu);
            self.inject(pcpu, CALL_VECTOR);
        } else {
            self.pcpus[pcpu as usize].charged += self.costs.guest_interrupt;
            let pcpu = PcpuId(pcpu);
            self.step_host(pcpu.0, Event::Interrupt { pcpu, interrupt });
        }
    }

    /// Interrupts can be taken again on the CPU whose flow executes.
    pub fn native_window(&mut self, cpu: u32) {
        let pcpu = self.vcpus[cpu as usize].pcpu.expect("a flow executes on its pcpu");
        if let Some(interrupt) = self.pcpus[pcpu as usize].next_interrupt() {
            self.interrupt_native(pcpu, interrupt);
            self.vcpus[cpu as usize].window = self.pcpus[pcpu as usize].is_interrupted();
        }
    }

    fn stop_native(&mut self, cpu: u32) {
        self.suspend(cpu);
        self.vcpus[cpu as usize].out_cause = Cause::HostOverhead;
        self.record_out(cpu);
    }

    /// The flow of the kernel's CPU `cpu`, which executes, makes `call`.
    pub fn leave_native(&mut self, cpu: u32, call: Call) {
        let Some(pcpu) = self.vcpus[cpu as usize].pcpu else {
            self.failure = Some(Failure::Invalid(format!("cpu {cpu} calls and does not run")));
            return;
        };
        self.stop_native(cpu);
        let id = PcpuId(pcpu);
        let event = match call {
            Call::Idle => return self.handler_ends(pcpu),
            Call::Wake(thread) => Event::TaskWakes {
                pcpu: id,
                task: self.native().task_of(thread),
            },
            Call::Start(thread) => Event::TaskStarts {
                pcpu: id,
                task: self.native().task_of(thread),
            },
            Call::Sleep(until) => Event::TaskSleeps {
                pcpu: id,
                until: until.map(Nanos),
            },
            Call::Yield => Event::TaskYields { pcpu: id },
            Call::GiveWay => Event::TaskGivesWay { pcpu: id },
            Call::Execute => Event::TaskExecutes { pcpu: id },
            Call::End => Event::TaskEnds { pcpu: id },
        };
        if !matches!(call, Call::Wake(_) | Call::Start(_)) {
            let flow = self.flow_of(cpu);
            let native = self.native();
            let thread = native.places[pcpu as usize].thread.take();
            let thread = thread.expect("only a thread leaves its pcpu");
            native.threads[thread as usize].flow = flow;
        }
        self.step_host(pcpu, event);
    }

    fn flow_of(&self, cpu: u32) -> Flow {
        let this = &self.vcpus[cpu as usize];
        Flow {
            saved: this.flow,
            stack_limit: this.stack_limit,
        }
    }

    /// The boot flow on `pcpu` is done with what it was entered for.
    fn handler_ends(&mut self, pcpu: u32) {
        let cpu = self.native_cpu(pcpu);
        let flow = self.flow_of(cpu);
        self.native().places[pcpu as usize].idle = flow;
        let Handler::Runs(interrupted) = std::mem::take(&mut self.pcpus[pcpu as usize].handler) else {
            unreachable!("the boot flow of pcpu {pcpu} executes for nothing")
        };
        self.pcpus[pcpu as usize].activity = Activity::Host;
        self.queue.clear(pcpu);
        self.refresh_native(pcpu);
        match interrupted {
            Interrupted::PowerOn => {
                self.native().booting -= 1;
                if self.native().booting == 0 {
                    self.start_host();
                }
            }
            Interrupted::Guest(vcpu) => {
                let rest = self.costs.exit_hardware - self.costs.exit_hardware.halved();
                self.host_exit(pcpu, vcpu, Exit::ExternalInterrupt(HostInterrupt::Call), rest);
            }
            Interrupted::Other => {
                let interrupt = HostInterrupt::Call;
                let pcpu = PcpuId(pcpu);
                self.step_host(pcpu.0, Event::Interrupt { pcpu, interrupt });
            }
        }
    }

    /// The host says that `task` waits for `pcpu`.
    pub fn task_waits(&mut self, task: TaskId, pcpu: u32) {
        let Some(thread) = self.native_thread(task) else { return };
        self.stop_waiting(thread);
        let native = self.native();
        native.threads[thread as usize].waits_for = Some(pcpu);
        native.places[pcpu as usize].waiting += 1;
        self.refresh_native(pcpu);
    }

    /// `thread` waits for no pCPU any more.
    fn stop_waiting(&mut self, thread: u32) {
        let native = self.native();
        if let Some(pcpu) = native.threads[thread as usize].waits_for.take() {
            native.places[pcpu as usize].waiting -= 1;
            self.refresh_native(pcpu);
        }
    }

    /// The host has decided what `pcpu` does next: if that is a task, this one.
    pub fn native_chosen(&mut self, pcpu: u32, task: Option<TaskId>) {
        if self.native.is_none() {
            return;
        }
        match task.and_then(|task| self.native_thread(task)) {
            Some(thread) => {
                self.stop_waiting(thread);
                self.account_native(pcpu, Cause::HostOverhead);
            }
            None => self.refresh_native(pcpu),
        }
    }

    /// Brings what the kernel's CPU on `pcpu` is doing while none of its flows executes there up to date.
    fn refresh_native(&mut self, pcpu: u32) {
        let place = &self.native().places[pcpu as usize];
        let cause = match place {
            Place { thread: Some(_), .. } => return,
            Place { waiting: 0, .. } => Cause::Idle,
            _ => Cause::Runnable,
        };
        self.account_native(pcpu, cause);
    }

    /// Up to now that CPU did what it did; from now on it does `cause`.
    fn account_native(&mut self, pcpu: u32, cause: Cause) {
        let (cpu, now) = (self.native_cpu(pcpu), self.now);
        let this = &mut self.vcpus[cpu as usize];
        if this.pcpu.is_none() && this.out_cause != cause {
            this.ledger.enter_until(this.out_cause, now);
            this.out_cause = cause;
            self.record_out(cpu);
        }
    }
}

/// The state of a CPU that is always there.
pub const STATE: VcpuState = VcpuState::InGuest;
