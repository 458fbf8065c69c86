//! Merges records of shards and caches.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use holdfast_sim::Outcome;

use super::lines::{self, Line};
use super::{Build, Cache, Header, Id, Record, Units};
use crate::adaptive;
use crate::diagnostic::{Place, Problem, Problems};
use crate::plan::Plan;
use crate::run::{Outcomes, RunError};

/// What a merge tolerates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Records of several builds are merged. They are recognized by the names of their cells, and their seeds.
    pub mixed_builds: bool,
    /// Damaged lines are left out.
    pub skip_damaged: bool,
}

/// What the given files have.
#[derive(Debug, Default)]
pub struct Inputs {
    header: Option<Header>,
    records: Vec<(Place, Record)>,
    caches: Vec<Cache>,
    /// Damaged lines that were left out.
    pub damaged: Vec<Problem>,
}

/// Merged records.
#[derive(Debug)]
pub struct Merged {
    /// The units of the plan.
    pub units: Units,
    /// The records, by the index of their units, without parameters. Cells with equal parameters share them.
    pub records: Vec<Option<Record>>,
    /// Number of records that were there more than once.
    pub duplicates: usize,
    /// Versions of the programs that ran the units.
    pub versions: Vec<String>,
}

/// Reads files with a plan, units and records, and the folders of caches.
///
/// # Errors
/// All damaged lines, unless `rules` leave them out; files that are none of these; several plans.
pub fn inputs(paths: &[PathBuf], rules: Rules) -> Result<Inputs, Problems> {
    let mut inputs = Inputs::default();
    let mut problems = Vec::new();
    let mut files: Vec<PathBuf> = Vec::new();
    for path in paths {
        if path.is_dir() {
            inputs.caches.push(Cache::at(path));
            files.extend(line_files(path));
        } else {
            files.push(path.clone());
        }
    }
    for path in &files {
        let lines = match lines::read(path) {
            Ok(lines) => lines,
            Err(problem) => {
                problems.push(problem);
                continue;
            }
        };
        for (place, line) in lines {
            match line {
                Ok(Line::Plan(plan)) => problems.extend(inputs.plan(&place, *plan, rules)),
                Ok(Line::Unit(_)) => {}
                Ok(Line::Record(mut record)) => {
                    // The plan has them too. A large sweep would not fit in memory with all of them.
                    record.parameters.clear();
                    inputs.records.push((place, *record));
                }
                Err(problem) => inputs.damaged.push(problem),
            }
        }
    }
    if !rules.skip_damaged {
        problems.append(&mut inputs.damaged);
    }
    if inputs.header.is_none() && problems.is_empty() {
        let place = Place::whole(&paths.first().map(|path| path.to_string_lossy()).unwrap_or_default());
        let expected = "the line of a plan in at least one file: that of `holdfast plan`, or records of a shard";
        problems.push(Problem::new(&place, "no plan", expected));
    }
    if problems.is_empty() {
        Ok(inputs)
    } else {
        Err(Problems(problems))
    }
}

/// Returns the files with lines of plans and records in `folder` itself, by name. A folder that cannot be listed has
/// none.
fn line_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    files.retain(|path| path.is_file() && path.extension().is_some_and(|extension| extension == "jsonl"));
    files.sort();
    files
}

impl Inputs {
    /// Adds a plan, which must be the same as the others.
    fn plan(&mut self, place: &Place, plan: Header, rules: Rules) -> Option<Problem> {
        let Some(first) = &self.header else {
            self.header = Some(plan);
            return None;
        };
        if first.plan != plan.plan {
            let found = format!(
                "another plan (of the experiment {}, with {} units)",
                plan.experiment, plan.units
            );
            let expected = format!(
                "that of {} with {} units, as in the other files",
                first.experiment, first.units
            );
            return Some(Problem::new(place, found, expected));
        }
        let other = first.build != plan.build && !rules.mixed_builds;
        other.then(|| {
            let found = format!("a plan of the build {} ({})", plan.build, plan.version);
            let expected = format!("{} ({}) as before, or --mixed-builds", first.build, first.version);
            Problem::new(place, found, expected)
        })
    }
}

