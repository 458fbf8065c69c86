//! Threads of a bare-metal program: preempted anywhere, halted in futexes, under every lock.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use holdfast_host::{SchedConfig, SchedulerKind};
use holdfast_locks::thread::Thread;
use holdfast_locks::{BootLock, CpuId, LockKind, Paravirt, Platform, Word};
use holdfast_machine::{Costs, Picos};
use holdfast_sim::{CallOff, Config, Failure, Outcome, SimThread, SimWord, Waits, run_threads};

use crate::image::{coarsen, config};

const PCPUS: u32 = 2;

fn machine(seed: u64, scheduler: SchedulerKind) -> Config {
    let mut config = config(PCPUS, PCPUS, u32::from(seed % 3 == 2), seed);
    if seed % 2 == 1 {
        coarsen(&mut config.machine.costs);
    }
    config.vms[0].bare_metal = true;
    config.host.sched = SchedConfig::of(scheduler);
    config
}

/// Shared record of what the threads did.
#[derive(Default)]
struct Seen {
    /// The thread in the critical section.
    inside: Cell<u32>,
    /// How often two threads were in the critical section at the same time.
    broken: Cell<u32>,
    sections: Cell<u64>,
    ended: Cell<u32>,
}

/// Runs threads on the pCPUs of `affinities` to the end.
#[track_caller]
fn play(config: &Config, affinities: &[Vec<u32>], body: impl Fn(&SimThread) + 'static) -> Outcome {
    let outcome = run_threads(config, &CallOff::new(), affinities, Waits::default(), body);
    outcome.unwrap_or_else(|failure| panic!("{affinities:?}: {failure}"))
}

/// Runs `threads` threads, pinned in turn. Each is `rounds` times in a critical section of `held_ns`.
fn contend(
    config: &Config,
    kind: LockKind,
    threads: u32,
    rounds: u32,
    held_ns: u64,
) -> (Result<Outcome, Failure>, Rc<Seen>) {
    let seen = Rc::new(Seen::default());
    let (told, lock, begun) = (Rc::clone(&seen), BootLock::<SimWord>::new(), Cell::new(false));
    let body = move |thread: &SimThread| {
        if !begun.replace(true) {
            thread.begin();
        }
        for _ in 0..rounds {
            lock.lock(kind, thread);
            told.broken.set(told.broken.get() + told.inside.replace(1));
            thread.compute(held_ns);
            told.inside.set(0);
            told.sections.set(told.sections.get() + 1);
            lock.unlock(kind, thread);
            thread.compute(held_ns / 2);
        }
        told.ended.set(told.ended.get() + 1);
        if told.ended.get() == threads {
            thread.done(Some(told.sections.get()));
        }
    };
    let affinities: Vec<Vec<u32>> = (0..threads).map(|thread| vec![thread % PCPUS]).collect();
    let outcome = run_threads(config, &CallOff::new(), &affinities, Waits::default(), body);
    (outcome, seen)
}

#[test]
fn every_lock_excludes_and_lets_every_thread_through_however_often_they_are_preempted() {
    for kind in crate::all_locks() {
        for (seed, scheduler) in [
            (0, SchedulerKind::Cfs33),
            (1, SchedulerKind::Eevdf612),
            (2, SchedulerKind::Eevdf66),
        ] {
            let (outcome, seen) = contend(&machine(seed, scheduler), kind, 6, 200, 3_000);
            let outcome = outcome.unwrap_or_else(|failure| panic!("{kind}, seed {seed}: {failure}"));
            assert_eq!((seen.broken.get(), seen.ended.get()), (0, 6), "{kind}, seed {seed}");
            assert_eq!(outcome.vms[0].operations, Some(1200), "{kind}, seed {seed}");
            let vm = &outcome.vms[0];
            assert_eq!(vm.lost_time_ps.values().sum::<u64>(), vm.vcpu_time_ps, "{kind}");
        }
    }
}

