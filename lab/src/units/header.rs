//! A plan in a file: one line for the plan itself, from which every process makes the same plan again, and one line for
//! each unit.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Id, Units, digest, line};
use crate::diagnostic::Problems;
use crate::experiment::Experiment;
use crate::extensions::Extensions;
use crate::keys::Parameters;
use crate::options::Options;
use crate::plan::{CellName, Plan};

/// Schema of the line for a plan.
pub const PLAN_SCHEMA: &str = "holdfast.plan/1";
/// Schema of the line for a unit.
pub const UNIT_SCHEMA: &str = "holdfast.unit/1";

/// The line for a plan. It has everything that the plan was made from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// The schema, [`PLAN_SCHEMA`].
    pub schema: String,
    /// Hash of all that the plan was made from, without the build.
    pub plan: String,
    /// Hash of the sources of the program.
    pub build: String,
    /// Version of the program.
    pub version: String,
    /// Name of the experiment.
    pub experiment: String,
    /// The experiment as the user named it.
    pub target: String,
    /// Name of the experiment's file in messages.
    pub file: String,
    /// Number of units.
    pub units: usize,
    /// The user's changes.
    pub options: Options,
    /// Text of the experiment's file.
    pub definition: String,
    /// Texts of the machine profiles that were read from files.
    pub files: BTreeMap<String, String>,
}

impl Header {
    /// Returns the line of the plan of `units`.
    pub fn of(units: &Units) -> Header {
        let plan = &units.plan;
        let files = plan.files.iter();
        let mut header = Header {
            schema: PLAN_SCHEMA.to_owned(),
            plan: String::new(),
            build: units.build.id.to_owned(),
            version: units.build.version.to_owned(),
            experiment: plan.experiment.name.clone(),
            target: units.target.clone(),
            file: plan.experiment.file.clone(),
            units: units.ids.len(),
            options: plan.options.clone(),
            definition: plan.experiment.text.clone(),
            files: files
                .map(|(path, text)| (path.to_string_lossy().into_owned(), text.clone()))
                .collect(),
        };
        header.plan = header.digest();
        header
    }

    /// Returns the hash of all that the plan is made from.
    pub(super) fn digest(&self) -> String {
        let json = |value: serde_json::Result<String>| value.expect("strings, numbers and maps with string keys");
        let options = json(serde_json::to_string(&self.options));
        let files = json(serde_json::to_string(&self.files));
        let parts = [
            PLAN_SCHEMA,
            &self.target,
            &self.file,
            &self.definition,
            &options,
            &files,
        ];
        digest(&parts)
    }

    /// Makes the plan again, with all cells or only those of `wanted`.
    ///
    /// # Errors
    /// All mistakes in the experiment or in the options, as another build may find them.
    pub fn plan(&self, extensions: Extensions, wanted: Option<&BTreeSet<CellName<'_>>>) -> Result<Plan, Problems> {
        let experiment = Experiment::parse(&self.file, &self.definition)?;
        let read = |path: &Path| {
            let text = self.files.get(path.to_string_lossy().as_ref());
            text.cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
        };
        let options = Options {
            extensions,
            ..self.options.clone()
        };
        Plan::of_cells(experiment, &options, &read, wanted)
    }

    /// Returns the line, with its line break.
    pub fn line(&self) -> String {
        line(self)
    }
}

/// The line for a unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unit {
    /// The schema, [`UNIT_SCHEMA`].
    pub schema: String,
    /// The identity.
    pub id: Id,
    /// Name of the case.
    pub case: String,
    /// Name of the variant.
    pub variant: String,
    /// The seed.
    pub seed: u64,
    /// Predicted CPU time in seconds, from finished units of the same cell; null without any.
    #[serde(default)]
    pub predicted_s: Option<f64>,
    /// Whether the cache has a record of this unit.
    #[serde(default)]
    pub cached: bool,
    /// The values of all keys, if the line states them. They follow from the plan.
    #[serde(default, skip_serializing_if = "Parameters::is_empty")]
    pub parameters: Parameters,
}

impl Unit {
    /// Returns the line of the unit at `index`.
    pub fn of(units: &Units, index: usize) -> Unit {
        let (cell, seed) = units.plan.at(index);
        Unit {
            schema: UNIT_SCHEMA.to_owned(),
            id: units.ids[index],
            case: cell.case.clone(),
            variant: cell.variant.clone(),
            seed,
            predicted_s: None,
            cached: false,
            parameters: cell.parameters.clone(),
        }
    }

    /// Returns the line, with its line break.
    pub fn line(&self) -> String {
        line(self)
    }
}
