//! Host and AVIC hardware without an engine: guests that are state machines, steps in any order, any instant of which can be
//! the moment of a live migration.

use holdfast_abi::lapic;
use holdfast_host::{
    Command, Event, Exit, GuestState, Host, HostConfig, HostInterrupt, Nanos, PcpuId, PcpuPlace, Run, VcpuId, VmConfig,
    VmId,
};
use holdfast_machine::avic::{Avic, AvicHardware, Written};

use crate::image::Random;

/// A vCPU as its guest code left it.
#[derive(Clone, Debug, Default)]
pub struct Cpu {
    pub irqs: bool,
    /// Its LAPIC's EOI is still to be written.
    pub serving: Vec<u8>,
    /// Taken since last looked at.
    pub taken: Vec<u8>,
    /// Exits as soon as it can take interrupts.
    window: bool,
    pub halted: bool,
    cr8: u8,
    /// The answer to its last read.
    pub reply: u64,
}

/// An interrupt of the host's, or a doorbell, that is under way.
#[derive(Clone, Copy, Debug)]
enum Signal {
    Ipi,
    Doorbell,
}

pub struct Rig {
    pub host: Host,
    pub hardware: AvicHardware,
    pub now: u64,
    pub runs: Vec<Run>,
    timers: Vec<Option<u64>>,
    pub cpus: Vec<Cpu>,
    signals: Vec<(u64, u32, Signal)>,
    out: Vec<Command>,
    /// How long signals are under way.
    pub latency: u64,
    pub doorbells: u64,
}

impl Rig {
    pub fn new(config: &HostConfig, vm: &VmConfig, pcpus: u32, cpus: Vec<Cpu>) -> Rig {
        let place = |core| PcpuPlace {
            socket: 0,
            core,
            thread: 0,
        };
        let places: Vec<_> = (0..pcpus).map(place).collect();
        let mut host = Host::new(config, &places).expect("a valid host");
        host.add_vm(vm, cpus.len() as u32, &[]).expect("a valid vm");
        Rig {
            host,
            hardware: AvicHardware::default(),
            now: 0,
            runs: vec![Run::Idle; pcpus as usize],
            timers: vec![None; pcpus as usize],
            cpus,
            signals: Vec::new(),
            out: Vec::new(),
            latency: 300,
            doorbells: 0,
        }
    }

    pub fn start(&mut self) {
        let mut out = std::mem::take(&mut self.out);
        self.host.start(Nanos(self.now), &mut out);
        self.apply(out);
    }

    /// Everything goes on on another host of the same kind.
    pub fn migrate(self, config: &HostConfig, vm: &VmConfig, pcpus: u32) -> Rig {
        let mut to = Rig::new(config, vm, pcpus, self.cpus.clone());
        to.now = self.now + 1_000_000;
        to.latency = self.latency;
        to.hardware = self.hardware;
        to.doorbells = self.doorbells;
        for vcpu in 0..self.cpus.len() as u32 {
            let mut saved = self.host.save_vcpu(VcpuId(vcpu), Nanos(self.now));
            saved.guest = self.state(vcpu, saved.guest);
            to.host
                .restore_vcpu(VcpuId(vcpu), &saved, Nanos(to.now))
                .expect("a state that was saved");
            to.cpus[vcpu as usize].window = false;
        }
        to.start();
        to
    }

    fn state(&self, vcpu: u32, saved: GuestState) -> GuestState {
        GuestState {
            interrupts_enabled: self.cpus[vcpu as usize].irqs,
            undelivered: None,
            cr8: self.cpus[vcpu as usize].cr8,
            ..saved
        }
    }

    /// The vCPU in guest mode on `pcpu`.
    pub fn guest_on(&self, pcpu: u32) -> Option<u32> {
        match self.runs[pcpu as usize] {
            Run::Guest { vcpu, .. } => Some(vcpu.0),
            _ => None,
        }
    }

