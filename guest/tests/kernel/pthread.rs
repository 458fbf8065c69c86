//! Futexes with the locks on top of them, streams and epoll: no data are lost, and no waiter is forgotten.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use holdfast_guest::{Events, Fork, UserCondition, UserMutex};
use holdfast_sim::SimMachine;

use crate::ipc::setups;
use crate::machine::{Setup, counter, lead, lead_forked, run};

type Mutex<T> = Rc<UserMutex<T, SimMachine>>;

#[test]
fn a_user_mutex_excludes_even_preempted_holders() {
    for setup in setups() {
        let mutex: Mutex<(u64, bool)> = Rc::new(UserMutex::new((0, false)));
        let outcome = run(&setup, move |os, start| {
            if start.role == 0 {
                lead(os, 8);
                assert_eq!(mutex.lock(os).0, 8 * 100);
                return;
            }
            for round in 0..100 {
                let mut value = mutex.lock(os);
                assert!(!value.1, "two tasks hold the mutex");
                value.1 = true;
                value.0 += 1;
                // Long enough to be preempted sometimes.
                os.user(30_000);
                value.1 = false;
                drop(value);
                os.user(u64::from(start.argument * 37 + round) * 101 % 20_000);
            }
        });
        assert!(
            counter(&outcome, "lock.futex_hash.acquired") > 0,
            "no task slept for the mutex"
        );
    }
}

#[test]
fn a_bounded_buffer_loses_no_item_and_forgets_no_waiter() {
    const ITEMS: u32 = 400;
    for setup in setups() {
        let buffer: Mutex<VecDeque<u32>> = Rc::new(UserMutex::new(VecDeque::new()));
        let (filled, drained) = (Rc::new(UserCondition::default()), Rc::new(UserCondition::default()));
        let taken = Rc::new(RefCell::new(Vec::new()));
        let got = taken.clone();
        run(&setup, move |os, start| match (start.role, start.argument) {
            (0, _) => lead(os, 8),
            (_, producer @ 0..4) => {
                for item in 0..ITEMS {
                    os.user(u64::from(item * 7_919 + producer * 31) % 9_000);
                    let mut queue = buffer.lock(os);
                    while queue.len() >= 3 {
                        queue = drained.wait(queue);
                    }
                    queue.push_back(producer * ITEMS + item);
                    filled.signal(&queue);
                }
            }
            (_, consumer) => {
                for item in 0..ITEMS {
                    let mut queue = buffer.lock(os);
                    while queue.is_empty() {
                        queue = filled.wait(queue);
                    }
                    got.borrow_mut().push(queue.pop_front().expect("not empty"));
                    drained.signal(&queue);
                    drop(queue);
                    os.user(u64::from(item * 104_729 + consumer * 17) % 9_000);
                }
            }
        });
        let taken = taken.borrow();
        let of = |producer: u32| taken.iter().filter(move |item| **item / ITEMS == producer);
        for producer in 0..4 {
            assert!(
                of(producer).copied().eq(producer * ITEMS..(producer + 1) * ITEMS),
                "the items of producer {producer} are neither lost, doubled nor reordered"
            );
        }
    }
}

#[test]
fn both_ends_of_a_connection_read_what_the_other_wrote() {
    run(&Setup::default(), |os, start| {
        if start.role == 0 {
            return lead(os, 1);
        }
        let mut items = Vec::new();
        for (from, to, burst) in [
            (0, 1, [1, 2, 3]),
            (1, 0, [4, 5, 6]),
            (3, 2, [7, 8, 9]),
            (2, 3, [10, 11, 12]),
        ] {
            assert_eq!(os.write_stream(from, &burst, 100), 3);
            assert_eq!(
                os.read_stream(from, 1_000, &mut items),
                0,
                "{from} reads what it wrote itself"
            );
            assert_eq!(os.read_stream(to, 1_000, &mut items), 3);
            assert_eq!(items, burst);
            items.clear();
        }
        // The buffer of one direction holds 124928 bytes in segments of whole items up to 16000, and the other is free.
        assert_eq!(os.write_stream(0, &[0; 200], 1_000), 124);
        assert_eq!(os.write_stream(0, &[0; 200], 1_000), 0);
        assert_eq!(os.write_stream(1, &[0; 50], 1_000), 50);
        // Whole segments are read until the limit is reached: one of 16 items, two, and the rest.
        let read = [1, 16_001, 1_000_000].map(|limit| os.read_stream(1, limit, &mut items));
        assert_eq!(read, [16, 32, 76]);
    });
}

#[test]
fn a_writer_is_told_once_a_quarter_of_the_buffer_or_less_is_in_use() {
    // The last wait would never end: there is no other task.
    run(&Setup::default(), |os, _| {
        os.wait_for_cpus();
        os.begin();
        assert_eq!(os.write_stream(0, &[0; 200], 1_000), 124);
        os.watch(0, 0, Events::WRITE);
        // Segments of 16 items: 28 items, 28 000 bytes, are left after six, and 44 after five.
        let mut items = Vec::new();
        for _ in 0..5 {
            os.read_stream(1, 1, &mut items);
        }
        os.watch(0, 1, Events::READ);
        assert_eq!(os.wait_ready(0), (1, Events::READ), "only the other end is ready");
        os.read_stream(1, 1, &mut items);
        assert_eq!(items.len(), 6 * 16);
        assert_eq!(os.wait_ready(0), (0, Events::WRITE));
        os.watch(0, 1, Events::READ | Events::WRITE);
        assert_eq!(os.wait_ready(0), (1, Events::READ | Events::WRITE));
        os.done(None);
    });
}

