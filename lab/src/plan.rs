//! A plan of runs: cases × variants as configurations, and the seeds of each.

mod builder;
mod counts;
mod hardware;
mod overwritten;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use builder::Builder;
use holdfast_sim::Config;
use values::{settings, sweep};

use crate::diagnostic::{Findings, Place, Problems, one_of};
use crate::document::Value;
use crate::experiment::{Axis, Experiment, Layer, Published, SEEDS_MAX, Sweep};
use crate::file;
use crate::keys::{self, Parameters, Setting};
use crate::options::Options;
use crate::scale::bad_scale;
use crate::swept::Swept;

/// A case in combination with a variant.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The case's name.
    pub case: String,
    /// The variant's name.
    pub variant: String,
    /// Configuration of the machine and everything on it; the seed is set later.
    pub config: Config,
    /// The values of all keys.
    pub parameters: Parameters,
    /// The values of the swept keys.
    pub swept: Vec<Swept>,
}

/// A plan of runs.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The experiment.
    pub experiment: Experiment,
    /// Cases × variants, case by case.
    pub cells: Vec<Cell>,
    /// Seeds, the same for every cell.
    pub seeds: Vec<u64>,
    /// Share of the full-size work.
    pub scale: f64,
    /// The user's changes.
    pub options: Options,
    /// Texts of the machine profiles that were read from files, by their paths.
    pub files: BTreeMap<PathBuf, String>,
    /// What the user should know about the changes.
    pub remarks: Vec<String>,
    /// For each cell, whether the options leave its set-up as it is in the file.
    as_stated: Vec<bool>,
}

/// Limit on the runs of one plan.
pub const RUNS_MAX: usize = 1_000_000;

/// Names of a cell's case and variant.
pub type CellName<'n> = (&'n str, &'n str);

/// A function that returns the text of a file.
pub type ReadFile<'r> = &'r dyn Fn(&Path) -> io::Result<String>;

impl Plan {
    /// Expands `experiment` with `options`. Machine profiles that are not shipped are read from files: those that the
    /// experiment names relative to its folder, those of `options` relative to the working folder.
    ///
    /// # Errors
    /// All mistakes in the settings, or in a machine that they describe.
    pub fn new(experiment: Experiment, options: &Options) -> Result<Plan, Problems> {
        let read = |path: &Path| file::read_text(path, file::TEXT_BYTES_MAX);
        Plan::of_cells(experiment, options, &read, None)
    }

    /// Expands `experiment` with `options`, as [`Plan::new`] does. `read` returns the text of a machine profile. Only
    /// the cells of `wanted`, by case and variant, are made; `None` is all cells.
    ///
    /// # Errors
    /// As [`Plan::new`], without mistakes in cells that are not made.
    pub fn of_cells(
        mut experiment: Experiment,
        options: &Options,
        read: ReadFile<'_>,
        wanted: Option<&BTreeSet<CellName<'_>>>,
    ) -> Result<Plan, Problems> {
        let mut findings = Findings::default();
        let set = settings(&options.set, &mut findings);
        let named = experiment.sweeps.len();
        for (axis, texts) in [(Axis::Cases, &options.sweep), (Axis::Variants, &options.sweep_variants)] {
            let sweeps = texts.iter().filter_map(|text| sweep(text, axis, &mut findings));
            experiment.sweeps.extend(sweeps);
        }
        counts::grow(&mut experiment, &set, &mut findings);
        let (seeds, scale) = amounts(&experiment, options, &mut findings);
        let sweeps = &experiment.sweeps;
        let cases = expand(&experiment.cases, sweeps, Axis::Cases);
        let cases = chosen(&experiment.cases, cases, &options.cases, "--case", &mut findings);
        let variants = expand(&experiment.variants, sweeps, Axis::Variants);
        let variants = chosen(
            &experiment.variants,
            variants,
            &options.variants,
            "--variant",
            &mut findings,
        );

        let place = Place::whole(&experiment.file);
        let runs = cases.len() * variants.len() * seeds.len();
        if runs > RUNS_MAX {
            findings.add(&place, "", format!("{runs} runs"), format!("at most {RUNS_MAX}"));
            return findings.conclude(()).map(|()| unreachable!("a problem was added"));
        }
        check_admitted(&experiment, &mut findings);
        let mut remarks = overwritten::check(&experiment, named, &set, [&cases, &variants], &mut findings);
        let mut builder = Builder::new(&experiment, read, options.extensions, &mut findings);
        let mut cells = Vec::new();
        let mut as_stated = Vec::new();
        for case in &cases {
            let is_wanted =
                |variant: &&Layer| wanted.is_none_or(|names| names.contains(&(&*case.name, &*variant.name)));
            let admitted = variants.iter().filter(|variant| case.admits(&variant.name));
            for variant in admitted.filter(is_wanted) {
                if let Some((mut config, parameters)) = builder.cell(case, variant, &set, scale) {
                    as_stated.push(set.is_empty() || builder.is_as_stated(case, variant, scale, &config));
                    config.execute_spins = options.no_skip;
                    cells.push(Cell {
                        case: case.name.clone(),
                        variant: variant.name.clone(),
                        config,
                        parameters,
                        swept: case.swept.iter().chain(&variant.swept).cloned().collect(),
                    });
                }
            }
        }
        let (files, taken) = (builder.files, builder.taken);
        if cells.is_empty() && wanted.is_none() && findings.count() == 0 {
            let found = "no cell: the chosen cases are not run with the chosen variants";
            findings.add(
                &place,
                "cases.variants",
                found,
                "a case and a variant that belong together",
            );
        }
        // A published row must name a cell. Cells that the user's selection leaves out are not a mistake.
        let whole = named == experiment.sweeps.len() && options.cases.is_empty() && options.variants.is_empty();
        if whole {
            check_published(&experiment, &cases, &variants, &mut findings);
        }
        // What the file says for all cells may be meant for cells that are not made.
        let base = if whole { &experiment.base[..] } else { &[] };
        let layers = cases.iter().chain(&variants).flat_map(|layer| &layer.settings);
        if wanted.is_none() {
            for setting in base.iter().chain(layers).chain(&set) {
                if taken.get(&std::ptr::from_ref(setting)) == Some(&false) {
                    let expected = keys::needed_by(&setting.path, &experiment.names);
                    findings.add(
                        &setting.node.place,
                        &setting.path,
                        "a key that nothing here takes",
                        expected,
                    );
                }
            }
        }
        findings.conclude(())?;
        remarks.extend(hidden_figures(&experiment, &cells, &as_stated));
        Ok(Plan {
            experiment,
            cells,
            seeds,
            scale,
            options: options.clone(),
            files,
            remarks,
            as_stated,
        })
    }

