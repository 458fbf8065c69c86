//! Small benchmarks of what a program sees of machine and kernel, written once: they run on host threads and on simulated
//! ones.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use holdfast_locks::thread::Thread;
use holdfast_locks::{CpuId, Paravirt, Word};
use serde::Serialize;

use crate::hammer::{Computes, Span};

/// A small benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Micro {
    /// A system call that does nothing.
    SystemCall,
    /// Giving way while nobody else wants the CPU.
    GiveWay,
    /// Waking nobody.
    WakeNobody,
    /// A word that two CPUs write in turn: from one's store to the other's.
    Line,
    /// Halting and kicking in turn on one CPU: from one's kick to the other's.
    KickHere,
    /// From the kick of a thread that sleeps on another CPU to its next instruction.
    KickThere,
    /// The kick alone of a thread that sleeps on another CPU.
    KickCall,
    /// Having all CPUs that run threads of this process interrupted, while one does.
    Settle,
}

impl Micro {
    /// All members of this type.
    pub const ALL: [Micro; 8] = [
        Micro::SystemCall,
        Micro::GiveWay,
        Micro::WakeNobody,
        Micro::Line,
        Micro::KickHere,
        Micro::KickThere,
        Micro::KickCall,
        Micro::Settle,
    ];

    /// Returns the name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Micro::SystemCall => "system call",
            Micro::GiveWay => "give way to nobody",
            Micro::WakeNobody => "wake nobody",
            Micro::Line => "word written in turn, two CPUs",
            Micro::KickHere => "kick in turn, one CPU",
            Micro::KickThere => "kick to awake, two CPUs",
            Micro::KickCall => "kick a sleeper on another CPU",
            Micro::Settle => "interrupt the other CPU",
        }
    }

    /// The CPU of each of its threads.
    pub fn places(self) -> &'static [usize] {
        match self {
            Micro::SystemCall | Micro::GiveWay | Micro::WakeNobody => &[0],
            Micro::KickHere => &[0, 0],
            Micro::Line | Micro::KickThere | Micro::KickCall | Micro::Settle => &[0, 1],
        }
    }

    /// Operations in one sample.
    fn operations(self) -> u32 {
        match self {
            Micro::SystemCall | Micro::GiveWay | Micro::WakeNobody => 100,
            Micro::Line => 200,
            Micro::KickHere => 20,
            Micro::Settle => 5,
            Micro::KickCall | Micro::KickThere => 1,
        }
    }
}

/// What the threads of a small benchmark share.
#[derive(Debug)]
pub struct Bench<W> {
    micro: Micro,
    samples: u32,
    word: W,
    /// Set when the first thread is done.
    ended: W,
    /// When the thread that is kicked was last awake.
    awake_ns: AtomicU64,
    /// Each thread's number as a CPU, plus 1.
    numbers: [AtomicU32; 2],
}

impl<W: Word<u32>> Bench<W> {
    /// `micro`, so many samples.
    pub fn new(micro: Micro, samples: u32) -> Self {
        Bench {
            micro,
            samples,
            word: W::new(0),
            ended: W::new(0),
            awake_ns: AtomicU64::new(0),
            numbers: [const { AtomicU32::new(0) }; 2],
        }
    }

    /// The part of the thread with this number; the first one's samples count, in nanoseconds for an operation.
    pub fn play<T>(&self, thread: &T, role: usize) -> Vec<f64>
    where
        T: Thread<Word = W> + Paravirt + Computes,
    {
        let peer = self.meet(thread, role);
        let samples = match (self.micro, role) {
            (Micro::SystemCall, _) => self.time(thread, || thread.call_kernel()),
            (Micro::GiveWay, _) => self.time(thread, || thread.give_way()),
            (Micro::WakeNobody, _) => self.time(thread, || thread.futex_wake(&self.word)),
            (Micro::Line, role) => self.take_turns(thread, role, || (), || ()),
            (Micro::KickHere, role) => self.take_turns(thread, role, || thread.halt_masked(), || thread.kick(peer)),
            (Micro::KickCall | Micro::KickThere, 0) => self.time_kicks(thread, peer),
            (Micro::Settle, 0) => self.time(thread, || {
                thread.settle();
            }),
            (Micro::KickCall | Micro::KickThere, _) => self.halt_until_ended(thread),
            (Micro::Settle, _) => self.watch_gaps(thread),
        };
        if role == 0 {
            thread.store(&self.ended, 1, Release);
            if matches!(self.micro, Micro::KickCall | Micro::KickThere) {
                thread.kick(peer);
            }
        }
        samples
    }

