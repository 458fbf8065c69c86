//! The rules of advice, on small accounts: what each is about makes it speak, and nothing else does.

use std::collections::BTreeMap;

use holdfast_lab::advise::{Effort, Proposal, proposals};
use holdfast_recordings::account::{
    Account, Basis, CpuAccount, Figure, Named, OtherThread, Pace, SCHEMA, VcpuAccount, VmAccount,
};
use holdfast_recordings::hosts::Feature;
use holdfast_recordings::timeline::{Faults, Seen};

/// Returns the account of a VM whose vCPUs may use the pCPUs of `allowed`, with these figures.
fn vm(name: &str, allowed: &[&str], figures: &[(&'static str, f64)]) -> VmAccount {
    let known = |name: &'static str, value: f64| Figure::known(name, value);
    let vcpus = allowed.iter().enumerate().map(|(number, allowed)| VcpuAccount {
        number: Some(number as u32),
        thread: 101 + number as u32,
        name: format!("CPU {number}/KVM"),
        from_ns: 0,
        gone_ns: None,
        allowed: Some((*allowed).to_owned()),
        figures: Vec::new(),
        pace: Pace::default(),
    });
    let vcpus: Vec<VcpuAccount> = vcpus.collect();
    let ready = figures
        .iter()
        .find(|(name, _)| *name == "ready_percent")
        .map_or(0.0, |(_, value)| *value);
    let ran = figures
        .iter()
        .find(|(name, _)| *name == "guest_percent")
        .map_or(0.0, |(_, value)| *value);
    let mut all: Vec<Figure> = figures.iter().map(|(name, value)| known(name, *value)).collect();
    all.extend([
        known("recorded_s", 10.0 * vcpus.len() as f64),
        known("ready_ms_per_20s", ready * vcpus.len() as f64 * 200.0),
        known("ready_of_wanted_percent", ready / f64::max(ready + ran, 1e-9) * 100.0),
    ]);
    VmAccount {
        name: name.to_owned(),
        process: Some(100),
        quota: None,
        features: Vec::new(),
        groups: None,
        figures: all,
        behind: Vec::new(),
        exits: Vec::new(),
        wakers: Vec::new(),
        ipis: Vec::new(),
        kicks: Vec::new(),
        counters: BTreeMap::new(),
        vcpus,
    }
}

/// Returns the account of a host with a pCPU for each of `idle`, in percent.
fn host(idle: &[f64], vms: Vec<VmAccount>) -> Account {
    let cpus = idle.iter().enumerate().map(|(cpu, idle)| CpuAccount {
        cpu: cpu as u32,
        vcpus_percent: 100.0 - idle,
        threads_percent: 0.0,
        idle_percent: *idle,
        unknown_percent: 0.0,
    });
    Account {
        schema: SCHEMA,
        sentence: String::new(),
        begin_ns: 0,
        length_ns: 10_000_000_000,
        kernel: Some("6.1.0-56-amd64".to_owned()),
        preemption: None,
        halt_poll_ns: Some(200_000),
        faults: Faults::default(),
        seen: Seen::default(),
        vms,
        threads: Vec::new(),
        others: Vec::new(),
        idle_exit_ns: None,
        cpus: cpus.collect(),
        places: Vec::new(),
        worst: None,
        names_without_entry: 0,
        file_faults: Vec::new(),
    }
}

/// Returns the proposals of `rule`.
fn of(rule: &str, account: &Account) -> Vec<Proposal> {
    let all = proposals(account).into_iter();
    all.filter(|proposal| proposal.rule == rule).collect()
}

fn set<'p>(proposal: &'p Proposal, end: &str) -> &'p str {
    let found = proposal.set.iter().find(|(key, _)| key.ends_with(end));
    &found.unwrap_or_else(|| panic!("no {end} in {proposal:?}")).1
}

const WAITS: [(&str, f64); 2] = [("ready_percent", 40.0), ("guest_percent", 40.0)];

