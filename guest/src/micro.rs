//! Small benchmarks of a guest's CPUs and its host, on bare CPUs: no kernel, no tick, and interrupts masked unless one
//! is measured. `holdfast calibrate` makes a host's profile from the figures.

use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::hint::black_box;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

use holdfast_abi::{cpuid, lapic, msr};
use holdfast_locks::{CpuId, Paravirt, Platform, Word};
use serde::{Deserialize, Serialize};

use crate::class::named;
use crate::machine::{Cpu, GuestImage, Machine, Report};
use crate::sync::WordOf;

named! {
    /// A small benchmark.
    #[derive(PartialOrd, Ord, Serialize, Deserialize)]
    Micro {
        /// Loads that hit the cache.
        Load = "guest: load",
        /// Stores to one word.
        Store = "guest: store",
        /// Locked additions to one word.
        Exchange = "guest: locked addition",
        /// Full fences, each after a store.
        Fence = "guest: fence after a store",
        /// PAUSE instructions.
        Pause = "guest: PAUSE",
        /// A word that two CPUs write in turn: from the store of one CPU to the store of the other.
        Line = "guest: word written in turn, two CPUs",
        /// Computing for a known time, to check the length of its nanoseconds.
        Compute = "guest: computing for 5 us",
        /// Time that the host takes from a vCPU that always computes, mainly for its ticks.
        Taken = "guest: taken by the host in 20 ms",
        /// CPUID: the shortest exit.
        Cpuid = "guest: CPUID",
        /// A hypercall with an unknown number.
        Hypercall = "guest: unknown hypercall",
        /// The end of an interrupt while none is in service: a write of an MSR.
        Msr = "guest: end of no interrupt",
        /// An interrupt to the same CPU, up to its end.
        SelfIpi = "guest: interrupt to itself",
        /// Only the kick of a vCPU that has halted on another pCPU.
        KickCall = "guest: kick a halted vCPU on another CPU",
        /// Halting and kicking in turn on one pCPU: from the kick of one vCPU to the kick of the other.
        KickHere = "guest: kick in turn, one CPU",
        /// From the kick of a vCPU that has halted on another pCPU to its next instruction.
        KickThere = "guest: kick to awake, two CPUs",
    }
}

impl Micro {
    /// Returns the pCPU of each vCPU. vCPUs that do not take part in the benchmark only compute. A core that two pCPUs
    /// share is thus as busy as with contended locks, and the measured operations take as long.
    pub fn places(self) -> &'static [u32] {
        match self {
            Micro::KickHere => &[0, 0, 1],
            _ => &[0, 1],
        }
    }

    /// The number of vCPUs that take part.
    fn players(self) -> u32 {
        match self {
            Micro::Line | Micro::KickCall | Micro::KickThere | Micro::KickHere => 2,
            _ => 1,
        }
    }

    /// Operations in one sample: tens of microseconds, so that few samples are interrupted.
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

/// The counter that reports the median of the samples, in picoseconds per operation.
pub const MEDIAN: &str = "micro.median_ps";
/// The counter that reports the first quartile: a quarter of the samples is shorter.
pub const QUARTER: &str = "micro.quarter_ps";
/// The counter that reports the third quartile: a quarter of the samples is longer.
pub const THREE_QUARTERS: &str = "micro.three_quarters_ps";

/// The vector of [`Micro::SelfIpi`].
const VECTOR: u8 = 0x51;
const SPURIOUS_VECTOR: u64 = 0xff;
/// The number of a hypercall that no KVM implements.
const NO_HYPERCALL: u32 = 0x4000;
/// How long a CPU that only computes does so at a time.
const STRETCH_NS: u64 = 100_000;
/// The time that [`Micro::Compute`] computes: that of a long critical section.
const COMPUTE_NS: u64 = 5_000;
/// The time of a sample of [`Micro::Taken`]. Hosts of 50 Hz and more have a tick in it.
const TAKEN_NS: u64 = 20_000_000;
/// How long before a multiple of `TAKEN_NS` each sample begins.
const TAKEN_BEFORE_NS: u64 = 300_000;
/// Longer than a vCPU takes to halt, also on hosts where exits take tens of microseconds.
const ASLEEP_NS: u64 = 400_000;

/// Makes an image that runs `samples` samples of `micro` on `machine`, which has as many CPUs as [`Micro::places`]. CPU
/// 0 reports.
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

struct Bench<M: Machine> {
    machine: M,
    micro: Micro,
    samples: u32,
    word: WordOf<M>,
    /// The number of CPUs that have arrived.
    ready: WordOf<M>,
    /// How often CPU 1 halted.
    asleep: WordOf<M>,
    /// When CPU 1 was last awake. Plain memory: the benchmark's own bookkeeping.
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
            (Micro::Load, _) => self.time(cpu, || cpu.load(&self.word, Acquire)),
            (Micro::Store, _) => self.time(cpu, || cpu.store(&self.word, 0, Release)),
            (Micro::Exchange, _) => self.time(cpu, || cpu.fetch_add(&self.word, 0, AcqRel)),
            (Micro::Fence, _) => self.time(cpu, || {
                // Without a store between them, fences could be merged.
                cpu.store(&self.word, 0, Release);
                cpu.fence(SeqCst);
            }),
            (Micro::Pause, _) => self.time(cpu, || cpu.relax()),
            (Micro::Compute, _) => self.time(cpu, || cpu.compute(COMPUTE_NS)),
            (Micro::Taken, _) => self.time_taken(cpu),
            (Micro::Cpuid, _) => self.time(cpu, || cpu.cpuid(cpuid::BASIC)),
            (Micro::Hypercall, _) => self.time(cpu, || cpu.hypercall(NO_HYPERCALL, [0; 4])),
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

