//! Skipped spins: a flow that would only re-read an unchanged word parks on the word's line.
//!
//! While nobody writes the line, a parked spin costs nothing. A write takes every spinner's copy away, and each then
//! misses at its next load: those misses are real events, at the times and in the order in which the spinners would have
//! executed them, but they are played for the spinners here, without waking their flows. A flow only continues when its
//! wait is over, or when it has to do something else than spin.
//!
//! **Exact**: histories with and without skipping are the same bit for bit, ledgers included.

use holdfast_machine::{Key, LineId, Picos, Spin, Time};

use crate::core::engine::{CLASS_ACTIVITY, Engine};
use crate::cpus::pcpu::Activity;
use crate::cpus::vcpu::Mode;
use crate::memory::probe::Probe;

/// As many loads as a spin without end may have.
const ENDLESS: u64 = u64::MAX - 1;

/// A parked spin.
#[derive(Clone, Copy, Debug)]
pub struct Parked {
    /// The line that it spins on.
    pub line: LineId,
    /// What ends it.
    probe: Probe,
    /// Its loads to come.
    spin: Spin,
    /// How many of them pass before its flow must act: give up, or exit for a pause loop.
    until_load: u64,
    /// Loads that passed since it parked.
    passed: u64,
    /// Its copy of the line is gone: the next load misses.
    stale: bool,
}

/// Why a parked flow continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// Its next load is due.
    Due,
    /// A load was played for it, and this is what it read.
    Read(u32),
}

/// What a flow that continues after a park must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resumption {
    /// Why.
    pub woken: Woken,
    /// Loads that passed meanwhile without ending the wait.
    pub passed: u64,
}

/// The spinners on one line.
#[derive(Clone, Debug, Default)]
pub struct Spinners {
    /// Whose copies are good, in no order.
    quiet: Vec<u32>,
    /// Those whose next load misses.
    stale: Misses,
    /// The queue's slot for the next miss, while there is one.
    slot: Option<u32>,
}

/// Loads that will miss, as integers that sort fast: picoseconds after `base` above the pCPU; descending, so that the
/// next is the last.
#[derive(Clone, Debug, Default)]
struct Misses {
    base: Time,
    loads: Vec<u64>,
}

const PCPU_BITS: u32 = 20;

impl Misses {
    /// Counts from `base` on, which is not after any of the loads.
    fn rebase(&mut self, base: Time) {
        let shift = base.since(self.base).0 << PCPU_BITS;
        self.loads.iter_mut().for_each(|load| *load -= shift);
        self.base = base;
    }

    fn push(&mut self, time: Time, pcpu: u32) {
        let offset = time.since(self.base).0;
        assert!(
            offset < 1 << (63 - PCPU_BITS),
            "a spinner's next load is {offset} ps away"
        );
        self.loads.push(offset << PCPU_BITS | u64::from(pcpu));
    }

    fn sort(&mut self) {
        self.loads.sort_unstable_by(|a, b| b.cmp(a));
    }

    fn next(&self) -> Option<Key> {
        let load = *self.loads.last()?;
        let pcpu = load as u32 & ((1 << PCPU_BITS) - 1);
        Some(Key::new(self.base + Picos(load >> PCPU_BITS), CLASS_ACTIVITY, pcpu))
    }

    fn remove(&mut self, pcpu: u32) {
        self.loads.retain(|&load| load as u32 & ((1 << PCPU_BITS) - 1) != pcpu);
    }
}

impl Engine {
    /// Parks `vcpu`, whose next load of `line` is due at its clock and which may load `loads` times more.
    pub fn park(&mut self, vcpu: u32, line: LineId, loads: u64, probe: Probe) {
        self.stats.parks += 1;
        let period = self.costs.load_hit + self.costs.pause;
        let spin = Spin {
            next: self.vcpus[vcpu as usize].clock,
            period,
            loads,
        };
        let parked = Parked {
            line,
            probe,
            spin,
            until_load: 0,
            passed: 0,
            stale: false,
        };
        self.vcpus[vcpu as usize].parked = Some(parked);
        self.vcpus[vcpu as usize].resumption = None;
        self.records[line.0 as usize]
            .spinners
            .get_or_insert_default()
            .quiet
            .push(vcpu);
        self.plan_end(vcpu);
    }

