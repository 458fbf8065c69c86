//! Nested page tables and memory of other nodes: a guest pays for walks, refills, first touches and the way to another
//! socket; the machine's own kernel pays for none.

use std::collections::BTreeMap;

use holdfast_machine::{Costs, Picos};
use holdfast_sim::{CallOff, Config, Outcome, run};
use holdfast_workloads::{Boot, Ebizzy, Kernbench, Workload};

use crate::image::config;

/// A build of a kernel on a machine of its own, in a guest or on bare metal.
fn build(bare_metal: bool) -> Config {
    let mut config = config(4, 4, 0, 1);
    config.vms[0].bare_metal = bare_metal;
    config.vms[0].boot = Boot {
        workload: Workload::Kernbench(Kernbench {
            jobs: 6,
            scale: 0.002,
            user_cpu_seconds: 100.0,
            ..Kernbench::default()
        }),
        ..Boot::default()
    };
    config
}

fn play(config: &Config) -> Outcome {
    run(config, &CallOff::new()).unwrap_or_else(|failure| panic!("{failure}"))
}

fn elapsed_ns(config: &Config) -> u64 {
    play(config).vms[0].elapsed_ns.expect("it ends")
}

fn with(mut config: Config, cost: fn(&mut Costs) -> &mut Picos, ns: u64) -> Config {
    *cost(&mut config.machine.costs) = Picos::from_nanos(ns);
    config
}

/// Times of a guest's exits for first touches.
fn nested_faults(counters: &BTreeMap<String, u64>) -> u64 {
    counters.get("measured_exits.exit_nested_fault").copied().unwrap_or(0)
}

#[test]
fn a_dearer_walk_never_makes_a_guest_faster() {
    // On one vCPU. Several pass locks in another order if something takes longer, and then fetch other cache lines.
    // That changes the whole by up to a hundredth.
    let mut alone = build(false);
    alone.vms[0].vcpus = 1;
    for cost in [
        (|costs| &mut costs.nested_walks) as fn(&mut Costs) -> &mut Picos,
        |costs| &mut costs.nested_refill,
        |costs| &mut costs.remote_memory,
    ] {
        let taken = [0, 50, 200, 800].map(|ns| elapsed_ns(&with(alone.clone(), cost, ns)));
        assert!(taken.is_sorted_by(|a, b| a < b), "{taken:?}");
    }
}

#[test]
fn a_guest_that_stays_on_one_socket_has_all_memory_there() {
    let near = |remote| {
        let mut config = with(build(false), |costs| &mut costs.remote_memory, remote);
        let socket = config.machine.topology.pcpus() / config.machine.topology.sockets;
        config.vms[0].affinity = vec![(0..socket).collect(); config.vms[0].vcpus as usize];
        play(&config).history_hash
    };
    assert_eq!(near(0), near(800));
}

#[test]
fn user_code_pays_what_a_microsecond_of_it_costs() {
    let (without, walking) = (
        play(&build(false)),
        play(&with(build(false), |costs| &mut costs.nested_walks, 100)),
    );
    let useful = |outcome: &Outcome| outcome.vms[0].lost_time_ps["useful"] as f64;
    let more = useful(&walking) / useful(&without) - 1.0;
    // A part of the work is the kernel's, which maps its memory by large pages.
    assert!((0.05..0.1).contains(&more), "{more}");
}

#[test]
fn the_refill_of_a_tlb_takes_no_longer_than_the_computing_after_it() {
    let ebizzy = |refill_ns| {
        let mut config = build(false);
        config.vms[0].boot.workload = Workload::Ebizzy(Ebizzy::default());
        with(config, |costs| &mut costs.nested_refill, refill_ns)
    };
    let useful = |config: &Config| {
        let outcome = play(config);
        let vm = &outcome.vms[0];
        vm.lost_time_ps["useful"] as f64 / vm.operations.expect("a throughput") as f64
    };
    let (none, long) = (useful(&ebizzy(0)), useful(&ebizzy(1_000_000_000)));
    assert!(long > 1.05 * none && long < 2.0 * none, "{long} ps instead of {none}");
}

