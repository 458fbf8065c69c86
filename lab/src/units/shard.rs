//! Shards: the units of one plan divided among several processes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::str::FromStr;

use super::Id;

/// Limit on the shards of a plan.
const SHARDS_MAX: u32 = 1_000_000;

/// One of several shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Number of this shard, from 1.
    pub number: u32,
    /// Number of all shards.
    pub count: u32,
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.count)
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Shard, String> {
        let parsed = text.split_once('/').and_then(|(number, count)| {
            let shard = Shard {
                number: number.parse().ok()?,
                count: count.parse().ok()?,
            };
            let fits = (1..=shard.count).contains(&shard.number) && shard.count <= SHARDS_MAX;
            fits.then_some(shard)
        });
        parsed.ok_or_else(|| format!("expected K/N, the shard K of N, with K from 1 to N, and N up to {SHARDS_MAX}"))
    }
}

impl Shard {
    /// Returns the positions in `units` that belong to this shard, the longest unit first. Each unit is an identity
    /// with its predicted cost. The division depends on these only, and so is the same in every process.
    pub fn select(self, units: &[(Id, Option<f64>)]) -> Vec<usize> {
        let known: Vec<f64> = units.iter().filter_map(|(_, cost)| *cost).collect();
        let mean = if known.is_empty() {
            1.0
        } else {
            known.iter().sum::<f64>() / known.len() as f64
        };
        // A unit of unknown cost counts as an average one.
        let cost = |position: usize| units[position].1.unwrap_or(mean).max(0.0);
        let mut order: Vec<usize> = (0..units.len()).collect();
        // Units of equal cost are in the order of their hashes, so that no shard gets all seeds of an expensive cell.
        let key = |position: usize| super::hash(&[units[position].0.to_string()]);
        order.sort_by(|a, b| cost(*b).total_cmp(&cost(*a)).then(key(*a).cmp(&key(*b))));
        // Load in microseconds, number of units, and index of each shard; the least loaded is on top.
        let mut loads: BinaryHeap<_> = (0..self.count).map(|shard| Reverse((0_u64, 0_u64, shard))).collect();
        let mut mine = Vec::new();
        for position in order {
            let Reverse((load, count, shard)) = loads.pop().expect("at least one shard");
            let micros = (cost(position) * 1e6) as u64;
            loads.push(Reverse((load.saturating_add(micros), count + 1, shard)));
            if shard + 1 == self.number {
                mine.push(position);
            }
        }
        mine
    }
}
