//! What a run is made of: the machine, the host, the guests, and the host's other tasks.

use holdfast_machine::Profile;

/// A machine with all that runs on it.
#[derive(Clone, Debug)]
pub struct Config {
    /// The hardware.
    pub machine: Profile,
    /// The host kernel's and hypervisor's parameters.
    pub host: holdfast_host::HostConfig,
    /// Task groups of the host, parents before what stands beneath them.
    pub groups: Vec<Group>,
    /// Guests.
    pub vms: Vec<Vm>,
    /// Host tasks that are no vCPUs.
    pub tasks: Vec<HostTask>,
    /// Seed of all random streams.
    pub seed: u64,
    /// Executes every iteration of every spin instead of skipping it: slow, and the same history bit for bit.
    pub execute_spins: bool,
    /// Virtual time after which an unfinished run is a failure.
    pub limit_ns: u64,
}

/// A task group of the host (cgroup of the cpu controller).
#[derive(Clone, Debug)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// The group beneath which it stands; `None`: the root group.
    pub parent: Option<String>,
    /// `cpu.shares`, 2 to 262144.
    pub shares: u64,
    /// How much CPU time it may have.
    pub quota: Option<holdfast_host::Quota>,
}

/// A guest, or the kernel on the machine itself.
#[derive(Clone, Debug)]
pub struct Vm {
    /// Its name in the results.
    pub name: String,
    /// Virtual CPUs.
    pub vcpus: u32,
    /// For each vCPU the pCPUs that it may run on; empty: all.
    pub affinity: Vec<Vec<u32>>,
    /// For each vCPU the proximity domain that the firmware's table (ACPI SRAT) gives it; empty: there is no such table.
    pub domains: Vec<u32>,
    /// The task group in or beneath which its threads are; `None`: the root group.
    pub group: Option<String>,
    /// What the host tells and offers this guest, and its share of the CPUs.
    pub host: holdfast_host::VmConfig,
    /// Kernel parameters and workload.
    pub boot: holdfast_workloads::Boot,
    /// The run ends when every measured guest is done.
    pub measured: bool,
    /// No guest: this kernel runs on the pCPUs themselves, one of its CPUs on each, and its tasks are threads of the host's
    /// scheduler. One at most; `vcpus` is the number of pCPUs and `affinity` empty.
    pub bare_metal: bool,
}

/// A host task that is no vCPU: computes for `busy_ns`, sleeps for `sleep_ns`, for ever.
#[derive(Clone, Debug)]
pub struct HostTask {
    /// Its name in traces.
    pub name: String,
    /// Nice level, -20 to 19.
    pub nice: i8,
    /// pCPUs that it may run on; empty: all.
    pub affinity: Vec<u32>,
    /// Its task group; `None`: the root group.
    pub group: Option<String>,
    /// CPU time between two sleeps; `u64::MAX`: never sleeps.
    pub busy_ns: u64,
    /// How long it sleeps.
    pub sleep_ns: u64,
}
