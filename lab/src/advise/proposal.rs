//! What a rule proposes.

use holdfast_recordings::account::Basis;
use serde::Serialize;

/// What a remedy asks for. What is wrongly set comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Effort {
    /// A switch is wrongly set: a quota, a pin, a feature that is off. To set it right takes nothing from other VMs.
    Mistake,
    /// Another setting of this host or of a VM.
    Setting,
    /// Fewer vCPUs here: a VM moves, or becomes smaller.
    Fewer,
}

/// What a remedy is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Less CPU ready, of all VMs together.
    CpuReady,
    /// Less time from a wakeup to a pCPU. Others wait instead, so that the sum of CPU ready need not change.
    WakeToRun,
}

/// A remedy that a rule proposes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Proposal {
    /// Name of the rule.
    pub rule: &'static str,
    /// The VM that it is for; null for the whole host.
    pub vm: Option<String>,
    /// What to do, in a few words.
    pub remedy: String,
    /// What the account says.
    pub seen: String,
    /// Known: files or events say that this is so. Inferred: it follows with an assumption.
    pub basis: Basis,
    /// The most that it can save by the account, in ms of CPU time per 20 s; null if the account does not say it.
    pub at_most_ms_per_20s: Option<f64>,
    /// What it asks for.
    pub effort: Effort,
    /// What it is for.
    pub measure: Measure,
    /// Keys that the replay changes, with values as experiments have them; empty if no replay can answer.
    pub set: Vec<(String, String)>,
    /// The command that applies it.
    pub apply: String,
    /// The command that undoes it.
    pub undo: String,
}
