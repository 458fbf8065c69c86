//! A plan as units that any number of processes run, on any machines: one unit is one run, a cell with a seed.
//!
//! - **Identity.** A unit's [identity](Id) depends on all resolved parameters, the seed, the build and the schema.
//!   Equal identities have equal outcomes.
//! - **Records.** A finished unit is a [`Record`]: one line of JSON with a checksum. What the run cost is in it, apart
//!   from what the run found.
//! - **Merging.** [Records of all units](merge) give the same bytes as one run of the plan, whatever process ran which
//!   unit in which order.
//! - **No locks.** A [`Cache`] has one file for each unit. Files appear under their names by renaming only, so many
//!   writers can share a folder, over NFS too.

mod cache;
mod engines;
mod header;
mod lines;
mod merge;
mod record;
mod resume;
mod run;
mod shard;
mod status;

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use holdfast_sim::Config;
use serde::{Deserialize, Serialize};

pub use crate::digest::digest;
use crate::digest::hash;
use crate::extensions::Extensions;
use crate::plan::Plan;

pub use cache::Cache;
pub use engines::{Job, shards};
pub use header::{Header, PLAN_SCHEMA, UNIT_SCHEMA, Unit};
pub use merge::{Gathered, Inputs, Merged, Rules, inputs, merge};
pub use record::{RECORD_SCHEMA, Record};
pub use resume::{Resumed, resume};
pub use run::{Finished, Needed, Selection, Work, fill, load, needed, outcomes, run};
pub use shard::Shard;
pub use status::{Status, status};

/// The program that runs units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Build {
    /// Hash of all sources that an outcome depends on.
    pub id: &'static str,
    /// Version of the program, with its commit.
    pub version: &'static str,
    /// What the program adds to the names in experiments.
    pub extensions: Extensions,
}

/// Identity of a unit: its cell, which is a hash of all parameters, the build and the schema, and its seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Id {
    /// Hash of the parameters of the unit's cell, the build and the schema.
    pub cell: u128,
    /// The seed.
    pub seed: u64,
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}-{}", self.cell, self.seed)
    }
}

impl FromStr for Id {
    type Err = String;

    fn from_str(text: &str) -> Result<Id, String> {
        let parts = text.split_once('-').and_then(|(cell, seed)| {
            let id = Id {
                cell: u128::from_str_radix(cell, 16).ok()?,
                seed: seed.parse().ok()?,
            };
            (id.to_string() == text).then_some(id)
        });
        parts.ok_or_else(|| format!("found {text:?}, expected the identity of a unit: 32 hexadecimal digits, -, seed"))
    }
}

impl TryFrom<String> for Id {
    type Error = String;

    fn try_from(text: String) -> Result<Id, String> {
        text.parse()
    }
}

impl From<Id> for String {
    fn from(id: Id) -> String {
        id.to_string()
    }
}

/// Returns `value` as a line of JSON, with its line break.
fn line(value: &impl Serialize) -> String {
    let mut line = serde_json::to_string(value).expect("strings, numbers and maps with string keys");
    line.push('\n');
    line
}

/// A plan with the identity of each of its units.
#[derive(Debug)]
pub struct Units {
    /// The plan.
    pub plan: Plan,
    /// The experiment as the user named it, a name or a file.
    pub target: String,
    /// The program that runs the units.
    pub build: Build,
    /// Identity of each unit: seed by seed, cells in the plan's order.
    pub ids: Vec<Id>,
    /// The units of each identity. Cells with equal parameters share their units.
    by_id: HashMap<Id, Vec<usize>>,
}

impl Units {
    /// Identifies the units of `plan`.
    pub fn new(plan: Plan, target: &str, build: Build) -> Units {
        let cell = |config: &Config| {
            // The derived text of a configuration has every parameter, with exact numbers.
            let config = format!(
                "{:?}",
                Config {
                    seed: 0,
                    ..config.clone()
                }
            );
            hash(&[RECORD_SCHEMA, build.id, &config])
        };
        let cells: Vec<u128> = plan.cells.iter().map(|it| cell(&it.config)).collect();
        let seeds = plan.seeds.iter();
        let ids: Vec<Id> = seeds
            .flat_map(|seed| {
                cells.iter().map(|cell| Id {
                    cell: *cell,
                    seed: *seed,
                })
            })
            .collect();
        let mut by_id: HashMap<Id, Vec<usize>> = HashMap::new();
        for (index, id) in ids.iter().enumerate() {
            by_id.entry(*id).or_default().push(index);
        }
        Units {
            plan,
            target: target.to_owned(),
            build,
            ids,
            by_id,
        }
    }

    /// Returns the indices of the units with this identity.
    pub fn of(&self, id: Id) -> &[usize] {
        self.by_id.get(&id).map_or(&[], Vec::as_slice)
    }

    /// Returns the words that name a unit in messages.
    pub fn name(&self, index: usize) -> String {
        let (cell, seed) = self.plan.at(index);
        format!("case {}, variant {}, seed {seed}", cell.case, cell.variant)
    }
}
