//! A guest that is a hypervisor: VMRUN, exits of its own guest, and interrupts that end that guest's run.

use holdfast_abi::lapic as reg;
use holdfast_host::{
    Command, Cost, Event, Exit, GuestState, HardwareEvent, Host, HostConfig, HostInterrupt, Nanos, PcpuId, Run, VcpuId,
    VmConfig, VmId,
};

use crate::hardware::Part;
use crate::world::places;

const VCPU: VcpuId = VcpuId(0);
const VECTOR: u8 = 0x51;

/// One vCPU on one pCPU, and the commands of the last step.
struct One {
    host: Host,
    now: u64,
    irqs: bool,
    last: Vec<Command>,
}

impl One {
    fn new(config: &HostConfig, nested: bool) -> One {
        let mut host = Host::new(config, &places(1, 1, 1)).expect("a valid host");
        let vm = VmConfig {
            nested,
            ..VmConfig::default()
        };
        host.add_vm(&vm, 1, &[]).expect("a valid vm");
        let mut last = Vec::new();
        host.start(Nanos(0), &mut last);
        let (now, irqs) = (0, false);
        One { host, now, irqs, last }
    }

    fn exit(&mut self, exit: Exit) {
        self.now += 1_000;
        self.last.clear();
        let (pcpu, guest) = (
            PcpuId(0),
            GuestState {
                interrupts_enabled: self.irqs,
                ..GuestState::default()
            },
        );
        let event = Event::Hardware(HardwareEvent::Exit { pcpu, exit, guest });
        self.host.handle(event, Nanos(self.now), &mut self.last);
    }

    fn has(&self, command: Command) -> bool {
        self.last.contains(&command)
    }

    /// Returns whether the step has ended the run of the guest's own guest.
    fn left(&self) -> bool {
        self.has(Command::LeaveNested { vcpu: VCPU })
    }

    /// Returns how often the step was charged `cost`.
    fn charged(&self, cost: Cost) -> u32 {
        let of = |command: &Command| match command {
            Command::Charge { cost: of, count, .. } if *of == cost => *count,
            _ => 0,
        };
        self.last.iter().map(of).sum()
    }

    /// Returns what the vCPU is entered with.
    fn entered(&self) -> (Option<u8>, bool) {
        match self.last.last() {
            Some(Command::Run {
                run: Run::Guest { inject, window, .. },
                ..
            }) => (*inject, *window),
            other => panic!("not entered: {other:?}"),
        }
    }

    fn apic(&mut self, offset: u32, value: u32) {
        self.exit(Exit::ApicWrite { offset, value });
    }

    fn counter(&self, wanted: &str) -> u64 {
        let mut all = self.host.counters(VmId(0));
        all.find(|(name, _)| *name == wanted).expect("a counter").1
    }
}

#[test]
fn vmrun_is_invalid_unless_the_vm_is_offered_it() {
    let mut one = One::new(&HostConfig::default(), false);
    one.exit(Exit::Vmrun);
    assert!(one.has(Command::InvalidOpcode { vcpu: VCPU }));
    one.exit(Exit::Hlt);
    assert!(!one.left(), "it executes no guest of its own");
    assert_eq!(one.counter("nested_run"), 0);
}

#[test]
fn the_guest_s_hypervisor_gets_all_exits_but_those_of_the_host() {
    let own = [
        Exit::ExternalInterrupt(HostInterrupt::Reschedule),
        Exit::WriteFault,
        Exit::PageLogFull { entries: 512 },
    ];
    let reflected = [
        Exit::Hlt,
        Exit::Pause,
        Exit::Cpuid { leaf: 0 },
        Exit::NestedFault,
        Exit::Shutdown,
        Exit::Userspace,
        Exit::InterruptWindow,
        Exit::Vmrun,
        Exit::ReadMsr { msr: 0x1b },
        Exit::ApicRead { offset: reg::TPR },
        Exit::Hypercall {
            number: 5,
            arguments: [0; 4],
        },
    ];
    for exit in own {
        let mut one = One::new(&HostConfig::default(), true);
        one.exit(Exit::Vmrun);
        one.exit(exit);
        assert!(!one.left(), "{exit:?}");
        one.exit(Exit::Hlt);
        assert!(one.left(), "it still executed its own guest after {exit:?}");
    }
    for exit in reflected {
        let mut one = One::new(&HostConfig::default(), true);
        one.exit(Exit::Vmrun);
        assert!(!one.left());
        assert_eq!((one.charged(Cost::NestedEntry), one.charged(Cost::NestedExit)), (1, 0));
        one.exit(exit);
        assert!(one.left(), "{exit:?}");
        assert_eq!((one.charged(Cost::NestedEntry), one.charged(Cost::NestedExit)), (0, 1));
        assert_eq!(one.entered(), (None, false), "the host has not handled {exit:?} itself");
        one.exit(Exit::Vmrun);
        assert_eq!((one.left(), one.counter("nested_run")), (false, 2));
    }
}

#[test]
fn an_interrupt_ends_the_run_and_waits_for_the_hypervisor_to_take_it() {
    for irqs in [false, true] {
        let mut one = One::new(&HostConfig::default(), true);
        one.apic(reg::SVR, 0x1ff);
        one.apic(reg::ICR_LOW, reg::ICR_SHORTHAND_SELF | u32::from(VECTOR));
        // The flag at VMRUN says nothing: the global one is clear.
        one.irqs = irqs;
        one.exit(Exit::Vmrun);
        assert!(one.left(), "the interrupt was there before");
        assert_eq!(one.entered(), (None, true), "nothing is injected into the inner guest");
        one.irqs = true;
        one.exit(Exit::InterruptWindow);
        assert_eq!(one.entered(), (Some(VECTOR), false));
    }
}

#[test]
fn a_timer_that_expires_ends_the_run() {
    let mut one = One::new(&HostConfig::default(), true);
    one.apic(reg::SVR, 0x1ff);
    one.apic(reg::TIMER_DIVIDE, 0b1011);
    one.apic(reg::LVT_TIMER, u32::from(VECTOR));
    one.apic(reg::TIMER_INITIAL, 50_000);
    one.exit(Exit::Vmrun);
    assert!(!one.left());
    one.now += 100_000;
    one.exit(Exit::ExternalInterrupt(HostInterrupt::Timer));
    assert!(one.left());
}

#[test]
fn avic_is_inhibited_while_the_vcpu_executes_its_own_guest() {
    for part in [Part::Avic, Part::X2Avic, Part::Apicv] {
        let mut config = HostConfig::default();
        part.configure(&mut config);
        let mut one = One::new(&config, true);
        let is_on = |one: &One| match part.is_amd() {
            true => one.host.vmcb(VCPU).expect("it has AVIC").has_avic(),
            false => one.host.vmcs(VCPU).expect("it has APICv").delivers_interrupts(),
        };
        one.exit(Exit::Cpuid { leaf: 0 });
        assert!(is_on(&one), "{part:?}");
        one.exit(Exit::Vmrun);
        assert!(!is_on(&one), "{part:?}, inside");
        one.exit(Exit::Hlt);
        assert!(one.left());
        assert!(is_on(&one), "{part:?}, back");
        assert_eq!(one.counter("nested_run"), 1);
    }
}
