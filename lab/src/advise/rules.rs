//! The rules: what is seen in an account, and the remedy for it.

use holdfast_recordings::account::Basis;
use holdfast_recordings::hosts::list;

use super::facts::{Facts, READY, Vm};
use super::proposal::{Effort, Measure, Proposal};
use super::spins::{no_pv_locks, pause_window};
use crate::replay::{HOST_THREADS, listed};

/// A rule. It proposes nothing where the account does not show what it is about.
pub type Rule = fn(&Facts<'_>) -> Vec<Proposal>;

/// The rules. Of equal worth, the earlier one is said first.
pub const RULES: [Rule; 9] = [
    quota,
    own_threads,
    siblings,
    polling,
    lazy_preemption,
    no_pv_locks,
    pause_window,
    interrupts,
    too_many,
];

/// Share of a VM's waits from which on what they are behind is worth advice, in percent.
const BEHIND: f64 = 20.0;
/// Share of a VM's waits that last until another guest's exit, from which on lazy preemption is worth advice, in
/// percent. No other model makes any.
const UNTIL_EXIT: f64 = 10.0;
/// Idle share of the pCPUs from which on they are not too few, in percent.
const IDLE: f64 = 10.0;
/// KVM's default of the longest time for which a halted vCPU polls, in ns, on x86.
const HALT_POLL_NS: u64 = 200_000;
/// Length of a period of a quota, in us: the kernel's default.
const PERIOD_US: f64 = 100_000.0;

/// Returns the effort of a setting, `is_mistake`: which was set by hand.
fn mistake(is_mistake: bool) -> Effort {
    if is_mistake { Effort::Mistake } else { Effort::Setting }
}

/// Returns the longest time for which halted vCPUs are polled for, in ns, if it was made longer by hand.
fn polls_long(facts: &Facts<'_>) -> Option<u64> {
    facts.account.halt_poll_ns.filter(|ns| *ns > HALT_POLL_NS)
}

/// Returns whether `vm` would have enough of its quota if the host did not poll for its halted vCPUs longer than by
/// default. While it was throttled it wanted the same mix of polling and work.
fn polls_quota_away(facts: &Facts<'_>, vm: &Vm<'_>) -> bool {
    let (throttled, polled) = (vm.figure("throttled_percent"), vm.figure("polling_percent"));
    let worked = vm.figure("guest_percent") + vm.figure("host_percent");
    let needs = vm.account.vcpus.len() as f64 * worked / (100.0 - throttled.clamp(0.0, 99.0));
    let quota = vm.account.quota.unwrap_or(f64::INFINITY);
    polls_long(facts).is_some() && throttled >= READY && polled > 0.0 && worked > 0.0 && needs <= quota
}

fn key(vm: &Vm<'_>, name: &str) -> String {
    format!("vm.{}.{name}", vm.key)
}

/// Returns `sets` as the value of an affinity.
fn affinity(sets: &[Vec<u32>]) -> String {
    let sets: Vec<String> = sets.iter().map(|set| format!("{:?}", listed(set))).collect();
    format!("[{}]", sets.join(", "))
}

/// A quota throttles: more, the unused rest of earlier periods, or a weight in its place.
fn quota(facts: &Facts<'_>) -> Vec<Proposal> {
    let throttled = |vm: &&Vm<'_>| vm.figure("throttled_percent") >= READY && vm.account.quota.is_some();
    let remedies = |vm: &Vm<'_>| {
        let quota = vm.account.quota.unwrap_or_default();
        let vcpus = vm.account.vcpus.len() as f64;
        let away = ["halted_percent", "asleep_percent", "polling_percent"];
        let away: f64 = away.iter().map(|name| vm.figure(name)).sum();
        let wanted = vcpus * (1.0 - away / 100.0).clamp(0.0, 1.0);
        let enough = (((wanted * 10.0).ceil() / 10.0).max(quota) * PERIOD_US).min(vcpus * PERIOD_US);
        let (now, enough) = (
            format!("{:.0} 100000", quota * PERIOD_US),
            format!("{enough:.0} 100000"),
        );
        let unused = format!("{:.0}", quota * PERIOD_US);
        let proposal = |remedy: String, file: &str, value: &str, undo: String, set: Vec<(String, String)>| Proposal {
            rule: "quota",
            vm: Some(vm.account.name.clone()),
            remedy,
            seen: format!(
                "its quota of {quota:.2} pCPUs throttles it: {:.0} % of its vCPUs' time; it wants {wanted:.1} pCPUs",
                vm.figure("throttled_percent").min(100.0)
            ),
            basis: vm.basis("throttled_percent"),
            at_most_ms_per_20s: Some(vm.ready_ms()),
            effort: mistake(!polls_quota_away(facts, vm)),
            measure: Measure::CpuReady,
            set,
            apply: vm.write_group(file, value),
            undo,
        };
        let max = key(vm, "cpu.max");
        [
            proposal(
                format!("give {} a larger quota: {enough}", vm.account.name),
                "cpu.max",
                &enough,
                vm.write_group("cpu.max", &now),
                vec![(max.clone(), format!("{enough:?}"))],
            ),
            proposal(
                format!("let {} use what it left of its quota (burst)", vm.account.name),
                "cpu.max.burst",
                &unused,
                vm.write_group("cpu.max.burst", "0"),
                vec![(key(vm, "burst"), format!("\"{unused} us\""))],
            ),
            proposal(
                format!("give {} a weight in place of the quota", vm.account.name),
                "cpu.max",
                "max",
                vm.write_group("cpu.max", &now),
                vec![(max, "\"max\"".to_owned()), (key(vm, "cpu.weight"), "100".to_owned())],
            ),
        ]
    };
    facts.vms.iter().filter(throttled).flat_map(remedies).collect()
}

