//! Live migration under hackbench: every interrupt that a LAPIC accepts is taken once, whatever delivers it and
//! wherever its vCPU moves, and planted faults are found.

use holdfast_host::{PauseHandling, SchedConfig, SchedulerKind};
use holdfast_locks::LockKind;
use holdfast_machine::AvicModel;
use holdfast_sim::{
    Audited, CallOff, Config, Destination, DirtyLog, Failure, Fate, Journey, Migration, MigrationFaults, Move, Outcome,
    Precopy, Vm, run_migrating,
};
use holdfast_workloads::{Boot, Hackbench, Kernbench, KernelConfig, Workload};

use crate::apicv::apicv_config;
use crate::avic::{avic_config, counter, part};
use crate::image::{Random, config};

/// hackbench in a guest of 4 vCPUs, on 4 pCPUs that it shares with three others.
pub fn hackbench(mut config: Config, loops: u32) -> Config {
    config.vms[0].boot = Boot {
        kernel: KernelConfig {
            lock: LockKind::PvQspin,
            hz: 250,
            wake_wide: true,
            ..KernelConfig::default()
        },
        workload: Workload::Hackbench(Hackbench {
            groups: 4,
            pairs: 5,
            loops,
            ..Hackbench::default()
        }),
        ..Boot::default()
    };
    config.host.hz = 250;
    config.limit_ns = 30_000_000_000;
    config
}

fn avic(seed: u64) -> Config {
    avic_config(4, 4, 3, seed)
}

fn x2avic(seed: u64) -> Config {
    let mut config = avic(seed);
    let mut part = part();
    part.hardware.x2avic = true;
    config.machine.avic = Some(AvicModel { family: 0x19, ..part });
    config.host.avic.x2avic = true;
    config
}

/// `count` migrations at random moments, and about as many moves between pCPUs.
fn journey(count: usize, faults: MigrationFaults, seed: u64) -> Journey {
    let mut random = Random(seed);
    let migrations = (0..count).map(|_| Migration {
        after_ns: 1 + random.next(600_000),
        downtime_ns: random.next(200_000),
        mp_state_only: false,
        copy: None,
    });
    let migrations = migrations.collect();
    let moves = (0..count).map(|_| Move {
        after_ns: 1 + random.next(600_000),
        vcpu: random.next(4) as u32,
        to: random.next(4) as u32,
    });
    Journey {
        migrations,
        moves: moves.collect(),
        faults,
        ..Journey::default()
    }
}

fn travel(config: &Config, journey: &Journey) -> Result<(Outcome, Audited), Failure> {
    run_migrating(config, &CallOff::new(), journey, |vm, machine| {
        holdfast_workloads::image(machine, &vm.boot)
    })
}

/// `count` migrations in one run, none of which loses or doubles an interrupt.
fn all_arrive(config: Config, count: usize) -> (Outcome, Audited) {
    // Enough work for the workload to outlast the migrations.
    let config = hackbench(config, count as u32 * 12);
    let journey = journey(count, MigrationFaults::default(), config.seed);
    let (outcome, audited) = travel(&config, &journey).unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(audited.migrations, count as u64, "hackbench ended first");
    let mut all = Fate::default();
    for (vector, fate) in &audited.by_vector {
        println!("vector {vector:#x}: {fate:?}");
        all.sent += fate.sent;
        all.coalesced += fate.coalesced;
        all.taken += fate.taken;
    }
    println!(
        "{count} migrations, {} sent, {} moves, {all:?}, end {} ns",
        audited.sent, audited.moves, outcome.end_ns
    );
    (outcome, audited)
}

#[test]
fn live_migration_under_avic_loses_and_doubles_nothing() {
    let (outcome, audited) = all_arrive(avic(1), 60);
    assert!(counter(&outcome, "avic_ipis_without_exit") > 1000);
    assert!(counter(&outcome, "avic_incomplete_ipi_1") > 10);
    assert!(audited.moves > 30);
}

#[test]
fn so_it_does_however_interrupts_are_delivered() {
    let (outcome, _) = all_arrive(x2avic(2), 60);
    assert!(counter(&outcome, "avic_ipis_without_exit") > 1000);
    for sends in [true, false] {
        let (outcome, _) = all_arrive(apicv_config(sends, 4, 4, 3, 3), 30);
        assert!(counter(&outcome, "apicv_interrupts") > 200);
    }
    let (outcome, _) = all_arrive(config(4, 4, 3, 4), 30);
    assert!(counter(&outcome, "irq_injections") > 200, "the emulated LAPIC");
}

