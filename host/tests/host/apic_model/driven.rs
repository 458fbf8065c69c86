//! The host's LAPICs, driven through the host's boundary: emulated, where every access is an exit and every other pCPU
//! hears by IPI; or virtualized by hardware, where little is.

use std::collections::VecDeque;

use holdfast_abi::lapic as reg;
use holdfast_abi::{msr, posted};
use holdfast_host::{
    ApicRegisters, Command, Event, Exit, GuestState, HardwareEvent, HostConfig, HostInterrupt, Inhibits, Nanos, PcpuId,
    Run, SavedVcpu, VcpuId, VmConfig, VmId, VmmEvent,
};

use super::{Act, Delivers, FIRST_VM, Fault, Setup, Taken, VCPUS};
use crate::hardware::{self, Signal};
use crate::world::{Driver, drives, places};

/// The state of a vCPU outside the host.
#[derive(Clone, Debug, Default)]
struct Guest {
    state: GuestState,
    window: bool,
    cr8_intercepted: bool,
    in_nmi: bool,
    disturb: bool,
    taken: Vec<Taken>,
}

/// A signal in flight to a pCPU.
#[derive(Clone, Copy, Debug)]
enum Coming {
    Ipi(u32),
    ByHardware(Signal),
}

/// A host whose vCPU `n` has pCPU `n` for itself; devices work on one more.
pub struct Driven {
    driver: Driver,
    setup: Setup,
    fault: Fault,
    guests: Vec<Guest>,
    coming: VecDeque<Coming>,
}

const DEVICES: PcpuId = PcpuId(VCPUS);

drives!(Driven);

impl Driven {
    pub fn new(setup: Setup, fault: Fault) -> Driven {
        Driven::restored(setup, fault, &[])
    }

    /// Returns a host to which vCPUs have migrated with the state in `saved`.
    pub fn restored(setup: Setup, fault: Fault, saved: &[SavedVcpu]) -> Driven {
        let mut config = HostConfig::default();
        setup.part.configure(&mut config);
        fault.configure(&mut config);
        let mut driver = Driver::new(&config, &places(1, VCPUS + 1, 1));
        let vm = VmConfig::default();
        for range in [0..FIRST_VM, FIRST_VM..VCPUS] {
            let affinity: Vec<Vec<u32>> = range.clone().map(|pcpu| vec![pcpu]).collect();
            let vcpus = range.len() as u32;
            driver.host.add_vm(&vm, vcpus, &affinity).expect("a valid vm");
        }
        let mut this = Driven {
            driver,
            setup,
            fault,
            guests: vec![Guest::default(); VCPUS as usize],
            coming: VecDeque::new(),
        };
        for (vcpu, saved) in (0..).zip(saved) {
            let restored = this.host.restore_vcpu(VcpuId(vcpu), saved, Nanos(0));
            restored.expect("a state that was saved");
            this.guests[vcpu as usize].state = saved.guest;
        }
        let out = this.start_host();
        this.apply_commands(&out);
        this.deliver_all();
        this
    }

    fn handle(&mut self, event: Event) {
        let out = self.report(event);
        self.apply_commands(&out);
    }