/// Threads of the VM's own process have the pCPUs that its vCPUs wait for.
fn own_threads(facts: &Facts<'_>) -> Vec<Proposal> {
    let remedy = |vm: &Vm<'_>| {
        let share = vm.figure("behind_own_threads_percent") + vm.figure("behind_own_vhost_percent");
        let pcpus = facts.pcpus();
        let allowed = vm.allowed().unwrap_or_default();
        let mut others: Vec<u32> = pcpus.iter().copied().filter(|cpu| !allowed.contains(cpu)).collect();
        if others.is_empty() && pcpus.len() > 1 {
            // The vCPUs may use all of them: the threads get the one that idles most.
            others.extend(pcpus.first());
        }
        if share < BEHIND || others.is_empty() {
            return None;
        }
        let own = facts
            .account
            .others
            .iter()
            .find(|other| other.process == vm.account.process);
        let before = own.and_then(|own| list(own.allowed.as_deref()?));
        if before.as_ref().is_some_and(|before| listed(before) == listed(&others)) {
            return None;
        }
        Some(Proposal {
            rule: "own-threads",
            vm: Some(vm.account.name.clone()),
            remedy: format!(
                "keep {}'s own threads off its vCPUs: emulator on pCPUs {}",
                vm.account.name,
                listed(&others)
            ),
            seen: format!("{share:.0} % of its waits are behind threads of its own process (I/O, VMM)"),
            basis: vm.basis("behind_own_threads_percent"),
            at_most_ms_per_20s: Some(vm.ready_ms() * share / 100.0),
            effort: mistake(vm.are_confined(&pcpus)),
            measure: Measure::CpuReady,
            set: repinned(facts, vm, &pcpus, &others),
            apply: vm.pin_own_threads(&others),
            undo: vm.pin_own_threads(&before.unwrap_or(pcpus)),
        })
    };
    facts.waiting().filter_map(remedy).collect()
}

