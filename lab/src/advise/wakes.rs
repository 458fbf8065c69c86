//! How long a woken vCPU waits for a pCPU, without a remedy and with it.

use holdfast_recordings::account::{Account, VmAccount};
use holdfast_sim::VmOutcome;
use serde::Serialize;

use crate::draws::Draws;

/// Quantiles of the time from a wakeup to a pCPU: of an account, and of a replay.
const QUANTILES: [[&str; 2]; 2] = [
    ["wake_to_run_p50_us", "wake_to_run_p50_ns"],
    ["wake_to_run_p99_us", "wake_to_run_p99_ns"],
];

/// Median and 99th percentile of the times from wakeups of one VM to pCPUs, in us.
pub type Quantiles = [f64; 2];

/// Returns the quantiles of `vm` in a replay, or `None` if it woke nowhere.
pub fn replayed(vm: &VmOutcome) -> Option<Quantiles> {
    let of = |name: &str| vm.counters.get(name).map(|ns| *ns as f64 / 1e3);
    let [median, p99] = QUANTILES.map(|[_, name]| of(name));
    Some([median?, p99?])
}

/// What a remedy changes for one quantile of the times from wakeup to pCPU.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct WakeGain {
    /// Without the remedy, as recorded, in us.
    pub before_us: f64,
    /// Without the remedy, in the replays.
    pub replayed_us: Draws,
    /// With the remedy. The range has the error of the replays.
    pub after_us: Draws,
}

/// What a remedy changes for the times from wakeup to pCPU of one VM.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct WakesGain {
    /// The median.
    pub p50: WakeGain,
    /// The 99th percentile.
    pub p99: WakeGain,
    /// The median is shorter in each draw.
    pub is_sooner_in_every_draw: bool,
}

impl WakesGain {
    /// Returns the change for `vm`, whose replays had `before` without the remedy and `after` with it, draw by draw.
    /// `None` if one of them is not known.
    pub fn new(vm: &VmAccount, before: &[Option<Quantiles>], after: &[Option<Quantiles>]) -> Option<WakesGain> {
        let figure = |name: &str| Account::figure(&vm.figures, name)?.value;
        let quickest_us = figure("wake_to_run_p10_us")?;
        let of = |at: usize| {
            let draws = |all: &[Option<Quantiles>]| -> Option<Draws> {
                let values = all.iter().map(|quantiles| Some((*quantiles)?[at]));
                Draws::of(&values.collect::<Option<Vec<f64>>>()?)
            };
            WakeGain::new(figure(QUANTILES[at][0])?, quickest_us, draws(before)?, draws(after)?)
        };
        let is_sooner = |(before, after): (&Option<Quantiles>, &Option<Quantiles>)| {
            before.zip(*after).is_some_and(|(before, after)| after[0] < before[0])
        };
        let (p50, mut p99) = (of(0)?, of(1)?);
        // A check of the recorded set-up says nothing of the tail with the remedy.
        p99.after_us.min = p99.after_us.min.min(p50.after_us.min);
        Some(WakesGain {
            p50,
            p99,
            is_sooner_in_every_draw: before.iter().zip(after).all(is_sooner),
        })
    }
}

impl WakeGain {
    /// `recorded` in us, and replays `before` and `after`, which switch threads in no time. The recorded host switched
    /// within the `quickest` of its wakeups, and it may have waited for a part of that. A replay misses the recorded
    /// time by a share of it. With the remedy it may miss by as large a share, of what it says or of that at the
    /// recorded scale.
    fn new(recorded: f64, quickest: f64, before: Draws, after: Draws) -> Option<WakeGain> {
        let later = |draws: Draws| Draws {
            mean: draws.mean + quickest,
            min: draws.min + quickest,
            max: draws.max + quickest,
        };
        let (replayed_us, with) = (later(before), later(after));
        if recorded <= 0.0 || replayed_us.mean <= 0.0 {
            return None;
        }
        let share = (replayed_us.mean / recorded - 1.0).abs();
        let scale = recorded / replayed_us.mean;
        Some(WakeGain {
            before_us: recorded,
            replayed_us,
            after_us: Draws {
                min: after.min * scale.min(1.0) * (1.0 - share).max(0.0),
                max: with.max * scale.max(1.0) * (1.0 + share),
                ..with
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_has_what_the_replays_miss() {
        let draws = |values: &[f64]| Draws::of(values).expect("draws");
        let exact = WakeGain::new(100.0, 0.0, draws(&[90.0, 110.0]), draws(&[40.0, 60.0])).expect("known");
        let (mean, range) = (exact.after_us.mean, (exact.after_us.min, exact.after_us.max));
        assert_eq!((mean, range), (50.0, (40.0, 60.0)));
        // Half as long as recorded: 50 us may be 100, and half more.
        let short = WakeGain::new(100.0, 0.0, draws(&[50.0]), draws(&[50.0])).expect("known");
        assert_eq!((short.after_us.min, short.after_us.max), (25.0, 150.0));
        let slow = WakeGain::new(100.0, 20.0, draws(&[80.0]), draws(&[1.0])).expect("known");
        let (mean, range) = (slow.after_us.mean, (slow.after_us.min, slow.after_us.max));
        assert_eq!((mean, range), (21.0, (1.0, 21.0)));
        assert_eq!(WakeGain::new(0.0, 0.0, draws(&[50.0]), draws(&[50.0])), None);
    }
}
