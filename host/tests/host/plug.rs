//! VMs that come and go while the host runs.

use holdfast_abi::{lapic, msr};
use holdfast_host::{
    Command, Event, Exit, HostConfig, MpState, Nanos, PcpuId, Planted, PlugFaults, Quota, Run, VcpuId, VcpuState,
    VmConfig, VmGroup, VmId, VmmEvent,
};

use crate::world::{Guest, MS, Op, World, apic, places};

/// Lets time pass until a pCPU is not in guest mode, and lets the VMM work there.
fn by_vmm(world: &mut World, event: impl Fn(PcpuId) -> Event) {
    loop {
        let free = |pcpu: &u32| !matches!(world.what(*pcpu), Run::Guest { .. });
        if let Some(pcpu) = (0..world.runs.len() as u32).find(free) {
            return world.handle(event(PcpuId(pcpu)));
        }
        let next = world.now + 10_000;
        world.run_until(next);
    }
}

/// A guest that sets its timer again and again, and halts in between.
fn ticker() -> Guest {
    let mut step = 0;
    Guest::new(Box::new(move || {
        step += 1;
        match step {
            1 => apic(lapic::SVR, lapic::SVR_ENABLE | 0xff),
            2 => apic(lapic::LVT_TIMER, 0x40),
            3 => apic(lapic::TIMER_DIVIDE, 0b1011),
            4 => Op::Interrupts(true),
            _ if step % 2 == 1 => apic(lapic::TIMER_INITIAL, 300_000),
            _ => Op::Exit(Exit::Hlt),
        }
    }))
}

/// A guest that has not been started.
fn off(mut guest: Guest) -> Guest {
    guest.life = VcpuState::Dead;
    guest
}

fn ran(world: &World, vcpus: std::ops::Range<usize>) -> u64 {
    world.guests[vcpus].iter().map(|guest| guest.ran).sum()
}

#[test]
fn a_vm_that_ends_leaves_the_cpus_to_the_others_and_its_ids_to_the_next() {
    for halt_poll_ns in [0, 200_000] {
        let config = HostConfig {
            halt_poll_ns,
            ..HostConfig::default()
        };
        let mut world = World::new(&config, &places(1, 2, 1));
        let own = VmConfig {
            group: VmGroup::Own { shares: 1024 },
            ..VmConfig::default()
        };
        let first = world.add_vm(&own, &[], vec![ticker(), Guest::hog(), Guest::hog()]);
        world.add_vm(&own, &[], vec![Guest::hog(), Guest::hog()]);
        world.add_task(&Default::default(), 10_000, MS);
        world.start();
        world.run_until(100 * MS);
        assert!(world.guests[0].injected.len() > 100, "its timer ticks");
        world.trace = Some(Vec::new());
        by_vmm(&mut world, |pcpu| Event::Vmm(VmmEvent::VmEnds { pcpu, vm: first }));
        let later = world.now + 20 * MS;
        world.run_until(later);
        let ended = |command: &Command| *command == Command::VmEnded { vm: first };
        let trace = world.trace.take().expect("a trace");
        assert_eq!(trace.iter().filter(|(_, command)| ended(command)).count(), 1);
        assert!(world.guests[..3].iter().all(|guest| guest.life == VcpuState::Dead));
        // The other guest has both pCPUs.
        let (gone, other) = (ran(&world, 0..3), ran(&world, 3..5));
        let end = world.now + 100 * MS;
        world.run_until(end);
        assert_eq!(ran(&world, 0..3), gone);
        assert!(ran(&world, 3..5) - other > 190 * MS);
        // The next VM of as many vCPUs gets the ids, and nothing of the old one.
        world
            .guests
            .splice(0..3, [ticker(), Guest::hog(), Guest::hog()].map(off));
        assert_eq!(world.host.add_vm(&own, 3, &[]), Ok(first));
        assert_eq!(world.counter(first, "exits"), 0);
        by_vmm(&mut world, |pcpu| Event::Vmm(VmmEvent::VmStarts { pcpu, vm: first }));
        let end = world.now + 100 * MS;
        world.run_until(end);
        assert!(world.guests[0].injected.len() > 100, "its timer ticks");
        let share = ran(&world, 0..3);
        assert!((80 * MS..120 * MS).contains(&share), "half of two pCPUs: {share}");
    }
}

