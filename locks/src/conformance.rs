//! The contract between locks and platforms, as properties that any platform can run.
//!
//! A platform implements [`World`] and calls [`check`] for each [`LockKind`]. A property that does not hold panics in
//! the job that finds out; a lost kick shows as a job that never ends, which is for the world to notice.
//!
//! **Words and atomics only**: what the suite's jobs share are the platform's words, spinlocks of plain data over them,
//! and atomics. Jobs may therefore change threads where words may, and worlds on one thread need no such words.

#![expect(
    unsafe_code,
    reason = "jobs change threads on platforms whose words may be shared between threads"
)]

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::exclusive::Exclusive;
use crate::guard::SpinLock;
use crate::kind::{LockKind, match_kind, with_algorithm};
use crate::paravirt::Paravirt;
use crate::platform::{Budget, CpuId, Platform, Word, wait_for};
use crate::queue::{Nodes, Numa};

/// What one CPU does.
pub struct Job<C>(Box<dyn FnOnce(&C)>);

// SAFETY: `new` takes only what is `Send`. Jobs from `of_suite` are made in this module and keep to **Words and atomics
// only**: they are `Send` if words are `Send` and `Sync`.
unsafe impl<C: Platform<Word: Send + Sync>> Send for Job<C> {}

impl<C> Job<C> {
    /// A job of a test's own.
    pub fn new(body: impl FnOnce(&C) + Send + 'static) -> Self {
        Job(Box::new(body))
    }

    /// See **Words and atomics only**.
    fn of_suite(body: impl FnOnce(&C) + 'static) -> Self {
        Job(Box::new(body))
    }

    /// Does it, on `cpu`.
    pub fn run(self, cpu: &C) {
        (self.0)(cpu);
    }
}

impl<C> fmt::Debug for Job<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").finish_non_exhaustive()
    }
}

/// CPUs of one machine, to run jobs on: host threads, contexts in virtual time, tasks of a model checker.
pub trait World {
    /// A CPU.
    type Cpu: Nodes + Paravirt + Numa + 'static;

    /// How many CPUs there are, at least two.
    fn cpus(&self) -> u32;
    /// How often the properties repeat what they try.
    fn rounds(&self) -> u32;
    /// Runs each job on its CPU, all at the same time, with interrupts enabled; returns when all are done. No CPU is
    /// named twice. What earlier runs did to the CPUs, such as kicks still pending, may remain.
    fn run(&self, jobs: Vec<(CpuId, Job<Self::Cpu>)>);
    /// Interrupts `target`, which runs `handler` with interrupts masked as soon as it has them enabled. Called on
    /// another CPU of this world. False: this world has no interrupts.
    fn interrupt(cpu: &Self::Cpu, target: CpuId, handler: Job<Self::Cpu>) -> bool {
        let _ = (cpu, target, handler);
        false
    }
}

type WordOf<W> = <<W as World>::Cpu as Platform>::Word;

/// All properties that `kind` promises.
pub fn check<W: World>(world: &W, kind: LockKind) {
    with_algorithm!(kind, L => {
        exclusion::<L, W>(world);
        try_lock::<L, W>(world);
        no_lost_kick::<L, W>(world);
        nested_interrupt::<L, W>(world);
        word_untouched_after_release::<L, W>(world);
        if kind.is_fifo() {
            fifo_order::<L, W>(world);
        }
    });
    if kind.draws_tickets() {
        // Head and tail a few tickets before they wrap.
        with_algorithm!(kind, L => ticket_wrap::<L, W>(world, 0xfffc_fffc));
    }
}

/// Makes one job from a function for each of `cpus`, the function being given its CPU.
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

/// No two CPUs hold the lock at once, and each sees what those before it wrote: CPUs 0 and highest included.
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

/// Tickets wrap without losing one. `initial` is a free word shortly before the wrap.
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

/// Waiters that had time to halt are woken, all of them.
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

/// `cpus` take the lock `rounds` times each and keep it for `hold` PAUSEs, `u32::MAX` standing for longer than a waiter
/// spins. Returns how many updates the lock's data saw.
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
            "somebody is registered for a lock that nobody holds"
        );
    }));
    Arc::into_inner(lock).expect("all jobs are done").into_inner()
}

/// How long a waiter spins before it halts; a guess if it never does.
fn spins<P: Paravirt>(cpu: &P) -> u32 {
    match cpu.spin_threshold() {
        Budget::UNBOUNDED => 16,
        threshold => threshold.0 + 1,
    }
}

/// A word on which jobs wait for each other.
struct Gate<W>(W);

impl<W: Word<u32>> Gate<W> {
    fn open<P: Platform<Word = W>>(&self, cpu: &P, step: u32) {
        // ORDERING: Release; pairs with the Acquire in `pass`: what came before this step is over for those after it.
        cpu.store(&self.0, step, Release);
    }

    fn pass<P: Platform<Word = W>>(&self, cpu: &P, step: u32) {
        // ORDERING: Acquire; pairs with the Release in `open`.
        wait_for(cpu, &self.0, Acquire, |reached| reached >= step);
    }
}

/// A free lock can be taken without waiting, a held one cannot, from the holder's CPU or any other.
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
        assert!(L::is_locked(cpu, word), "a held lock says it is free");
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
            "a lock that nobody waits for says it is contended"
        );
        L::unlock(cpu, word);
        assert!(!L::is_locked(cpu, word), "a released lock says it is held");
    });
    world.run([(CpuId(0), holder), (CpuId(1), other)].into());
}

/// Waiters are served in the order of their arrival. Arrival is seen in the word, whatever the algorithm: it changes,
/// bit 0 apart, which is held or a flag.
pub fn fifo_order<L, W: World>(world: &W)
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
                let before = cpu.load(lock, Relaxed) & !1;
                gate.open(cpu, waiter);
                wait_for(cpu, lock, Relaxed, |now| now & !1 != before);
            }
        } else {
            gate.pass(cpu, me);
            L::lock(cpu, lock);
        }
        assert_eq!(served.fetch_add(1, Relaxed), me, "served out of order");
        L::unlock(cpu, lock);
    }));
}

/// A waiter that is interrupted, halted or not, by a handler that waits for another lock is still woken.
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

/// Unlock does not write to the lock once another CPU can hold it: that CPU may have freed it.
pub fn word_untouched_after_release<L, W: World>(world: &W)
where
    L: Exclusive<W::Cpu> + 'static,
{
    /// What the memory is used for next.
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
                // ORDERING: Relaxed; the lock is over.
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
