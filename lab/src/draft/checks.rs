//! Checks of what involves several keys of a configuration.

use std::slice;

use holdfast_host::VmGroup;
use holdfast_machine::{Costs, Topology};
use holdfast_workloads::Workload;

use super::{Draft, DraftVm, VCPUS_MAX};
use crate::amount::Amount;
use crate::diagnostic::KeyFindings;
use crate::groups;
use crate::profile::{PCPUS_MAX, PauseDetection};
use crate::slot::{Affinity, VirtualNodes};

impl Draft {
    /// Checks the settings of one host that several keys make together.
    pub(crate) fn check_host(&self, findings: &mut KeyFindings<'_>) {
        self.check_pauses(findings);
    }

    pub(super) fn check_counts(&self, findings: &mut KeyFindings<'_>) {
        let Topology {
            sockets,
            cores,
            threads,
        } = self.machine.topology;
        let pcpus = u64::from(sockets) * u64::from(cores) * u64::from(threads);
        if pcpus > u64::from(PCPUS_MAX) {
            let found = format!("{sockets} x {cores} x {threads} = {pcpus} pCPUs");
            let expected = format!("at most {PCPUS_MAX} pCPUs");
            findings.add_at("machine.cores", "machine", found, expected);
        }
        let vcpus: u64 = self.vms.iter().map(|vm| u64::from(vm.vcpus)).sum();
        if vcpus > u64::from(VCPUS_MAX) {
            let found = format!("{vcpus} vCPUs in all guests");
            findings.add("vm.*.vcpus", found, format!("at most {VCPUS_MAX}"));
        }
        if self.limit_ns == 0 {
            findings.add("limit", "0", "more than nothing: every run would fail");
        }
        self.check_stays(findings);
        if !self.vms.iter().any(DraftVm::is_measured) {
            let expected = "at least one guest whose workload ends and is measured, such as kernbench";
            findings.add_at("vm.*.workload", "vm", "no measured guest", expected);
        }
    }

    /// Checks that each guest's locks can tell its CPUs apart.
    pub(super) fn check_locks(&self, findings: &mut KeyFindings<'_>) {
        for vm in self.vms.iter().filter(|vm| !vm.bare_metal) {
            let kernel = &vm.boot.kernel;
            let (lock, most) = (kernel.lock, kernel.cpus_max());
            if vm.vcpus <= most {
                continue;
            }
            let expected = match most < lock.cpus_max() {
                true => format!("at most {most} with rwlocks, whose words count CPUs"),
                false => format!("at most {most}, which the word of the lock \"{lock}\" can tell apart"),
            };
            findings.add(&format!("vm.{}.vcpus", vm.name), vm.vcpus.to_string(), expected);
        }
    }

    /// Checks that what comes or goes is a guest that the run does not wait for, on a host that stays.
    fn check_stays(&self, findings: &mut KeyFindings<'_>) {
        for vm in &self.vms {
            let (from, until) = (vm.from_ns, vm.until_ns);
            if vm.host.vcpus_wait && from == 0 {
                let expected = "a guest with a time `from` at which its VMM starts it";
                findings.add(&format!("vm.{}.vcpus_wait", vm.name), "true", expected);
            }
            if from == 0 && until.is_none() {
                continue;
            }
            let key = format!("vm.{}.{}", vm.name, if until.is_some() { "until" } else { "from" });
            let found = Amount::from_nanos(until.unwrap_or(from)).to_string();
            if vm.bare_metal {
                findings.add(&key, found, "none for the bare-metal kernel");
            } else if until.is_some() && vm.boot.workload.uses_network() {
                findings.add(&key, found, "none for a guest with a network");
            } else if until.is_some_and(|until| until <= from) {
                findings.add(&key, found, "a time after that of `from`");
            } else if self.migration.every_ns.is_some() {
                findings.add(&key, found, "none with host.migration.every");
            }
        }
    }

    /// Checks that each guest with a disk can have one, and that what reads from a disk has one.
    pub(super) fn check_disks(&self, findings: &mut KeyFindings<'_>) {
        let is_cold = |vm: &&DraftVm| matches!(&vm.boot.workload, Workload::Kernbench(build) if build.cold);
        for vm in self
            .vms
            .iter()
            .filter(is_cold)
            .filter(|vm| vm.disk.latency_ns.is_none())
        {
            let expected = "a guest with a disk, which disk_latency gives it";
            findings.add(&format!("vm.{}.kernbench.cold", vm.name), "true", expected);
        }
        for vm in &self.vms {
            let Some(latency_ns) = vm.disk.latency_ns else { continue };
            let expected = if vm.bare_metal {
                "none for the bare-metal kernel"
            } else if vm.inside.is_some() {
                "none for a guest inside of another one"
            } else if vm.until_ns.is_some() {
                "none for a guest that goes"
            } else if self.migration.every_ns.is_some() {
                "none with host.migration.every"
            } else {
                continue;
            };
            let found = Amount::from_nanos(latency_ns).to_string();
            findings.add(&format!("vm.{}.disk_latency", vm.name), found, expected);
        }
    }