/// Returns the keys that pin the repeated threads of the process of `vm` to `set`, or none if it has none of these.
fn repinned(facts: &Facts<'_>, vm: &Vm<'_>, pcpus: &[u32], set: &[u32]) -> Vec<(String, String)> {
    let others = &facts.account.others;
    let is_own = |process: Option<u32>| process.is_some() && process == vm.account.process;
    if !others.iter().any(|other| is_own(other.process)) {
        return Vec::new();
    }
    let sets = others.iter().map(|other| match &other.allowed {
        _ if is_own(other.process) => set.to_vec(),
        Some(allowed) => list(allowed).unwrap_or_else(|| pcpus.to_vec()),
        None => pcpus.to_vec(),
    });
    let key = format!("vm.{HOST_THREADS}.affinity");
    vec![(key, affinity(&sets.collect::<Vec<_>>()))]
}

/// vCPUs of one VM wait for each other's pCPU.
fn siblings(facts: &Facts<'_>) -> Vec<Proposal> {
    let remedy = |vm: &Vm<'_>| {
        let share = vm.figure("behind_siblings_percent");
        let vcpus = vm.account.vcpus.len();
        let pcpus = facts.pcpus();
        let allowed = vm.allowed();
        let mut room: Vec<u32> = match &allowed {
            Some(allowed) => pcpus.iter().copied().filter(|cpu| allowed.contains(cpu)).collect(),
            None => pcpus.clone(),
        };
        // Pins leave them fewer pCPUs than there are for them.
        let are_stacked = room.len() < vcpus.min(pcpus.len());
        if are_stacked {
            room.clone_from(&pcpus);
        }
        if share < BEHIND || vcpus < 2 || room.len() < 2 {
            return None;
        }
        let mut sets = vec![Vec::new(); vcpus];
        for at in 0..vcpus.max(room.len()) {
            sets[at % vcpus].push(room[at % room.len()]);
        }
        let same = |pins: &Vec<Vec<u32>>| pins.iter().zip(&sets).all(|(pin, set)| listed(pin) == listed(set));
        let pins = vm.pins();
        if pins.as_ref().is_some_and(same) {
            return None;
        }
        let before = pins.unwrap_or_else(|| vec![pcpus; vcpus]);
        Some(Proposal {
            rule: "siblings",
            vm: Some(vm.account.name.clone()),
            remedy: format!("pin each vCPU of {} to pCPUs of its own", vm.account.name),
            seen: format!("{share:.0} % of its waits are behind its own vCPUs, queued on the same pCPU"),
            basis: vm.basis("behind_siblings_percent"),
            at_most_ms_per_20s: Some(vm.ready_ms() * share / 100.0),
            effort: mistake(are_stacked),
            measure: Measure::CpuReady,
            set: vec![(key(vm, "affinity"), affinity(&sets))],
            apply: vm.pin(&sets),
            undo: vm.pin(&before),
        })
    };
    facts.waiting().filter_map(remedy).collect()
}

