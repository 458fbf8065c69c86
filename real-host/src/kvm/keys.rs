//! Keys that a real host cannot honor, and variants that would be the same guests there.

use std::collections::BTreeMap;

use holdfast_host::{Nic, VmConfig, VmGroup};
use holdfast_kvm::Host;
use holdfast_lab::plan::{Cell, Plan};
use holdfast_locks::LockKind;
use holdfast_sim::Config;
use holdfast_workloads::{BootTimer, Reach, Workload};

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

/// Returns the keys of `config` that no VMM can honor, or not this one, each with the reason.
fn refused(config: &Config, linux: Option<&Linux>) -> Vec<(String, &'static str)> {
    let mut found = Vec::new();
    for vm in &config.vms {
        let mut refuse = |key: &str, why| found.push((format!("vm.{}.{key}", vm.name), why));
        if vm.bare_metal {
            refuse("bare_metal", "this host's own kernel has the machine");
        }
        if vm.inside.is_some() {
            refuse("inside", "the VMM's guest kernel is no hypervisor");
        }
        if matches!(vm.boot.kernel.lock, LockKind::Registered(_)) {
            refuse("lock", "the guest image has the locks of the crate `locks` only");
        }
        if vm.group.is_some() {
            refuse("parent", GROUPS);
        }
        // Without `..`, so that a new field must be honored in `describe` or refused here.
        let VmConfig {
            pv_unhalt: _,
            pv_sched_yield: _,
            pv_send_ipi: _,
            pv_eoi: _,
            pv_tlb_flush: _,
            poll_control: _,
            steal_time,
            lock_hints,
            preempted_flag,
            waits_for_sipi,
            // It follows `from`.
            dormant: _,
            // It follows `inside`.
            nested: _,
            split_irqchip,
            cpu_pm,
            realtime_hint: _,
            nice: _,
            group,
            parent: _,
            quota,
            vcpu_quota,
            nic,
            halt_poll_cap_ns: _,
            // The VMM's own devices take the time that they take.
            device_ns: _,
            sev,
            pit_reinject,
            // It follows `auto_eoi`.
            synic,
            // No keys of an experiment set these.
            msi_ext_dest_id: _,
            memory_bytes: _,
            apic_inhibits: _,
        } = vm.host;
        if steal_time && !preempted_flag {
            refuse("preempted_flag", "KVM keeps the flag wherever it offers steal_time");
        }
        if lock_hints {
            refuse("lock_hints", "no KVM uses hints on locks");
        }
        if waits_for_sipi {
            refuse("starts_cpus", "the VMM starts all CPUs of a guest at once");
        }
        if sev {
            refuse("sev", "the VMM starts no encrypted guests");
        }
        if pit_reinject {
            refuse("pit_reinject", "the VMM gives its guests no PIT");
        }
        if vm.boot.kernel.boot_timer == BootTimer::Pit {
            refuse("boot_timer", "the VMM gives its guests no PIT");
        }
        if synic {
            refuse("auto_eoi", "the VMM gives its guests no SynIC");
        }
        if cpu_pm && !passes_halts() {
            refuse("cpu_pm", "this host's KVM cannot pass HLT and PAUSE through to a guest");
        }
        if nic != Nic::Vhost {
            refuse("nic", NETWORK);
        }
        if matches!(&vm.boot.workload, Workload::Startup(boot) if boot.exits) {
            refuse("boot.exits", "the VMM emulates no PCI configuration space");
        }
        if matches!(&vm.boot.workload, Workload::Ipi(ipi) if matches!(ipi.reach, Reach::Replug | Reach::Eject)) {
            refuse(
                "ipi.reach",
                "the VMM starts all CPUs of a guest at once, and none again",
            );
        }
        if matches!(vm.boot.workload, Workload::Netperf(_)) {
            refuse("workload", NETWORK);
        }
        if linux.is_some() && vm.measured {
            if split_irqchip {
                refuse("split_irqchip", "a stock Linux needs the kernel's PIC and I/O APIC");
            }
            if matches!(&vm.boot.workload, Workload::Hackbench(messages) if messages.threads) {
                refuse("hackbench.threads", "the program of a stock Linux starts processes");
            }
            if !vm.domains.is_empty() {
                refuse("numa", "the VMM gives a stock Linux no table of NUMA nodes");
            }
        }
        if let VmGroup::Own { shares } | VmGroup::OwnWithVcpuGroups { shares } = group
            && shares != holdfast_lab::groups::SHARES_DEFAULT
        {
            refuse("shares", GROUPS);
        }
        for (key, quota) in [("quota", quota), ("vcpu_quota", vcpu_quota)] {
            if quota.is_some() {
                refuse(key, GROUPS);
            }
        }
    }
    if config.migration.is_some_and(|migration| migration.copy.is_some()) {
        let why = "the new VM has the same memory, and nothing is copied";
        found.push(("host.migration.bandwidth".to_owned(), why));
    }
    if config.migration.is_some() && config.destination.is_some() {
        found.push(("host.migration.to".to_owned(), "guests migrate to new VMs of this host"));
    }
    found.extend(
        config
            .groups
            .iter()
            .map(|group| (format!("group.{}", group.name), GROUPS)),
    );
    let tasks = config.tasks.iter();
    found.extend(tasks.map(|task| {
        (
            format!("task.{}", task.name),
            "the VMM starts no other programs of the host",
        )
    }));
    found
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
