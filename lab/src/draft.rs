//! A configuration while keys are being set: the machine, the host and its guests. It is checked as a whole when it is
//! built.

mod checks;
mod disk;
mod migration;

use holdfast_host::{HostConfig, Linux, PolicyKind, VmConfig};
use holdfast_locks::LockKind;
use holdfast_machine::{Numbering, Profile, Topology};
use holdfast_sim::{Config, HostTask, Migrated, Stay, Vm, VmmConfig};
use holdfast_workloads::{Boot, GuestPolicyKind, OwnWorkload};

use crate::diagnostic::KeyFindings;
use crate::extensions::Extensions;
use crate::groups::{self, DraftGroup, Limit};
use crate::linux::{self, TODAY};
use crate::profile::MachineProfile;
use crate::slot::{Affinity, VirtualNodes};
use checks::check_waiting;

pub use disk::DraftDisk;
pub use migration::DraftMigration;

/// Limit on the guests of one host.
pub const VMS_MAX: usize = 256;
/// Limit on the vCPUs of one guest, and of all guests together: what logical IDs of x2APIC mode can name. The guest's
/// lock has a limit of its own. KVM has one, too (KVM_MAX_VCPUS, at most 4096 since Linux 6.7, uncertain). Beyond 254
/// vCPUs they need x2APIC IDs.
pub const VCPUS_MAX: u32 = holdfast_host::VCPUS_MAX;
/// Limit on the host tasks.
pub const TASKS_MAX: usize = 1024;
/// Default virtual time after which an unfinished run is a failure.
const LIMIT_NS: u64 = 100_000 * 1_000_000_000;

/// A guest while keys are being set.
#[derive(Clone, Debug)]
pub struct DraftVm {
    /// Name of the guest.
    pub name: String,
    /// The version of the guest's Linux. The kernel's parameters, and which of the host's paravirtual features it uses,
    /// are what the version implies, unless they are set themselves.
    pub kernel: Linux,
    /// The version of the host's Linux, which offers no feature that it does not know.
    pub host_kernel: Linux,
    /// Number of virtual CPUs.
    pub vcpus: u32,
    /// pCPUs that the vCPUs may run on.
    pub affinity: Affinity,
    /// NUMA nodes that the guest's firmware reports: one for all vCPUs (QEMU's default), those of the sockets that the
    /// vCPUs are pinned to, or as listed.
    pub numa: VirtualNodes,
    /// Task group that holds the vCPU threads or the guest's own group.
    ///
    /// `None` is the root group.
    pub group: Option<String>,
    /// Limit on the CPU time of the guest's own task group.
    pub limit: Limit,
    /// Limit on the CPU time of each vCPU's task group.
    pub vcpu_limit: Limit,
    /// Features that the host offers this guest, and its task group.
    pub host: holdfast_host::VmConfig,
    /// Kernel parameters and workload.
    pub boot: Boot,
    /// Virtual time at which the VM is started. Until then its vCPUs are off.
    pub from_ns: u64,
    /// Virtual time at which the VM is removed.
    ///
    /// `None` keeps it to the end.
    pub until_ns: Option<u64>,
    /// Time between two wakeups of the VMM's main thread, each for 12 us. With `None` it never wakes by itself, as that
    /// of QEMU if the kernel has the interrupt controllers and the PIT. That of Holdfast's own VMM wakes every 20 ms.
    pub vmm_period_ns: Option<u64>,
    /// The guest's disk.
    pub disk: DraftDisk,
    /// Memory that the first round of a live migration's copy sends. It needs `host.migration.bandwidth`.
    ///
    /// `None` is what the guest has touched, which is little in a short run.
    pub memory_mib: Option<u32>,
    /// Rate at which the guest writes to memory that it has not written to since the last round of a live migration's
    /// copy began. It needs `host.migration.bandwidth`. The rounds get longer. While its vCPUs run user code, the first
    /// write to each of those pages is a write fault, or an entry of the hardware's page log.
    ///
    /// `None` is what the workload writes.
    pub dirty_mib_per_second: Option<u32>,
    /// The guest's share of its full-size work, as a multiple of the experiment's scale. A guest that would end long
    /// before the others gets more work by it. Elapsed times are those of that much work.
    pub work: f64,
    /// The kernel runs on the machine itself, next to the guests, and there is no guest. It has all pCPUs and the
    /// host's scheduler.
    pub bare_metal: bool,
    /// The guest inside of which this one runs. That guest's kernel is then a hypervisor with a host scheduler, with
    /// the parameters of `host`, and its vCPUs are the pCPUs of this guest.
    ///
    /// `None` is the machine's own host.
    pub inside: Option<String>,
    /// The locks that can be named.
    pub locks: &'static [LockKind],
    /// The guest policies that can be named.
    pub guest_policies: &'static [GuestPolicyKind],
    /// The workloads that can be named besides the shipped ones.
    pub workloads: &'static [OwnWorkload],
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
    /// The guests.
    pub vms: Vec<DraftVm>,
    /// Host tasks.
    pub tasks: Vec<HostTask>,
    /// How often the threads of the host's kernel wake, as a multiple of what was measured of Linux 6.1 on a busy
    /// machine: in a second 1.3 times on each pCPU, twice on each node, and once in two seconds anywhere, for 5 us
    /// each. With 0 there are none.
    pub noise: f64,
    /// Virtual time after which an unfinished run fails.
    pub limit_ns: u64,
    /// Live migrations.
    pub migration: DraftMigration,
    /// Time from which statistics count, as after a write to Linux's `zero_stats`.
    ///
    /// `None` counts from power-on.
    pub zero_at_ns: Option<u64>,
    /// The host policies that can be named.
    pub policies: &'static [PolicyKind],
}

