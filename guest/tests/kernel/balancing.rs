//! When an idle CPU takes a ready task of another CPU: cache-hot tasks stay for a while, and a CPU that is idle only
//! briefly takes none.

use std::cell::RefCell;
use std::rc::Rc;

use holdfast_guest::{Fork, Os, Start};
use holdfast_sim::SimMachine;

use crate::machine::{Setup, run};

/// A microsecond and a millisecond in nanoseconds.
const US: u64 = 1_000;
const MS: u64 = 1_000_000;
/// When CPU 1 becomes idle: between two ticks.
const IDLE_AT: u64 = 60 * MS + 600 * US;
/// The first task computes on CPU 0, where the second one waits meanwhile.
const WAITER: u32 = 1;
/// The task that leaves CPU 1 idle.
const LEAVER: u32 = 2;

fn sleep_until(os: &Os<SimMachine>, time: u64) {
    os.sleep(time.saturating_sub(os.now()));
}

/// Ticks lengthen a computation, so it is a sequence of short ones.
fn compute_until(os: &Os<SimMachine>, time: u64) {
    while os.now() < time {
        os.user((time - os.now()).min(5 * US));
    }
}

/// How the tasks behave.
#[derive(Clone, Copy)]
struct Course {
    /// When the first task takes CPU 0 from the waiter.
    taken_at: u64,
    /// For how long it computes, and in which period it does so again.
    computes: u64,
    period: u64,
    /// Sleeps of the leaver on CPU 1 before it leaves, and the length of each.
    sleeps: u32,
    sleep: u64,
}

impl Course {
    /// The waiter last ran `before` nanoseconds before CPU 1 becomes idle.
    fn ran(before: u64) -> Course {
        Course {
            taken_at: IDLE_AT - before,
            computes: 5 * MS,
            period: 20 * MS,
            sleeps: 0,
            sleep: 0,
        }
    }

    /// Returns when the waiter continues on CPU 1, in nanoseconds after that is idle.
    fn moved_after(self) -> u64 {
        let setup = Setup {
            pcpus: 2,
            vcpus: 2,
            is_free: true,
            ..Setup::default()
        };
        let moved = Rc::new(RefCell::new(None));
        let noted = moved.clone();
        run(&setup, move |os, start| match start.role {
            0 => {
                os.wait_for_cpus();
                os.begin();
                // The leaver starts on the idle CPU. After that the loads are equal, and the waiter starts here.
                os.fork(Fork::Share, Start::new(LEAVER, 0));
                os.fork(Fork::Share, Start::new(WAITER, 0));
                let mut at = self.taken_at;
                for _ in 0..4 {
                    sleep_until(os, at);
                    assert_eq!(os.cpu().0, 0);
                    compute_until(os, at + self.computes);
                    at += self.period;
                }
                while os.wait().is_some() {}
                os.done(None);
            }
            WAITER => {
                assert_eq!(os.cpu().0, 0, "the waiter starts where it waits");
                while os.now() < IDLE_AT + 10 * MS {
                    if os.cpu().0 == 1 {
                        noted.borrow_mut().get_or_insert(os.now());
                    }
                    os.user(5 * US);
                }
            }
            _ => {
                assert_eq!(os.cpu().0, 1, "the leaver starts on the idle CPU");
                let begin = IDLE_AT - u64::from(self.sleeps) * (self.sleep + 100 * US);
                compute_until(os, begin);
                for _ in 0..self.sleeps {
                    os.sleep(self.sleep);
                    os.user(50 * US);
                }
                compute_until(os, IDLE_AT);
                os.sleep(30 * MS);
            }
        });
        let moved = moved.borrow().expect("the waiter never moved");
        moved - IDLE_AT
    }
}

/// The time from [`IDLE_AT`] to the next tick, at which CPU 0 asks idle CPUs for help.
const TO_TICK: u64 = 400 * US;
/// What switching and balancing take at most.
const SOON: u64 = 30 * US;

