//! The rules about guests that spin for locks.

use holdfast_recordings::account::Basis;
use holdfast_recordings::hosts::Feature;

use super::facts::{Facts, Vm};
use super::proposal::{Effort, Measure, Proposal};

/// Pause exits of a vCPU per second from which on they are worth advice.
const PAUSES: f64 = 20.0;
/// Share of directed yields that succeed, in percent, below which they miss.
const YIELDS: f64 = 50.0;

/// The guest has no PV spinlocks, as files say; or it spins until the hardware stops it, and never halts for a lock.
pub(super) fn no_pv_locks(facts: &Facts<'_>) -> Vec<Proposal> {
    let remedy = |vm: &Vm<'_>| {
        let features = &vm.account.features;
        let off = features.iter().find(|feature| feature.forbids_pv_locks());
        let (pauses, kicks) = (vm.figure("pause_exits_per_s"), vm.figure("kicks_per_s"));
        // A guest that kicks has them. A guest without any kick need not contend: only its spins say that it does.
        let spins = pauses >= PAUSES;
        let is_known = off.is_some_and(|off| !off.is_default);
        if vm.account.vcpus.len() < 2 || kicks > 0.0 || !(is_known || spins) {
            return None;
        }
        let spun = format!(
            "{pauses:.0} pause exits and {kicks:.0} kicks per s of a vCPU: it spins up to {:.0} % of its time in them, \
             and no waiter for a spinlock halts",
            vm.figure("spun_percent")
        );
        let by_guest = match off {
            Some(off) => off.is_of_guest(),
            // The guest knows its host, since it calls it.
            None => vm.exits_percent(&["VMCALL", "vmmcall"]) > 0.0,
        };
        let (remedy, apply, undo) = if by_guest {
            let switch = off.map_or("nopvspin", |off| &off.name);
            (
                format!(
                    "let {}'s kernel use PV spinlocks: boot it without {switch}",
                    vm.account.name
                ),
                format!("in the guest: remove {switch} from the kernel's command line; CONFIG_PARAVIRT_SPINLOCKS=y"),
                format!("in the guest: boot with {switch}"),
            )
        } else {
            let is_off = |feature: &&Feature| !feature.on && !feature.is_of_guest();
            let mut others: Vec<&str> = (features.iter().filter(is_off))
                .map(|feature| &*feature.name)
                .filter(|name| !["kvm", "kvm-pv-unhalt"].contains(name))
                .collect();
            others.sort_unstable();
            let and = if others.is_empty() { "" } else { ", and " };
            let on = match others.len() {
                0 => String::new(),
                _ => format!(" (and {}=on)", others.join("=on, ")),
            };
            (
                format!("offer PV spinlocks{and}{} to {}", others.join(", "), vm.account.name),
                format!("VMM: -cpu host,kvm=on,kvm-pv-unhalt=on{on}; then in the guest no nopvspin"),
                "VMM: -cpu host,kvm-pv-unhalt=off".to_owned(),
            )
        };
        let seen = match off {
            Some(off) if is_known => format!("it has no PV spinlocks: {}", off.from),
            Some(off) => format!("it has no PV spinlocks: {}; {spun}", off.from),
            None => spun,
        };
        Some(Proposal {
            rule: "no-pv-locks",
            vm: Some(vm.account.name.clone()),
            remedy,
            seen,
            basis: if is_known { Basis::Known } else { Basis::Inferred },
            // Spins that are shorter than the pause window are in no account.
            at_most_ms_per_20s: None,
            effort: Effort::Mistake,
            measure: Measure::CpuReady,
            set: Vec::new(),
            apply,
            undo,
        })
    };
    facts.waiting().filter_map(remedy).collect()
}

/// Pause exits whose directed yields find no vCPU to run.
pub(super) fn pause_window(facts: &Facts<'_>) -> Vec<Proposal> {
    let remedy = |vm: &Vm<'_>| {
        let count = |name: &str| vm.account.counters.get(name).copied();
        let attempted = count("directed_yield_attempted").filter(|attempted| *attempted > 0)?;
        let hits = count("directed_yield_successful")? as f64 / attempted as f64 * 100.0;
        if vm.figure("pause_exits_per_s") < PAUSES || hits >= YIELDS {
            return None;
        }
        Some(Proposal {
            rule: "pause-window",
            vm: Some(vm.account.name.clone()),
            remedy: "leave spins earlier: a smaller ple_window that does not grow".to_owned(),
            seen: format!(
                "{:.0} pause exits per s, and {hits:.0} % of the directed yields succeed: the target runs, or nested \
                 groups keep it from running",
                vm.figure("pause_exits_per_s")
            ),
            basis: vm.basis("pause_exits_per_s"),
            // A window shortens a spin, and does not end it.
            at_most_ms_per_20s: None,
            effort: Effort::Setting,
            measure: Measure::CpuReady,
            set: Vec::new(),
            apply: "reload kvm_intel with ple_window=2048 ple_window_grow=0 (kvm_amd: pause_filter_count)".to_owned(),
            undo: "reload it without these options".to_owned(),
        })
    };
    facts.waiting().filter_map(remedy).collect()
}
