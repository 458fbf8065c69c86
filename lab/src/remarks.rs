//! Remarks on results: what took time or had no effect, and stands in no table that shows results.

use std::collections::BTreeMap;

use crate::results::{Background, Case, Results};

/// Causes that slow a guest down without its doing, in words, each with its name in the results.
const SLOWED: [(&str, &str); 5] = [
    ("shared_core", "the other threads of a core slow it down"),
    ("remote_memory", "its memory is on another node"),
    ("cold_caches", "its caches are cold after other threads and moves"),
    ("migration_stop", "it is stopped for live migrations"),
    ("migration_throttle", "it is throttled so that live migrations converge"),
];
/// Share of a guest's time from which on such a cause is remarked on.
const SHARE_MIN: f64 = 0.05;
/// Time without a tick after which a Linux guest reports a soft lockup, in ms (twice `watchdog_thresh`).
const LOCKUP_MS: f64 = 20_000.0;

/// A guest in a cell.
struct Guest<'r> {
    case: &'r str,
    variant: &'r str,
    vm: &'r str,
    counters: &'r BTreeMap<String, f64>,
    lost_time: &'r BTreeMap<String, f64>,
    longest_gap_ms: f64,
}

impl<'r> Guest<'r> {
    fn of_case(case: &'r Case) -> Guest<'r> {
        Guest {
            case: &case.case,
            variant: &case.variant,
            vm: &case.vm,
            counters: &case.counters,
            lost_time: &case.lost_time,
            longest_gap_ms: case
                .operators
                .as_ref()
                .map_or(0.0, |figures| figures.longest_tick_gap_ms),
        }
    }

    fn of_background(beside: &'r Background) -> Guest<'r> {
        Guest {
            case: &beside.case,
            variant: &beside.variant,
            vm: &beside.vm,
            counters: &beside.counters,
            lost_time: &beside.lost_time,
            longest_gap_ms: beside
                .operators
                .as_ref()
                .map_or(0.0, |figures| figures.longest_tick_gap_ms),
        }
    }

    fn name(&self) -> String {
        format!("{} / {} / {}", self.case, self.variant, self.vm)
    }

    fn counter(&self, name: &str) -> f64 {
        self.counters.get(name).copied().unwrap_or(0.0)
    }

    /// Returns why hardware does not virtualize its LAPICs, or nothing if it does or is not switched on.
    fn inhibits(&self) -> Vec<&'r str> {
        let reason = |(name, count): (&'r String, &f64)| {
            let reason = name.strip_prefix("apic_inhibited.")?;
            (*count > 0.0).then_some(reason)
        };
        self.counters.iter().filter_map(reason).collect()
    }
}

/// Returns the remarks on `results`, each with its worst guest.
pub fn remarks(results: &Results) -> Vec<String> {
    let measured = results.cases.iter().map(Guest::of_case);
    let guests: Vec<Guest<'_>> = measured
        .chain(results.background.iter().map(Guest::of_background))
        .collect();
    let mut remarks = inhibited(&guests);
    remarks.extend(refused(&guests));
    remarks.extend(unfinished_migrations(&guests));
    remarks.extend(lockups(&guests));
    remarks.extend(SLOWED.iter().filter_map(|(cause, words)| slowed(&guests, cause, words)));
    remarks
}

/// Returns how many more guests a remark is about.
fn more(count: usize) -> String {
    match count {
        0 | 1 => String::new(),
        _ => format!(" (and {} more)", count - 1),
    }
}

/// Returns a remark for each set of reasons that keep AVIC or APICv off although it is on.
fn inhibited(guests: &[Guest<'_>]) -> Vec<String> {
    let mut by_reasons: BTreeMap<Vec<&str>, Vec<&Guest<'_>>> = BTreeMap::new();
    for guest in guests {
        let reasons = guest.inhibits();
        if !reasons.is_empty() {
            by_reasons.entry(reasons).or_default().push(guest);
        }
    }
    let remark = |(reasons, of): (Vec<&str>, Vec<&Guest<'_>>)| {
        format!(
            "AVIC or APICv is switched on and inhibited ({}), so interrupts leave the guest: {}{}",
            reasons.join(", "),
            of[0].name(),
            more(of.len())
        )
    };
    by_reasons.into_iter().map(remark).collect()
}

/// Returns a remark on answers of policies that were refused, for hosts and for guests.
fn refused(guests: &[Guest<'_>]) -> Vec<String> {
    let policies = [("host", "policy_refusals"), ("guest", "guest.policy_refusals")];
    let remark = |(whose, name)| {
        let of: Vec<&Guest<'_>> = guests.iter().filter(|guest| guest.counter(name) > 0.0).collect();
        let worst = of.iter().max_by(|a, b| a.counter(name).total_cmp(&b.counter(name)))?;
        Some(format!(
            "answers of the {whose}'s policy broke its rules, and the kernel's were taken ({:.0} times): {}{}",
            worst.counter(name),
            worst.name(),
            more(of.len())
        ))
    };
    policies.into_iter().filter_map(remark).collect()
}

/// Returns a remark on copies of memory that never end.
fn unfinished_migrations(guests: &[Guest<'_>]) -> Option<String> {
    let stuck = |guest: &&Guest<'_>| guest.counter("migration_copies") > 0.0 && guest.counter("migrations") == 0.0;
    let of: Vec<&Guest<'_>> = guests.iter().filter(stuck).collect();
    let first = of.first()?;
    Some(format!(
        "no live migration completes, since guests write faster than the copy sends ({:.0} rounds, {:.0} pages): {}{}",
        first.counter("migration_rounds"),
        first.counter("migration_pages"),
        first.name(),
        more(of.len())
    ))
}

/// Returns a remark on guests whose kernel would report a soft lockup.
fn lockups(guests: &[Guest<'_>]) -> Option<String> {
    let of: Vec<&Guest<'_>> = guests
        .iter()
        .filter(|guest| guest.longest_gap_ms >= LOCKUP_MS)
        .collect();
    let worst = of.iter().max_by(|a, b| a.longest_gap_ms.total_cmp(&b.longest_gap_ms))?;
    Some(format!(
        "a Linux guest would report a soft lockup: a vCPU has no timer tick for {:.1} s in {}{}",
        worst.longest_gap_ms / 1e3,
        worst.name(),
        more(of.len())
    ))
}

/// Returns a remark on the guests that lose much time to `cause`.
fn slowed(guests: &[Guest<'_>], cause: &str, words: &str) -> Option<String> {
    let share = |guest: &Guest<'_>| guest.lost_time.get(cause).copied().unwrap_or(0.0);
    let of: Vec<&Guest<'_>> = guests.iter().filter(|guest| share(guest) >= SHARE_MIN).collect();
    let worst = of.iter().max_by(|a, b| share(a).total_cmp(&share(b)))?;
    Some(format!(
        "{words} for {:.1} % of the vCPUs' time: {}{}",
        share(worst) * 100.0,
        worst.name(),
        more(of.len())
    ))
}
