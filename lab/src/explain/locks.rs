//! How often each of a guest's locks was waited for, and for how long.

use std::collections::BTreeMap;

use serde::Serialize;

/// One class of the guest kernel's spinlocks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LockRow {
    /// Name of the class.
    pub class: String,
    /// Acquisitions, as a mean over the runs.
    pub acquired: f64,
    /// Acquisitions that had to wait, as a mean over the runs.
    pub contended: f64,
    /// Nanoseconds that these waited, spinning or halted, as a mean over the runs. 0 if it is not known.
    pub waited_ns: f64,
    /// Nanoseconds for which CPUs held locks of the class, as a mean over the runs. 0 if it is not known.
    pub held_ns: f64,
    /// Locks of the class that are held on average, in percent: 100 is one lock that is always held. Null if it is not
    /// known.
    pub held_percent: Option<f64>,
    /// CPUs that wait for locks of the class on average, in percent of one CPU. Null if it is not known.
    pub waited_percent: Option<f64>,
}

/// Returns the classes that `counters` have, the most waited for first.
pub(super) fn of(counters: &BTreeMap<String, f64>) -> Vec<LockRow> {
    let time = |class: &str, what: &str| *counters.get(&format!("lock.{class}.{what}_ns")).unwrap_or(&0.0);
    let run_ns = run_ns(counters);
    let percent = |ns: f64| run_ns.map(|run| 100.0 * ns / run);
    let class = |(name, contended): (&String, &f64)| {
        let class = name.strip_prefix("lock.")?.strip_suffix(".contended")?;
        let acquired = counters.get(&format!("lock.{class}.acquired"))?;
        let (waited_ns, held_ns) = (time(class, "waited"), time(class, "held"));
        Some(LockRow {
            class: class.to_owned(),
            acquired: *acquired,
            contended: *contended,
            waited_ns,
            held_ns,
            held_percent: percent(held_ns).filter(|_| held_ns > 0.0),
            waited_percent: percent(waited_ns),
        })
    };
    let mut rows: Vec<LockRow> = counters.iter().filter_map(class).collect();
    rows.sort_by(|a, b| b.contended.total_cmp(&a.contended).then_with(|| a.class.cmp(&b.class)));
    rows
}

/// Returns how long the guest ran in nanoseconds, as a mean over the runs, or `None` if it is not known.
fn run_ns(counters: &BTreeMap<String, f64>) -> Option<f64> {
    let modes = ["guest.user_ns", "guest.system_ns", "guest.idle_ns"];
    let spent: f64 = modes.iter().filter_map(|name| counters.get(*name)).sum();
    let cpus = counters.get("guest.cpus").filter(|cpus| **cpus > 0.0)?;
    (spent > 0.0).then(|| spent / cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_is_held_half_of_the_time_has_a_utilization_of_a_half() {
        let mut counters: BTreeMap<String, f64> = [
            ("lock.zone.acquired", 4.0),
            ("lock.zone.contended", 1.0),
            ("lock.zone.held_ns", 500.0),
            ("lock.zone.waited_ns", 2_000.0),
            ("lock.lru.acquired", 1.0),
            ("lock.lru.contended", 0.0),
            ("guest.user_ns", 3_000.0),
            ("guest.idle_ns", 1_000.0),
            ("guest.cpus", 4.0),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        let rows = of(&counters);
        assert_eq!(
            (rows[0].held_percent, rows[0].waited_percent),
            (Some(50.0), Some(200.0))
        );
        assert_eq!((rows[1].held_percent, rows[1].waited_percent), (None, Some(0.0)));
        counters.remove("guest.cpus");
        assert_eq!(of(&counters)[0].held_percent, None, "as on a real host");
    }
}
