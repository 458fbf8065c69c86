//! What registers read as: MSRs, and LAPIC registers by bytes.

use holdfast_abi::{lapic, msr};
use holdfast_host::{Exit, HostConfig, VcpuId, VmConfig};

use crate::hardware::{PARTS, Part};
use crate::rig::{Cpu, Rig};
use crate::world::{Guest, MS, Op, World, apic, places};

/// Returns the replies to a guest that does `ops`, and its faults.
fn replies(vm: &VmConfig, ops: Vec<Op>) -> (Vec<u64>, u32) {
    let mut world = World::new(&HostConfig::default(), &places(1, 1, 1));
    world.add_vm(vm, &[], vec![Guest::script(ops)]);
    world.start();
    world.run_until(MS);
    (world.guests[0].replies.clone(), world.guests[0].faults)
}

fn write(msr: u32, value: u64) -> Op {
    Op::Exit(Exit::WriteMsr { msr, value })
}

fn read(msr: u32) -> Op {
    Op::Exit(Exit::ReadMsr { msr })
}

#[test]
fn an_msr_reads_as_it_was_written_if_it_is_offered_and_faults_otherwise() {
    let base = msr::APIC_BASE_ADDRESS | msr::APIC_BASE_ENABLE | msr::APIC_BASE_BSP;
    for (msr, value, optional) in [
        (msr::STEAL_TIME, 0x1001, true),
        (msr::PV_EOI, 0x2001, true),
        (msr::POLL_CONTROL, 0, true),
        (msr::TSC_DEADLINE, 1 << 50, false),
        (msr::APIC_BASE, base, false),
    ] {
        for offered in [true, false] {
            let vm = VmConfig {
                steal_time: offered,
                pv_eoi: offered,
                poll_control: offered,
                ..VmConfig::default()
            };
            let deadline = apic(lapic::LVT_TIMER, lapic::LVT_TIMER_TSC_DEADLINE | 0x40);
            let found = replies(&vm, vec![deadline, write(msr, value), read(msr)]);
            let expected = if offered || !optional {
                (vec![value], 0)
            } else {
                (vec![], 2)
            };
            assert_eq!(found, expected, "{msr:#x}, offered {offered}");
        }
    }
    assert_eq!(
        replies(&VmConfig::default(), vec![read(0x1234), write(0x1234, 0)]),
        (vec![], 2)
    );
    let offered = VmConfig {
        poll_control: true,
        ..VmConfig::default()
    };
    let after_reset = replies(&offered, vec![read(msr::POLL_CONTROL), read(msr::TSC_DEADLINE)]);
    assert_eq!(after_reset, (vec![1, 0], 0), "the host polls, and no timer runs");
}

#[test]
fn the_counter_is_that_of_the_host() {
    let ops = vec![
        Op::Compute(100_000),
        read(msr::TSC),
        Op::Compute(500_000),
        read(msr::TSC),
    ];
    let (counts, _) = replies(&VmConfig::default(), ops);
    let ticks = (counts[1] - counts[0]) as f64;
    let hz = HostConfig::default().tsc_hz as f64;
    assert!((ticks / hz / 505e-6 - 1.0).abs() < 0.02, "{ticks}");
}

#[test]
fn a_load_from_the_lapic_reads_one_register_or_zeros() {
    let load = |offset| replies(&VmConfig::default(), vec![Op::Exit(Exit::ApicRead { offset })]).0;
    let version = load(lapic::VERSION);
    assert!(version[0] > 0xffff, "{version:x?}");
    for within in 1..16 {
        assert_eq!(load(lapic::VERSION + within), [0], "at {within}");
    }
}

#[test]
fn nothing_reads_as_ones_and_each_access_is_emulated() {
    let moved = write(
        msr::APIC_BASE,
        (msr::APIC_BASE_ADDRESS ^ 1 << 20) | msr::APIC_BASE_ENABLE,
    );
    let offset = lapic::VERSION;
    let accesses = [Exit::ApicRead { offset }, Exit::ApicWrite { offset, value: 7 }].map(Op::Exit);
    let mut world = World::new(&HostConfig::default(), &places(1, 1, 1));
    let script = Guest::script([vec![moved], accesses.to_vec()].concat());
    let vm = world.add_vm(&VmConfig::default(), &[], vec![script]);
    world.start();
    world.run_until(MS);
    assert_eq!(world.guests[0].replies, [u64::from(u32::MAX)]);
    assert_eq!(world.counter(vm, "insn_emulation"), 2);
    assert_eq!(world.counter(vm, "userspace_exits"), 2);
}

#[test]
fn hardware_gets_the_accesses_to_msrs_that_it_virtualizes() {
    use lapic::{DFR, EOI, ICR_HIGH, ICR_LOW, ID, LDR, LVT_TIMER, RRD, SELF_IPI, TPR};
    let enable = msr::APIC_BASE_ADDRESS | msr::APIC_BASE_ENABLE;
    for part in PARTS {
        for wide in [true, false] {
            let mut config = HostConfig::default();
            part.configure(&mut config);
            let mut rig = Rig::new(&config, &VmConfig::default(), 1, vec![Cpu::default()], false);
            rig.start();
            if wide {
                rig.write_msr(0, msr::APIC_BASE, enable | msr::APIC_BASE_X2APIC);
            }
            for msr in msr::X2APIC_BASE - 1..=msr::X2APIC_LAST + 1 {
                let in_range = (msr::X2APIC_BASE..msr::X2APIC_BASE + 0x40).contains(&msr);
                let offset = msr.saturating_sub(msr::X2APIC_BASE) * 16;
                let exists = wide && in_range && ![DFR, ICR_HIGH].contains(&offset);
                for write in [true, false] {
                    let by_hardware = match part {
                        Part::X2Avic => {
                            !([RRD, LVT_TIMER, SELF_IPI].contains(&offset) || write && [ID, LDR].contains(&offset))
                        }
                        Part::Apicv | Part::Ipiv if !write => ![EOI, SELF_IPI].contains(&offset),
                        Part::Apicv => [TPR, EOI, SELF_IPI].contains(&offset),
                        Part::Ipiv => [TPR, EOI, SELF_IPI, ICR_LOW].contains(&offset),
                        Part::None | Part::Avic | Part::Hybrid => false,
                    };
                    let found = rig.host.passes_msr(VcpuId(0), msr, write);
                    assert_eq!(
                        found,
                        (exists && by_hardware).then_some(offset),
                        "{part:?}, {msr:#x}, write {write}"
                    );
                }
            }
        }
    }
}
