//! The seam of guest policies: where tasks go, and what the kernel tells its host.
//!
//! **No answer breaks the scheduler**: one that names a CPU that is unknown or has not started is refused. It is
//! counted (`guest.policy_refusals`), and the kernel's is taken. **Nothing changes without a policy**: every question
//! returns at once.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use holdfast_locks::CpuId;

use crate::ids::TaskId;
use crate::parameter::{Parameter, Parameters};

/// A policy of a guest kernel that schedules its tasks itself.
///
/// Each method gets the kernel's own decision where there is one, and its default returns that: an empty
/// implementation is the kernel. All CPUs ask the same value, and a question that takes time
/// ([`Cpus::is_preempted`]) lets other CPUs ask meanwhile. So a policy keeps its state in `Cell`s.
///
/// A policy must depend on its arguments and its own state only. Otherwise two runs with the same seed differ.
pub trait GuestPolicy: fmt::Debug {
    /// Returns what the policy does, in one line, for lists.
    fn about(&self) -> &'static str;

    /// Returns the parameters that experiments can set, as `vm.*.own.NAME`.
    fn parameters(&mut self) -> Vec<Parameter<'_>> {
        Vec::new()
    }

    /// Returns the CPU for a task. Refused: an unknown CPU, and one that has not started.
    fn place(&self, cpus: &Cpus<'_>, placed: Placed, kernel: CpuId) -> CpuId {
        let _ = (cpus, placed);
        kernel
    }

    /// Returns whether load balancing may move tasks to `to`.
    fn takes(&self, cpus: &Cpus<'_>, to: CpuId) -> bool {
        let _ = (cpus, to);
        true
    }

    /// The timer interrupt of this CPU, at which `task` runs here (`None`: it is idle). Returns the CPU on which it
    /// runs on, or `None` if it stays. A task moves when it next returns to user mode or may be preempted. Refused: as
    /// for [`GuestPolicy::place`].
    fn tick(&self, cpus: &Cpus<'_>, task: Option<TaskId>) -> Option<CpuId> {
        let _ = (cpus, task);
        None
    }

    /// Returns the word that the host reads of this CPU, if it reads one (docs/spec/guest-host-interface.md, "Guest
    /// word"). It is asked at each change of `kernel`, the kernel's own word. Refused: a wait for the answer of an
    /// unknown CPU or of this one.
    fn word(&self, cpus: &Cpus<'_>, kernel: u32) -> u32 {
        let _ = cpus;
        kernel
    }
}

/// Why a task gets a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// It was woken.
    Woken {
        /// The task.
        task: TaskId,
        /// The CPU on which it slept.
        previous: CpuId,
    },
    /// It is new.
    New,
    /// It runs here, and executes another program.
    Exec,
}

/// The CPUs, as one of them sees them.
#[derive(Clone, Copy)]
pub struct Cpus<'a>(&'a dyn Seen);

/// What a CPU sees.
pub(crate) trait Seen {
    fn here(&self) -> CpuId;
    fn count(&self) -> u32;
    fn now_ns(&self) -> u64;
    fn load(&self, cpu: CpuId) -> u32;
    fn is_online(&self, cpu: CpuId) -> bool;
    fn is_preempted(&self, cpu: CpuId) -> bool;
    fn steal_ns(&self, cpu: CpuId) -> u64;
}

impl<'a> Cpus<'a> {
    pub(crate) fn new(seen: &'a dyn Seen) -> Cpus<'a> {
        Cpus(seen)
    }

    fn known(&self, cpu: CpuId) -> bool {
        cpu.0 < self.0.count()
    }

    /// Returns the CPU that asks.
    pub fn here(&self) -> CpuId {
        self.0.here()
    }

    /// Returns all CPUs.
    pub fn all(&self) -> impl DoubleEndedIterator<Item = CpuId> + use<> {
        (0..self.0.count()).map(CpuId)
    }

    /// Returns the time since boot. Nanoseconds.
    pub fn now_ns(&self) -> u64 {
        self.0.now_ns()
    }

    /// Returns the number of tasks that run or are ready on `cpu`. A hint. 0 if there is no such CPU.
    pub fn load(&self, cpu: CpuId) -> u32 {
        if self.known(cpu) { self.0.load(cpu) } else { 0 }
    }

    /// Returns whether `cpu` takes part in scheduling.
    pub fn is_online(&self, cpu: CpuId) -> bool {
        self.known(cpu) && self.0.is_online(cpu)
    }

    /// Returns the CPU with the fewest tasks among those that take part in scheduling and are `good`.
    pub fn least_loaded(&self, good: impl Fn(CpuId) -> bool) -> Option<CpuId> {
        let online = self.all().filter(|&cpu| self.is_online(cpu) && good(cpu));
        online.min_by_key(|&cpu| self.load(cpu))
    }

    /// Returns whether the host says that it has preempted the vCPU `cpu` (`vcpu_is_preempted`), which also holds for
    /// one that is halted. `false` if the host says nothing. It takes the time of a load.
    pub fn is_preempted(&self, cpu: CpuId) -> bool {
        self.known(cpu) && self.0.is_preempted(cpu)
    }

    /// Returns for how long the vCPU `cpu` was ready without running, up to its last entry. Nanoseconds. 0 if the host
    /// says nothing.
    pub fn steal_ns(&self, cpu: CpuId) -> u64 {
        if self.known(cpu) { self.0.steal_ns(cpu) } else { 0 }
    }
}

impl fmt::Debug for Cpus<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} CPUs", self.0.count())
    }
}

/// Makes a policy with these parameters.
type Make = fn(&Parameters) -> Box<dyn GuestPolicy>;

/// A guest policy that a kernel can be configured with.
#[derive(Clone)]
pub struct GuestPolicyKind {
    name: &'static str,
    /// What can be set.
    pub parameters: Parameters,
    /// `None`: the kernel decides everything.
    make: Option<Make>,
}

impl GuestPolicyKind {
    /// No policy: the kernel decides everything.
    pub const KERNEL: GuestPolicyKind = GuestPolicyKind {
        name: "kernel",
        parameters: Parameters::NONE,
        make: None,
    };

    /// Returns the policy `P`, which experiments call `name`. Each guest begins with `P::default()` and the parameters
    /// that were set.
    pub fn of<P: GuestPolicy + Default + 'static>(name: &'static str) -> GuestPolicyKind {
        GuestPolicyKind {
            name,
            parameters: Parameters::of(P::default().parameters()),
            make: Some(|parameters| {
                let mut policy = P::default();
                parameters.copy_to(policy.parameters());
                Box::new(policy)
            }),
        }
    }

    /// Returns the policy's name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns what the policy does, in one line.
    pub fn about(&self) -> &'static str {
        self.make()
            .map_or("the guest's kernel decides", |policy| policy.about())
    }

    /// Returns a new policy, or `None` if the kernel decides everything.
    pub(crate) fn make(&self) -> Option<Box<dyn GuestPolicy>> {
        self.make.map(|make| make(&self.parameters))
    }
}

impl Default for GuestPolicyKind {
    fn default() -> Self {
        GuestPolicyKind::KERNEL
    }
}

// Not by what makes it: the same function can have several addresses.
impl PartialEq for GuestPolicyKind {
    fn eq(&self, other: &GuestPolicyKind) -> bool {
        self.name == other.name && self.parameters == other.parameters
    }
}

impl Eq for GuestPolicyKind {}

impl fmt::Debug for GuestPolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.name, self.parameters)
    }
}