/// `config`, whose guests migrate to a host as `there` makes it of the first, and back.
fn unlike(config: Config, there: impl FnOnce(&mut Destination)) -> Config {
    let mut other = Destination {
        host: config.host.clone(),
        machine: config.machine.clone(),
    };
    there(&mut other);
    Config {
        destination: Some(Box::new(other)),
        ..config
    }
}

/// Pairs of hosts that differ in the scheduler, the pause handler, and what delivers interrupts.
fn pairs(seed: u64) -> Vec<(&'static str, Config)> {
    let older = |there: &mut Destination| {
        there.host.sched = SchedConfig::of(SchedulerKind::Cfs33);
        there.host.pause = PauseHandling::SLEEP_2010;
        there.host.hz = 1000;
    };
    let intel = apicv_config(true, 4, 4, 3, seed);
    let to_intel = |there: &mut Destination| {
        (there.host.apicv, there.machine.apicv) = (intel.host.apicv, intel.machine.apicv);
        (there.host.avic, there.machine.avic) = Default::default();
        there.host.sched = SchedConfig::of(SchedulerKind::Eevdf66);
        there.machine.pause_hardware = None;
    };
    vec![
        (
            "avic, none",
            unlike(avic(seed), |there| {
                there.host.avic = Default::default();
                older(there);
            }),
        ),
        ("apicv, avic", unlike(avic(seed), to_intel)),
        ("x2avic, apicv", unlike(x2avic(seed), to_intel)),
        (
            "x2avic, avic",
            unlike(x2avic(seed), |there| there.host.avic.x2avic = false),
        ),
    ]
}

#[test]
fn between_unlike_hosts_nothing_is_lost_or_doubled() {
    for (what, config) in pairs(3) {
        println!("{what}");
        let (_, audited) = all_arrive(config, 30);
        assert!(audited.moves > 30, "{what}");
    }
}

/// As many kicks arrive as the locks' waiters need, and sleeps end at their time: work and ticks go on as on one host.
#[test]
fn unlike_hosts_end_the_same_work() {
    for (what, config) in pairs(4) {
        let config = hackbench(config, 60);
        let journey = journey(20, MigrationFaults::default(), 4);
        let (outcome, _) = travel(&config, &journey).unwrap_or_else(|failure| panic!("{what}: {failure}"));
        assert_eq!(outcome.vms[0].counters["migrations"], 20, "{what}");
    }
}

/// Migrations that come before a time slice is over do not keep a guest from running.
#[test]
fn no_guest_is_first_on_every_new_host() {
    let mut config = hackbench(config(4, 4, 3, 6), 1);
    let mut build = Workload::Kernbench(Kernbench::default());
    build.scale_work(0.001);
    config.vms[0].boot.workload = build;
    let hogs = Vm {
        name: "hogs".to_owned(),
        boot: Boot {
            workload: Workload::Hog(Default::default()),
            ..config.vms[0].boot.clone()
        },
        measured: false,
        ..config.vms[0].clone()
    };
    config.vms.push(hogs);
    config.tasks.clear();
    config.migration = Some(Migration {
        after_ns: 1_000_000,
        downtime_ns: 100_000,
        mp_state_only: false,
        copy: None,
    });
    let outcome = holdfast_sim::run(&config, &CallOff::new()).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(outcome.vms[0].counters["migrations"] > 10);
}

/// `config` with a kernel build, whose memory is copied before each stop, at `rate` bytes a second.
fn copied(config: Config, rate: u64, log: DirtyLog, downtime_ns: u64) -> Config {
    let mut build = Workload::Kernbench(Kernbench::default());
    build.scale_work(0.002);
    let mut config = hackbench(config, 1);
    config.vms[0].boot.workload = build;
    config.migration = Some(Migration {
        after_ns: 2_000_000,
        downtime_ns,
        mp_state_only: false,
        copy: Some(Precopy {
            bytes_per_second: rate,
            rounds_max: Some(20),
            auto_converge: false,
            log,
        }),
    });
    config
}

fn copies(config: &Config) -> [u64; 4] {
    let outcome = holdfast_sim::run(config, &CallOff::new()).unwrap_or_else(|failure| panic!("{failure}"));
    let names = [
        "migrations",
        "migration_rounds",
        "migration_pages",
        "migration_downtime_ns",
    ];
    names.map(|name| outcome.vms[0].counters[name])
}

