//! What is followed of a thread: whether it runs, sleeps or is halted, what woke it, and its steps so far.

use holdfast_workloads::Step;

use super::repeated::Waits;
use crate::timeline::reasons;

/// Linux's `LOCAL_TIMER_VECTOR`: 0xec in later kernels, 0xef in earlier ones.
const TIMER_VECTORS: [u8; 2] = [0xec, 0xef];
/// Vectors of devices, from `FIRST_EXTERNAL_VECTOR` on and below those of Linux itself.
const DEVICE_VECTORS: std::ops::Range<u8> = 0x20..0xec;

/// Fewest halts whose mean says something.
const HALTS_MIN: u64 = 100;
/// Fewest timer interrupts that say something of a tick.
const TIMERS_MIN: usize = 100;

/// A thread that is followed.
#[derive(Debug, Default)]
pub(super) struct Followed {
    pub steps: Vec<Step>,
    /// Waits of the steps that other threads end, with their recorded lengths in ns.
    pub woken: Vec<u64>,
    /// The recorded lengths in ns of the waits that devices ended.
    pub answered: Vec<u64>,
    /// Time on CPUs since the last step, up to the last event that rules out an earlier halt.
    pub ran_ns: u64,
    /// Intervals on CPUs after that.
    pub recent: Vec<(u64, u64)>,
    /// Since when it is on a CPU.
    pub on_cpu: Option<u64>,
    /// Since when it sleeps.
    pub asleep: Option<u64>,
    /// Since when it is halted, if it woke and went to sleep again in the same halt.
    pub halted: Option<u64>,
    /// The last wakeup of the present sleep, and what caused it.
    pub wakeup: Option<(u64, Waker)>,
    /// When its timer interrupts came.
    pub timers: Vec<u64>,
    /// A sleep that has ended, until it is known whether it was a halt.
    pub slept: Option<Slept>,
    /// The reason of the exit that is being handled, with the vendor's number.
    pub exit: Option<(u32, u32)>,
    /// For how many ns the host polls before the thread sleeps, if known.
    pub poll_ns: Option<u64>,
    /// What halts took the host on CPUs beside polls, in ns, and their number.
    pub halts: (u64, u64),
    /// It has waited since that exit.
    pub has_waited: bool,
    /// The last interrupt for it since its last entry.
    pub interrupt: Option<u8>,
    /// A wait whose waker is unknown, since its last entry: which step, and when the wait ended.
    pub open: Option<(usize, u64)>,
    pub seen: bool,
    /// The pCPU that it had first.
    pub first_pcpu: Option<u32>,
    /// Its thread has ended.
    pub is_gone: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Slept {
    pub from: u64,
    pub wakeup: Option<(u64, Waker)>,
    pub resumed: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Waker {
    /// The wake with this number, by a thread of the guest.
    Thread(u32),
    Other,
}

impl Followed {
    /// Returns `true` if it handles an exit in which a vCPU can wake another one.
    pub fn can_send(&self) -> bool {
        self.exit.is_some_and(|(isa, reason)| reasons::can_send(reason, isa))
    }

    /// Returns `true` if it handles an exit for HLT or MWAIT.
    pub fn is_halted(&self) -> bool {
        self.exit.is_some_and(|(isa, reason)| reasons::is_halt(reason, isa))
    }

    /// Returns `true` if `vector` is that of its timer.
    pub fn is_timer(vector: u8) -> bool {
        TIMER_VECTORS.contains(&vector)
    }

    /// An interrupt for it says what ended a wait whose waker is unknown.
    pub fn interrupted(&mut self, vector: u8, waits: &mut Waits) {
        let is_timer = Self::is_timer(vector);
        let says = is_timer || DEVICE_VECTORS.contains(&vector);
        let Some((step, woken_at)) = self.open.take_if(|_| says) else {
            return;
        };
        waits.unknown -= 1;
        if is_timer {
            waits.by_timers += 1;
            if let Step::After(length) = self.steps[step] {
                self.steps[step] = Step::Tick(length);
            }
        } else {
            waits.by_devices += 1;
            if let Step::After(length) = std::mem::replace(&mut self.steps[step], Step::At(woken_at)) {
                self.answered.push(length);
            }
        }
    }

    /// Returns the period of its kernel's tick in ns, if it has one: a third of its timer interrupts come about as long
    /// after the last one as the median.
    pub fn tick_ns(&self) -> Option<u64> {
        let mut between: Vec<u64> = self.timers.windows(2).map(|pair| pair[1] - pair[0]).collect();
        between.sort_unstable();
        let median = *between.get(between.len() / 2)?;
        let alike = between.iter().filter(|ns| ns.abs_diff(median) <= median / 8).count();
        (between.len() >= TIMERS_MIN && alike * 3 >= between.len() && median > 0).then_some(median)
    }

    /// It leaves its CPU at `at`.
    pub fn pause(&mut self, at: u64) {
        if let Some(since) = self.on_cpu.take() {
            self.recent.push((since, at));
        }
    }

    /// No halt began before `at`.
    pub fn settle(&mut self, at: u64) {
        if let Some(since) = self.on_cpu {
            self.recent.push((since, at));
            self.on_cpu = Some(at);
        }
        self.ran_ns += self
            .recent
            .drain(..)
            .map(|(from, to)| to.saturating_sub(from))
            .sum::<u64>();
    }

    /// Drops its time on CPUs after `at`, when a halt began that ended at `woken`. Notes what the host did meanwhile
    /// beside a poll: it put the thread to sleep (`has_slept`), or was late to see that the poll was over.
    pub fn cut(&mut self, at: u64, woken: Option<u64>, resumed: u64, has_slept: bool) {
        let current = self.on_cpu.map(|since| (since, resumed));
        let on_cpu_since = |begin: u64| -> u64 {
            let intervals = self.recent.iter().copied().chain(current);
            intervals.map(|(from, to)| to.saturating_sub(from.max(begin))).sum()
        };
        let took = match has_slept {
            true => self.poll_ns.and_then(|poll_ns| on_cpu_since(at).checked_sub(poll_ns)),
            false => woken.map(|woken| on_cpu_since(woken.max(at))),
        };
        if let Some(took) = took {
            self.halts = (self.halts.0 + took, self.halts.1 + 1);
        }
        if let Some(since) = self.on_cpu {
            self.recent.push((since, u64::MAX));
        }
        let before = self.recent.drain(..).map(|(from, to)| to.min(at).saturating_sub(from));
        self.ran_ns += before.sum::<u64>();
    }

    /// Returns what a halt takes the host beside polls, the mean in ns; 0 if that is known of a few only.
    pub fn halt_ns(&self) -> u64 {
        match self.halts {
            (_, ..HALTS_MIN) => 0,
            (ns, halts) => ns / halts,
        }
    }

    /// Writes its time on CPUs down.
    pub fn run(&mut self) {
        let ns = std::mem::take(&mut self.ran_ns);
        if ns > 0 {
            self.steps.push(Step::Run(ns));
        }
    }
}
