//! Interrupts of devices: MSIs, through the LAPICs.

use holdfast_abi::{lapic as reg, msi, msr};
use holdfast_host::{Event, Exit, HostConfig, PcpuId, VmConfig, VmId, VmmEvent};

use crate::world::{Guest, MS, Op, World, apic, places};

/// An idle pCPU, where device events happen.
const DEVICES: PcpuId = PcpuId(4);

/// Two VMs of two vCPUs, each on a pCPU of its own, after a millisecond; the first VM's vCPU 0 has done `ops`.
fn world(config: &HostConfig, ops: &[Op]) -> World {
    let mut world = at_power_on(config, ops);
    world.start();
    world.run_until(MS);
    world
}

fn at_power_on(config: &HostConfig, ops: &[Op]) -> World {
    let mut world = World::new(config, &places(1, 5, 1));
    for vm in 0..2u32 {
        let affinity: Vec<Vec<u32>> = (0..2).map(|vcpu| vec![vm * 2 + vcpu]).collect();
        let guests = (0..2u32).map(|vcpu| {
            let mut all = vec![apic(reg::SVR, 0x1ff), apic(reg::LDR, 1 << (24 + vcpu))];
            all.extend(ops.iter().filter(|_| vm == 0 && vcpu == 0));
            all.push(Op::Interrupts(true));
            Guest::script(all)
        });
        world.add_vm(&VmConfig::default(), &affinity, guests.collect());
    }
    world
}

fn msi(world: &mut World, address: u64, data: u32) {
    world.handle(Event::Vmm(VmmEvent::Msi {
        pcpu: DEVICES,
        vm: VmId(0),
        address,
        data,
    }));
    let soon = world.now + MS / 2;
    world.run_until(soon);
}

fn counts(world: &World) -> Vec<usize> {
    world.guests.iter().map(|guest| guest.injected.len()).collect()
}

#[test]
fn an_msi_reaches_whom_address_and_data_name_and_no_other_vm() {
    let cases = [
        ("physical", msi::address(1), 0x61, [0, 1, 0, 0]),
        ("nobody", msi::address(7), 0x61, [0, 0, 0, 0]),
        ("broadcast", msi::address(0xff), 0x61, [1, 1, 0, 0]),
        ("logical", msi::address(0b11) | msi::ADDRESS_LOGICAL, 0x61, [1, 1, 0, 0]),
        (
            "redirection hint",
            msi::address(0b11) | msi::ADDRESS_LOGICAL | msi::ADDRESS_REDIRECTION_HINT,
            0x61,
            [1, 0, 0, 0],
        ),
        ("vector below 16", msi::address(0), 0x0f, [0, 0, 0, 0]),
        ("elsewhere", 0xfec0_0000, 0x61, [0, 0, 0, 0]),
        ("above 4 GiB", 1 << 32 | msi::address(0), 0x61, [0, 0, 0, 0]),
    ];
    for (name, address, data, expected) in cases {
        let mut world = world(&HostConfig::default(), &[]);
        msi(&mut world, address, data);
        assert_eq!(counts(&world), expected, "{name}");
    }
}

#[test]
fn lowest_priority_messages_go_to_who_has_accepted_the_fewest() {
    let address = msi::address(0b11) | msi::ADDRESS_LOGICAL;
    let mut world = world(&HostConfig::default(), &[]);
    for vector in [0x61, 0x63, 0x65, 0x66] {
        msi(&mut world, address, 1 << 8 | vector);
    }
    assert_eq!(counts(&world), [2, 2, 0, 0]);
}

#[test]
fn an_msi_wakes_a_halted_vcpu() {
    let mut world = World::new(&HostConfig::default(), &places(1, 5, 1));
    let ops = vec![apic(reg::SVR, 0x1ff), Op::Interrupts(true), Op::Exit(Exit::Hlt)];
    world.add_vm(&VmConfig::default(), &[vec![0]], vec![Guest::script(ops)]);
    world.start();
    world.run_until(MS);
    msi(&mut world, msi::address(0), 0x61);
    assert_eq!(world.guests[0].injected, [0x61]);
    assert_eq!(world.counter(VmId(0), "msi_set_irq"), 1);
    assert_eq!(world.counter(VmId(0), "halt_wakeup"), 1);
}

#[test]
fn a_guest_that_renames_its_lapic_is_found_under_the_new_id_only() {
    let mut world = world(&HostConfig::default(), &[apic(reg::ID, 9 << 24)]);
    msi(&mut world, msi::address(0), 0x61);
    assert_eq!(counts(&world), [0; 4]);
    msi(&mut world, msi::address(9), 0x61);
    assert_eq!(counts(&world), [1, 0, 0, 0]);
}

#[test]
fn overlapping_ids_all_hear() {
    let mut world = world(
        &HostConfig::default(),
        &[apic(reg::ID, 1 << 24), apic(reg::LDR, 2 << 24)],
    );
    msi(&mut world, msi::address(1), 0x61);
    msi(&mut world, msi::address(2) | msi::ADDRESS_LOGICAL, 0x62);
    assert_eq!(counts(&world), [2, 2, 0, 0]);
}

#[test]
fn x2apic_guests_are_reached_by_devices_in_their_first_cluster() {
    let enable = Op::Exit(Exit::WriteMsr {
        msr: msr::APIC_BASE,
        value: 0xfee0_0d00,
    });
    let mut world = World::new(&HostConfig::default(), &places(1, 5, 1));
    let svr = Op::Exit(Exit::WriteMsr {
        msr: msr::X2APIC_BASE + 0xf,
        value: 0x1ff,
    });
    let guests = (0..2).map(|_| Guest::script(vec![enable, svr, Op::Interrupts(true)]));
    world.add_vm(&VmConfig::default(), &[vec![0], vec![1]], guests.collect());
    world.start();
    world.run_until(MS);
    msi(&mut world, msi::address(0b10) | msi::ADDRESS_LOGICAL, 0x61);
    msi(&mut world, msi::address(0), 0x61);
    msi(&mut world, msi::address(0xff), 0x71);
    assert_eq!(counts(&world), [2, 2]);
}
