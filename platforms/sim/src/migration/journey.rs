//! What migrates when: live migrations of all guests, and moves of vCPUs within their host.

use holdfast_host::HostConfig;
use holdfast_machine::Profile;

use crate::migration::precopy::Precopy;

/// A live migration of all guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migration {
    /// How long the guests run before it, in nanoseconds.
    pub after_ns: u64,
    /// How long the guests are stopped, in nanoseconds. With a copy: how long they may be.
    pub downtime_ns: u64,
    /// How the guests' memory is copied. `None`: copying takes no time.
    pub copy: Option<Precopy>,
    /// Of a latched kick only what MP_STATE can say arrives.
    pub mp_state_only: bool,
}

/// Another kind of host.
#[derive(Clone, Debug)]
pub struct Destination {
    /// Parameters of its kernel and hypervisor. Its time-stamp counter runs as the first one's.
    pub host: HostConfig,
    /// Its CPUs, of which only pause-loop detection and APIC virtualization count.
    pub machine: Profile,
}

/// A move of a vCPU to another pCPU of its host, as by libvirt's vcpupin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Time since the last move, in nanoseconds.
    pub after_ns: u64,
    /// The vCPU's number among all vCPUs.
    pub vcpu: u32,
    /// The only pCPU on which it may run from then on, until it is moved again or migrates.
    pub to: u32,
}

/// The migrations and moves of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Journey {
    /// Migrations, one after another.
    pub migrations: Vec<Migration>,
    /// The migration that follows the last of these, again and again.
    pub then_every: Option<Migration>,
    /// Moves, one after another.
    pub moves: Vec<Move>,
    /// Faults planted by tests.
    #[doc(hidden)]
    pub faults: MigrationFaults,
}

impl Journey {
    /// Returns whether there is any migration.
    pub fn migrates(&self) -> bool {
        !self.migrations.is_empty() || self.then_every.is_some()
    }
}

/// Steps that a migration leaves out, for tests that must detect this.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MigrationFaults {
    /// IRR stays behind.
    pub without_requests: bool,
    /// Vectors that were about to be injected stay behind.
    pub without_injection: bool,
    /// RFLAGS.IF of halted vCPUs stays behind: no interrupt ends their sleep.
    pub without_flags: bool,
}
