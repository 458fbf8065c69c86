//! Nested guests: a guest boots the `host` crate, and a guest of that host does the same work as one of the machine's.

use holdfast_host::{AvicEnable, Inhibit};
use holdfast_machine::avic::AvicHardware;
use holdfast_machine::{AvicModel, Picos};
use holdfast_sim::{CallOff, Config, Failure, Outcome, Vm, VmOutcome, run};
use holdfast_workloads::{Boot, Contend, Kernbench, Workload};

use crate::image::config;

/// The build of a kernel on `vcpus` vCPUs, with `hogs` host tasks next to it.
fn build(vcpus: u32, hogs: u32) -> Config {
    let mut config = config(vcpus, vcpus, hogs, 1);
    config.vms[0].boot.workload = Workload::Kernbench(Kernbench {
        jobs: 2 * vcpus,
        scale: 0.002,
        user_cpu_seconds: 40.0,
        ..Kernbench::default()
    });
    config.limit_ns = 60_000_000_000;
    config
}

/// `config` with its guest inside of a guest with `carriers` vCPUs.
fn nested(mut config: Config, carriers: u32) -> Config {
    let carrier = Vm {
        name: "carrier".into(),
        vcpus: carriers,
        measured: false,
        boot: Boot::default(),
        ..config.vms[0].clone()
    };
    config.vms[0].inside = Some("carrier".into());
    config.vms.push(carrier);
    config
}

fn play(config: &Config) -> Outcome {
    run(config, &CallOff::new()).unwrap_or_else(|failure| panic!("{failure}"))
}

fn elapsed_ns(outcome: &Outcome) -> u64 {
    outcome.vms[0].elapsed_ns.expect("it ends")
}

fn time(vm: &VmOutcome, causes: &[&str]) -> u64 {
    causes.iter().map(|cause| vm.lost_time_ps[cause]).sum()
}

/// Causes of time in which a vCPU executes its guest's code. It may also be `idle` there.
const IN_GUEST: [&str; 11] = [
    "useful",
    "critical_section",
    "spin_running_holder",
    "spin_preempted_holder",
    "spin_preempted_waiter",
    "spin_throttled_holder",
    "spin_throttled_waiter",
    "ipi_running_target",
    "ipi_preempted_target",
    "cache_transfer",
    "interrupt_entry",
];

#[test]
fn an_inner_guest_s_time_is_part_of_its_carrier_s_to_the_picosecond() {
    let outcome = play(&nested(build(4, 2), 4));
    for vm in &outcome.vms {
        let sum: u64 = vm.lost_time_ps.values().sum();
        assert_eq!(sum, vm.vcpu_time_ps, "{}", vm.name);
    }
    let (inner, carrier) = (&outcome.vms[0], &outcome.vms[1]);
    let inside = time(carrier, &["nested_guest"]);
    let executed = time(inner, &IN_GUEST);
    assert!(executed > 0);
    assert!(
        (executed..=executed + time(inner, &["idle"])).contains(&inside),
        "{inside} ps inside, {executed} ps executed"
    );
    assert!(
        time(carrier, &["useful"]) > 0,
        "the inner host takes time of its carrier"
    );
    assert!(
        time(carrier, &["exit_nested"]) > 0,
        "and entries take time of the machine's host"
    );
    // An interrupt that its carrier takes on the way in counts as an exit of the inner guest.
    let counters = &inner.counters;
    let exits = counters["exits"] - counters["irq_exits"];
    assert!(0 < exits && exits <= carrier.counters["nested_run"]);
}

#[test]
fn a_history_with_inner_guests_repeats_and_skipping_spins_changes_nothing() {
    let config = nested(build(3, 1), 2);
    let hash = |config: &Config| play(config).history_hash;
    let first = hash(&config);
    assert_eq!(hash(&config), first);
    let executed = Config {
        execute_spins: true,
        ..config.clone()
    };
    assert_eq!(hash(&executed), first);
    let other = Config { seed: 2, ..config };
    assert_ne!(hash(&other), first);
}

#[test]
fn an_inner_guest_does_its_work_later_than_a_guest_of_the_machine() {
    let flat = elapsed_ns(&play(&build(4, 0)));
    let inner = elapsed_ns(&play(&nested(build(4, 0), 4)));
    assert!(flat < inner, "{flat} ns, and {inner} ns inside of a guest");
    let mut dear = nested(build(4, 0), 4);
    dear.machine.costs.nested_exit = Picos::from_nanos(20_000);
    let dear = elapsed_ns(&play(&dear));
    assert!(inner < dear, "{inner} ns, and {dear} ns with dear exits");
}

