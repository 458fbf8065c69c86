//! One run: what goes in, what comes out.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::AtomicBool;

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

/// What one run gave.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Each guest, in the order of the configuration.
    pub vms: Vec<VmOutcome>,
    /// Virtual time at the end, in nanoseconds.
    pub end_ns: u64,
    /// Hash over the whole history: every ordered operation, event and command with its time.
    pub history_hash: u64,
    /// Engine statistics: events, switches, parks.
    pub engine: BTreeMap<&'static str, u64>,
}

/// What one guest did.
#[derive(Clone, Debug)]
pub struct VmOutcome {
    /// Its name.
    pub name: String,
    /// Nanoseconds from the workload's begin to its end; `None` for a guest that is not measured.
    pub elapsed_ns: Option<u64>,
    /// Operations completed in that interval, for workloads that measure throughput.
    pub operations: Option<u64>,
    /// Counters of guest, locks, host and machine.
    pub counters: BTreeMap<String, u64>,
    /// Where its vCPUs' time went, picoseconds by cause; sums to `vcpu_time_ps` exactly.
    pub lost_time_ps: BTreeMap<&'static str, u64>,
    /// Elapsed time times vCPUs.
    pub vcpu_time_ps: u64,
    /// The longest time for which no vCPU of this guest did useful work or held a lock while running, in nanoseconds: a
    /// convoy shows here.
    pub longest_stall_ns: u64,
    /// The convoys that it fell into, if it did.
    pub convoy: Option<Convoy>,
}

/// Time in which a guest's vCPUs spent longer spinning behind vCPUs that were not running than on their own work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Convoy {
    /// When the first one began, nanoseconds since power-on.
    pub since_ns: u64,
    /// How long all of them lasted together, in nanoseconds.
    pub total_ns: u64,
}

/// Set by another thread to end a run early.
pub type CallOff = AtomicBool;

/// Why a run did not finish. The message names who waits for what.
#[derive(Clone, Debug, PartialEq)]
pub enum Failure {
    /// Nothing can happen any more: all wait for each other.
    Deadlock(String),
    /// A halted vCPU waits for a lock that is free, and nobody will kick it.
    LostKick(String),
    /// Time passes and no guest makes progress.
    Livelock(String),
    /// The virtual-time limit was reached.
    Limit(String),
    /// The guest gave up.
    GuestPanic(String),
    /// A guest flow of control used up its stack.
    StackOverflow(String),
    /// A vCPU executes user code with translations that its kernel relied on being gone.
    StaleTranslation(String),
    /// The audit of interrupts missed one.
    LostInterrupt(String),
    /// The audit of interrupts found one too many.
    DoubledInterrupt(String),
    /// The configuration cannot be built.
    Invalid(String),
    /// Called off from outside.
    CalledOff,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Deadlock(what) => write!(f, "deadlock: {what}"),
            Failure::LostKick(what) => write!(f, "lost kick: {what}"),
            Failure::Livelock(what) => write!(f, "livelock: {what}"),
            Failure::Limit(what) => write!(f, "virtual-time limit reached: {what}"),
            Failure::GuestPanic(what) => write!(f, "guest panic: {what}"),
            Failure::StackOverflow(what) => write!(f, "guest stack overflow: {what}"),
            Failure::StaleTranslation(what) => write!(f, "stale translation: {what}"),
            Failure::LostInterrupt(what) => write!(f, "lost interrupt: {what}"),
            Failure::DoubledInterrupt(what) => write!(f, "doubled interrupt: {what}"),
            Failure::Invalid(what) => write!(f, "invalid machine: {what}"),
            Failure::CalledOff => write!(f, "called off"),
        }
    }
}

impl std::error::Error for Failure {}
