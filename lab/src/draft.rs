//! A machine with its guests while keys are being set; checked as a whole when it becomes a configuration.

use holdfast_host::{HostConfig, YieldFavor};
use holdfast_machine::Topology;
use holdfast_sim::{Config, HostTask, Vm};
use holdfast_workloads::Boot;

use crate::diagnostic::{Findings, Place};
use crate::groups::{DraftGroup, Limit};
use crate::keys::{Affinity, Choice, VirtualNodes};
use crate::profile::{MachineProfile, PauseDetection};

/// Most guests of one host.
pub const VMS_MAX: usize = 256;
/// Most vCPUs of one guest: as KVM has it on x86 (KVM_MAX_VCPUS); beyond 254 they need x2APIC IDs.
pub const VCPUS_MAX: u32 = 1024;
/// Most vCPUs of all guests together.
pub const TOTAL_VCPUS_MAX: u32 = 4096;
/// Most host tasks.
pub const TASKS_MAX: usize = 1024;

/// A guest while keys are being set.
#[derive(Clone, Debug)]
pub struct DraftVm {
    /// Its name.
    pub name: String,
    /// Virtual CPUs.
    pub vcpus: u32,
    /// pCPUs that the vCPUs may run on.
    pub affinity: Affinity,
    /// NUMA nodes that the guest sees.
    pub numa: VirtualNodes,
    /// The task group in or beneath which its threads are; `None`: the root group.
    pub group: Option<String>,
    /// How much CPU time its own task group may have.
    pub limit: Limit,
    /// How much the group of each vCPU may have.
    pub vcpu_limit: Limit,
    /// What the host tells and offers this guest.
    pub host: holdfast_host::VmConfig,
    /// Kernel parameters and workload.
    pub boot: Boot,
    /// Whether the run waits for it; `None`: if its workload ends.
    pub measured: Option<bool>,
    /// No guest: the kernel on the machine itself.
    pub bare_metal: bool,
}

/// A configuration while keys are being set.
#[derive(Clone, Debug)]
pub struct Draft {
    /// The hardware.
    pub machine: MachineProfile,
    /// The host's parameters.
    pub host: HostConfig,
    /// Task groups.
    pub groups: Vec<DraftGroup>,
    /// Guests.
    pub vms: Vec<DraftVm>,
    /// Host tasks.
    pub tasks: Vec<HostTask>,
    /// Virtual time after which an unfinished run is a failure.
    pub limit_ns: u64,
}

impl DraftVm {
    /// A guest of one vCPU that does nothing.
    pub fn new(name: &str) -> DraftVm {
        DraftVm {
            name: name.to_owned(),
            vcpus: 1,
            affinity: Affinity::Same(Vec::new()),
            numa: VirtualNodes::One,
            group: None,
            limit: Limit::default(),
            vcpu_limit: Limit::default(),
            host: holdfast_host::VmConfig::default(),
            boot: Boot::default(),
            measured: None,
            bare_metal: false,
        }
    }

    /// Whether the run waits for it.
    pub fn is_measured(&self) -> bool {
        self.measured.unwrap_or(self.boot.workload.ends())
    }

    /// The proximity domain of each vCPU; `None`: it follows the pinning, and the pCPUs of some vCPU are on several sockets.
    fn domains(&self, topology: &Topology) -> Option<Vec<u32>> {
        let all: Vec<u32> = (0..topology.pcpus()).collect();
        let domain = |vcpu: usize| {
            let pcpus = match &self.affinity {
                Affinity::Same(cpus) => cpus,
                Affinity::Each(sets) => &sets[vcpu],
            };
            let pcpus = if pcpus.is_empty() { &all } else { pcpus };
            let first = topology.socket_of(pcpus[0]);
            pcpus
                .iter()
                .all(|pcpu| topology.socket_of(*pcpu) == first)
                .then_some(first)
        };
        match &self.numa {
            VirtualNodes::One => Some(Vec::new()),
            VirtualNodes::Pinned => (0..self.vcpus as usize).map(domain).collect(),
            VirtualNodes::Each(nodes) => Some(nodes.clone()),
        }
    }

    fn build(self, scale: f64, topology: &Topology) -> Vm {
        let measured = self.is_measured();
        let domains = if self.bare_metal {
            (0..topology.pcpus()).map(|pcpu| topology.socket_of(pcpu)).collect()
        } else {
            self.domains(topology).expect("checked")
        };
        let affinity = match self.affinity {
            Affinity::Same(cpus) if cpus.is_empty() => Vec::new(),
            Affinity::Same(cpus) => vec![cpus; self.vcpus as usize],
            Affinity::Each(sets) => sets,
        };
        let mut boot = self.boot;
        boot.workload.scale_work(scale);
        Vm {
            name: self.name,
            vcpus: if self.bare_metal { topology.pcpus() } else { self.vcpus },
            affinity,
            domains,
            group: self.group,
            host: holdfast_host::VmConfig {
                quota: self.limit.quota(),
                vcpu_quota: self.vcpu_limit.quota(),
                ..self.host
            },
            boot,
            measured,
            bare_metal: self.bare_metal,
        }
    }
}

