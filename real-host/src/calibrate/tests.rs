//! Calibration of a simulated machine whose profile is known but hidden from the calibration, which has to find it.

use holdfast_lab::profile::MachineProfile;
use holdfast_lab::shipped;

use proptest::prelude::*;

use super::fit::fit_all;
use super::host::Host;
use super::profile::put;
use super::sample::Sampled;
use super::stage::{Measured, simulated};
use super::{Parameter, guest, micro, stage, system};

/// Number of samples on a hidden machine. It is odd, and no tick interrupts the median sample.
const SAMPLES: u32 = 21;

fn host() -> Host {
    Host::of(Some("6.1.0".to_owned()), Some(250))
}

fn cost(profile: &MachineProfile, name: &str) -> f64 {
    super::profile::base_ns(profile, name)
}

/// Nanoseconds, times a factor, in hidden profiles for a cost that is 0 in the base profile.
const UNIT_NS: f64 = 100.0;

/// Returns the profile from which a calibration starts.
fn base() -> MachineProfile {
    let mut profile = shipped::generic_machine();
    super::profile::join(&mut profile);
    profile
}

/// Returns the base profile with each cost in `names` multiplied by its factor.
fn hidden(names: &[&'static str], factors: &[f64]) -> MachineProfile {
    let mut profile = base();
    for (&name, factor) in names.iter().zip(factors) {
        let base = cost(&profile, name);
        let ns = if base > 0.0 { base } else { UNIT_NS } * factor;
        let parameter = Parameter {
            name,
            ns,
            how: "hidden".to_owned(),
            samples: Sampled::of(vec![ns]).expect("a sample"),
        };
        put(&mut profile, &parameter);
    }
    profile
}

/// Returns the costs that differ between two profiles by more than 3 % and 20 ns.
fn differ<'n>(one: &MachineProfile, other: &MachineProfile, names: &[&'n str]) -> Vec<&'n str> {
    let is_near = |name: &str| {
        let (one, other) = (cost(one, name), cost(other, name));
        (one - other).abs() <= (0.03 * one).max(20.0)
    };
    names.iter().copied().filter(|name| !is_near(name)).collect()
}

/// Returns the figures of a program's small benchmarks on the machine of `profile`.
fn programs(profile: &MachineProfile) -> Measured {
    let sampled = |micro| simulated(micro, SAMPLES, profile, &host()).expect("it runs in the simulator");
    micro::Micro::ALL.map(|micro| (micro, sampled(micro))).into()
}

/// Returns the figures of a guest's small benchmarks on the machine of `profile`.
fn guests(profile: &MachineProfile) -> guest::Found {
    let sampled = |bench| guest::simulated(bench, SAMPLES, profile, &host()).expect("it runs in the simulator");
    guest::Bench::all().map(|bench| (bench, sampled(bench))).collect()
}

