//! Keys that a real host cannot honor, and variants that would be the same guests there.

use std::collections::BTreeMap;

use holdfast_host::{Nic, VmConfig, VmGroup};
use holdfast_kvm::Host;
use holdfast_lab::groups::SHARES_DEFAULT;
use holdfast_lab::plan::{Cell, Plan};
use holdfast_locks::LockKind;
use holdfast_sim::{Config, Vm};
use holdfast_workloads::{GuestPolicyKind, Workload};

use crate::linux::Linux;

/// Checks that a real host carries out what `plan` says of its guests, and that no two of its cells are the same guests
/// there.
///
/// `guests` returns what the VMM is told of a cell's guests.
///
/// # Errors
/// One line for each key that cannot be honored, and for each two cells that only other keys tell apart.
pub(super) fn check(
    plan: &Plan,
    linux: Option<&Linux>,
    guests: impl Fn(&Config) -> Option<String>,
) -> Result<(), Vec<String>> {
    let mut faults = Vec::new();
    for cell in &plan.cells {
        for (key, why) in refused(&cell.config, linux) {
            let fault = format!("{key}: {why}");
            if !faults.contains(&fault) {
                faults.push(fault);
            }
        }
    }
    if plan.cells.iter().any(|cell| cell.config.migration.is_some())
        && let Err(lack) = migrates()
    {
        faults.push(format!("host.migration.every: {lack}"));
    }
    let mut known: BTreeMap<String, &Cell> = BTreeMap::new();
    for cell in &plan.cells {
        // What cannot be described fails with its own reason when it runs.
        let Some(told) = guests(&cell.config) else { continue };
        let other = *known.entry(told).or_insert(cell);
        if !std::ptr::eq(other, cell) {
            faults.push(same(other, cell));
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

fn same(one: &Cell, other: &Cell) -> String {
    let values = one.parameters.iter().map(|(key, value)| (key, Some(value)));
    let differing = values.filter(|(key, value)| other.parameters.get(*key) != *value);
    let keys = differing.map(|(key, _)| key.as_str());
    let more = other.parameters.keys().map(String::as_str);
    let mut keys: Vec<&str> = keys
        .chain(more.filter(|key| !one.parameters.contains_key(*key)))
        .collect();
    keys.sort_unstable();
    let name = |cell: &Cell| format!("{} / {}", cell.case, cell.variant);
    let (one, other) = (name(one), name(other));
    match keys[..] {
        [] => format!("{one} and {other}: the same set-up twice"),
        _ => format!(
            "{one} and {other} differ only in what this host decides itself: {}",
            keys.join(", ")
        ),
    }
}

/// The table of keys that are refused under a condition, each with the reason: those whose condition holds.
macro_rules! refused {
    ($($key:literal if $condition:expr => $why:expr;)*) => {
        [$(($key, $condition, $why)),*]
            .into_iter()
            .filter_map(|(key, holds, why)| holds.then_some((key, why)))
            .collect()
    };
}

/// Returns the keys of `config` that no VMM can honor, or not this one, each with the reason.
fn refused(config: &Config, linux: Option<&Linux>) -> Vec<(String, &'static str)> {
    let mut found = Vec::new();
    for vm in &config.vms {
        let keys = of_guest(vm, linux.is_some() && vm.measured).into_iter();
        found.extend(keys.map(|(key, why)| (format!("vm.{}.{key}", vm.name), why)));
    }
    let keys = of_migration(config).into_iter();
    found.extend(keys.map(|(key, why)| (key.to_owned(), why)));
    let groups = config.groups.iter().map(|group| format!("group.{}", group.name));
    found.extend(groups.map(|key| (key, GROUPS)));
    let tasks = config.tasks.iter().map(|task| format!("task.{}", task.name));
    found.extend(tasks.map(|key| (key, "the VMM starts no other programs of the host")));
    found
}

/// Returns the refused keys of a guest. `is_stock`: a stock Linux takes the place of its kernel.
fn of_guest(vm: &Vm, is_stock: bool) -> Vec<(&'static str, &'static str)> {
    // Without `..`, so that a new field must be honored in `describe` or refused here.
    let VmConfig {
        pv_unhalt: _,
        pv_sched_yield: _,
        pv_send_ipi: _,
        pv_eoi: _,
        pv_tlb_flush: _,
        poll_control: _,
        steal_time,
        preempted_flag,
        guest_word,
        slice_end,
        waits_for_sipi,
        // It follows `from`.
        dormant: _,
        // This host's kernel places the threads that the VMM creates.
        vcpus_wait: _,
        // It follows `inside`.
        nested: _,
        cpu_pm,
        realtime_hint: _,
        nice: _,
        group,
        parent: _,
        quota,
        vcpu_quota,
        nic,
        halt_poll_cap_ns: _,
        has_polled: _,
        // The VMM's own devices take the time that they take.
        device_ns: _,
        apic_inhibits,
        // No key of an experiment sets it.
        memory_bytes: _,
    } = vm.host;
    let workload = &vm.boot.workload;
    let registered = matches!(vm.boot.kernel.lock, LockKind::Registered(_));
    let exits = matches!(workload, Workload::Startup(boot) if boot.exits);
    let network = matches!(workload, Workload::Netperf(_));
    let recorded = matches!(workload, Workload::Recorded(_));
    let own = matches!(workload, Workload::Own(_));
    let threads = matches!(workload, Workload::Hackbench(messages) if messages.threads);
    let weighs = match group {
        VmGroup::Own { shares } | VmGroup::OwnWithVcpuGroups { shares } => shares != SHARES_DEFAULT,
        VmGroup::Root => false,
    };
    refused! {
        "bare_metal" if vm.bare_metal => "this host's own kernel has the machine";
        "inside" if vm.inside.is_some() => "the VMM's guest kernel is no hypervisor";
        "lock" if registered => "the guest image has the locks of the crate `locks` only";
        "guest_policy" if vm.boot.kernel.policy != GuestPolicyKind::KERNEL => "the guest image has no policies";
        "parent" if vm.group.is_some() => GROUPS;
        "preempted_flag" if steal_time && !preempted_flag => "KVM keeps the flag wherever it offers steal_time";
        "guest_word" if guest_word => "no KVM reads such a word";
        "slice_end" if slice_end => "no KVM tells a guest when a slice ends";
        "starts_cpus" if waits_for_sipi => "the VMM starts all CPUs of a guest at once";
        "apic_inhibits" if !apic_inhibits.is_empty() => "KVM finds the reasons itself";
        "cpu_pm" if cpu_pm && !passes_halts() => "this host's KVM cannot pass HLT and PAUSE through to a guest";
        "disk_latency" if vm.vmm.disk.is_some() => "the VMM gives its guests no disk";
        "nic" if nic != Nic::Vhost => NETWORK;
        "boot.exits" if exits => "the VMM emulates no PCI configuration space";
        "workload" if network => NETWORK;
        "workload" if own => "the guest image has the workloads of the crate `workloads` only";
        "workload" if recorded => "a recording is repeated in virtual time only";
        "hackbench.threads" if is_stock && threads => "the program of a stock Linux starts processes";
        "numa" if is_stock && !vm.domains.is_empty() => "the VMM gives a stock Linux no table of NUMA nodes";
        "shares" if weighs => GROUPS;
        "quota" if quota.is_some() => GROUPS;
        "burst" if quota.is_some_and(|quota| quota.burst_ns > 0) => GROUPS;
        "vcpu_quota" if vcpu_quota.is_some() => GROUPS;
    }
}

/// Returns the refused keys of migrations.
fn of_migration(config: &Config) -> Vec<(&'static str, &'static str)> {
    let copies = config.migration.is_some_and(|migration| migration.copy.is_some());
    let converges = config
        .migration
        .is_some_and(|migration| migration.copy.is_some_and(|copy| copy.auto_converge));
    let elsewhere = config.migration.is_some() && config.destination.is_some();
    refused! {
        "host.migration.auto_converge" if converges => "nothing is copied";
        "host.migration.bandwidth" if copies => "the new VM has the same memory, and nothing is copied";
        "host.migration.to" if elsewhere => "guests migrate to new VMs of this host";
    }
}

/// Returns whether this host can pass HLT and PAUSE through. A host without a KVM refuses the whole run.
pub(super) fn passes_halts() -> bool {
    Host::open().map_or(true, |host| host.passed_through().is_ok())
}

/// Checks that guests can migrate here. A host without a KVM refuses the whole run.
///
/// # Errors
/// The `ioctl` that KVM refuses.
pub(super) fn migrates() -> Result<(), String> {
    let Ok(host) = Host::open() else { return Ok(()) };
    host.migrates_kick(false).map(drop).map_err(|error| error.to_string())
}

/// Why what needs a network is refused.
const NETWORK: &str = "the VMM gives its guests no network device";

/// Why keys of task groups are refused.
const GROUPS: &str = "the VMM makes no task groups; start it within one of your own, without this key";

#[cfg(test)]
mod tests;