    pub fn with_avic<R>(
        &self,
        vcpu: u32,
        operation: impl FnOnce(&Avic<'_, holdfast_host::HostMemory<'_>>) -> R,
    ) -> Option<R> {
        let memory = self.host.memory();
        let avic = Avic::new(&memory, self.host.vmcb(VcpuId(vcpu))?, self.hardware)?;
        Some(operation(&avic))
    }

    pub fn event(&mut self, event: Event) {
        let mut out = std::mem::take(&mut self.out);
        self.host.handle(event, Nanos(self.now), &mut out);
        self.apply(out);
    }

    pub fn exit(&mut self, pcpu: u32, exit: Exit) {
        let Some(vcpu) = self.guest_on(pcpu) else { return };
        self.cpus[vcpu as usize].window = false;
        let guest = self.state(vcpu, GuestState::default());
        let pcpu = PcpuId(pcpu);
        self.event(Event::Exit { pcpu, exit, guest });
    }

    fn apply(&mut self, mut out: Vec<Command>) {
        let mut entered = Vec::new();
        for command in out.drain(..) {
            match command {
                Command::Run { pcpu, run } => {
                    self.runs[pcpu.0 as usize] = run;
                    if let Run::Guest { vcpu, inject, window } = run {
                        let cpu = &mut self.cpus[vcpu.0 as usize];
                        cpu.halted = false;
                        cpu.window = window;
                        entered.push((vcpu.0, inject));
                    }
                }
                Command::Timer { pcpu, at } => self.timers[pcpu.0 as usize] = at.map(|at| at.0),
                Command::Ipi { to, .. } => self.signals.push((self.now + self.latency, to.0, Signal::Ipi)),
                Command::Doorbell { to } => self.signals.push((self.now + self.latency, to.0, Signal::Doorbell)),
                Command::SetCr8 { vcpu, value } => self.cpus[vcpu.0 as usize].cr8 = value,
                Command::Reply { vcpu, value } => self.cpus[vcpu.0 as usize].reply = value,
                _ => {}
            }
        }
        self.out = out;
        for (vcpu, inject) in entered {
            if let Some(vector) = inject {
                self.take(vcpu, vector);
            }
            self.evaluate(vcpu);
        }
    }

    fn take(&mut self, vcpu: u32, vector: u8) {
        let cpu = &mut self.cpus[vcpu as usize];
        assert!(cpu.irqs, "vcpu {vcpu} takes {vector:#x} with interrupts masked");
        cpu.irqs = false;
        cpu.serving.push(vector);
        cpu.taken.push(vector);
    }

    /// AVIC looks at IRR.
    pub fn evaluate(&mut self, vcpu: u32) {
        if !self.cpus[vcpu as usize].irqs {
            return;
        }
        let vector = self.with_avic(vcpu, |avic| avic.pending().inspect(|&vector| avic.take(vector)));
        if let Some(vector) = vector.flatten() {
            self.take(vcpu, vector);
        }
    }

    /// The guest on `pcpu` masks or unmasks interrupts.
    pub fn set_irqs(&mut self, pcpu: u32, irqs: bool) {
        let Some(vcpu) = self.guest_on(pcpu) else { return };
        self.cpus[vcpu as usize].irqs = irqs;
        if irqs && self.cpus[vcpu as usize].window {
            self.exit(pcpu, Exit::InterruptWindow);
        } else {
            self.evaluate(vcpu);
        }
    }

    /// The guest on `pcpu` writes a register.
    pub fn write(&mut self, pcpu: u32, offset: u32, value: u32) {
        let Some(vcpu) = self.guest_on(pcpu) else { return };
        match self.with_avic(vcpu, |avic| avic.write(offset, value)) {
            None => self.exit(pcpu, Exit::ApicWrite { offset, value }),
            Some(Written::Done) => {}
            Some(Written::Evaluate) => self.evaluate(vcpu),
            Some(Written::Exit(exit)) => self.exit(pcpu, Exit::AvicNoAccel { exit, value }),
            Some(Written::Send(icr)) => self.send(pcpu, vcpu, icr),
        }
    }

