//! What the host does for guests about interrupts: ends in memory, IPIs by hypercall; each with a fault planted.

use holdfast_abi::{hypercall, lapic as reg, msr};
use holdfast_host::{Command, Exit, HostConfig, Linux, Nanos, Planted, PvFaults, VcpuId, VcpuState, VmConfig, VmId};
use proptest::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::world::{Guest, MS, Op, Rng, World, apic, places, vectors};

const US: u64 = 1_000;
const VM: VmId = VmId(0);

/// Returns a configuration with rare ticks. No exit happens by chance and shows what an interrupt should have shown.
fn quiet(faults: PvFaults) -> HostConfig {
    HostConfig {
        hz: 10,
        planted: Planted {
            pv: faults,
            ..Planted::default()
        },
        ..HostConfig::default()
    }
}

fn offers() -> VmConfig {
    VmConfig {
        pv_eoi: true,
        pv_send_ipi: true,
        ..VmConfig::default()
    }
}

fn write_msr(msr: u32, value: u64) -> Op {
    Op::Exit(Exit::WriteMsr { msr, value })
}

/// Returns a vCPU that enables its LAPIC and its word, sends `rounds` IPIs at random, masks and halts now and then, and
/// then computes.
fn chatter(seed: u64, vcpu: u64, vcpus: u64, rounds: u32) -> Guest {
    let mut ops = vec![
        apic(reg::SVR, 0x1ff),
        write_msr(msr::PV_EOI, (0x2000 + 64 * vcpu) | msr::PV_EOI_ENABLE),
        Op::Interrupts(true),
        Op::Compute(MS),
    ];
    let mut rng = Rng(seed ^ vcpu << 32);
    for _ in 0..rounds {
        match rng.below(8) {
            0 => ops.extend([
                Op::Interrupts(false),
                Op::Compute(1 + rng.below(4 * US)),
                Op::Interrupts(true),
            ]),
            1 => ops.push(apic(reg::TPR, (rng.below(2) * 0x50) as u32)),
            2 => ops.push(ipis(rng.next(), 0, rng.below(vcpus), 0x30 + rng.below(0x60))),
            // A wakeup is sure to come: from itself.
            3 => ops.extend([apic(reg::TPR, 0), apic(reg::ICR_LOW, reg::ICR_SHORTHAND_SELF | 0x95)]),
            _ => {
                ops.push(apic(reg::ICR_HIGH, (rng.below(vcpus) as u32) << 24));
                ops.push(apic(reg::ICR_LOW, 0x30 + rng.below(0x60) as u32));
            }
        }
        ops.push(Op::Compute(1 + rng.below(6 * US)));
    }
    ops.push(apic(reg::TPR, 0));
    Guest::script(ops)
}

fn ipis(low: u64, high: u64, base: u64, icr: u64) -> Op {
    Op::Exit(Exit::Hypercall {
        number: hypercall::SEND_IPI,
        arguments: [low, high, base, icr],
    })
}

/// vCPUs that send each other interrupts on as many pCPUs; stopped long after the last has been sent.
fn chat(seed: u64, faults: PvFaults) -> World {
    let (vcpus, rounds) = (3, 60);
    let mut world = World::new(&quiet(faults), &places(1, 3, 1));
    let guests = (0..vcpus).map(|vcpu| {
        let mut guest = chatter(seed, vcpu, vcpus, rounds);
        guest.pv_eoi_stays = faults.pv_eoi_stays;
        guest
    });
    let affinity: Vec<Vec<u32>> = (0..3).map(|pcpu| vec![pcpu]).collect();
    world.add_vm(&offers(), &affinity, guests.collect());
    world.checks_service = true;
    world.start();
    world.run_until(20 * MS);
    world
}

