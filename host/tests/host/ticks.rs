//! Ticks of the PIT, through the PICs and LINT0.

use holdfast_abi::{lapic, pic, pit};
use holdfast_host::{AvicDriver, Exit, HostConfig, Inhibit, VmConfig, VmId};

use crate::hardware::{PARTS, Part};
use crate::rig::{Cpu, Rig};

/// The PIT's vector.
const VECTOR: u8 = 0x30;
/// A period of 1193 clocks, in nanoseconds.
const PERIOD: u64 = 1193 * 1_000_000_000 / pit::HZ;

fn out(rig: &mut Rig, port: u16, value: u8) {
    let value = u32::from(value);
    rig.exit(0, Exit::PortWrite { port, value });
}

/// A VM of two vCPUs, of which the first takes ticks.
fn ticking(part: Part, config: &HostConfig, vm: &VmConfig) -> Rig {
    let mut rig = Rig::new(config, vm, 2, vec![Cpu::default(); 2], false);
    rig.hardware = part.hardware();
    rig.start();
    rig.store(0, lapic::SVR, 0x1ff);
    rig.store(0, lapic::LVT_LINT0, lapic::DeliveryMode::ExtInt.bits());
    let data = pic::MASTER + pic::DATA;
    for (port, value) in [
        (pic::MASTER, pic::ICW1 | pic::ICW1_WITH_ICW4),
        (data, VECTOR),
        (data, 1 << pic::CASCADE),
        (data, pic::ICW4_8086),
        (pit::CONTROL, pit::ACCESS_BOTH | pit::MODE_RATE),
        (pit::COUNTER_0, (1193 & 0xff) as u8),
        (pit::COUNTER_0, (1193 >> 8) as u8),
    ] {
        out(&mut rig, port, value);
    }
    rig
}

fn host(part: Part) -> HostConfig {
    let mut config = HostConfig::default();
    part.configure(&mut config);
    config
}

/// Ends a tick as the guest's handler.
fn end(rig: &mut Rig) {
    assert_eq!(rig.cpus[0].serving.pop(), Some(VECTOR));
    out(rig, pic::MASTER, pic::OCW2_EOI);
}

#[test]
fn each_tick_comes_once_and_in_time_whatever_virtualizes_the_lapic() {
    for part in PARTS {
        let mut rig = ticking(part, &host(part), &VmConfig::default());
        rig.set_irqs(0, true);
        for tick in 1..200 {
            rig.pass(PERIOD);
            assert_eq!(rig.cpus[0].taken, vec![VECTOR; tick], "{part:?}");
            end(&mut rig);
            if tick % 3 == 0 {
                // HLT with interrupts enabled: the tick ends it.
                rig.cpus[0].irqs = true;
                rig.halt(0);
            }
            rig.set_irqs(0, true);
        }
        assert!(rig.cpus[1].taken.is_empty(), "its LINT0 is masked");
        assert_eq!(rig.counter(VmId(0), "external_injections"), 199, "{part:?}");
        assert_eq!(rig.counter(VmId(0), "irq_window"), 0, "{part:?}");
    }
}

#[test]
fn a_tick_that_waits_for_the_guest_switches_avic_off_until_it_is_taken() {
    for part in PARTS {
        for driver in [AvicDriver::Now, AvicDriver::Linux4_7] {
            let mut config = host(part);
            config.avic.driver = driver;
            let mut rig = ticking(part, &config, &VmConfig::default());
            let avic = config.avic.is_used();
            let inhibits = avic && driver == AvicDriver::Now;
            for tick in 1..20 {
                let off = |rig: &Rig| {
                    rig.host
                        .apic_inhibits(VmId(0))
                        .is_some_and(|all| all.has(Inhibit::IrqWindow))
                };
                assert!(!off(&rig));
                rig.pass(PERIOD);
                assert_eq!(off(&rig), inhibits, "{part:?}, {driver:?}");
                rig.set_irqs(0, true);
                if avic && !inhibits {
                    // The driver of 4.7 opens no window, so it takes an exit.
                    out(&mut rig, 0x80, 0);
                }
                assert_eq!(rig.cpus[0].taken, vec![VECTOR; tick], "{part:?}, {driver:?}");
                assert!(!off(&rig), "{part:?}");
                end(&mut rig);
            }
            let windows = rig.counter(VmId(0), "irq_window");
            assert_eq!(windows, if avic && !inhibits { 0 } else { 19 }, "{part:?}, {driver:?}");
            let counted = rig.counter(VmId(0), "inhibited_irq_window");
            assert_eq!(counted, if inhibits { 19 } else { 0 }, "{part:?}, {driver:?}");
        }
    }
}

#[test]
fn an_inhibit_for_a_window_ends_with_what_waits_for_it() {
    let rig = || {
        let mut rig = ticking(Part::Avic, &host(Part::Avic), &VmConfig::default());
        rig.pass(PERIOD);
        rig
    };
    let off = |rig: &Rig| rig.host.apic_inhibits(VmId(0)).is_some_and(|all| !all.is_empty());
    let withdrawals: [fn(&mut Rig); 3] = [
        |rig| out(rig, pic::MASTER + pic::DATA, 0xff),
        |rig| rig.store(0, lapic::LVT_LINT0, lapic::LVT_MASKED),
        |rig| rig.exit(0, Exit::Shutdown),
    ];
    for withdraw in withdrawals {
        let mut rig = rig();
        assert!(off(&rig));
        withdraw(&mut rig);
        assert!(!off(&rig));
    }
}

#[test]
fn ticks_go_on_after_a_migration_with_the_same_period() {
    let vm = VmConfig::default();
    for part in PARTS {
        let config = host(part);
        let mut rig = ticking(part, &config, &vm);
        rig.set_irqs(0, true);
        rig.pass(PERIOD);
        // One is in service, and the next one waits for its end.
        rig.pass(PERIOD + 100_000);
        rig = rig.migrate(&config, &vm, 2);
        assert_eq!(rig.cpus[0].taken, [VECTOR], "{part:?}");
        end(&mut rig);
        rig.set_irqs(0, true);
        assert_eq!(rig.cpus[0].taken, [VECTOR; 2], "{part:?}");
        end(&mut rig);
        rig.set_irqs(0, true);
        rig.pass(PERIOD - 100_001);
        assert_eq!(rig.cpus[0].taken, [VECTOR; 2], "{part:?}: not earlier");
        rig.pass(1);
        assert_eq!(rig.cpus[0].taken, [VECTOR; 3], "{part:?}");
    }
}

#[test]
fn chips_of_a_split_irqchip_are_the_vmms() {
    for split_irqchip in [false, true] {
        let vm = VmConfig {
            split_irqchip,
            ..VmConfig::default()
        };
        let mut rig = ticking(Part::None, &HostConfig::default(), &vm);
        let before = rig.counter(VmId(0), "userspace_exits");
        rig.set_irqs(0, true);
        rig.pass(PERIOD);
        end(&mut rig);
        let visits = rig.counter(VmId(0), "userspace_exits") - before;
        assert_eq!(
            visits,
            if split_irqchip { 2 } else { 0 },
            "the acknowledgment, and the end"
        );
        assert_eq!(before > 0, split_irqchip);
    }
}
