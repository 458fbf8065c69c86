//! The queued locks: races of the paravirtual ones, changes of the unfair queue, the order of the NUMA-aware one,
//! nesting, and the variants without a kind.

#![expect(unsafe_code, reason = "plants faults")]

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use holdfast_history::{
    AheadPvQspin, CnaQspin, EarlyPvQspin, ExchangeQspin, Numerous, NumerousQspin, SimpleUnfairQspin,
    UnfairWatchingQspin, WatchingQspin,
};
use holdfast_locks::conformance::{Job, exclusion, fifo_order, nested_interrupt, no_lost_kick, try_lock};
use holdfast_locks::{
    AllSteps, Budget, CpuId, Event, Exclusive, HybridPvQspin, Interrupts, Narrow, Paravirt, Platform, PvQspin, Qspin,
    RawLock, Steps, UnfairPvQspin, UnfairQspin, Wide,
};

use crate::explore::{Random, RandomWalk, StepWorld, every_schedule, random_schedules};
use crate::scenes::{
    Checked, Listed, any, contention, for_each_kind, for_each_lock, interrupted_waiter, job, rounds, run_in_turn,
};
use crate::steps::{Machine, Setup, StepCpu};

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
without!(NoRecheck, RECHECK);
without!(NoKick, KICK);
without!(NoRetest, RETEST);
without!(ReleaseFirst, UNLIST_FIRST);
without!(SplitHalt, ATOMIC_HALT);

#[test]
fn no_lost_kick_or_handover_in_any_schedule() {
    fn every<L: RawLock<StepCpu> + 'static>(name: &str) {
        every_schedule(Setup::new(2), 4, || contention::<L>(2, 0)).expect(name);
        every_schedule(Setup::new(3), 2, || contention::<L>(3, 0)).expect(name);
    }
    /// A waiter for `Tas` tries again without waiting on the word: a schedule that never switches to the holder never
    /// ends. Waiters of the watching locks look around without end: `watching` searches as far as time allows.
    fn waits(kind: Listed) -> bool {
        kind.name != "tas" && (kind.halts() || !kind.is.kicks)
    }
    for_each_lock!(for_each_kind waits, every);
    let three = Setup::new(3);
    every_schedule(three, 3, || contention::<Qspin>(3, 0)).expect("no schedule hangs");
    every_schedule(three, 3, || contention::<ExchangeQspin>(3, 0)).expect("no schedule hangs");
}

#[test]
fn random_schedules_of_more_cpus_pass() {
    fn random<L: RawLock<StepCpu> + 'static>(name: &str) {
        random_on::<L>(1, name);
    }
    fn random_on<L: RawLock<StepCpu> + 'static>(numa_nodes: u32, name: &str) {
        for (cpus, runs) in [(3, 1500), (5, 500)] {
            let setup = Setup {
                numa_nodes,
                ..Setup::new(cpus)
            };
            random_schedules(setup, runs, || rounds::<L>(cpus, 3)).expect(name);
        }
    }
    for_each_lock!(for_each_kind any, random);
    random_on::<CnaQspin<1_000_000, 0>>(2, "cna-qspin");
    random_on::<CnaQspin<50_000, 0>>(2, "cna-qspin, flushing");
}

/// Some schedule among `runs` hangs or panics.
fn fails<L: RawLock<StepCpu> + 'static>(what: &str, cpus: u32, times: u32, runs: u64) {
    let search = || random_schedules(Setup::new(cpus), runs, || rounds::<L>(cpus, times));
    let found = std::panic::catch_unwind(search);
    assert!(!matches!(found, Ok(Ok(()))), "{what} goes unnoticed");
}