#[test]
fn skipped_spins_are_executed_spins_bit_for_bit() {
    for kind in [
        LockKind::Ticket,
        LockKind::PvTicket,
        LockKind::HybridPvQspin,
        LockKind::Ttas,
    ] {
        for seed in 0..3 {
            let mut config = machine(seed, SchedulerKind::Eevdf612);
            let (skipped, _) = contend(&config, kind, 5, 60, 2_000);
            config.execute_spins = true;
            let (executed, _) = contend(&config, kind, 5, 60, 2_000);
            let hash = |outcome: Result<Outcome, Failure>| outcome.map(|outcome| outcome.history_hash);
            assert_eq!(hash(skipped), hash(executed), "{kind}, seed {seed}");
        }
    }
}

#[test]
fn a_kick_before_the_halt_ends_it_at_once_and_none_is_lost() {
    const TURNS: u32 = 500;
    for affinities in [vec![vec![0], vec![0]], vec![vec![0], vec![1]], vec![vec![], vec![]]] {
        let ping = SimWord::new(0);
        let body = move |thread: &SimThread| {
            if thread.index() == 0 {
                thread.begin();
            }
            let (mine, other) = (thread.index(), 1 - thread.index());
            for _ in 0..TURNS {
                while thread.load(&ping, Relaxed) % 2 != mine {
                    thread.halt_masked();
                }
                thread.fetch_add(&ping, 1, Relaxed);
                thread.kick(CpuId(other));
            }
            if thread.index() == 1 {
                thread.done(None);
            }
        };
        let outcome = play(&machine(0, SchedulerKind::Eevdf612), &affinities, body);
        assert!(
            outcome.vms[0]
                .elapsed_ns
                .is_some_and(|ns| ns > 2 * u64::from(TURNS) * 300)
        );
    }
}

#[test]
fn threads_that_give_way_share_a_cpu_evenly_and_quickly() {
    let counts = Rc::new([Cell::new(0u64), Cell::new(0u64)]);
    let told = Rc::clone(&counts);
    let body = move |thread: &SimThread| {
        thread.begin();
        for _ in 0..2000 {
            thread.compute(500);
            thread.give_way();
            let mine = &told[thread.index() as usize];
            mine.set(mine.get() + 1);
        }
        thread.done(None);
    };
    play(&machine(0, SchedulerKind::Eevdf612), &[vec![0], vec![0]], body);
    let (one, other) = (counts[0].get(), counts[1].get());
    assert!(one.abs_diff(other) < 200, "{one} and {other}");
}

#[test]
fn a_wake_up_ends_one_sleep_and_no_other() {
    const TURNS: u32 = 100;
    let word = SimWord::new(0);
    let (sleeps, ends) = (Cell::new(0u32), Cell::new(0u32));
    let body = move |thread: &SimThread| {
        thread.begin();
        for turn in 0..TURNS {
            if thread.index() == 0 {
                sleeps.set(sleeps.get() + 1);
                thread.futex_wait(&word, 0);
                ends.set(ends.get() + 1);
            } else {
                while sleeps.get() == turn {
                    thread.compute(1_000);
                }
                // The thread sleeps by then, and has had the time to end another sleep in vain.
                thread.compute(50_000);
                assert_eq!(ends.get(), turn, "nobody has woken it");
                thread.futex_wake(&word);
            }
        }
        if thread.index() == 0 {
            thread.done(None);
        }
    };
    play(&machine(0, SchedulerKind::Eevdf612), &[vec![0], vec![1]], body);
}

