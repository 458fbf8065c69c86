//! Interrupts that follow one another: each is taken as soon as the one before it has ended, and not on top of it.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use holdfast_abi::lapic;
use holdfast_guest::{Cpu, GuestImage, Machine, Mode, Report};
use holdfast_locks::{Budget, CpuId, Interrupts, Paravirt, Platform, Word};
use holdfast_sim::{CallOff, Config, Outcome, SimCpu, SimMachine, SimWord, run_images};

use crate::avic::avic_config;
use crate::image::{Random, coarsen, config};

/// The vector of sender 0, or the first of a chain.
const FIRST: u8 = 0x40;
/// A stretch of computing in which interrupts are not taken.
const STRETCH_NS: u64 = 1_000_000_000;
/// Longest time that an interrupt may wait, with those of all senders before it. The host's tick is a millisecond.
const BOUND_NS: u64 = 30_000;

/// The work of vCPU 0 while it is called.
#[derive(Clone, Copy, Debug)]
enum Called {
    Computes,
    /// Waits for a word that the senders change just when they call.
    Spins,
    /// Masks interrupts now and then.
    Masks,
}

#[derive(Debug, Default)]
struct Seen {
    /// The time of each sender's call that has not been taken.
    sent_ns: [Cell<Option<u64>>; 8],
    longest_ns: Cell<u64>,
    taken: Cell<u32>,
    done: Cell<u32>,
    /// Lowest and highest stack address of a handler.
    stack: Cell<Option<(usize, usize)>>,
}

/// vCPU 0 is called by the others; alone, it calls itself from its handler.
struct Calls {
    machine: SimMachine,
    called: Called,
    calls: u32,
    seed: u64,
    word: SimWord,
    seen: Rc<Seen>,
}

impl Calls {
    fn send(cpu: &SimCpu, vector: u8, to: u32) {
        cpu.apic_write(lapic::ICR_HIGH, to << 24);
        cpu.apic_write(lapic::ICR_LOW, lapic::ICR_ASSERT | u32::from(vector));
    }

    fn call(&self, cpu: &SimCpu, sender: u8) {
        let mut random = Random(self.seed ^ u64::from(sender) << 32);
        let under_way = &self.seen.sent_ns[usize::from(sender)];
        for _ in 0..self.calls {
            cpu.compute(random.next(20_000));
            under_way.set(Some(cpu.now_ns()));
            Calls::send(cpu, FIRST + sender * 0x10, 0);
            if random.next(2) == 0 {
                cpu.compute(random.next(300) * 10);
            }
            cpu.fetch_add(&self.word, 1, Ordering::Relaxed);
            while under_way.get().is_some() {
                cpu.compute(500);
            }
        }
        self.seen.done.set(self.seen.done.get() + 1);
        if self.seen.done.get() + 1 == self.machine.cpus() {
            self.machine.report(Report::Done { operations: None });
        }
    }

    fn be_called(&self, cpu: &SimCpu) {
        let mut random = Random(self.seed);
        if self.machine.cpus() == 1 {
            Calls::send(cpu, FIRST, 0);
        }
        loop {
            match self.called {
                Called::Computes => cpu.compute(STRETCH_NS),
                Called::Spins => {
                    let seen = cpu.load(&self.word, Ordering::Relaxed);
                    let _ = cpu.wait_until(&self.word, Budget::UNBOUNDED, Ordering::Relaxed, |value| value != seen);
                    cpu.compute(random.next(40_000));
                }
                Called::Masks => {
                    let enabled = cpu.irq_save();
                    cpu.compute(random.next(2_000));
                    cpu.irq_restore(enabled);
                    cpu.compute(random.next(100_000));
                }
            }
        }
    }

    fn note_stack(&self) {
        let here = 0u8;
        let here = &raw const here as usize;
        let (low, high) = self.seen.stack.get().unwrap_or((here, here));
        self.seen.stack.set(Some((low.min(here), high.max(here))));
    }
}

impl GuestImage for Calls {
    fn boot(&self, number: CpuId) -> ! {
        let cpu = self.machine.cpu();
        if number.0 == 0 {
            self.machine.report(Report::Begin);
        }
        cpu.executing(Mode::Kernel);
        cpu.apic_write(lapic::SVR, lapic::SVR_ENABLE | 0xff);
        cpu.irq_enable();
        cpu.compute(200_000);
        match number.0.checked_sub(1) {
            None => self.be_called(&cpu),
            Some(sender) => self.call(&cpu, sender as u8),
        }
        loop {
            cpu.halt_masked();
        }
    }

    fn interrupt(&self, vector: u8) {
        let cpu = self.machine.cpu();
        let seen = &self.seen;
        self.note_stack();
        seen.taken.set(seen.taken.get() + 1);
        if self.machine.cpus() == 1 {
            if seen.taken.get() == self.calls {
                self.machine.report(Report::Done { operations: None });
            }
            // The other of two classes: it waits for the end of this one.
            Calls::send(&cpu, vector ^ 0x10, 0);
        } else {
            let sent_ns = seen.sent_ns[usize::from((vector - FIRST) / 0x10)].take();
            let waited = cpu.now_ns() - sent_ns.expect("it was sent, and not taken before");
            seen.longest_ns.set(seen.longest_ns.get().max(waited));
        }
        cpu.apic_write(lapic::EOI, 0);
    }
}

fn play(mut config: Config, called: Called, calls: u32) -> (Outcome, Rc<Seen>) {
    let vcpus = config.vms[0].vcpus;
    config.vms[0].affinity = (0..vcpus).map(|vcpu| vec![vcpu]).collect();
    let seen = Rc::new(Seen::default());
    let outcome = run_images(&config, &CallOff::new(), |_, machine| {
        Box::new(Calls {
            machine,
            called,
            calls,
            seed: config.seed,
            word: SimWord::new(0),
            seen: seen.clone(),
        })
    });
    (
        outcome.unwrap_or_else(|failure| panic!("seed {}: {failure}", config.seed)),
        seen,
    )
}

#[test]
fn ten_thousand_interrupts_in_a_row_need_the_stack_of_one() {
    for config in [config(1, 1, 0, 1), avic_config(1, 1, 0, 1)] {
        let (_, seen) = play(config, Called::Computes, 10_000);
        assert_eq!(seen.taken.get(), 10_000);
        let (low, high) = seen.stack.get().expect("they were taken");
        assert!(high - low < 2048, "handlers are {} bytes apart", high - low);
    }
}

#[test]
fn a_running_vcpu_takes_interrupts_within_microseconds_whatever_comes_before_them() {
    for called in [Called::Computes, Called::Spins, Called::Masks] {
        for seed in 0..12 {
            let vcpus = 2 + seed as u32 % 4;
            let mut config = match seed % 2 {
                0 => config(vcpus, vcpus, 0, seed),
                _ => avic_config(vcpus, vcpus, 0, seed),
            };
            if seed % 3 == 0 {
                coarsen(&mut config.machine.costs);
            }
            let (_, seen) = play(config, called, 300);
            assert_eq!(seen.taken.get(), 300 * (vcpus - 1));
            let longest = seen.longest_ns.get();
            assert!(longest < BOUND_NS, "{called:?}, seed {seed}: {longest} ns");
        }
    }
}
