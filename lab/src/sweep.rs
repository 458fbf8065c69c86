//! Results of a sweep: curves over a swept key, and what its values buy.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use crate::compare::{CompareError, Judgment};
use crate::diagnostic::one_of;
use crate::figure::{Figure, figures};
use crate::results::Results;
use crate::stats::{Comparison, compare_among};
use crate::swept::Swept;

/// Returns the swept keys, in their order.
pub fn keys(results: &Results) -> Vec<&str> {
    let mut keys: Vec<&str> = Vec::new();
    for swept in results.cases.iter().flat_map(|case| &case.swept) {
        if !keys.contains(&&*swept.key) {
            keys.push(&swept.key);
        }
    }
    keys
}

/// A group of cells that differ in swept keys only.
#[derive(Clone, Debug)]
pub struct Group<'r> {
    /// Name of the case, without the values of these keys.
    pub case: String,
    /// Name of the variant, without the values of these keys.
    pub variant: String,
    /// Name of the guest.
    pub vm: String,
    /// The cells in the order of the results, each with its values of the keys.
    pub cells: Vec<(Vec<&'r str>, Figure<'r>)>,
}

impl<'r> Group<'r> {
    /// Returns the values of the key at `index`, in their order.
    pub fn values(&self, index: usize) -> Vec<&'r str> {
        let mut values: Vec<&str> = Vec::new();
        for (at, _) in &self.cells {
            if !values.contains(&at[index]) {
                values.push(at[index]);
            }
        }
        values
    }

    /// Returns the names of the group in one line.
    pub fn name(&self) -> String {
        let names = [&*self.case, &*self.variant, &*self.vm];
        let names: Vec<&str> = names.into_iter().filter(|name| !name.is_empty()).collect();
        names.join(" / ")
    }
}

/// Returns the cells of `results` in groups that differ in `keys` only. Cells without one of the keys are left out.
pub fn groups<'r>(results: &'r Results, keys: &[&str]) -> Vec<Group<'r>> {
    let mut groups: Vec<Group<'r>> = Vec::new();
    let mut known: HashMap<(String, String, String), usize> = HashMap::new();
    for figure in figures(results) {
        let step = |key: &&str| figure.case.swept.iter().find(|swept| swept.key == *key);
        let Some(steps) = keys.iter().map(step).collect::<Option<Vec<&Swept>>>() else {
            continue;
        };
        let without = |name: &str| {
            steps
                .iter()
                .fold(name.to_owned(), |name, step| step.removed_from(&name))
        };
        let names = (without(&figure.case.case), without(&figure.case.variant), figure.vm());
        let at = steps.iter().map(|step| step.value.as_str()).collect();
        let index = *known.entry(names.clone()).or_insert_with(|| {
            let (case, variant, vm) = names;
            groups.push(Group {
                case,
                variant,
                vm,
                cells: Vec::new(),
            });
            groups.len() - 1
        });
        groups[index].cells.push((at, figure));
    }
    groups
}

/// What a value of a swept key buys, next to the first value.
#[derive(Clone, Debug, Serialize)]
pub struct Bought {
    /// Name of the case, without the key's value.
    pub case: String,
    /// Name of the variant, without the key's value.
    pub variant: String,
    /// Name of the guest.
    pub vm: String,
    /// The first value.
    pub from: String,
    /// The other value.
    pub to: String,
    /// Unit of the means.
    pub unit: String,
    /// Geometric mean with the first value.
    pub mean_from: Option<f64>,
    /// Geometric mean with the other value.
    pub mean_to: Option<f64>,
    /// Size of the difference: change of the geometric mean in percent.
    pub change_percent: Option<f64>,
    /// Whether it is proven, with an interval that holds for all rows together; null if a side has no samples.
    pub comparison: Option<Comparison>,
    /// What the comparison found; null if a side has no samples.
    pub judgment: Option<Judgment>,
    /// Whether the other value is proven better (`true`), proven worse (`false`), or neither.
    pub better: Option<bool>,
}