#[test]
fn without_a_step_a_schedule_fails() {
    fails::<PvQspin<Narrow, NoKick>>("a missing kick", 3, 1, 1000);
    fails::<PvQspin<Narrow, NoRecheck>>("a missing re-check", 3, 2, 1000);
    fails::<PvQspin<Narrow, NoRetest>>("a missing re-test", 3, 3, 20_000);
    fails::<UnfairPvQspin<Narrow, ReleaseFirst>>("a release before the lock is unlisted", 4, 4, 20_000);
    fails::<EarlyPvQspin<Narrow, NoKick>>("a missing kick", 3, 1, 1000);
    fails::<AheadPvQspin<Narrow, NoKick>>("a missing kick", 3, 1, 1000);
    fails::<AheadPvQspin<Narrow, NoRecheck>>("a missing re-check", 3, 2, 1000);
}

/// CPU 1 is about to halt for a lock, and is interrupted by a handler that halts for another; then both are released.
fn interrupted_head<L: RawLock<StepCpu> + 'static>() -> Vec<(CpuId, Job<StepCpu>)> {
    let (task, interrupt) = (Checked::new(0), Checked::new(0));
    let waiter = Arc::clone(&task);
    let holder = job(move |cpu| {
        let listed = |word: u32| word & 0xff == 3;
        L::lock(cpu, &task.word);
        L::lock(cpu, &interrupt.word);
        let _ = cpu.wait_until(&task.word, Budget::UNBOUNDED, Relaxed, listed);
        let handler = Arc::clone(&interrupt);
        cpu.interrupt(CpuId(1), job(move |cpu| handler.with::<L>(cpu, || ())));
        let _ = cpu.wait_until(&interrupt.word, Budget::UNBOUNDED, Relaxed, listed);
        L::unlock(cpu, &interrupt.word);
        L::unlock(cpu, &task.word);
    });
    let waiter = job(move |cpu| {
        let _ = cpu.wait_until(&waiter.word, Budget::UNBOUNDED, Relaxed, |word| word != 0);
        waiter.with::<L>(cpu, || ());
    });
    vec![(CpuId(0), holder), (CpuId(1), waiter)]
}

#[test]
fn interrupted_waiters_are_woken() {
    fn random<L: RawLock<StepCpu> + 'static>(name: &str) {
        random_schedules(Setup::new(2), 5000, interrupted_waiter::<L>).expect(name);
    }
    for_each_lock!(for_each_kind Listed::halts, random);
    let two = Setup::new(2);
    random_schedules(two, 5000, interrupted_head::<PvQspin>).expect("no schedule hangs");
    // The handler shares the kick with the waiter, but not nodes and entries (unlike the ticket lock's record).
    random_schedules(two, 5000, interrupted_head::<PvQspin<Narrow, SplitHalt>>)
        .expect_err("the handler's halt takes the waiter's kick");
}

/// Contention, with one more CPU that kicks the others for no reason.
fn with_stray_kicks<L: RawLock<StepCpu> + 'static>(cpus: u32) -> Vec<(CpuId, Job<StepCpu>)> {
    let mut jobs = rounds::<L>(cpus, 3);
    let kicker = job(move |cpu| {
        let mut random = Random(u64::from(cpus));
        for _ in 0..30 {
            cpu.kick(CpuId(random.below(cpus.into()) as u32));
        }
    });
    jobs.push((CpuId(cpus), kicker));
    jobs
}

#[test]
fn stray_kicks_cost_time_only() {
    fn random<L: RawLock<StepCpu> + 'static>(name: &str) {
        random_schedules(Setup::new(4), 2000, || with_stray_kicks::<L>(3)).expect(name);
    }
    for_each_lock!(for_each_kind Listed::halts, random);
}

fn conforms<L: Exclusive<StepCpu> + 'static>(setup: Setup) {
    let world = StepWorld::new(setup);
    exclusion::<L, _>(&world);
    try_lock::<L, _>(&world);
    no_lost_kick::<L, _>(&world);
    nested_interrupt::<L, _>(&world);
}

