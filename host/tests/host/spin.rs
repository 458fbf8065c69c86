//! Pause exits: the three handlers.

use std::collections::BTreeMap;

use holdfast_host::{
    Command, Exit, HostConfig, PauseExit, PauseHandling, VcpuId, VcpuState, VmConfig, VmGroup, VmId, YieldFilters,
};

use crate::world::{Guest, MS, Op, World, places};

const US: u64 = 1_000;

fn handling(exit: PauseExit, filters: YieldFilters) -> PauseHandling {
    PauseHandling {
        exit,
        filters,
        ..PauseHandling::NONE
    }
}

/// Returns a guest that spins: a pause exit every 2 µs.
pub fn spinner() -> Guest {
    let mut pause = false;
    Guest::new(Box::new(move || {
        pause = !pause;
        if pause {
            Op::Compute(2 * US)
        } else {
            Op::Exit(Exit::Pause)
        }
    }))
}

/// Returns one pCPU with one VM of a spinner and a vCPU that computes.
fn spin_beside_work(handler: PauseExit, group: VmGroup) -> World {
    let config = HostConfig {
        pause: handling(handler, YieldFilters::NONE),
        ..HostConfig::default()
    };
    let mut world = World::new(&config, &places(1, 1, 1));
    let vm = VmConfig {
        group,
        ..VmConfig::default()
    };
    world.add_vm(&vm, &[], vec![spinner(), Guest::hog()]);
    world.start();
    world.run_until(1_000 * MS);
    world
}

#[test]
fn directed_yield_gives_the_spinners_time_to_the_preempted() {
    for group in [
        VmGroup::Root,
        VmGroup::Own { shares: 1024 },
        VmGroup::OwnWithVcpuGroups { shares: 1024 },
    ] {
        let share = |handler| {
            let world = spin_beside_work(handler, group);
            world.vcpu_time(1) as f64 / world.now as f64
        };
        let without = share(PauseExit::None);
        let with = share(PauseExit::DirectedYield);
        assert!((without - 0.5).abs() < 0.02, "{group:?}: {without}");
        // A yielder stays behind only as far as fairness allows: it is no free ride.
        assert!(with > 0.5, "{group:?}: {with}");
        let world = spin_beside_work(PauseExit::DirectedYield, group);
        assert!(world.counter(VmId(0), "directed_yield_successful") > 0, "{group:?}");
    }
}

#[test]
fn a_yield_hands_over_at_once() {
    let config = HostConfig {
        pause: PauseHandling::DIRECTED_YIELD_2011,
        ..HostConfig::default()
    };
    let mut world = World::new(&config, &places(1, 1, 1));
    let vm = VmConfig {
        group: VmGroup::OwnWithVcpuGroups { shares: 1024 },
        ..VmConfig::default()
    };
    // Work first, so that the spinner gets the pCPU with the worker preempted.
    world.add_vm(&vm, &[], vec![spinner(), Guest::hog()]);
    world.trace = Some(Vec::new());
    world.start();
    world.run_until(100 * MS);
    let trace = world.trace.take().expect("a trace");
    let yielded = trace.iter().position(|(_, command)| {
        matches!(
            command,
            Command::DirectedYield {
                from: VcpuId(0),
                to: VcpuId(1),
                done: true
            }
        )
    });
    let yielded = yielded.expect("a directed yield");
    let at = trace[yielded].0;
    let next = trace[yielded..].iter().find_map(|&(when, command)| match command {
        Command::State {
            vcpu,
            state: VcpuState::InGuest,
        } => Some((when, vcpu)),
        _ => None,
    });
    assert_eq!(next, Some((at, VcpuId(1))), "the target must run next");
}

#[test]
fn a_yield_to_another_pcpu_preempts_there() {
    // The worker of VM 0 shares pCPU 1 with a hog of VM 1; the spinner on pCPU 0 gets it preferred over there.
    let share = |handler| {
        let config = HostConfig {
            pause: handling(handler, YieldFilters::NONE),
            ..HostConfig::default()
        };
        let mut world = World::new(&config, &places(1, 2, 1));
        world.add_vm(&VmConfig::default(), &[vec![0], vec![1]], vec![spinner(), Guest::hog()]);
        world.add_vm(&VmConfig::default(), &[vec![1]], vec![Guest::hog()]);
        world.start();
        world.run_until(1_000 * MS);
        let preemptions = world.counter(VmId(1), "preemption_other");
        (world.vcpu_time(1) as f64 / world.now as f64, preemptions)
    };
    let (without, few) = share(PauseExit::None);
    let (with, many) = share(PauseExit::DirectedYield);
    assert!((without - 0.5).abs() < 0.02, "{without}");
    assert!(with >= without, "{with}");
    assert!(many > few + few / 4, "the hog must be preempted for it: {few}, {many}");
}

#[test]
fn the_handler_of_2010_sleeps() {
    let world = spin_beside_work(PauseExit::Sleep { ns: 100_000 }, VmGroup::Root);
    let spinner = world.vcpu_time(0) as f64 / world.now as f64;
    assert!(spinner < 0.1, "{spinner}");
    assert!(world.counter(VmId(0), "pause_exits") > 500);
}

#[test]
fn a_kick_ends_the_sleep_after_a_pause() {
    let config = HostConfig {
        pause: handling(PauseExit::Sleep { ns: 500 * MS }, YieldFilters::NONE),
        ..HostConfig::default()
    };
    let mut world = World::new(&config, &places(1, 2, 1));
    let first = Guest::script(vec![Op::Compute(MS), Op::Exit(Exit::Pause)]);
    let second = Guest::script(vec![Op::Compute(5 * MS), crate::halt::kick(0)]);
    world.add_vm(&VmConfig::default(), &[vec![0], vec![1]], vec![first, second]);
    world.start();
    world.run_until(4 * MS);
    assert_eq!(world.guests[0].life, VcpuState::PauseSleep);
    world.run_until(6 * MS);
    assert_eq!(world.guests[0].life, VcpuState::InGuest);
    assert!(world.save(0).pv_unhalted, "the kick is not used up by this sleep");
}