#[test]
fn the_machines_own_kernel_walks_one_set_of_tables() {
    let dear = |mut config: Config| {
        let costs = &mut config.machine.costs;
        costs.nested_walks = Picos::from_nanos(500);
        costs.nested_refill = Picos::from_nanos(10_000);
        costs.remote_memory = Picos::from_nanos(500);
        costs.nested_fault = Picos::from_nanos(50_000);
        config.vms[0].boot.kernel.fresh_memory = true;
        config
    };
    let history = |config: &Config| play(config).history_hash;
    assert_eq!(history(&build(true)), history(&dear(build(true))));
    assert_ne!(history(&build(false)), history(&dear(build(false))));
}

#[test]
fn each_fresh_page_is_one_exit_and_freed_pages_are_used_again() {
    let fresh = |scale: f64| {
        let mut config = build(false);
        config.vms[0].boot.kernel.fresh_memory = true;
        if let Workload::Kernbench(build) = &mut config.vms[0].boot.workload {
            build.scale = scale;
        }
        play(&config)
    };
    assert_eq!(nested_faults(&play(&build(false)).vms[0].counters), 0);
    let (short, long) = (fresh(0.002), fresh(0.006));
    let [few, more] = [&short, &long].map(|outcome| nested_faults(&outcome.vms[0].counters));
    let faults = |outcome: &Outcome| outcome.vms[0].counters["guest.page_faults"];
    assert!(few > 100, "{few}");
    assert!(faults(&long) > 2 * faults(&short));
    assert!(
        more < 2 * few,
        "a longer build has {more} first touches, a short one {few}"
    );
    assert!(short.vms[0].lost_time_ps["exit_nested_fault"] > 0);
}

#[test]
fn a_dearer_first_touch_delays_a_fresh_guest() {
    let fresh = |ns| {
        let mut config = with(build(false), |costs| &mut costs.nested_fault, ns);
        config.vms[0].boot.kernel.fresh_memory = true;
        elapsed_ns(&config)
    };
    assert!(fresh(20_000) > fresh(0));
}

/// The build in a guest whose kernel and CPU have process-context identifiers or not.
fn identified(kernel: bool, cpu: bool) -> Config {
    let mut config = with(build(false), |costs| &mut costs.nested_refill, 20_000);
    config.machine.pcid = cpu;
    config.vms[0].boot.kernel.pcid = Some(kernel);
    config
}

#[test]
fn process_context_identifiers_save_refills_at_switches() {
    let useful = |config: &Config| play(config).vms[0].lost_time_ps["useful"] as f64;
    let mut free = identified(false, false);
    free.machine.costs.nested_refill = Picos::ZERO;
    let (none, without, with) = (
        useful(&free),
        useful(&identified(false, false)),
        useful(&identified(true, true)),
    );
    assert!(without - none > 1.5 * (with - none), "{none}, {with} with, {without}");
    // New address spaces are still filled.
    assert!(with > 1.003 * none, "{none}, {with}");
}

#[test]
fn identifiers_need_a_kernel_and_a_cpu_that_have_them() {
    let history = |kernel, cpu| play(&identified(kernel, cpu)).history_hash;
    let without = history(false, false);
    assert_eq!(history(true, false), without);
    assert_ne!(history(true, true), without);
}

#[test]
fn identifiers_leave_no_stale_translation() {
    // Threads that unmap, and preempted vCPUs whose flushes are left to the host. A stale use would end the run.
    for flushes in [false, true] {
        let mut config = identified(true, true);
        config.vms[0].boot.workload = Workload::Ebizzy(Ebizzy {
            threads_per_vcpu: 3,
            records: 30_000,
            ..Ebizzy::default()
        });
        config.vms[0].host.pv_tlb_flush = flushes;
        config.vms.push(config.vms[0].clone());
        config.vms[1].name = "other".to_owned();
        let outcome = play(&config);
        assert!(outcome.vms[0].counters["guest.shootdowns"] > 100);
    }
}