#[test]
fn a_vm_that_is_added_while_the_host_runs_waits_until_it_is_started() {
    let mut world = World::new(&HostConfig::default(), &places(1, 1, 1));
    world.add_vm(&VmConfig::default(), &[], vec![Guest::hog()]);
    world.add_task(&Default::default(), 10_000, MS);
    world.start();
    world.run_until(10 * MS);
    let next = world.host.add_vm(&VmConfig::default(), 1, &[]).expect("a valid vm");
    assert_eq!(next, VmId(1), "the first VM is still there");
    world.guests.push(off(Guest::hog()));
    world.run_until(50 * MS);
    assert_eq!(ran(&world, 1..2), 0);
    by_vmm(&mut world, |pcpu| Event::Vmm(VmmEvent::VmStarts { pcpu, vm: next }));
    world.run_until(150 * MS);
    assert!(ran(&world, 1..2) > 40 * MS);
}

/// Ends a VM that has a vCPU with all kinds of state. Returns whether that is as after power-on, and whether no record
/// of its guest was written after that.
fn leaves_nothing(faults: PlugFaults) -> [bool; 2] {
    let config = HostConfig {
        planted: Planted {
            plug: faults,
            ..Planted::default()
        },
        ..HostConfig::default()
    };
    let write = |msr, value| Op::Exit(Exit::WriteMsr { msr, value });
    let base = msr::APIC_BASE_ADDRESS | msr::APIC_BASE_ENABLE | msr::APIC_BASE_X2APIC;
    let guest = Guest::script(vec![
        write(msr::STEAL_TIME, 0x1000 | msr::STEAL_TIME_ENABLE),
        write(msr::APIC_BASE, base),
        write(msr::X2APIC_BASE + lapic::SVR / 16, 0x1ff),
        write(msr::X2APIC_BASE + lapic::LVT_TIMER / 16, 0x40),
        write(msr::X2APIC_BASE + lapic::TIMER_INITIAL / 16, 60_000_000),
        Op::Interrupts(true),
    ]);
    let mut world = World::new(&config, &places(1, 2, 1));
    let vm = world.add_vm(&VmConfig::default(), &[], vec![Guest::hog(), guest]);
    world.add_task(&Default::default(), 10_000, MS);
    world.start();
    world.run_until(20 * MS);
    let vcpu = VcpuId(1);
    by_vmm(&mut world, |pcpu| Event::Vmm(VmmEvent::VmEnds { pcpu, vm }));
    while world.guests[1].life != VcpuState::Dead {
        let next = world.now + 100_000;
        world.run_until(next);
    }
    let saved = world.host.save_vcpu(vcpu, Nanos(world.now));
    let is_reset = saved.apic_base & msr::APIC_BASE_X2APIC == 0
        && saved.timer == Default::default()
        && saved.steal_time_msr == 0
        && saved.mp_state == MpState::Uninitialized;
    world.trace = Some(Vec::new());
    world.run_until(200 * MS);
    let touches = |command: &Command| matches!(*command, Command::StealTime { vcpu: of, .. } | Command::SetPreempted { vcpu: of, .. } if of == vcpu);
    let trace = world.trace.take().expect("a trace");
    [is_reset, !trace.iter().any(|(_, command)| touches(command))]
}

#[test]
fn a_vcpu_that_left_has_the_state_of_power_on_and_one_that_keeps_its_state_is_seen() {
    assert_eq!(leaves_nothing(PlugFaults::default()), [true; 2]);
    let kept = PlugFaults { state_stays: true };
    assert!(!leaves_nothing(kept)[0]);
}

#[test]
fn a_vcpu_that_shuts_down_leaves_its_pcpu_to_the_others() {
    let mut world = World::new(&HostConfig::default(), &places(1, 1, 1));
    let guests = vec![
        Guest::script(vec![Op::Compute(MS), Op::Exit(Exit::Shutdown)]),
        Guest::hog(),
    ];
    world.add_vm(&VmConfig::default(), &[], guests);
    world.start();
    world.run_until(50 * MS);
    assert_eq!(world.guests[0].life, VcpuState::Dead);
    let before = ran(&world, 1..2);
    world.run_until(150 * MS);
    assert!(ran(&world, 1..2) - before > 98 * MS);
    assert!(ran(&world, 0..1) < 2 * MS);
}