    /// Finds when the flow of `vcpu` must act itself if nobody writes its line; says whether that changed the queue.
    fn plan_end(&mut self, vcpu: u32) -> bool {
        let this = &mut self.vcpus[vcpu as usize];
        let (Some(parked), Some(pcpu)) = (&mut this.parked, this.pcpu) else {
            return false;
        };
        let spin = parked.spin;
        let first = spin.next + self.costs.load_hit;
        let pauses = this
            .pauses
            .pauses_before_exit(this.mode != Mode::User, first, spin.period);
        let was_endless = parked.until_load == ENDLESS;
        parked.until_load = pauses.min(spin.loads.saturating_sub(1)).min(ENDLESS);
        let end = match parked.until_load {
            ENDLESS if was_endless => return false,
            ENDLESS => Time::NEVER,
            load => spin.load_time(load),
        };
        self.queue.set(pcpu, Key::new(end, CLASS_ACTIVITY, pcpu));
        true
    }

    /// `writer` took `line` away from all others now: who spins on it misses at its next load.
    #[inline]
    pub fn invalidate(&mut self, line: LineId, writer: u32) {
        if self.records[line.0 as usize].spinners.is_some() {
            self.invalidate_spinners(line, writer);
        }
    }

    fn invalidate_spinners(&mut self, line: LineId, writer: u32) {
        let Some(mut spinners) = self.records[line.0 as usize].spinners.take() else {
            return;
        };
        spinners.stale.rebase(self.now);
        let writer_pcpu = self.vcpus[writer as usize].last_pcpu;
        for vcpu in spinners.quiet.drain(..) {
            let Some(pcpu) = self.vcpus[vcpu as usize].pcpu else {
                unreachable!("a parked vcpu is in its guest")
            };
            // Of loads at the very time of the write, those of lower pCPUs came first.
            let loads = self.loads_before(vcpu, pcpu < writer_pcpu);
            let next = self.pass(vcpu, loads);
            spinners.stale.push(next, pcpu);
        }
        spinners.stale.sort();
        self.plan_miss(&mut spinners, line);
        self.records[line.0 as usize].spinners = Some(spinners);
    }

    fn plan_miss(&mut self, spinners: &mut Spinners, line: LineId) {
        match spinners.stale.next() {
            Some(key) => {
                let slot = *spinners.slot.get_or_insert_with(|| self.take_line_slot(line));
                self.queue.set(slot, key);
            }
            None => {
                if let Some(slot) = spinners.slot.take() {
                    self.queue.clear(slot);
                    self.free_line_slots.push(slot);
                }
            }
        }
    }

    fn loads_before(&self, vcpu: u32, inclusive: bool) -> u64 {
        let Some(parked) = &self.vcpus[vcpu as usize].parked else {
            return 0;
        };
        parked.spin.loads_before(self.now, inclusive).min(parked.until_load)
    }

    /// Lets `loads` loads of a quiet spin pass, and makes it stale; returns when the next is due.
    fn pass(&mut self, vcpu: u32, loads: u64) -> Time {
        let this = &mut self.vcpus[vcpu as usize];
        let Some(parked) = &mut this.parked else {
            unreachable!("vcpu {vcpu} is not parked")
        };
        let first = parked.spin.next + self.costs.load_hit;
        this.pauses
            .skip(this.mode != Mode::User, first, parked.spin.period, loads);
        parked.spin.next = parked.spin.load_time(loads);
        parked.passed += loads;
        if parked.until_load != ENDLESS {
            parked.until_load -= loads;
        }
        if parked.spin.loads != u64::MAX {
            parked.spin.loads -= loads;
        }
        parked.stale = true;
        parked.spin.next
    }

