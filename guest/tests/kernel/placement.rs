//! Where woken and new tasks run, by the loads of the CPUs.

use std::cell::RefCell;
use std::rc::Rc;

use holdfast_guest::{Config, Executable, Fork, Os, Placement, Start};
use holdfast_sim::{Outcome, SimMachine};

use crate::machine::{Setup, counter, run};

/// A millisecond in nanoseconds.
const MS: u64 = 1_000_000;
/// The role of a task that sleeps until it is woken.
const SLEEPER: u32 = 1;
/// The role of a task that computes beyond the end of the test.
const HOG: u32 = 2;

/// How a task is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wake {
    /// By a message: the sender is expected to sleep soon.
    Message,
    /// By a semaphore: the waker goes on.
    Semaphore,
}

fn setup(vcpus: u32, shared_cache: bool) -> Setup {
    Setup {
        pcpus: vcpus,
        vcpus,
        kernel: Config {
            shared_cache,
            ..Config::default()
        },
        ..Setup::default()
    }
}

fn fork(os: &Os<SimMachine>, role: u32) {
    os.fork(Fork::Share, Start::new(role, 0));
}

fn sleep_until(os: &Os<SimMachine>, wake: Wake) {
    match wake {
        Wake::Message => drop(os.receive(1)),
        Wake::Semaphore => os.semaphore_down(0, 0),
    }
}

fn send(os: &Os<SimMachine>, wake: Wake) {
    match wake {
        Wake::Message => os.send(0, 7),
        Wake::Semaphore => os.semaphore_up(0, 0),
    }
}

/// Wakes a task that last ran on CPU 1 from CPU 0. Before that, `hogs` tasks that compute are started. Returns the CPU
/// of the woken task.
fn woken(setup: &Setup, wake: Wake, hogs: u32) -> (u32, Outcome) {
    let cpus = Rc::new(RefCell::new(Vec::new()));
    let noted = cpus.clone();
    let outcome = run(setup, move |os, start| match start.role {
        0 => {
            os.wait_for_cpus();
            os.begin();
            fork(os, SLEEPER);
            os.user(MS / 4);
            assert_eq!(os.cpu().0, 0);
            for _ in 0..hogs {
                fork(os, HOG);
            }
            send(os, wake);
            while noted.borrow().len() < 2 {
                match wake {
                    Wake::Message => os.sleep(MS),
                    // Both CPUs have as much to do: the task is pulled, and runs before a tick balances it away.
                    Wake::Semaphore if hogs % 2 == 1 => os.sleep(MS),
                    Wake::Semaphore => os.user(MS),
                }
            }
            os.done(None);
        }
        SLEEPER => {
            noted.borrow_mut().push(os.cpu().0);
            sleep_until(os, wake);
            noted.borrow_mut().push(os.cpu().0);
        }
        _ => os.user(10_000 * MS),
    });
    let cpus = cpus.borrow();
    assert_eq!(cpus[0], 1, "the sleeper did not start on the idle CPU");
    (cpus[1], outcome)
}

#[test]
fn a_wakeup_pulls_a_task_only_to_a_cpu_with_about_as_little_to_do() {
    // A hog starts on the CPU with fewer tasks, the first one on CPU 1. So loads of both CPUs, the waker included, are
    // (1, 0), (1, 1), (2, 1), (2, 2), ... The waker's CPU may have 12 percent more, the woken task included.
    for hogs in 0..18_u32 {
        let (here, there) = (1 + hogs / 2, hogs.div_ceil(2));
        for wake in [Wake::Message, Wake::Semaphore] {
            // A waker that will sleep does not count.
            let here = here - u32::from(wake == Wake::Message);
            let pulls = here == 0 || 100 * (here + 1) <= 112 * there;
            let (cpu, outcome) = woken(&setup(2, false), wake, hogs);
            assert_eq!(cpu, u32::from(!pulls), "{wake:?}, loads {here} and {there}");
            if hogs == 0 {
                assert_eq!(counter(&outcome, "guest.migrations"), u64::from(pulls), "{wake:?}");
            }
        }
    }
}

#[test]
fn with_averages_an_idle_cpu_comes_first_and_then_the_load_without_the_task() {
    // The loads are those above, of tasks that have hardly slept.
    for hogs in 0..18_u32 {
        let there = hogs.div_ceil(2);
        for wake in [Wake::Message, Wake::Semaphore] {
            let sync = wake == Wake::Message;
            let here = 1 + hogs / 2 - u32::from(sync);
            let pulls = match hogs {
                0 => sync,
                1 if sync => true,
                _ => 100 * (here + 1) < 108 * there,
            };
            let mut setup = setup(2, false);
            setup.kernel.placement = Placement::Averages;
            let (cpu, _) = woken(&setup, wake, hogs);
            assert_eq!(cpu, u32::from(!pulls), "{wake:?}, loads {here} and {there}");
        }
    }
}

#[test]
fn a_halted_vcpu_that_seems_preempted_is_not_idle() {
    // The host is Linux 3.3, which says so of halted vCPUs. A kernel without paravirtual locks does not ask.
    for (placement, nopvspin, gets_an_idle_cpu) in [
        (Placement::Counts, false, true),
        (Placement::ReadyAverages, false, true),
        (Placement::Averages, true, true),
        (Placement::Averages, false, false),
    ] {
        let mut setup = setup(4, true);
        setup.kernel.placement = placement;
        setup.kernel.nopvspin = nopvspin;
        // A hog is on the task's CPU, 1.
        let (cpu, _) = woken(&setup, Wake::Semaphore, 1);
        assert_eq!(
            cpu >= 2,
            gets_an_idle_cpu,
            "{placement:?}, nopvspin {nopvspin}: CPU {cpu}"
        );
    }
}