    /// Returns the number of runs.
    pub fn runs(&self) -> usize {
        self.cells.len() * self.seeds.len()
    }

    /// Returns the cell and the seed of the run at `index`: seed by seed, cells in the plan's order.
    pub fn at(&self, index: usize) -> (&Cell, u64) {
        let cells = self.cells.len();
        (&self.cells[index % cells], self.seeds[index / cells])
    }

    /// Returns the published figures of `vm` in a cell, or none if the options change the cell's set-up.
    pub fn published(&self, case: &str, variant: &str, vm: &str) -> impl Iterator<Item = &Published> {
        let named = |cell: &Cell| cell.case == case && cell.variant == variant;
        let cell = self.cells.iter().position(named);
        let as_stated = cell.is_some_and(|cell| self.as_stated[cell]);
        let rows = self.experiment.published.iter().map(|(row, _)| row);
        rows.filter(move |row| as_stated && row.case == case && row.variant == variant && row.vm == vm)
    }
}

/// Returns how many published figures the options hide, if any, since they change what the figures were measured on.
fn hidden_figures(experiment: &Experiment, cells: &[Cell], as_stated: &[bool]) -> Option<String> {
    let changed = || cells.iter().zip(as_stated).filter(|(_, as_stated)| !**as_stated);
    let named = |row: &Published| changed().any(|(cell, _)| cell.case == row.case && cell.variant == row.variant);
    let hidden = experiment.published.iter().filter(|(row, _)| named(row)).count();
    (hidden > 0).then(|| {
        format!("{hidden} published figures are left out: --set changes the set-up that they were measured on")
    })
}

fn amounts(experiment: &Experiment, options: &Options, findings: &mut Findings) -> (Vec<u64>, f64) {
    let stated = options.seeds.unwrap_or(experiment.seeds);
    let count = options.adaptive.map_or(stated, |adaptive| adaptive.seeds_max);
    if !(1..=SEEDS_MAX).contains(&count) {
        findings.add(
            &Place::whole("--seeds"),
            "",
            count.to_string(),
            format!("1 to {SEEDS_MAX}"),
        );
    }
    let last = options.first_seed.checked_add(u64::from(count));
    if last.is_none() {
        findings.add(
            &Place::whole("--first-seed"),
            "",
            options.first_seed.to_string(),
            "seeds below 2^64",
        );
    }
    let scale = options.scale.unwrap_or(experiment.scale);
    if let Some((found, expected)) = bad_scale(scale) {
        findings.add(&Place::whole("--scale"), "", found, expected);
    }
    let seeds = (0..u64::from(count.min(SEEDS_MAX))).map(|index| options.first_seed.saturating_add(index));
    (seeds.collect(), scale)
}

