//! The contract between locks and platforms, as properties that any platform can test.
//!
//! A platform implements [`World`] and calls [`check`] for each [`LockKind`]. If a property does not hold, the job that
//! detects it panics. A lost kick shows as a job that never ends, which the world must detect.
//!
//! **Words and atomics only**: the suite's jobs share only the platform's words, spinlocks of plain data over these
//! words, and atomics. So a job may move to another thread if the words may. A world on one thread does not need such
//! words.

#![expect(
    unsafe_code,
    reason = "jobs change threads on platforms whose words may be shared between threads"
)]

mod rwlock;

pub use rwlock::{check_fair_rwlock, check_rwlock, readers_and_writers, readers_together, waiting_writer};

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::cpu::paravirt::Paravirt;
use crate::cpu::platform::{Budget, CpuId, Platform, Word, wait_for};
use crate::cpu::queue::Nodes;
use crate::spin::exclusive::Exclusive;
use crate::spin::guard::SpinLock;
use crate::spin::kind::{LockKind, match_kind, with_algorithm};

/// The work of one CPU.
pub struct Job<C>(Box<dyn FnOnce(&C)>);

// SAFETY: `new` takes only closures that are `Send`. Closures given to `of_suite` are made in this module and share
// **Words and atomics only**: they are `Send` if words are `Send` and `Sync`.
unsafe impl<C: Platform<Word: Send + Sync>> Send for Job<C> {}

impl<C> Job<C> {
    /// Makes a job of the caller's own.
    pub fn new(body: impl FnOnce(&C) + Send + 'static) -> Self {
        Job(Box::new(body))
    }

    /// Makes a job of this suite, whose `body` must share **Words and atomics only**.
    fn of_suite(body: impl FnOnce(&C) + 'static) -> Self {
        Job(Box::new(body))
    }

    /// Runs the job on `cpu`.
    pub fn run(self, cpu: &C) {
        (self.0)(cpu);
    }
}

impl<C> fmt::Debug for Job<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").finish_non_exhaustive()
    }
}

/// The CPUs of one machine, on which jobs run: host threads, contexts in virtual time, or tasks of a model checker.
pub trait World {
    /// The type of a CPU.
    type Cpu: Nodes + Paravirt + 'static;

    /// Returns the number of CPUs, at least two.
    fn cpus(&self) -> u32;
    /// Returns how often the properties repeat their attempts.
    fn rounds(&self) -> u32;
    /// Runs each job on its CPU, all at the same time, with interrupts enabled. Returns when all jobs have ended. No
    /// CPU is named twice. Effects of earlier runs on the CPUs, such as pending kicks, may remain.
    fn run(&self, jobs: Vec<(CpuId, Job<Self::Cpu>)>);
    /// Interrupts `target`, which runs `handler` with interrupts masked as soon as its interrupts are enabled. Called
    /// on another CPU of this world. Returns `false` if this world has no interrupts.
    fn interrupt(cpu: &Self::Cpu, target: CpuId, handler: Job<Self::Cpu>) -> bool {
        let _ = (cpu, target, handler);
        false
    }
}

type WordOf<W> = <<W as World>::Cpu as Platform>::Word;

/// Checks all properties that `kind` promises.
///
/// # Panics
/// If a property does not hold, or if the lock is of another crate: [`check_lock`] is for those.
pub fn check<W: World>(world: &W, kind: LockKind) {
    with_algorithm!(kind, L => check_lock::<L, W>(world), _lock => panic!("{kind} is checked as a type"));
}

