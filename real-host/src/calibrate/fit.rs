//! Finding the cost with which a small benchmark takes as long in the simulator as here.
//!
//! Of how the parts of what was measured overlap and add up the simulator knows best: so it is asked, and not guessed at.

use std::collections::BTreeMap;

use holdfast_lab::profile::MachineProfile;

use super::parameter::Parameter;
use super::profile::put;
use super::sample::Sampled;

/// Halvings of the interval in which the cost is looked for.
const HALVINGS: u32 = 14;
/// A benchmark that changes by less than this share from one end of the interval to the other does not depend on the cost.
const INSENSITIVE: f64 = 0.02;

/// As [`fit`] for each of `costs` in turn, whose benchmark is in `found`; returns those that were found.
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

/// A cost that is looked for.
#[derive(Clone, Debug)]
struct Wanted<'w> {
    /// Its name in profiles.
    name: &'static str,
    /// What the result says of where it is from.
    how: &'w str,
    /// What the benchmark took here.
    measured: Sampled,
}

/// Finds the cost, puts it into `profile` and returns it. `simulate` is what the benchmark takes with a profile, in nanoseconds;
/// it must not fall as the cost rises. A benchmark that takes less here than there with the cost 0 gives 0. `None`, and
/// `profile` as it was, if the benchmark does not run there or does not depend on the cost.
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
