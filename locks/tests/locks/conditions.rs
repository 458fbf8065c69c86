//! Condition variables: no notification is lost, waiters are served in order, and few wake at a time.

#![expect(unsafe_code, reason = "plants faults")]

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use holdfast_locks::conformance::Job;
use holdfast_locks::{
    AllSteps, Budget, Condvar, CondvarSlot, CondvarTable, CpuId, Platform, PvQspin, RawLock, Steps, Ticket, Word,
};

use crate::explore::{Calm, Random, RandomWalk, every_schedule, random_schedules};
use crate::scenes::job;
use crate::steps::{Machine, Setup, StepAddress, StepCpu, StepWord};

/// Defines a set of steps with one left out.
macro_rules! without {
    ($fault:ident, $step:ident) => {
        struct $fault;
        // SAFETY: the tests protect no memory with these locks.
        unsafe impl Steps for $fault {
            const $step: bool = false;
        }
    };
}
without!(NoKick, KICK);
without!(UnlockFirst, ENLIST_FIRST);
without!(NoChain, PASS_ON);
without!(Careless, LEAVE_RECHECK);

/// A count that a mutex protects, and a condition variable for its changes. `L` is the kind of the mutex. The lock of
/// the lists kicks no CPU, so all kicks are the condition variable's.
struct Count<L, S = AllSteps> {
    mutex: StepWord,
    changed: Condvar<StepWord, Ticket, S>,
    table: CondvarTable<StepWord, StepAddress>,
    count: AtomicU32,
    /// CPU `n` may come once this is `n`.
    turn: StepWord,
    algorithm: std::marker::PhantomData<fn() -> L>,
}

impl<L: RawLock<StepCpu> + 'static, S: Steps + 'static> Count<L, S> {
    fn new(cpus: u32) -> Arc<Self> {
        Arc::new(Count {
            mutex: StepWord::new(0),
            changed: Condvar::new(),
            table: CondvarTable::new(cpus as usize),
            count: AtomicU32::new(0),
            turn: StepWord::new(0),
            algorithm: std::marker::PhantomData,
        })
    }

    fn lock(&self, cpu: &StepCpu) {
        L::lock(cpu, &self.mutex);
    }

    fn unlock(&self, cpu: &StepCpu) {
        L::unlock(cpu, &self.mutex);
    }

    fn wait(&self, cpu: &StepCpu, expired: impl FnMut() -> bool) -> bool {
        let notified = self.changed.wait::<_, L>(cpu, &self.table, &self.mutex, expired);
        assert!(L::is_locked(cpu, &self.mutex), "the waiter returns without the mutex");
        notified
    }

    /// Adds one once `until` accepts the count.
    fn add_once(&self, cpu: &StepCpu, until: impl Fn(u32) -> bool) {
        self.lock(cpu);
        while !until(self.count.load(Relaxed)) {
            assert!(self.wait(cpu, || false), "a wait without a limit has ended by itself");
        }
        self.count.fetch_add(1, Relaxed);
        self.unlock(cpu);
    }

    /// Lets CPU `number` wait, and returns when it does. The caller does not hold the mutex.
    fn admit(&self, cpu: &StepCpu, number: u32) {
        cpu.store(&self.turn, number, Relaxed);
        let _ = cpu.wait_until(&self.turn, Budget::UNBOUNDED, Relaxed, |turn| turn == 0);
        // The waiter joins the list before it unlocks the mutex.
        self.lock(cpu);
        self.unlock(cpu);
    }

    /// Waits until the turn has come to this CPU, then for a notification. Returns with the mutex.
    fn wait_in_turn(&self, cpu: &StepCpu, expired: impl FnMut() -> bool) -> bool {
        let CpuId(me) = cpu.cpu();
        let _ = cpu.wait_until(&self.turn, Budget::UNBOUNDED, Relaxed, |turn| turn == me);
        self.lock(cpu);
        cpu.store(&self.turn, 0, Relaxed);
        self.wait(cpu, expired)
    }

    /// Makes the jobs of waiters 1 to `waiters`, which count when they have been notified.
    fn waiters(self: &Arc<Self>, waiters: u32) -> Vec<(CpuId, Job<StepCpu>)> {
        let each = |number| {
            let count = Arc::clone(self);
            let body = move |cpu: &StepCpu| {
                assert!(count.wait_in_turn(cpu, || false));
                count.count.fetch_add(1, Relaxed);
                count.unlock(cpu);
            };
            (CpuId(number), job(body))
        };
        (1..=waiters).map(each).collect()
    }
}

