//! One run: a machine by seed, and what its vCPUs do.

use std::cell::Cell;
use std::rc::Rc;

use holdfast_abi::lapic;
use holdfast_guest::{Cpu, GuestImage, Machine, Mode};
use holdfast_host::PauseControls;
use holdfast_locks::{CpuId, Interrupts, Paravirt, Platform, Word};
use holdfast_machine::{PauseHardware, Picos};
use holdfast_sim::{CallOff, Config, HostTask, SimMachine, SimWord, run_images};

use super::algorithm::Algorithm;
use super::cpu::{Dice, Fault, Tortured};
use crate::image::{Random, TIMER_VECTOR, coarsen, config, profile};

const IPI_VECTOR: u8 = 0xf1;
/// Number of nested contexts: one more than a CPU has queue nodes.
const LEVELS: usize = 5;

/// Statistics of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub vcpus: u32,
    pub pcpus: u32,
    pub acquisitions: u64,
    pub preemptions: u64,
    pub interrupts: u64,
    pub deepest: u32,
    pub overtaken_max: u64,
    pub history_hash: u64,
}

struct Guarded {
    word: SimWord,
    holder: Cell<u32>,
}

#[derive(Default)]
struct Counts {
    up: Cell<u32>,
    done: Cell<u32>,
    acquisitions: Cell<u64>,
    interrupts: Cell<u64>,
    deepest: Cell<u32>,
}