#[test]
fn a_thread_that_never_calls_the_kernel_is_preempted() {
    let done = Rc::new([Cell::new(0u32), Cell::new(0u32)]);
    let told = Rc::clone(&done);
    let body = move |thread: &SimThread| {
        thread.begin();
        for _ in 0..10_000 {
            thread.compute(10_000);
            let mine = &told[thread.index() as usize];
            mine.set(mine.get() + 1);
        }
        thread.done(None);
    };
    play(&machine(0, SchedulerKind::Eevdf612), &[vec![0], vec![0]], body);
    let least = done[0].get().min(done[1].get());
    assert!(least > 9_000, "the other one got to {least} of 10000");
}

/// How many nanoseconds longer a turn of `body` takes for thread 0 when `cost` is 10 us more; the other thread does
/// `beside`.
fn dearer(
    cost: impl Fn(&mut Costs) -> &mut Picos,
    affinities: &[Vec<u32>],
    body: impl Fn(&SimThread) + Copy + 'static,
    beside: impl Fn(&SimThread) + Copy + 'static,
) -> u64 {
    const TURNS: u64 = 100;
    let elapsed = |more_ns: u64| {
        let mut config = machine(0, SchedulerKind::Eevdf612);
        *cost(&mut config.machine.costs) += Picos::from_nanos(more_ns);
        let ended = Rc::new(Cell::new(0));
        let told = Rc::clone(&ended);
        let lives = move |thread: &SimThread| {
            if thread.index() > 0 {
                loop {
                    beside(thread);
                }
            }
            thread.begin();
            let begun = thread.now_ns();
            for _ in 0..TURNS {
                body(thread);
            }
            told.set(thread.now_ns() - begun);
            thread.done(None);
        };
        play(&config, affinities, lives);
        ended.get()
    };
    (elapsed(10_000) - elapsed(0)) / TURNS
}

#[test]
fn calls_and_switches_cost_what_the_machine_says() {
    let (alone, beside, together) = ([vec![0]], [vec![0], vec![1]], [vec![0], vec![0]]);
    let yields = |thread: &SimThread| thread.give_way();
    let interrupts = |thread: &SimThread| thread.interrupt_others();
    let settles = |thread: &SimThread| {
        thread.settle();
    };
    let computes = |thread: &SimThread| thread.compute(1_000);
    let in_time = |ns: u64, wanted: std::ops::Range<u64>, what: &str| {
        assert!(wanted.contains(&ns), "10 us more for {what}: {ns} ns");
    };
    let entry = dearer(
        |costs| &mut costs.syscall,
        &alone,
        |thread| thread.call_kernel(),
        computes,
    );
    in_time(entry, 10_000..10_100, "the entry");
    let pick = dearer(|costs| &mut costs.sched_yield, &alone, yields, computes);
    in_time(pick, 10_000..10_100, "sched_yield");
    // Each thread gives way to the other: two switches a turn.
    let switch = dearer(|costs| &mut costs.context_switch, &together, yields, yields);
    in_time(switch, 19_000..21_000, "a switch");
    let call = dearer(|costs| &mut costs.ipi_latency, &beside, interrupts, computes);
    in_time(call, 10_000..10_500, "an interrupt's way");
    let spared = dearer(|costs| &mut costs.ipi_latency, &beside, settles, computes);
    in_time(
        spared,
        50..150,
        "the way of the only interrupt of a trial, in 100 turns",
    );
    let unheard = dearer(|costs| &mut costs.ipi_latency, &alone, interrupts, computes);
    in_time(unheard, 0..1, "the way of an interrupt that nobody needs");
}

#[test]
fn an_interrupt_costs_the_others_time() {
    // Thread 0 computes, and loses time to the calls of thread 1.
    let computes = |thread: &SimThread| thread.compute(100_000);
    let interrupts = |thread: &SimThread| {
        thread.interrupt_others();
        thread.compute(50_000);
    };
    // A kernel's interrupt entry costs as much as in a guest.
    let lost = dearer(
        |costs| &mut costs.guest_interrupt,
        &[vec![0], vec![1]],
        computes,
        interrupts,
    );
    assert!((15_000..30_000).contains(&lost), "{lost} ns of 100 us");
}