/// Runs a random schedule in which no halt ends for no reason.
fn calmly(cpus: u32, seed: u64, jobs: Vec<(CpuId, Job<StepCpu>)>) -> Rc<Machine> {
    let chooser = Calm(RandomWalk {
        random: Random(seed),
        stride: 3,
    });
    let machine = Machine::new(Setup::new(cpus), Box::new(chooser));
    machine
        .run(jobs)
        .unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
    machine
}

/// The CPUs count in turn, `rounds` times each, and notify one or all.
fn turns<L, S>(cpus: u32, rounds: u32) -> Vec<(CpuId, Job<StepCpu>)>
where
    L: RawLock<StepCpu> + 'static,
    S: Steps + 'static,
{
    let count = Count::<L, S>::new(cpus);
    let each = |number| {
        let count = Arc::clone(&count);
        let body = move |cpu: &StepCpu| {
            for _ in 0..rounds {
                count.add_once(cpu, |sum| sum % cpus == number);
                if cpus > 2 {
                    count.changed.notify_all(cpu, &count.table, 1);
                } else {
                    count.changed.notify_one(cpu, &count.table);
                }
            }
        };
        (CpuId(number), job(body))
    };
    (0..cpus).map(each).collect()
}

#[test]
fn no_notification_is_lost_in_any_schedule() {
    every_schedule(Setup::new(2), 3, || turns::<PvQspin, AllSteps>(2, 1)).expect("every turn comes");
    for cpus in [2, 3, 5] {
        let runs = 3000 / u64::from(cpus);
        random_schedules(Setup::new(cpus), runs, || turns::<PvQspin, AllSteps>(cpus, 3)).expect("every turn comes");
        random_schedules(Setup::new(cpus), runs, || turns::<Ticket, AllSteps>(cpus, 3)).expect("every turn comes");
    }
}

#[test]
fn without_a_step_a_waiter_sleeps_on() {
    fn fails<S: Steps + 'static>(cpus: u32, what: &str) {
        let found = random_schedules(Setup::new(cpus), 3000, || turns::<PvQspin, S>(cpus, 3));
        assert!(found.is_err(), "{what} goes unnoticed");
    }
    fails::<NoKick>(2, "a missing kick");
    fails::<UnlockFirst>(2, "a mutex that is unlocked too early");
    fails::<NoChain>(3, "a chain that is not passed on");
}

/// CPU 0 adds one and notifies one waiter. CPU 1 waits impatiently, and passes on what it has got. CPU 2 takes the one.
fn impatient<S: Steps + 'static>() -> Vec<(CpuId, Job<StepCpu>)> {
    let count = Count::<PvQspin, S>::new(3);
    let [first, second, third] = [(); 3].map(|()| Arc::clone(&count));
    let giver = job(move |cpu| {
        first.add_once(cpu, |_| true);
        first.changed.notify_one(cpu, &first.table);
    });
    let impatient = job(move |cpu| {
        second.lock(cpu);
        let notified = second.wait(cpu, || true);
        second.unlock(cpu);
        if notified {
            second.changed.notify_one(cpu, &second.table);
        }
    });
    let patient = job(move |cpu| third.add_once(cpu, |sum| sum > 0));
    vec![(CpuId(0), giver), (CpuId(1), impatient), (CpuId(2), patient)]
}

#[test]
fn a_waiter_whose_time_is_up_keeps_no_notification() {
    random_schedules(Setup::new(3), 20_000, impatient::<AllSteps>).expect("no schedule hangs");
    random_schedules(Setup::new(3), 20_000, impatient::<Careless>).expect_err("the notification is lost");
}