#[test]
fn a_task_that_has_just_run_waits_for_the_next_pass() {
    // `sysctl_sched_migration_cost`: 500 µs.
    for before in [510, 550] {
        let moved = Course::ran(before * US).moved_after();
        assert!(
            moved < SOON,
            "{before} µs after it ran, the task moved after {moved} ns"
        );
    }
    for before in [100, 450, 485] {
        let moved = Course::ran(before * US).moved_after();
        assert!(
            (TO_TICK..TO_TICK + SOON).contains(&moved),
            "{before} µs after it ran, the task moved after {moved} ns"
        );
    }
}

#[test]
fn a_task_that_is_always_hot_moves_in_the_third_pass() {
    // The first task takes the CPU 150 µs before the leaver leaves, and 50 µs before each tick. `cache_nice_tries` is
    // 1, so passes fail twice.
    let course = Course {
        computes: 300 * US,
        period: 500 * US,
        ..Course::ran(150 * US)
    };
    let moved = course.moved_after();
    let third = TO_TICK + MS;
    assert!((third..third + SOON).contains(&moved), "moved after {moved} ns");
}

#[test]
fn a_cpu_that_is_usually_idle_for_a_shorter_time_takes_no_task() {
    // The average begins at 1 ms, counts each time as an eighth, and 1 ms at most. Below 500 µs the CPU takes none.
    let at_once = |sleeps: u32, sleep: u64| {
        let course = Course {
            sleeps,
            sleep,
            ..Course::ran(550 * US)
        };
        course.moved_after() < SOON
    };
    for (sleep, most) in [(100 * US, 12), (300 * US, 14), (460 * US, 26), (5 * MS, 6)] {
        let mut average = MS;
        for sleeps in 0..=most {
            let margin = average.abs_diff(MS / 2);
            // The time of a sleep is up to 4 µs longer than asked for.
            if margin > 6 * US {
                assert_eq!(
                    at_once(sleeps, sleep),
                    average > MS / 2,
                    "{sleeps} times {sleep} ns, {average} ns on average"
                );
            }
            average = if sleep > MS { MS } else { (7 * average + sleep) / 8 };
        }
    }
}

#[test]
fn a_cpu_that_becomes_idle_takes_one_task_and_a_pass_evens_out_two_cpus() {
    // New tasks start on CPU 0 and CPU 1 in turn. Those on CPU 1 end soon. Until then the loads are about equal.
    for stay in [2_u32, 3, 4] {
        let moves = Rc::new(RefCell::new(Vec::new()));
        let noted = moves.clone();
        let setup = Setup {
            pcpus: 2,
            vcpus: 2,
            ..Setup::default()
        };
        run(&setup, move |os, start| match start.role {
            0 => {
                os.wait_for_cpus();
                os.begin();
                os.fork(Fork::Share, Start::new(LEAVER, 0));
                for task in 0..2 * stay {
                    os.fork(Fork::Share, Start::new(WAITER, task));
                }
                os.sleep(250 * MS);
                os.done(None);
            }
            WAITER => {
                let first = os.cpu().0;
                assert_eq!(first, start.argument % 2, "task {}", start.argument);
                let mut cpu = first;
                let end = if first == 1 { 10 * MS } else { 240 * MS };
                while os.now() < end {
                    os.user(10 * US);
                    if os.cpu().0 != cpu {
                        cpu = os.cpu().0;
                        noted.borrow_mut().push((os.now(), cpu));
                    }
                }
            }
            _ => compute_until(os, 10 * MS),
        });
        let moves = moves.borrow();
        // A CPU with a task balances every 64 ms. A task notices that it moved when its turn comes.
        let to_one = |from: u64, until: u64| {
            let in_time = |&&(at, cpu): &&(u64, u32)| cpu == 1 && (from..until).contains(&at);
            moves.iter().filter(in_time).count() as u32
        };
        assert_eq!(to_one(0, 13 * MS), 1, "{stay} tasks: {moves:?}");
        assert_eq!(
            to_one(13 * MS, 110 * MS),
            (stay - 2).div_ceil(2),
            "{stay} tasks: {moves:?}"
        );
    }
}