#[test]
fn halted_vcpus_are_not_yielded_to() {
    let config = HostConfig {
        pause: PauseHandling::DIRECTED_YIELD_2011,
        ..HostConfig::default()
    };
    let mut world = World::new(&config, &places(1, 2, 1));
    world.add_vm(
        &VmConfig::default(),
        &[],
        vec![spinner(), Guest::script(vec![crate::halt::HLT])],
    );
    world.start();
    world.run_until(100 * MS);
    assert!(world.counter(VmId(0), "pause_exits") > 1000);
    assert_eq!(world.counter(VmId(0), "directed_yield_attempted"), 0);
}

/// Returns which vCPUs of one VM are yielded to by vCPU 0, which spins alone on pCPU 0, while the others share pCPU 1:
/// hogs in kernel mode, in user mode, in user mode with an interrupt pending, and one that spins itself.
fn targets(filters: YieldFilters) -> BTreeMap<u32, u32> {
    let config = HostConfig {
        pause: handling(PauseExit::DirectedYield, filters),
        ..HostConfig::default()
    };
    let mut world = World::new(&config, &places(1, 2, 1));
    let enable = Op::Exit(Exit::ApicWrite {
        offset: 0xf0,
        value: 0x1ff,
    });
    let itself = Op::Exit(Exit::ApicWrite {
        offset: 0x300,
        value: 0x4_0041,
    });
    let guests = vec![
        spinner(),
        Guest::hog(),
        Guest::script(vec![Op::Cpl(3)]),
        Guest::script(vec![enable, Op::Cpl(3), itself]),
        spinner(),
    ];
    let affinity = vec![vec![0], vec![1], vec![1], vec![1], vec![1]];
    world.add_vm(&VmConfig::default(), &affinity, guests);
    world.trace = Some(Vec::new());
    world.start();
    world.run_until(500 * MS);
    let mut targets = BTreeMap::new();
    for (at, command) in world.trace.take().expect("a trace") {
        if let Command::DirectedYield {
            from: VcpuId(0),
            to,
            done: true,
        } = command
            && at > 100 * MS
        {
            *targets.entry(to.0).or_default() += 1;
        }
    }
    targets
}

#[test]
fn filters_choose_who_is_yielded_to() {
    let who = |filters| targets(filters).into_keys().collect::<Vec<u32>>();
    assert_eq!(who(YieldFilters::NONE), [1, 2, 3, 4]);
    assert_eq!(who(YieldFilters::LINUX_3_10), [1, 2, 3, 4]);
    assert_eq!(who(YieldFilters::LINUX_4_14), [1, 4]);
    assert_eq!(who(YieldFilters::LINUX_6_9), [1, 3, 4]);
}

#[test]
fn a_spinner_that_yielded_is_passed_over_every_second_time() {
    let to_spinner = |eligibility| {
        let targets = targets(YieldFilters {
            eligibility,
            ..YieldFilters::NONE
        });
        f64::from(targets[&4]) / f64::from(targets.values().sum::<u32>())
    };
    let (without, with) = (to_spinner(false), to_spinner(true));
    assert!(with < 0.8 * without, "{without}, {with}");
}

#[test]
fn three_lonely_candidates_are_enough() {
    // Seven halted vCPUs poll, each alone on its pCPU: with a budget the handler gives up, without it looks at all.
    let looks = |tries| {
        let config = HostConfig {
            pause: handling(
                PauseExit::DirectedYield,
                YieldFilters {
                    tries,
                    undercommit: true,
                    ..YieldFilters::NONE
                },
            ),
            halt_poll_ns: 100 * MS,
            halt_poll_grow_start_ns: 50 * MS,
            ..HostConfig::default()
        };
        let mut world = World::new(&config, &places(1, 8, 1));
        // A short halt first: it teaches the host to poll.
        let mut ops: Vec<Op> = vec![Op::Compute(60 * US)];
        ops.extend((1..8).map(crate::halt::kick));
        ops.extend([Op::Compute(5 * MS), Op::Exit(Exit::Pause)]);
        let mut guests = vec![Guest::script(ops)];
        guests.extend((0..7).map(|_| Guest::script(vec![crate::halt::HLT, crate::halt::HLT])));
        world.add_vm(&VmConfig::default(), &[], guests);
        world.start();
        world.run_until(20 * MS);
        assert!(world.guests[1..].iter().all(|guest| guest.life == VcpuState::Polling));
        world.counter(VmId(0), "directed_yield_attempted")
    };
    assert_eq!((looks(0), looks(3)), (7, 3));
}

#[test]
fn every_preemption_of_a_vcpu_is_counted_once() {
    let mut world = World::new(&HostConfig::default(), &places(1, 2, 1));
    world.add_vm(&VmConfig::default(), &[], (0..5).map(|_| Guest::hog()).collect());
    world.trace = Some(Vec::new());
    world.start();
    world.run_until(500 * MS);
    let trace = world.trace.take().expect("a trace");
    let preempted = |(_, command): &&(u64, Command)| {
        let state = VcpuState::Preempted;
        matches!(command, Command::State { state: found, .. } if *found == state)
    };
    let seen = trace.iter().filter(preempted).count() as u64;
    let counted = ["preemption_reported", "preemption_other"].map(|name| world.counter(VmId(0), name));
    assert!(seen > 50, "{seen} preemptions");
    assert_eq!(counted.iter().sum::<u64>(), seen, "{counted:?}");
}
