//! The small benchmarks on machines whose costs are known.

use holdfast_guest::micro::{MEDIAN, Micro, QUARTER, THREE_QUARTERS, micro};
use holdfast_host::{HostConfig, VmConfig};
use holdfast_machine::{Costs, Picos, Profile, Topology};
use holdfast_sim::{CallOff, Config, Outcome, Vm, run_images};
use holdfast_workloads::Boot;

use crate::machine::counter;

/// Samples of each benchmark.
const SAMPLES: u32 = 5;

/// Runs `benchmark` on a machine with these costs.
fn bench(benchmark: Micro, costs: Costs) -> Outcome {
    let places = benchmark.places();
    let vm = Vm {
        name: "bench".into(),
        vcpus: places.len() as u32,
        affinity: places.iter().map(|&pcpu| vec![pcpu]).collect(),
        domains: Vec::new(),
        group: None,
        host: VmConfig {
            halt_poll_cap_ns: Some(0),
            ..VmConfig::default()
        },
        boot: Boot::default(),
        measured: true,
        bare_metal: false,
        inside: None,
        stay: Default::default(),
        vmm: holdfast_sim::VmmConfig::default(),
    };
    let config = Config {
        machine: Profile {
            name: "test".into(),
            topology: Topology {
                sockets: 1,
                cores: 2,
                threads: 1,
            },
            numbering: holdfast_machine::Numbering::default(),
            frequency_hz: 3_000_000_000,
            costs,
            idle_states: Vec::new(),
            pcid: false,
            pause_hardware: None,
            avic: None,
            apicv: None,
        },
        host: HostConfig::linux_3_3(),
        groups: Vec::new(),
        vms: vec![vm],
        tasks: Vec::new(),
        noise: 0.0,
        seed: 1,
        execute_spins: false,
        limit_ns: 100_000_000_000,
        migration: None,
        zero_at_ns: None,
        destination: None,
    };
    run_images(&config, &CallOff::new(), |_, machine| {
        micro(machine, benchmark, SAMPLES)
    })
    .unwrap_or_else(|failure| panic!("{failure}"))
}

/// The base costs, in nanoseconds. Those that are not here are 0.
const BASE: [(&str, u64); 5] = [
    ("load_hit", 1),
    ("store", 2),
    ("rmw_hit", 7),
    ("fence", 11),
    ("pause", 13),
];
/// What one cost is raised to.
const RAISED_NS: u64 = 1000;

fn base(cost: &str) -> u64 {
    BASE.iter().find(|(name, _)| *name == cost).map_or(0, |&(_, ns)| ns)
}

/// Returns the base costs. `raised` is [`RAISED_NS`] higher.
fn costs(raised: &str) -> Costs {
    let ns = |name: &str| base(name) + if name == raised { RAISED_NS } else { 0 };
    Costs::from_costs(|name| Some(Picos::from_nanos(ns(name)))).expect("every cost is given")
}

/// A benchmark, its picoseconds with the base costs, and the costs in one operation, with how often.
type Figure = (Micro, u64, &'static [(&'static str, f64)]);

/// The figures of all benchmarks.
const FIGURES: &[Figure] = &[
    (Micro::Load, 1_000, &[("load_hit", 1.0)]),
    (Micro::Store, 2_000, &[("store", 1.0)]),
    (Micro::Exchange, 7_000, &[("rmw_hit", 1.0)]),
    (Micro::Fence, 13_000, &[("store", 1.0), ("fence", 1.0)]),
    (Micro::Pause, 13_000, &[("pause", 1.0)]),
    // One CPU fetches the line to read it, and the store fetches it again. While it waits, it reads its own copy.
    (
        Micro::Line,
        1_500,
        &[
            ("load_hit", 1.0),
            ("store", 0.5),
            ("transfer_socket", 2.0),
            ("read_occupancy", 1.0),
        ],
    ),
    (Micro::Compute, 5_000_000, &[("guest_code", 1.0)]),
    // 20 ms at 1000 Hz.
    (
        Micro::Taken,
        0,
        &[
            ("exit_hardware", 20.0),
            ("exit_software", 20.0),
            ("host_interrupt", 20.0),
            ("tick", 20.0),
            ("timer_program", 20.0),
        ],
    ),
    (
        Micro::Cpuid,
        0,
        &[("exit_hardware", 1.0), ("exit_software", 1.0), ("cpuid", 1.0)],
    ),
    (
        Micro::Hypercall,
        0,
        &[("exit_hardware", 1.0), ("exit_software", 1.0), ("hypercall", 1.0)],
    ),
    (
        Micro::Msr,
        0,
        &[("exit_hardware", 1.0), ("exit_software", 1.0), ("msr", 1.0)],
    ),
    (
        Micro::SelfIpi,
        0,
        &[
            ("guest_interrupt", 1.0),
            ("exit_hardware", 2.0),
            ("exit_software", 2.0),
            ("msr", 2.0),
            ("apic_deliver", 1.0),
            ("inject", 1.0),
        ],
    ),
    (
        Micro::KickCall,
        0,
        &[
            ("exit_hardware", 1.0),
            ("exit_software", 1.0),
            ("hypercall", 1.0),
            ("apic_deliver", 1.0),
            ("ipi_send", 1.0),
            ("wake", 1.0),
            ("wake_cold", 1.0),
        ],
    ),
    (
        Micro::KickHere,
        4_000,
        &[
            ("load_hit", 2.0),
            ("store", 1.0),
            ("exit_hardware", 2.0),
            ("exit_software", 2.0),
            ("hlt", 1.0),
            ("hypercall", 1.0),
            ("apic_deliver", 1.0),
            ("wake", 1.0),
            ("context_switch", 1.0),
            ("vcpu_load", 2.0),
        ],
    ),
    (
        Micro::KickThere,
        0,
        &[
            ("exit_hardware", 1.0),
            ("exit_software", 1.0),
            ("hypercall", 1.0),
            ("apic_deliver", 1.0),
            ("host_interrupt", 1.0),
            ("timer_program", 1.0),
            ("ipi_send", 1.0),
            ("ipi_latency", 1.0),
            ("wake", 1.0),
            ("wake_cold", 1.0),
            ("context_switch", 1.0),
            ("vcpu_load", 1.0),
            ("idle_exit", 1.0),
        ],
    ),
];