    fn send(&mut self, pcpu: u32, vcpu: u32, icr: u64) {
        let mut rung = Vec::new();
        let posted = self.with_avic(vcpu, |avic| {
            let targets = avic.resolve(icr)?;
            Ok(avic.post(&targets, |host_id| rung.push(host_id)))
        });
        self.doorbells += rung.len() as u64;
        for host_id in rung {
            self.signals.push((self.now + self.latency, host_id, Signal::Doorbell));
        }
        match posted.expect("it is on") {
            Err(exit) => self.exit(pcpu, Exit::AvicIncompleteIpi(exit)),
            Ok(posted) => {
                if let Some(exit) = posted.exit {
                    self.exit(pcpu, Exit::AvicIncompleteIpi(exit));
                }
                if posted.evaluate && self.guest_on(pcpu) == Some(vcpu) {
                    self.evaluate(vcpu);
                }
            }
        }
    }

    /// The guest on `pcpu` reads a register.
    pub fn read(&mut self, pcpu: u32, offset: u32) -> Option<u32> {
        let vcpu = self.guest_on(pcpu)?;
        match self.with_avic(vcpu, |avic| avic.read(offset)) {
            None => self.exit(pcpu, Exit::ApicRead { offset }),
            Some(Ok(value)) => return Some(value),
            Some(Err(exit)) => self.exit(pcpu, Exit::AvicNoAccel { exit, value: 0 }),
        }
        Some(self.cpus[vcpu as usize].reply as u32)
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
            let timer = (0..self.timers.len())
                .filter_map(|pcpu| Some((self.timers[pcpu]?, pcpu as u32)))
                .min();
            let signal = (0..self.signals.len()).min_by_key(|&index| self.signals[index].0);
            match (timer, signal.map(|index| self.signals[index].0)) {
                (Some((at, pcpu)), due) if at <= end && due.is_none_or(|due| at <= due) => {
                    self.now = self.now.max(at);
                    self.timers[pcpu as usize] = None;
                    self.interrupt(pcpu, HostInterrupt::Timer);
                }
                (_, Some(due)) if due <= end => {
                    self.now = self.now.max(due);
                    let (_, pcpu, signal) = self.signals.swap_remove(signal.unwrap_or(0));
                    self.arrive(pcpu, signal);
                }
                _ => break,
            }
        }
        self.now = end;
    }

    fn arrive(&mut self, pcpu: u32, signal: Signal) {
        match (signal, self.runs.get(pcpu as usize)) {
            (Signal::Ipi, _) => self.interrupt(pcpu, HostInterrupt::Reschedule),
            (Signal::Doorbell, Some(Run::Guest { vcpu, .. })) => self.evaluate(vcpu.0),
            (Signal::Doorbell, Some(Run::Poll(_))) => self.event(Event::Posted { pcpu: PcpuId(pcpu) }),
            (Signal::Doorbell, _) => {}
        }
    }

    fn interrupt(&mut self, pcpu: u32, interrupt: HostInterrupt) {
        if self.guest_on(pcpu).is_some() {
            return self.exit(pcpu, Exit::ExternalInterrupt(interrupt));
        }
        let pcpu = PcpuId(pcpu);
        self.event(Event::Interrupt { pcpu, interrupt });
    }

    /// The guest on `pcpu` ends the interrupt that it serves.
    pub fn serve(&mut self, pcpu: u32) -> Option<u8> {
        let vcpu = self.guest_on(pcpu)?;
        let vector = self.cpus[vcpu as usize].serving.pop()?;
        self.write(pcpu, lapic::EOI, 0);
        Some(vector)
    }

    pub fn counter(&self, name: &str) -> u64 {
        let found = self.host.counters(VmId(0)).find(|(known, _)| *known == name);
        found.map_or(0, |(_, value)| value)
    }
}

/// A random pCPU with a guest on it.
pub fn some_guest(rig: &Rig, random: &mut Random) -> Option<u32> {
    let pcpus = rig.runs.len() as u64;
    let first = random.next(pcpus);
    (0..pcpus)
        .map(|step| ((first + step) % pcpus) as u32)
        .find(|&pcpu| rig.guest_on(pcpu).is_some())
}
