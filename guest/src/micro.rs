//! Small benchmarks of what a guest sees of its CPUs and its host, on bare CPUs: no kernel, no tick, interrupts masked unless
//! one is the subject. The figures from which a host's profile is made (`holdfast calibrate`).

use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::hint::black_box;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

use holdfast_abi::{cpuid, lapic, msr};
use holdfast_locks::{CpuId, Paravirt, Platform, Word};
use serde::{Deserialize, Serialize};

use crate::machine::{Cpu, GuestImage, Machine, Report};

/// A small benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Micro {
    /// Loads that hit.
    Load,
    /// Stores to one word.
    Store,
    /// Locked additions to one word.
    Exchange,
    /// Full fences, each after a store.
    Fence,
    /// PAUSEs.
    Pause,
    /// A word that two CPUs write in turn: from one's store to the other's.
    Line,
    /// Computing for a known time: whether a nanosecond of it is one.
    Compute,
    /// What the host takes of a vCPU that computes all the time: its ticks.
    Taken,
    /// CPUID: the least that an exit can be.
    Cpuid,
    /// A hypercall of a number that nobody knows.
    Hypercall,
    /// The end of an interrupt where none is in service: a write of an MSR.
    Msr,
    /// An interrupt to oneself, up to its end.
    SelfIpi,
    /// The kick alone of a vCPU that has halted on another pCPU.
    KickCall,
    /// Halting and kicking in turn on one pCPU: from one's kick to the other's.
    KickHere,
    /// From the kick of a vCPU that has halted on another pCPU to its next instruction.
    KickThere,
}

impl Micro {
    /// All of them.
    pub const ALL: [Micro; 15] = [
        Micro::Load,
        Micro::Store,
        Micro::Exchange,
        Micro::Fence,
        Micro::Pause,
        Micro::Line,
        Micro::Compute,
        Micro::Taken,
        Micro::Cpuid,
        Micro::Hypercall,
        Micro::Msr,
        Micro::SelfIpi,
        Micro::KickCall,
        Micro::KickHere,
        Micro::KickThere,
    ];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Micro::Load => "guest: load",
            Micro::Store => "guest: store",
            Micro::Exchange => "guest: locked addition",
            Micro::Fence => "guest: fence after a store",
            Micro::Pause => "guest: PAUSE",
            Micro::Line => "guest: word written in turn, two CPUs",
            Micro::Compute => "guest: computing for 5 us",
            Micro::Taken => "guest: taken by the host in 20 ms",
            Micro::Cpuid => "guest: CPUID",
            Micro::Hypercall => "guest: unknown hypercall",
            Micro::Msr => "guest: end of no interrupt",
            Micro::SelfIpi => "guest: interrupt to itself",
            Micro::KickCall => "guest: kick a halted vCPU on another CPU",
            Micro::KickHere => "guest: kick in turn, one CPU",
            Micro::KickThere => "guest: kick to awake, two CPUs",
        }
    }

    /// The pCPU of each of its vCPUs. Those beyond the benchmark's own ones only compute: a core that two pCPUs share is then as
    /// busy as it is where locks are contended, and all that is measured takes as long.
    pub fn places(self) -> &'static [u32] {
        match self {
            Micro::KickHere => &[0, 0, 1],
            _ => &[0, 1],
        }
    }

    /// How many vCPUs take part.
    fn players(self) -> u32 {
        match self {
            Micro::Line | Micro::KickCall | Micro::KickThere | Micro::KickHere => 2,
            _ => 1,
        }
    }

    /// Operations in one sample: some tens of microseconds, so that few samples are interrupted.
    fn operations(self) -> u32 {
        match self {
            Micro::Load | Micro::Store | Micro::Exchange | Micro::Fence => 2000,
            Micro::Pause => 200,
            Micro::Line => 100,
            Micro::Compute | Micro::Cpuid | Micro::Hypercall | Micro::Msr | Micro::SelfIpi | Micro::KickHere => 4,
            Micro::KickCall | Micro::KickThere | Micro::Taken => 1,
        }
    }
}

/// The counter by which the median of the samples is reported, in picoseconds for an operation.
pub const MEDIAN: &str = "micro.median_ps";
/// A quarter of the samples is shorter.
pub const QUARTER: &str = "micro.quarter_ps";
/// A quarter of the samples is longer.
pub const THREE_QUARTERS: &str = "micro.three_quarters_ps";

/// Of the interrupt to oneself.
const VECTOR: u8 = 0x51;
const SPURIOUS_VECTOR: u64 = 0xff;
/// A hypercall that no KVM has.
const NO_HYPERCALL: u32 = 0x4000;
/// What a CPU that only computes does at a time.
const STRETCH_NS: u64 = 100_000;
/// What [`Micro::Compute`] asks for: as much as a long critical section.
const COMPUTE_NS: u64 = 5_000;
/// For how long [`Micro::Taken`] computes in a sample: hosts of 50 Hz and more have ticks meanwhile.
const TAKEN_NS: u64 = 20_000_000;
/// How long before a multiple of that each sample begins.
const TAKEN_BEFORE_NS: u64 = 300_000;
/// Longer than it takes to fall asleep, on hosts where exits take tens of microseconds, too.
const ASLEEP_NS: u64 = 400_000;

