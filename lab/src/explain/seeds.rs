//! The runs of one cell next to each other: which seed is worth a trace?

use serde::Serialize;

use crate::results::Case;

/// One run of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SeedRow {
    /// The seed.
    pub seed: u64,
    /// The run's figure, in the unit of the results.
    pub sample: f64,
    /// Share of the run spent in convoys.
    pub convoy_share: f64,
    /// Time spun behind vCPUs that were not running, per unit of time worked.
    pub spun_per_work: f64,
    /// Longest stall in nanoseconds of virtual time.
    pub stall_ns: u64,
}

/// Returns the runs of `case`, one for each seed; none for a real host.
pub(super) fn of(case: &Case) -> Vec<SeedRow> {
    let runs = case.seeds.iter().zip(&case.samples).enumerate();
    let row = |(index, (seed, sample)): (usize, (&u64, &f64))| {
        let spun = case.preempted_spin_shares.get(index)?;
        Some(SeedRow {
            seed: *seed,
            sample: *sample,
            convoy_share: case.convoys.get(index)?.map_or(0.0, |convoy| convoy.share),
            spun_per_work: spun / case.work_shares.get(index)?.max(f64::MIN_POSITIVE),
            stall_ns: *case.longest_stalls_ns.get(index)?,
        })
    };
    runs.filter_map(row).collect()
}

/// Returns the seed that shows most of what the cell loses: the longest convoys, then the most spinning behind vCPUs
/// that were not running, then the first.
pub fn worth_a_trace(rows: &[SeedRow]) -> Option<u64> {
    let more = |a: &&SeedRow, b: &&SeedRow| {
        let convoys = a.convoy_share.total_cmp(&b.convoy_share);
        let spun = a.spun_per_work.total_cmp(&b.spun_per_work);
        convoys.then(spun).then(b.seed.cmp(&a.seed))
    };
    rows.iter().max_by(more).map(|row| row.seed)
}