/// A line over a swept key.
#[derive(Clone, Debug, Serialize)]
pub struct Curve {
    /// Name of the case, without the key's value.
    pub case: String,
    /// Name of the variant, without the key's value.
    pub variant: String,
    /// Name of the guest.
    pub vm: String,
    /// The metric.
    pub metric: String,
    /// Its unit.
    pub unit: String,
    /// Which values are better: `lower` or `higher`.
    pub better: String,
    /// The values of the other swept keys.
    pub others: BTreeMap<String, String>,
    /// The points, in the order of the key's values.
    pub points: Vec<Point>,
}

/// A point of a line.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// The key's value.
    pub value: String,
    /// Geometric mean; null without samples.
    pub mean: Option<f64>,
    /// 95 % confidence interval of the mean, of this point alone; null with one sample.
    pub interval: Option<(f64, f64)>,
}

impl Curve {
    /// Returns the line of a group over `key`.
    fn of(group: &Group<'_>, key: &str) -> Option<Curve> {
        let first = group.cells.first()?.1.case;
        let others = first.swept.iter().filter(|step| step.key != key);
        let point = |(at, figure): &(Vec<&str>, Figure<'_>)| {
            let center = figure.center();
            Point {
                value: at[0].to_owned(),
                mean: center.map(|center| center.mean),
                interval: center.and_then(|center| center.interval),
            }
        };
        Some(Curve {
            case: group.case.clone(),
            variant: group.variant.clone(),
            vm: group.vm.clone(),
            metric: first.metric.clone(),
            unit: first.unit.clone(),
            better: first.better.clone(),
            others: others.map(|step| (step.key.clone(), step.value.clone())).collect(),
            points: group.cells.iter().map(point).collect(),
        })
    }
}

/// The values of a swept key, next to its first one.
#[derive(Clone, Debug, Serialize)]
pub struct Along {
    /// The schema, `holdfast.sweep/1`.
    pub schema: &'static str,
    /// The key.
    pub key: String,
    /// Number of comparisons that the intervals are corrected for.
    pub comparisons: usize,
    /// The comparisons.
    pub rows: Vec<Bought>,
    /// The lines over the key.
    pub curves: Vec<Curve>,
}

/// Schema of a comparison along a swept key.
pub const SCHEMA: &str = "holdfast.sweep/1";

/// Compares the values of the swept `key` with its first one. All intervals together hold with 95 % confidence.
///
/// # Errors
/// If the results have no such sweep.
pub fn along(results: &Results, key: &str) -> Result<Along, CompareError> {
    let known = keys(results);
    if !known.contains(&key) {
        let known = match known.is_empty() {
            true => "results of a sweep; these have no swept key".to_owned(),
            false => one_of(key, known),
        };
        return Err(CompareError::UnknownKey {
            found: key.to_owned(),
            known,
        });
    }
    let groups = groups(results, &[key]);
    let comparisons = groups.iter().map(|group| group.cells.len().saturating_sub(1)).sum();
    let mut rows = Vec::new();
    for group in &groups {
        let Some(((from, first), others)) = group.cells.split_first() else {
            continue;
        };
        for (to, other) in others {
            let comparison = compare_among(comparisons, first.samples(), other.samples());
            let judgment = comparison.map(|comparison| Judgment::of(&comparison, &first.case.better));
            rows.push(Bought {
                case: group.case.clone(),
                variant: group.variant.clone(),
                vm: group.vm.clone(),
                from: from[0].to_owned(),
                to: to[0].to_owned(),
                unit: first.case.unit.clone(),
                mean_from: first.center().map(|center| center.mean),
                mean_to: other.center().map(|center| center.mean),
                change_percent: comparison.map(|comparison| (comparison.ratio - 1.0) * 100.0),
                comparison,
                judgment,
                better: judgment.and_then(Judgment::better),
            });
        }
    }
    Ok(Along {
        schema: SCHEMA,
        key: key.to_owned(),
        comparisons,
        rows,
        curves: groups.iter().filter_map(|group| Curve::of(group, key)).collect(),
    })
}