impl Draft {
    /// Checks what no single key can see, and makes the configuration. Problems go to `findings`; `place` finds where a
    /// key was set.
    pub(crate) fn build(self, scale: f64, place: &dyn Fn(&str) -> Place, findings: &mut Findings) -> Option<Config> {
        let before = findings.count();
        self.check_counts(place, findings);
        self.check_affinity(place, findings);
        self.check_pauses(place, findings);
        self.check_favor(place, findings);
        self.check_groups(place, findings);
        if findings.count() == before {
            self.check_numa(place, findings);
        }
        let machine = self.machine.build();
        if machine.is_none() {
            let found = format!("{} Hz", self.machine.frequency_hz);
            findings.add(
                &place("machine.frequency_mhz"),
                "machine.frequency_mhz",
                found,
                "a clock that all costs fit",
            );
        }
        if findings.count() > before {
            return None;
        }
        let machine = machine?;
        let groups = self.ordered_groups();
        // One clock: the guest's time-stamp counter is the machine's.
        let host = HostConfig {
            tsc_hz: machine.frequency_hz,
            pause_controls: self.machine.pauses.controls(machine.frequency_hz).unwrap_or_default(),
            ..self.host
        };
        let topology = machine.topology;
        Some(Config {
            machine,
            host,
            groups,
            vms: self.vms.into_iter().map(|vm| vm.build(scale, &topology)).collect(),
            tasks: self.tasks,
            seed: 0,
            execute_spins: false,
            limit_ns: self.limit_ns,
        })
    }

    fn check_counts(&self, place: &dyn Fn(&str) -> Place, findings: &mut Findings) {
        let Topology {
            sockets,
            cores,
            threads,
        } = self.machine.topology;
        let pcpus = u64::from(sockets) * u64::from(cores) * u64::from(threads);
        if pcpus > u64::from(crate::profile::PCPUS_MAX) {
            let found = format!("{sockets} x {cores} x {threads} = {pcpus} pCPUs");
            let expected = format!("at most {} pCPUs", crate::profile::PCPUS_MAX);
            findings.add(&place("machine.cores"), "machine", found, expected);
        }
        let vcpus: u32 = self.vms.iter().map(|vm| vm.vcpus).sum();
        if vcpus > TOTAL_VCPUS_MAX {
            let expected = format!("at most {TOTAL_VCPUS_MAX}");
            findings.add(
                &place("vm.*.vcpus"),
                "vm.*.vcpus",
                format!("{vcpus} vCPUs in all guests"),
                expected,
            );
        }
        for vm in self
            .vms
            .iter()
            .filter(|vm| vm.is_measured() && !vm.boot.workload.ends())
        {
            let key = format!("vm.{}.measured", vm.name);
            findings.add(
                &place(&key),
                &key,
                "a measured guest whose workload never ends",
                "one whose workload ends",
            );
        }
        self.check_bare_metal(place, findings);
        if !self.vms.iter().any(DraftVm::is_measured) {
            let expected = "at least one guest whose workload ends and is measured, such as kernbench";
            findings.add(&place("vm.*.workload"), "vm", "no measured guest", expected);
        }
    }

