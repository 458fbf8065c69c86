//! For how long waiters were halted for a lock.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::Row;

/// A bucket of the histogram of blocked time, as `kvm/spinlocks/histo_blocked` had it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BlockedRow {
    /// Shortest time in the bucket, in nanoseconds; 0 for the first. Each bucket reaches up to the next power of two,
    /// the last one has no end.
    pub from_ns: u64,
    /// Number of halts, as a mean over the runs.
    pub halts: f64,
}

/// Returns the buckets that `counters` have, the shortest times first. Empty buckets are left out.
pub(super) fn of(counters: &BTreeMap<String, f64>) -> Vec<BlockedRow> {
    let bucket = |(name, halts): (&String, &f64)| {
        let index: u32 = name.strip_prefix("histo_blocked.")?.parse().ok()?;
        let from_ns = if index == 0 { 0 } else { 1u64.checked_shl(index)? };
        Some(BlockedRow { from_ns, halts: *halts })
    };
    let mut rows: Vec<BlockedRow> = counters.iter().filter_map(bucket).collect();
    rows.retain(|row| row.halts > 0.0);
    rows.sort_by_key(|row| row.from_ns);
    rows
}

/// Returns the histograms of `rows` side by side: each bucket that any of them has, with the halts of each row.
pub fn blocked_lines(rows: &[&Row]) -> Vec<(u64, Vec<Option<f64>>)> {
    let all = rows.iter().flat_map(|row| &row.blocked).map(|bucket| bucket.from_ns);
    let halts = |row: &Row, from_ns| {
        let bucket = row.blocked.iter().find(|bucket| bucket.from_ns == from_ns);
        bucket.map(|bucket| bucket.halts)
    };
    let line = |from_ns| (from_ns, rows.iter().map(|row| halts(row, from_ns)).collect());
    all.collect::<BTreeSet<u64>>().into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_share_lines_and_a_row_without_a_bucket_has_none_there() {
        let row = |name: &str, index: u32| {
            let counters = BTreeMap::from([(format!("histo_blocked.{index}"), 3.0)]);
            Row::new(
                ["case", name, "guest"].map(str::to_owned).each_ref(),
                &BTreeMap::new(),
                &counters,
            )
        };
        let (early, late) = (row("early", 9), row("late", 10));
        let lines = blocked_lines(&[&late, &early]);
        assert_eq!(lines, [(512, vec![None, Some(3.0)]), (1024, vec![Some(3.0), None])]);
    }

    #[test]
    fn buckets_come_by_time_and_strangers_do_not() {
        let names = [
            "histo_blocked.10",
            "histo_blocked.0",
            "histo_blocked.9",
            "histo_blocked.64",
            "histo_blocked.x",
        ];
        let mut counters: BTreeMap<String, f64> = names.map(|name| (name.to_owned(), 2.0)).into();
        counters.insert("histo_blocked.3".to_owned(), 0.0);
        let from: Vec<u64> = of(&counters).iter().map(|row| row.from_ns).collect();
        assert_eq!(from, [0, 512, 1024]);
    }
}
