//! Who gets how much of the CPUs: shares by weight, groups, no starvation, conservation of time.

use holdfast_host::{
    ConfigError, Exit, GROUP_DEPTH_MAX, GroupId, Host, HostConfig, Nanos, Quota, TaskConfig, TickPhase, VcpuState,
    VmConfig, VmGroup,
};
use proptest::prelude::*;

use crate::world::{Guest, MS, Op, World, apic, places};

const SECOND: u64 = 1_000 * MS;

/// Returns the approximate weight of a nice level.
fn weight(nice: i8) -> f64 {
    1024.0 / 1.25f64.powi(i32::from(nice))
}

#[test]
fn equal_threads_get_equal_time() {
    let mut world = World::new(&HostConfig::default(), &places(1, 1, 1));
    for _ in 0..5 {
        world.add_task(&TaskConfig::default(), u64::MAX, 0);
    }
    world.start();
    world.run_until(10 * SECOND);
    for index in 0..5 {
        let share = world.cpu_time(world.plain[index].0) as f64 / (10 * SECOND) as f64;
        assert!((share - 0.2).abs() < 0.01, "task {index}: {share}");
    }
}

#[test]
fn slices_are_a_latency_period_divided() {
    // Eight pCPUs: latency 24 ms; two hogs pinned to one pCPU take turns of 12 ms, rounded up to the next tick.
    let config = HostConfig {
        hz: 1000,
        ..HostConfig::default()
    };
    let mut world = World::new(&config, &places(1, 8, 1));
    let vm = VmConfig {
        steal_time: false,
        ..VmConfig::default()
    };
    world.add_vm(&vm, &[vec![3], vec![3]], vec![Guest::hog(), Guest::hog()]);
    world.trace = Some(Vec::new());
    world.start();
    world.run_until(2 * SECOND);
    let mut switches: Vec<u64> = Vec::new();
    for &(at, command) in world.trace.as_ref().expect("a trace") {
        if let holdfast_host::Command::State {
            state: holdfast_host::VcpuState::Preempted,
            ..
        } = command
        {
            switches.push(at);
        }
    }
    let turns: Vec<u64> = switches
        .windows(2)
        .map(|pair| (pair[1] - pair[0]).div_ceil(MS))
        .skip(4)
        .collect();
    assert!(turns.len() > 100, "{turns:?}");
    assert!(turns.iter().all(|turn| (12..=13).contains(turn)), "{turns:?}");
}

#[test]
fn a_group_shares_as_one() {
    // Two VMs with groups of equal shares on one pCPU, one with four vCPUs, one with a single one: half and half.
    let mut world = World::new(&HostConfig::default(), &places(1, 1, 1));
    let vm = VmConfig {
        group: VmGroup::Own { shares: 1024 },
        ..VmConfig::default()
    };
    world.add_vm(&vm, &[], (0..4).map(|_| Guest::hog()).collect());
    world.add_vm(&vm, &[], vec![Guest::hog()]);
    world.start();
    world.run_until(10 * SECOND);
    let single = world.vcpu_time(4) as f64 / (10 * SECOND) as f64;
    assert!((single - 0.5).abs() < 0.02, "{single}");
}

#[test]
fn a_task_group_shares_as_one() {
    // Three tasks in a group with a third of the shares of the task outside it.
    let mut world = World::new(&HostConfig::default(), &places(1, 1, 1));
    let group = world.host.add_group(None, 341).expect("a group");
    for of in [Some(group), Some(group), Some(group), None] {
        let task = TaskConfig {
            group: of,
            ..TaskConfig::default()
        };
        world.add_task(&task, u64::MAX, 0);
    }
    world.start();
    world.run_until(10 * SECOND);
    let outside = world.cpu_time(world.plain[3].0) as f64 / (10 * SECOND) as f64;
    assert!((outside - 0.75).abs() < 0.02, "{outside}");
}

