//! Threads of a program on the machine itself: preempted anywhere, halted in futexes, under every lock.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use holdfast_host::{SchedConfig, SchedulerKind};
use holdfast_locks::{BootLock, CpuId, LockKind, Paravirt, Platform, Word};
use holdfast_sim::{Config, Failure, Outcome, SimThread, SimWord, Waits, run_threads};

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

/// What the threads did.
#[derive(Default)]
struct Seen {
    /// Who is inside.
    inside: Cell<u32>,
    /// How often somebody was while another one was, too.
    broken: Cell<u32>,
    sections: Cell<u64>,
    ended: Cell<u32>,
}

/// `threads` of them, pinned in turn, each `rounds` times in a section that `held_ns` long.
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
    let outcome = run_threads(config, &AtomicBool::new(false), &affinities, Waits::default(), body);
    (outcome, seen)
}

#[test]
fn every_lock_excludes_and_lets_every_thread_through_however_often_they_are_preempted() {
    for &kind in LockKind::ALL {
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
        let config = machine(0, SchedulerKind::Eevdf612);
        let outcome = run_threads(&config, &AtomicBool::new(false), &affinities, Waits::default(), body);
        let outcome = outcome.unwrap_or_else(|failure| panic!("{affinities:?}: {failure}"));
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
            holdfast_locks::thread::Thread::give_way(thread);
            let mine = &told[thread.index() as usize];
            mine.set(mine.get() + 1);
        }
        thread.done(None);
    };
    let config = machine(0, SchedulerKind::Eevdf612);
    let outcome = run_threads(
        &config,
        &AtomicBool::new(false),
        &[vec![0], vec![0]],
        Waits::default(),
        body,
    );
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
    let (one, other) = (counts[0].get(), counts[1].get());
    assert!(one.abs_diff(other) < 200, "{one} and {other}");
}
