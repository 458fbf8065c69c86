//! Load balancing and placement: threads find pCPUs, and pCPUs threads.

use holdfast_host::{HostConfig, Nanos, PcpuId, TaskConfig, TickPhase, VmConfig};

use crate::world::{Guest, MS, World, places};

const SECOND: u64 = 1_000 * MS;

fn hogs(world: &mut World, count: usize) {
    for _ in 0..count {
        world.add_task(&TaskConfig::default(), u64::MAX, 0);
    }
}

#[test]
fn as_many_hogs_as_pcpus_get_one_each() {
    for (sockets, cores, threads) in [(1, 8, 1), (2, 4, 1), (2, 2, 2), (8, 1, 1)] {
        let mut world = World::new(&HostConfig::default(), &places(sockets, cores, threads));
        hogs(&mut world, 8);
        world.start();
        world.run_until(SECOND);
        for &(task, _) in &world.plain {
            assert_eq!(world.cpu_time(task), SECOND, "{sockets} × {cores} × {threads}");
        }
    }
}

#[test]
fn fewer_hogs_than_cores_share_no_core() {
    let mut world = World::new(&HostConfig::default(), &places(1, 4, 2));
    hogs(&mut world, 4);
    world.start();
    world.run_until(SECOND);
    for core in 0..4 {
        let busy = |pcpu| world.what(pcpu) != holdfast_host::Run::Idle;
        assert_eq!(
            u32::from(busy(2 * core)) + u32::from(busy(2 * core + 1)),
            1,
            "core {core}"
        );
    }
}

#[test]
fn an_odd_hog_makes_its_rounds() {
    // Three hogs on two pCPUs: balancing makes them share, though not evenly at any one time.
    let mut world = World::new(&HostConfig::default(), &places(1, 2, 1));
    hogs(&mut world, 3);
    world.start();
    world.run_until(60 * SECOND);
    for &(task, _) in &world.plain {
        let share = world.cpu_time(task) as f64 / (120 * SECOND) as f64;
        assert!(share > 0.2, "{share}");
    }
    assert_eq!(world.total_time(), 120 * SECOND);
}

#[test]
fn threads_pinned_to_a_part_of_a_domain_do_not_make_rounds() {
    // Six hogs on four pCPUs. Where these are the whole domain all get two thirds. In one of eight the average that
    // pCPUs are compared with counts the idle ones, so no pCPU that may pull is below it: as in Linux.
    let shares = |cores| {
        let mut world = World::new(&HostConfig::default(), &places(1, cores, 1));
        for _ in 0..6 {
            let affinity = vec![0, 1, 2, 3];
            let config = TaskConfig {
                affinity,
                ..TaskConfig::default()
            };
            world.add_task(&config, u64::MAX, 0);
        }
        world.start();
        world.run_until(60 * SECOND);
        let share = |task| world.cpu_time(task) as f64 / (60 * SECOND) as f64;
        let shares: Vec<f64> = world.plain.iter().map(|&(task, _)| share(task)).collect();
        shares
    };
    let whole = shares(4);
    assert!(whole.iter().all(|share| (0.55..0.78).contains(share)), "{whole:?}");
    let part = shares(8);
    let alone = part.iter().filter(|&&share| share > 0.95).count();
    assert_eq!(alone, 2, "{part:?}");
}

#[test]
fn an_idle_pcpu_pulls_at_once() {
    // Two hogs crowd pCPU 1 while pCPU 0 is taken; when it falls idle, ticks are too rare to bring one of them.
    let config = HostConfig {
        hz: 10,
        tick_phase: TickPhase::Spread,
        ..HostConfig::default()
    };
    let mut world = World::new(&config, &places(1, 2, 1));
    for _ in 0..2 {
        let affinity = vec![0];
        world.add_task(
            &TaskConfig {
                affinity,
                ..TaskConfig::default()
            },
            130 * MS,
            1_000 * SECOND,
        );
    }
    hogs(&mut world, 2);
    world.start();
    world.run_until(SECOND);
    let idle: u64 = (0..2)
        .map(|pcpu| world.host.idle_time(PcpuId(pcpu), Nanos(SECOND)).0)
        .sum();
    assert!(idle < MS, "idle for {} ms with two hogs on two pcpus", idle / MS);
}

#[test]
fn affinity_is_kept() {
    let mut world = World::new(&HostConfig::default(), &places(2, 2, 2));
    for pcpu in [1, 1, 1, 6] {
        world.add_task(
            &TaskConfig {
                affinity: vec![pcpu],
                ..TaskConfig::default()
            },
            3 * MS,
            MS,
        );
    }
    for _ in 0..3 {
        let affinity = vec![4, 5];
        world.add_task(
            &TaskConfig {
                affinity,
                ..TaskConfig::default()
            },
            MS,
            MS / 3,
        );
    }
    let vm = VmConfig {
        steal_time: false,
        ..VmConfig::default()
    };
    world.add_vm(
        &vm,
        &[vec![2, 3], vec![2, 3], vec![2]],
        (0..3).map(|_| Guest::hog()).collect(),
    );
    world.trace = Some(Vec::new());
    world.start();
    world.run_until(2 * SECOND);
    for (at, command) in world.trace.take().expect("a trace") {
        let holdfast_host::Command::Run { pcpu, run } = command else {
            continue;
        };
        let allowed = match run {
            holdfast_host::Run::Task(task) if task == world.plain[3].0 => vec![6],
            holdfast_host::Run::Task(task) if task > world.plain[3].0 => vec![4, 5],
            holdfast_host::Run::Task(_) => vec![1],
            holdfast_host::Run::Guest { vcpu, .. } if vcpu.0 == 2 => vec![2],
            holdfast_host::Run::Guest { .. } => vec![2, 3],
            _ => continue,
        };
        assert!(allowed.contains(&pcpu.0), "{run:?} on pcpu {} at {at} ns", pcpu.0);
    }
}

#[test]
fn a_running_hog_leaves_a_shared_core_for_an_idle_one() {
    // Two hogs start pinned nowhere; two short tasks occupy the other cores when they are placed.
    let mut world = World::new(&HostConfig::default(), &places(1, 2, 2));
    world.add_task(&TaskConfig::default(), 50 * MS, 1_000 * SECOND);
    hogs(&mut world, 1);
    world.add_task(&TaskConfig::default(), 50 * MS, 1_000 * SECOND);
    hogs(&mut world, 1);
    world.start();
    world.run_until(2 * SECOND);
    let busy: Vec<u32> = (0..4)
        .filter(|&pcpu| world.what(pcpu) != holdfast_host::Run::Idle)
        .collect();
    assert_eq!(busy.len(), 2, "{busy:?}");
    assert_ne!(busy[0] / 2, busy[1] / 2, "both hogs still share a core: {busy:?}");
}

#[test]
fn many_pcpus_start_and_run() {
    let mut world = World::new(
        &HostConfig {
            hz: 100,
            ..HostConfig::default()
        },
        &places(16, 32, 2),
    );
    for _ in 0..16 {
        world.add_vm(&VmConfig::default(), &[], (0..256).map(|_| Guest::hog()).collect());
    }
    world.start();
    world.run_until(40 * MS);
    assert_eq!(world.total_time(), 1024 * 40 * MS);
}
