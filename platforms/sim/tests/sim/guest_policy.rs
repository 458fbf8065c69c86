//! Guest policies: where tasks go, what is no answer, and what the steal governor does.

use holdfast_abi::StealTime;
use holdfast_locks::CpuId;
use holdfast_sim::{CallOff, Config, Outcome, run};
use holdfast_workloads::{Contend, Cpus, GuestPolicy, GuestPolicyKind, Placed, StealGovernor, TaskId, Workload};

use crate::image::config;

/// A guest of four vCPUs whose tasks compute between calls of a driver, on four pCPUs with `hogs` host tasks.
fn guest(policy: GuestPolicyKind, hogs: u32) -> Config {
    let mut config = config(4, 4, hogs, 1);
    let boot = &mut config.vms[0].boot;
    boot.kernel.policy = policy;
    boot.workload = Workload::Contend(Contend {
        tasks: Some(4),
        think_ns: 200_000,
        calls: 4_000,
        ..Contend::default()
    });
    config
}

fn play(config: &Config) -> Outcome {
    let outcome = run(config, &CallOff::new()).unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(outcome.vms[0].operations, Some(4_000), "no task is lost");
    outcome
}

fn elapsed(config: &Config) -> u64 {
    play(config).vms[0].elapsed_ns.expect("it is measured")
}

/// A policy that decides nothing.
#[derive(Debug, Default)]
struct Nothing;

impl GuestPolicy for Nothing {
    fn about(&self) -> &'static str {
        "nothing changes"
    }
}

/// A policy that names a CPU that there is not.
#[derive(Debug, Default)]
struct Elsewhere;

impl GuestPolicy for Elsewhere {
    fn about(&self) -> &'static str {
        "names no CPU"
    }

    fn place(&self, cpus: &Cpus<'_>, _: Placed, _: CpuId) -> CpuId {
        assert_eq!((cpus.load(CpuId(99)), cpus.steal_ns(CpuId(99))), (0, 0));
        CpuId(99)
    }

    fn tick(&self, _: &Cpus<'_>, _: Option<TaskId>) -> Option<CpuId> {
        Some(CpuId(u32::MAX))
    }
}

#[test]
fn a_policy_without_answers_is_the_kernel() {
    let kernel = play(&guest(GuestPolicyKind::KERNEL, 3)).history_hash;
    let policies = [
        GuestPolicyKind::of::<Nothing>("nothing"),
        GuestPolicyKind::of::<Elsewhere>("elsewhere"),
    ];
    for policy in policies {
        assert_eq!(play(&guest(policy.clone(), 3)).history_hash, kernel, "{policy:?}");
    }
}

/// A policy that says that each CPU waits for the answer of `CPU`.
#[derive(Debug, Default)]
struct Waits<const CPU: u32>;

impl<const CPU: u32> GuestPolicy for Waits<CPU> {
    fn about(&self) -> &'static str {
        "waits for a CPU"
    }

    fn word(&self, _: &Cpus<'_>, kernel: u32) -> u32 {
        kernel | StealTime::WAITS_FOR_IPI | CPU << StealTime::TARGET_SHIFT
    }
}

/// Returns the number of answers that were refused, if it is counted.
fn refused(policy: &GuestPolicyKind) -> Option<u64> {
    let mut config = guest(policy.clone(), 3);
    config.vms[0].host.guest_word = true;
    play(&config).vms[0].counters.get("guest.policy_refusals").copied()
}

#[test]
fn answers_against_the_rules_are_refused_and_counted() {
    assert_eq!(refused(&GuestPolicyKind::KERNEL), None, "there is no policy");
    let right = [
        GuestPolicyKind::of::<Nothing>("nothing"),
        GuestPolicyKind::of::<OneCpu>("one"),
        GuestPolicyKind::of::<StealGovernor<10>>("governed"),
    ];
    for policy in right {
        assert_eq!(refused(&policy), Some(0), "{policy:?}");
    }
    let at_least = |policy, least| {
        let found = refused(&policy).expect("it is counted");
        assert!(found >= least, "{policy:?}: {found}, expected at least {least}");
    };
    // New tasks, and ticks.
    at_least(GuestPolicyKind::of::<Elsewhere>("elsewhere"), 4 + 100);
    // Each lock and unlock changes the word.
    at_least(GuestPolicyKind::of::<Waits<99>>("unknown"), 8_000);
    // Only the CPU that it names waits for itself.
    let [itself, unknown] = [
        GuestPolicyKind::of::<Waits<2>>("itself"),
        GuestPolicyKind::of::<Waits<4>>("the first that there is not"),
    ]
    .map(|policy| refused(&policy).expect("it is counted"));
    assert!(0 < itself && itself < unknown / 2, "{itself} and {unknown}");
}

/// A policy that has all tasks on CPU 0.
#[derive(Debug, Default)]
struct OneCpu;

impl GuestPolicy for OneCpu {
    fn about(&self) -> &'static str {
        "all tasks are on CPU 0"
    }

    fn place(&self, _: &Cpus<'_>, _: Placed, _: CpuId) -> CpuId {
        CpuId(0)
    }

    fn takes(&self, _: &Cpus<'_>, to: CpuId) -> bool {
        to == CpuId(0)
    }
}

#[test]
fn tasks_are_where_the_policy_has_them() {
    let spread = elapsed(&guest(GuestPolicyKind::KERNEL, 0));
    let one = elapsed(&guest(GuestPolicyKind::of::<OneCpu>("one"), 0));
    assert!(one > 3 * spread, "{one} ns on one CPU, {spread} ns on four");
}

#[test]
fn the_steal_governor_uses_fewer_cpus_only_while_time_is_stolen() {
    let governed = GuestPolicyKind::of::<StealGovernor<10>>("governed");
    let [alone, without] = [governed.clone(), GuestPolicyKind::KERNEL].map(|policy| elapsed(&guest(policy, 0)));
    assert!(
        alone < without + without / 20,
        "alone {alone} ns, without it {without} ns"
    );
    let stolen = |policy| {
        let outcome = play(&guest(policy, 4));
        outcome.vms[0].counters["steal_ns"]
    };
    let (governed, kernel) = (stolen(governed), stolen(GuestPolicyKind::KERNEL));
    assert!(
        governed < kernel / 2,
        "{governed} ns are stolen, without it {kernel} ns"
    );
}
