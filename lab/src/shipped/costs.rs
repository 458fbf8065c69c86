//! What runs of the shipped experiments cost: measured, and kept in `costs.csv`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The file, which `holdfast list --costs DIR` writes again.
static FILE: &str = include_str!("costs.csv");

/// Start of the file's first line, before the name of the CPU.
const HEAD: &str = "# CPU seconds of one run at the experiment's scale, the mean of a few seeds. Measured on: ";

/// CPU time of one run of a cell.
#[derive(Clone, Debug, PartialEq)]
pub struct CellCost {
    /// Name of the experiment.
    pub experiment: String,
    /// Name of the case.
    pub case: String,
    /// Name of the variant.
    pub variant: String,
    /// CPU time in seconds.
    pub cpu_s: f64,
}

/// CPU times of one run of each cell of the shipped experiments, at each experiment's own scale.
#[derive(Clone, Debug, PartialEq)]
pub struct Costs {
    /// The CPU that the times were measured on.
    pub cpu: String,
    /// Experiment, then case and variant.
    cells: BTreeMap<String, BTreeMap<(String, String), f64>>,
}

/// Returns the measured costs.
pub fn costs() -> &'static Costs {
    static COSTS: LazyLock<Costs> = LazyLock::new(|| Costs::read(FILE).expect("a test reads the file"));
    &COSTS
}

impl Costs {
    /// Returns the costs of `cells`, measured on the CPU called `cpu`.
    pub fn new(cpu: &str, cells: impl IntoIterator<Item = CellCost>) -> Costs {
        let mut all: BTreeMap<String, BTreeMap<(String, String), f64>> = BTreeMap::new();
        for cell in cells {
            let experiment = all.entry(cell.experiment).or_default();
            experiment.insert((cell.case, cell.variant), cell.cpu_s);
        }
        Costs {
            cpu: cpu.to_owned(),
            cells: all,
        }
    }

    /// Reads the text of a file.
    ///
    /// # Errors
    /// The first line that is wrong, in words.
    pub fn read(text: &str) -> Result<Costs, String> {
        let (head, rows) = text.split_once('\n').ok_or("an empty file")?;
        let cpu = head
            .strip_prefix(HEAD)
            .ok_or_else(|| format!("the first line {head:?}"))?;
        let mut cells = Vec::new();
        for record in csv::Reader::from_reader(rows.as_bytes()).deserialize() {
            let (experiment, case, variant, cpu_s): (String, String, String, f64) =
                record.map_err(|error| error.to_string())?;
            if !(cpu_s.is_finite() && cpu_s > 0.0) {
                return Err(format!("{experiment}, {case}, {variant}: {cpu_s} s"));
            }
            cells.push(CellCost {
                experiment,
                case,
                variant,
                cpu_s,
            });
        }
        Ok(Costs::new(cpu, cells))
    }

    /// Returns the text of the file.
    pub fn text(&self) -> String {
        let mut writer = csv::Writer::from_writer(Vec::new());
        let mut write = |fields: [&str; 4]| writer.write_record(fields).expect("memory is written");
        write(["experiment", "case", "variant", "cpu_s"]);
        for (experiment, cells) in &self.cells {
            for ((case, variant), cpu_s) in cells {
                write([experiment, case, variant, &format!("{cpu_s:.3}")]);
            }
        }
        let rows = writer.into_inner().expect("memory is flushed");
        let rows = String::from_utf8(rows).expect("CSV of text is text");
        format!("{HEAD}{}\n{rows}", self.cpu)
    }

    /// Returns the CPU time in seconds of one run of a cell, or `None` if it was not measured.
    pub fn run_s(&self, experiment: &str, case: &str, variant: &str) -> Option<f64> {
        let cells = self.cells.get(experiment)?;
        cells.get(&(case.to_owned(), variant.to_owned())).copied()
    }

    /// Returns the CPU time in seconds of `seeds` runs of each cell of `experiment`, or `None` if it was not measured.
    pub fn experiment_s(&self, experiment: &str, seeds: u32) -> Option<f64> {
        let cells = self.cells.get(experiment)?;
        Some(cells.values().sum::<f64>() * f64::from(seeds))
    }

    /// Returns the mean CPU time in seconds of one run of a cell of `experiment`, or `None` if it was not measured.
    pub fn mean_run_s(&self, experiment: &str) -> Option<f64> {
        let cells = self.cells.get(experiment).filter(|cells| !cells.is_empty())?;
        Some(cells.values().sum::<f64>() / cells.len() as f64)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::experiment::Experiment;
    use crate::options::Options;
    use crate::plan::Plan;
    use crate::shipped::EXPERIMENTS;

    #[test]
    fn every_cell_of_every_experiment_was_measured_and_no_other() {
        let costs = Costs::read(FILE).expect("a file of costs");
        assert_eq!(costs.text(), FILE, "as `holdfast list --costs` writes it");
        assert!(costs.cpu.len() > 3, "the CPU has no name");
        let mut left = costs.cells.clone();
        for shipped in EXPERIMENTS {
            let experiment = Experiment::parse(shipped.file, shipped.text).expect("a valid experiment");
            let plan = Plan::new(experiment, &Options::default()).expect("a valid plan");
            for cell in &plan.cells {
                let name = (cell.case.clone(), cell.variant.clone());
                let found = left.get_mut(shipped.name).and_then(|cells| cells.remove(&name));
                assert!(found.is_some(), "{}: {name:?} has no measured cost", shipped.name);
            }
            let runs = plan.runs() as f64;
            let all = costs.mean_run_s(shipped.name).map(|mean| mean * runs);
            let stated = costs.experiment_s(shipped.name, plan.experiment.seeds);
            let (all, stated) = (all.expect("measured"), stated.expect("measured"));
            assert!(
                (all / stated - 1.0).abs() < 1e-9,
                "{}: {all} s, {stated} s",
                shipped.name
            );
        }
        let left: Vec<_> = left.iter().filter(|(_, cells)| !cells.is_empty()).collect();
        assert!(left.is_empty(), "costs of cells that do not exist: {left:?}");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            cpu in "[ -~]{0,20}",
            names in prop::collection::btree_set("[ -~]{1,12}", 1..6),
            cpu_s in 1_u32..1_000_000,
        ) {
            let cell = |name: String| CellCost {
                experiment: name.clone(),
                case: format!("{name},\""),
                variant: name,
                cpu_s: f64::from(cpu_s) / 1e3,
            };
            let costs = Costs::new(&cpu, names.into_iter().map(cell));
            prop_assert_eq!(Costs::read(&costs.text()), Ok(costs));
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "(# CPU|[ -~\n,\"]){0,200}", row in "[a-z0-9,.\"\n-]{0,60}") {
            let _ = Costs::read(&text);
            let _ = Costs::read(&format!("{HEAD}x\nexperiment,case,variant,cpu_s\n{row}"));
        }
    }
}
