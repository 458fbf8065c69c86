//! Configuration of a run: the machine, the host, the guests, and the host's other tasks.

use holdfast_machine::Profile;

use crate::migration::journey::{Destination, Migration};
use crate::migration::precopy::Migrated;

/// A machine and everything that runs on it.
#[derive(Clone, Debug)]
pub struct Config {
    /// The hardware.
    pub machine: Profile,
    /// The host kernel's and hypervisor's parameters.
    pub host: holdfast_host::HostConfig,
    /// Task groups of the host. A parent comes before its children.
    pub groups: Vec<Group>,
    /// Guests, and the bare-metal kernel if there is one.
    pub vms: Vec<Vm>,
    /// Host tasks other than vCPUs.
    pub tasks: Vec<HostTask>,
    /// How often the threads of the host's kernel wake, as a multiple of what was measured. With 0 there are none.
    pub noise: f64,
    /// Seed of all random streams.
    pub seed: u64,
    /// Executes every iteration of every spin instead of skipping it. It is slow, and the history is the same.
    pub execute_spins: bool,
    /// Virtual time after which an unfinished run is a failure.
    pub limit_ns: u64,
    /// A live migration of all guests, again and again, with all interrupts audited. `None` if there is none.
    pub migration: Option<Migration>,
    /// The host to which guests migrate, and from which they come back. `None` if it is like this one.
    pub destination: Option<Box<Destination>>,
    /// Virtual time at which all statistics are zeroed. `None` never zeroes them.
    pub zero_at_ns: Option<u64>,
}

/// A task group of the host (cgroup of the cpu controller).
#[derive(Clone, Debug)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Its parent; `None` for the root group.
    pub parent: Option<String>,
    /// `cpu.shares`, 2 to 262144.
    pub shares: u64,
    /// Limit of its CPU time.
    pub quota: Option<holdfast_host::Quota>,
}

/// A guest, or the bare-metal kernel.
#[derive(Clone, Debug)]
pub struct Vm {
    /// Its name in the results.
    pub name: String,
    /// Number of its vCPUs.
    pub vcpus: u32,
    /// The pCPUs on which each vCPU may run; all, if empty.
    pub affinity: Vec<Vec<u32>>,
    /// The proximity domain of each vCPU in the firmware's table (ACPI SRAT); empty if there is no such table.
    pub domains: Vec<u32>,
    /// The task group that holds its threads or their group; `None` for the root group.
    pub group: Option<String>,
    /// The host's settings for this guest: features, and its share of the CPUs.
    pub host: holdfast_host::VmConfig,
    /// Kernel parameters and workload.
    pub boot: holdfast_workloads::Boot,
    /// The guest inside of which it runs. That guest boots a host of its own then, with the parameters of this one, and
    /// not its workload. `None` for a guest of the machine's host.
    pub inside: Option<String>,
    /// When it is there.
    pub stay: Stay,
    /// Its VMM.
    pub vmm: VmmConfig,
    /// The run ends when every measured guest is done.
    pub measured: bool,
    /// With `bare_metal` there is no guest: the kernel runs on the pCPUs themselves, and its tasks are threads of the
    /// host's scheduler. There can be one such kernel. Then `vcpus` is the number of pCPUs, and `affinity` is empty.
    pub bare_metal: bool,
}

/// What the VMM of a guest does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VmmConfig {
    /// The disk of the guest. `None` if it has none, and all files are in the page cache.
    pub disk: Option<DiskConfig>,
    /// Time between two wakeups of the VMM's main thread, in nanoseconds. `None` if it never wakes by itself.
    pub period_ns: Option<u64>,
    /// What live migrations copy of the guest.
    pub migrated: Migrated,
}

/// A disk behind a guest's block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskConfig {
    /// Time from a request's arrival at the disk to its first byte: seek and rotation, or that of flash. Nanoseconds.
    pub latency_ns: u64,
    /// Requests that the disk works on at a time, at least 1. The others wait in the guest's queue.
    pub depth: u32,
    /// Bytes that the disk transfers in a second, one request after another. At least 1.
    pub bytes_per_second: u64,
}

/// When a VM is on its host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stay {
    /// Virtual time at which the VMM starts the VM; 0 for the start of the host.
    pub from_ns: u64,
    /// Virtual time at which the VMM removes the VM.
    ///
    /// `None` leaves it there.
    pub until_ns: Option<u64>,
}

/// A host task other than a vCPU: it computes for `busy_ns` and sleeps for `sleep_ns`, again and again.
#[derive(Clone, Debug)]
pub struct HostTask {
    /// Its name in traces.
    pub name: String,
    /// Nice level, -20 to 19.
    pub nice: i8,
    /// pCPUs that the task may run on. All, if empty.
    pub affinity: Vec<u32>,
    /// Task group that holds the task.
    ///
    /// `None` is the root group.
    pub group: Option<String>,
    /// CPU time between two sleeps.
    ///
    /// `u64::MAX` if it never sleeps.
    pub busy_ns: u64,
    /// How long the task sleeps.
    pub sleep_ns: u64,
}