    /// Waits until all CPUs have arrived.
    fn meet(&self, cpu: &M::Cpu) {
        cpu.fetch_add(&self.ready, 1, AcqRel);
        while cpu.load(&self.ready, Acquire) < self.machine.cpus() {
            cpu.relax();
        }
    }

    /// Picoseconds for each `operation`.
    fn time<R>(&self, cpu: &M::Cpu, operation: impl Fn() -> R) -> Vec<u64> {
        let count = self.micro.operations();
        let sample = |_| {
            let begin = cpu.now_ns();
            (0..count).for_each(|_| drop(black_box(operation())));
            (cpu.now_ns() - begin) * 1000 / u64::from(count)
        };
        (0..self.samples).map(sample).collect()
    }

    /// Measures how many picoseconds the pieces of a long computation took beyond the usual: the time that the host
    /// took. A sample lasts from one multiple of its length to the next, so that each has the same number of ticks.
    /// Ticks come at multiples, too, so samples begin a little before.
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
            (last - begin).saturating_sub(undisturbed(&mut parts)) * 1000
        };
        let sample = |_| {
            compute_to_next();
            compute_to_next()
        };
        (0..self.samples).map(sample).collect()
    }

    /// Changes the word in turn with another CPU. Calls `wait` while it is the other's turn, and `tell` when the turn
    /// is given to the other.
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

    /// Measures the picoseconds of each kick of a peer that has had time to halt: until the kick is done, or until the
    /// peer is awake.
    fn time_kicks(&self, cpu: &M::Cpu, peer: CpuId) -> Vec<u64> {
        let mut halts = 0;
        // Waits until the peer has been awake since the last kick.
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
            // ORDERING: Relaxed: the peer wrote it before its count, which was acquired.
            let awake = self.awake_ns.load(Relaxed);
            let end = if self.micro == Micro::KickCall { done } else { awake };
            end.saturating_sub(begin) * 1000
        };
        (0..self.samples).map(sample).collect()
    }

    /// Halts from kick to kick, until the end of the run.
    fn sleep(&self, cpu: &M::Cpu) -> ! {
        loop {
            cpu.fetch_add(&self.asleep, 1, AcqRel);
            cpu.halt_masked();
            // ORDERING: Relaxed: the increment of the count that follows releases it.
            self.awake_ns.store(cpu.now_ns(), Relaxed);
        }
    }

    fn report(&self, mut samples: Vec<u64>) {
        samples.sort_unstable();
        let last = samples.len() - 1;
        for (name, quarters) in [(QUARTER, 1), (MEDIAN, 2), (THREE_QUARTERS, 3)] {
            self.machine
                .report(Report::Counter(name.to_string(), samples[rank(last, quarters)]));
        }
    }
}

/// Returns the index nearest to `quarters` quarters of the way from 0 to `last`.
fn rank(last: usize, quarters: usize) -> usize {
    (last * quarters + 2) / 4
}

/// Returns the time that the pieces of a computation would have taken if each took the usual time. That is the mean of
/// the pieces that took little more than the median. With the median itself, the resolution of the clock would count
/// thousands of times.
fn undisturbed(parts: &mut [u64]) -> u64 {
    parts.sort_unstable();
    let longest = parts[parts.len() / 2] * 11 / 10;
    let usual = &parts[..parts.partition_point(|&part| part <= longest)];
    usual.iter().sum::<u64>() * parts.len() as u64 / usual.len() as u64
}

/// Switches x2APIC mode on, which every KVM offers, as kernels do.
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
        if number.0 != 0 {
            self.play(&cpu, number.0);
        } else {
            self.machine.report(Report::Begin);
            let samples = self.play(&cpu, number.0);
            let operations = Some(samples.len() as u64);
            self.report(samples);
            self.machine.report(Report::Done { operations });
        }
        loop {
            cpu.halt_masked();
        }
    }

    fn interrupt(&self, vector: u8) {
        assert_eq!(vector, VECTOR, "vector {vector:#x} was delivered but not sent");
        end_interrupt(&self.machine.cpu());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_are_the_nearest_samples() {
        let ranks = |samples: usize| [1, 2, 3].map(|quarters| rank(samples - 1, quarters));
        assert_eq!(ranks(1), [0, 0, 0]);
        assert_eq!(ranks(3), [1, 1, 2]);
        assert_eq!(ranks(4), [1, 2, 2]);
        assert_eq!(ranks(5), [1, 2, 3]);
        assert_eq!(ranks(101), [25, 50, 75]);
    }

    #[test]
    fn pieces_far_beyond_the_median_count_as_the_usual_ones() {
        // 110 is the longest usual piece. The mean of the four usual ones is 103.
        assert_eq!(undisturbed(&mut [900, 100, 110, 102, 5000, 100]), 618);
        assert_eq!(undisturbed(&mut [100, 111, 100]), 300);
        assert_eq!(undisturbed(&mut [7]), 7);
    }
}