    /// Returns the hardware that executes `vcpu`.
    fn hardware(&self, vcpu: u32) -> hardware::Guest<'_> {
        hardware::Guest::new(&self.host, vcpu, self.setup.part.hardware())
    }

    fn exit(&mut self, vcpu: u32, exit: Exit) {
        if let Some(value) = self.hardware(vcpu).cr8() {
            self.guests[vcpu as usize].state.cr8 = value;
        }
        let mut guest = self.guests[vcpu as usize].state;
        if self.fault == Fault::StaleCr8 {
            guest.cr8 = 0;
        }
        self.handle(Event::Hardware(HardwareEvent::Exit {
            pcpu: PcpuId(vcpu),
            exit,
            guest,
        }));
    }

    fn apply_commands(&mut self, commands: &[Command]) {
        let mut disturbed = Vec::new();
        let mut entered = Vec::new();
        for &command in commands {
            match command {
                Command::Run {
                    pcpu,
                    run: Run::Guest { vcpu, inject, window },
                } => {
                    assert_eq!(vcpu.0, pcpu.0, "each vCPU has its pCPU");
                    disturbed.extend(self.enter(vcpu, inject, window));
                    entered.push(vcpu.0);
                }
                Command::Ipi { to, .. } => self.coming.push_back(Coming::Ipi(to.0)),
                Command::Doorbell { to } => self.coming.push_back(Coming::ByHardware(Signal::Doorbell(to.0))),
                Command::Notify { to, vector, .. } => {
                    let signal = Signal::Notification(to.0, vector);
                    self.coming.push_back(Coming::ByHardware(signal));
                }
                Command::InjectNmi { vcpu } => {
                    let guest = &mut self.guests[vcpu.0 as usize];
                    assert!(!guest.in_nmi, "vcpu {} gets an NMI within an NMI", vcpu.0);
                    guest.in_nmi = true;
                    guest.state.interrupts_enabled = false;
                    guest.taken.push(Taken::Nmi);
                }
                Command::SetCr8 { vcpu, value } => self.guests[vcpu.0 as usize].state.cr8 = value,
                Command::InterceptCr8 { vcpu, on } => {
                    self.guests[vcpu.0 as usize].cr8_intercepted = on && self.fault != Fault::NoCr8Intercept;
                }
                Command::Init { vcpu } => {
                    let guest = &mut self.guests[vcpu.0 as usize];
                    *guest = Guest {
                        cr8_intercepted: guest.cr8_intercepted,
                        taken: std::mem::take(&mut guest.taken),
                        ..Guest::default()
                    };
                    guest.taken.push(Taken::Init);
                }
                Command::Startup { vcpu, vector } => {
                    self.guests[vcpu.0 as usize].taken.push(Taken::Startup(vector));
                }
                Command::Fault { vcpu } => self.guests[vcpu.0 as usize].taken.push(Taken::Fault),
                _ => {}
            }
        }
        for (vcpu, vector) in disturbed {
            self.disturb(vcpu, vector);
        }
        for vcpu in entered {
            self.hardware(vcpu).enter();
            self.evaluate(vcpu);
        }
    }

    /// Interrupts the delivery of `vector` to `vcpu`.
    fn disturb(&mut self, vcpu: u32, vector: u8) {
        let guest = &mut self.guests[vcpu as usize];
        guest.state.undelivered = (self.fault != Fault::ForgottenInjection).then_some(vector);
        self.exit(vcpu, Exit::ExternalInterrupt(HostInterrupt::Call));
        self.guests[vcpu as usize].state.undelivered = None;
    }

    /// Lets hardware deliver an interrupt that `vcpu` can take.
    fn evaluate(&mut self, vcpu: u32) {
        if self.sleeps(vcpu) || !self.guests[vcpu as usize].state.interrupts_enabled {
            return;
        }
        let Some(vector) = self.take(vcpu) else { return };
        let guest = &mut self.guests[vcpu as usize];
        if std::mem::take(&mut guest.disturb) {
            return self.disturb(vcpu, vector);
        }
        guest.state.interrupts_enabled = false;
        guest.taken.push(Taken::Vector(vector));
    }

    fn take(&self, vcpu: u32) -> Option<u8> {
        let page = self.host.apic_page(VcpuId(vcpu));
        let hardware = self.hardware(vcpu);
        let requested: Vec<u8> = (16..=255).filter(|&vector| page.has(reg::IRR, vector)).collect();
        let serving = page.highest(reg::ISR);
        let instead = match self.fault {
            _ if !hardware.is_on() => None,
            Fault::LowestFirst => requested
                .iter()
                .find(|&&vector| serving.is_none_or(|above| vector >> 4 > above >> 4)),
            Fault::NoServicePriority => requested
                .last()
                .filter(|&&vector| vector >> 4 > (page.load(reg::TPR) >> 4) as u8),
            _ => None,
        };
        match instead {
            Some(&vector) => {
                page.begin_service(vector);
                Some(vector)
            }
            None => hardware.take(),
        }
    }

    /// Completes an instruction of `vcpu`: sends the signals of hardware, and handles `exit`.
    fn finish(&mut self, vcpu: u32, exit: Option<Exit>, signals: Vec<Signal>) {
        self.coming.extend(signals.into_iter().map(Coming::ByHardware));
        match exit.filter(|exit| !self.fault.swallows(exit)) {
            Some(exit) => self.exit(vcpu, exit),
            None => self.evaluate(vcpu),
        }
    }

    /// Stores to the LAPIC's page as `vcpu`.
    fn write(&mut self, vcpu: u32, offset: u32, value: u32) {
        let page = self.host.apic_page(VcpuId(vcpu));
        let on = self.hardware(vcpu).is_on();
        if on && self.fault == Fault::EoiOfLowest && offset == reg::EOI {
            if let Some(lowest) = (0..=255).find(|&vector| page.has(reg::ISR, vector)) {
                page.remove(reg::ISR, lowest);
            }
            return self.evaluate(vcpu);
        }
        let mut signals = Vec::new();
        let exit = self.hardware(vcpu).write(offset, value, &mut signals);
        self.finish(vcpu, exit, signals);
    }

    /// Enters `vcpu`. Returns the vCPU and vector of a delivery that is to be interrupted, if any.
    fn enter(&mut self, vcpu: VcpuId, inject: Option<u8>, window: bool) -> Option<(u32, u8)> {
        let guest = &mut self.guests[vcpu.0 as usize];
        guest.window = window && self.fault != Fault::NoWindow;
        let vector = inject?;
        assert!(vector >= 16, "vector {vector} is injected");
        assert!(guest.state.interrupts_enabled, "vector {vector} is injected and masked");
        if std::mem::take(&mut guest.disturb) {
            return Some((vcpu.0, vector));
        }
        guest.state.interrupts_enabled = false;
        guest.taken.push(Taken::Vector(vector));
        None
    }

    /// Delivers all signals, and takes the exits of open interrupt windows, until there are none.
    pub fn deliver_all(&mut self) {
        loop {
            if let Some(coming) = self.coming.pop_front() {
                self.arrive(coming);
                continue;
            }
            let open = |vcpu: &u32| {
                let guest = &self.guests[*vcpu as usize];
                guest.window && guest.state.interrupts_enabled && !self.sleeps(*vcpu)
            };
            let Some(vcpu) = (0..VCPUS).find(open) else { return };
            self.guests[vcpu as usize].window = false;
            self.exit(vcpu, Exit::InterruptWindow);
        }
    }

    /// Delivers the IPIs that are in flight to `pcpu`, ahead of all other signals.
    pub fn deliver_to(&mut self, pcpu: u32) {
        let (first, rest) = self
            .coming
            .drain(..)
            .partition(|coming| matches!(coming, Coming::Ipi(to) if *to == pcpu));
        self.coming = rest;
        let first: VecDeque<Coming> = first;
        first.into_iter().for_each(|coming| self.arrive(coming));
    }

    fn arrive(&mut self, coming: Coming) {
        match coming {
            Coming::Ipi(_) if self.fault == Fault::LostKick => {}
            Coming::ByHardware(_) if self.fault == Fault::LostSignal => {}
            Coming::Ipi(to) => self.interrupt(to, HostInterrupt::Reschedule),
            Coming::ByHardware(Signal::Doorbell(to)) => self.evaluate(to),
            Coming::ByHardware(Signal::Notification(to, posted::WAKEUP_VECTOR)) => {
                self.interrupt(to, HostInterrupt::PostedWakeup);
            }
            Coming::ByHardware(Signal::Notification(to, vector)) => {
                if self.sleeps(to) {
                    return;
                }
                if self.hardware(to).notified(vector) {
                    self.evaluate(to);
                } else {
                    // An interrupt like any other while APICv is off.
                    self.interrupt(to, HostInterrupt::Call);
                }
            }
        }
    }

    fn interrupt(&mut self, to: u32, interrupt: HostInterrupt) {
        match self.runs[to as usize] {
            Run::Guest { vcpu, .. } => self.exit(vcpu.0, Exit::ExternalInterrupt(interrupt)),
            _ => self.handle(Event::Hardware(HardwareEvent::Interrupt {
                pcpu: PcpuId(to),
                interrupt,
            })),
        }
    }

    /// Performs the act of `vcpu`, which runs.
    pub fn act(&mut self, vcpu: u32, act: Act) {
        let guest = &mut self.guests[vcpu as usize];
        match act {
            Act::Page { offset: reg::EOI, .. } if self.fault == Fault::LostEoi => {}
            Act::Page { offset, value, .. } => self.write(vcpu, offset, value),
            Act::Msr { msr, value, .. } => {
                let mut signals = Vec::new();
                let exit = self.hardware(vcpu).write_msr(msr, value, &mut signals);
                self.finish(vcpu, exit, signals);
            }
            Act::Cr8 { value, .. } if guest.cr8_intercepted => {
                let value = u64::from(value);
                self.exit(vcpu, Exit::WriteCr8 { value });
            }
            Act::Cr8 { value, .. } => {
                guest.state.cr8 = value;
                self.hardware(vcpu).write_cr8(value);
                self.evaluate(vcpu);
            }
            Act::Interrupts { enabled, .. } => {
                guest.state.interrupts_enabled = enabled;
                self.evaluate(vcpu);
            }
            Act::Iret { .. } => {
                if std::mem::take(&mut guest.in_nmi) && self.fault != Fault::NoIret {
                    self.exit(vcpu, Exit::Iret);
                }
            }
            Act::Halt { .. } => self.exit(vcpu, Exit::Hlt),
            Act::Disturb { .. } => guest.disturb = true,
            Act::Msi { .. } => unreachable!("a device's"),
        }
    }
}

