//! Finds the cost with which a small benchmark takes as long in the simulator as on the machine.
//!
//! The simulator knows how the costs of a benchmark overlap and add up, so it is run instead of a formula.

use std::collections::BTreeMap;

use holdfast_lab::profile::MachineProfile;

use super::parameter::Parameter;
use super::profile::put;
use super::sample::Sampled;

/// Number of halvings of the interval that contains the cost.
const HALVINGS: u32 = 14;
/// A benchmark that changes by less than this share from one end of the interval to the other does not depend on the
/// cost.
const INSENSITIVE: f64 = 0.02;

/// Calls [`fit`] for each of `costs` whose benchmark is in `found`. Returns the costs that were found.
pub fn fit_all<B: Copy + Ord>(
    profile: &mut MachineProfile,
    costs: &[(B, &'static str)],
    name_of: impl Fn(B) -> &'static str,
    found: &BTreeMap<B, Sampled>,
    simulate: impl Fn(B, &MachineProfile) -> Option<Sampled>,
) -> Vec<Parameter> {
    let determined = costs.iter().filter_map(|&(benchmark, name)| {
        let how = format!(
            "with which it takes as long in the simulator as here: {}",
            name_of(benchmark)
        );
        let wanted = Wanted {
            name,
            how: &how,
            measured: *found.get(&benchmark)?,
        };
        fit(profile, &wanted, |profile| {
            simulate(benchmark, profile).map(|sampled| sampled.median_ns)
        })
    });
    determined.collect()
}

/// A cost to be found.
#[derive(Clone, Debug)]
struct Wanted<'w> {
    /// Name in profiles.
    name: &'static str,
    /// The method, as stated in the result.
    how: &'w str,
    /// Time of the benchmark on the machine.
    measured: Sampled,
}

/// Finds the cost, puts it into `profile` and returns it. `simulate` returns the nanoseconds of the benchmark with a
/// profile, which must not fall as the cost rises. The cost is 0 if the benchmark is faster on the machine than in the
/// simulator with cost 0. Returns `None` and leaves `profile` unchanged if the benchmark does not run there or does not
/// depend on the cost.
fn fit(
    profile: &mut MachineProfile,
    wanted: &Wanted<'_>,
    simulate: impl Fn(&MachineProfile) -> Option<f64>,
) -> Option<Parameter> {
    let parameter = |ns: f64| Parameter {
        name: wanted.name,
        ns,
        how: wanted.how.to_owned(),
        samples: wanted.measured,
    };
    let target = wanted.measured.median_ns;
    let with = |ns: f64| {
        let mut tried = profile.clone();
        put(&mut tried, &parameter(ns));
        simulate(&tried)
    };
    let (mut low, mut high) = (0.0, target.max(1.0) * 2.0);
    let (least, most) = (with(low)?, with(high)?);
    if most - least < INSENSITIVE * most {
        return None;
    }
    if least >= target {
        high = low;
    }
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if with(middle)? < target {
            low = middle;
        } else {
            high = middle;
        }
    }
    let found = parameter(high);
    put(profile, &found);
    Some(found)
}