    /// Plays the misses on `line` that come before anything else. Returns whether a flow is now to continue.
    pub fn play_misses(&mut self, line: LineId) {
        let Some(mut spinners) = self.records[line.0 as usize].spinners.take() else {
            return;
        };
        // The line's own event is the first; the misses play on while nothing else comes before them.
        let mut bound = self.queue.second();
        while let Some(key) = spinners.stale.next() {
            if bound.is_some_and(|other| other < key) {
                break;
            }
            spinners.stale.loads.pop();
            self.now = key.time();
            let pcpu = key.tie();
            let Activity::Guest(vcpu) = self.pcpus[pcpu as usize].activity else {
                unreachable!("who spins on pcpu {pcpu} is in its guest")
            };
            if self.miss(vcpu, line) {
                spinners.quiet.push(vcpu);
                if self.plan_end(vcpu) {
                    bound = self.queue.second();
                }
            } else {
                self.queue.set(pcpu, key);
                break;
            }
        }
        self.plan_miss(&mut spinners, line);
        self.records[line.0 as usize].spinners = Some(spinners);
    }

    /// The next load of `vcpu`, now; returns whether it spins on.
    fn miss(&mut self, vcpu: u32, line: LineId) -> bool {
        let now = self.now;
        let spent = self.load(vcpu, line);
        let pause = self.costs.pause;
        let this = &mut self.vcpus[vcpu as usize];
        let Some(parked) = &mut this.parked else {
            unreachable!("vcpu {vcpu} is not parked")
        };
        let (value, accepted) = parked.probe.look();
        let mut ends = accepted || parked.spin.loads == 1;
        if !ends {
            let in_kernel = this.mode != Mode::User;
            // A PAUSE that exits is the flow's own to execute.
            ends = this.pauses.pauses_before_exit(in_kernel, now + spent, Picos(1)) == 0;
            if !ends {
                this.pauses.pause(in_kernel, now + spent);
            }
        }
        if ends {
            let passed = parked.passed;
            this.parked = None;
            this.resumption = Some(Resumption {
                woken: Woken::Read(value),
                passed,
            });
            let waited = (now + spent).since(this.clock);
            this.clock = now + spent;
            this.owe_wait(waited);
            return false;
        }
        parked.passed += 1;
        if parked.spin.loads != u64::MAX {
            parked.spin.loads -= 1;
        }
        parked.spin.next = now + spent + pause;
        parked.stale = false;
        true
    }

    /// The flow of `vcpu` continues after a park.
    pub fn resume_parked(&mut self, vcpu: u32) -> Resumption {
        if let Some(parked) = self.vcpus[vcpu as usize].parked {
            let loads = if parked.stale { 0 } else { parked.until_load };
            self.unpark(vcpu, loads);
        }
        let resumption = self.vcpus[vcpu as usize].resumption.take();
        resumption.expect("whoever ends a park says why")
    }

    /// `vcpu` is stopped now: its next load stands over.
    pub fn unpark_for_stop(&mut self, vcpu: u32) {
        if let Some(parked) = self.vcpus[vcpu as usize].parked {
            let loads = if parked.stale {
                0
            } else {
                self.loads_before(vcpu, false)
            };
            self.unpark(vcpu, loads);
        }
    }

    /// Takes `vcpu` off its line, at its next load but `loads`.
    fn unpark(&mut self, vcpu: u32, loads: u64) {
        let next = self.pass(vcpu, loads);
        let this = &mut self.vcpus[vcpu as usize];
        let (Some(parked), Some(pcpu)) = (this.parked.take(), this.pcpu) else {
            unreachable!("vcpu {vcpu} is not parked")
        };
        this.resumption = Some(Resumption {
            woken: Woken::Due,
            passed: parked.passed,
        });
        let waited = next.since(this.clock);
        this.clock = next;
        this.owe_wait(waited);
        let Some(mut spinners) = self.records[parked.line.0 as usize].spinners.take() else {
            return;
        };
        if let Some(index) = spinners.quiet.iter().position(|&other| other == vcpu) {
            spinners.quiet.swap_remove(index);
        } else {
            spinners.stale.remove(pcpu);
            self.plan_miss(&mut spinners, parked.line);
        }
        self.records[parked.line.0 as usize].spinners = Some(spinners);
    }
}
