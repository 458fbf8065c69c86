//! Locks with as many CPUs as their words can name.

use std::cell::Cell;
use std::marker::PhantomData;
use std::rc::Rc;

use holdfast_guest::{Cpu, GuestImage, Machine, Mode, Report};
use holdfast_history::NumerousQspin;
use holdfast_locks::{CpuId, Narrow, Paravirt, Qspin, RawLock, Wide, Word};
use holdfast_machine::Topology;
use holdfast_sim::{CallOff, Config, Outcome, SimCpu, SimMachine, SimWord, run_images};

use crate::image::config;

/// Time between two arrivals: longer than the transfer of a cache line through the machine.
const ARRIVAL_NS: u64 = 500;

/// Each vCPU takes the lock once; the last one ends the run.
struct Crowd<L> {
    machine: SimMachine,
    word: SimWord,
    holder: Cell<Option<u32>>,
    done: Rc<Cell<u32>>,
    lock: PhantomData<L>,
}

impl<L: RawLock<SimCpu>> GuestImage for Crowd<L> {
    fn boot(&self, number: CpuId) -> ! {
        let cpu = self.machine.cpu();
        cpu.executing(Mode::Kernel);
        if number.0 == 0 {
            self.machine.report(Report::Begin);
        }
        // One after another: where the tail is exchanged by compare-and-swap, arriving all at once is quadratic.
        cpu.compute(ARRIVAL_NS * u64::from(number.0));
        L::lock(&cpu, &self.word);
        assert_eq!(self.holder.replace(Some(number.0)), None, "two hold the lock");
        // Long enough for all vCPUs to arrive.
        cpu.compute(if self.done.get() == 0 { 100_000_000 } else { 50 });
        self.holder.set(None);
        L::unlock(&cpu, &self.word);
        self.done.set(self.done.get() + 1);
        if self.done.get() == self.machine.cpus() {
            assert_eq!(self.word.get(), 0, "nothing is left in the word");
            self.machine.report(Report::Done { operations: None });
        }
        loop {
            cpu.halt_masked();
        }
    }

    fn interrupt(&self, _: u8) {}
}

/// `vcpus` on as many pCPUs.
fn crowd<L: RawLock<SimCpu> + 'static>(vcpus: u32) -> Outcome {
    let done = Rc::new(Cell::new(0));
    let mut config: Config = config(1, vcpus, 0, 1);
    config.machine.topology = Topology {
        sockets: vcpus.div_ceil(64),
        cores: 64,
        threads: 1,
    };
    // The host's own work is not tested here.
    config.host.hz = 10;
    let outcome = run_images(&config, &CallOff::new(), |_, machine| {
        Box::new(Crowd::<L> {
            machine,
            word: SimWord::new(0),
            holder: Cell::new(None),
            done: done.clone(),
            lock: PhantomData,
        })
    });
    assert_eq!(done.get(), vcpus);
    outcome.unwrap_or_else(|failure| panic!("{failure}"))
}

#[test]
fn a_few_hundred_cpus_queue_in_every_layout() {
    for outcome in [
        crowd::<Qspin<Narrow>>(300),
        crowd::<Qspin<Wide>>(300),
        crowd::<NumerousQspin>(300),
    ] {
        assert!(outcome.engine["operations"] > 300);
    }
}

/// The most CPUs that the narrow layout can name: CPU numbers plus one fit in 14 bits.
#[test]
#[cfg_attr(debug_assertions, ignore = "slow without optimization: cargo test --release")]
fn a_word_for_fewer_than_16384_cpus_names_16383() {
    crowd::<Qspin<Narrow>>(16_383);
}

#[test]
#[cfg_attr(debug_assertions, ignore = "slow without optimization: cargo test --release")]
fn words_for_more_cpus_name_16384_and_beyond() {
    crowd::<Qspin<Wide>>(16_384);
    crowd::<NumerousQspin>(16_384);
}