/// Checks all properties that `L` promises and [states](crate::Described).
///
/// # Panics
/// If a property does not hold.
pub fn check_lock<L, W: World>(world: &W)
where
    L: Exclusive<W::Cpu> + 'static,
{
    exclusion::<L, W>(world);
    try_lock::<L, W>(world);
    no_lost_kick::<L, W>(world);
    nested_interrupt::<L, W>(world);
    if L::MAY_BE_FREED_AT_ONCE {
        word_untouched_after_release::<L, W>(world);
    }
    if L::FIFO {
        // The low byte says that the lock is held, and whether a waiter halts. Arrivals change higher bits. A ticket
        // lock that looks at its flag after the release has it in the tail.
        let flags = if L::MAY_BE_FREED_AT_ONCE { 0xff } else { 0xff | 1 << 16 };
        fifo_order::<L, W>(world, flags);
    }
    if L::DRAWS_TICKETS {
        // Head and tail a few tickets before they wrap.
        ticket_wrap::<L, W>(world, 0xfffc_fffc);
    }
}

/// Makes one job for each of `cpus` from one function.
fn on_each<C: Platform + 'static>(
    cpus: impl IntoIterator<Item = u32>,
    body: impl Fn(&C) + Clone + 'static,
) -> Vec<(CpuId, Job<C>)> {
    let job = |number| {
        let body = body.clone();
        (CpuId(number), Job::of_suite(move |cpu: &C| body(cpu)))
    };
    cpus.into_iter().map(job).collect()
}

fn pause<P: Platform>(cpu: &P, times: u32) {
    for _ in 0..times {
        cpu.relax();
    }
}

/// Checks that no two CPUs hold the lock at the same time and that each holder sees what the previous ones wrote. CPU 0
/// and the highest CPU also contend on their own.
pub fn exclusion<L, W: World>(world: &W)
where
    L: Exclusive<W::Cpu> + 'static,
{
    let (cpus, rounds) = (world.cpus(), world.rounds());
    let total = contend::<L, W>(world, 0..cpus, WordOf::<W>::new(0), rounds, 1);
    assert_eq!(
        total,
        u64::from(cpus) * u64::from(rounds),
        "updates under the lock were lost"
    );
    let (cpus, both) = ([0, cpus - 1], 2 * u64::from(rounds));
    let total = contend::<L, W>(world, cpus, WordOf::<W>::new(0), rounds, 0);
    assert_eq!(total, both, "updates of first and last CPU were lost");
}

/// Checks that no ticket is lost when tickets wrap. `initial` is the word of a free lock shortly before the wrap.
pub fn ticket_wrap<L, W: World>(world: &W, initial: u32)
where
    L: Exclusive<W::Cpu> + 'static,
{
    let (cpus, rounds) = (world.cpus(), world.rounds().max(4));
    let total = contend::<L, W>(world, 0..cpus, WordOf::<W>::new(initial), rounds, 1);
    assert_eq!(
        total,
        u64::from(cpus) * u64::from(rounds),
        "updates under the lock were lost"
    );
}

/// Checks that all waiters that had time to halt are woken.
pub fn no_lost_kick<L, W: World>(world: &W)
where
    L: Exclusive<W::Cpu> + 'static,
{
    let (cpus, rounds) = (world.cpus(), world.rounds().div_ceil(4));
    let hold = u32::MAX;
    let total = contend::<L, W>(world, 0..cpus, WordOf::<W>::new(0), rounds, hold);
    assert_eq!(
        total,
        u64::from(cpus) * u64::from(rounds),
        "updates under the lock were lost"
    );
}

/// Lets each of `cpus` take the lock `rounds` times and hold it for `hold` PAUSEs. `u32::MAX` stands for longer than a
/// waiter spins. Returns the number of updates that the lock's data received.
fn contend<L, W: World>(world: &W, cpus: impl IntoIterator<Item = u32>, word: WordOf<W>, rounds: u32, hold: u32) -> u64
where
    L: Exclusive<W::Cpu> + 'static,
{
    let lock = Arc::new(SpinLock::<u64, L, _>::from_word(word, 0));
    let inside = Arc::new(AtomicU32::new(0));
    let shared = Arc::clone(&lock);
    world.run(on_each(cpus, move |cpu: &W::Cpu| {
        let hold = if hold == u32::MAX { 2 * spins(cpu) } else { hold };
        for _ in 0..rounds {
            let mut total = shared.lock(cpu);
            assert_eq!(inside.fetch_add(1, Relaxed), 0, "two CPUs hold the lock");
            pause(cpu, hold);
            *total += 1;
            assert_eq!(inside.fetch_sub(1, Relaxed), 1, "two CPUs held the lock");
        }
    }));
    world.run(on_each(0..1, |cpu: &W::Cpu| {
        assert!(
            cpu.waiting().is_idle(cpu),
            "a waiter is registered or listed although no CPU holds or waits for a lock"
        );
    }));
    Arc::into_inner(lock).expect("all jobs are done").into_inner()
}