/// CPU 0 adds one and notifies all, three times. CPUs 1 and 2 wait for the sum, and lose patience with every second
/// look. CPUs 3 and 4 wait for it without a limit.
fn patient_and_impatient() -> Vec<(CpuId, Job<StepCpu>)> {
    const SUM: u32 = 3;
    let count = Count::<Ticket>::new(5);
    let each = |number: u32| {
        let count = Arc::clone(&count);
        let body = move |cpu: &StepCpu| {
            if number == 0 {
                for _ in 0..SUM {
                    count.add_once(cpu, |_| true);
                    count.changed.notify_all(cpu, &count.table, 1);
                }
                return;
            }
            count.lock(cpu);
            while count.count.load(Relaxed) < SUM {
                let mut looks = 0;
                count.wait(cpu, || {
                    looks += 1;
                    number < 3 && looks % 2 == 0
                });
            }
            count.unlock(cpu);
        };
        (CpuId(number), job(body))
    };
    (0..5).map(each).collect()
}

#[test]
fn a_waiter_whose_time_is_up_in_the_chain_breaks_no_chain() {
    random_schedules(Setup::new(5), 3_000, patient_and_impatient).expect("all notifications arrive");
}

#[test]
fn the_longest_waiter_is_notified_first() {
    const WAITERS: u32 = 4;
    for seed in 0..30 {
        let count = Count::<Ticket>::new(WAITERS + 1);
        let mut jobs = count.waiters(0);
        let order = Arc::new(AtomicU32::new(0));
        jobs.extend((1..=WAITERS).map(|number| {
            let (count, order) = (Arc::clone(&count), Arc::clone(&order));
            let body = move |cpu: &StepCpu| {
                assert!(count.wait_in_turn(cpu, || false));
                assert_eq!(order.fetch_add(1, Relaxed) + 1, number, "a place in the order");
                count.unlock(cpu);
            };
            (CpuId(number), job(body))
        }));
        let notifier = job(move |cpu| {
            (1..=WAITERS).for_each(|number| count.admit(cpu, number));
            for number in 1..=WAITERS {
                assert!(count.changed.notify_one(cpu, &count.table), "a waiter is forgotten");
                let _ = (0..200).find(|_| {
                    cpu.relax();
                    order.load(Relaxed) == number
                });
            }
            assert!(
                !count.changed.notify_one(cpu, &count.table),
                "there is a waiter that does not wait"
            );
            assert_eq!(count.changed.notify_all(cpu, &count.table, 1), 0);
        });
        jobs.push((CpuId(0), notifier));
        calmly(WAITERS + 1, seed, jobs);
    }
}

/// Returns how many kicks CPUs 0 to `last` have sent.
fn kicks(machine: &Machine, last: u32) -> u32 {
    (0..=last).map(|cpu| machine.kicks(cpu)).sum()
}

/// CPU 0 notifies `waiters` waiters with the mutex held, then looks how many compete for the mutex.
fn awake_after_broadcast(waiters: u32, at_once: u32, seed: u64) -> u32 {
    let count = Count::<Ticket>::new(waiters + 1);
    let mut jobs = count.waiters(waiters);
    let awake = Arc::new(AtomicU32::new(0));
    let (notifier, seen) = (Arc::clone(&count), Arc::clone(&awake));
    let body = move |cpu: &StepCpu| {
        (1..=waiters).for_each(|number| notifier.admit(cpu, number));
        notifier.lock(cpu);
        let notified = notifier.changed.notify_all(cpu, &notifier.table, at_once);
        assert_eq!(notified, waiters, "waiters that were notified");
        (0..100 * waiters).for_each(|_| cpu.relax());
        // Upper half: tickets drawn; lower half: tickets served. The holder has one.
        let word = cpu.load(&notifier.mutex, Relaxed);
        seen.store((word >> 16) - (word & 0xffff) - 1, Relaxed);
        notifier.unlock(cpu);
    };
    jobs.push((CpuId(0), job(body)));
    let machine = calmly(waiters + 1, seed, jobs);
    assert_eq!(count.count.load(Relaxed), waiters, "a waiter has not gone on");
    assert_eq!(kicks(&machine, waiters), waiters, "each waiter is kicked once");
    awake.load(Relaxed)
}

#[test]
fn as_many_waiters_wake_as_can_run_while_the_mutex_is_held() {
    for seed in 0..10 {
        for (waiters, at_once) in [(1, 1), (4, 1), (4, 2), (4, 3), (4, 4), (4, 9)] {
            let awake = awake_after_broadcast(waiters, at_once, seed);
            assert_eq!(awake, at_once.min(waiters), "{waiters} waiters, {at_once} at once");
        }
    }
}