impl DraftVm {
    /// Returns a guest of today with one vCPU that does nothing, on a host with the Linux `host_kernel`.
    pub fn new(name: &str, host_kernel: Linux) -> DraftVm {
        let mut vm = DraftVm {
            name: name.to_owned(),
            kernel: TODAY,
            host_kernel,
            vcpus: 1,
            affinity: Affinity::Same(Vec::new()),
            numa: VirtualNodes::One,
            group: None,
            limit: Limit::default(),
            vcpu_limit: Limit::default(),
            host: holdfast_host::VmConfig::default(),
            boot: Boot::default(),
            from_ns: 0,
            until_ns: None,
            vmm_period_ns: None,
            disk: DraftDisk::NONE,
            memory_mib: None,
            dirty_mib_per_second: None,
            work: 1.0,
            locks: Extensions::shipped().locks,
            guest_policies: Extensions::shipped().guest_policies,
            workloads: Extensions::NONE.workloads,
            bare_metal: false,
            inside: None,
        };
        vm.set_kernel(TODAY);
        vm
    }

    /// Sets what `version` implies for the guest's kernel, and the features that both it and the host's kernel know.
    /// Nothing else changes: CPUs, groups, workload.
    pub(crate) fn set_kernel(&mut self, version: Linux) {
        self.kernel = version;
        self.boot = Boot {
            kernel: linux::kernel(version),
            wait_early_preempted: version == Linux::V4_12,
            ..self.boot.clone()
        };
        let offered = VmConfig::of(version.min(self.host_kernel));
        self.host = VmConfig {
            pv_unhalt: offered.pv_unhalt,
            steal_time: offered.steal_time,
            preempted_flag: offered.preempted_flag,
            pv_eoi: offered.pv_eoi,
            pv_send_ipi: offered.pv_send_ipi,
            pv_tlb_flush: offered.pv_tlb_flush,
            pv_sched_yield: offered.pv_sched_yield,
            poll_control: offered.poll_control,
            ..self.host
        };
    }

    /// Returns whether the run waits for the guest: its workload ends, and the VM is not removed.
    pub fn is_measured(&self) -> bool {
        self.boot.workload.ends() && self.until_ns.is_none()
    }

    /// Returns the proximity domain of each vCPU. Returns `None` if domains follow the pinning and some vCPU may run on
    /// several sockets.
    fn domains(&self, topology: &Topology, numbering: Numbering) -> Option<Vec<u32>> {
        let all: Vec<u32> = (0..topology.pcpus()).collect();
        let domain = |vcpu: usize| {
            let pcpus = match &self.affinity {
                Affinity::Same(cpus) => cpus,
                Affinity::Each(sets) => &sets[vcpu],
            };
            let pcpus = if pcpus.is_empty() { &all } else { pcpus };
            let mut sockets = pcpus.iter().map(|pcpu| match self.inside {
                Some(_) => topology.socket_of(*pcpu),
                None => topology.socket_of(numbering.index(topology, *pcpu)),
            });
            let first = sockets.next()?;
            sockets.all(|socket| socket == first).then_some(first)
        };
        match &self.numa {
            VirtualNodes::One => Some(Vec::new()),
            VirtualNodes::Pinned => (0..self.vcpus as usize).map(domain).collect(),
            VirtualNodes::Each(nodes) => Some(nodes.clone()),
        }
    }

    /// Checks that a list set by `key` has `count` entries, one for each vCPU.
    fn check_each(&self, key: &str, count: usize, found: String, findings: &mut KeyFindings<'_>) {
        if count != self.vcpus as usize {
            findings.add(key, found, format!("{}, one for each vCPU", self.vcpus));
        }
    }