#[test]
fn streams_conserve_what_they_carry_and_epoll_reports_every_arrival() {
    const ITEMS: u32 = 3_000;
    const BYTES: u32 = 700;
    const STOP: u32 = u32::MAX;
    for setup in setups() {
        // Two readers share one epoll instance for three writers. The end of each stream stops its readers.
        let seen: Rc<RefCell<[Vec<u32>; 3]>> = Rc::default();
        let open = Rc::new(Cell::new(3));
        let (arrived, left) = (seen.clone(), open.clone());
        run(&setup, move |os, start| match (start.role, start.argument) {
            (0, _) => {
                for stream in 0..3 {
                    os.watch(0, 2 * stream + 1, Events::READ);
                }
                os.watch(0, 7, Events::READ);
                lead(os, 5);
            }
            (_, writer @ 0..3) => {
                let items: Vec<u32> = (0..ITEMS).chain([STOP]).collect();
                let mut next = 0;
                while next < items.len() {
                    let burst = (next % 97 + 1).min(items.len() - next);
                    let written = os.write_stream(2 * writer, &items[next..next + burst], BYTES);
                    next += written;
                    os.user(u64::from(writer * 53 + next as u32) * 211 % 40_000);
                    match written {
                        0 if writer == 1 => {
                            os.watch(1, 2 * writer, Events::WRITE);
                            assert_eq!(os.wait_ready(1), (2 * writer, Events::WRITE));
                        }
                        0 => os.sleep(50_000),
                        _ => {}
                    }
                }
            }
            _ => loop {
                let (stream, events) = os.wait_ready(0);
                assert!(events.has(Events::READ), "only arrivals are watched for");
                if stream == 7 {
                    // The last stream has ended, and the other reader must stop, too.
                    os.watch(0, 7, Events::READ);
                    return;
                }
                let mut items = Vec::new();
                os.read_stream(stream, 5_000, &mut items);
                os.user(items.len() as u64 * 900);
                arrived.borrow_mut()[stream as usize / 2].extend(&items);
                if items.last() == Some(&STOP) {
                    left.set(left.get() - 1);
                    if left.get() == 0 {
                        os.write_stream(6, &[STOP], BYTES);
                    }
                } else {
                    os.watch(0, stream, Events::READ);
                }
            },
        });
        for arrived in seen.borrow().iter() {
            assert!(arrived.iter().copied().eq((0..ITEMS).chain([STOP])));
        }
    }
}

#[test]
fn each_event_wakes_one_waiter() {
    // Four threads wait for one stream, which is watched again after each event.
    const READERS: u32 = 4;
    const EVENTS: u32 = 200;
    let read = Rc::new(Cell::new(0));
    let counted = read.clone();
    let setup = Setup {
        pcpus: 5,
        vcpus: 5,
        ..Setup::default()
    };
    let outcome = run(&setup, move |os, start| {
        if start.role == 0 {
            return lead_forked(os, READERS + 1, Fork::Share);
        }
        if start.argument == 0 {
            os.watch(0, 1, Events::READ);
            // As many items as events, and one for each reader to end it.
            for item in 0..EVENTS + READERS {
                os.user(100_000);
                assert_eq!(os.write_stream(0, &[item], 8), 1);
            }
            return;
        }
        let mut items = Vec::new();
        while items.last().is_none_or(|&item| item < EVENTS) {
            assert_eq!(os.wait_ready(0), (1, Events::READ));
            let before = items.len();
            // Another event is not reported before the stream is watched again.
            assert_eq!(os.read_stream(1, 8, &mut items), 1);
            counted.set(counted.get() + items.len() - before);
            os.watch(0, 1, Events::READ);
        }
    });
    assert_eq!(read.get(), (EVENTS + READERS) as usize);
    let wakeups = counter(&outcome, "guest.wakeups");
    let events = u64::from(EVENTS + READERS);
    assert!(
        (events - 20..events + 20).contains(&wakeups),
        "{wakeups} wakeups, {events} events"
    );
}

#[test]
fn copying_costs_as_much_at_either_end_of_a_stream() {
    let elapsed = |bytes, reads: bool| {
        let setup = Setup {
            is_free: true,
            ..Setup::default()
        };
        let outcome = run(&setup, move |os, _| {
            os.wait_for_cpus();
            os.begin();
            let mut items = Vec::new();
            for _ in 0..20 {
                os.write_stream(0, &[1], bytes);
                if reads {
                    os.read_stream(1, 1 << 20, &mut items);
                }
            }
            os.done(None);
        });
        outcome.vms[0].elapsed_ns.expect("measured")
    };
    let copies = |reads| elapsed(4_000, reads) - elapsed(8, reads);
    let (written, both) = (copies(false), copies(true));
    assert!(written > 20 * 100, "{written} ns for 80 kB");
    assert!(
        both.abs_diff(2 * written) <= 40,
        "{both} ns at both ends, {written} at one"
    );
}