/// Puts the records of `inputs` in the order of their plan, which `build` makes again.
///
/// # Errors
/// Records of another plan or build; two records of one unit that do not agree.
pub fn merge(inputs: Inputs, build: Build, rules: Rules) -> Result<Merged, Problems> {
    let header = inputs.header.expect("inputs without a plan are refused");
    let plan = Place::whole("the plan");
    if header.build != build.id && !rules.mixed_builds {
        let found = format!("the build {} ({})", header.build, header.version);
        let expected = format!(
            "this program's build {} ({}), or --mixed-builds",
            build.id, build.version
        );
        return Err(Problem::new(&plan, found, expected).into());
    }
    let units = Units::new(header.plan(build.extensions, None)?, &header.target, build);
    let names: HashMap<(&str, &str, u64), usize> = (0..units.ids.len())
        .map(|index| {
            let (cell, seed) = units.plan.at(index);
            ((cell.case.as_str(), cell.variant.as_str(), seed), index)
        })
        .collect();
    let mut found: HashMap<Id, (Place, Record)> = HashMap::new();
    let mut problems = Vec::new();
    let mut duplicates = 0;
    let mut add = |place: Place, mut record: Record| {
        if record.build != build.id {
            if !rules.mixed_builds {
                let found = format!("a record of the build {} ({})", record.build, record.version);
                let expected = format!(
                    "this program's build {} ({}), or --mixed-builds",
                    build.id, build.version
                );
                return Some(Problem::new(&place, found, expected));
            }
            // The identity of another build says nothing here.
            let name = (record.case.as_str(), record.variant.as_str(), record.seed);
            if let Some(index) = names.get(&name) {
                record.id = units.ids[*index];
            }
        }
        let Some(index) = units.of(record.id).first() else {
            let name = format!("case {}, variant {}, seed {}", record.case, record.variant, record.seed);
            let found = format!("a record of {}: {name}", record.experiment);
            return Some(Problem::new(&place, found, "a record of a unit of the plan"));
        };
        if let Err(wrong) = record.outcome(&units.plan.at(*index).0.config) {
            return Some(Problem::new(&place, wrong, "an outcome of this unit"));
        }
        if let Some((first, other)) = found.get(&record.id) {
            if other.agrees(&record) {
                duplicates += 1;
                return None;
            }
            let what = format!("another outcome of {} than {first}", units.name(*index));
            return Some(Problem::new(&place, what, "equal outcomes of equal units"));
        }
        found.insert(record.id, (place, record));
        None
    };
    for (place, record) in inputs.records {
        problems.extend(add(place, record));
    }
    for cache in &inputs.caches {
        for id in units.ids.iter().collect::<BTreeSet<_>>() {
            match cache.get(*id) {
                Ok(None) => {}
                Ok(Some(mut record)) => {
                    record.parameters.clear();
                    problems.extend(add(Place::whole(&cache.path(*id).to_string_lossy()), record));
                }
                Err(_) if rules.skip_damaged => {}
                Err(problem) => problems.push(problem),
            }
        }
    }
    if !problems.is_empty() {
        return Err(Problems(problems));
    }
    let versions: BTreeSet<String> = found.values().map(|(_, record)| record.version.clone()).collect();
    let records = units.ids.iter().map(|id| {
        let (_, record) = found.get(id)?;
        Some(record.clone())
    });
    Ok(Merged {
        records: records.collect(),
        duplicates,
        versions: versions.into_iter().collect(),
        units,
    })
}

/// What merged records give.
#[derive(Debug)]
pub struct Gathered {
    /// The plan, with those seeds that at least one cell needs.
    pub plan: Plan,
    /// The outcomes.
    pub outcomes: Outcomes,
    /// Number of units that are needed.
    pub needed: usize,
    /// Indices of those without a record.
    pub missing: Vec<usize>,
}

impl Merged {
    /// Returns the outcomes of the plan: of all its units, or of those that the rounds of `--until-ci` need.
    pub fn gather(&self) -> Gathered {
        let plan = &self.units.plan;
        let outcome = |index: usize| -> Option<Result<Outcome, RunError>> {
            let record = self.records[index].as_ref()?;
            let checked = record.outcome(&plan.at(index).0.config);
            Some(checked.expect("checked when it was merged"))
        };
        if let Some(adaptive) = plan.options.adaptive {
            let round = adaptive::round(plan, adaptive, outcome);
            return Gathered {
                plan: round.adapted.plan,
                outcomes: round.adapted.outcomes,
                needed: round.runs.len(),
                missing: round.missing,
            };
        }
        let all = 0..self.records.len();
        Gathered {
            plan: plan.clone(),
            outcomes: Outcomes::new(plan, all.clone().map(outcome).collect()),
            needed: all.len(),
            missing: all.filter(|index| self.records[*index].is_none()).collect(),
        }
    }

    /// Returns the version that the merged results state: this program's, as one run would, unless other builds ran
    /// units.
    pub fn version(&self, mixed_builds: bool) -> String {
        let build = self.units.build;
        let is_own = self.records.iter().flatten().all(|record| record.build == build.id);
        if is_own || !mixed_builds {
            return build.version.to_owned();
        }
        self.versions.join(" and ")
    }
}
