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
}

/// Returns the classes that `counters` have, the most waited for first.
pub(super) fn of(counters: &BTreeMap<String, f64>) -> Vec<LockRow> {
    let class = |(name, contended): (&String, &f64)| {
        let class = name.strip_prefix("lock.")?.strip_suffix(".contended")?;
        let acquired = counters.get(&format!("lock.{class}.acquired"))?;
        Some(LockRow {
            class: class.to_owned(),
            acquired: *acquired,
            contended: *contended,
            waited_ns: *counters.get(&format!("lock.{class}.waited_ns")).unwrap_or(&0.0),
        })
    };
    let mut rows: Vec<LockRow> = counters.iter().filter_map(class).collect();
    rows.sort_by(|a, b| b.contended.total_cmp(&a.contended).then_with(|| a.class.cmp(&b.class)));
    rows
}