/// An image that runs `micro`, so many samples, on `machine`, which has as many CPUs as [`Micro::places`]. CPU 0 reports.
pub fn micro<M: Machine>(machine: M, micro: Micro, samples: u32) -> Box<dyn GuestImage> {
    Box::new(Bench {
        machine,
        micro,
        samples: samples.max(1),
        word: Word::new(0),
        ready: Word::new(0),
        asleep: Word::new(0),
        awake_ns: AtomicU64::new(0),
    })
}

type WordOf<M> = <<M as Machine>::Cpu as Platform>::Word;

struct Bench<M: Machine> {
    machine: M,
    micro: Micro,
    samples: u32,
    word: WordOf<M>,
    /// CPUs that are there.
    ready: WordOf<M>,
    /// How often CPU 1 went to sleep.
    asleep: WordOf<M>,
    /// When it was last awake. Plain memory: the benchmark's own book-keeping.
    awake_ns: AtomicU64,
}

impl<M: Machine> Bench<M> {
    fn play(&self, cpu: &M::Cpu, role: u32) -> Vec<u64> {
        self.meet(cpu);
        if role >= self.micro.players() {
            loop {
                cpu.compute(STRETCH_NS);
            }
        }
        let peer = CpuId(1 - role.min(1));
        match (self.micro, role) {
            (Micro::Load, _) => self.time(cpu, || {
                black_box(cpu.load(&self.word, Acquire));
            }),
            (Micro::Store, _) => self.time(cpu, || cpu.store(&self.word, 0, Release)),
            (Micro::Exchange, _) => self.time(cpu, || {
                cpu.fetch_add(&self.word, 0, AcqRel);
            }),
            (Micro::Fence, _) => self.time(cpu, || {
                // Fences with nothing between them may be made one.
                cpu.store(&self.word, 0, Release);
                cpu.fence(SeqCst);
            }),
            (Micro::Pause, _) => self.time(cpu, || cpu.relax()),
            (Micro::Compute, _) => self.time(cpu, || cpu.compute(COMPUTE_NS)),
            (Micro::Taken, _) => self.time_taken(cpu),
            (Micro::Cpuid, _) => self.time(cpu, || {
                black_box(cpu.cpuid(cpuid::BASIC));
            }),
            (Micro::Hypercall, _) => self.time(cpu, || {
                black_box(cpu.hypercall(NO_HYPERCALL, [0; 4]));
            }),
            (Micro::Msr, _) => {
                enable_apic(cpu);
                self.time(cpu, || end_interrupt(cpu))
            }
            (Micro::SelfIpi, _) => {
                enable_apic(cpu);
                cpu.irq_enable();
                let samples = self.time(cpu, || cpu.wrmsr(msr::X2APIC_SELF_IPI, VECTOR.into()));
                cpu.irq_disable();
                samples
            }
            (Micro::Line, role) => self.take_turns(cpu, role, || (), || ()),
            (Micro::KickHere, role) => self.take_turns(cpu, role, || cpu.halt_masked(), || cpu.kick(peer)),
            (Micro::KickCall | Micro::KickThere, 0) => self.time_kicks(cpu, peer),
            (Micro::KickCall | Micro::KickThere, _) => self.sleep(cpu),
        }
    }

    /// Waits until all CPUs are there.
    fn meet(&self, cpu: &M::Cpu) {
        cpu.fetch_add(&self.ready, 1, AcqRel);
        while cpu.load(&self.ready, Acquire) < self.machine.cpus() {
            cpu.relax();
        }
    }

    /// Picoseconds for each `operation`.
    fn time(&self, cpu: &M::Cpu, operation: impl Fn()) -> Vec<u64> {
        let count = self.micro.operations();
        let sample = |_| {
            let begin = cpu.now_ns();
            (0..count).for_each(|_| operation());
            (cpu.now_ns() - begin) * 1000 / u64::from(count)
        };
        (0..self.samples).map(sample).collect()
    }

