//! The host's emulated LAPICs, driven through the host's boundary: every access is an exit, every other pCPU hears by IPI.

use std::collections::VecDeque;

use holdfast_abi::lapic as reg;
use holdfast_abi::{ioapic, msr};
use holdfast_host::{
    ApicRegisters, Command, Event, Exit, GuestState, Host, HostConfig, HostInterrupt, Nanos, PcpuId, Run, VcpuId,
    VmConfig, VmId,
};

use super::{Act, Delivers, FIRST_VM, Setup, Taken, VCPUS};
use crate::world::places;

/// What can be broken on purpose, between the host and what its commands do: the comparison has to notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// None.
    None,
    /// IPIs to other pCPUs are lost.
    LostKick,
    /// Interrupt windows do not exit.
    NoWindow,
    /// A vector whose delivery was interrupted is forgotten.
    ForgottenInjection,
    /// CR8 is never intercepted.
    NoCr8Intercept,
    /// CR8 as the guest left it is not reported.
    StaleCr8,
    /// The end of a non-maskable interrupt is not reported.
    NoIret,
    /// An EOI's value is taken for another register's.
    LostEoi,
    /// TMR is not told what is level triggered.
    StaleTmr,
}

/// A vCPU's side that is hardware.
#[derive(Clone, Debug, Default)]
struct Guest {
    state: GuestState,
    window: bool,
    cr8_intercepted: bool,
    in_nmi: bool,
    disturb: bool,
    taken: Vec<Taken>,
}

/// A host whose vCPU `n` has pCPU `n` for itself; devices work on one more.
pub struct Emulated {
    host: Host,
    fault: Fault,
    guests: Vec<Guest>,
    runs: Vec<Run>,
    ipis: VecDeque<PcpuId>,
    out: Vec<Command>,
}

const DEVICES: PcpuId = PcpuId(VCPUS);

impl Emulated {
    pub fn new(setup: Setup, fault: Fault) -> Emulated {
        let config = HostConfig {
            vector_hashing: setup.vector_hashing,
            ..HostConfig::default()
        };
        let mut host = Host::new(&config, &places(1, VCPUS + 1, 1)).expect("a valid host");
        let vm = VmConfig {
            split_irqchip: setup.split_irqchip,
            ..VmConfig::default()
        };
        for range in [0..FIRST_VM, FIRST_VM..VCPUS] {
            let affinity: Vec<Vec<u32>> = range.clone().map(|pcpu| vec![pcpu]).collect();
            host.add_vm(&vm, range.len() as u32, &affinity).expect("a valid vm");
        }
        let mut this = Emulated {
            host,
            fault,
            guests: vec![Guest::default(); VCPUS as usize],
            runs: vec![Run::Idle; VCPUS as usize + 1],
            ipis: VecDeque::new(),
            out: Vec::new(),
        };
        let mut out = Vec::new();
        this.host.start(Nanos(0), &mut out);
        this.obey(&out);
        this.settle();
        this
    }

    fn handle(&mut self, event: Event) {
        let mut out = std::mem::take(&mut self.out);
        out.clear();
        self.host.handle(event, Nanos(0), &mut out);
        self.obey(&out);
        self.out = out;
    }

    fn exit(&mut self, vcpu: u32, exit: Exit) {
        let mut guest = self.guests[vcpu as usize].state;
        if self.fault == Fault::StaleCr8 {
            guest.cr8 = 0;
        }
        self.handle(Event::Exit {
            pcpu: PcpuId(vcpu),
            exit,
            guest,
        });
    }

