//! Jobs of the CPUs in the tests.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use holdfast_locks::conformance::Job;
use holdfast_locks::{CpuId, Description, Platform, RawLock, Word};

use crate::explore::{Random, RandomWalk};
use crate::steps::{Machine, Setup, StepCpu, StepWord};

pub fn job(body: impl FnOnce(&StepCpu) + Send + 'static) -> Job<StepCpu> {
    Job::new(body)
}

/// A lock and the number of its holders.
pub struct Checked {
    pub word: StepWord,
    inside: AtomicU32,
}

impl Checked {
    pub fn new(word: u32) -> Arc<Self> {
        Arc::new(Checked {
            word: StepWord::new(word),
            inside: AtomicU32::new(0),
        })
    }

    pub fn with<L: RawLock<StepCpu>>(&self, cpu: &StepCpu, body: impl FnOnce()) {
        L::lock(cpu, &self.word);
        assert_eq!(self.inside.fetch_add(1, Relaxed), 0, "two holders");
        cpu.relax();
        body();
        self.inside.fetch_sub(1, Relaxed);
        L::unlock(cpu, &self.word);
    }
}

/// Each CPU takes the lock once.
pub fn contention<L: RawLock<StepCpu> + 'static>(cpus: u32, initial: u32) -> Vec<(CpuId, Job<StepCpu>)> {
    let lock = Checked::new(initial);
    let each = |cpu| {
        let lock = Arc::clone(&lock);
        (CpuId(cpu), job(move |cpu| lock.with::<L>(cpu, || ())))
    };
    (0..cpus).map(each).collect()
}

/// CPU 1 waits for a lock and is interrupted by a handler that waits for another lock.
pub fn interrupted_waiter<L: RawLock<StepCpu> + 'static>() -> Vec<(CpuId, Job<StepCpu>)> {
    let (task, interrupt) = (Checked::new(0), Checked::new(0));
    let waiter = Arc::clone(&task);
    let holder = job(move |cpu| {
        task.with::<L>(cpu, || {
            let handler = Arc::clone(&interrupt);
            interrupt.with::<L>(cpu, || {
                cpu.interrupt(CpuId(1), job(move |cpu| handler.with::<L>(cpu, || ())));
            });
        });
    });
    vec![
        (CpuId(0), holder),
        (CpuId(1), job(move |cpu| waiter.with::<L>(cpu, || ()))),
    ]
}

/// CPUs 1 and 2 wait for a lock that CPU 0 releases, when CPU 1 is interrupted by a handler that waits for another
/// lock, CPU 3's: with the ticket that CPU 2 has for the first.
pub fn equal_tickets<L: RawLock<StepCpu> + 'static>() -> Vec<(CpuId, Job<StepCpu>)> {
    /// Ticket 0 is being served, 2 is the next one drawn.
    const HELD: u32 = 0x0002_0000;
    let (task, interrupt) = (Checked::new(HELD), Checked::new(HELD));
    let (one, two, handled) = (Arc::clone(&task), Arc::clone(&task), Arc::clone(&interrupt));
    let release = |cpu: &StepCpu, lock: &Checked| {
        (0..10).for_each(|_| cpu.relax());
        L::unlock(cpu, &lock.word);
    };
    vec![
        (CpuId(0), job(move |cpu| release(cpu, &task))),
        (CpuId(1), job(move |cpu| one.with::<L>(cpu, || ()))),
        (CpuId(2), job(move |cpu| two.with::<L>(cpu, || ()))),
        (
            CpuId(3),
            job(move |cpu| {
                (0..10).for_each(|_| cpu.relax());
                cpu.interrupt(CpuId(1), job(move |cpu| handled.with::<L>(cpu, || ())));
                release(cpu, &interrupt);
            }),
        ),
    ]
}

/// Each CPU takes the lock `times` times.
pub fn rounds<L: RawLock<StepCpu> + 'static>(cpus: u32, times: u32) -> Vec<(CpuId, Job<StepCpu>)> {
    let lock = Checked::new(0);
    let each = |cpu| {
        let lock = Arc::clone(&lock);
        (
            CpuId(cpu),
            job(move |cpu| (0..times).for_each(|_| lock.with::<L>(cpu, || ()))),
        )
    };
    (0..cpus).map(each).collect()
}

/// A lock of `locks` or of `locks/history`.
#[derive(Clone, Copy)]
pub struct Listed {
    pub name: &'static str,
    pub is: Description,
}

impl Listed {
    pub fn halts(self) -> bool {
        self.is.halts
    }
}

/// Accepts every lock.
pub fn any(_: Listed) -> bool {
    true
}

/// Calls `$callback` with the lists of all locks, one after the other.
macro_rules! for_each_lock {
    ($callback:ident $($argument:tt)*) => {
        holdfast_locks::for_each_lock_kind!($callback $($argument)*);
        holdfast_history::for_each_historic_lock!($callback $($argument)*);
    };
}
pub(crate) use for_each_lock;

/// Calls the generic function `$check` with the type of each lock for which `$applies` returns true, and its name.
macro_rules! for_each_kind {
    ([$applies:expr, $check:ident] $($module:ident: $kind:ident = $name:literal,)+) => {$({
        #[allow(unused_imports, reason = "a lock is in one of them")]
        use {holdfast_history::*, holdfast_locks::*};
        let listed = $crate::scenes::Listed {
            name: $name,
            is: Description::of::<$kind>(),
        };
        if $applies(listed) {
            $check::<$kind>($name);
        }
    })+};
}
pub(crate) use for_each_kind;

/// Runs one schedule, in which each CPU runs as long as it can.
pub fn run_in_turn(cpus: u32, jobs: Vec<(CpuId, Job<StepCpu>)>) -> Rc<Machine> {
    let in_turn = RandomWalk {
        random: Random(0),
        stride: u64::MAX,
    };
    let machine = Machine::new(Setup::new(cpus), Box::new(in_turn));
    machine.run(jobs).expect("no deadlock");
    machine
}