impl Delivers for Driven {
    fn perform(&mut self, act: Act) {
        let before: Vec<bool> = (0..VCPUS).map(|vcpu| self.hardware(vcpu).is_on()).collect();
        match act {
            Act::Msi { vm, address, data } => self.handle(Event::Vmm(VmmEvent::Msi {
                pcpu: DEVICES,
                vm: VmId(vm),
                address,
                data,
            })),
            Act::Page { vcpu, .. }
            | Act::Msr { vcpu, .. }
            | Act::Cr8 { vcpu, .. }
            | Act::Interrupts { vcpu, .. }
            | Act::Iret { vcpu }
            | Act::Halt { vcpu }
            | Act::Disturb { vcpu } => {
                if !self.sleeps(vcpu) {
                    self.act(vcpu, act);
                }
            }
        }
        self.deliver_all();
        for vcpu in (0..VCPUS).filter(|&vcpu| before[vcpu as usize]) {
            if self.fault == Fault::IrrLostAtInhibit && !self.hardware(vcpu).is_on() {
                let page = self.host.apic_page(VcpuId(vcpu));
                (0..8).for_each(|word| page.store(reg::IRR + word * reg::STRIDE, 0));
            }
        }
        if self.fault == Fault::StaleTmr {
            for vcpu in 0..VCPUS {
                (0..8).for_each(|word| {
                    self.host
                        .apic_page(VcpuId(vcpu))
                        .store(reg::TMR + word * reg::STRIDE, 0)
                });
            }
        }
    }

