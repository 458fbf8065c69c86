//! Noise of the machine: a thread on each CPU only reads the clock, and so finds the gaps in which it did not run.

use std::thread;
use std::time::{Duration, Instant};

use holdfast_peers::{affinity, clock};
use serde::Serialize;

/// A longer gap is due to another thread or to a hypervisor. No interrupt of this machine itself takes so long.
const LONG: Duration = Duration::from_micros(200);
/// A shorter gap is the time that reading the clock takes.
const SHORT_NS: f64 = 400.0;
/// Share of lost time above which a machine is noisy. Medians of short samples are still right, those of long ones not.
const NOISY: f64 = 0.02;
/// Share of lost time above which most long gaps are due to other threads.
const USELESS: f64 = 0.25;

/// CPU time that a thread wanted and did not get.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Noise {
    /// Share of the time lost in gaps above 200 us, on the worst CPU.
    pub lost: f64,
    /// The longest gap, in nanoseconds.
    pub longest_ns: u64,
    /// Length of the gaps between 0.4 and 200 us, in nanoseconds: interrupts.
    #[serde(skip)]
    pub interrupts_ns: Vec<f64>,
}

impl Noise {
    /// Returns the worse values of both, with the interrupts of both.
    pub fn worse(mut self, other: Noise) -> Noise {
        self.lost = self.lost.max(other.lost);
        self.longest_ns = self.longest_ns.max(other.longest_ns);
        self.interrupts_ns.extend(other.interrupts_ns);
        self
    }

    /// Returns whether figures are uncertain.
    pub fn is_noisy(&self) -> bool {
        self.lost > NOISY
    }

    /// Returns whether figures of long operations are useless.
    pub fn is_useless(&self) -> bool {
        self.lost > USELESS
    }
}

/// Watches all CPUs for `watch_ms` milliseconds.
pub fn watch(watch_ms: u64) -> Noise {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let ns_per_tick = clock::ns_per_tick();
    thread::scope(|scope| {
        let watchers: Vec<_> = (0..cpus)
            .map(|cpu| {
                scope.spawn(move || {
                    affinity::pin(cpu);
                    gaps(Duration::from_millis(watch_ms), ns_per_tick)
                })
            })
            .collect();
        let seen = watchers.into_iter().filter_map(|watcher| watcher.join().ok());
        let quiet = Noise {
            lost: 0.0,
            longest_ns: 0,
            interrupts_ns: Vec::new(),
        };
        seen.fold(quiet, Noise::worse)
    })
}

fn gaps(span: Duration, ns_per_tick: f64) -> Noise {
    let (mut lost, mut longest, mut interrupts) = (0.0f64, 0.0f64, Vec::new());
    let begin = Instant::now();
    let mut last = clock::ticks();
    loop {
        let now = clock::ticks();
        let gap = now.saturating_sub(last) as f64 * ns_per_tick;
        last = now;
        if gap < SHORT_NS {
            continue;
        }
        longest = longest.max(gap);
        if gap > LONG.as_nanos() as f64 {
            lost += gap;
        } else if interrupts.len() < 1 << 16 {
            interrupts.push(gap);
        }
        // The end is checked only after a gap, which is often enough since interrupts always come.
        if begin.elapsed() >= span {
            break;
        }
    }
    Noise {
        lost: lost / begin.elapsed().as_nanos() as f64,
        longest_ns: longest as u64,
        interrupts_ns: interrupts,
    }
}