#[test]
fn a_group_gets_one_quota_and_the_root_none() {
    let quota = Quota {
        quota_ns: 10 * MS,
        period_ns: 100 * MS,
        burst_ns: 0,
    };
    let mut host = Host::new(&HostConfig::default(), &places(1, 1, 1)).expect("a host");
    let group = host.add_group(None, 1024).expect("a group");
    assert_eq!(host.set_quota(group, quota), Ok(()));
    assert_eq!(host.set_quota(group, quota), Err(ConfigError::UnknownGroup(group)));
    assert_eq!(
        host.set_quota(GroupId(0), quota),
        Err(ConfigError::UnknownGroup(GroupId(0)))
    );
}

#[test]
fn shares_and_levels_of_groups_have_limits() {
    let mut host = Host::new(&HostConfig::default(), &places(1, 1, 1)).expect("a host");
    for (shares, legal) in [
        (0, false),
        (1, false),
        (2, true),
        (1 << 18, true),
        ((1 << 18) + 1, false),
    ] {
        assert_eq!(host.add_group(None, shares).is_ok(), legal, "{shares}");
    }
    let mut parent = None;
    for level in 1..=GROUP_DEPTH_MAX + 1 {
        let group = host.add_group(parent, 1024);
        assert_eq!(group.is_ok(), level <= GROUP_DEPTH_MAX, "level {level}");
        parent = group.ok().or(parent);
    }
}

#[test]
fn an_idle_pcpu_has_no_tick() {
    let config = HostConfig {
        hz: 1000,
        ..HostConfig::default()
    };
    let mut world = World::new(&config, &places(1, 1, 1));
    world.add_task(&TaskConfig::default(), 10 * MS, SECOND);
    world.start();
    world.run_until(5 * MS);
    assert!(
        world.timers[0].is_some_and(|at| at <= 6 * MS),
        "it has ticks while the task runs"
    );
    world.run_until(50 * MS);
    assert!(
        world.timers[0].is_some_and(|at| at > SECOND),
        "it waits for the task to wake"
    );
}

#[test]
fn shares_of_groups_hold_across_pcpus() {
    // Four pCPUs; 1:3 by shares, both with a hog on each pCPU, in vCPU groups as libvirt makes them.
    let mut world = World::new(&HostConfig::default(), &places(1, 4, 1));
    for shares in [1024, 3072] {
        let vm = VmConfig {
            group: VmGroup::OwnWithVcpuGroups { shares },
            ..VmConfig::default()
        };
        world.add_vm(&vm, &[], (0..4).map(|_| Guest::hog()).collect());
    }
    world.start();
    world.run_until(20 * SECOND);
    let lesser = (0..4).map(|vcpu| world.vcpu_time(vcpu)).sum::<u64>() as f64 / (80 * SECOND) as f64;
    assert!((lesser - 0.25).abs() < 0.05, "{lesser}");
}

#[test]
fn a_group_spread_wide_is_thin_everywhere() {
    // Two VMs with equal shares on four pCPUs. One has a hog on each, the other a single one, on pCPU 0: there the
    // first counts for a quarter of its shares only. So one VM gets 320 % of a pCPU and the other 80 %.
    let mut world = World::new(&HostConfig::default(), &places(1, 4, 1));
    let vm = VmConfig {
        group: VmGroup::Own { shares: 1024 },
        ..VmConfig::default()
    };
    let affinity: Vec<Vec<u32>> = (0..4).map(|pcpu| vec![pcpu]).collect();
    world.add_vm(&vm, &affinity, (0..4).map(|_| Guest::hog()).collect());
    world.add_vm(&vm, &[vec![0]], vec![Guest::hog()]);
    world.start();
    world.run_until(20 * SECOND);
    let single = world.vcpu_time(4) as f64 / (20 * SECOND) as f64;
    assert!((single - 0.8).abs() < 0.03, "{single}");
}

#[test]
fn a_sleeper_preempts_a_hog_and_does_not_overtake_it_for_long() {
    // One pCPU: wakeup granularity 1 ms, credit 3 ms.
    let mut world = World::new(&HostConfig::default(), &places(1, 1, 1));
    let hog = world.add_task(&TaskConfig::default(), u64::MAX, 0);
    let sleeper = world.add_task(&TaskConfig::default(), MS / 10, 10 * MS);
    world.start();
    world.run_until(10 * SECOND);
    // It runs 0.1 ms in each 10.1 ms if it is never kept waiting.
    let got = world.cpu_time(sleeper) as f64 / (10 * SECOND) as f64;
    assert!((got - 0.1 / 10.1).abs() < 0.001, "{got}");
    assert!(world.cpu_time(hog) > 98 * SECOND / 10);
}

