//! Records of finished units, schema `holdfast.record/1`.

use std::collections::BTreeMap;

use holdfast_sim::{Cause, Config, Convoy, Outcome, VmOutcome};
use serde::{Deserialize, Serialize};

use super::{Id, Units, digest};
use crate::keys::Parameters;
use crate::meter::Cost;
use crate::run::RunError;

/// Schema of a record.
pub const RECORD_SCHEMA: &str = "holdfast.record/1";

/// A finished unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The schema, [`RECORD_SCHEMA`].
    pub schema: String,
    /// Identity of the unit.
    pub id: Id,
    /// Hash of the sources of the program.
    pub build: String,
    /// Version of the program.
    pub version: String,
    /// Name of the experiment.
    pub experiment: String,
    /// Name of the case.
    pub case: String,
    /// Name of the variant.
    pub variant: String,
    /// The seed.
    pub seed: u64,
    /// The values of all keys.
    pub parameters: Parameters,
    /// What the run found; null for a run that failed.
    pub outcome: Option<Found>,
    /// Why the run failed, if it did.
    pub failure: Option<String>,
    /// What the run cost. Nothing that is computed from records depends on it.
    pub cost: Cost,
}

/// What a run found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// Virtual time at the end, in nanoseconds.
    pub end_ns: u64,
    /// Hash of the whole history, hexadecimal.
    pub history_hash: String,
    /// The guests.
    pub vms: Vec<FoundVm>,
}

/// What a run found about a guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundVm {
    /// Name of the guest.
    pub name: String,
    /// Nanoseconds from the workload's begin to its end; null for a guest that is not measured.
    pub elapsed_ns: Option<u64>,
    /// Operations that were completed in that time, for workloads that measure throughput.
    pub operations: Option<u64>,
    /// Time of all vCPUs, in picoseconds.
    pub vcpu_time_ps: u64,
    /// The longest time in which no vCPU did useful work, in nanoseconds.
    pub longest_stall_ns: u64,
    /// Begin of the first convoy and length of all convoys, in nanoseconds; null without any.
    pub convoy_ns: Option<[u64; 2]>,
    /// The counters.
    pub counters: BTreeMap<String, u64>,
    /// Time of the vCPUs by cause, in picoseconds.
    pub lost_time_ps: BTreeMap<String, u64>,
}

/// What precedes the checksum in a line.
const CHECKSUM: &str = ",\"checksum\":\"";

/// Returns the checksum of the beginning of a line.
fn checksum(body: &str) -> String {
    digest(&[RECORD_SCHEMA, body])
}

impl Record {
    /// Returns the record of the unit at `index`.
    pub fn of(units: &Units, index: usize, outcome: &Result<Outcome, RunError>, cost: Cost) -> Record {
        let (cell, seed) = units.plan.at(index);
        Record {
            schema: RECORD_SCHEMA.to_owned(),
            id: units.ids[index],
            build: units.build.id.to_owned(),
            version: units.build.version.to_owned(),
            experiment: units.plan.experiment.name.clone(),
            case: cell.case.clone(),
            variant: cell.variant.clone(),
            seed,
            parameters: cell.parameters.clone(),
            outcome: outcome.as_ref().ok().map(Found::of),
            failure: outcome.as_ref().err().map(ToString::to_string),
            cost,
        }
    }

    /// Returns this record under the names that the unit at `index` has: equal units of two experiments can differ in
    /// them.
    pub fn named(self, units: &Units, index: usize) -> Record {
        let (cell, _) = units.plan.at(index);
        Record {
            experiment: units.plan.experiment.name.clone(),
            case: cell.case.clone(),
            variant: cell.variant.clone(),
            parameters: cell.parameters.clone(),
            ..self
        }
    }

    /// Returns the record as a line, with its checksum and a line break.
    pub fn line(&self) -> String {
        let mut body = serde_json::to_string(self).expect("strings, numbers and maps with string keys");
        body.pop();
        let checksum = checksum(&body);
        format!("{body}{CHECKSUM}{checksum}\"}}\n")
    }