    fn taken(&mut self) -> Vec<Vec<Taken>> {
        self.guests
            .iter_mut()
            .map(|guest| std::mem::take(&mut guest.taken))
            .collect()
    }

    fn sleeps(&self, vcpu: u32) -> bool {
        !matches!(self.runs[vcpu as usize], Run::Guest { .. })
    }

    fn registers(&self, vcpu: u32) -> [Vec<u8>; 3] {
        let page = self.host.apic_page(VcpuId(vcpu));
        let posted = self.hardware(vcpu).posted();
        let has = |field| move |vector: &u8| page.has(field, *vector);
        let all = 0..=255u8;
        let requested = all
            .clone()
            .filter(|vector| has(reg::IRR)(vector) || posted.contains(vector));
        [
            requested.collect(),
            all.clone().filter(has(reg::ISR)).collect(),
            all.filter(has(reg::TMR)).collect(),
        ]
    }

    fn is_virtualized(&self, vcpu: u32) -> bool {
        let on = self.hardware(vcpu).is_on();
        if let Some(control) = self.host.vmcs(VcpuId(vcpu)) {
            // A notification is an ordinary interrupt for a guest whose LAPIC is emulated: it exits.
            assert_eq!(control.processes_posted(), on, "posted interrupts of vcpu {vcpu}");
            assert!(on || !control.sends_ipis(), "IPIs of vcpu {vcpu}");
        }
        on
    }
}

impl Driven {
    /// Returns why hardware does not virtualize the LAPICs of the first VM.
    pub fn inhibits(&self) -> Inhibits {
        self.host.apic_inhibits(VmId(0)).unwrap_or_default()
    }
}

/// IA32_APIC_BASE, for programs.
pub const APIC_BASE: u32 = msr::APIC_BASE;
