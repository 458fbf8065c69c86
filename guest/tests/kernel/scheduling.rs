//! When and where tasks run.

use std::cell::RefCell;
use std::rc::Rc;

use holdfast_guest::{Config, Fork, Start, Touch};
use holdfast_locks::LockKind;

use crate::machine::{Setup, counter, lead, run};

/// A millisecond in nanoseconds.
const MS: u64 = 1_000_000;

#[test]
fn equal_tasks_get_equal_shares() {
    let ends = Rc::new(RefCell::new(Vec::new()));
    let noted = ends.clone();
    let setup = Setup {
        pcpus: 2,
        vcpus: 2,
        ..Setup::default()
    };
    let outcome = run(&setup, move |os, start| {
        if start.role == 0 {
            return lead(os, 6);
        }
        os.user(100 * MS);
        noted.borrow_mut().push(os.now());
    });
    let elapsed = outcome.vms[0].elapsed_ns.expect("measured");
    // Six tasks of 100 ms on two CPUs take 300 ms and the kernel's time, and all end late.
    assert!((300 * MS..315 * MS).contains(&elapsed), "{elapsed} ns");
    let ends = ends.borrow();
    let spread = ends.iter().max().unwrap() - ends.iter().min().unwrap();
    assert!(spread < 60 * MS, "the first ended {spread} ns before the last");
}

#[test]
fn a_sleeper_preempts_a_busy_task() {
    let late = Rc::new(RefCell::new(0));
    let noted = late.clone();
    let setup = Setup {
        pcpus: 1,
        vcpus: 1,
        ..Setup::default()
    };
    run(&setup, move |os, start| match (start.role, start.argument) {
        (0, _) => lead(os, 2),
        (_, 0) => os.user(500 * MS),
        _ => {
            for _ in 0..20 {
                let before = os.now();
                os.sleep(10 * MS);
                let slept = os.now() - before;
                assert!(slept >= 10 * MS, "woken after {slept} ns");
                let mut late = noted.borrow_mut();
                *late = (*late).max(slept - 10 * MS);
            }
        }
    });
    // The task has slept longer than it ran, so it must get the CPU at once, not at the next tick.
    assert!(*late.borrow() < MS / 10, "{} ns late", late.borrow());
}

#[test]
fn a_slice_is_as_long_as_linux_makes_it() {
    let setup = Setup {
        pcpus: 1,
        vcpus: 1,
        ..Setup::default()
    };
    let outcome = run(&setup, |os, start| {
        if start.role == 0 {
            return lead(os, 2);
        }
        os.user(500 * MS);
    });
    // 6 ms for two tasks are 3 ms each. The first tick after that ends the slice.
    let preemptions = counter(&outcome, "guest.guest_preemptions");
    assert!(
        (240..=335).contains(&preemptions),
        "{preemptions} preemptions in a second"
    );
}

#[test]
fn a_new_process_starts_on_an_idle_cpu() {
    let outcome = run(&Setup::default(), |os, start| {
        if start.role == 0 {
            return lead(os, 3);
        }
        os.user(MS);
    });
    let elapsed = outcome.vms[0].elapsed_ns.expect("measured");
    assert!(
        elapsed < MS * 3 / 2,
        "three processes of 1 ms on four CPUs took {elapsed} ns"
    );
}

#[test]
fn idle_cpus_are_called_for_help() {
    let outcome = run(&Setup::default(), |os, start| match (start.role, start.argument) {
        (0, _) => lead(os, 2),
        (_, 0) => {
            os.sleep(10 * MS);
            // The receiver is woken on this CPU, because the sender is expected to sleep. So two tasks share this CPU
            // now.
            os.send(0, 7);
            os.user(50 * MS);
        }
        _ => {
            os.receive(1);
            os.user(50 * MS);
        }
    });
    let elapsed = outcome.vms[0].elapsed_ns.expect("measured");
    assert!(elapsed < 66 * MS, "60 ms of work took {elapsed} ns");
}

#[test]
fn idle_cpus_take_ready_tasks() {
    for shared_cache in [false, true] {
        let setup = Setup {
            kernel: Config {
                shared_cache,
                ..Config::default()
            },
            ..Setup::default()
        };
        let outcome = run(&setup, |os, start| {
            if start.role == 0 {
                return lead(os, 4);
            }
            for _ in 0..50 {
                os.user(MS);
                os.sleep(MS / 10);
            }
        });
        let elapsed = outcome.vms[0].elapsed_ns.expect("measured");
        assert!(
            elapsed < 65 * MS,
            "four tasks on four CPUs took {elapsed} ns for 55 ms each"
        );
    }
}

#[test]
fn an_idle_cpu_stops_its_tick() {
    let setup = Setup::default();
    let outcome = run(&setup, |os, _| {
        os.wait_for_cpus();
        os.begin();
        os.sleep(1_000 * MS);
        os.done(None);
    });
    let ticks = counter(&outcome, "guest.ticks");
    assert!(ticks < 40, "{ticks} ticks in an idle second of four CPUs");
}

#[test]
fn a_busy_cpu_ticks_at_the_chosen_rate() {
    let setup = Setup {
        pcpus: 1,
        vcpus: 1,
        ..Setup::default()
    };
    let outcome = run(&setup, |os, _| {
        os.begin();
        os.user(1_000 * MS);
        os.done(None);
    });
    let ticks = counter(&outcome, "guest.ticks");
    assert!((995..=1_010).contains(&ticks), "{ticks} ticks in a second at 1000 Hz");
}