/// Returns for how many iterations a waiter spins before it halts, or a small number if it never halts.
fn spins<P: Paravirt>(cpu: &P) -> u32 {
    match cpu.spin_threshold() {
        Budget::UNBOUNDED => 16,
        threshold => threshold.0 + 1,
    }
}

/// A step counter by which jobs wait for each other.
struct Gate<W>(W);

impl<W: Word<u32>> Gate<W> {
    fn open<P: Platform<Word = W>>(&self, cpu: &P, step: u32) {
        // ORDERING: Release; pairs with the Acquire in `pass`: a job that passes sees all writes from before this step.
        cpu.store(&self.0, step, Release);
    }

    fn pass<P: Platform<Word = W>>(&self, cpu: &P, step: u32) {
        // ORDERING: Acquire; pairs with the Release in `open`.
        wait_for(cpu, &self.0, Acquire, |reached| reached >= step);
    }
}

/// Checks that `try_lock` takes a free lock and fails on a held lock, on the holder's CPU and on another.
pub fn try_lock<L, W: World>(world: &W)
where
    L: Exclusive<W::Cpu> + 'static,
{
    let lock = Arc::new((WordOf::<W>::new(0), Gate(WordOf::<W>::new(0))));
    let other = Arc::clone(&lock);
    let holder = Job::of_suite(move |cpu: &W::Cpu| {
        let (word, gate) = &*lock;
        assert!(!L::is_locked(cpu, word), "a new lock is held");
        assert!(L::try_lock(cpu, word), "a free lock was refused");
        assert!(!L::try_lock(cpu, word), "a held lock was given to its holder again");
        assert!(L::is_locked(cpu, word), "a held lock reports that it is free");
        gate.open(cpu, 1);
        gate.pass(cpu, 2);
        L::unlock(cpu, word);
        gate.open(cpu, 3);
    });
    let other = Job::of_suite(move |cpu: &W::Cpu| {
        let (word, gate) = &*other;
        gate.pass(cpu, 1);
        assert!(!L::try_lock(cpu, word), "a held lock was given to a second CPU");
        gate.open(cpu, 2);
        gate.pass(cpu, 3);
        assert!(L::try_lock(cpu, word), "a released lock was refused");
        assert!(
            !L::is_contended(cpu, word),
            "a lock without waiters reports that it is contended"
        );
        L::unlock(cpu, word);
        assert!(!L::is_locked(cpu, word), "a released lock reports that it is held");
    });
    world.run([(CpuId(0), holder), (CpuId(1), other)].into());
}

/// Checks that waiters are served in the order of their arrival. Whatever the algorithm, an arrival changes the word.
/// The bits `flags` are ignored: they mean held, or that a waiter halts.
pub fn fifo_order<L, W: World>(world: &W, flags: u32)
where
    L: Exclusive<W::Cpu> + 'static,
{
    struct Queue<Wd> {
        lock: Wd,
        gate: Gate<Wd>,
        served: AtomicU32,
    }
    let new = || WordOf::<W>::new(0);
    let queue = Arc::new(Queue {
        lock: new(),
        gate: Gate(new()),
        served: AtomicU32::new(0),
    });
    let cpus = world.cpus();
    world.run(on_each(0..cpus, move |cpu: &W::Cpu| {
        let Queue { lock, gate, served } = &*queue;
        let me = cpu.cpu().0;
        if me == 0 {
            L::lock(cpu, lock);
            for waiter in 1..cpus {
                // ORDERING: Relaxed, both; only the change matters.
                let before = cpu.load(lock, Relaxed) & !flags;
                gate.open(cpu, waiter);
                wait_for(cpu, lock, Relaxed, |now| now & !flags != before);
            }
        } else {
            gate.pass(cpu, me);
            L::lock(cpu, lock);
        }
        assert_eq!(served.fetch_add(1, Relaxed), me, "served out of order");
        L::unlock(cpu, lock);
    }));
}