    /// Picoseconds that parts of a long computing took beyond the usual, in sum: nothing else than what others took. From
    /// one multiple of the length to the next, so that each sample has as many ticks; those come at multiples, too, and so samples
    /// begin a little before.
    fn time_taken(&self, cpu: &M::Cpu) -> Vec<u64> {
        let mut parts = Vec::with_capacity((TAKEN_NS / COMPUTE_NS) as usize);
        let number = |now: u64| (now + TAKEN_BEFORE_NS) / TAKEN_NS;
        let mut compute_to_next = || {
            let begin = cpu.now_ns();
            let mut last = begin;
            parts.clear();
            while number(last) == number(begin) {
                cpu.compute(COMPUTE_NS);
                let now = cpu.now_ns();
                parts.push(now - last);
                last = now;
            }
            parts.sort_unstable();
            // The mean of those that took hardly more than the middle one: in a median the clock's grain would count, thousands of
            // times.
            let longest = parts[parts.len() / 2] * 11 / 10;
            let usual = &parts[..parts.partition_point(|&part| part <= longest)];
            let undisturbed = usual.iter().sum::<u64>() * parts.len() as u64 / usual.len() as u64;
            (last - begin).saturating_sub(undisturbed) * 1000
        };
        let sample = |_| {
            compute_to_next();
            compute_to_next()
        };
        (0..self.samples).map(sample).collect()
    }

    /// Two CPUs change the word in turn; `wait` while it is the other's, `tell` when it is.
    fn take_turns(&self, cpu: &M::Cpu, role: u32, wait: impl Fn(), tell: impl Fn()) -> Vec<u64> {
        let count = self.micro.operations();
        let (mut value, mut samples) = (role, Vec::new());
        for _ in 0..self.samples {
            let begin = cpu.now_ns();
            for _ in 0..count {
                while cpu.load(&self.word, Acquire) != value {
                    wait();
                }
                cpu.store(&self.word, value + 1, Release);
                tell();
                value += 2;
            }
            samples.push((cpu.now_ns() - begin) * 1000 / u64::from(2 * count));
        }
        samples
    }

    /// Picoseconds for each kick of a peer that has had time to fall asleep: until the kick is done, or the peer is awake.
    fn time_kicks(&self, cpu: &M::Cpu, peer: CpuId) -> Vec<u64> {
        let mut halts = 0;
        // Not before the peer was up since the last kick.
        let mut await_peer = || {
            while cpu.load(&self.asleep, Acquire) == halts {
                cpu.relax();
            }
            halts = cpu.load(&self.asleep, Acquire);
        };
        await_peer();
        let sample = |_| {
            cpu.compute(ASLEEP_NS);
            let begin = cpu.now_ns();
            cpu.kick(peer);
            let done = cpu.now_ns();
            await_peer();
            // ORDERING: Relaxed: the peer's count, which was acquired, came after.
            let awake = self.awake_ns.load(Relaxed);
            let end = if self.micro == Micro::KickCall { done } else { awake };
            end.saturating_sub(begin) * 1000
        };
        (0..self.samples).map(sample).collect()
    }

    /// Sleeps from kick to kick, to the end of the run.
    fn sleep(&self, cpu: &M::Cpu) -> ! {
        loop {
            cpu.fetch_add(&self.asleep, 1, AcqRel);
            cpu.halt_masked();
            // ORDERING: Relaxed: the count that follows releases it.
            self.awake_ns.store(cpu.now_ns(), Relaxed);
        }
    }

    fn report(&self, mut samples: Vec<u64>) {
        samples.sort_unstable();
        let last = samples.len().saturating_sub(1);
        for (name, quarters) in [(QUARTER, 1), (MEDIAN, 2), (THREE_QUARTERS, 3)] {
            let value = samples.get((last * quarters + 2) / 4).copied().unwrap_or(0);
            self.machine.report(Report::Counter(name.to_string(), value));
        }
    }
}

/// x2APIC mode, which every KVM offers, as kernels switch it on.
fn enable_apic(cpu: &impl Cpu) {
    let base = cpu.rdmsr(msr::APIC_BASE);
    cpu.wrmsr(msr::APIC_BASE, base | msr::APIC_BASE_ENABLE | msr::APIC_BASE_X2APIC);
    let spurious = u64::from(lapic::SVR_ENABLE) | SPURIOUS_VECTOR;
    cpu.wrmsr(msr::X2APIC_BASE + lapic::SVR / 16, spurious);
    cpu.wrmsr(msr::X2APIC_BASE + lapic::TPR / 16, 0);
}

fn end_interrupt(cpu: &impl Cpu) {
    cpu.wrmsr(msr::X2APIC_BASE + lapic::EOI / 16, 0);
}

impl<M: Machine> GuestImage for Bench<M> {
    fn boot(&self, number: CpuId) -> ! {
        let cpu = self.machine.cpu();
        if number.0 == 0 {
            self.machine.report(Report::Begin);
        }
        let samples = self.play(&cpu, number.0);
        if number.0 == 0 {
            let operations = Some(samples.len() as u64);
            self.report(samples);
            self.machine.report(Report::Done { operations });
        }
        loop {
            cpu.halt_masked();
        }
    }

    fn interrupt(&self, vector: u8) {
        assert_eq!(vector, VECTOR, "an interrupt that nobody sent");
        end_interrupt(&self.machine.cpu());
    }
}
