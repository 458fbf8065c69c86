//! Pause exits: the three handlers.

use holdfast_host::{Command, Exit, HostConfig, PauseExit, VcpuId, VcpuState, VmConfig, VmGroup, VmId};

use crate::world::{Guest, Op, World, places};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// Spins: a pause exit every 2 µs.
fn spinner() -> Guest {
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

/// One pCPU, one VM of a spinner and a vCPU that has work to do.
fn spin_beside_work(handler: PauseExit, group: VmGroup) -> World {
    let config = HostConfig {
        pause_exit: handler,
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
        let with = share(PauseExit::DirectedYield2011);
        assert!((without - 0.5).abs() < 0.02, "{group:?}: {without}");
        // A yielder stays behind only as far as fairness allows: it is no free ride.
        assert!(with > 0.5, "{group:?}: {with}");
        let world = spin_beside_work(PauseExit::DirectedYield2011, group);
        assert!(world.counter(VmId(0), "directed_yield_successful") > 0, "{group:?}");
    }
}

#[test]
fn a_yield_hands_over_at_once() {
    let config = HostConfig {
        pause_exit: PauseExit::DirectedYield2011,
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
            pause_exit: handler,
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
    let (with, many) = share(PauseExit::DirectedYield2011);
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
        pause_exit: PauseExit::Sleep { ns: 500 * MS },
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
        pause_exit: PauseExit::DirectedYield2011,
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
