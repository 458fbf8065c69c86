//! Host and hardware that virtualizes LAPICs, in time of their own: guests that are state machines, steps in any order,
//! any instant of which can be the moment of a live migration.

use holdfast_abi::{lapic, msr, posted};
use holdfast_host::{
    ApicRegisters, Command, Event, Exit, GuestState, HardwareEvent, Host, HostConfig, HostInterrupt, Nanos, PcpuId,
    Run, VcpuId, VmConfig,
};
use holdfast_machine::avic::AvicHardware;
use holdfast_machine::iommu::{Delivery, Iommu, Notice};

use crate::hardware::{self, Signal};
use crate::world::{Driver, Rng, drives, places};

/// A vCPU as its guest code left it.
#[derive(Clone, Debug, Default)]
pub struct Cpu {
    pub irqs: bool,
    /// Its LAPIC's EOI is still to be written.
    pub serving: Vec<u8>,
    /// Vectors taken since the last look.
    pub taken: Vec<u8>,
    /// Exits as soon as it can take interrupts.
    window: bool,
    pub halted: bool,
    pub cr8: u8,
    cr8_intercepted: bool,
    /// INIT has reset it, and no SIPI has started it since.
    waits_for_sipi: bool,
    /// It writes its LAPIC by MSRs.
    pub x2apic: bool,
    /// The answer to its last read.
    pub reply: u64,
}

/// A signal in flight to a pCPU.
#[derive(Clone, Copy, Debug)]
enum Coming {
    Interrupt(u32, HostInterrupt),
    ByHardware(Signal),
}

pub struct Rig {
    driver: Driver,
    pub hardware: AvicHardware,
    pub cpus: Vec<Cpu>,
    coming: Vec<(u64, Coming)>,
    /// The latency of signals. Nanoseconds.
    pub latency: u64,
    /// Signals to hardware that were sent, by hardware or host.
    pub rung: u64,
    second_vm: bool,
}

drives!(Rig);

impl Rig {
    /// Returns a host with one VM for all `cpus`. With `second_vm`, the last of them is a VM of its own.
    pub fn new(config: &HostConfig, vm: &VmConfig, pcpus: u32, cpus: Vec<Cpu>, second_vm: bool) -> Rig {
        let mut driver = Driver::new(config, &places(1, pcpus, 1));
        let own = cpus.len() as u32 - u32::from(second_vm);
        driver.host.add_vm(vm, own, &[]).expect("a valid vm");
        if second_vm {
            driver.host.add_vm(&VmConfig::default(), 1, &[]).expect("a valid vm");
        }
        Rig {
            driver,
            hardware: AvicHardware::default(),
            cpus,
            coming: Vec::new(),
            latency: 300,
            rung: 0,
            second_vm,
        }
    }

    pub fn start(&mut self) {
        let out = self.start_host();
        self.apply(out);
    }

    /// Migrates all VMs to another host of the same kind.
    pub fn migrate(self, config: &HostConfig, vm: &VmConfig, pcpus: u32) -> Rig {
        let mut to = Rig::new(config, vm, pcpus, self.cpus.clone(), self.second_vm);
        to.now = self.now + 1_000_000;
        to.latency = self.latency;
        to.hardware = self.hardware;
        to.rung = self.rung;
        let vcpus = to.cpus.len() as u32;
        for vcpu in 0..vcpus {
            let mut saved = self.host.save_vcpu(VcpuId(vcpu), Nanos(self.now));
            saved.guest = self.state(vcpu, saved.guest);
            let now = Nanos(to.now);
            to.host
                .restore_vcpu(VcpuId(vcpu), &saved, now)
                .expect("a state that was saved");
            to.cpus[vcpu as usize].window = false;
            to.cpus[vcpu as usize].cr8_intercepted = false;
        }
        to.start();
        to
    }

    fn state(&self, vcpu: u32, saved: GuestState) -> GuestState {
        GuestState {
            interrupts_enabled: self.cpus[vcpu as usize].irqs,
            undelivered: None,
            cr8: self.hardware(vcpu).cr8().unwrap_or(self.cpus[vcpu as usize].cr8),
            ..saved
        }
    }