#[test]
fn a_figure_is_the_sum_of_the_costs_of_its_operation() {
    assert!(Micro::ALL.iter().eq(FIGURES.iter().map(|(benchmark, ..)| benchmark)));
    for &(benchmark, expected, contained) in FIGURES {
        let median = |raised| counter(&bench(benchmark, costs(raised)), MEDIAN);
        assert_eq!(median(""), expected, "{benchmark:?}");
        for cost in Costs::COSTS {
            let times = (median(cost) as f64 - expected as f64) / (RAISED_NS * 1000) as f64;
            let expected = contained
                .iter()
                .find(|(name, _)| name == cost)
                .map_or(0.0, |&(_, times)| times);
            assert!(
                (times - expected).abs() < 0.005,
                "{benchmark:?} contains {cost} {times} times"
            );
        }
    }
}

#[test]
fn equal_samples_have_equal_quartiles() {
    let outcome = bench(Micro::Pause, costs(""));
    for quartile in [QUARTER, MEDIAN, THREE_QUARTERS] {
        assert_eq!(counter(&outcome, quartile), 13_000, "{quartile}");
    }
}

/// Exits by CPUID, hypercall, MSR and HLT, and interrupts, in all samples of a benchmark.
fn events(outcome: &Outcome) -> [u64; 5] {
    ["cpuid", "hypercall", "msr", "hlt"]
        .map(|exit| counter(outcome, &format!("measured_exits.exit_{exit}")))
        .into_iter()
        .chain([counter(outcome, "irq_injections")])
        .collect::<Vec<_>>()
        .try_into()
        .expect("five figures")
}

#[test]
fn each_benchmark_does_its_samples_and_nothing_else() {
    let few = u64::from(SAMPLES);
    for &(benchmark, ..) in FIGURES {
        let outcome = bench(benchmark, costs(""));
        assert_eq!(outcome.vms[0].operations, Some(few), "{benchmark:?}");
        let expected = match benchmark {
            Micro::Cpuid => [4 * few, 0, 0, 0, 0],
            Micro::Hypercall => [0, 4 * few, 0, 0, 0],
            // Switching the APIC on: one read and three writes.
            Micro::Msr => [0, 0, 4 * few + 4, 0, 0],
            Micro::SelfIpi => [0, 0, 2 * 4 * few + 4, 0, 4 * few],
            // The peer halts once more than it is kicked.
            Micro::KickCall | Micro::KickThere => [0, few, 0, few + 1, 0],
            // The first turn is that of the first CPU. The last kick is not waited for.
            Micro::KickHere => [0, 2 * 4 * few - 1, 0, 2 * 4 * few - 1, 0],
            _ => [0; 5],
        };
        assert_eq!(events(&outcome), expected, "{benchmark:?}");
    }
}

#[test]
fn samples_are_long_enough_for_the_clock_and_short_enough_for_the_tick() {
    // Two vCPUs compute all the time. The second one only computes, or takes turns with the first.
    for (benchmark, ns) in [
        (Micro::Load, 2_000),
        (Micro::Store, 2 * 2_000),
        (Micro::Exchange, 7 * 2_000),
        (Micro::Fence, 13 * 2_000),
        (Micro::Pause, 13 * 200),
        (Micro::Line, 3 * 100),
        (Micro::Compute, 5_000 * 4),
    ] {
        let time = counter(&bench(benchmark, costs("")), "cpu_time_ns");
        // Both announce themselves first: two locked additions, one after the other, and one load each.
        let samples = (time - 2 * 8) / 2 / u64::from(SAMPLES);
        assert_eq!(samples, ns, "{benchmark:?}");
    }
}

#[test]
fn a_peer_gets_time_to_halt_before_each_kick() {
    let time = counter(&bench(Micro::KickThere, costs("")), "cpu_time_ns");
    assert_eq!(time / u64::from(SAMPLES), 400_030);
}
