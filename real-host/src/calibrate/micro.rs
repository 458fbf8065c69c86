//! Small benchmarks of machine and kernel, as a program sees them. The same source runs on host threads and on
//! simulated threads.

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
    /// Yielding while no other thread wants the CPU.
    GiveWay,
    /// Waking without a sleeper.
    WakeNobody,
    /// A word that two CPUs write in turn: from one store to the next.
    Line,
    /// Halting and kicking in turn on one CPU: from one kick to the next.
    KickHere,
    /// From the kick of a thread that sleeps on another CPU to its next instruction.
    KickThere,
    /// Only the kick of a thread that sleeps on another CPU.
    KickCall,
    /// Interrupting all CPUs that run threads of this process, one of which does.
    Interrupt,
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
        Micro::Interrupt,
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
            Micro::Interrupt => "interrupt the other CPU",
        }
    }

    /// Returns the CPU of each of its threads.
    pub fn places(self) -> &'static [usize] {
        match self {
            Micro::SystemCall | Micro::GiveWay | Micro::WakeNobody => &[0],
            Micro::KickHere => &[0, 0],
            Micro::Line | Micro::KickThere | Micro::KickCall | Micro::Interrupt => &[0, 1],
        }
    }

    /// Returns the number of operations in one sample.
    fn operations(self) -> u32 {
        match self {
            Micro::SystemCall | Micro::GiveWay | Micro::WakeNobody => 100,
            Micro::Line => 200,
            Micro::KickHere => 20,
            Micro::Interrupt => 5,
            Micro::KickCall | Micro::KickThere => 1,
        }
    }
}

/// State shared by the threads of a small benchmark.
#[derive(Debug)]
pub struct Bench<W> {
    micro: Micro,
    samples: u32,
    word: W,
    /// Set when the first thread is done.
    ended: W,
    /// Time at which the kicked thread was last awake.
    awake_ns: AtomicU64,
    /// CPU number of each thread, plus 1.
    numbers: [AtomicU32; 2],
}

impl<W: Word<u32>> Bench<W> {
    /// Creates the state of `micro` with `samples` samples.
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

    /// Runs the part of thread `role`. Returns samples in nanoseconds per operation; the first thread's samples count.
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
            (Micro::Interrupt, 0) => self.time(thread, || thread.interrupt_others()),
            (Micro::KickCall | Micro::KickThere, _) => self.halt_until_ended(thread),
            (Micro::Interrupt, _) => self.watch_gaps(thread),
        };
        if role == 0 {
            thread.store(&self.ended, 1, Release);
            if matches!(self.micro, Micro::KickCall | Micro::KickThere) {
                thread.kick(peer);
            }
        }
        samples
    }

    /// Waits until both threads are there. Returns the other thread's number.
    fn meet<T: Thread<Word = W>>(&self, thread: &T, role: usize) -> CpuId {
        if self.micro.places().len() < 2 {
            return thread.cpu();
        }
        // ORDERING: Release and Acquire: a thread that reads the number may act on the other thread.
        self.numbers[role].store(thread.cpu().0 + 1, Release);
        loop {
            let number = self.numbers[1 - role].load(Acquire);
            if number != 0 {
                return CpuId(number - 1);
            }
            thread.give_way();
        }
    }

    /// Returns samples of the nanoseconds per `operation`.
    fn time<T: Thread<Word = W> + Paravirt>(&self, thread: &T, operation: impl Fn()) -> Vec<f64> {
        let count = self.micro.operations();
        let sample = |_| {
            let begin = thread.now_ns();
            (0..count).for_each(|_| operation());
            (thread.now_ns() - begin) as f64 / f64::from(count)
        };
        (0..self.samples).map(sample).collect()
    }

    /// Two threads change the word in turn. `wait` runs while it is the other thread's turn, `tell` after a change.
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

    /// Returns nanoseconds for each kick of a sleeping peer: until the kick is done, or until the peer is awake.
    fn time_kicks<T: Thread<Word = W> + Paravirt + Computes>(&self, thread: &T, peer: CpuId) -> Vec<f64> {
        /// Longer than it takes to fall asleep.
        const ASLEEP_NS: u64 = 60_000;
        let asleep = Span::lasting(ASLEEP_NS);
        let mut halts = 0;
        // Waits until the peer was awake after the last kick.
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
            // ORDERING: Relaxed: the peer stored this before its count, which was acquired.
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
            // ORDERING: Relaxed: the store of the count that follows releases it.
            self.awake_ns.store(thread.now_ns(), Relaxed);
        }
        Vec::new()
    }

    /// Returns the lengths of interruptions in nanoseconds: gaps that are much longer than reading the clock.
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