    /// Checks that the hardware can detect pause loops with these settings, and that windows can move as configured.
    fn check_pauses(&self, findings: &mut KeyFindings<'_>) {
        let hz = self.machine.frequency_hz;
        let (base, most) = match &self.machine.pauses {
            PauseDetection::Ple { gap, window, .. } => {
                let most = u64::from(u32::MAX);
                let (gap_cycles, cycles) = (gap.cycles(hz), window.cycles(hz));
                let gap_cycles = gap_cycles.filter(|cycles| (1..most).contains(cycles));
                if gap_cycles.is_none() {
                    let expected = "1 to 4294967294 cycles of the machine's clock";
                    findings.add("machine.ple_gap", gap.to_string(), expected);
                }
                // If only the gap was set, the gap is the mistake.
                let unset = findings.place("");
                let only_gap =
                    findings.place("machine.ple_window") == unset && findings.place("machine.ple_gap") != unset;
                match (gap_cycles, cycles.filter(|cycles| (1..=most).contains(cycles))) {
                    (Some(low), Some(high)) if low < high => {}
                    (Some(_), Some(_)) if only_gap => {
                        let expected = format!("less than the window ({window})");
                        findings.add("machine.ple_gap", gap.to_string(), expected);
                    }
                    (None, Some(_)) => {}
                    _ => {
                        let expected = format!("more than the gap ({gap}), up to 4294967295 cycles");
                        findings.add("machine.ple_window", window.to_string(), expected);
                    }
                }
                (cycles.unwrap_or(most), most)
            }
            PauseDetection::Filter { count, threshold, .. } => {
                let most = u64::from(u16::MAX);
                if threshold.cycles(hz).is_none_or(|cycles| cycles > most) {
                    let found = threshold.to_string();
                    findings.add("machine.pause_filter_threshold", found, "0 to 65535 cycles");
                }
                (u64::from(*count), most)
            }
        };
        let rule = self.host.pause.window;
        for (key, parameter) in [
            ("host.pause_window.grow", rule.grow),
            ("host.pause_window.shrink", rule.shrink),
        ] {
            if parameter == 1 {
                let expected = "0, or 2 and more: a factor of 1 leaves the window as it is";
                findings.add(key, parameter.to_string(), expected);
            }
        }
        if let Some(max) = rule.max.filter(|max| !(base..=most).contains(&u64::from(*max))) {
            let expected = format!("{base} (the window that it starts from) to {most} (what the CPU's field holds)");
            findings.add("host.pause_window.max", max.to_string(), expected);
        }
    }

    pub(super) fn check_bare_metal(&self, findings: &mut KeyFindings<'_>) {
        let mut natives = self.vms.iter().filter(|vm| vm.bare_metal);
        if let Some(vm) = natives.next()
            && vm.affinity != Affinity::Same(Vec::new())
        {
            let key = format!("vm.{}.affinity", vm.name);
            findings.add(&key, "pCPUs for bare metal", "none: it has the whole machine");
        }
        for vm in natives {
            let key = format!("vm.{}.bare_metal", vm.name);
            findings.add(&key, "true", "one kernel on the machine itself at most");
        }
        let remote = |vm: &&DraftVm| vm.bare_metal && vm.boot.workload.uses_network();
        for vm in self.vms.iter().filter(remote) {
            let key = format!("vm.{}.bare_metal", vm.name);
            let expected = "false: netperf's server is reached over a guest's network device";
            findings.add(&key, "true, with the workload netperf", expected);
        }
    }

    /// Checks that guests inside of others can run there.
    pub(super) fn check_inside(&self, findings: &mut KeyFindings<'_>) {
        for vm in &self.vms {
            let Some(name) = &vm.inside else { continue };
            let expected = match self.carrier_of(vm) {
                None => "the name of another [[vm]], or \"none\"",
                Some(carrier) if carrier.inside.is_some() => "a guest of the machine's own host: two levels at most",
                Some(carrier) if carrier.is_measured() => "a guest that is not measured: its workload does not run",
                Some(carrier) if carrier.host.cpu_pm || vm.host.cpu_pm => "guests that exit for HLT",
                Some(carrier) if [carrier, vm].iter().any(|vm| vm.from_ns > 0 || vm.until_ns.is_some()) => {
                    "guests that are there for the whole run"
                }
                Some(_) if self.vms.iter().any(|vm| vm.bare_metal) => "\"none\" next to bare metal",
                Some(_) if self.migration.every_ns.is_some() => "\"none\" with host.migration.every",
                Some(_) if vm.boot.workload.uses_network() => "\"none\" for a workload with a network",
                Some(_) if vm.group.is_some() => "\"none\" for a guest in a task group of the machine's host",
                Some(_) => continue,
            };
            findings.add(&format!("vm.{}.inside", vm.name), format!("{name:?}"), expected);
        }
    }