    /// Reads a line without its line break.
    ///
    /// # Errors
    /// What is wrong with the line: what was found, and what was expected.
    pub fn parse(line: &str) -> Result<Record, (String, String)> {
        let whole = || "a whole record".to_owned();
        let Some((body, end)) = line.rsplit_once(CHECKSUM).filter(|(_, end)| end.ends_with("\"}")) else {
            return Err(("a truncated record".to_owned(), whole()));
        };
        if end.trim_end_matches("\"}") != checksum(body) {
            return Err(("a record that does not match its checksum".to_owned(), whole()));
        }
        let record: Record = serde_json::from_str(&format!("{body}}}")).map_err(|error| {
            (
                format!("a record with {error}"),
                format!("the fields of {RECORD_SCHEMA}"),
            )
        })?;
        if record.outcome.is_some() == record.failure.is_some() || record.id.seed != record.seed {
            return Err(("a record that contradicts itself".to_owned(), whole()));
        }
        Ok(record)
    }

    /// Returns the outcome of a run of `config`.
    ///
    /// # Errors
    /// Returns what is wrong if no run of `config` can have this outcome.
    pub fn outcome(&self, config: &Config) -> Result<Result<Outcome, RunError>, String> {
        let Some(found) = &self.outcome else {
            return Ok(Err(RunError::Recorded(self.failure.clone().unwrap_or_default())));
        };
        let names = || found.vms.iter().map(|vm| vm.name.as_str());
        if !names().eq(config.vms.iter().map(|vm| vm.name.as_str())) {
            return Err(format!(
                "an outcome of the guests {}",
                names().collect::<Vec<_>>().join(", ")
            ));
        }
        let history_hash = u64::from_str_radix(&found.history_hash, 16);
        let vms: Result<Vec<VmOutcome>, String> = found.vms.iter().map(FoundVm::outcome).collect();
        Ok(Ok(Outcome {
            vms: vms?,
            end_ns: found.end_ns,
            history_hash: history_hash.map_err(|_| format!("the history hash {:?}", found.history_hash))?,
            engine: BTreeMap::new(),
        }))
    }

    /// Returns whether both records say the same of the run, whatever it cost.
    pub fn agrees(&self, other: &Record) -> bool {
        self.outcome == other.outcome && self.failure == other.failure
    }

    /// Returns whether the run would fail again in the same way. A failed assertion may be due to this machine.
    pub fn is_final(&self) -> bool {
        let panicked = RunError::Panicked(String::new()).to_string();
        self.failure
            .as_ref()
            .is_none_or(|failure| !failure.starts_with(&panicked))
    }
}

impl Found {
    fn of(outcome: &Outcome) -> Found {
        Found {
            end_ns: outcome.end_ns,
            history_hash: format!("{:016x}", outcome.history_hash),
            vms: outcome.vms.iter().map(FoundVm::of).collect(),
        }
    }
}

impl FoundVm {
    fn of(vm: &VmOutcome) -> FoundVm {
        let lost = vm.lost_time_ps.iter();
        FoundVm {
            name: vm.name.clone(),
            elapsed_ns: vm.elapsed_ns,
            operations: vm.operations,
            vcpu_time_ps: vm.vcpu_time_ps,
            longest_stall_ns: vm.longest_stall_ns,
            convoy_ns: vm.convoy.map(|convoy| [convoy.since_ns, convoy.total_ns]),
            counters: vm.counters.clone(),
            lost_time_ps: lost.map(|(cause, picos)| ((*cause).to_owned(), *picos)).collect(),
        }
    }

    fn outcome(&self) -> Result<VmOutcome, String> {
        let cause = |(name, picos): (&String, &u64)| {
            let known = Cause::ALL.into_iter().find(|cause| cause.name() == name);
            known
                .map(|cause| (cause.name(), *picos))
                .ok_or_else(|| format!("the cause of lost time {name:?}"))
        };
        Ok(VmOutcome {
            name: self.name.clone(),
            elapsed_ns: self.elapsed_ns,
            operations: self.operations,
            counters: self.counters.clone(),
            lost_time_ps: self.lost_time_ps.iter().map(cause).collect::<Result<_, _>>()?,
            vcpu_time_ps: self.vcpu_time_ps,
            longest_stall_ns: self.longest_stall_ns,
            convoy: self.convoy_ns.map(|[since_ns, total_ns]| Convoy { since_ns, total_ns }),
        })
    }
}