#[test]
fn variants_conform() {
    let five = Setup::new(5);
    conforms::<holdfast_history::PreemptableTicket<0>>(five);
    conforms::<PvQspin<Wide>>(five);
    conforms::<UnfairPvQspin<Wide>>(five);
    conforms::<EarlyPvQspin<Wide>>(five);
    fifo_order::<EarlyPvQspin<Wide>, _>(&StepWorld::new(five), 0xff);
    conforms::<AheadPvQspin<Wide>>(Setup::new(16));
    conforms::<UnfairQspin<Wide>>(five);
    conforms::<UnfairQspin<Numerous>>(five);
    conforms::<ExchangeQspin>(five);
    conforms::<NumerousQspin>(five);
    fifo_order::<NumerousQspin, _>(&StepWorld::new(five), 1);
    let numa = Setup { numa_nodes: 2, ..five };
    conforms::<CnaQspin<1_000_000, 0>>(numa);
    conforms::<CnaQspin<10_000, 0>>(numa);
}

/// Lets three CPUs contend: CPU 0, CPU `highest`, and one halfway between.
fn far_apart<L: RawLock<StepCpu> + 'static>(highest: u32) {
    let lock = Checked::new(0);
    let each = |cpu| {
        let lock = Arc::clone(&lock);
        (
            CpuId(cpu),
            job(move |cpu| (0..20).for_each(|_| lock.with::<L>(cpu, || ()))),
        )
    };
    let chooser = RandomWalk {
        random: Random(7),
        stride: 2,
    };
    let machine = Machine::new(Setup::new(highest + 1), Box::new(chooser));
    machine
        .run([0, highest / 2, highest].map(each).into())
        .expect("no deadlock");
}

#[test]
fn first_and_highest_cpu_queue_together() {
    far_apart::<Qspin>(16_382);
    far_apart::<HybridPvQspin>(16_382);
    far_apart::<UnfairQspin>(16_382);
    far_apart::<Qspin<Wide>>(20_000);
    far_apart::<PvQspin<Wide>>(20_000);
}

/// CPU 0 waits for a lock, is interrupted and waits for another, and so on, five levels deep; CPU 1 holds them all, for
/// `pauses` more pauses.
fn five_levels<L: RawLock<StepCpu> + 'static>(pauses: u32) -> std::rc::Rc<Machine> {
    const LEVELS: usize = 5;
    let locks: Arc<[_]> = (0..LEVELS).map(|_| Checked::new(0)).collect();
    fn descend<L: RawLock<StepCpu> + 'static>(cpu: &StepCpu, locks: &Arc<[Arc<Checked>]>, level: usize) {
        cpu.irq_restore(true);
        locks[level].with::<L>(cpu, || ());
    }
    let held = Arc::clone(&locks);
    let holder = job(move |cpu| {
        for lock in &*held {
            L::lock(cpu, &lock.word);
        }
        for level in 1..LEVELS {
            (0..50).for_each(|_| cpu.relax());
            let locks = Arc::clone(&held);
            cpu.interrupt(CpuId(0), job(move |cpu| descend::<L>(cpu, &locks, level)));
        }
        (0..pauses).for_each(|_| cpu.relax());
        for lock in held.iter().rev() {
            L::unlock(cpu, &lock.word);
        }
    });
    let waiter = job(move |cpu| {
        // The holder takes all locks first.
        let _ = cpu.wait_until(&locks[4].word, Budget::UNBOUNDED, Relaxed, |word| word != 0);
        descend::<L>(cpu, &locks, 0);
    });
    let chooser = RandomWalk {
        random: Random(3),
        stride: 2,
    };
    let machine = Machine::new(Setup::new(2), Box::new(chooser));
    machine
        .run(vec![(CpuId(0), waiter), (CpuId(1), holder)])
        .expect("no deadlock");
    machine
}

fn waits_at_five_levels<L: RawLock<StepCpu> + 'static>(name: &str) {
    let machine = five_levels::<L>(50);
    let count = |event| machine.stats.count(event);
    let nested = [
        Event::LockUseNode2,
        Event::LockUseNode3,
        Event::LockUseNode4,
        Event::LockNoNode,
    ]
    .map(count);
    assert_eq!(nested, [1, 1, 1, 1], "{name}");
    // The waiter looks at the word, and tries no exchange as long as the lock is held.
    let longer = five_levels::<L>(5_050).steps() - machine.steps();
    assert!(
        (5_000..5_500).contains(&longer),
        "{name}: {longer} steps in 5000 pauses"
    );
}