    fn obey(&mut self, commands: &[Command]) {
        let mut disturbed = Vec::new();
        for &command in commands {
            match command {
                Command::Run { pcpu, run } => {
                    self.runs[pcpu.0 as usize] = run;
                    if let Run::Guest { vcpu, inject, window } = run {
                        assert_eq!(vcpu.0, pcpu.0, "each vCPU has its pCPU");
                        disturbed.extend(self.enter(vcpu, inject, window));
                    }
                }
                Command::Ipi { to, .. } => self.ipis.push_back(to),
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
            let guest = &mut self.guests[vcpu as usize];
            guest.state.undelivered = (self.fault != Fault::ForgottenInjection).then_some(vector);
            self.exit(vcpu, Exit::ExternalInterrupt(HostInterrupt::Call));
            self.guests[vcpu as usize].state.undelivered = None;
        }
    }

    /// `vcpu` is entered. Returns the vector whose delivery is interrupted, if that shall be.
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

    /// Until nobody has an IPI to hear of, or a window to leave by.
    fn settle(&mut self) {
        loop {
            if let Some(to) = self.ipis.pop_front() {
                if self.fault == Fault::LostKick {
                    continue;
                }
                let interrupt = HostInterrupt::Reschedule;
                match self.runs[to.0 as usize] {
                    Run::Guest { vcpu, .. } => self.exit(vcpu.0, Exit::ExternalInterrupt(interrupt)),
                    _ => self.handle(Event::Interrupt { pcpu: to, interrupt }),
                }
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

    fn write_ioapic(&mut self, vcpu: u32, offset: u32, value: u32) {
        self.exit(
            vcpu,
            Exit::MmioWrite {
                address: ioapic::ADDRESS + u64::from(offset),
                value: u64::from(value),
                bytes: 4,
            },
        );
    }

    /// What `vcpu`, which runs, does.
    fn act(&mut self, vcpu: u32, act: Act) {
        let guest = &mut self.guests[vcpu as usize];
        match act {
            Act::Page { offset: reg::EOI, .. } if self.fault == Fault::LostEoi => {}
            Act::Page { offset, value, .. } => self.exit(vcpu, Exit::ApicWrite { offset, value }),
            Act::Msr { msr, value, .. } => self.exit(vcpu, Exit::WriteMsr { msr, value }),
            Act::Cr8 { value, .. } if guest.cr8_intercepted => {
                let value = u64::from(value);
                self.exit(vcpu, Exit::WriteCr8 { value });
            }
            Act::Cr8 { value, .. } => guest.state.cr8 = value,
            Act::Ioapic { register, value, .. } => {
                self.write_ioapic(vcpu, ioapic::SELECT, register);
                self.write_ioapic(vcpu, ioapic::WINDOW, value);
            }
            Act::IoapicEoi { vector, .. } => self.write_ioapic(vcpu, ioapic::EOI, u32::from(vector)),
            Act::Interrupts { enabled, .. } => guest.state.interrupts_enabled = enabled,
            Act::Iret { .. } => {
                if std::mem::take(&mut guest.in_nmi) && self.fault != Fault::NoIret {
                    self.exit(vcpu, Exit::Iret);
                }
            }
            Act::Halt { .. } => self.exit(vcpu, Exit::Hlt),
            Act::Disturb { .. } => guest.disturb = true,
            Act::Msi { .. } | Act::Line { .. } => unreachable!("a device's"),
        }
    }
}

impl Delivers for Emulated {
    fn perform(&mut self, act: Act) {
        match act {
            Act::Msi { vm, address, data } => self.handle(Event::Msi {
                pcpu: DEVICES,
                vm: VmId(vm),
                address,
                data,
            }),
            Act::Line { vm, pin, level } => self.handle(Event::Line {
                pcpu: DEVICES,
                vm: VmId(vm),
                pin,
                level,
            }),
            Act::Page { vcpu, .. }
            | Act::Msr { vcpu, .. }
            | Act::Cr8 { vcpu, .. }
            | Act::Ioapic { vcpu, .. }
            | Act::IoapicEoi { vcpu, .. }
            | Act::Interrupts { vcpu, .. }
            | Act::Iret { vcpu }
            | Act::Halt { vcpu }
            | Act::Disturb { vcpu } => {
                if !self.sleeps(vcpu) {
                    self.act(vcpu, act);
                }
            }
        }
        self.settle();
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
        [reg::IRR, reg::ISR, reg::TMR].map(|field| (0..=255).filter(|&vector| page.has(field, vector)).collect())
    }
}

/// IA32_APIC_BASE, for programs.
pub const APIC_BASE: u32 = msr::APIC_BASE;