fn bump(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

struct Storm {
    machine: SimMachine,
    algorithm: Algorithm,
    dice: Rc<Dice>,
    counts: Rc<Counts>,
    /// One lock for each level of nesting. Code at that level takes it as it is; code below masks interrupts first.
    locks: Vec<Guarded>,
    /// Levels of interrupts on each vCPU.
    level: Vec<Cell<usize>>,
    timer_ns: u32,
    rounds: u32,
}

impl Storm {
    fn cpu(&self) -> Tortured {
        Tortured {
            cpu: self.machine.cpu(),
            dice: self.dice.clone(),
        }
    }

    /// The caller has the lock of `level`.
    fn inside(&self, cpu: &Tortured, level: usize) {
        let (lock, me) = (&self.locks[level], cpu.cpu().0 + 1);
        bump(&self.counts.acquisitions);
        cpu.cpu.lock_acquired(&lock.word);
        let other = lock.holder.replace(me);
        if other != 0 {
            self.dice
                .violated(|| format!("vcpus {} and {} hold the lock of level {level}", other - 1, me - 1));
        }
        cpu.cpu.compute(self.dice.next(1_500));
        if level + 1 < LEVELS && self.dice.next(4) == 0 {
            let above = level + 1 + self.dice.next((LEVELS - level - 1) as u64) as usize;
            let enabled = cpu.irq_save();
            self.lock(cpu, above);
            cpu.irq_restore(enabled);
        }
        if lock.holder.replace(0) != me {
            self.dice
                .violated(|| format!("the lock of level {level} was taken from its holder, vcpu {}", me - 1));
        }
        cpu.cpu.lock_released(&lock.word);
        (self.algorithm.unlock)(cpu, &lock.word);
    }

    fn lock(&self, cpu: &Tortured, level: usize) {
        let word = &self.locks[level].word;
        let begun = self.dice.begun.get();
        (self.algorithm.lock)(cpu, word);
        if self.dice.begun.get() == begun {
            self.dice.took_at_once(cpu.cpu().0, word);
        }
        self.inside(cpu, level);
    }

    fn try_lock(&self, cpu: &Tortured, level: usize) {
        let word = &self.locks[level].word;
        let held = self.locks[level].holder.get() == cpu.cpu().0 + 1;
        if (self.algorithm.try_lock)(cpu, word) {
            if held {
                self.dice.violated(|| "a lock was given to its holder again".to_owned());
            }
            self.inside(cpu, level);
        }
    }

    fn interrupt_another(&self, cpu: &Tortured) {
        let target = self.dice.next(self.machine.cpus().into()) as u32;
        if target != cpu.cpu().0 {
            cpu.cpu.apic_write(lapic::ICR_HIGH, target << 24);
            cpu.cpu
                .apic_write(lapic::ICR_LOW, lapic::ICR_ASSERT | u32::from(IPI_VECTOR));
        }
    }

    /// Reports the first violation, if there is one.
    fn judge(&self) {
        if let Some(what) = self.dice.violation.borrow().clone() {
            self.machine.report(holdfast_guest::Report::Panic(what));
        }
    }

    fn finish(&self, cpu: &Tortured) {
        for (level, lock) in self.locks.iter().enumerate() {
            if (self.algorithm.is_locked)(cpu, &lock.word) {
                self.dice
                    .violated(|| format!("the lock of level {level} is held by nobody"));
            }
        }
        if !cpu.cpu.waiting().is_idle(&cpu.cpu) {
            self.dice
                .violated(|| "somebody is registered for a lock that nobody holds".to_owned());
        }
        self.judge();
        self.machine.report(holdfast_guest::Report::Done { operations: None });
    }
}

impl GuestImage for Storm {
    fn boot(&self, _: CpuId) -> ! {
        let cpu = self.cpu();
        let sim = &cpu.cpu;
        sim.executing(Mode::Kernel);
        sim.apic_write(lapic::SVR, lapic::SVR_ENABLE | 0xff);
        sim.apic_write(lapic::TIMER_DIVIDE, 0b1011);
        sim.apic_write(lapic::LVT_TIMER, lapic::LVT_TIMER_ONE_SHOT | u32::from(TIMER_VECTOR));
        sim.irq_enable();
        self.counts.up.set(self.counts.up.get() + 1);
        // A LAPIC that is not enabled yet ignores interrupts.
        while self.counts.up.get() < self.machine.cpus() {
            sim.compute(10_000);
        }
        for _ in 0..self.rounds {
            // Set by the task, not by the handler: handlers that take long must not starve it.
            if self.dice.next(2) == 0 {
                let delay = 1 + self.dice.next(self.timer_ns.into()) as u32;
                sim.apic_write(lapic::TIMER_INITIAL, delay);
            }
            // The watchdog counts this as progress.
            sim.executing(Mode::User);
            sim.compute(10);
            sim.executing(Mode::Kernel);
            match self.dice.next(16) {
                0 | 1 => self.interrupt_another(&cpu),
                2 | 3 => self.try_lock(&cpu, 0),
                4 | 5 => sim.compute(self.dice.next(4_000)),
                _ => self.lock(&cpu, 0),
            }
            self.judge();
        }
        sim.irq_disable();
        self.counts.done.set(self.counts.done.get() + 1);
        if self.counts.done.get() == self.machine.cpus() {
            self.finish(&cpu);
        }
        loop {
            sim.halt_masked();
        }
    }

    fn interrupt(&self, _: u8) {
        let cpu = self.cpu();
        // The handler may have interrupted user mode, in which hypercalls are not answered.
        cpu.cpu.executing(Mode::Kernel);
        let nesting = &self.level[cpu.cpu().0 as usize];
        let level = nesting.get() + 1;
        nesting.set(level);
        bump(&self.counts.interrupts);
        self.counts.deepest.set(self.counts.deepest.get().max(level as u32));
        cpu.cpu.apic_write(lapic::EOI, 0);
        let nests = level + 1 < LEVELS && self.dice.next(2) == 0;
        if nests {
            cpu.cpu.irq_enable();
        }
        self.lock(&cpu, level);
        if nests {
            cpu.cpu.irq_disable();
        }
        nesting.set(level - 1);
    }
}

/// A machine by seed: few pCPUs, short slices, pause-loop exiting or not, host tasks that preempt any vCPU.
fn machine(seed: u64, random: &mut Random) -> (Config, u32) {
    let vcpus = match random.next(8) {
        0 => 33 + random.next(32),
        1 | 2 => 9 + random.next(24),
        _ => 2 + random.next(7),
    } as u32;
    let pcpus = 1 + random.next(u64::from((vcpus - 1).min(8))) as u32;
    let mut config = config(pcpus, vcpus, 0, seed);
    let exits = random.next(3) != 0;
    config.machine = profile(pcpus, exits.then_some(PauseHardware::Ple));
    if random.next(2) == 0 {
        coarsen(&mut config.machine.costs);
    }
    // Enough for any of the windows that hosts begin with, 4096 cycles.
    let pause = config.machine.costs.pause;
    let pauses = if exits {
        (Picos::from_nanos(1_500).0 / pause.0) as u32
    } else {
        0
    };
    config.host.pause_controls = PauseControls::Ple {
        gap: 128,
        window: 4_000,
    };
    // Not shorter: if each directed yield takes effect at once, a spinner can throw two vCPUs of another pCPU out in
    // turn, and neither executes an instruction, since switching takes as long as the spinner needs for its next
    // yield.
    config.host.sched.latency_ns = 2_000_000;
    config.host.sched.min_granularity_ns = 500_000;
    config.host.sched.wakeup_granularity_ns = 100_000;
    config.host.sched.scale_by_pcpus = false;
    config.host.min_timer_period_ns = 10_000;
    config.tasks = (0..random.next(1 + u64::from(pcpus)))
        .map(|index| HostTask {
            name: format!("intruder {index}"),
            nice: -10,
            affinity: Vec::new(),
            group: None,
            busy_ns: 3_000 + random.next(60_000),
            sleep_ns: 20_000 + random.next(300_000),
        })
        .collect();
    config.vms[0].boot.spin_threshold = 1 + random.next(400) as u32;
    config.limit_ns = 60_000_000_000;
    (config, pauses)
}

/// Runs `algorithm` on the machine of `seed`.
///
/// # Errors
/// What went wrong: a violation, or a run that gets nowhere.
pub fn run(algorithm: Algorithm, seed: u64, fault: Fault) -> Result<Report, String> {
    let mut random = Random(seed);
    let (config, pauses) = machine(seed, &mut random);
    let (vcpus, pcpus) = (config.vms[0].vcpus, config.machine.topology.pcpus());
    let order = algorithm.order;
    let dice = Rc::new(Dice::new(seed, order, fault, pauses));
    let counts = Rc::new(Counts::default());
    let timer_ns = 2_000 + random.next(200_000) as u32;
    let rounds = 8 + random.next(u64::from(400 / vcpus)) as u32;
    let outcome = run_images(&config, &CallOff::new(), |_, machine| {
        Box::new(Storm {
            machine,
            algorithm,
            dice: dice.clone(),
            counts: counts.clone(),
            locks: (0..LEVELS)
                .map(|_| Guarded {
                    word: SimWord::new(0),
                    holder: Cell::new(0),
                })
                .collect(),
            level: (0..vcpus).map(|_| Cell::new(0)).collect(),
            timer_ns,
            rounds,
        })
    });
    let outcome = outcome.map_err(|failure| {
        let (acquisitions, interrupts) = (counts.acquisitions.get(), counts.interrupts.get());
        format!(
            "{failure} ({vcpus} vCPUs on {pcpus} pCPUs, {acquisitions} acquisitions, {interrupts} interrupts before)"
        )
    })?;
    Ok(Report {
        vcpus,
        pcpus,
        acquisitions: counts.acquisitions.get(),
        preemptions: dice.preemptions.get(),
        interrupts: counts.interrupts.get(),
        deepest: counts.deepest.get(),
        overtaken_max: dice.overtaken_max.get(),
        history_hash: outcome.history_hash,
    })
}