#[test]
fn the_work_does_not_depend_on_the_lock() {
    let work = |lock| {
        let setup = Setup {
            kernel: Config {
                lock,
                ..Config::default()
            },
            hogs: 4,
            ..Setup::default()
        };
        let outcome = run(&setup, |os, start| {
            if start.role == 0 {
                return lead(os, 8);
            }
            for _ in 0..200 {
                os.user_touching(20_000, Touch::anonymous(3));
                os.stat(holdfast_guest::FileId(1), 3);
            }
        });
        assert_eq!(
            counter(&outcome, &format!("guest.lock.{lock}")),
            1,
            "the kernel took another lock"
        );
        (
            counter(&outcome, "guest.page_faults"),
            counter(&outcome, "guest.lookups"),
        )
    };
    for &lock in LockKind::ALL.iter().filter(|lock| !lock.kicks()) {
        assert_eq!(work(lock), work(LockKind::Ticket), "{lock}");
    }
}

#[test]
fn same_seed_same_history() {
    let run_once = |seed| {
        let setup = Setup {
            seed,
            hogs: 4,
            ..Setup::default()
        };
        let outcome = run(&setup, |os, start| {
            if start.role == 0 {
                return lead(os, 6);
            }
            if start.role == 2 {
                return;
            }
            for _ in 0..20 {
                os.user(os.seed("work") % MS);
                os.fork(Fork::Borrow, Start::new(2, 0));
                os.wait();
            }
        });
        outcome.history_hash
    };
    assert_eq!(run_once(1), run_once(1));
    assert_ne!(run_once(1), run_once(2));
}

#[test]
fn a_pass_of_the_balancer_looks_at_every_cpu() {
    // A task alone on its CPU computes. Its CPU balances every 64 ms, and spends 60 ns for each CPU.
    const SECONDS: u64 = 2;
    let elapsed = |vcpus| {
        let setup = Setup {
            pcpus: 8,
            vcpus,
            is_free: true,
            ..Setup::default()
        };
        let outcome = run(&setup, move |os, _| {
            os.wait_for_cpus();
            assert_eq!(os.cpus(), vcpus);
            os.begin();
            os.user(SECONDS * 1_000_000_000);
            os.done(None);
        });
        outcome.vms[0].elapsed_ns.expect("measured")
    };
    let [two, four, eight] = [2, 4, 8].map(elapsed);
    let passes = SECONDS * 1_000 / 64;
    let looks = |cpus: u64| (passes - 1) * cpus * 60..=(passes + 1) * cpus * 60;
    assert!(looks(2).contains(&(four - two)), "{two} and {four} ns, {passes} passes");
    assert!(
        looks(4).contains(&(eight - four)),
        "{four} and {eight} ns, {passes} passes"
    );
}

#[test]
fn a_new_task_waits_for_its_turn_of_one_slice() {
    // On one CPU, 6 ms are shared by the running task, the ready ones and the new one, but at least 0.75 ms each.
    for ready in [0_u32, 1, 3, 11] {
        let first = Rc::new(RefCell::new(None));
        let noted = first.clone();
        let setup = Setup {
            pcpus: 1,
            vcpus: 1,
            is_free: true,
            ..Setup::default()
        };
        run(&setup, move |os, start| match start.role {
            0 => {
                os.begin();
                for argument in 0..ready {
                    os.fork(Fork::Share, Start::new(2, argument));
                }
                os.user(200 * MS);
                os.fork(Fork::Share, Start::new(1, 0));
                let forked = os.now();
                os.user(30 * MS);
                while os.wait().is_some() {}
                let first: u64 = noted.borrow().expect("it has run");
                *noted.borrow_mut() = Some(first - forked);
                os.done(None);
            }
            1 => *noted.borrow_mut() = Some(os.now()),
            _ => os.user(500 * MS),
        });
        // Until the others have had a slice, less what the running one has had already, in ticks.
        let waited = first.borrow().expect("noted");
        let slice = (6 * MS).max(u64::from(ready + 2) * 3 * MS / 4) / u64::from(ready + 2);
        let all = u64::from(ready + 1);
        assert!(
            (slice * all / 2..=(slice + MS) * (all + 1)).contains(&waited),
            "{ready} ready tasks: waited {waited} ns, a slice is {slice} ns"
        );
        if ready == 0 {
            assert!((3 * MS..5 * MS).contains(&waited), "{waited} ns");
        }
    }
}

#[test]
fn one_cpu_at_a_time_keeps_the_time_of_day() {
    // Tasks compute in turn, and CPUs without a task have no tick. So each tick of one CPU keeps the time, and of
    // several at once one does.
    const TASKS: u32 = 4;
    let outcome = run(&Setup::default(), |os, start| {
        if start.role == 0 {
            return lead(os, TASKS);
        }
        for round in 0..8 {
            if (start.argument + round) % TASKS < 2 {
                os.user(20 * MS);
            } else {
                os.sleep(20 * MS);
            }
        }
    });
    let elapsed = outcome.vms[0].elapsed_ns.expect("measured") / MS;
    let (kept, ticks) = (
        counter(&outcome, "lock.xtime.acquired"),
        counter(&outcome, "guest.ticks"),
    );
    assert!(ticks > elapsed * 3 / 2, "{ticks} ticks in {elapsed} ms");
    assert!(
        (elapsed * 9 / 10..elapsed + 20).contains(&kept),
        "{kept} of {ticks} ticks in {elapsed} ms"
    );
}
