//! The counters that a kernel publishes.

use std::cell::Cell;
use std::rc::Rc;

use holdfast_guest::{FileId, LockClass, Touch};

use crate::machine::{Setup, counter, lead, run};

#[test]
fn counters_of_classes_add_up_and_are_left_out_where_nothing_happened() {
    let setup = Setup {
        hogs: 2,
        ..Setup::default()
    };
    let outcome = run(&setup, |os, start| {
        if start.role == 0 {
            return lead(os, 6);
        }
        for _ in 0..50 {
            os.user_touching(5_000, Touch::anonymous(2));
            os.write(FileId(1), 2);
        }
    });
    let counters = &outcome.vms[0].counters;
    let of_class = |class: &LockClass, what: &str| counters.get(&format!("lock.{}.{what}", class.name())).copied();
    for what in ["acquired", "contended"] {
        let sum: u64 = LockClass::ALL.iter().filter_map(|class| of_class(class, what)).sum();
        assert!(sum > 0, "{what}");
        assert_eq!(sum, counters[&format!("lock.{what}")], "{what}");
    }
    for class in LockClass::ALL {
        let acquired = of_class(class, "acquired");
        assert_ne!(acquired, Some(0), "{}", class.name());
        assert_eq!(
            of_class(class, "contended").is_some(),
            acquired.is_some(),
            "{}",
            class.name()
        );
        assert!(of_class(class, "contended") <= acquired, "{}", class.name());
    }
    for class in LockClass::ALL {
        let (waits, waited) = (of_class(class, "contended"), of_class(class, "waited_ns"));
        assert_ne!(waited, Some(0), "{}", class.name());
        assert_eq!(waits > Some(0), waited.is_some(), "{}", class.name());
    }
    assert!(counters["lock.at_once_ns"] > 0);
    assert!(
        !counters.contains_key("lock.measured_held_ns"),
        "the kernel is not a measured one"
    );
}

#[test]
fn no_time_is_published_for_locks_that_take_none() {
    let setup = Setup {
        pcpus: 1,
        vcpus: 1,
        is_free: true,
        ..Setup::default()
    };
    let outcome = run(&setup, |os, _| {
        os.begin();
        os.write(FileId(1), 2);
        os.done(None);
    });
    let counters = &outcome.vms[0].counters;
    assert!(counters["lock.acquired"] > 0);
    assert!(!counters.contains_key("lock.at_once_ns"));
}

#[test]
fn each_moment_of_a_cpu_is_accounted_to_what_it_executes() {
    const MS: u64 = 1_000_000;
    let setup = Setup {
        pcpus: 1,
        vcpus: 1,
        is_free: true,
        ..Setup::default()
    };
    let end = Rc::new(Cell::new(0));
    let noted = end.clone();
    let outcome = run(&setup, move |os, _| {
        os.begin();
        os.user(50 * MS);
        os.sleep(30 * MS);
        // 800 ns for each page.
        os.read(10_000);
        noted.set(os.now());
        os.done(None);
    });
    let spent = ["user", "system", "idle"].map(|mode| counter(&outcome, &format!("guest.{mode}_ns")));
    let sum: u64 = spent.iter().sum();
    // The current stretch, the reads, is not counted yet.
    assert!(
        (end.get() - 9 * MS..end.get() - 8 * MS).contains(&sum),
        "{spent:?} until {}",
        end.get()
    );
    let [user, system, idle] = spent;
    assert_eq!(user, 50 * MS);
    // About 80 ticks of 2 µs.
    assert!((MS / 10..MS / 2).contains(&system), "{system} ns in the kernel");
    assert!((29 * MS..30 * MS).contains(&idle), "{idle} ns idle");
}