fn with(more: &[(&'static str, f64)]) -> Vec<(&'static str, f64)> {
    [&WAITS[..], more].concat()
}

#[test]
fn a_host_without_waits_needs_no_advice() {
    let figures = [
        ("guest_percent", 50.0),
        ("pause_exits_per_s", 900.0),
        ("polling_percent", 10.0),
        ("behind_siblings_percent", 100.0),
        ("until_exit_percent", 100.0),
    ];
    let account = host(&[0.0, 0.0], vec![vm("web", &["0-1"; 4], &figures)]);
    assert_eq!(proposals(&account), []);
}

#[test]
fn a_quota_that_throttles_is_raised_to_what_the_vm_wants() {
    let figures = with(&[("throttled_percent", 60.0), ("halted_percent", 20.0)]);
    let mut account = host(&[50.0, 50.0], vec![vm("vm 100", &["0-1", "0-1"], &figures)]);
    assert!(of("quota", &account).is_empty(), "it has none");
    account.vms[0].quota = Some(0.3);
    let found = of("quota", &account);
    // Two vCPUs that are halted for a fifth of the time.
    assert_eq!(set(&found[0], "cpu.max"), "\"160000 100000\"");
    let group = "/sys/fs/cgroup$(cut -d: -f3- /proc/100/cgroup)/cpu.max";
    assert_eq!(found[0].apply, format!("echo '160000 100000' > {group}"));
    assert_eq!(found[0].undo, format!("echo '30000 100000' > {group}"));
    assert_eq!(
        (set(&found[1], "burst"), set(&found[2], "cpu.max")),
        ("\"30000 us\"", "\"max\"")
    );
    // A quota that never throttles is no cause.
    let mut free = host(
        &[50.0, 50.0],
        vec![vm("vm 100", &["0-1"], &with(&[("throttled_percent", 0.0)]))],
    );
    free.vms[0].quota = Some(0.3);
    assert!(of("quota", &free).is_empty());
}

#[test]
fn own_threads_go_to_the_pcpus_that_no_vcpu_may_use() {
    let figures = with(&[("behind_own_threads_percent", 30.0), ("behind_own_vhost_percent", 15.0)]);
    let account = host(&[0.0, 90.0, 80.0], vec![vm("web", &["0"], &figures)]);
    let found = of("own-threads", &account);
    assert_eq!(found[0].apply, "virsh emulatorpin web 1-2");
    assert_eq!(found[0].undo, "virsh emulatorpin web 0-2");
    assert!(found[0].set.is_empty(), "which thread it is is not known");
    assert!((found[0].at_most_ms_per_20s.expect("a bound") - 8000.0 * 0.45).abs() < 1e-9);
    assert_eq!(found[0].effort, Effort::Mistake, "they share a pin");
    let mut known = account.clone();
    let other = |thread, process, allowed: &str| OtherThread {
        thread,
        process: Some(process),
        allowed: Some(allowed.to_owned()),
    };
    known.others = vec![other(7, 2, "2"), other(150, 100, "0")];
    let found = of("own-threads", &known);
    assert_eq!(set(&found[0], "vm.host-threads.affinity"), r#"["2", "1-2"]"#);
    assert_eq!(found[0].undo, "virsh emulatorpin web 0");
    let one = host(&[0.0], vec![vm("web", &["0"], &figures)]);
    assert!(of("own-threads", &one).is_empty(), "there is no other pCPU");
    let mut there = host(&[50.0, 0.0], vec![vm("web", &["0-1"], &figures)]);
    there.others = vec![other(150, 100, "0")];
    assert!(of("own-threads", &there).is_empty(), "they are on the idlest pCPU");
    there.others = vec![other(150, 100, "1")];
    let found = of("own-threads", &there);
    assert_eq!(found[0].apply, "virsh emulatorpin web 0");
    assert_eq!(found[0].effort, Effort::Setting, "the vCPUs are not pinned");
    let rare = with(&[("behind_own_threads_percent", 3.0)]);
    assert!(of("own-threads", &host(&[0.0, 90.0], vec![vm("web", &["0"], &rare)])).is_empty());
}

#[test]
fn siblings_on_one_pcpu_are_spread() {
    let figures = with(&[("behind_siblings_percent", 90.0)]);
    // Stacked by pins, though another pCPU idles.
    let account = host(&[0.0, 95.0], vec![vm("web", &["0", "0"], &figures)]);
    let found = of("siblings", &account);
    assert_eq!(set(&found[0], "affinity"), r#"["1", "0"]"#);
    assert_eq!(found[0].effort, Effort::Mistake);
    assert_eq!(
        found[0].apply,
        "for p in 0:1 1:0; do virsh vcpupin web ${p%:*} ${p#*:}; done"
    );
    assert_eq!(
        found[0].undo,
        "for p in 0:0 1:0; do virsh vcpupin web ${p%:*} ${p#*:}; done"
    );
    // Where there is room in the pins, they are kept.
    let account = host(&[0.0, 0.0, 0.0, 99.0], vec![vm("vm 100", &["0-1", "0-1"], &figures)]);
    let found = of("siblings", &account);
    assert_eq!(set(&found[0], "affinity"), r#"["0", "1"]"#);
    assert_eq!(found[0].effort, Effort::Setting, "no pin is wrong");
    assert!(
        found[0].apply.starts_with("for p in 101:0 102:1; do taskset -pc"),
        "{}",
        found[0].apply
    );
    // More pCPUs than vCPUs: sets of several, which share none.
    let account = host(&[0.0; 4], vec![vm("web", &["0-3", "0-3"], &figures)]);
    assert_eq!(set(&of("siblings", &account)[0], "affinity"), r#"["0,2", "1,3"]"#);
    // Already spread.
    let account = host(&[0.0, 0.0], vec![vm("web", &["0", "1"], &figures)]);
    assert!(of("siblings", &account).is_empty());
}

#[test]
fn polling_costs_only_where_others_wait() {
    let polls = |percent: f64| vm("web", &["0"], &[("polling_percent", percent)]);
    let waits = || vm("db", &["0"], &WAITS);
    let found = of("polling", &host(&[0.0], vec![polls(20.0), waits()]));
    assert_eq!(
        (set(&found[0], "halt_poll"), set(&found[1], "halt_poll")),
        ("\"0 ns\"", "\"25000 ns\"")
    );
    assert_eq!(found[0].undo, "echo 200000 > /sys/module/kvm/parameters/halt_poll_ns");
    assert!(
        of("polling", &host(&[0.0], vec![polls(20.0)])).is_empty(),
        "no VM waits"
    );
    assert!(
        of("polling", &host(&[0.0], vec![polls(0.1), waits()])).is_empty(),
        "next to nothing"
    );
    assert_eq!(found[0].effort, Effort::Setting, "it is KVM's default");
    let mut longer = host(&[0.0], vec![polls(0.1), waits()]);
    longer.halt_poll_ns = Some(10_000_000);
    assert_eq!(of("polling", &longer)[0].effort, Effort::Mistake, "set by hand");
}

/// vCPUs that have 1.4 pCPUs and work for 0.9 of them need 1.25, since they are throttled for a fourth of the time.
#[test]
fn a_quota_that_polling_spends_is_no_mistake_and_the_polling_is() {
    let figures = [
        ("ready_percent", 26.0),
        ("guest_percent", 39.0),
        ("host_percent", 7.0),
        ("polling_percent", 24.0),
        ("throttled_percent", 26.0),
    ];
    let efforts = |quota: f64, halt_poll_ns: u64| {
        let mut account = host(&[30.0, 30.0], vec![vm("web", &["0", "1"], &figures)]);
        account.vms[0].quota = Some(quota);
        account.halt_poll_ns = Some(halt_poll_ns);
        let polling = of("polling", &account);
        let seen = polling[0].seen.contains("spends the quota of web");
        (of("quota", &account)[0].effort, polling[0].effort, seen)
    };
    assert_eq!(efforts(1.4, 10_000_000), (Effort::Setting, Effort::Mistake, true));
    assert_eq!(
        efforts(1.2, 10_000_000),
        (Effort::Mistake, Effort::Mistake, false),
        "not enough"
    );
    assert_eq!(
        efforts(1.4, 200_000),
        (Effort::Mistake, Effort::Setting, false),
        "not by hand"
    );
}

#[test]
fn lazy_preemption_is_advised_about_where_the_kernel_has_it() {
    let mut account = host(&[0.0], vec![vm("web", &["0"], &with(&[("until_exit_percent", 70.0)]))]);
    assert!(of("lazy-preemption", &account).is_empty(), "6.1 has none");
    account.kernel = Some("7.3.4-cloud-amd64".to_owned());
    assert_eq!(set(&of("lazy-preemption", &account)[0], "host.preempt"), "\"full\"");
    account.preemption = Some("full".to_owned());
    assert!(of("lazy-preemption", &account).is_empty(), "it is off");
    account.preemption = Some("lazy".to_owned());
    let unknown = with(&[("until_exit_percent", 9.0), ("behind_unknown_percent", 40.0)]);
    account.vms[0] = vm("web", &["0"], &unknown);
    assert_eq!(
        of("lazy-preemption", &account).len(),
        1,
        "15 % of the waits that are known"
    );
    account.vms[0] = vm("web", &["0"], &with(&[("until_exit_percent", 2.0)]));
    assert!(
        of("lazy-preemption", &account).is_empty(),
        "no wait lasts until an exit"
    );
}

#[test]
fn pause_exits_without_kicks_are_locks_that_do_not_halt() {
    let figures = with(&[("pause_exits_per_s", 500.0), ("spun_percent", 12.0)]);
    let mut account = host(&[0.0], vec![vm("web", &["0", "0"], &figures)]);
    let found = of("no-pv-locks", &account);
    assert!(found[0].remedy.starts_with("offer PV spinlocks") && found[0].set.is_empty());
    assert_eq!((found[0].at_most_ms_per_20s, found[0].basis), (None, Basis::Inferred));
    let calls = Named {
        name: "VMCALL".to_owned(),
        count: 9,
        ns: 9,
    };
    account.vms[0].exits.push(calls);
    assert!(of("no-pv-locks", &account)[0].remedy.ends_with("without nopvspin"));
    let kicks = with(&[("pause_exits_per_s", 500.0), ("kicks_per_s", 3.0)]);
    assert!(of("no-pv-locks", &host(&[0.0], vec![vm("web", &["0", "0"], &kicks)])).is_empty());
    let alone = host(&[0.0], vec![vm("web", &["0"], &figures)]);
    assert!(of("no-pv-locks", &alone).is_empty(), "one vCPU has no lock to wait for");
}

/// Returns what is advised for a VM of two vCPUs that waits, whose files say `features`: each with its name, whether it
/// is on, and whether that is the VMM's default.
fn with_features(features: &[(&str, bool, bool)], figures: &[(&'static str, f64)]) -> Vec<Proposal> {
    let mut account = host(&[0.0], vec![vm("web", &["0", "0"], &with(figures))]);
    let feature = |(name, on, is_default): &(&str, bool, bool)| Feature {
        name: (*name).to_owned(),
        on: *on,
        is_default: *is_default,
        from: format!("said of {name}"),
    };
    account.vms[0].features = features.iter().map(feature).collect();
    of("no-pv-locks", &account)
}

#[test]
fn features_that_are_off_are_known_without_any_spin() {
    let quiet = [("kicks_per_s", 0.0)];
    let found = with_features(
        &[("kvm-pv-unhalt", false, false), ("kvm-steal-time", false, false)],
        &quiet,
    );
    assert_eq!((found[0].basis, found[0].at_most_ms_per_20s), (Basis::Known, None));
    assert_eq!(found[0].remedy, "offer PV spinlocks, and kvm-steal-time to web");
    assert!(
        found[0]
            .apply
            .starts_with("VMM: -cpu host,kvm=on,kvm-pv-unhalt=on (and kvm-steal-time=on);")
    );
    assert!(found[0].seen.ends_with("said of kvm-pv-unhalt"), "{}", found[0].seen);
    let found = with_features(&[("nopvspin", true, false)], &quiet);
    assert_eq!(
        (found[0].basis, &*found[0].undo),
        (Basis::Known, "in the guest: boot with nopvspin")
    );
    // What says nothing against a guest: no word, a feature of another kind, locks that are offered, kicks.
    for features in [
        &[][..],
        &[("kvm-steal-time", false, false)],
        &[("kvm-pv-unhalt", true, false)],
    ] {
        assert!(with_features(features, &quiet).is_empty(), "{features:?}");
    }
    let off = [("kvm-pv-unhalt", false, false)];
    assert!(
        with_features(&off, &[("kicks_per_s", 3.0)]).is_empty(),
        "it kicks, so it has them"
    );
}

#[test]
fn a_default_of_the_vmm_needs_spins_to_be_believed() {
    let default = [("kvm-pv-unhalt", false, true)];
    assert!(
        with_features(&default, &[("kicks_per_s", 0.0)]).is_empty(),
        "it may never contend"
    );
    let found = with_features(&default, &[("pause_exits_per_s", 500.0)]);
    assert_eq!(found[0].basis, Basis::Inferred);
}

#[test]
fn directed_yields_that_miss_are_counted() {
    let figures = with(&[
        ("pause_exits_per_s", 500.0),
        ("spun_percent", 12.0),
        ("kicks_per_s", 3.0),
    ]);
    let mut account = host(&[0.0], vec![vm("web", &["0", "0"], &figures)]);
    assert!(of("pause-window", &account).is_empty(), "no counters");
    let mut count = |hits: u64| {
        let counters = [("directed_yield_attempted", 100), ("directed_yield_successful", hits)];
        account.vms[0].counters = counters.map(|(name, count)| (name.to_owned(), count)).into();
        of("pause-window", &account).len()
    };
    assert_eq!((count(10), count(90)), (1, 0));
}

#[test]
fn exits_for_an_interrupt_window_say_that_apic_virtualization_is_off() {
    let exits = |window: u64| {
        let exit = |name: &str, count| Named {
            name: name.to_owned(),
            count,
            ns: count * 1_000_000,
        };
        let mut account = host(&[0.0], vec![vm("web", &["0"], &WAITS)]);
        account.vms[0].exits = vec![exit("INTERRUPT_WINDOW", window), exit("HLT", 100)];
        of("interrupts", &account).len()
    };
    assert_eq!((exits(1), exits(50)), (0, 1));
}

#[test]
fn busy_pcpus_with_more_vcpus_are_too_few() {
    let vms = || vec![vm("web", &["0-1"; 4], &WAITS), vm("db", &["0-1"; 2], &WAITS)];
    let found = of("too-many", &host(&[1.0, 2.0], vms()));
    let moved: Vec<&str> = found
        .iter()
        .filter(|found| !found.set.is_empty())
        .map(|found| &*found.remedy)
        .collect();
    assert_eq!(moved, ["move web to another host", "move db to another host"]);
    // web had 1.6 pCPUs, so two vCPUs would have done; db had 0.8.
    let fewer: Vec<&str> = found
        .iter()
        .filter(|found| found.set.is_empty())
        .map(|found| &*found.remedy)
        .collect();
    assert_eq!(
        fewer,
        [
            "give web fewer vCPUs: 2 would have done its work",
            "give db fewer vCPUs: 1 would have done its work"
        ]
    );
    assert!(
        of("too-many", &host(&[40.0, 2.0], vms())).is_empty(),
        "the pCPUs are not busy"
    );
    assert!(
        of("too-many", &host(&[0.0; 6], vms())).is_empty(),
        "there is a pCPU for each"
    );
}