#[test]
fn the_fifth_level_of_nesting_waits_without_a_node() {
    waits_at_five_levels::<PvQspin>("pv-qspin");
    waits_at_five_levels::<HybridPvQspin>("hybrid-pv-qspin");
    waits_at_five_levels::<UnfairPvQspin>("unfair-pv-qspin");
    waits_at_five_levels::<EarlyPvQspin>("early-pv-qspin");
    waits_at_five_levels::<UnfairQspin>("unfair-qspin");
    waits_at_five_levels::<SimpleUnfairQspin>("simple-unfair-qspin");
    waits_at_five_levels::<WatchingQspin>("watching-qspin");
    waits_at_five_levels::<UnfairWatchingQspin>("unfair-watching-qspin");
}

/// CPU 0 holds the lock until CPUs 1 to `cpus` - 1 wait for it, in this order. Returns the order of the holders.
fn order_of_service<L: RawLock<StepCpu> + 'static>(cpus: u32, numa_nodes: u32) -> Vec<u32> {
    order_with_masked::<L>(cpus, numa_nodes, None)
}

/// The same with interrupts masked on CPU `masked`, which so waits urgently.
fn order_with_masked<L: RawLock<StepCpu> + 'static>(cpus: u32, numa_nodes: u32, masked: Option<u32>) -> Vec<u32> {
    let lock = Checked::new(0);
    let order = Arc::new(Mutex::new(Vec::new()));
    let gate = Checked::new(0);
    let each = |number| {
        let (lock, order, gate) = (Arc::clone(&lock), Arc::clone(&order), Arc::clone(&gate));
        let body = move |cpu: &StepCpu| {
            if number > 0 {
                let _ = cpu.wait_until(&gate.word, Budget::UNBOUNDED, Relaxed, |open| open >= number);
            }
            if masked == Some(number) {
                cpu.irq_save();
            }
            lock.with::<L>(cpu, || {
                order.lock().unwrap().push(number);
                for waiter in 1..if number == 0 { cpus } else { 0 } {
                    let before = cpu.load(&lock.word, Relaxed);
                    cpu.store(&gate.word, waiter, Relaxed);
                    let _ = cpu.wait_until(&lock.word, Budget::UNBOUNDED, Relaxed, |now| now != before);
                }
                // Time for the head of the queue to sort it.
                (0..300).for_each(|_| cpu.relax());
            });
        };
        (CpuId(number), job(body))
    };
    let chooser = RandomWalk {
        random: Random(1),
        stride: 2,
    };
    let setup = Setup {
        numa_nodes,
        ..Setup::new(cpus)
    };
    Machine::new(setup, Box::new(chooser))
        .run((0..cpus).map(each).collect())
        .expect("no deadlock");
    let order = order.lock().unwrap();
    order.clone()
}

#[test]
fn waiters_of_the_holders_node_go_first() {
    // CPU 1 waits at the pending bit. CPU 2 heads the queue: even CPUs are on its node. CPU 7 is last in the queue, and
    // so never moved; but then it heads a queue of its own node.
    assert_eq!(
        order_of_service::<CnaQspin<{ u32::MAX }, 0>>(8, 2),
        [0, 1, 2, 4, 6, 7, 3, 5]
    );
    assert_eq!(
        order_of_service::<CnaQspin<{ u32::MAX }, 0>>(8, 1),
        [0, 1, 2, 3, 4, 5, 6, 7]
    );
}

#[test]
fn an_urgent_waiter_keeps_its_place_and_then_prefers_its_own_node() {
    // CPU 3 is on the other node than CPU 2, the first head.
    assert_eq!(
        order_with_masked::<CnaQspin<{ u32::MAX }, 0>>(8, 2, Some(3)),
        [0, 1, 2, 3, 5, 7, 4, 6]
    );
}

