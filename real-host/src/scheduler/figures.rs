//! Figures of what a scheduler did: shares, slices, latencies, migrations.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::scenario::Scenario;
use super::{Event, LEFT_OUT_NS, Thread, What};

/// Time at the end of a scenario that is left out. Nanoseconds.
const END_NS: i64 = 10_000_000;

/// Figures of one scenario under one scheduler.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figures {
    /// Name of the scenario.
    pub scenario: String,
    /// For each entry of [`Scenario::threads`].
    pub threads: Vec<GroupFigures>,
}

/// Figures of threads that do the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupFigures {
    /// Their name.
    pub name: String,
    /// The least share of a CPU that one of them had, the median, and the greatest. Per cent.
    pub share: [f64; 3],
    /// Lengths of their slices: p10, p50, p90. Milliseconds.
    pub slice_ms: [f64; 3],
    /// Times from wakeup to run: p50, p99. Microseconds. Not if they never sleep.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wake_us: Option<[f64; 2]>,
    /// How often one of them runs on another CPU than before, per second.
    pub migrations: f64,
    /// How slices end, per cent: by the end of a slice, for a thread woken since it began, asleep.
    pub ends: [f64; 3],
    /// Number of slices.
    pub slices: u64,
}

/// A thread that is being followed.
#[derive(Clone, Debug, Default)]
struct Follow {
    /// Since when it runs, on which CPU.
    runs: Option<(i64, u32)>,
    woken: Option<i64>,
    last_cpu: Option<u32>,
    /// Its last wakeup, for those that it preempts.
    last_wakeup: Option<i64>,
    ran: i64,
    slices: Vec<f64>,
    latencies: Vec<f64>,
    migrations: u64,
    ends: [u64; 3],
}

/// Returns the figures of `events`.
pub fn figures(scenario: &Scenario, events: &[Event]) -> Figures {
    let begin = LEFT_OUT_NS as i64;
    let end = i64::from(scenario.ms) * 1_000_000 - END_NS;
    let mut all: BTreeMap<Thread, Follow> = BTreeMap::new();
    for event in events {
        let at = event.at_ns;
        let counts = (begin..end).contains(&at);
        match event.what {
            What::Wakeup(thread) => {
                let follow = all.entry(thread).or_default();
                follow.last_wakeup = Some(at);
                if follow.runs.is_none() {
                    follow.woken = Some(at);
                }
            }
            What::Switch {
                cpu,
                from,
                runnable,
                to,
            } => {
                let woken = to.and_then(|to| all.get(&to)?.last_wakeup);
                if let Some(from) = from {
                    let follow = all.entry(from).or_default();
                    if let Some((since, _)) = follow.runs.take() {
                        follow.ran += (at.min(end) - since.max(begin)).max(0);
                        if counts && since >= begin {
                            follow.slices.push((at - since) as f64 / 1e6);
                            let kind = match (runnable, woken) {
                                (false, _) => 2,
                                (true, Some(woken)) if woken > since => 1,
                                (true, _) => 0,
                            };
                            follow.ends[kind] += 1;
                        }
                    }
                }
                if let Some(to) = to {
                    let follow = all.entry(to).or_default();
                    follow.runs = Some((at, cpu));
                    let moved = follow.last_cpu.replace(cpu).is_some_and(|last| last != cpu);
                    follow.migrations += u64::from(moved && counts);
                    if let Some(woken) = follow.woken.take()
                        && counts
                    {
                        follow.latencies.push((at - woken) as f64 / 1e3);
                    }
                }
            }
        }
    }
    // A thread that never loses its CPU has a share as well.
    for follow in all.values_mut() {
        if let Some((since, _)) = follow.runs {
            follow.ran += (end - since.max(begin)).max(0);
        }
    }
    let seconds = (end - begin) as f64 / 1e9;
    let threads = scenario.threads.iter().enumerate();
    let threads = threads.map(|(of, threads)| {
        let mut sum = Follow::default();
        let mut shares: Vec<f64> = Vec::new();
        for index in 0..threads.count {
            let Some(follow) = all.get(&Thread { of, index }) else {
                shares.push(0.0);
                continue;
            };
            shares.push(follow.ran as f64 / 1e7 / seconds);
            sum.slices.extend(&follow.slices);
            sum.latencies.extend(&follow.latencies);
            sum.migrations += follow.migrations;
            (0..3).for_each(|kind| sum.ends[kind] += follow.ends[kind]);
        }
        let ended = sum.ends.iter().sum::<u64>().max(1) as f64;
        GroupFigures {
            name: threads.name.clone(),
            share: percentiles(&mut shares, [0.0, 0.5, 1.0]).map(|share| rounded(share, 2)),
            slice_ms: percentiles(&mut sum.slices, [0.1, 0.5, 0.9]).map(|slice| rounded(slice, 3)),
            wake_us: (!sum.latencies.is_empty())
                .then(|| percentiles(&mut sum.latencies, [0.5, 0.99]).map(|wake| rounded(wake, 1))),
            migrations: rounded(sum.migrations as f64 / seconds, 1),
            ends: sum.ends.map(|count| rounded(100.0 * count as f64 / ended, 1)),
            slices: sum.ends.iter().sum(),
        }
    });
    Figures {
        scenario: scenario.name.clone(),
        threads: threads.collect(),
    }
}