/// Checks that a waiter is still woken if it is interrupted, halted or not, by a handler that waits for another lock.
pub fn nested_interrupt<L, W: World>(world: &W)
where
    L: Exclusive<W::Cpu> + 'static,
{
    struct Shared<Wd> {
        task_lock: Wd,
        interrupt_lock: Wd,
        gate: Gate<Wd>,
    }
    for round in 0..world.rounds().div_ceil(4) {
        let new = || WordOf::<W>::new(0);
        let shared = Arc::new(Shared {
            task_lock: new(),
            interrupt_lock: new(),
            gate: Gate(new()),
        });
        let waiter = Arc::clone(&shared);
        let waiter = Job::of_suite(move |cpu: &W::Cpu| {
            waiter.gate.pass(cpu, 1);
            L::lock(cpu, &waiter.task_lock);
            L::unlock(cpu, &waiter.task_lock);
            waiter.gate.pass(cpu, 2);
        });
        let holder = Job::of_suite(move |cpu: &W::Cpu| {
            L::lock(cpu, &shared.task_lock);
            L::lock(cpu, &shared.interrupt_lock);
            shared.gate.open(cpu, 1);
            pause(cpu, round * spins(cpu) / 4);
            let handler = Arc::clone(&shared);
            let interrupted = W::interrupt(
                cpu,
                CpuId(0),
                Job::of_suite(move |cpu| {
                    L::lock(cpu, &handler.interrupt_lock);
                    L::unlock(cpu, &handler.interrupt_lock);
                    handler.gate.open(cpu, 2);
                }),
            );
            pause(cpu, round * spins(cpu) / 4);
            L::unlock(cpu, &shared.interrupt_lock);
            L::unlock(cpu, &shared.task_lock);
            if !interrupted {
                shared.gate.open(cpu, 2);
            }
        });
        world.run([(CpuId(0), waiter), (CpuId(1), holder)].into());
    }
}

/// Checks that `unlock` does not write to the lock once another CPU can hold it: that CPU may have freed the lock.
pub fn word_untouched_after_release<L, W: World>(world: &W)
where
    L: Exclusive<W::Cpu> + 'static,
{
    /// The next content of the lock's memory.
    const REUSED: u32 = 0x5eed_5eed;
    struct Short<Wd> {
        lock: Wd,
        uses: AtomicU32,
    }
    let new = |_| Short {
        lock: WordOf::<W>::new(0),
        uses: AtomicU32::new(0),
    };
    let locks: Arc<[_]> = (0..world.rounds()).map(new).collect();
    let after = Arc::clone(&locks);
    world.run(on_each(0..2, move |cpu: &W::Cpu| {
        for Short { lock, uses } in &*locks {
            L::lock(cpu, lock);
            let last = uses.fetch_add(1, Relaxed) == 1;
            L::unlock(cpu, lock);
            if last {
                // ORDERING: Relaxed; the lock is no longer used.
                cpu.store(lock, REUSED, Relaxed);
            }
        }
    }));
    world.run(on_each(0..1, move |cpu: &W::Cpu| {
        for Short { lock, .. } in &*after {
            // ORDERING: Relaxed; all other jobs are done.
            assert_eq!(
                cpu.load(lock, Relaxed),
                REUSED,
                "unlock wrote to a lock that it had released"
            );
        }
    }));
}