#[test]
fn only_the_first_vcpu_of_a_vm_that_waits_for_sipi_executes_at_once() {
    for waits_for_sipi in [true, false] {
        let mut world = World::new(&HostConfig::default(), &places(1, 3, 1));
        let vm = VmConfig {
            waits_for_sipi,
            ..VmConfig::default()
        };
        world.add_vm(&vm, &[], (0..3).map(|_| Guest::hog()).collect());
        world.start();
        world.run_until(20 * MS);
        for vcpu in 0..3 {
            let executes = ran(&world, vcpu..vcpu + 1) > 0;
            assert_eq!(
                executes,
                !waits_for_sipi || vcpu == 0,
                "vcpu {vcpu}, waits {waits_for_sipi}"
            );
        }
    }
}

#[test]
fn a_vm_in_the_place_of_one_that_ended_has_its_quota() {
    let mut world = World::new(&HostConfig::default(), &places(1, 1, 1));
    world.add_vm(
        &VmConfig::default(),
        &[],
        vec![Guest::script(vec![Op::Exit(Exit::Hlt)])],
    );
    let limited = VmConfig {
        group: VmGroup::Own { shares: 1024 },
        quota: Some(Quota {
            quota_ns: 30 * MS,
            period_ns: 100 * MS,
            burst_ns: 0,
        }),
        ..VmConfig::default()
    };
    let vm = world.add_vm(&limited, &[], vec![Guest::hog()]);
    world.start();
    world.run_until(250 * MS);
    by_vmm(&mut world, |pcpu| Event::Vmm(VmmEvent::VmEnds { pcpu, vm }));
    world.run_until(500 * MS);
    let before = world.host.vm_throttling(vm, Nanos(world.now)).expect("a quota");
    assert_eq!(world.host.add_vm(&limited, 1, &[]), Ok(vm));
    world.guests[1] = off(Guest::hog());
    by_vmm(&mut world, |pcpu| Event::Vmm(VmmEvent::VmStarts { pcpu, vm }));
    let end = world.now + 1_000 * MS;
    world.run_until(end);
    let after = world.host.vm_throttling(vm, Nanos(world.now)).expect("the same quota");
    assert!(
        after.throttled_periods - before.throttled_periods >= 9,
        "{before:?}, {after:?}"
    );
    let share = ran(&world, 1..2);
    assert!((270 * MS..331 * MS).contains(&share), "{share}");
}

#[test]
fn threads_that_wait_for_each_other_run_after_each_start_of_their_vm() {
    let mut world = World::new(&HostConfig::default(), &places(1, 2, 1));
    let waiting = VmConfig {
        vcpus_wait: true,
        ..VmConfig::default()
    };
    world.add_vm(&VmConfig::default(), &[], vec![Guest::hog(), Guest::hog()]);
    world.add_task(&Default::default(), 10_000, MS);
    world.start();
    world.run_until(10 * MS);
    let vm = world.host.add_vm(&waiting, 2, &[]).expect("a valid vm");
    world.guests.extend([Guest::hog(), Guest::hog()].map(off));
    for _ in 0..2 {
        let before = ran(&world, 2..4);
        by_vmm(&mut world, |pcpu| Event::Vmm(VmmEvent::VmStarts { pcpu, vm }));
        let end = world.now + 200 * MS;
        world.run_until(end);
        let share = ran(&world, 2..4) - before;
        assert!((160 * MS..240 * MS).contains(&share), "half of two pCPUs: {share}");
        by_vmm(&mut world, |pcpu| Event::Vmm(VmmEvent::VmEnds { pcpu, vm }));
        let end = world.now + 20 * MS;
        world.run_until(end);
        assert_eq!(world.host.add_vm(&waiting, 2, &[]), Ok(vm));
        world.guests.splice(2..4, [Guest::hog(), Guest::hog()].map(off));
    }
}
