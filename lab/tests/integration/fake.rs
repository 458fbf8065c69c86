//! A stand-in for the simulator: outcomes computed from the configuration, without running anything.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use holdfast_lab::collect;
use holdfast_lab::experiment::Experiment;
use holdfast_lab::options::Options;
use holdfast_lab::plan::Plan;
use holdfast_lab::results::Results;
use holdfast_lab::run::{self, Execution, Outcomes, Runner};
use holdfast_locks::LockKind;
use holdfast_sim::{CallOff, Config, Convoy, Failure, Outcome, VmOutcome};

/// Two cases, two variants, one measured guest, one neighbor.
pub const EXPERIMENT: &str = r#"
name = "fake"
title = "two guests"
metric = "elapsed"
seeds = 3
scale = 0.5

[guest]
vcpus = 2

[[vm]]
name = "build"
workload = "kernbench"

[[vm]]
name = "noise"

[[cases]]
name = "quiet"

[[cases]]
name = "loud"
set = { "vm.noise.workload" = "hog" }

[[variants]]
name = "ticket"
set = { "vm.*.lock" = "ticket" }

[[variants]]
name = "tas"
set = { "vm.*.lock" = "tas" }

[[published]]
case = "loud"
variant = "ticket"
vm = "build"
mean = 20
sd = 5
unit = "s"
source = "nowhere"
"#;

/// Returns the plan of [`EXPERIMENT`].
pub fn plan(options: &Options) -> Plan {
    let experiment = Experiment::parse("fake.toml", EXPERIMENT).expect("a valid experiment");
    Plan::new(experiment, options).expect("a valid plan")
}

/// Returns the seconds of a run: ticket 10 and tas 5, a tenth more for each seed.
pub fn elapsed_ns(config: &Config) -> u64 {
    let base: u64 = if config.vms[0].boot.kernel.lock == LockKind::Ticket {
        10_000_000_000
    } else {
        5_000_000_000
    };
    base + base / 10 * config.seed
}

/// Picoseconds that are a hundredth of the vCPUs' time.
pub const PERCENT: u64 = 1_000_000_000_000;

/// Returns an outcome that depends on nothing but `config`.
pub fn simulate(config: &Config, _call_off: &CallOff) -> Result<Outcome, Failure> {
    let guest = |vm: &holdfast_sim::Vm| VmOutcome {
        name: vm.name.clone(),
        elapsed_ns: vm.measured.then(|| elapsed_ns(config)),
        operations: None,
        counters: BTreeMap::from([("kicks".to_owned(), config.seed)]),
        // Half of the time is lost. The share of spinning grows with each seed.
        lost_time_ps: BTreeMap::from([
            ("useful", 50 * PERCENT),
            ("spin_preempted_waiter", 20 * config.seed * PERCENT),
            ("idle", (50 - (20 * config.seed).min(50)) * PERCENT),
        ]),
        vcpu_time_ps: (50 + 20 * config.seed).max(100) * PERCENT,
        longest_stall_ns: config.seed * 40_000_000,
        convoy: (config.seed == 3).then_some(Convoy {
            since_ns: 50_000_000,
            total_ns: (50 + 20 * config.seed) * PERCENT / u64::from(vm.vcpus) / 1_000 / 4,
        }),
    };
    Ok(Outcome {
        vms: config.vms.iter().map(guest).collect(),
        end_ns: elapsed_ns(config),
        history_hash: config.seed ^ elapsed_ns(config),
        engine: BTreeMap::new(),
    })
}

/// Returns an outcome as [`simulate`] does, from a host that does not record lost time.
pub fn measure(config: &Config, call_off: &CallOff) -> Result<Outcome, Failure> {
    let mut outcome = simulate(config, call_off)?;
    outcome.history_hash = 0;
    for vm in &mut outcome.vms {
        vm.lost_time_ps.clear();
        (vm.longest_stall_ns, vm.convoy) = (0, None);
        vm.counters.insert("cpu_time_ns".to_owned(), 3_000_000_000);
        vm.counters.insert("runnable_ns".to_owned(), 1_000_000_000);
    }
    Ok(outcome)
}

/// Results of two variants of `lock-crossover` in the test host, by an older version that wrote zeros for unknown
/// figures.
pub const REAL_HOST: &str = include_str!("real-host.json");

/// Runs `plan` on `jobs` threads.
pub fn execute(plan: &Plan, runner: Runner<'_>, jobs: usize) -> Outcomes {
    let jobs = NonZeroUsize::new(jobs).expect("at least one thread");
    run::run(
        plan,
        Execution {
            runner,
            jobs,
            call_off: &CallOff::new(),
            progress: &|_| {},
        },
    )
}

/// Returns the results of the whole experiment.
pub fn results() -> Results {
    results_of(&simulate)
}

/// Returns the results of the whole experiment, run by `runner`.
pub fn results_of(runner: Runner<'_>) -> Results {
    let plan = plan(&Options::default());
    collect::results(&plan, &execute(&plan, runner, 1), "fake.toml", "test")
}
