//! The kernel of a guest with guests of its own: it executes an inner host on the guest's vCPUs.
//!
//! Each vCPU is a pCPU of the inner host, and its flow a loop: do what the inner host has chosen, and hand it what
//! happens. The loop runs with interrupts masked, as the engine's host does, and lets them in where that one takes
//! those that it held back: before a guest is entered. A handler only notes its interrupt.
//!
//! - **No lost wakeup**: a polling loop clears its word before it looks for interrupts and for what other pCPUs' steps
//!   have left, and these write the word afterwards.

use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering;

use holdfast_guest::{Cpu, GuestImage, LocalApic, Machine, RESCHEDULE_VECTOR, TIMER_VECTOR};
use holdfast_host::{Command, Event, Exit, HardwareEvent, HostInterrupt, PcpuId, Run, TaskEvent, VcpuId};
use holdfast_locks::{Budget, CpuId, Paravirt, Platform, Word};

use crate::engine::handle::Handle;
use crate::guests::cpu::SimCpu;
use crate::guests::machine::SimMachine;
use crate::memory::word::SimWord;
use crate::parts::inner::{InnerHost, Work};
use crate::parts::pcpu::HeldInterrupts;

/// The kernel's state of one CPU.
struct PerCpu {
    apic: LocalApic,
    /// Interrupts that were taken, for the inner host.
    taken: RefCell<HeldInterrupts>,
    /// Written for the polling loop of this CPU.
    wakes: SimWord,
}

/// The kernel.
pub struct Hypervisor {
    machine: SimMachine,
    handle: Handle,
    /// The number of the inner host.
    index: usize,
    booted: Cell<u32>,
    cpus: Vec<PerCpu>,
}

impl Hypervisor {
    /// The kernel of `machine`, a guest with `cpus` vCPUs that boots inner host `index`.
    pub(crate) fn new(machine: SimMachine, handle: Handle, index: usize, cpus: u32) -> Hypervisor {
        let per_cpu = |_| PerCpu {
            apic: LocalApic::new(),
            taken: RefCell::default(),
            wakes: SimWord::new(0),
        };
        Hypervisor {
            machine,
            handle,
            index,
            booted: Cell::new(0),
            cpus: (0..cpus).map(per_cpu).collect(),
        }
    }

    fn here(&self, pcpu: PcpuId) -> &PerCpu {
        &self.cpus[pcpu.0 as usize]
    }

    fn with_inner<R>(&self, work: impl FnOnce(&mut InnerHost) -> R) -> R {
        self.handle.with(|engine| work(engine.inner_mut(self.index)))
    }

    /// Runs this CPU as `pcpu` of the inner host.
    fn run(&self, cpu: &SimCpu, pcpu: PcpuId) -> ! {
        loop {
            // Interrupts that have come are taken here.
            cpu.irq_enable();
            cpu.irq_disable();
            let mail = self.with_inner(|inner| std::mem::take(&mut inner.pcpus[pcpu].mail));
            self.carry_out(cpu, mail);
            let next = self.with_inner(|inner| inner.pcpus[pcpu].next);
            let interrupt = if next.is_some() {
                self.here(pcpu).taken.borrow_mut().take()
            } else {
                None
            };
            match (next, interrupt) {
                (Some(run), Some(interrupt)) => self.interrupted(cpu, pcpu, run, interrupt),
                (Some(run @ Run::Guest { vcpu, .. }), None) => {
                    self.inject(pcpu, run);
                    self.run_guest(cpu, pcpu, vcpu);
                }
                (Some(Run::Task(task)), None) => {
                    let found = self.with_inner(|inner| inner.take_device_work(task));
                    let Some((vcpu, left)) = found else {
                        unreachable!("inner task {} is the thread of no vcpu", task.0)
                    };
                    cpu.irq_enable();
                    self.handle.work(left);
                    self.handle.order();
                    cpu.irq_disable();
                    self.step(cpu, pcpu, Event::Task(TaskEvent::RunsVcpu { pcpu, vcpu }));
                }
                (Some(Run::Idle), None) => cpu.halt_unmasked(),
                (Some(Run::Poll(_)) | None, _) => self.poll(cpu, pcpu, next),
            }
        }
    }

    /// Waits until an interrupt comes, or another pCPU's step has something for this one. Does not wait if `seen` is
    /// not what the inner host has chosen by now.
    fn poll(&self, cpu: &SimCpu, pcpu: PcpuId, seen: Option<Run>) {
        let here = self.here(pcpu);
        cpu.store(&here.wakes, 0, Ordering::Relaxed);
        let has_work = self.with_inner(|inner| {
            let this = &inner.pcpus[pcpu];
            this.next != seen || !this.mail.is_empty()
        });
        if has_work {
            return;
        }
        cpu.irq_enable();
        let _ = cpu.wait_until(&here.wakes, Budget::UNBOUNDED, Ordering::Acquire, |value| value != 0);
        cpu.irq_disable();
    }