#[test]
fn what_an_inner_host_does_takes_time_of_its_carrier() {
    // Two vCPUs on one pCPU of the inner host, which is the only vCPU on a pCPU: only the inner host switches.
    let with = |context_switch: u64| {
        let mut config = nested(build(2, 0), 1);
        config.machine.costs.context_switch = Picos::from_nanos(context_switch);
        time(&play(&config).vms[1], &["useful"])
    };
    let (cheap, dear) = (with(1_000), with(100_000));
    assert!(
        2 * cheap < dear,
        "{cheap} ps of the inner host, and {dear} ps with dear switches"
    );
}

#[test]
fn a_holder_whose_carrier_is_preempted_is_preempted() {
    let contend = |mut config: Config| {
        config.vms[0].boot.workload = Workload::Contend(Contend {
            span_ns: Some(200_000_000),
            ..Contend::default()
        });
        config
    };
    let quiet = play(&contend(nested(build(4, 0), 4)));
    let loud = play(&contend(nested(build(4, 4), 4)));
    // The inner host has as many pCPUs as vCPUs, and preempts none.
    for outcome in [&quiet, &loud] {
        let counters = &outcome.vms[0].counters;
        assert_eq!(counters["preemption_reported"] + counters["preemption_other"], 0);
    }
    let behind = |outcome: &Outcome| time(&outcome.vms[0], &["spin_preempted_holder", "spin_preempted_waiter"]);
    assert_eq!(time(&quiet.vms[0], &["runnable"]), 0);
    assert!(time(&loud.vms[0], &["runnable"]) > 0);
    assert!(
        behind(&loud) > behind(&quiet),
        "{} ps, {} ps",
        behind(&loud),
        behind(&quiet)
    );
    assert!(loud.vms[0].counters["preempted_holding_lock"] > 0);
}

#[test]
fn two_levels_of_schedulers_preempt_independently() {
    // Three vCPUs on two pCPUs of the inner host, which are two vCPUs on three pCPUs with three hogs.
    let outcome = play(&nested(build(3, 3), 2));
    let inner = &outcome.vms[0].counters;
    assert!(
        inner["preemption_reported"] + inner["preemption_other"] > 0,
        "by the inner host"
    );
    let outer = &outcome.vms[1].counters;
    assert!(
        outer["preemption_reported"] + outer["preemption_other"] > 0,
        "by the outer host"
    );
}

/// The machine with AVIC, which its host uses. `for_vm`: the guest with guests of its own is inhibited as a whole.
fn avic(mut config: Config, for_vm: bool) -> Config {
    config.machine.avic = Some(AvicModel {
        hardware: AvicHardware {
            x2avic: true,
            ..AvicHardware::default()
        },
        ..crate::avic::part()
    });
    config.host.avic.enable = AvicEnable::On;
    config.host.avic.x2avic = true;
    config.vms[1].host.apic_inhibits.set(Inhibit::Nested, for_vm);
    config
}

#[test]
fn avic_is_off_for_the_vm_or_while_a_vcpu_executes_its_own_guest() {
    let accesses = |for_vm| {
        let outcome = play(&avic(nested(build(4, 2), 4), for_vm));
        assert!(!outcome.vms[0].counters.contains_key("avic_accesses"));
        outcome.vms[1]
            .counters
            .iter()
            .filter(|(name, _)| name.starts_with("avic"))
            .map(|(_, n)| n)
            .sum::<u64>()
    };
    assert_eq!(accesses(true), 0);
    assert!(
        accesses(false) > 0,
        "the inner host's own interrupts are delivered by hardware"
    );
}

#[test]
fn guests_that_cannot_run_inside_of_others_are_refused() {
    type Change = fn(&mut Config);
    let changes: [(Change, &str); 5] = [
        (|config| config.vms[0].inside = Some("nowhere".into()), "does not exist"),
        (
            |config| config.vms[1].inside = Some("guest".into()),
            "is inside of another guest",
        ),
        (|config| config.vms[1].measured = true, "is measured"),
        (|config| config.vms[1].host.cpu_pm = true, "does not exit for HLT"),
        (|config| config.vms[0].stay.from_ns = 1, "has guests that come and go"),
    ];
    for (change, why) in changes {
        let mut config = nested(build(2, 0), 2);
        change(&mut config);
        match run(&config, &CallOff::new()) {
            Err(Failure::Invalid(what)) => assert!(what.contains(why), "{what}"),
            other => panic!("{why}: {other:?}"),
        }
    }
}
