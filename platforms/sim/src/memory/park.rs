//! A skipped spin, and the skipped spins on one line. How they are played is in `events/spins.rs`.

use holdfast_host::{PcpuId, VcpuId};
use holdfast_machine::{LineId, Picos, Spin, Time};

use crate::memory::probe::Probe;

/// Limit of the loads of a spin without a budget.
pub const ENDLESS: u64 = u64::MAX - 1;

/// A parked flow: its spin is skipped.
#[derive(Clone, Copy, Debug)]
pub struct Parked {
    /// The line on which it spins.
    pub line: LineId,
    /// The word and the predicate that ends the wait.
    pub probe: Probe,
    /// The loads to come.
    pub spin: Spin,
    /// Number of loads that pass before the flow must act itself: give up, or exit for a pause loop.
    pub until_load: u64,
    /// Number of loads that passed since the flow parked.
    pub passed: u64,
    /// Its copy of the line was invalidated: the next load misses.
    pub stale: bool,
}

impl Parked {
    /// A spin on `line` that has just parked.
    pub fn new(line: LineId, probe: Probe, spin: Spin) -> Parked {
        Parked {
            line,
            probe,
            spin,
            until_load: 0,
            passed: 0,
            stale: false,
        }
    }

    /// Number of loads before `now`, or also at `now` if `inclusive`.
    pub fn loads_before(&self, now: Time, inclusive: bool) -> u64 {
        self.spin.loads_before(now, inclusive).min(self.until_load)
    }

    /// Lets `loads` loads pass that hit. Returns the time of the next one.
    pub fn pass(&mut self, loads: u64) -> Time {
        self.spin.next = self.spin.load_time(loads);
        self.passed += loads;
        if self.until_load != ENDLESS {
            self.until_load -= loads;
        }
        if self.spin.loads != u64::MAX {
            self.spin.loads -= loads;
        }
        self.stale = true;
        self.spin.next
    }

    /// The load that missed did not end the wait; the next load is due at `next`, and hits.
    pub fn pass_miss(&mut self, next: Time) {
        self.passed += 1;
        if self.spin.loads != u64::MAX {
            self.spin.loads -= 1;
        }
        self.spin.next = next;
        self.stale = false;
    }
}

/// Why a parked flow continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// Its next load is due.
    Due,
    /// A load was played for it and read this value.
    Read(u32),
}

/// What a flow must know when it continues after a skipped spin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resumption {
    /// Why it continues.
    pub woken: Woken,
    /// Number of loads that passed meanwhile without ending the wait.
    pub passed: u64,
}

/// The skipped spins on one line.
#[derive(Clone, Debug, Default)]
pub struct Spinners {
    /// vCPUs whose copies of the line are valid, in no order.
    pub quiet: Vec<VcpuId>,
    /// Next loads of the vCPUs whose copies were invalidated.
    pub stale: Misses,
    /// The pCPU whose miss is planned as the next one, while there is one.
    pub planned: Option<PcpuId>,
}

/// Loads that will miss, as integers that sort fast: picoseconds after `base` above the pCPU's number; in descending
/// order, so that the next load is the last one.
#[derive(Clone, Debug, Default)]
pub struct Misses {
    base: Time,
    loads: Vec<u64>,
}

const PCPU_BITS: u32 = 20;
const PCPU_MASK: u32 = (1 << PCPU_BITS) - 1;

impl Misses {
    /// Counts from `base` on, which no load precedes.
    pub fn rebase(&mut self, base: Time) {
        let shift = base.since(self.base).0 << PCPU_BITS;
        self.loads.iter_mut().for_each(|load| *load -= shift);
        self.base = base;
    }

    /// Adds a load of `pcpu` at `time`, out of order.
    pub fn push(&mut self, time: Time, pcpu: PcpuId) {
        let offset = time.since(self.base).0;
        assert!(
            offset < 1 << (63 - PCPU_BITS),
            "the next load of a spin on pcpu {} is {offset} ps away",
            pcpu.0
        );
        self.loads.push(offset << PCPU_BITS | u64::from(pcpu.0));
    }

    /// Restores the order.
    pub fn sort(&mut self) {
        self.loads.sort_unstable_by(|a, b| b.cmp(a));
    }

    /// The time of the next load, and its pCPU.
    pub fn next(&self) -> Option<(Time, PcpuId)> {
        let load = *self.loads.last()?;
        let pcpu = PcpuId(load as u32 & PCPU_MASK);
        Some((self.base + Picos(load >> PCPU_BITS), pcpu))
    }

    /// Removes the next load.
    pub fn pop(&mut self) {
        self.loads.pop();
    }

    /// Removes the load of `pcpu`.
    pub fn remove(&mut self, pcpu: PcpuId) {
        self.loads.retain(|&load| load as u32 & PCPU_MASK != pcpu.0);
    }
}