/// CPU 0 notifies all waiters without the mutex, and then itself waits in vain: it wakes no further waiter.
fn broadcast_and_give_up(waiters: u32, seed: u64) {
    let count = Count::<Ticket>::new(waiters + 1);
    let mut jobs = count.waiters(waiters);
    let notifier = Arc::clone(&count);
    let body = move |cpu: &StepCpu| {
        (1..=waiters).for_each(|number| notifier.admit(cpu, number));
        assert_eq!(notifier.changed.notify_all(cpu, &notifier.table, 1), waiters);
        notifier.lock(cpu);
        assert!(!notifier.wait(cpu, || true), "no CPU has notified it");
        notifier.unlock(cpu);
    };
    jobs.push((CpuId(0), job(body)));
    let machine = calmly(waiters + 1, seed, jobs);
    let sent: Vec<u32> = (0..=waiters).map(|cpu| machine.kicks(cpu)).collect();
    assert!(
        sent.iter().all(|&kicks| kicks <= 1),
        "seed {seed}: a CPU wakes two: {sent:?}"
    );
    assert_eq!(count.count.load(Relaxed), waiters, "a waiter has not gone on");
}

#[test]
fn each_waiter_that_was_notified_wakes_one_more() {
    for seed in 0..300 {
        broadcast_and_give_up(4, seed);
    }
}

/// A waiter in the middle of the list leaves it when its time is up, at the moment `when`: 0 before the broadcast, 1
/// when it is in the chain. The others are all woken.
fn one_leaves(leaver: u32, waiters: u32, when: u32, seed: u64) {
    let count = Count::<Ticket>::new(waiters + 1);
    let late = Arc::new(StepWord::new(0));
    let mut jobs = count.waiters(waiters);
    jobs.retain(|(cpu, _)| cpu.0 != leaver);
    let (leaving, time) = (Arc::clone(&count), Arc::clone(&late));
    let body = move |cpu: &StepCpu| {
        let notified = leaving.wait_in_turn(cpu, || cpu.load(&time, Relaxed) == 1);
        assert_eq!(notified, when == 1, "CPU {leaver} says whether it was notified");
        cpu.store(&time, 2, Relaxed);
        leaving.count.fetch_add(1, Relaxed);
        leaving.unlock(cpu);
    };
    jobs.push((CpuId(leaver), job(body)));
    let notifier = Arc::clone(&count);
    let body = move |cpu: &StepCpu| {
        (1..=waiters).for_each(|number| notifier.admit(cpu, number));
        let expire = || {
            cpu.store(&late, 1, Relaxed);
            holdfast_locks::Paravirt::kick(cpu, CpuId(leaver));
        };
        if when == 0 {
            expire();
            let _ = cpu.wait_until(&late, Budget::UNBOUNDED, Relaxed, |time| time == 2);
            let notified = notifier.changed.notify_all(cpu, &notifier.table, 1);
            assert_eq!(notified, waiters - 1, "one has left");
            return;
        }
        notifier.lock(cpu);
        assert_eq!(notifier.changed.notify_all(cpu, &notifier.table, 1), waiters);
        expire();
        (0..200).for_each(|_| cpu.relax());
        notifier.unlock(cpu);
    };
    jobs.push((CpuId(0), job(body)));
    let machine = calmly(waiters + 1, seed, jobs);
    assert_eq!(count.count.load(Relaxed), waiters, "a waiter has not gone on");
    assert_eq!(
        kicks(&machine, waiters),
        waiters,
        "a waiter that has left is kicked again"
    );
}

#[test]
fn a_waiter_that_leaves_takes_no_other_with_it() {
    for seed in 0..10 {
        for waiters in 1..=4 {
            (1..=waiters).for_each(|leaver| one_leaves(leaver, waiters, 0, seed));
            (2..=waiters).for_each(|leaver| one_leaves(leaver, waiters, 1, seed));
        }
    }
}