/// The host polls for halted vCPUs while others wait for a pCPU, or until a quota is spent.
fn polling(facts: &Facts<'_>) -> Vec<Proposal> {
    let paid: f64 = facts
        .vms
        .iter()
        .map(|vm| vm.share_ms(vm.figure("polling_percent")))
        .sum();
    let now = facts.account.halt_poll_ns.unwrap_or(HALT_POLL_NS);
    // Longer than that by hand: then any price is too high.
    let is_mistake = polls_long(facts).is_some();
    let least = if is_mistake {
        0.0
    } else {
        facts.ready_ms() * READY / 100.0
    };
    if facts.waiting().next().is_none() || paid < least || paid <= 0.0 || now == 0 {
        return Vec::new();
    }
    let file = "/sys/module/kvm/parameters/halt_poll_ns";
    let longer = if is_mistake {
        format!("; halt_poll_ns is {now}, by default {HALT_POLL_NS}")
    } else {
        String::new()
    };
    let spent = facts.vms.iter().filter(|vm| polls_quota_away(facts, vm));
    let spent: Vec<&str> = spent.map(|vm| vm.account.name.as_str()).collect();
    let price = match spent[..] {
        [] => "while others wait for a pCPU".to_owned(),
        _ => format!("which spends the quota of {}", spent.join(", ")),
    };
    let proposal = |ns: u64| Proposal {
        rule: "polling",
        vm: None,
        remedy: match ns {
            0 => "stop polling for halted vCPUs: halt_poll_ns 0".to_owned(),
            _ => format!("poll shorter for halted vCPUs: halt_poll_ns {ns}"),
        },
        seen: format!("the host polls {paid:.0} ms of 20 s for halted vCPUs, {price}{longer}"),
        basis: facts
            .waiting()
            .map(|vm| vm.basis("polling_percent"))
            .max()
            .unwrap_or(Basis::Unknown),
        // The time in which a quota is spent is no bound of the time for which it throttles.
        at_most_ms_per_20s: Some(if spent.is_empty() { paid } else { facts.ready_ms() }),
        effort: mistake(is_mistake),
        measure: Measure::CpuReady,
        set: vec![("host.halt_poll".to_owned(), format!("\"{ns} ns\""))],
        apply: format!("echo {ns} > {file}"),
        undo: format!("echo {now} > {file}"),
    };
    [0, now / 8]
        .into_iter()
        .filter(|ns| *ns == 0 || *ns >= 5_000)
        .map(proposal)
        .collect()
}

/// Woken vCPUs wait for the next exit of the running one.
fn lazy_preemption(facts: &Facts<'_>) -> Vec<Proposal> {
    // Of the waits about which something is known.
    let share = |vm: &Vm<'_>| {
        let known = 100.0 - vm.figure("behind_unknown_percent").clamp(0.0, 99.0);
        vm.figure("until_exit_percent") / known * 100.0
    };
    let waits = |vm: &&Vm<'_>| share(vm) >= UNTIL_EXIT;
    let ms: f64 = facts
        .waiting()
        .filter(waits)
        .map(|vm| vm.ready_ms() * vm.figure("until_exit_percent") / 100.0)
        .sum();
    let Some(first) = facts.waiting().find(waits).filter(|_| facts.account.is_lazy()) else {
        return Vec::new();
    };
    let file = "/sys/kernel/debug/sched/preempt";
    vec![Proposal {
        rule: "lazy-preemption",
        vm: None,
        remedy: "preempt at once: preempt=full".to_owned(),
        seen: format!(
            "lazy preemption: {:.0} % of {}'s waits last until another guest's next exit or the tick",
            share(first),
            first.account.name
        ),
        basis: first.basis("until_exit_percent"),
        at_most_ms_per_20s: Some(ms),
        effort: Effort::Mistake,
        measure: Measure::WakeToRun,
        set: vec![("host.preempt".to_owned(), "\"full\"".to_owned())],
        apply: format!("echo full > {file} (or boot with preempt=full)"),
        undo: format!("echo lazy > {file}"),
    }]
}

/// Share of the exits from which on those for an interrupt window are worth advice, in percent.
const WINDOWS_PERCENT: f64 = 5.0;
/// Their time from which on they are, in ms per 20 s.
const WINDOWS_MS: f64 = 20.0;