/// Returns percentiles of `values`, 0 if there are none.
fn percentiles<const N: usize>(values: &mut [f64], at: [f64; N]) -> [f64; N] {
    values.sort_by(f64::total_cmp);
    at.map(|at| {
        let rank = (at * (values.len().max(1) - 1) as f64).round() as usize;
        values.get(rank).copied().unwrap_or(0.0)
    })
}

fn rounded(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::scenario::parse;

    const MS: i64 = 1_000_000;

    fn scenario() -> Scenario {
        let text = "[[scenario]]\nname = \"x\"\nabout = \"\"\nms = 1510\ncpus = 2\n\
                    threads = [{ name = \"a\", count = 1 }, { name = \"b\", count = 1, compute_us = 1, sleep_us = 1 }]";
        parse(text).expect("a scenario").remove(0)
    }

    fn switch(at_ms: i64, from: Option<usize>, runnable: bool, to: Option<usize>) -> Event {
        let thread = |of| Thread { of, index: 0 };
        let (from, to) = (from.map(thread), to.map(thread));
        Event {
            at_ns: at_ms * MS,
            what: What::Switch {
                cpu: 0,
                from,
                runnable,
                to,
            },
        }
    }

    #[test]
    fn shares_slices_latencies_and_ends_are_those_of_the_events() {
        let b = Thread { of: 1, index: 0 };
        let wakeup = |at_ms: i64| Event {
            at_ns: at_ms * MS,
            what: What::Wakeup(b),
        };
        let on_cpu_1 = Event {
            at_ns: 670 * MS,
            what: What::Switch {
                cpu: 1,
                from: None,
                runnable: true,
                to: Some(b),
            },
        };
        let events = [
            switch(0, None, true, Some(0)),
            wakeup(600),
            switch(602, Some(0), true, Some(1)),
            switch(612, Some(1), false, Some(0)),
            wakeup(630),
            switch(632, Some(0), true, Some(1)),
            switch(640, Some(1), true, Some(0)),
            switch(644, Some(0), true, Some(1)),
            switch(660, Some(1), false, None),
            on_cpu_1,
        ];
        let figures = figures(&scenario(), &events);
        let [a, b] = &figures.threads[..] else { panic!("two") };
        // Of the second from 500 ms to 1500 ms: a ran 102 + 20 + 4 ms, b 10 + 8 + 16 + 830 ms.
        assert_eq!((a.share[1], b.share[1]), (12.6, 86.4));
        // The slice that began before 500 ms does not count.
        assert_eq!((a.slices, a.slice_ms), (2, [4.0, 20.0, 20.0]));
        assert_eq!(a.ends, [50.0, 50.0, 0.0], "for the woken thread, then at a slice's end");
        assert_eq!(b.ends, [33.3, 0.0, 66.7]);
        assert_eq!(b.wake_us, Some([2000.0, 2000.0]));
        assert_eq!((a.wake_us, b.migrations), (None, 1.0));
    }

    #[test]
    fn a_thread_that_keeps_its_cpu_has_all_of_it() {
        let figures = figures(&scenario(), &[switch(0, None, true, Some(0))]);
        assert_eq!(figures.threads[0].share, [100.0; 3]);
        assert_eq!(figures.threads[1].share, [0.0; 3]);
    }
}