    /// `interrupt` was taken before `pcpu` did what the inner host had chosen.
    fn interrupted(&self, cpu: &SimCpu, pcpu: PcpuId, run: Run, interrupt: HostInterrupt) {
        let event = match run {
            // The event is the guest's from now on: its hypervisor has it in service.
            Run::Guest { vcpu, .. } => {
                self.inject(pcpu, run);
                self.exit_event(pcpu, vcpu, Exit::ExternalInterrupt(interrupt))
            }
            _ => Event::Hardware(HardwareEvent::Interrupt { pcpu, interrupt }),
        };
        self.step(cpu, pcpu, event);
    }

    fn exit_event(&self, pcpu: PcpuId, own: VcpuId, exit: Exit) -> Event {
        self.handle.order();
        self.handle.with(|engine| {
            let vcpu = engine.inner(self.index).vcpu(own);
            let guest = engine.guest_state(vcpu);
            Event::Hardware(HardwareEvent::Exit { pcpu, exit, guest })
        })
    }

    /// Prepares the entry `run` of `pcpu`, once: its event is injected whatever ends the entry.
    fn inject(&self, pcpu: PcpuId, run: Run) {
        if let Run::Guest { vcpu, inject, window } = run {
            let once = Run::Guest {
                vcpu,
                inject: None,
                window,
            };
            self.handle.with(|engine| {
                let inner = engine.inner_mut(self.index);
                inner.pcpus[pcpu].next = Some(once);
                let vcpu = inner.vcpu(vcpu);
                engine.inject_nested(vcpu, inject, window);
            });
        }
    }

    /// Executes VMRUN for the inner vCPU `own`, and hands the inner host its exit.
    fn run_guest(&self, cpu: &SimCpu, pcpu: PcpuId, own: VcpuId) {
        self.handle.order();
        let current = self.handle.with(|engine| {
            let current = engine.flows.current;
            let vcpu = engine.inner(self.index).vcpu(own);
            engine.prepare_nested(current, vcpu);
            current
        });
        self.handle.leave(Exit::Vmrun);
        self.handle.fault(|| "VMRUN".to_owned());
        // Without an exit an interrupt ended the run, which is taken next.
        let exit = self
            .handle
            .with(|engine| engine.vcpus[current].nesting_mut().exit.take());
        if let Some(exit) = exit {
            let event = self.exit_event(pcpu, own, exit);
            self.step(cpu, pcpu, event);
        }
    }

    /// The inner host handles `event`, and this CPU does what follows.
    fn step(&self, cpu: &SimCpu, pcpu: PcpuId, event: Event) {
        self.handle.order();
        let work = self
            .handle
            .with(|engine| engine.step_inner(self.index, pcpu, Some(event)));
        self.finish(cpu, work);
    }

    fn finish(&self, cpu: &SimCpu, work: Work) {
        self.handle.work(work.more);
        self.carry_out(cpu, work.commands);
    }

    /// Executes `commands`: each has its effect when the work before it is done.
    fn carry_out(&self, cpu: &SimCpu, commands: Vec<Command>) {
        let apic = &self.here(PcpuId(cpu.cpu().0)).apic;
        for command in commands {
            match command {
                Command::Charge { cost, count, .. } => {
                    let time = self
                        .handle
                        .with(|engine| engine.inner_cost(self.index, engine.flows.current, cost, count));
                    self.handle.work(time);
                    self.handle.order();
                }
                Command::Timer { at, .. } => {
                    apic.set_timer(cpu, at.map_or(u64::MAX, |at| at.0));
                }
                Command::Ipi { to, .. } => apic.command(cpu, to.0, u32::from(RESCHEDULE_VECTOR)),
                // A polling loop sees what this CPU's step has done.
                Command::Run { pcpu, .. } => cpu.store(&self.here(pcpu).wakes, 1, Ordering::Release),
                other => unreachable!("a pcpu of an inner host does not execute {other:?}"),
            }
        }
    }
}

impl GuestImage for Hypervisor {
    fn boot(&self, id: CpuId) -> ! {
        let cpu = self.machine.cpu();
        let cpus = self.cpus.len() as u32;
        let pcpu = PcpuId(id.0);
        self.here(pcpu).apic.enable(&cpu, id, cpus, false);
        self.booted.set(self.booted.get() + 1);
        if self.booted.get() == cpus {
            self.handle.order();
            let work = self.handle.with(|engine| engine.step_inner(self.index, pcpu, None));
            self.finish(&cpu, work);
        }
        self.run(&cpu, pcpu)
    }

    fn interrupt(&self, vector: u8) {
        let cpu = self.machine.cpu();
        let here = self.here(PcpuId(cpu.cpu().0));
        here.apic.end_of_interrupt(&cpu);
        let interrupt = match vector {
            TIMER_VECTOR => HostInterrupt::Timer,
            RESCHEDULE_VECTOR => HostInterrupt::Reschedule,
            _ => return,
        };
        here.taken.borrow_mut().hold(interrupt);
        cpu.store(&here.wakes, 1, Ordering::Relaxed);
    }
}