/// Exits that APIC virtualization would save.
fn interrupts(facts: &Facts<'_>) -> Vec<Proposal> {
    const WINDOWS: [&str; 2] = ["INTERRUPT_WINDOW", "vintr"];
    let remedy = |vm: &Vm<'_>| {
        let share = vm.exits_percent(&WINDOWS);
        let cost = vm
            .account
            .exits
            .iter()
            .filter(|exit| WINDOWS.contains(&exit.name.as_str()));
        let ms = cost.map(|exit| exit.ns).sum::<u64>() as f64 / facts.account.length_ns.max(1) as f64 * 20_000.0;
        if share < WINDOWS_PERCENT || ms < WINDOWS_MS {
            return None;
        }
        Some(Proposal {
            rule: "interrupts",
            vm: Some(vm.account.name.clone()),
            remedy: format!("let hardware deliver {}'s interrupts (APICv, AVIC)", vm.account.name),
            seen: format!(
                "{share:.0} % of its exits wait for an interrupt window: APIC virtualization is off or inhibited"
            ),
            basis: Basis::Inferred,
            at_most_ms_per_20s: Some(ms),
            effort: Effort::Setting,
            measure: Measure::CpuReady,
            set: Vec::new(),
            apply:
                "kvm_intel enable_apicv=1 or kvm_amd avic=1; kernel_irqchip=split, no PIT reinjection, no Hyper-V SynIC"
                    .to_owned(),
            undo: "kvm_intel enable_apicv=0 or kvm_amd avic=0".to_owned(),
        })
    };
    facts.waiting().filter_map(remedy).collect()
}

/// All pCPUs are busy, and VMs wait: no setting makes more of them.
fn too_many(facts: &Facts<'_>) -> Vec<Proposal> {
    let (length_s, pcpus) = (facts.account.length_ns as f64 / 1e9, facts.account.cpus.len());
    let vcpus: usize = facts.vms.iter().map(|vm| vm.account.vcpus.len()).sum();
    if facts.waiting().next().is_none() || facts.idle() >= IDLE || vcpus <= pcpus || length_s <= 0.0 {
        return Vec::new();
    }
    let had = |vm: &Vm<'_>| {
        let shares = ["guest_percent", "host_percent", "running_percent"].map(|name| vm.figure(name));
        let shares = if shares[0] > 0.0 {
            shares.iter().sum()
        } else {
            // Entries and exits were not recorded.
            let wanted = vm.figure("ready_of_wanted_percent").clamp(0.1, 99.9);
            vm.figure("ready_percent") * (100.0 - wanted) / wanted
        };
        shares / 100.0 * vm.figure("recorded_s") / length_s
    };
    let seen = |vm: &Vm<'_>| {
        let has = match vm.account.vcpus.len() {
            1 => "1 vCPU".to_owned(),
            more => format!("{more} vCPUs"),
        };
        format!(
            "{vcpus} vCPUs on {pcpus} pCPUs, which idle {:.0} % of the time; {} has {has} and had {:.1} pCPUs",
            facts.idle(),
            vm.account.name,
            had(vm)
        )
    };
    let move_away = facts.vms.iter().filter(|_| facts.vms.len() > 1).map(|vm| Proposal {
        rule: "too-many",
        vm: Some(vm.account.name.clone()),
        remedy: format!("move {} to another host", vm.account.name),
        seen: seen(vm),
        basis: vm.basis("ready_of_wanted_percent"),
        at_most_ms_per_20s: Some(facts.ready_ms() - vm.ready_ms()),
        effort: Effort::Fewer,
        measure: Measure::CpuReady,
        set: vec![(key(vm, "until"), "\"1 us\"".to_owned())],
        apply: vm.migrate("THIS", "OTHER"),
        undo: vm.migrate("OTHER", "THIS"),
    });
    let shrink = facts.waiting().filter_map(|vm| {
        let (has, enough) = (vm.account.vcpus.len(), had(vm).ceil().max(1.0) as usize);
        (enough < has).then(|| Proposal {
            rule: "too-many",
            vm: Some(vm.account.name.clone()),
            remedy: format!(
                "give {} fewer vCPUs: {enough} would have done its work",
                vm.account.name
            ),
            seen: seen(vm),
            basis: Basis::Inferred,
            at_most_ms_per_20s: Some(vm.ready_ms() * (1.0 - enough as f64 / has as f64)),
            effort: Effort::Fewer,
            measure: Measure::CpuReady,
            set: Vec::new(),
            apply: vm.set_vcpus(enough),
            undo: vm.set_vcpus(has),
        })
    });
    move_away.chain(shrink).collect()
}