#[test]
fn a_faster_link_needs_fewer_rounds_and_less_downtime() {
    let with = |rate| copies(&copied(config(4, 4, 0, 7), rate, DirtyLog::WriteProtection, 500_000));
    let [slow, fast] = [with(1 << 30), with(8 << 30)];
    println!("slow {slow:?}, fast {fast:?}");
    assert!(slow[0] > 0 && fast[0] > slow[0], "a fast link migrates more often");
    assert!(slow[1] * fast[0] > fast[1] * slow[0], "rounds of a migration");
    assert!(slow[3] * fast[0] > fast[3] * slow[0], "downtime of a migration");
    assert!(
        fast[3] <= fast[0] * 500_000,
        "a copy that converges keeps to the downtime allowed"
    );
}

#[test]
fn a_guest_pays_for_written_pages_by_exits_and_less_with_a_page_log() {
    let exits = |log| {
        let outcome = holdfast_sim::run(&copied(config(4, 4, 0, 7), 1 << 30, log, 500_000), &CallOff::new());
        let outcome = outcome.unwrap_or_else(|failure| panic!("{failure}"));
        outcome.vms[0].counters["measured_exits.exit_nested_fault"]
    };
    let (protected, logged) = (exits(DirtyLog::WriteProtection), exits(DirtyLog::Hardware));
    println!("{protected} exits by write protection, {logged} by a log");
    assert!(protected > logged + 1000);
}

#[test]
fn between_unlike_hosts_a_copy_loses_and_doubles_nothing() {
    for (what, config) in pairs(5) {
        let config = copied(config, 1 << 30, DirtyLog::WriteProtection, 300_000);
        let [migrations, ..] = copies(&config);
        assert!(migrations > 5, "{what}: {migrations}");
    }
}

/// The first failure of a few runs with a step left out.
fn found(config: impl Fn(u64) -> Config, faults: MigrationFaults) -> Failure {
    let run = |seed| travel(&hackbench(config(seed), 500), &journey(40, faults, seed));
    let mut runs = (1..6).filter_map(|seed| run(seed).err());
    runs.next().expect("the fault is found")
}

#[test]
fn requests_that_stay_behind_are_found() {
    let faults = MigrationFaults {
        without_requests: true,
        ..MigrationFaults::default()
    };
    let failure = found(avic, faults);
    assert!(matches!(failure, Failure::LostInterrupt(_)), "{failure}");
}

#[test]
fn a_sleeper_that_no_kick_reaches_any_more_is_found() {
    let faults = MigrationFaults {
        without_flags: true,
        ..MigrationFaults::default()
    };
    let failure = found(avic, faults);
    assert!(matches!(failure, Failure::LostInterrupt(_)), "{failure}");
}

#[test]
fn a_vector_under_way_into_its_vcpu_that_stays_behind_is_found() {
    let faults = MigrationFaults {
        without_injection: true,
        ..MigrationFaults::default()
    };
    let failure = found(|seed| config(4, 4, 3, seed), faults);
    assert!(matches!(failure, Failure::LostInterrupt(_)), "{failure}");
}

#[test]
fn a_host_id_of_before_the_move_is_found() {
    let stale = |seed| {
        let mut config = avic(seed);
        config.host.planted.avic.stale_host_id = true;
        config
    };
    let failure = found(stale, MigrationFaults::default());
    assert!(matches!(failure, Failure::LostInterrupt(_)), "{failure}");
}

/// A configuration that migrates its guests again and again does so until the workload ends.
#[test]
fn a_run_migrates_again_and_again() {
    let every = Migration {
        after_ns: 500_000,
        downtime_ns: 100_000,
        mp_state_only: false,
        copy: None,
    };
    let config = Config {
        migration: Some(every),
        ..hackbench(avic(5), 100)
    };
    let outcome = holdfast_sim::run(&config, &CallOff::new()).unwrap_or_else(|failure| panic!("{failure}"));
    let period = every.after_ns + every.downtime_ns;
    let migrations = counter(&outcome, "migrations");
    assert!(migrations > 20, "{migrations}");
    assert!(
        migrations <= outcome.end_ns / period,
        "{migrations} in {} ns",
        outcome.end_ns
    );
}

#[test]
#[ignore = "the long form: a thousand migrations, and under AVIC, x2AVIC, Intel's counterparts and the emulated LAPIC each"]
fn a_thousand_live_migrations_under_hackbench() {
    let intel = |sends| apicv_config(sends, 4, 4, 3, 1);
    for config in [avic(1), x2avic(1), intel(true), intel(false), config(4, 4, 3, 1)] {
        all_arrive(config, 1000);
    }
}

#[test]
#[ignore = "the long form: a thousand migrations between unlike hosts, for each pair"]
fn a_thousand_live_migrations_between_unlike_hosts() {
    for (what, config) in pairs(1) {
        println!("{what}");
        all_arrive(config, 1000);
    }
}
