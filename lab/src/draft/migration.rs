//! Live migrations while keys are being set, and the other host to which guests migrate.

use holdfast_host::{HostConfig, Nic};
use holdfast_machine::Profile;
use holdfast_sim::{Destination, DirtyLog, Migration, Precopy};

use crate::diagnostic::KeyFindings;
use crate::draft::Draft;
use crate::profile::MachineProfile;

/// Most that a live migration stops the guests by default (QEMU `downtime-limit`).
const DOWNTIME_NS: u64 = 300_000_000;
/// Smallest time between two migrations, in stops of the default length.
const STOPS: u64 = 10;
/// The key that says how often guests migrate.
const EVERY: &str = "host.migration.every";

/// Live migrations while keys are being set.
#[derive(Clone, Debug)]
pub struct DraftMigration {
    /// Time for which all guests run between two live migrations to another host, of the same kind unless
    /// `host.migration.to.*` says otherwise.
    ///
    /// `None` never migrates them.
    pub every_ns: Option<u64>,
    /// Time for which a live migration stops all guests, or may stop them if `host.migration.bandwidth` is set.
    ///
    /// `None`: 300 ms, as QEMU allows, but at most a tenth of the time between two migrations.
    pub downtime_ns: Option<u64>,
    /// Rate at which a live migration copies the memory of all guests together. Written pages are sent again, in
    /// rounds, until the rest takes at most `host.migration.downtime`.
    ///
    /// `None` copies in no time.
    pub mib_per_second: Option<u32>,
    /// Rounds of copying after which the guests are stopped even if the rest takes longer.
    ///
    /// `None`: never, as QEMU.
    pub rounds_max: Option<u32>,
    /// A live migration's copy throttles vCPUs until it converges, as QEMU's `auto-converge` does by default: vCPUs
    /// sleep for 20 % of the time, and 10 % more each time that guests still write more than half of what is sent. It
    /// looks once in a second at most. It needs `host.migration.bandwidth`.
    pub auto_converge: bool,
    /// Live migration transfers KVM's MP_STATE and not the flag of a latched kick, as a VMM that forgets it.
    ///
    /// A kick taken before the halt is lost.
    pub mp_state_only: bool,
    /// The machine of the other host. `None`: it is like the first one.
    pub machine: Option<MachineProfile>,
    /// The other host. `None`: it is like the first one.
    pub host: Option<HostConfig>,
}

impl DraftMigration {
    /// Never migrates.
    pub(crate) fn new() -> DraftMigration {
        DraftMigration {
            every_ns: None,
            downtime_ns: None,
            mib_per_second: None,
            rounds_max: None,
            auto_converge: false,
            mp_state_only: false,
            machine: None,
            host: None,
        }
    }
}

impl Draft {
    /// Returns the configuration with the other host in place of the first one, if there is another kind.
    pub(crate) fn there(&self) -> Option<Draft> {
        let DraftMigration { machine, host, .. } = &self.migration;
        if machine.is_none() && host.is_none() {
            return None;
        }
        Some(Draft {
            machine: machine.clone().unwrap_or_else(|| self.machine.clone()),
            host: host.clone().unwrap_or_else(|| self.host.clone()),
            ..self.clone()
        })
    }

    /// Makes the migrations, and the other host if it is of another kind. Its machine must be valid.
    pub(crate) fn build_migration(&self) -> (Option<Migration>, Option<Box<Destination>>) {
        let DraftMigration {
            every_ns,
            downtime_ns,
            mp_state_only,
            mib_per_second,
            rounds_max,
            auto_converge,
            ..
        } = self.migration;
        let copy = mib_per_second.map(|rate| Precopy {
            bytes_per_second: u64::from(rate) << 20,
            rounds_max,
            auto_converge,
            log: match self.machine.cpu.has_page_log() {
                true => DirtyLog::Hardware,
                false => DirtyLog::WriteProtection,
            },
        });
        let migration = every_ns.map(|after_ns| Migration {
            after_ns,
            downtime_ns: downtime_ns.unwrap_or_else(|| DOWNTIME_NS.min(after_ns / STOPS)),
            copy,
            mp_state_only,
        });
        (
            migration,
            self.there().and_then(|there| there.destination()).map(Box::new),
        )
    }

    fn destination(self) -> Option<Destination> {
        let machine: Profile = self.machine.build()?;
        let host = HostConfig {
            tsc_hz: machine.frequency_hz,
            pause_controls: self.machine.pauses.controls(machine.frequency_hz).unwrap_or_default(),
            ..self.host
        };
        Some(Destination { host, machine })
    }

    pub(crate) fn check_migration(&self, findings: &mut KeyFindings<'_>) {
        if let Some(there) = self.there() {
            there.check_host(findings);
            if self.migration.every_ns.is_none() {
                findings.add(EVERY, "auto", "a time: the other host is never reached");
            }
            if there.machine.build().is_none() {
                let found = format!("{} Hz", there.machine.frequency_hz);
                findings.add("host.migration.to.profile", found, "a clock that all costs fit");
            }
        }
        let copies = self.migration.every_ns.is_some() && self.migration.mib_per_second.is_some();
        if self.migration.auto_converge && !copies {
            let expected = "false without host.migration.every and host.migration.bandwidth";
            findings.add("host.migration.auto_converge", "true", expected);
        }
        for vm in self.vms.iter().filter(|_| !copies) {
            for (key, value) in [("memory", vm.memory_mib), ("dirty_rate", vm.dirty_mib_per_second)] {
                if let Some(value) = value {
                    let expected = "none without host.migration.every and host.migration.bandwidth";
                    findings.add(&format!("vm.{}.{key}", vm.name), value.to_string(), expected);
                }
            }
        }
        let Some(every) = self.migration.every_ns else { return };
        if every == 0 {
            findings.add(EVERY, "0", "time for the guests to run");
        }
        if self.vms.iter().any(|vm| vm.bare_metal || vm.host.nic == Nic::Assigned) {
            let expected = "guests without assigned devices, and no bare-metal kernel: those cannot migrate";
            findings.add(EVERY, every.to_string(), expected);
        }
    }
}