    /// Returns the guest inside of which `vm` runs, if there is one of that name.
    fn carrier_of(&self, vm: &DraftVm) -> Option<&DraftVm> {
        let name = vm.inside.as_ref()?;
        self.vms.iter().find(|other| other.name == *name)
    }

    /// Returns the number of pCPUs of `vm`, and where they are.
    fn pcpus_of(&self, vm: &DraftVm) -> (u32, &str) {
        match self.carrier_of(vm) {
            None => (self.machine.topology.pcpus(), &self.machine.name),
            Some(carrier) => (carrier.vcpus, &carrier.name),
        }
    }

    pub(super) fn check_affinity(&self, findings: &mut KeyFindings<'_>) {
        let mut check = |key: &str, (pcpus, place): (u32, &str), sets: &[Vec<u32>]| {
            let beyond = || sets.iter().flatten().filter(|cpu| **cpu >= pcpus);
            let found = match (beyond().min(), beyond().count()) {
                (None, _) => return,
                (Some(cpu), 1) => format!("pCPU {cpu}"),
                (Some(cpu), count) => format!("pCPU {cpu} and {} more", count - 1),
            };
            let expected = format!("pCPUs from 0 to {} of {place}", pcpus.saturating_sub(1));
            findings.add(key, found, expected);
        };
        for vm in &self.vms {
            let key = format!("vm.{}.affinity", vm.name);
            match &vm.affinity {
                Affinity::Same(cpus) => check(&key, self.pcpus_of(vm), slice::from_ref(cpus)),
                Affinity::Each(sets) => check(&key, self.pcpus_of(vm), sets),
            }
        }
        for task in &self.tasks {
            let machine = (self.machine.topology.pcpus(), self.machine.name.as_str());
            let key = format!("task.{}.affinity", task.name);
            check(&key, machine, slice::from_ref(&task.affinity));
        }
        for vm in &self.vms {
            if let Affinity::Each(sets) = &vm.affinity {
                let found = format!("{} sets of pCPUs", sets.len());
                vm.check_each(&format!("vm.{}.affinity", vm.name), sets.len(), found, findings);
            }
        }
    }

    /// Checks the virtual NUMA nodes. Affinities must be valid.
    pub(super) fn check_numa(&self, findings: &mut KeyFindings<'_>) {
        for vm in &self.vms {
            let key = format!("vm.{}.numa", vm.name);
            if let VirtualNodes::Each(nodes) = &vm.numa {
                vm.check_each(&key, nodes.len(), format!("{} nodes", nodes.len()), findings);
            }
            if vm.domains(&self.machine.topology, self.machine.numbering).is_none() {
                let found = "\"pinned\", and a vCPU that may run on several sockets";
                let expected = format!("vm.{}.affinity that keeps each vCPU on one socket", vm.name);
                findings.add(&key, found, expected);
            }
        }
    }

    /// Checks the tree of task groups and all limits.
    pub(super) fn check_groups(&self, findings: &mut KeyFindings<'_>) {
        let mut check = groups::Check {
            groups: &self.groups,
            sched: &self.host.sched,
            pcpus: self.machine.topology.pcpus(),
            findings,
        };
        check.tree();
        for vm in &self.vms {
            let path = format!("vm.{}", vm.name);
            let levels = match vm.host.group {
                VmGroup::Root => 0,
                VmGroup::Own { .. } => 1,
                VmGroup::OwnWithVcpuGroups { .. } => 2,
            };
            let parent_key = format!("{path}.parent");
            if check.parent(&parent_key, vm.group.as_deref()) {
                check.depth(&parent_key, vm.group.as_deref(), levels);
            }
            check.limit(&path, "", vm.limit);
            check.limit(&path, "vcpu_", vm.vcpu_limit);
        }
        for task in &self.tasks {
            check.parent(&format!("task.{}.parent", task.name), task.group.as_deref());
        }
    }
}

/// Refuses costs with which a loop of loads and PAUSEs takes no time: virtual time would stand still in it.
pub(super) fn check_waiting(costs: &Costs, findings: &mut KeyFindings<'_>) {
    if costs.load_hit.0 == 0 && costs.pause.0 == 0 {
        let found = "0 ns, like machine.costs.load_hit".to_owned();
        let expected = "more than 0 ns for one of the two: a loop that waits takes time";
        findings.add("machine.costs.pause", found, expected);
    }
}
