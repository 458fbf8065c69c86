//! How quiet the machine is: a thread on each CPU does nothing but read the clock, and sees when it was not there.

use std::thread;
use std::time::{Duration, Instant};

use holdfast_peers::{affinity, clock};
use serde::Serialize;

/// A gap longer than this is another thread's, or the hypervisor's: no interrupt of this machine's own takes so long.
const LONG: Duration = Duration::from_micros(200);
/// A gap shorter than this is the clock's own.
const SHORT_NS: f64 = 400.0;
/// Above this share of its time lost, a machine is noisy: figures are medians still, but nothing that takes long is.
const NOISY: f64 = 0.02;
/// Above this share most of what takes long is another thread's.
const USELESS: f64 = 0.25;

/// How much of a CPU's time a thread that wanted all of it did not get.
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
    /// The worse of two.
    pub fn worse(mut self, other: Noise) -> Noise {
        self.lost = self.lost.max(other.lost);
        self.longest_ns = self.longest_ns.max(other.longest_ns);
        self.interrupts_ns.extend(other.interrupts_ns);
        self
    }

    /// Whether figures are to be taken with care.
    pub fn is_noisy(&self) -> bool {
        self.lost > NOISY
    }

    /// Whether figures of what takes long are worth nothing.
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
        // Looked at now and then only: interrupts come all the time.
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