#[test]
fn a_waiter_with_another_mutex_wakes_at_once() {
    for seed in 0..30 {
        let count = Count::<Ticket>::new(4);
        let other = Arc::new(StepWord::new(0));
        // CPUs 1 and 3 wait with the mutex, CPU 2 with another one.
        let mut jobs = count.waiters(3);
        jobs.remove(1);
        let (second, its) = (Arc::clone(&count), Arc::clone(&other));
        let body = move |cpu: &StepCpu| {
            let _ = cpu.wait_until(&second.turn, Budget::UNBOUNDED, Relaxed, |turn| turn == 2);
            Ticket::lock(cpu, &its);
            cpu.store(&second.turn, 0, Relaxed);
            assert!(second.changed.wait::<_, Ticket>(cpu, &second.table, &its, || false));
            second.count.fetch_add(1, Relaxed);
            Ticket::unlock(cpu, &its);
        };
        jobs.push((CpuId(2), job(body)));
        let notifier = Arc::clone(&count);
        let body = move |cpu: &StepCpu| {
            notifier.admit(cpu, 1);
            cpu.store(&notifier.turn, 2, Relaxed);
            let _ = cpu.wait_until(&notifier.turn, Budget::UNBOUNDED, Relaxed, |turn| turn == 0);
            Ticket::lock(cpu, &other);
            Ticket::unlock(cpu, &other);
            notifier.admit(cpu, 3);
            notifier.lock(cpu);
            assert_eq!(notifier.changed.notify_all(cpu, &notifier.table, 1), 3);
            (0..300).for_each(|_| cpu.relax());
            assert_eq!(notifier.count.load(Relaxed), 1, "CPU 2 depends on the others' mutex");
            notifier.unlock(cpu);
        };
        jobs.push((CpuId(0), job(body)));
        calmly(4, seed, jobs);
        assert_eq!(count.count.load(Relaxed), 3, "a waiter has not gone on");
    }
}

#[test]
fn a_cpu_in_an_nmi_gives_the_others_time_and_does_not_halt() {
    for expires in [false, true] {
        let count = Count::<Ticket>::new(2);
        let [in_nmi, other] = [(); 2].map(|()| Arc::clone(&count));
        let body = move |cpu: &StepCpu| {
            cpu.nmi(|cpu| {
                in_nmi.lock(cpu);
                cpu.store(&in_nmi.turn, 1, Relaxed);
                while in_nmi.count.load(Relaxed) == 0 {
                    assert_eq!(in_nmi.wait(cpu, || expires), !expires);
                }
                in_nmi.unlock(cpu);
            });
        };
        let other = job(move |cpu| {
            let _ = cpu.wait_until(&other.turn, Budget::UNBOUNDED, Relaxed, |turn| turn == 1);
            other.add_once(cpu, |_| true);
            assert_eq!(
                other.changed.notify_all(cpu, &other.table, 1),
                0,
                "no CPU is in the list"
            );
        });
        let machine = calmly(2, 1, vec![(CpuId(0), job(body)), (CpuId(1), other)]);
        assert_eq!(machine.halts(0), 0);
        // A thread yields twice in this time, at iterations 65 and 67: see `holdfast_locks::thread`.
        let waits = machine.waits(0);
        assert!(
            !waits.is_empty() && waits.iter().all(|&budget| budget > 66),
            "{waits:?}"
        );
    }
}

#[test]
fn a_table_and_a_condition_variable_may_be_static() {
    const ZERO: fn() -> StepWord = || StepWord::new(0);
    let slots = || CondvarSlot::from_words(ZERO(), ZERO(), ZERO(), StepAddress::new(0));
    let slots: &'static [_] = Vec::leak((0..2).map(|_| slots()).collect());
    let shared = Arc::new((
        Condvar::<StepWord, PvQspin>::from_words(ZERO(), ZERO(), ZERO()),
        CondvarTable::from_static(slots),
        [ZERO(), ZERO()],
    ));
    let other = Arc::clone(&shared);
    let waiter = job(move |cpu| {
        let (changed, table, [mutex, flag]) = &*shared;
        Ticket::lock(cpu, mutex);
        cpu.store(flag, 1, Relaxed);
        assert!(changed.wait::<_, Ticket>(cpu, table, mutex, || false));
        Ticket::unlock(cpu, mutex);
    });
    let notifier = job(move |cpu| {
        let (changed, table, [mutex, flag]) = &*other;
        let _ = cpu.wait_until(flag, Budget::UNBOUNDED, Relaxed, |waits| waits == 1);
        Ticket::lock(cpu, mutex);
        assert!(changed.notify_one(cpu, table));
        Ticket::unlock(cpu, mutex);
    });
    calmly(2, 1, vec![(CpuId(1), waiter), (CpuId(0), notifier)]);
}
