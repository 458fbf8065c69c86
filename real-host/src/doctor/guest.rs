//! What guests are offered, and whether the hardware runs them.

use super::check::{Check, Verdict};
use super::features::FEATURES;
use super::probe::Probe;

/// Instructions per second below which guests are interpreted. Hardware is a hundred times as fast, and so is an
/// emulator that translates the code.
const INTERPRETED_BELOW: f64 = 5e7;

/// Adds the checks of guests.
pub fn examine(probe: Option<&Probe>, checks: &mut Vec<Check>) {
    let Some(probe) = probe else {
        let check = Check::unknown("guest", OFFERS, "not in any file");
        checks.push(
            check
                .means(OFFERS_UNKNOWN)
                .change("run `holdfast kvm doctor` on that machine, which asks its /dev/kvm"),
        );
        return;
    };
    if probe.refused.is_some() {
        return;
    }
    checks.push(offers(probe));
    for (bit, name, lack) in FEATURES {
        checks.push(match probe.features {
            None => Check::unknown("guest", name, "not reported").means(format!("if it is not offered: {lack}")),
            Some(features) if features >> bit & 1 == 1 => Check::good("guest", name, "offered"),
            Some(_) => Check::lacking("guest", name, "not offered")
                .means(lack)
                .change("use a newer host kernel, or the module of the right vendor"),
        });
    }
    checks.push(speed(probe));
    checks.push(migration(probe));
}

fn migration(probe: &Probe) -> Check {
    let check = |found: &str, verdict| Check::new("guest", "migration", found, verdict);
    match &probe.kick_migrates {
        Some(Ok(true)) => check("state saved and restored, latched kick included", Verdict::Good),
        Some(Ok(false)) => check("state saved and restored, latched kick lost", Verdict::Lacking)
            .means("a vCPU that is kicked before its halt sleeps on after a migration")
            .change("kick every vCPU after a migration, or use a newer host kernel"),
        Some(Err(why)) => check(why, Verdict::Lacking)
            .means("`kvm run --migrate` is refused here")
            .change("use a newer host kernel"),
        None => check("not tried", Verdict::Unknown).means("it is not known whether guests can migrate"),
    }
}

/// Name of the check of all features together.
const OFFERS: &str = "paravirtual features";
const OFFERS_UNKNOWN: &str = "it is not known which of them guests lack";

/// Checks how many features are offered.
fn offers(probe: &Probe) -> Check {
    let Some(features) = probe.features else {
        return Check::unknown("guest", OFFERS, "not reported").means(OFFERS_UNKNOWN);
    };
    let withheld: Vec<&str> = FEATURES
        .iter()
        .filter(|(bit, _, _)| features >> bit & 1 == 0)
        .map(|(_, name, _)| *name)
        .collect();
    let offered = FEATURES.len() - withheld.len();
    let found = format!("{offered} of {} offered, {} withheld", FEATURES.len(), withheld.len());
    if withheld.is_empty() {
        return Check::good("guest", OFFERS, found);
    }
    Check::lacking("guest", OFFERS, format!("{found}: {}", withheld.join(", ")))
        .means("guests lack the withheld features; each is listed below")
}

fn speed(probe: &Probe) -> Check {
    let name = "guest kernel code";
    match (probe.instructions_per_second, &probe.loop_failed) {
        (Some(rate), _) if rate < INTERPRETED_BELOW => Check::lacking(
            "guest",
            name,
            format!("{:.1} million instructions/s: interpreted", rate / 1e6),
        )
        .means("good for functional tests only: figures measured on this KVM say nothing about other hosts")
        .change("measure on hardware, or in the test host"),
        (Some(rate), _) => Check::good("guest", name, format!("{:.0} million instructions/s", rate / 1e6)),
        (None, Some(why)) => Check::lacking("guest", name, why.clone())
            .means("a small guest of this program does not finish here")
            .change("with VMX or SVM in hardware: use a newer kernel; otherwise use the test host"),
        (None, None) => Check::unknown("guest", name, "not measured")
            .means("it is not known whether guests run at the speed of hardware"),
    }
}
