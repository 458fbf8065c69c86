//! The experiments and machine profiles that are part of the program.

mod costs;
pub(crate) mod files;

use crate::diagnostic::{Place, Problem, Problems, one_of};
use crate::document::{self, Table};
use crate::experiment::Experiment;
use crate::profile::MachineProfile;

pub use costs::{CellCost, Costs, costs};
pub use files::{EXPERIMENTS, KERNELS, MACHINES, Shipped, find};

/// The profile of an experiment that names no profile.
pub const DEFAULT_MACHINE: &str = "xeon-2x16";

/// The profile from which calibrations start.
pub const GENERIC_MACHINE: &str = "generic-x86";

/// The experiment that `holdfast run` runs without a name.
pub const DEFAULT_EXPERIMENT: &str = "kernbench-overcommit";

/// Returns the names of the shipped experiments that have published figures.
pub fn published() -> Vec<&'static str> {
    let has_figures = |shipped: &&Shipped| {
        Experiment::parse(shipped.file, shipped.text).is_ok_and(|experiment| !experiment.published.is_empty())
    };
    EXPERIMENTS
        .iter()
        .filter(has_figures)
        .map(|shipped| shipped.name)
        .collect()
}

/// Returns whether `document` is meant as a machine profile.
pub fn is_machine(document: &Table) -> bool {
    let has = |name: &str| document.entries.iter().any(|(key, _)| key == name);
    (has("costs") || has("base")) && has("topology")
}

/// Returns whether `document` is meant as an experiment.
pub(crate) fn is_experiment(document: &Table) -> bool {
    document.entries.iter().any(|(key, _)| key == "metric")
}

/// The profile of an experiment that names no profile.
pub fn default_machine() -> MachineProfile {
    shipped_machine(DEFAULT_MACHINE)
}

/// The profile from which calibrations start.
pub fn generic_machine() -> MachineProfile {
    shipped_machine(GENERIC_MACHINE)
}

fn shipped_machine(name: &str) -> MachineProfile {
    let shipped = find(MACHINES, name).expect("the machine is shipped");
    MachineProfile::parse(shipped.file, shipped.text).expect("a test parses every shipped profile")
}

/// Returns the profile called `name`: a shipped profile, or the file whose text `read` returns.
///
/// # Errors
/// All mistakes in the profile. An unknown name is reported at `place`.
pub(crate) fn machine(
    name: &str,
    place: &Place,
    read: &dyn Fn(&str) -> std::io::Result<String>,
) -> Result<MachineProfile, Problems> {
    if let Some(shipped) = find(MACHINES, name) {
        return MachineProfile::parse(shipped.file, shipped.text);
    }
    let wrong = |found: String| {
        let known: Vec<&str> = MACHINES.iter().map(|machine| machine.name).collect();
        let expected = one_of(name, known.iter().copied());
        Problem {
            place: place.clone(),
            key: "machine.profile".to_owned(),
            found,
            expected: format!("a TOML file, or {expected}"),
        }
    };
    if !name.ends_with(".toml") && !name.contains('/') {
        return Err(wrong(format!("{name:?}")).into());
    }
    let text = read(name).map_err(|error| wrong(format!("{name:?} ({error})")))?;
    if document::parse(name, &text).is_ok_and(|document| is_experiment(&document)) {
        return Err(wrong(format!("the experiment {name:?}")).into());
    }
    MachineProfile::parse(name, &text)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn every_file_of_the_folders_is_shipped() {
        for (folder, shipped) in [("experiments", EXPERIMENTS), ("machines", MACHINES)] {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder);
            let mut files: Vec<String> = std::fs::read_dir(path)
                .expect("the folder is readable")
                .map(|entry| entry.expect("an entry is readable").file_name())
                .map(|name| format!("{folder}/{}", name.to_string_lossy()))
                .collect();
            files.sort_unstable();
            let mut listed: Vec<&str> = shipped.iter().map(|shipped| shipped.file).collect();
            listed.sort_unstable();
            assert_eq!(
                listed, files,
                "the files of {folder}/ and the list in lab/src/shipped.rs"
            );
        }
    }

    #[test]
    fn every_shipped_profile_is_whole() {
        for shipped in MACHINES {
            let profile = MachineProfile::parse(shipped.file, shipped.text).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(profile.name, shipped.name);
            assert!(profile.build().is_some());
        }
    }

    #[test]
    fn published_figures_are_found_by_experiment() {
        let names = published();
        assert!(names.contains(&"kernbench-overcommit") && !names.contains(&"lock-crossover"));
        let with_rows = |shipped: &&Shipped| shipped.text.contains("\n[[published]]\n");
        assert_eq!(names.len(), EXPERIMENTS.iter().filter(with_rows).count());
    }

    // docs/spec/costs.md, "Atomics, PAUSE and locks", Westmere-EX: ticket 27.0 ns, qspinlock 27.4 ns, one task.
    #[test]
    fn uncontended_locks_cost_a_westmere_ex_what_was_published() {
        let shipped = find(MACHINES, "westmere-ex-8").expect("it is shipped");
        let profile = MachineProfile::parse(shipped.file, shipped.text).unwrap_or_else(|error| panic!("{error}"));
        let costs = profile.build().expect("every cost fits").costs;
        // Exchange and add, load of the own ticket, store; compare and exchange, store.
        let ticket = costs.rmw_hit + costs.load_hit + costs.store;
        let queued = costs.rmw_hit + costs.store;
        for (took, published_ps) in [(ticket, 27_000), (queued, 27_400)] {
            assert!(
                took.0.abs_diff(published_ps) * 20 < published_ps,
                "{took:?}, {published_ps} ps"
            );
        }
    }
}