    /// Returns the hardware that executes `vcpu`.
    pub fn hardware(&self, vcpu: u32) -> hardware::Guest<'_> {
        hardware::Guest::new(&self.host, vcpu, self.hardware)
    }

    pub fn event(&mut self, event: Event) {
        let out = self.report(event);
        self.apply(out);
    }

    pub fn exit(&mut self, pcpu: u32, exit: Exit) {
        let Some(vcpu) = self.guest_on(pcpu) else { return };
        self.cpus[vcpu as usize].window = false;
        if let Some(value) = self.hardware(vcpu).cr8() {
            self.cpus[vcpu as usize].cr8 = value;
        }
        let guest = self.state(vcpu, GuestState::default());
        let pcpu = PcpuId(pcpu);
        self.event(Event::Hardware(HardwareEvent::Exit { pcpu, exit, guest }));
    }

    fn apply(&mut self, out: Vec<Command>) {
        let mut entered = Vec::new();
        for command in out {
            match command {
                Command::Run {
                    run: Run::Guest { vcpu, inject, window },
                    ..
                } => {
                    let cpu = &mut self.cpus[vcpu.0 as usize];
                    cpu.halted = false;
                    cpu.waits_for_sipi = false;
                    cpu.window = window;
                    entered.push((vcpu.0, inject));
                }
                Command::Ipi { to, .. } => self.send(Coming::Interrupt(to.0, HostInterrupt::Reschedule)),
                Command::Doorbell { to } => self.send(Coming::ByHardware(Signal::Doorbell(to.0))),
                Command::Notify { to, vector, .. } => {
                    self.send(Coming::ByHardware(Signal::Notification(to.0, vector)));
                }
                Command::InterceptCr8 { vcpu, on } => self.cpus[vcpu.0 as usize].cr8_intercepted = on,
                Command::Init { vcpu } => {
                    let cpu = &mut self.cpus[vcpu.0 as usize];
                    *cpu = Cpu {
                        taken: std::mem::take(&mut cpu.taken),
                        cr8_intercepted: cpu.cr8_intercepted,
                        waits_for_sipi: true,
                        ..Cpu::default()
                    };
                }
                Command::SetCr8 { vcpu, value } => self.cpus[vcpu.0 as usize].cr8 = value,
                Command::Reply { vcpu, value } => self.cpus[vcpu.0 as usize].reply = value,
                _ => {}
            }
        }
        for (vcpu, inject) in entered {
            self.hardware(vcpu).enter();
            if let Some(vector) = inject {
                self.take(vcpu, vector);
            }
            self.evaluate(vcpu);
        }
    }

    /// Sends a signal.
    fn send(&mut self, coming: Coming) {
        self.rung += u64::from(matches!(coming, Coming::ByHardware(_)));
        let due = self.now + self.latency;
        self.coming.push((due, coming));
    }

    fn take(&mut self, vcpu: u32, vector: u8) {
        let cpu = &mut self.cpus[vcpu as usize];
        assert!(cpu.irqs, "vcpu {vcpu} takes {vector:#x} with interrupts masked");
        cpu.irqs = false;
        cpu.serving.push(vector);
        cpu.taken.push(vector);
    }

    /// Lets hardware deliver an interrupt.
    pub fn evaluate(&mut self, vcpu: u32) {
        if !self.cpus[vcpu as usize].irqs {
            return;
        }
        if let Some(vector) = self.hardware(vcpu).take() {
            self.take(vcpu, vector);
        }
    }

    /// Masks or unmasks interrupts as the guest on `pcpu`.
    pub fn set_irqs(&mut self, pcpu: u32, irqs: bool) {
        let Some(vcpu) = self.guest_on(pcpu) else { return };
        self.cpus[vcpu as usize].irqs = irqs;
        if irqs && self.cpus[vcpu as usize].window {
            self.exit(pcpu, Exit::InterruptWindow);
        } else {
            self.evaluate(vcpu);
        }
    }

    /// Writes a LAPIC register as the guest on `pcpu`, by page or MSR as the LAPIC's mode requires.
    pub fn write(&mut self, pcpu: u32, offset: u32, value: u32) {
        let Some(vcpu) = self.guest_on(pcpu) else { return };
        if self.cpus[vcpu as usize].x2apic {
            return self.write_msr(pcpu, msr::X2APIC_BASE + offset / lapic::STRIDE, u64::from(value));
        }
        self.store(pcpu, offset, value);
    }

    /// Stores to the LAPIC's page as the guest on `pcpu`.
    pub fn store(&mut self, pcpu: u32, offset: u32, value: u32) {
        self.instruction(pcpu, |hardware, signals| hardware.write(offset, value, signals));
    }

    /// Executes WRMSR. Returns the exit, if there is one.
    pub fn write_msr(&mut self, pcpu: u32, msr: u32, value: u64) {
        self.instruction(pcpu, |hardware, signals| hardware.write_msr(msr, value, signals));
    }

    /// Writes CR8 as the guest on `pcpu`.
    pub fn write_cr8(&mut self, pcpu: u32, value: u8) {
        let Some(vcpu) = self.guest_on(pcpu) else { return };
        if self.cpus[vcpu as usize].cr8_intercepted {
            let value = u64::from(value);
            return self.exit(pcpu, Exit::WriteCr8 { value });
        }
        self.cpus[vcpu as usize].cr8 = value & 0xf;
        self.hardware(vcpu).write_cr8(value);
        self.evaluate(vcpu);
    }

    /// Executes an instruction of the guest on `pcpu`, by hardware or with an exit.
    fn instruction(&mut self, pcpu: u32, does: impl FnOnce(&hardware::Guest<'_>, &mut Vec<Signal>) -> Option<Exit>) {
        let Some(vcpu) = self.guest_on(pcpu) else { return };
        let mut signals = Vec::new();
        let exit = does(&self.hardware(vcpu), &mut signals);
        for signal in signals {
            self.send(Coming::ByHardware(signal));
        }
        match exit {
            Some(exit) => self.exit(pcpu, exit),
            None => self.evaluate(vcpu),
        }
    }

    /// Reads a LAPIC register as the guest on `pcpu`. Returns the value, or `None` if no guest runs there.
    pub fn read(&mut self, pcpu: u32, offset: u32) -> Option<u32> {
        let vcpu = self.guest_on(pcpu)?;
        match self.hardware(vcpu).read(offset) {
            Ok(value) => return Some(value),
            Err(exit) => self.exit(pcpu, exit),
        }
        Some(self.cpus[vcpu as usize].reply as u32)
    }

    /// Executes RDMSR.
    pub fn read_msr(&mut self, pcpu: u32, msr: u32) {
        let Some(vcpu) = self.guest_on(pcpu) else { return };
        if let Err(exit) = self.hardware(vcpu).read_msr(msr) {
            self.exit(pcpu, exit);
        }
    }

    pub fn halt(&mut self, pcpu: u32) {
        let Some(vcpu) = self.guest_on(pcpu) else { return };
        self.cpus[vcpu as usize].halted = true;
        self.exit(pcpu, Exit::Hlt);
    }

    /// Lets `ns` pass, with all timers and signals that are due.
    pub fn pass(&mut self, ns: u64) {
        let end = self.now + ns;
        loop {
            let timer = self.first_timer();
            let coming = (0..self.coming.len()).min_by_key(|&index| self.coming[index].0);
            match (timer, coming.map(|index| self.coming[index].0)) {
                (Some((at, pcpu)), due) if at <= end && due.is_none_or(|due| at <= due) => {
                    self.now = self.now.max(at);
                    self.timers[pcpu as usize] = None;
                    self.interrupt(pcpu, HostInterrupt::Timer);
                }
                (_, Some(due)) if due <= end => {
                    self.now = self.now.max(due);
                    let (_, coming) = self.coming.swap_remove(coming.unwrap_or(0));
                    self.arrive(coming);
                }
                _ => break,
            }
        }
        self.now = end;
    }

    fn arrive(&mut self, coming: Coming) {
        let at = |pcpu: u32| self.runs.get(pcpu as usize).copied();
        match coming {
            Coming::Interrupt(to, interrupt) => self.interrupt(to, interrupt),
            Coming::ByHardware(Signal::Notification(to, posted::WAKEUP_VECTOR)) => {
                self.interrupt(to, HostInterrupt::PostedWakeup);
            }
            Coming::ByHardware(Signal::Notification(to, vector)) => match at(to) {
                Some(Run::Guest { vcpu, .. }) if self.hardware(vcpu.0).notified(vector) => self.evaluate(vcpu.0),
                Some(Run::Poll(_)) => self.event(Event::Hardware(HardwareEvent::Posted { pcpu: PcpuId(to) })),
                _ => {}
            },
            Coming::ByHardware(Signal::Doorbell(to)) => match at(to) {
                Some(Run::Guest { vcpu, .. }) => self.evaluate(vcpu.0),
                Some(Run::Poll(_)) => self.event(Event::Hardware(HardwareEvent::Posted { pcpu: PcpuId(to) })),
                _ => {}
            },
        }
    }

    fn interrupt(&mut self, pcpu: u32, interrupt: HostInterrupt) {
        if self.guest_on(pcpu).is_some() {
            return self.exit(pcpu, Exit::ExternalInterrupt(interrupt));
        }
        let pcpu = PcpuId(pcpu);
        self.event(Event::Hardware(HardwareEvent::Interrupt { pcpu, interrupt }));
    }

    /// Signals the interrupt of a device. Returns how the IOMMU delivers it.
    pub fn device(&mut self, device: u16) -> Delivery {
        let memory = self.host.memory();
        let delivery = Iommu::new(&memory, Host::IOMMU).deliver(device);
        let coming = match delivery {
            Delivery::Host { vector, destination } => Coming::Interrupt(destination, HostInterrupt::Device(vector)),
            Delivery::Guest {
                notice: Notice::Doorbell(host_id),
                ..
            } => Coming::ByHardware(Signal::Doorbell(host_id)),
            Delivery::Guest {
                notice: Notice::Log { interrupt: true },
                ..
            } => Coming::Interrupt(0, HostInterrupt::GaLog),
            Delivery::Guest { .. } | Delivery::Blocked => return delivery,
        };
        self.send(coming);
        delivery
    }

    /// Ends the interrupt that the guest on `pcpu` serves. Returns its vector, or `None` if it serves none.
    pub fn serve(&mut self, pcpu: u32) -> Option<u8> {
        let vcpu = self.guest_on(pcpu)?;
        let vector = self.cpus[vcpu as usize].serving.pop()?;
        self.write(pcpu, lapic::EOI, 0);
        Some(vector)
    }

    /// Returns a sleeping vCPU and the vector of a deliverable interrupt in its LAPIC: a lost wakeup.
    pub fn forgotten(&self) -> Option<(u32, u8)> {
        let sleeps = |vcpu: &u32| {
            !self
                .runs
                .iter()
                .any(|run| matches!(run, Run::Guest { vcpu: runs, .. } if runs.0 == *vcpu))
        };
        let mut sleepers = (0..self.cpus.len() as u32).filter(sleeps);
        sleepers.find_map(|vcpu| {
            let cpu = &self.cpus[vcpu as usize];
            let id = VcpuId(vcpu);
            let on = self.host.save_vcpu(id, Nanos(self.now)).apic_base & msr::APIC_BASE_ENABLE != 0;
            if !cpu.halted || !cpu.irqs || cpu.waits_for_sipi || !on {
                return None;
            }
            let page = self.host.apic_page(id);
            let priority = page.processor_priority() >> 4;
            let posted = self.hardware(vcpu).posted();
            let vector = posted.into_iter().chain(page.highest(lapic::IRR)).max()?;
            (u32::from(vector >> 4) > priority).then_some((vcpu, vector))
        })
    }
}

/// Returns a random pCPU that is in guest mode.
pub fn some_guest(rig: &Rig, random: &mut Rng) -> Option<u32> {
    let pcpus = rig.runs.len() as u64;
    let first = random.below(pcpus);
    (0..pcpus)
        .map(|step| ((first + step) % pcpus) as u32)
        .find(|&pcpu| rig.guest_on(pcpu).is_some())
}