    fn build(self, scale: f64, machine: &Profile) -> Vm {
        let topology = &machine.topology;
        let measured = self.is_measured();
        let domains = if self.bare_metal {
            (0..topology.pcpus()).map(|pcpu| topology.socket_of(pcpu)).collect()
        } else {
            self.domains(topology, machine.numbering).expect("checked")
        };
        let affinity = match self.affinity.clone() {
            Affinity::Same(cpus) if cpus.is_empty() => Vec::new(),
            Affinity::Same(cpus) => vec![cpus; self.vcpus as usize],
            Affinity::Each(sets) => sets,
        };
        let affinity = match self.inside {
            // They are vCPUs of the other guest.
            Some(_) => affinity,
            None => affinity
                .iter()
                .map(|set| indexes(set, topology, machine.numbering))
                .collect(),
        };
        let mut boot = self.boot;
        boot.workload.scale_work(scale * self.work);
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
            stay: Stay {
                from_ns: self.from_ns,
                until_ns: self.until_ns,
            },
            vmm: VmmConfig {
                disk: self.disk.config(),
                period_ns: self.vmm_period_ns,
                migrated: Migrated {
                    pages: self.memory_mib.map(|mib| u64::from(mib) << 8),
                    dirty_pages_per_second: self.dirty_mib_per_second.map(|mib| u64::from(mib) << 8),
                },
            },
            measured,
            bare_metal: self.bare_metal,
            inside: self.inside,
        }
    }
}

/// Returns the indexes of the pCPUs that users call `numbers`, in their order.
fn indexes(numbers: &[u32], topology: &Topology, numbering: Numbering) -> Vec<u32> {
    let mut indexes: Vec<u32> = numbers
        .iter()
        .map(|number| numbering.index(topology, *number))
        .collect();
    indexes.sort_unstable();
    indexes
}

/// Returns a host task that never sleeps.
pub(crate) fn new_task(name: &str) -> HostTask {
    HostTask {
        name: name.to_owned(),
        nice: 0,
        affinity: Vec::new(),
        group: None,
        busy_ns: u64::MAX,
        sleep_ns: 1_000_000,
    }
}

impl Draft {
    /// Returns the default configuration of `machine`, without groups, guests and tasks.
    pub(crate) fn new(machine: MachineProfile) -> Draft {
        Draft {
            machine,
            host: HostConfig::of(TODAY),
            groups: Vec::new(),
            vms: Vec::new(),
            tasks: Vec::new(),
            noise: 1.0,
            limit_ns: LIMIT_NS,
            migration: DraftMigration::new(),
            zero_at_ns: None,
            policies: Extensions::NONE.policies,
        }
    }

    /// Checks what involves several keys, and makes the configuration. Returns `None` if there are problems, which go
    /// to `findings`.
    pub(crate) fn build(self, scale: f64, findings: &mut KeyFindings<'_>) -> Option<Config> {
        let before = findings.count();
        self.check_counts(findings);
        self.check_locks(findings);
        self.check_bare_metal(findings);
        self.check_inside(findings);
        self.check_disks(findings);
        self.check_affinity(findings);
        self.check_host(findings);
        self.check_groups(findings);
        self.check_migration(findings);
        if findings.count() == before {
            self.check_numa(findings);
        }
        let machine = self.machine.build();
        if machine.is_none() {
            let found = format!("{} Hz", self.machine.frequency_hz);
            findings.add("machine.frequency_mhz", found, "a clock that all costs fit");
        }
        if let Some(machine) = &machine {
            check_waiting(&machine.costs, findings);
        }
        if findings.count() > before {
            return None;
        }
        let machine = machine?;
        let (migration, destination) = self.build_migration();
        // The guest's time-stamp counter runs at the machine's frequency.
        let host = HostConfig {
            tsc_hz: machine.frequency_hz,
            pause_controls: self.machine.pauses.controls(machine.frequency_hz).unwrap_or_default(),
            ..self.host
        };
        let tasks = self.tasks.into_iter().map(|task| HostTask {
            affinity: indexes(&task.affinity, &machine.topology, machine.numbering),
            ..task
        });
        Some(Config {
            host,
            groups: groups::ordered(&self.groups),
            vms: self.vms.into_iter().map(|vm| vm.build(scale, &machine)).collect(),
            tasks: tasks.collect(),
            machine,
            noise: self.noise,
            seed: 0,
            execute_spins: false,
            limit_ns: self.limit_ns,
            migration,
            destination,
            zero_at_ns: self.zero_at_ns,
        })
    }
}