    /// Whether pause loops can be told apart from other PAUSEs, and windows can move as they are told.
    fn check_pauses(&self, place: &dyn Fn(&str) -> Place, findings: &mut Findings) {
        let mut add = |key: &str, found: String, expected: &str| findings.add(&place(key), key, found, expected);
        let hz = self.machine.frequency_hz;
        let (base, most) = match &self.machine.pauses {
            PauseDetection::Ple { gap, window, .. } => {
                let most = u64::from(u32::MAX);
                let (gap_cycles, cycles) = (gap.cycles(hz), window.cycles(hz));
                let gap_cycles = gap_cycles.filter(|cycles| (1..most).contains(cycles));
                if gap_cycles.is_none() {
                    add(
                        "machine.ple_gap",
                        gap.to_string(),
                        "1 to 4294967294 cycles of the machine's clock",
                    );
                }
                // Where only the gap was set, that is what is wrong.
                let unset = place("");
                let blamed = place("machine.ple_window") == unset && place("machine.ple_gap") != unset;
                match (gap_cycles, cycles.filter(|cycles| (1..=most).contains(cycles))) {
                    (Some(low), Some(high)) if low < high => {}
                    (Some(_), Some(_)) if blamed => {
                        add(
                            "machine.ple_gap",
                            gap.to_string(),
                            &format!("less than the window ({window})"),
                        );
                    }
                    (None, Some(_)) => {}
                    _ => {
                        let expected = format!("more than the gap ({gap}), up to 4294967295 cycles");
                        add("machine.ple_window", window.to_string(), &expected);
                    }
                }
                (cycles.unwrap_or(most), most)
            }
            PauseDetection::Filter { count, threshold, .. } => {
                let most = u64::from(u16::MAX);
                if threshold.cycles(hz).is_none_or(|cycles| cycles > most) {
                    add(
                        "machine.pause_filter_threshold",
                        threshold.to_string(),
                        "0 to 65535 cycles",
                    );
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
                add(key, parameter.to_string(), expected);
            }
        }
        if let Some(max) = rule.max.filter(|max| !(base..=most).contains(&u64::from(*max))) {
            let expected = format!("{base} (the window that it starts from) to {most} (what the part's field holds)");
            add("host.pause_window.max", max.to_string(), &expected);
        }
    }

    /// Whether there are the virtual deadlines that a directed yield is to move.
    fn check_favor(&self, place: &dyn Fn(&str) -> Place, findings: &mut Findings) {
        let (key, sched) = ("host.yield.favor", &self.host.sched);
        if sched.favor.rule != YieldFavor::None && !sched.is_eevdf() {
            let found = sched.favor.rule.name();
            findings.add(
                &place(key),
                key,
                found,
                "none, or host.scheduler = \"eevdf-6.6\" or \"eevdf-6.12\"",
            );
        }
    }

    fn check_bare_metal(&self, place: &dyn Fn(&str) -> Place, findings: &mut Findings) {
        let mut natives = self.vms.iter().filter(|vm| vm.bare_metal);
        if let Some(vm) = natives.next()
            && vm.affinity != Affinity::Same(Vec::new())
        {
            let key = format!("vm.{}.affinity", vm.name);
            findings.add(
                &place(&key),
                &key,
                "pCPUs for bare metal",
                "none: it has the whole machine",
            );
        }
        for vm in natives {
            let key = format!("vm.{}.bare_metal", vm.name);
            findings.add(&place(&key), &key, "true", "one kernel on the machine itself at most");
        }
        let remote = |vm: &&DraftVm| vm.bare_metal && vm.boot.workload.uses_network();
        for vm in self.vms.iter().filter(remote) {
            let key = format!("vm.{}.bare_metal", vm.name);
            let expected = "false: netperf's server is reached over a guest's network device";
            findings.add(&place(&key), &key, "true, with the workload netperf", expected);
        }
    }

    fn check_affinity(&self, place: &dyn Fn(&str) -> Place, findings: &mut Findings) {
        let pcpus = self.machine.topology.pcpus();
        let mut check = |key: String, sets: &[Vec<u32>]| {
            for cpu in sets.iter().flatten().filter(|cpu| **cpu >= pcpus) {
                let expected = format!("pCPUs from 0 to {} of {}", pcpus.saturating_sub(1), self.machine.name);
                findings.add(&place(&key), &key, format!("pCPU {cpu}"), expected);
            }
        };
        for vm in &self.vms {
            let key = format!("vm.{}.affinity", vm.name);
            match &vm.affinity {
                Affinity::Same(cpus) => check(key, std::slice::from_ref(cpus)),
                Affinity::Each(sets) => check(key, sets),
            }
        }
        for task in &self.tasks {
            check(
                format!("task.{}.affinity", task.name),
                std::slice::from_ref(&task.affinity),
            );
        }
        for vm in &self.vms {
            if let Affinity::Each(sets) = &vm.affinity
                && sets.len() != vm.vcpus as usize
            {
                let key = format!("vm.{}.affinity", vm.name);
                let expected = format!("{}, one for each vCPU", vm.vcpus);
                findings.add(&place(&key), &key, format!("{} sets of pCPUs", sets.len()), expected);
            }
        }
    }

    /// Needs sound affinities.
    fn check_numa(&self, place: &dyn Fn(&str) -> Place, findings: &mut Findings) {
        for vm in &self.vms {
            let key = format!("vm.{}.numa", vm.name);
            if let VirtualNodes::Each(nodes) = &vm.numa
                && nodes.len() != vm.vcpus as usize
            {
                let expected = format!("{}, one for each vCPU", vm.vcpus);
                findings.add(&place(&key), &key, format!("{} nodes", nodes.len()), expected);
            }
            if vm.domains(&self.machine.topology).is_none() {
                let found = "\"pinned\", and a vCPU that may run on several sockets";
                let expected = format!("vm.{}.affinity that keeps each vCPU on one socket", vm.name);
                findings.add(&place(&key), &key, found, expected);
            }
        }
    }
}