#[test]
fn time_is_conserved_with_aligned_ticks_too() {
    let config = HostConfig {
        tick_phase: TickPhase::Aligned,
        hz: 250,
        ..HostConfig::default()
    };
    let mut world = World::new(&config, &places(2, 2, 2));
    for _ in 0..11 {
        world.add_task(&TaskConfig::default(), 3 * MS, MS);
    }
    world.start();
    world.run_until(SECOND);
    assert_eq!(world.total_time(), 8 * SECOND);
}

#[derive(Clone, Debug)]
struct Task {
    nice: i8,
    busy_us: u64,
    sleep_us: u64,
    affinity: Option<u32>,
    grouped: bool,
}

fn task() -> impl Strategy<Value = Task> {
    let affinity = prop_oneof![3 => Just(None), 1 => (0u32..4).prop_map(Some)];
    (-5i8..6, 1u64..30_000, 0u64..30_000, affinity, any::<bool>()).prop_map(
        |(nice, busy_us, sleep_us, affinity, grouped)| Task {
            nice,
            busy_us,
            sleep_us,
            affinity,
            grouped,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// With random sleepers no nanosecond is lost or used twice, and no thread starves.
    #[test]
    fn time_is_conserved_and_nobody_starves(
        tasks in proptest::collection::vec(task(), 1..20),
        sockets in 1u32..3, cores in 1u32..3, threads in 1u32..3, hz in prop_oneof![Just(100u32), Just(250), Just(1000)],
    ) {
        let pcpus = sockets * cores * threads;
        let config = HostConfig { hz, ..HostConfig::default() };
        let mut world = World::new(&config, &places(sockets, cores, threads));
        let group = world.host.add_group(None, 1024).expect("a group");
        for task in &tasks {
            let affinity = task.affinity.filter(|&pcpu| pcpu < pcpus).into_iter().collect();
            let config = TaskConfig { nice: task.nice, affinity, group: task.grouped.then_some(group), ..TaskConfig::default() };
            world.add_task(&config, task.busy_us * 1_000, task.sleep_us * 1_000);
        }
        world.start();
        let mut before = vec![0; tasks.len()];
        // Long enough for the least share that the strategy can make: 1024 among twenty of nice -5.
        for round in 1..=2u64 {
            world.run_until(round * 20 * SECOND);
            prop_assert_eq!(world.total_time(), world.now * u64::from(pcpus));
            for (index, &(task, _)) in world.plain.iter().enumerate() {
                let time = world.cpu_time(task);
                prop_assert!(time > before[index], "task {} starves: {:?}", index, tasks[index]);
                before[index] = time;
            }
        }
    }

    /// Hogs on one pCPU: time goes by weight.
    #[test]
    fn hogs_share_by_weight(levels in proptest::collection::vec(-5i8..6, 2..8)) {
        let mut world = World::new(&HostConfig::default(), &places(1, 1, 1));
        for &nice in &levels {
            world.add_task(&TaskConfig { nice, ..TaskConfig::default() }, u64::MAX, 0);
        }
        world.start();
        world.run_until(40 * SECOND);
        let whole: f64 = levels.iter().map(|&nice| weight(nice)).sum();
        for (index, &nice) in levels.iter().enumerate() {
            let got = world.cpu_time(world.plain[index].0) as f64 / (40 * SECOND) as f64;
            let due = weight(nice) / whole;
            prop_assert!((got / due - 1.0).abs() < 0.06, "nice {}: {} instead of {}", nice, got, due);
        }
    }
}

/// A guest with a quota for each vCPU's group, and one for all of them.
fn limited(quota_ns: u64, vcpu_quota_ns: u64, period_ns: u64) -> VmConfig {
    let quota = |quota_ns| {
        Some(Quota {
            quota_ns,
            period_ns,
            burst_ns: 0,
        })
    };
    VmConfig {
        group: VmGroup::OwnWithVcpuGroups { shares: 1024 },
        quota: quota(quota_ns),
        vcpu_quota: quota(vcpu_quota_ns),
        ..VmConfig::default()
    }
}

#[test]
fn the_throttling_of_a_guest_is_the_sum_over_its_groups() {
    let mut world = World::new(&HostConfig::default(), &places(1, 3, 1));
    let other = world.add_vm(&VmConfig::default(), &[vec![2]], vec![Guest::hog()]);
    let config = limited(200 * MS, 40 * MS, 100 * MS);
    let vm = world.add_vm(&config, &[vec![0], vec![1]], vec![Guest::hog(), Guest::hog()]);
    world.start();
    world.run_until(SECOND);
    let all = world.host.vm_throttling(vm, Nanos(world.now)).expect("a quota");
    // Three groups have periods. Two of them are throttled in each, for 60 of 100 ms.
    assert!((28..=31).contains(&all.periods), "{all:?}");
    assert!((18..=20).contains(&all.throttled_periods), "{all:?}");
    let throttled = all.throttled_ns as f64 / (2 * SECOND) as f64;
    assert!((throttled - 0.6).abs() < 0.05, "{all:?}");
    assert_eq!(world.host.vm_throttling(other, Nanos(world.now)), None);
}

#[test]
fn a_vcpu_that_waits_is_shown_throttled_as_long_as_its_group_is() {
    // All on one pCPU: two hogs and a sleeper with a quota, and a task. The sleeper is woken by its timer.
    let mut world = World::new(&HostConfig::default(), &places(1, 2, 1));
    let vm = VmConfig {
        group: VmGroup::Own { shares: 1024 },
        quota: Some(Quota {
            quota_ns: 20 * MS,
            period_ns: 100 * MS,
            burst_ns: 0,
        }),
        ..VmConfig::default()
    };
    let mut step = 0;
    let sleeper = Guest::new(Box::new(move || {
        step += 1;
        match step {
            1 => apic(0xf0, 0x1ff),
            2 => apic(0x3e0, 11),
            3 => apic(0x320, 1 << 17 | 0x40),
            4 => apic(0x380, 17_000_000),
            5 => Op::Interrupts(true),
            _ => Op::Exit(Exit::Hlt),
        }
    }));
    let affinity = [vec![1], vec![1], vec![1]];
    let vm = world.add_vm(&vm, &affinity, vec![Guest::hog(), Guest::hog(), sleeper]);
    let task = TaskConfig {
        affinity: vec![1],
        ..TaskConfig::default()
    };
    world.add_task(&task, u64::MAX, 0);
    world.start();
    let mut seen = Vec::new();
    for step in 1..20_000 {
        world.run_until(step * MS / 10);
        let throttled = |at| world.host.vm_throttling(vm, Nanos(at)).map(|all| all.throttled_ns);
        // The time of a throttling that lasts goes on.
        let lasts = throttled(world.now + 1) > throttled(world.now);
        for (vcpu, guest) in world.guests.iter().enumerate() {
            if matches!(
                guest.life,
                VcpuState::Preempted | VcpuState::Woken | VcpuState::Throttled
            ) {
                assert_eq!(
                    guest.life == VcpuState::Throttled,
                    lasts,
                    "vcpu {vcpu} at {}",
                    world.now
                );
                seen.push((guest.life, vcpu));
            }
        }
    }
    for waits in [VcpuState::Preempted, VcpuState::Throttled] {
        assert!((0..2).all(|hog| seen.contains(&(waits, hog))), "{waits:?}");
    }
    assert!(seen.contains(&(VcpuState::Throttled, 2)));
}

#[test]
fn a_quota_is_at_least_a_millisecond_and_at_most_all_pcpus() {
    let accepts = |quota, period| {
        let mut host = Host::new(&HostConfig::default(), &places(1, 2, 1)).expect("a host");
        host.add_vm(&limited(quota, quota, period), 2, &[]).is_ok()
    };
    assert!(accepts(MS, MS) && accepts(2 * MS, MS) && accepts(2 * SECOND, SECOND));
    assert!(!accepts(MS - 1, MS), "less than a millisecond");
    assert!(!accepts(2 * MS + 1, MS), "more than two pCPUs");
    assert!(!accepts(MS, MS - 1) && !accepts(MS, SECOND + 1), "the period");
}