/// Checks that all requested interrupts were served and ended.
fn check_all_served(world: &World) {
    for (vcpu, guest) in world.guests.iter().enumerate() {
        let page = world.host.save_vcpu(VcpuId(vcpu as u32), Nanos(world.now)).lapic;
        assert_eq!(
            vectors(&page, 0x200).count(),
            0,
            "vcpu {vcpu} waits for interrupts for ever"
        );
        assert!(guest.in_service.is_empty(), "vcpu {vcpu} is in a handler");
        let ended_by_host: Vec<u8> = vectors(&page, 0x100).collect();
        // The last end is in memory until the next exit.
        assert!(
            ended_by_host.len() <= 1,
            "vcpu {vcpu}: {ended_by_host:?} in service for ever"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn with_ends_in_memory_no_interrupt_is_lost_or_ended_twice(seed: u64) {
        let world = chat(seed, PvFaults::default());
        check_all_served(&world);
        prop_assert!(world.guests.iter().map(|guest| guest.pv_ends).sum::<u32>() > 0);
    }
}

fn is_seen(faults: PvFaults) -> bool {
    (0..40).any(|seed| {
        let run = AssertUnwindSafe(|| check_all_served(&chat(seed, faults)));
        catch_unwind(run).is_err()
    })
}

#[test]
fn a_lost_end_a_bit_that_stays_and_a_hidden_interrupt_are_seen() {
    let none = PvFaults::default();
    assert!(!is_seen(none));
    assert!(is_seen(PvFaults {
        pv_eoi_lost: true,
        ..none
    }));
    assert!(is_seen(PvFaults {
        pv_eoi_stays: true,
        ..none
    }));
    assert!(is_seen(PvFaults {
        pv_eoi_hides_next: true,
        ..none
    }));
}

/// One interrupt at a time to a vCPU that does nothing else.
fn ends(offered: bool, spacing: u64) -> World {
    let mut world = World::new(&quiet(PvFaults::default()), &places(1, 2, 1));
    let mut sender = vec![apic(reg::SVR, 0x1ff), Op::Compute(MS)];
    for _ in 0..10 {
        sender.push(apic(reg::ICR_LOW, reg::ICR_SHORTHAND_OTHERS | 0x41));
        sender.push(Op::Compute(spacing));
    }
    let receiver = vec![
        apic(reg::SVR, 0x1ff),
        write_msr(msr::PV_EOI, 0x2000 | msr::PV_EOI_ENABLE),
        Op::Interrupts(true),
    ];
    let config = VmConfig {
        pv_eoi: offered,
        ..VmConfig::default()
    };
    let guests = vec![Guest::script(sender), Guest::script(receiver)];
    world.add_vm(&config, &[vec![0], vec![1]], guests);
    world.start();
    world.run_until(MS + 20 * spacing);
    world
}

#[test]
fn ends_in_memory_need_no_exit() {
    let (with, without) = (ends(true, 100 * US), ends(false, 100 * US));
    for world in [&with, &without] {
        assert_eq!(world.guests[1].injected, [0x41; 10]);
    }
    assert_eq!(with.guests[1].pv_ends, 10);
    assert_eq!(without.guests[1].pv_ends, 0);
    assert_eq!(with.counter(VM, "exits") + 10, without.counter(VM, "exits"));
    // The last is outstanding until the vCPU exits again.
    assert_eq!(with.counter(VM, "pv_eoi"), 9);
}

#[test]
fn what_waits_behind_an_interrupt_makes_its_end_exit() {
    let mut world = World::new(&quiet(PvFaults::default()), &places(1, 1, 1));
    let ops = vec![
        apic(reg::SVR, 0x1ff),
        write_msr(msr::PV_EOI, 0x2000 | msr::PV_EOI_ENABLE),
        apic(reg::ICR_LOW, reg::ICR_SHORTHAND_SELF | 0x41),
        apic(reg::ICR_LOW, reg::ICR_SHORTHAND_SELF | 0x81),
        Op::Interrupts(true),
    ];
    world.add_vm(&offers(), &[], vec![Guest::script(ops)]);
    world.start();
    world.run_until(MS);
    assert_eq!(world.guests[0].injected, [0x81, 0x41]);
    assert_eq!(world.guests[0].pv_ends, 1, "only that of the last");
}

#[test]
fn a_word_that_is_unaligned_outside_of_memory_or_not_offered_is_a_fault() {
    let words = [
        (true, 0x2001, 0),
        (true, 0x2000, 0),
        (true, 0x2003, 1),
        (true, (4 << 30) - 3, 0),
        (true, (4 << 30) - 4 + 1, 0),
        (true, (4 << 30) + 1, 1),
        (true, !2, 1),
        // Disabled: where the word was does not matter.
        (true, 8 << 30, 0),
        (false, 0x2001, 1),
    ];
    for (offered, value, faults) in words {
        let faults = if value & 2 != 0 { 1 } else { faults };
        let mut world = World::new(&quiet(PvFaults::default()), &places(1, 1, 1));
        let config = VmConfig {
            pv_eoi: offered,
            ..VmConfig::default()
        };
        let ops = vec![
            write_msr(msr::PV_EOI, value),
            Op::Exit(Exit::ReadMsr { msr: msr::PV_EOI }),
        ];
        world.add_vm(&config, &[], vec![Guest::script(ops)]);
        world.start();
        world.run_until(MS);
        let guest = &world.guests[0];
        if offered {
            assert_eq!(guest.faults, faults, "{value:#x}");
            let kept = if faults == 0 { value } else { 0 };
            assert_eq!(guest.replies, [kept], "{value:#x}");
        } else {
            assert_eq!(guest.faults, 2);
        }
    }
}

/// vCPU 0 of `vcpus` makes the hypercall; its answer and how many interrupts each vCPU got.
fn sends(call: Op, vcpus: u32, config: &VmConfig, faults: PvFaults) -> (i64, Vec<usize>) {
    let mut world = World::new(&quiet(faults), &places(1, 8, 1));
    let receiver = || vec![apic(reg::SVR, 0x1ff), Op::Interrupts(true)];
    let mut sender = receiver();
    sender.extend([Op::Compute(2 * MS), call]);
    let mut guests = vec![Guest::script(sender)];
    guests.extend((1..vcpus).map(|_| {
        let mut ops = receiver();
        ops.push(Op::Exit(Exit::Hlt));
        Guest::script(ops)
    }));
    world.add_vm(config, &[], guests);
    world.start();
    world.run_until(6 * MS);
    let counts = world.guests.iter().map(|guest| guest.injected.len()).collect();
    (world.guests[0].replies[0] as i64, counts)
}

/// Returns the bits of `low` and `high` from `base` on, among `vcpus`.
fn meant(low: u64, high: u64, base: u64, vcpus: u32) -> Vec<usize> {
    let bits = u128::from(high) << 64 | u128::from(low);
    let is_meant = |id: u64| id >= base && id - base < 128 && bits >> (id - base) & 1 == 1;
    (0..u64::from(vcpus)).map(|id| usize::from(is_meant(id))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn an_ipi_by_hypercall_reaches_exactly_the_named(low: u64, high: u64, base in 0u64..12, far: bool, vcpus in 1u32..9) {
        let base = if far { u64::from(u32::MAX) - base } else { base };
        let (taken, counts) = sends(ipis(low, high, base, 0x41), vcpus, &offers(), PvFaults::default());
        let meant = meant(low, high, base, vcpus);
        prop_assert_eq!(taken, meant.iter().sum::<usize>() as i64);
        prop_assert_eq!(counts, meant);
    }
}

#[test]
fn an_ipi_by_hypercall_that_reaches_others_is_seen() {
    let shifted = PvFaults {
        pv_ipi_shifted: true,
        ..PvFaults::default()
    };
    let (_, counts) = sends(ipis(0b1010, 0, 0, 0x41), 4, &offers(), shifted);
    assert_ne!(counts, meant(0b1010, 0, 0, 4));
}

#[test]
fn an_ipi_by_hypercall_takes_no_logical_destination_no_shorthand_and_no_reserved_vector() {
    let answer = |icr: u64| sends(ipis(0b110, 0, 0, icr), 3, &offers(), PvFaults::default());
    let nobody = vec![0, 0, 0];
    assert_eq!(answer(0x41), (2, vec![0, 1, 1]));
    assert_eq!(
        answer(0x41 | u64::from(reg::ICR_LOGICAL)),
        (hypercall::EINVAL, nobody.clone())
    );
    for shorthand in [
        reg::ICR_SHORTHAND_SELF,
        reg::ICR_SHORTHAND_ALL,
        reg::ICR_SHORTHAND_OTHERS,
    ] {
        assert_eq!(answer(0x41 | u64::from(shorthand)), (hypercall::EINVAL, nobody.clone()));
    }
    assert_eq!(answer(0x0f), (0, nobody.clone()));
    let withheld = VmConfig::default();
    assert_eq!(
        sends(ipis(0b110, 0, 0, 0x41), 3, &withheld, PvFaults::default()),
        (hypercall::ENOSYS, nobody)
    );
}

/// Returns the commands of a host on which two vCPUs with steal time share the pCPU, with their times, up to `until`.
fn two_that_share(host: &HostConfig, config: &VmConfig, until: u64) -> Vec<(u64, Command)> {
    let mut world = World::new(host, &places(1, 1, 1));
    let ops = || vec![write_msr(msr::STEAL_TIME, 0x1000 | msr::STEAL_TIME_ENABLE)];
    world.add_vm(config, &[], vec![Guest::script(ops()), Guest::script(ops())]);
    world.trace = Some(Vec::new());
    world.start();
    world.run_until(until);
    world.trace.take().expect("a trace")
}

#[test]
fn the_host_flushes_only_for_guests_that_it_told_so() {
    for offered in [false, true] {
        let config = VmConfig {
            pv_tlb_flush: offered,
            ..VmConfig::default()
        };
        let flushes: Vec<bool> = two_that_share(&HostConfig::default(), &config, 50 * MS)
            .into_iter()
            .filter_map(|(_, command)| match command {
                Command::StealTime { flush, .. } => Some(flush),
                _ => None,
            })
            .collect();
        assert!(flushes.len() > 2 && flushes.iter().all(|&flush| flush == offered));
    }
}

#[test]
fn a_guest_that_is_told_is_preempted_when_its_slice_ends() {
    for (offered, kernel) in [false, true]
        .into_iter()
        .zip([Linux::V6_12; 2])
        .chain([(true, Linux::V3_3), (true, Linux::V7_3)])
    {
        let host = HostConfig {
            hz: 1000,
            ..HostConfig::of(kernel)
        };
        let config = VmConfig {
            slice_end: offered,
            ..VmConfig::default()
        };
        let (mut told, mut count, mut right) = ([0; 2], 0, 0);
        for (at, command) in two_that_share(&host, &config, 300 * MS) {
            match command {
                Command::SliceEnd { vcpu, ends, .. } => told[vcpu.0 as usize] = ends,
                Command::State {
                    vcpu,
                    state: VcpuState::Preempted,
                } => {
                    count += 1;
                    right += u32::from(told[vcpu.0 as usize].abs_diff(at) <= MS);
                }
                _ => {}
            }
        }
        assert!(count > 20, "{kernel:?}: {count} slices");
        match offered {
            true => assert!(
                right * 10 > count * 9,
                "{kernel:?}: {right} of {count} slices end as told"
            ),
            false => assert_eq!(told, [0; 2], "off by default"),
        }
    }
    assert!(!VmConfig::default().slice_end);
}

#[test]
fn an_ipi_by_hypercall_finds_the_ids_that_guests_gave_their_apics() {
    for renamed in [false, true] {
        let mut world = World::new(&quiet(PvFaults::default()), &places(1, 2, 1));
        let id = if renamed { 0x10 } else { 1 };
        let receiver = vec![
            apic(reg::SVR, 0x1ff),
            apic(reg::ID, id << 24),
            Op::Interrupts(true),
            Op::Compute(MS),
        ];
        let sender = vec![
            apic(reg::SVR, 0x1ff),
            Op::Compute(MS / 2),
            ipis(1, 0, u64::from(id), 0x61),
            ipis(1, 0, u64::from(id + 1), 0x62),
        ];
        world.add_vm(
            &offers(),
            &[vec![0], vec![1]],
            vec![Guest::script(sender), Guest::script(receiver)],
        );
        world.start();
        world.run_until(2 * MS);
        assert_eq!(world.guests[1].injected, [0x61], "id {id}");
        assert_eq!(world.counter(VM, "pv_ipis_sent"), 1);
    }
}