fn names<B: Copy>(costs: &[(B, &'static str)]) -> Vec<&'static str> {
    costs.iter().map(|(_, name)| *name).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn what_a_program_sees_of_a_machine_gives_its_costs_back(
        factors in proptest::collection::vec(0.4..3.0f64, system::COSTS.len())
    ) {
        let names = names(&system::COSTS);
        let hidden = hidden(&names, &factors);
        let mut found = base();
        let parameters = system::divide(&mut found, &host(), &programs(&hidden), &system::COSTS);
        prop_assert_eq!(parameters.len(), names.len());
        prop_assert_eq!(differ(&hidden, &found, &names), Vec::<&str>::new());
    }

    #[test]
    fn what_a_guest_sees_of_its_host_gives_its_costs_back(
        factors in proptest::collection::vec(0.4..3.0f64, guest::COSTS.len())
    ) {
        let names = names(&guest::COSTS);
        let hidden = hidden(&names, &factors);
        let mut found = base();
        let parameters = guest::refine(&mut found, &host(), &guests(&hidden), &guest::COSTS);
        prop_assert_eq!(parameters.len(), names.len());
        prop_assert_eq!(differ(&hidden, &found, &names), Vec::<&str>::new());
    }
}

/// Returns `costs` with the costs of the benchmarks `one` and `other` exchanged.
fn swapped<B: Copy>(costs: &[(B, &'static str)], one: usize, other: usize) -> Vec<(B, &'static str)> {
    let mut swapped = costs.to_vec();
    (swapped[one].1, swapped[other].1) = (costs[other].1, costs[one].1);
    swapped
}

#[test]
fn a_benchmark_that_determines_another_ones_cost_is_found_out() {
    let hidden = hidden(
        &names(&guest::COSTS),
        &[
            2.0, 1.5, 3.0, 2.5, 2.0, 1.5, 2.0, 3.0, 0.5, 2.0, 2.0, 1.5, 0.7, 3.0, 2.0,
        ],
    );
    let found = guests(&hidden);
    // The pairs are hypercall and MSR, PAUSE and line, the kernel's code and its interrupts.
    for (one, other) in [(7, 8), (4, 5)] {
        let mut profile = base();
        guest::refine(&mut profile, &host(), &found, &swapped(&guest::COSTS, one, other));
        let names = names(&guest::COSTS);
        assert_ne!(
            differ(&hidden, &profile, &names),
            Vec::<&str>::new(),
            "{one} and {other}"
        );
    }
}

#[test]
fn a_figure_that_is_ten_times_too_large_is_found_out() {
    let hidden = base();
    for (index, (micro, _)) in system::COSTS.into_iter().enumerate() {
        let mut measured = programs(&hidden);
        let figure = measured.get_mut(&micro).expect("all were measured");
        figure.median_ns *= 10.0;
        let mut found = hidden.clone();
        system::divide(&mut found, &host(), &measured, &system::COSTS);
        let names = names(&system::COSTS);
        assert!(
            differ(&hidden, &found, &names).contains(&names[index]),
            "{}",
            micro.name()
        );
    }
}

#[test]
fn what_does_not_run_or_does_not_matter_leaves_the_profile_as_it_was() {
    let before = base();
    let found = programs(&before);
    for answer in [None, Sampled::of(vec![1000.0])] {
        let mut profile = before.clone();
        let costs = [(micro::Micro::Line, "transfer_socket")];
        let parameters = fit_all(&mut profile, &costs, micro::Micro::name, &found, |_, _| answer);
        assert!(parameters.is_empty());
        assert_eq!(profile, before);
    }
}

#[test]
fn kicking_a_sleeper_comes_out_without_being_asked() {
    // This is the only benchmark that determines no cost.
    let hidden = hidden(
        &names(&guest::COSTS),
        &[
            1.0, 1.0, 2.0, 1.0, 1.0, 2.0, 3.0, 2.0, 2.0, 1.5, 2.0, 3.0, 2.0, 2.0, 2.0,
        ],
    );
    let mut profile = base();
    let found = guests(&hidden);
    guest::refine(&mut profile, &host(), &found, &guest::COSTS);
    let closure = guest::closure(&profile, &host(), &found);
    let kick = closure
        .iter()
        .find(|closure| closure.benchmark == guest::Bench::Bare(guest::Micro::KickCall).name());
    let kick = kick.expect("it is among them");
    let ratio = kick.simulated_ns.expect("it runs there") / kick.measured_ns;
    assert!((ratio - 1.0).abs() < 0.05, "{kick:?}");
    assert!(stage::closure(&profile, &host(), &Measured::new()).is_empty());
}

#[test]
fn a_guest_without_samples_ends_the_calibration_with_its_reason() {
    let cases = [
        (true, 1, "one: kvm refuses to run the guest"),
        (false, 2, "one: the guest panicked: out of memory"),
    ];
    for (lasting, attempts, reason) in cases {
        let (mut steps, mut tried) = (0, 0);
        let mut fake = |bench, _: u32| {
            if bench != guest::Bench::Bare(guest::Micro::Cpuid) {
                return Ok(Sampled::of(vec![1.0]).expect("a sample"));
            }
            tried += 1;
            Err(guest::Lost {
                why: reason.to_owned(),
                lasting,
            })
        };
        let error = guest::measure(9, &mut fake, &mut |_| {
            steps += 1;
            Ok(())
        });
        let name = guest::Micro::Cpuid.name();
        let error = error.expect_err("it has no samples").to_string();
        assert_eq!(error, format!("cannot measure {name}: {reason}"));
        assert_eq!(tried, attempts);
        assert!(steps < guest::Bench::all().count());
    }
}