    /// Waits until all threads are there; returns the other one's number.
    fn meet<T: Thread<Word = W>>(&self, thread: &T, role: usize) -> CpuId {
        if self.micro.places().len() < 2 {
            return thread.cpu();
        }
        // ORDERING: Release and Acquire: whoever reads the number may act on its thread.
        self.numbers[role].store(thread.cpu().0 + 1, Release);
        loop {
            let number = self.numbers[1 - role].load(Acquire);
            if number != 0 {
                return CpuId(number - 1);
            }
            thread.give_way();
        }
    }

    /// Nanoseconds for each `operation`.
    fn time<T: Thread<Word = W> + Paravirt>(&self, thread: &T, operation: impl Fn()) -> Vec<f64> {
        let count = self.micro.operations();
        let sample = |_| {
            let begin = thread.now_ns();
            (0..count).for_each(|_| operation());
            (thread.now_ns() - begin) as f64 / f64::from(count)
        };
        (0..self.samples).map(sample).collect()
    }

    /// Two threads change the word in turn; `wait` while it is the other's, `tell` when it is.
    fn take_turns<T>(&self, thread: &T, role: usize, wait: impl Fn(), tell: impl Fn()) -> Vec<f64>
    where
        T: Thread<Word = W> + Paravirt,
    {
        let count = self.micro.operations();
        let mut value = role as u32;
        let mut samples = Vec::with_capacity(self.samples as usize);
        for _ in 0..self.samples {
            let begin = thread.now_ns();
            for _ in 0..count {
                while thread.load(&self.word, Acquire) != value {
                    wait();
                }
                thread.store(&self.word, value + 1, Release);
                tell();
                value += 2;
            }
            samples.push((thread.now_ns() - begin) as f64 / f64::from(2 * count));
        }
        samples
    }

    /// Nanoseconds for each kick of a peer that has had time to fall asleep: until the kick is done, or the peer is awake.
    fn time_kicks<T: Thread<Word = W> + Paravirt + Computes>(&self, thread: &T, peer: CpuId) -> Vec<f64> {
        /// Longer than it takes to fall asleep.
        const ASLEEP_NS: u64 = 60_000;
        let asleep = Span::lasting(ASLEEP_NS);
        let mut halts = 0;
        // Not before the peer was up since the last kick.
        let mut await_peer = || {
            while thread.load(&self.word, Acquire) == halts {
                thread.compute(asleep);
            }
            halts = thread.load(&self.word, Acquire);
        };
        await_peer();
        let sample = |_| {
            thread.compute(asleep);
            let begin = thread.now_ns();
            thread.kick(peer);
            let done = thread.now_ns();
            await_peer();
            // ORDERING: Relaxed: the peer's count, which was acquired, came after.
            let awake = self.awake_ns.load(Relaxed);
            let end = if self.micro == Micro::KickCall { done } else { awake };
            end.saturating_sub(begin) as f64
        };
        (0..self.samples).map(sample).collect()
    }

    fn halt_until_ended<T: Thread<Word = W> + Paravirt>(&self, thread: &T) -> Vec<f64> {
        let mut halts = 0;
        while thread.load(&self.ended, Relaxed) == 0 {
            halts += 1;
            thread.store(&self.word, halts, Release);
            thread.halt_masked();
            // ORDERING: Relaxed: the count that follows releases it.
            self.awake_ns.store(thread.now_ns(), Relaxed);
        }
        Vec::new()
    }

    /// How long the thread is interrupted each time, in nanoseconds: gaps well above what a look at the clock takes.
    fn watch_gaps<T: Thread<Word = W> + Paravirt>(&self, thread: &T) -> Vec<f64> {
        const GAP_NS: u64 = 120;
        let (mut gaps, mut last) = (Vec::new(), thread.now_ns());
        while thread.load(&self.ended, Relaxed) == 0 {
            thread.relax();
            let now = thread.now_ns();
            if now - last > GAP_NS && gaps.len() < 10_000 {
                gaps.push((now - last) as f64);
            }
            last = now;
        }
        gaps
    }
}
