//! Interrupts of devices: MSIs and the I/O APIC's pins, through the LAPICs.

use holdfast_abi::{cpuid, ioapic, lapic as reg, msi, msr};
use holdfast_host::{
    Event, Exit, HostConfig, Nanos, PcpuId, RestoreError, SavedIoapic, VcpuId, VcpuState, VmConfig, VmId, VmmEvent,
};

use crate::world::{Guest, MS, Op, World, apic, places};

/// An idle pCPU, where device events happen.
const DEVICES: PcpuId = PcpuId(4);

fn pin_register(register: u32, value: u32) -> [Op; 2] {
    let store = |offset: u32, value: u32| {
        Op::Exit(Exit::MmioWrite {
            address: ioapic::ADDRESS + u64::from(offset),
            value: u64::from(value),
            bytes: 4,
        })
    };
    [store(ioapic::SELECT, register), store(ioapic::WINDOW, value)]
}

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

fn line(world: &mut World, pin: u32, level: bool) {
    world.handle(Event::Vmm(VmmEvent::Line {
        pcpu: DEVICES,
        vm: VmId(0),
        pin,
        level,
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
fn vectors_spread_lowest_priority_messages_where_the_host_hashes() {
    let address = msi::address(0b11) | msi::ADDRESS_LOGICAL;
    for (hashing, expected) in [(true, [1, 3, 0, 0]), (false, [2, 2, 0, 0])] {
        let config = HostConfig {
            vector_hashing: hashing,
            ..HostConfig::default()
        };
        let mut world = world(&config, &[]);
        for vector in [0x61, 0x63, 0x65, 0x66] {
            msi(&mut world, address, 1 << 8 | vector);
        }
        assert_eq!(counts(&world), expected, "hashing {hashing}");
    }
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
fn extended_destinations_are_for_guests_that_are_offered_them() {
    for (offered, expected) in [(false, 1), (true, 0)] {
        let mut world = World::new(&HostConfig::default(), &places(1, 5, 1));
        let config = VmConfig {
            msi_ext_dest_id: offered,
            ..VmConfig::default()
        };
        let leaf = cpuid::KVM_FEATURES;
        let ops = vec![
            Op::Exit(Exit::Cpuid { leaf }),
            apic(reg::SVR, 0x1ff),
            Op::Interrupts(true),
        ];
        world.add_vm(&config, &[vec![0]], vec![Guest::script(ops)]);
        world.start();
        world.run_until(MS);
        let [features, ..] = world.guests[0].cpuid;
        assert_eq!(features & cpuid::KVM_FEATURE_MSI_EXT_DEST_ID != 0, offered);
        msi(&mut world, msi::address(0) | 1 << msi::ADDRESS_EXTENDED_SHIFT, 0x61);
        assert_eq!(counts(&world), [expected], "256 is not 0 where all 15 bits count");
    }
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
fn an_edge_interrupts_once_and_only_while_unmasked() {
    let open = pin_register(ioapic::REDIRECTION + 2 * 5, 0x61);
    let mut world = world(&HostConfig::default(), &open);
    for level in [true, true, false, true, false] {
        line(&mut world, 5, level);
    }
    line(&mut world, 6, true);
    assert_eq!(world.guests[0].injected, [0x61, 0x61]);
    assert_eq!(world.counter(VmId(0), "ioapic_set_irq"), 2);
    assert_eq!(counts(&world)[1..], [0; 3]);
}

#[test]
fn a_narrow_store_to_the_ioapic_writes_the_low_bits_and_a_wide_one_nothing() {
    // Bit 16 masks the pin.
    let value = 0x1_0061;
    for (bytes, delivered) in [(1, 1), (2, 1), (4, 0), (8, 0)] {
        let [select, _] = pin_register(ioapic::REDIRECTION + 2 * 5, 0);
        let window = Op::Exit(Exit::MmioWrite {
            address: ioapic::ADDRESS + u64::from(ioapic::WINDOW),
            value,
            bytes,
        });
        let mut world = world(&HostConfig::default(), &[select, window]);
        line(&mut world, 5, true);
        assert_eq!(counts(&world), [delivered, 0, 0, 0], "{bytes} bytes");
        assert!(world.guests[0].injected.iter().all(|&vector| vector == 0x61));
    }
}

#[test]
fn a_level_interrupts_again_at_its_end_until_it_falls() {
    let level = 0x61 | ioapic::ENTRY_LEVEL as u32;
    let mut world = world(
        &HostConfig::default(),
        &pin_register(ioapic::REDIRECTION + 2 * 5, level),
    );
    line(&mut world, 5, true);
    let while_up = world.guests[0].injected.len();
    assert!(while_up > 10, "{while_up}");
    line(&mut world, 5, false);
    let after = world.guests[0].injected.len();
    line(&mut world, 6, false);
    assert_eq!(world.guests[0].injected.len(), after);
    assert!(world.counter(VmId(0), "eoi") >= while_up as u64);
}

#[test]
fn a_level_that_never_ends_leaves_the_guest_time_after_ten_thousand() {
    let level = 0x61 | ioapic::ENTRY_LEVEL as u32;
    let mut world = world(
        &HostConfig::default(),
        &pin_register(ioapic::REDIRECTION + 2 * 5, level),
    );
    world.handle(Event::Vmm(VmmEvent::Line {
        pcpu: DEVICES,
        vm: VmId(0),
        pin: 5,
        level: true,
    }));
    // Far more than ten thousand rounds would fit.
    let begin = world.now;
    let (mut last, mut longest) = (begin, 0);
    let mut seen = 0;
    for at in (begin..begin + 200 * MS).step_by(50_000) {
        world.run_until(at);
        let now = world.guests[0].injected.len();
        if now > seen {
            (seen, last) = (now, at);
        }
        longest = longest.max(at - last);
    }
    assert!(seen > 10_000, "{seen}");
    assert!((9 * MS..11 * MS).contains(&longest), "held back for {longest} ns");
}

/// Moves both VMs to a new host, which starts a millisecond later.
fn migrate(mut from: World) -> World {
    from.freeze();
    let mut to = at_power_on(&HostConfig::default(), &[]);
    let resumes = Nanos(from.now + MS);
    to.now = resumes.0;
    for vcpu in 0..4 {
        let restored = to.host.restore_vcpu(VcpuId(vcpu), &from.save(vcpu), resumes);
        restored.expect("a state that was saved");
    }
    for vm in [VmId(0), VmId(1)] {
        let saved = from.host.save_ioapic(vm);
        let restored = to.host.restore_ioapic(vm, &saved, resumes);
        restored.expect("a state that was saved");
        assert_eq!(to.host.save_ioapic(vm), saved);
    }
    to.guests = from.guests;
    for guest in &mut to.guests {
        guest.life = VcpuState::Woken;
        guest.carried();
    }
    to.start();
    to
}

#[test]
fn an_asserted_level_interrupts_on_after_a_migration_at_any_moment_until_it_falls() {
    let level = 0x61 | ioapic::ENTRY_LEVEL as u32;
    let open = pin_register(ioapic::REDIRECTION + 2 * 5, level);
    for at in 0..40 {
        let mut from = world(&HostConfig::default(), &open);
        from.handle(Event::Vmm(VmmEvent::Line {
            pcpu: DEVICES,
            vm: VmId(0),
            pin: 5,
            level: true,
        }));
        // Some moments are in a handler, and some in the long pause after ten thousand interrupts.
        from.run_until(MS + at * 2 * MS + at * 700);
        let mut to = migrate(from);
        let before = to.guests[0].injected.len();
        to.run_until(to.now + MS);
        let after = to.guests[0].injected.len();
        assert!(after > before + 10, "moment {at}: {before} to {after}");
        line(&mut to, 5, false);
        let fallen = to.guests[0].injected.len();
        to.run_until(to.now + 20 * MS);
        assert_eq!(to.guests[0].injected.len(), fallen, "moment {at}");
    }
}

#[test]
fn an_edge_that_was_sent_is_not_sent_again_after_a_migration() {
    let open = pin_register(ioapic::REDIRECTION + 2 * 5, 0x61);
    let mut from = world(&HostConfig::default(), &open);
    line(&mut from, 5, true);
    let mut to = migrate(from);
    to.run_until(to.now + MS);
    assert_eq!(to.guests[0].injected, [0x61]);
    line(&mut to, 5, true);
    assert_eq!(to.guests[0].injected, [0x61], "it has not fallen in between");
    line(&mut to, 5, false);
    line(&mut to, 5, true);
    assert_eq!(to.guests[0].injected, [0x61, 0x61]);
}

#[test]
fn a_restored_ioapic_has_no_bit_that_no_guest_can_set() {
    let mut to = at_power_on(&HostConfig::default(), &[]);
    let saved = SavedIoapic {
        select: 0xff,
        id: u32::MAX,
        entries: [u64::MAX, !ioapic::ENTRY_LEVEL].repeat(12).try_into().expect("24 pins"),
        asserted: u32::MAX,
    };
    to.host.restore_ioapic(VmId(1), &saved, Nanos(0)).expect("a VM");
    let read = to.host.save_ioapic(VmId(1));
    assert_eq!((read.select, read.id, read.asserted), (0xff, 0x0f00_0000, 0x00ff_ffff));
    assert_eq!(read.entries[0], 0xff00_0000_0001_efff);
    assert_eq!(read.entries[1], 0xff00_0000_0001_2fff, "no remote IRR without a level");
    assert_eq!(
        to.host.restore_ioapic(VmId(2), &saved, Nanos(0)),
        Err(RestoreError::UnknownVm(VmId(2)))
    );
    to.start();
    to.run_until(MS);
    assert_eq!(
        to.host.restore_ioapic(VmId(1), &saved, Nanos(MS)),
        Err(RestoreError::Started)
    );
}

#[test]
fn the_eoi_register_of_the_ioapic_frees_a_level_that_no_lapic_ended() {
    // vCPU 0's LAPIC takes it with interrupts masked forever; the pin is freed and goes to the same vector's IRR again.
    let level = 0x61 | ioapic::ENTRY_LEVEL as u32;
    let mut ops: Vec<Op> = pin_register(ioapic::REDIRECTION + 2 * 5, level).to_vec();
    ops.push(Op::Compute(2 * MS));
    ops.push(Op::Exit(Exit::MmioWrite {
        address: ioapic::ADDRESS + u64::from(ioapic::EOI),
        value: 0x61,
        bytes: 4,
    }));
    ops.push(Op::Exit(Exit::MmioRead {
        address: ioapic::ADDRESS + u64::from(ioapic::WINDOW),
        bytes: 4,
    }));
    ops.push(Op::Compute(100 * MS));
    let mut world = world(&HostConfig::default(), &ops);
    line(&mut world, 5, true);
    line(&mut world, 5, false);
    world.run_until(10 * MS);
    assert_eq!(world.guests[0].replies, [u64::from(level)], "remote IRR is clear");
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

#[test]
fn a_split_ioapic_is_visited_for_each_access_and_each_end_of_a_level() {
    for (split_irqchip, visits) in [(true, 3), (false, 0)] {
        for (trigger, ends) in [(ioapic::ENTRY_LEVEL as u32, 1), (0, 0)] {
            let mut world = World::new(&HostConfig::default(), &places(1, 5, 1));
            let vm = VmConfig {
                split_irqchip,
                ..VmConfig::default()
            };
            let mut ops = vec![apic(reg::SVR, 0x1ff)];
            ops.extend(pin_register(ioapic::REDIRECTION + 2 * 5, 0x61 | trigger));
            ops.extend([
                Op::Exit(Exit::MmioRead {
                    address: ioapic::ADDRESS + u64::from(ioapic::WINDOW),
                    bytes: 4,
                }),
                Op::Interrupts(true),
            ]);
            world.add_vm(&vm, &[vec![0]], vec![Guest::script(ops)]);
            world.start();
            world.run_until(MS);
            line(&mut world, 5, true);
            line(&mut world, 5, false);
            assert!(!world.guests[0].injected.is_empty());
            // A level that lasts is sent again after each end.
            let ended = world.guests[0].injected.len() as u64 * ends;
            let expected = if split_irqchip { visits + ended } else { 0 };
            assert_eq!(
                world.counter(VmId(0), "userspace_exits"),
                expected,
                "split {split_irqchip}, {trigger:#x}"
            );
        }
    }
}