#[test]
fn on_a_shared_cache_a_woken_task_gets_an_idle_cpu_the_last_one_first() {
    for wake in [Wake::Message, Wake::Semaphore] {
        // Hogs occupy CPUs 1, 2 and 3 in turn.
        for (hogs, expected) in (0..).zip([1, 2, 3]) {
            assert_eq!(woken(&setup(4, true), wake, hogs).0, expected, "{wake:?}, {hogs} hogs");
        }
    }
    // None is idle. Before the task is balanced away, the waker sleeps.
    assert_eq!(woken(&setup(4, true), Wake::Message, 3).0, 0);
}

#[test]
fn a_wakeup_interrupts_the_other_cpu_only_across_caches_or_to_preempt() {
    // A task that slept for long preempts. One that has just computed as much as the hog of its CPU does not.
    for (computes, expected) in [(0, 0), (41 * MS, 1)] {
        let ipis = |shared_cache| {
            let outcome = woken_beside_a_hog(&setup(2, shared_cache), computes);
            counter(&outcome, "guest.reschedule_ipis")
        };
        assert_eq!(ipis(false), ipis(true) + expected, "{computes} ns");
    }
}

/// Wakes a task on CPU 1 from CPU 0, each with a hog, as soon as it sleeps after it has computed for `ns`.
fn woken_beside_a_hog(setup: &Setup, ns: u64) -> Outcome {
    let sleeps = Rc::new(RefCell::new(Vec::new()));
    let noted = sleeps.clone();
    run(setup, move |os, start| match start.role {
        0 => {
            os.wait_for_cpus();
            os.begin();
            for role in [SLEEPER, HOG, HOG] {
                fork(os, role);
            }
            while noted.borrow().is_empty() {
                os.sleep(MS / 10);
            }
            os.sleep(MS / 10);
            send(os, Wake::Semaphore);
            os.sleep(50 * MS);
            os.done(None);
        }
        SLEEPER => {
            os.user(ns);
            noted.borrow_mut().push(os.cpu().0);
            sleep_until(os, Wake::Semaphore);
            assert_eq!(os.cpu().0, 1, "the woken task left its CPU");
        }
        _ => os.user(10_000 * MS),
    })
}

/// Wakes a task that last ran on CPU 1 from CPU 0 by a message, after both have woken each other `flips` times,
/// and a pause. Returns the CPU of the woken task.
fn woken_after_others(kernel: Config, flips: u32, pause_ns: u64) -> u32 {
    let setup = Setup {
        kernel,
        ..setup(2, false)
    };
    let cpus = Rc::new(RefCell::new(Vec::new()));
    let noted = cpus.clone();
    run(&setup, move |os, start| match start.role {
        0 => {
            os.wait_for_cpus();
            os.begin();
            fork(os, SLEEPER);
            os.user(MS / 4);
            for _ in 0..flips {
                os.semaphore_up(0, 1);
                os.semaphore_down(0, 2);
            }
            os.sleep(pause_ns);
            send(os, Wake::Message);
            os.sleep(10 * MS);
            os.done(None);
        }
        _ => {
            for _ in 0..flips {
                os.semaphore_down(0, 1);
                os.semaphore_up(0, 2);
            }
            noted.borrow_mut().push(os.cpu().0);
            sleep_until(os, Wake::Message);
            noted.borrow_mut().push(os.cpu().0);
        }
    });
    let cpus = cpus.borrow();
    assert_eq!(cpus[0], 1, "the sleeper left its CPU");
    cpus[1]
}

#[test]
fn tasks_that_wake_several_others_leave_them_where_they_slept() {
    let cpu = |wake_wide, flips, pause_ns| {
        let kernel = Config {
            wake_wide,
            ..Config::default()
        };
        woken_after_others(kernel, flips, pause_ns)
    };
    for flips in [1, 2] {
        assert_eq!(cpu(false, flips, MS), 0, "a kernel before 3.12 does not count");
        assert_eq!(cpu(true, flips, MS), 1);
        assert_eq!(cpu(true, flips, 900 * MS), 1);
        // Half of the changes are forgotten after a second without one.
        assert_eq!(cpu(true, flips, 1100 * MS), 0);
    }
    assert_eq!(cpu(true, 0, MS), 0, "a task that wakes no other may be pulled");
}

#[test]
fn a_program_starts_on_the_idle_cpu() {
    for idle in 1..4 {
        let cpus = Rc::new(RefCell::new(Vec::new()));
        let noted = cpus.clone();
        let program = Executable {
            pages: 1,
            ..Executable::default()
        };
        run(&setup(4, false), move |os, start| match start.role {
            0 => {
                os.wait_for_cpus();
                os.begin();
                // Hogs on CPUs 1, 2 and 3, of which one ends soon. The last task starts here.
                for argument in 1..4 {
                    os.fork(Fork::Share, Start::new(HOG, argument));
                }
                os.fork(Fork::Share, Start::new(SLEEPER, 0));
                os.sleep(30 * MS);
                os.done(None);
            }
            SLEEPER => {
                os.user(5 * MS);
                noted.borrow_mut().push(os.cpu().0);
                os.exec(&program);
                noted.borrow_mut().push(os.cpu().0);
            }
            _ if start.argument == idle => os.user(2 * MS),
            _ => os.user(100 * MS),
        });
        assert_eq!(*cpus.borrow(), [0, idle]);
    }
}