#[test]
fn other_nodes_go_first_after_the_threshold() {
    // A step counts as a microsecond here: each critical section outlasts the threshold.
    assert_eq!(order_of_service::<CnaQspin<50_000, 0>>(8, 2), [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn statistics_of_the_queue_add_up() {
    for seed in 0..300 {
        let chooser = RandomWalk {
            random: Random(seed),
            stride: 3,
        };
        let machine = Machine::new(Setup::new(4), Box::new(chooser));
        machine
            .run(rounds::<PvQspin<Narrow, AllSteps>>(4, 3))
            .expect("no deadlock");
        let count = |event| machine.stats.count(event);
        let halts: u32 = (0..4).map(|cpu| machine.halts(cpu)).sum();
        // A wait may find its reason gone and not halt.
        assert!(
            count(Event::PvWaitHead) + count(Event::PvWaitNode) >= u64::from(halts),
            "seed {seed}"
        );
        assert!(count(Event::PvWaitAgain) <= count(Event::PvWaitHead), "seed {seed}");
        assert!(count(Event::PvWaitEarly) <= count(Event::PvWaitNode), "seed {seed}");
        assert!(count(Event::PvKickWake) <= count(Event::PvKickUnlock), "seed {seed}");
        assert!(
            count(Event::LockSlowpath) + count(Event::PvLockStealing) <= 12,
            "seed {seed}"
        );
        assert_eq!(count(Event::LockPending), 0, "seed {seed}");
    }
}

#[test]
fn waiters_halt_at_once_behind_a_preempted_cpu_and_miss_no_kick() {
    let mut early = 0;
    for seed in 0..300 {
        let chooser = RandomWalk {
            random: Random(seed),
            stride: 3,
        };
        // No waiter halts because of the threshold.
        let setup = Setup {
            threshold: Budget::UNBOUNDED.0,
            preempted: true,
            halts_behind: true,
            ..Setup::new(4)
        };
        let machine = Machine::new(setup, Box::new(chooser));
        machine
            .run(rounds::<PvQspin<Narrow, AllSteps>>(4, 3))
            .expect("no deadlock");
        let count = |event| machine.stats.count(event);
        assert_eq!(count(Event::PvWaitEarly), count(Event::PvWaitNode), "seed {seed}");
        early += count(Event::PvWaitEarly);
    }
    assert!(early > 300, "{early} early halts in 300 runs");
}

fn two_contend<L: RawLock<StepCpu> + 'static>(waiting: u32) {
    let machine = run_in_turn(2, {
        let lock = Checked::new(0);
        let waiter = Arc::clone(&lock);
        let holder = job(move |cpu| {
            lock.with::<L>(cpu, || {
                let _ = cpu.wait_until(&lock.word, Budget::UNBOUNDED, Relaxed, move |now| now == waiting);
            });
        });
        let waiter = job(move |cpu| {
            let _ = cpu.wait_until(&waiter.word, Budget::UNBOUNDED, Relaxed, |now| now == 1);
            waiter.with::<L>(cpu, || assert_eq!(cpu.load(&waiter.word, Relaxed), 1));
        });
        vec![(CpuId(0), holder), (CpuId(1), waiter)]
    });
    assert_eq!(machine.stats.count(Event::LockPending), 1);
    assert_eq!(machine.stats.count(Event::LockSlowpath), 0);
}

#[test]
fn two_contenders_need_no_node() {
    two_contend::<Qspin>(0x101);
    two_contend::<Qspin<Wide>>(0x101);
    two_contend::<ExchangeQspin>(0x101);
}

#[test]
fn a_head_that_is_overtaken_is_listed_once() {
    let setup = Setup {
        threshold: 0,
        ..Setup::new(3)
    };
    every_schedule(setup, 3, || contention::<UnfairPvQspin>(3, 0)).expect("no schedule hangs or leaves an entry");
    random_schedules(setup, 5_000, || rounds::<UnfairPvQspin>(3, 3)).expect("no schedule hangs or leaves an entry");
}
