//! What ends a sleep, and in which order.

use std::cell::RefCell;
use std::rc::Rc;

use holdfast_guest::{Config, Events, FileId, Fork, Limits, MmapLock, Os, OwnerSpinning, Start, Touch};
use holdfast_sim::SimMachine;

use crate::machine::{Setup, counter, lead, lead_forked, run};

/// A millisecond in nanoseconds.
const MS: u64 = 1_000_000;

#[test]
fn a_pending_signal_does_not_end_an_uninterruptible_sleep() {
    for bare_metal in [false, true] {
        let setup = Setup {
            bare_metal,
            ..Setup::default()
        };
        let outcome = run(&setup, |os, start| match (start.role, start.argument) {
            (0, _) => {
                os.wait_for_cpus();
                os.begin();
                os.open_pipe(0, 1);
                os.handle_child_signals();
                os.fork(Fork::Copy { vmas: 1 }, Start::new(1, 0));
                os.fork(Fork::Copy { vmas: 1 }, Start::new(1, 1));
                // One child is dead when the pipe is full.
                os.sleep(MS);
                os.write_pipe(0, 100_000);
                while os.wait().is_some() {}
                os.done(None);
            }
            (_, 0) => {}
            _ => {
                os.sleep(50 * MS);
                let mut left = 100_000;
                while left > 0 {
                    left -= os.read_pipe(0, 4096).expect("no signal is handled");
                }
            }
        });
        let busy = counter(&outcome, "guest.system_ns");
        assert!(busy < 2 * MS, "{busy} ns of work while the pipe was full for 50 ms");
    }
}

#[test]
fn timers_of_the_same_time_expire_in_the_order_in_which_they_were_set() {
    const TASKS: u32 = 6;
    let (order, at) = (Rc::new(RefCell::new(Vec::new())), 100 * MS);
    let noted = order.clone();
    let setup = Setup {
        pcpus: 1,
        vcpus: 1,
        ..Setup::default()
    };
    run(&setup, move |os, start| match start.argument {
        _ if start.role == 0 => lead(os, TASKS + 1),
        // The others sleep for so long that they run before this task, with equal claims.
        TASKS => os.user(200 * MS),
        task => {
            // The tasks with high numbers set their timers first.
            os.sleep(u64::from(2 + TASKS - task) * 5 * MS);
            os.sleep(at - os.now());
            noted.borrow_mut().push(task);
        }
    });
    assert_eq!(*order.borrow(), [5, 4, 3, 2, 1, 0]);
}

/// Computes until `moment`, however long the ticks before it take.
fn compute_until(os: &Os<SimMachine>, moment: u64) {
    os.user(moment - os.now() - MS);
    while os.now() < moment {
        os.user(1_000);
    }
}

#[test]
fn a_waiting_writer_spins_for_a_writer_and_sleeps_for_readers() {
    // The first thread frees its pages as a reader, for much longer than it was a writer. Returns how long after that
    // the second one has the lock.
    let late = |mmap_lock| {
        let kernel = Config {
            mmap_lock,
            owner_spinning: OwnerSpinning::Queued,
            ..Config::default()
        };
        let setup = Setup {
            kernel,
            ..Setup::default()
        };
        let ends = Rc::new(RefCell::new([0, 0]));
        let noted = ends.clone();
        run(&setup, move |os, start| match (start.role, start.argument) {
            (0, _) => lead_forked(os, 2, Fork::Share),
            (_, 0) => {
                os.map(4000);
                os.user_touching(0, Touch::anonymous(4000));
                compute_until(os, 100 * MS);
                os.unmap(4000);
                noted.borrow_mut()[0] = os.now();
            }
            _ => {
                compute_until(os, 100 * MS + 20_000);
                os.map(1);
                noted.borrow_mut()[1] = os.now();
            }
        });
        let [unmapped, mapped] = *ends.borrow();
        assert!(unmapped > 100 * MS + MS / 4, "unmapped at {unmapped} ns");
        mapped.checked_sub(unmapped).expect("the second thread waits")
    };
    let [sleeping, spinning, downgrading] = [MmapLock::Sleeping, MmapLock::Spinning, MmapLock::Downgrading].map(late);
    for asleep in [sleeping, downgrading] {
        assert!(
            asleep > 2 * spinning,
            "{spinning} ns after spinning, {asleep} ns after sleep"
        );
    }
}

/// A guest with one CPU.
fn alone() -> Setup {
    Setup {
        pcpus: 1,
        vcpus: 1,
        ..Setup::default()
    }
}

#[test]
fn timers_between_two_ticks_are_not_ticks() {
    let outcome = run(&alone(), |os, start| match (start.role, start.argument) {
        (0, _) => lead(os, 2),
        (_, 0) => os.user(100 * MS),
        _ => (0..500).for_each(|_| os.sleep(MS / 10)),
    });
    let elapsed = outcome.vms[0].elapsed_ns.expect("measured");
    let ticks = counter(&outcome, "guest.ticks");
    // A thousand in a second, and some before the measured interval.
    assert!(
        (90..=elapsed / MS + 20).contains(&ticks),
        "{ticks} ticks in {elapsed} ns"
    );
}

#[test]
fn an_idle_cpu_ticks_until_its_callbacks_have_run() {
    let ticks = |callback: bool| {
        let outcome = run(&alone(), move |os, _| {
            os.begin();
            for _ in 0..20 {
                if callback {
                    os.create(FileId(0), FileId(3), 3);
                    os.unlink(FileId(0), FileId(3), 3);
                }
                os.sleep(20 * MS);
            }
            os.done(None);
        });
        counter(&outcome, "guest.ticks")
    };
    // A grace period of three ticks, in each of which the CPU is idle.
    let (with, without) = (ticks(true), ticks(false));
    let more = with - without;
    assert!(
        (20 * 2..=20 * 4).contains(&more),
        "{with} ticks, {without} without callbacks"
    );
}

#[test]
fn a_waiter_that_a_signal_woke_is_no_longer_listed_once_it_has_its_event() {
    // The signal of a dead child keeps the waiter awake. Its event comes at any point of its looking for one. After
    // that it waits for something else, which an entry left in a list would keep it from.
    for offset in (0..1_500).step_by(60) {
        let got = Rc::new(RefCell::new(Vec::new()));
        let noted = got.clone();
        let limits = Limits {
            tasks: 4,
            pipes: 1,
            streams: 2,
            epolls: 1,
            ..Limits::default()
        };
        let setup = Setup {
            limits,
            ..Setup::default()
        };
        run(&setup, move |os, start| match start.role {
            0 => {
                os.wait_for_cpus();
                os.begin();
                os.open_pipe(0, 1);
                os.handle_child_signals();
                os.fork(Fork::Copy { vmas: 1 }, Start::new(2, 0));
                os.fork(Fork::Copy { vmas: 1 }, Start::new(1, 0));
                os.watch(0, 1, Events::READ);
                noted.borrow_mut().push(os.wait_ready(0).0);
                os.wait();
                noted.borrow_mut().extend(os.read_pipe(0, 100));
                os.wait();
                os.done(None);
            }
            1 => {
                os.sleep(5 * MS - os.now() + offset);
                os.write_stream(0, &[1], 8);
                os.sleep(MS);
                os.write_pipe(0, 100);
                os.sleep(MS);
            }
            _ => os.user(100_000),
        });
        assert_eq!(*got.borrow(), [1, 100], "the event came {offset} ns later");
    }
}