/// Returns `layers` with each value of each sweep over `axis`.
fn expand(layers: &[Layer], sweeps: &[Sweep], axis: Axis) -> Vec<Layer> {
    let mut expanded = layers.to_vec();
    for sweep in sweeps.iter().filter(|sweep| sweep.axis == axis) {
        if expanded.len() * sweep.values.len() > RUNS_MAX {
            // The limit on runs refuses this before it takes memory.
            continue;
        }
        let short = sweep.key.rsplit('.').next().unwrap_or(&sweep.key);
        let twins = sweeps
            .iter()
            .filter(|other| other.key.rsplit('.').next() == Some(short))
            .count();
        let label = if twins > 1 { sweep.key.as_str() } else { short };
        let mut swept = Vec::new();
        for layer in &expanded {
            for value in &sweep.values {
                let mut layer = layer.clone();
                let shown = match &value.value {
                    Value::Text(text) => text.clone(),
                    other => other.to_string(),
                };
                let step = format!("{label}={shown}");
                layer.name = if layer.name == "default" {
                    step.clone()
                } else {
                    format!("{} {step}", layer.name)
                };
                layer.swept.push(Swept {
                    key: sweep.key.clone(),
                    value: shown,
                    step,
                });
                layer.settings.push(Setting {
                    path: sweep.key.clone(),
                    node: value.clone(),
                });
                swept.push(layer);
            }
        }
        expanded = swept;
    }
    expanded
}

/// Returns the layers that the user named: by a name of `stated`, which stands for each of its swept values, or by a
/// swept name.
fn chosen(
    stated: &[Layer],
    layers: Vec<Layer>,
    wanted: &[String],
    option: &str,
    findings: &mut Findings,
) -> Vec<Layer> {
    // Each stated layer has as many swept ones, next to each other.
    let each = (layers.len() / stated.len()).max(1);
    let names = |index: usize, layer: &Layer| [stated[index / each].name.clone(), layer.name.clone()];
    for name in wanted {
        let is_it = |(index, layer): (usize, &Layer)| names(index, layer).contains(name);
        if !layers.iter().enumerate().any(is_it) {
            let expected = one_of(name, layers.iter().map(|layer| layer.name.as_str()));
            findings.add(&Place::whole(option), "", format!("{name:?}"), expected);
        }
    }
    let is_wanted = |index: usize, layer: &Layer| names(index, layer).iter().any(|name| wanted.contains(name));
    layers
        .into_iter()
        .enumerate()
        .filter(|(index, layer)| wanted.is_empty() || is_wanted(*index, layer))
        .map(|(_, layer)| layer)
        .collect()
}

/// Checks that the variants named by cases exist.
fn check_admitted(experiment: &Experiment, findings: &mut Findings) {
    for case in &experiment.cases {
        for node in case.variants.iter().flatten() {
            let known = experiment.variants.iter().map(|variant| variant.name.as_str());
            let expected = match &node.value {
                Value::Text(name) if known.clone().any(|other| other == name) => continue,
                Value::Text(name) => one_of(name, known),
                _ => "the name of a variant".to_owned(),
            };
            findings.add(&node.place, "cases.variants", node.value.to_string(), expected);
        }
    }
}

fn check_published(experiment: &Experiment, cases: &[Layer], variants: &[Layer], findings: &mut Findings) {
    let mut seen = Vec::new();
    for (row, place) in &experiment.published {
        let known = |name: &str, layers: &[Layer]| layers.iter().any(|layer| layer.name == name);
        let vms = &experiment.names.vms;
        if !known(&row.case, cases) {
            let names = cases.iter().map(|layer| layer.name.as_str());
            findings.add(
                place,
                "published.case",
                format!("{:?}", row.case),
                one_of(&row.case, names),
            );
        }
        if !known(&row.variant, variants) {
            let names = variants.iter().map(|layer| layer.name.as_str());
            findings.add(
                place,
                "published.variant",
                format!("{:?}", row.variant),
                one_of(&row.variant, names),
            );
        }
        if !vms.contains(&row.vm) {
            let expected = one_of(&row.vm, vms.iter().map(String::as_str));
            findings.add(place, "published.vm", format!("{:?}", row.vm), expected);
        }
        let cell = (row.case.as_str(), row.variant.as_str(), row.vm.as_str(), row.of);
        if seen.contains(&cell) {
            let found = format!("{} of {} / {} / {} twice", row.of.name(), row.case, row.variant, row.vm);
            findings.add(place, "published", found, "one row for each cell and quantity");
        }
        seen.push(cell);
    }
}

#[cfg(test)]
mod tests;
