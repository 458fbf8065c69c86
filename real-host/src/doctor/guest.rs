//! What guests are offered, and whether the hardware runs them.

use super::check::{Check, Verdict};
use super::probe::Probe;

/// Below this, in instructions a second, guests are interpreted: hardware executes them a hundred times as fast, and even an
/// emulator that translates them does.
const INTERPRETED_BELOW: f64 = 5e7;

/// PV features that matter to guests that share CPUs: bit, name, what its lack means (Documentation/virt/kvm/x86/cpuid.rst).
const FEATURES: [(u32, &str, &str); 6] = [
    (
        5,
        "STEAL_TIME",
        "guests do not know which of their vCPUs are preempted, nor how much time they lost",
    ),
    (
        7,
        "PV_UNHALT",
        "no halting and kicking for locks: Linux guests fall back to test-and-set",
    ),
    (
        6,
        "PV_EOI",
        "each end of interrupt is an exit where neither AVIC nor APICv is on",
    ),
    (9, "PV_TLB_FLUSH", "a TLB shootdown waits for vCPUs that are preempted"),
    (11, "PV_SEND_IPI", "one exit for each target of an IPI to several"),
    (
        13,
        "PV_SCHED_YIELD",
        "who waits for an IPI's answer cannot yield to the vCPU that owes it",
    ),
];

/// What guests are offered, and whether the hardware runs them.
pub fn examine(probe: Option<&Probe>, checks: &mut Vec<Check>) {
    let Some(probe) = probe else {
        let check = Check::new("guest", OFFERS, "no file tells", Verdict::Unknown);
        checks.push(
            check
                .means(OFFERS_UNKNOWN)
                .change("run `holdfast kvm doctor` on that machine: its /dev/kvm tells"),
        );
        return;
    };
    if probe.refused.is_some() {
        return;
    }
    checks.push(offers(probe));
    for (bit, name, lack) in FEATURES {
        checks.push(match probe.features {
            None => Check::new("guest", name, "not told", Verdict::Unknown).means(format!("if it is withheld: {lack}")),
            Some(features) if features >> bit & 1 == 1 => Check::new("guest", name, "offered", Verdict::Good),
            Some(_) => Check::new("guest", name, "not offered", Verdict::Lacking)
                .means(lack)
                .change("a newer host kernel, or the right vendor module"),
        });
    }
    checks.push(speed(probe));
}

/// What the check of all features together is called.
const OFFERS: &str = "paravirtual features";
const OFFERS_UNKNOWN: &str = "which of them guests have to do without is not known";

/// How many there are, and which are withheld.
fn offers(probe: &Probe) -> Check {
    let Some(features) = probe.features else {
        return Check::new("guest", OFFERS, "not told", Verdict::Unknown).means(OFFERS_UNKNOWN);
    };
    let withheld: Vec<&str> = FEATURES
        .iter()
        .filter(|(bit, _, _)| features >> bit & 1 == 0)
        .map(|(_, name, _)| *name)
        .collect();
    let offered = FEATURES.len() - withheld.len();
    let found = format!("{offered} of {} offered, {} withheld", FEATURES.len(), withheld.len());
    if withheld.is_empty() {
        return Check::new("guest", OFFERS, found, Verdict::Good);
    }
    Check::new(
        "guest",
        OFFERS,
        format!("{found}: {}", withheld.join(", ")),
        Verdict::Lacking,
    )
    .means("guests do without what is withheld; each is spoken of below")
}

fn speed(probe: &Probe) -> Check {
    let name = "guest kernel code";
    match (probe.instructions_per_second, &probe.loop_failed) {
        (Some(rate), _) if rate < INTERPRETED_BELOW => Check::new(
            "guest",
            name,
            format!("{:.1} million instructions/s: interpreted", rate / 1e6),
            Verdict::Lacking,
        )
        .means("good for functional tests only: no figure measured on this KVM says anything about another")
        .change("measure on hardware, or in the test host"),
        (Some(rate), _) => Check::new(
            "guest",
            name,
            format!("{:.0} million instructions/s", rate / 1e6),
            Verdict::Good,
        ),
        (None, Some(why)) => Check::new("guest", name, why.clone(), Verdict::Lacking)
            .means("a small guest of this program does not run to its end here")
            .change("if the hardware has VMX or SVM: a newer kernel; else the test host"),
        (None, None) => Check::new("guest", name, "not measured", Verdict::Unknown)
            .means("whether guests run at the speed of hardware is not known"),
    }
}
