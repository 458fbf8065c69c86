//! Whom a pause exit yields to, over time: the round, the spinners' turns, the IPI that is not answered; and each with
//! a fault planted.

use holdfast_host::{Command, HostConfig, PauseHandling, Planted, SpinFaults, VcpuState, VmConfig, YieldFilters};

use crate::spin::spinner;
use crate::world::{Guest, MS, Op, World, places};

fn host(pause: PauseHandling, faults: SpinFaults) -> HostConfig {
    HostConfig {
        pause,
        planted: Planted {
            pause: faults,
            ..Planted::default()
        },
        ..HostConfig::default()
    }
}

/// Returns how often each of three hogs that share pCPU 1 was yielded to by a spinner on pCPU 0.
fn boosts(faults: SpinFaults) -> Vec<u32> {
    let pause = PauseHandling {
        ..PauseHandling::DIRECTED_YIELD_2011
    };
    let mut world = World::new(&host(pause, faults), &places(1, 2, 1));
    let guests = vec![spinner(), Guest::hog(), Guest::hog(), Guest::hog()];
    let affinity = vec![vec![0], vec![1], vec![1], vec![1]];
    world.add_vm(&VmConfig::default(), &affinity, guests);
    world.trace = Some(Vec::new());
    world.start();
    world.run_until(500 * MS);
    let mut counts = vec![0; 4];
    for (_, command) in world.trace.take().expect("a trace") {
        if let Command::DirectedYield { to, done: true, .. } = command {
            counts[to.0 as usize] += 1;
        }
    }
    counts.split_off(1)
}

/// Asserts fairness: the least boosted vCPU gets at least a third of the yields of the most boosted one.
fn is_a_round(boosts: &[u32]) -> bool {
    let (least, most) = (boosts.iter().min().copied(), boosts.iter().max().copied());
    least
        .zip(most)
        .is_some_and(|(least, most)| least * 3 >= most && most > 10)
}

#[test]
fn boosts_go_round_and_a_round_that_stands_still_is_seen() {
    let whole = boosts(SpinFaults::default());
    assert!(is_a_round(&whole), "{whole:?}");
    let stuck = boosts(SpinFaults {
        last_boosted_stays: true,
        ..SpinFaults::default()
    });
    assert!(!is_a_round(&stuck), "{stuck:?}");
}

/// Directed yields done among four vCPUs that all spin, on two pCPUs, to one that has itself yielded and not run since.
fn yields_to_yielders(faults: SpinFaults) -> u64 {
    let pause = PauseHandling {
        filters: YieldFilters::LINUX_3_10,
        ..PauseHandling::DIRECTED_YIELD_2011
    };
    let mut world = World::new(&host(pause, faults), &places(1, 2, 1));
    world.add_vm(&VmConfig::default(), &[], (0..4).map(|_| spinner()).collect());
    world.trace = Some(Vec::new());
    world.start();
    world.run_until(100 * MS);
    let (mut in_handler, mut count) = ([false; 4], 0);
    for (_, command) in world.trace.take().expect("a trace") {
        match command {
            Command::DirectedYield { from, to, done: true } => {
                count += u64::from(in_handler[to.0 as usize]);
                in_handler[from.0 as usize] = true;
            }
            Command::State {
                vcpu,
                state: VcpuState::InGuest,
            } => in_handler[vcpu.0 as usize] = false,
            _ => {}
        }
    }
    count
}

#[test]
fn spinners_yield_to_spinners_and_an_eligibility_that_never_turns_is_seen() {
    assert!(yields_to_yielders(SpinFaults::default()) > 100);
    let stuck = yields_to_yielders(SpinFaults {
        eligibility_stays: true,
        ..SpinFaults::default()
    });
    assert_eq!(stuck, 0);
}

#[test]
fn a_spinning_kernel_passes_over_vcpus_that_lost_their_pcpu_in_user_code() {
    let targets = |in_kernel, cpls: [u8; 4]| {
        let mut pause = PauseHandling::DIRECTED_YIELD_2011;
        pause.filters.in_kernel = in_kernel;
        let mut world = World::new(&host(pause, SpinFaults::default()), &places(1, 2, 1));
        let program = |cpl| {
            let mut first = Some(Op::Cpl(cpl));
            Guest::new(Box::new(move || first.take().unwrap_or(Op::Compute(MS))))
        };
        let mut guests = vec![spinner()];
        guests.extend(cpls.map(program));
        let affinity = vec![vec![0], vec![1], vec![1], vec![1], vec![1]];
        world.add_vm(&VmConfig::default(), &affinity, guests);
        world.trace = Some(Vec::new());
        world.start();
        // All of them have run, and lost their pCPU where their code is.
        world.run_until(200 * MS);
        world.trace = Some(Vec::new());
        world.run_until(400 * MS);
        let mut counts = [0; 4];
        for (_, command) in world.trace.take().expect("a trace") {
            if let Command::DirectedYield { to, done: true, .. } = command {
                counts[to.0 as usize - 1] += 1;
            }
        }
        counts.map(|count| count > 3)
    };
    assert_eq!(targets(true, [3, 0, 0, 3]), [false, true, true, false]);
    assert_eq!(targets(true, [0, 3, 3, 0]), [true, false, false, true]);
    assert_eq!(targets(false, [3, 0, 0, 3]), [true; 4]);
}

/// Lets `vcpus` spin on one pCPU. Returns pause exits, candidates examined, and candidates charged for.
fn search(vcpus: usize) -> (u64, u64, u64) {
    let mut world = World::new(
        &host(PauseHandling::DIRECTED_YIELD_2011, SpinFaults::default()),
        &places(1, 1, 1),
    );
    world.add_vm(&VmConfig::default(), &[], (0..vcpus).map(|_| spinner()).collect());
    world.trace = Some(Vec::new());
    world.start();
    world.run_until(20 * MS);
    let trace = world.trace.take().expect("a trace");
    let charged = trace.iter().map(|(_, command)| match command {
        Command::Charge {
            cost: holdfast_host::Cost::SpinCandidate,
            count,
            ..
        } => u64::from(*count),
        _ => 0,
    });
    let counter = |name| world.counter(holdfast_host::VmId(0), name);
    (counter("pause_exits"), counter("directed_yield_looks"), charged.sum())
}

#[test]
fn a_search_costs_as_many_looks_as_it_takes_however_large_the_guest_is() {
    for vcpus in [2, 16, 128, 1024] {
        let (exits, looks, charged) = search(vcpus);
        assert!(exits > 1000, "{vcpus}: {exits}");
        // Everyone else is preempted: the first candidate is the right one.
        assert_eq!((looks, charged), (exits, exits), "{vcpus} vCPUs");
    }
}
