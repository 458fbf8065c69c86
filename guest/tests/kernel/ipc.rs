//! Pipes, sockets, semaphores, user-level locks: no data are lost, and no waiter is forgotten.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use holdfast_guest::{Config, FileId, Fork, Start, UserLine, UserLock};
use holdfast_sim::SimMachine;

use crate::machine::{Setup, counter, lead, run};

/// A millisecond in nanoseconds.
const MS: u64 = 1_000_000;

/// Setups with and without CPUs that another guest takes away. Wakeups are on this CPU, on idle neighbors, without the
/// hand-over as before 3.0, and where the tasks slept. The last one is no guest: the host wakes the tasks.
pub fn setups() -> [Setup; 7] {
    let (near, far) = (
        Setup::default(),
        Setup {
            kernel: Config {
                shared_cache: true,
                ..Config::default()
            },
            ..Setup::default()
        },
    );
    [
        near.clone(),
        far.clone(),
        Setup {
            hogs: 4,
            ..near.clone()
        },
        Setup { hogs: 4, ..far },
        Setup {
            hogs: 4,
            kernel: Config {
                ttwu_queue: false,
                ..Config::default()
            },
            ..near.clone()
        },
        Setup {
            hogs: 2,
            kernel: Config {
                wake_wide: true,
                ..Config::default()
            },
            ..near.clone()
        },
        Setup {
            hogs: 2,
            bare_metal: true,
            ..near
        },
    ]
}

#[test]
fn writers_of_one_file_take_turns() {
    // There are more tasks than CPUs, so the waiters for the file must give their CPU up, and be woken.
    for setup in setups() {
        let setup = Setup {
            pcpus: if setup.bare_metal { 2 } else { setup.pcpus },
            vcpus: 2,
            ..setup
        };
        let outcome = run(&setup, |os, start| {
            if start.role == 0 {
                return lead(os, 8);
            }
            for _ in 0..300 {
                os.write(FileId(3), 40);
                os.user(5_000);
            }
        });
        assert!(
            counter(&outcome, "lock.mutex_wait.acquired") > 0,
            "no task slept for the file"
        );
    }
}

#[test]
fn a_pipe_loses_no_byte_and_has_an_end() {
    for setup in setups() {
        let (written, read) = (Rc::new(Cell::new(0u64)), Rc::new(Cell::new(0u64)));
        let (counted_in, counted_out) = (written.clone(), read.clone());
        run(&setup, move |os, start| match (start.role, start.argument) {
            (0, _) => {
                os.open_pipe(0, 3);
                lead(os, 8);
            }
            (_, writer @ 0..3) => {
                for round in 0..200 {
                    let bytes = 1 + (writer * 7_919 + round * 104_729) % 9_000;
                    os.write_pipe(0, bytes);
                    counted_in.set(counted_in.get() + u64::from(bytes));
                    os.user(u64::from(bytes) * 3);
                }
                os.close_pipe_writer(0);
            }
            _ => {
                while let Some(bytes @ 1..) = os.read_pipe(0, 5_000) {
                    counted_out.set(counted_out.get() + u64::from(bytes));
                    os.user(u64::from(bytes) * 2);
                }
            }
        });
        assert!(written.get() > 0);
        assert_eq!(written.get(), read.get());
    }
}

#[test]
fn small_writes_of_many_fill_a_pipe_and_all_arrive() {
    // The writers are faster than the readers. A writer that finds the pipe full sleeps, and reading one page wakes
    // them all.
    for setup in setups() {
        let read = Rc::new(Cell::new(0u64));
        let counted = read.clone();
        let outcome = run(&setup, move |os, start| match (start.role, start.argument) {
            (0, _) => {
                os.open_pipe(0, 5);
                lead(os, 6);
            }
            (_, 0..5) => {
                for _ in 0..1_000 {
                    os.write_pipe(0, 100);
                    os.user(50);
                }
                os.close_pipe_writer(0);
            }
            _ => {
                while let Some(bytes @ 1..) = os.read_pipe(0, 100) {
                    assert_eq!(bytes, 100, "messages of a page's length at most are whole");
                    counted.set(counted.get() + 1);
                    os.user(3_000);
                }
            }
        });
        assert_eq!(read.get(), 5_000);
        assert!(counter(&outcome, "guest.wakeups") > 50, "the pipe was never full");
    }
}

#[test]
fn senders_sleep_while_a_socket_is_full_and_no_message_is_lost() {
    for setup in setups() {
        let (received, most) = (Rc::new(RefCell::new(vec![0u32; 4])), Rc::new(Cell::new(0u64)));
        let (sent, noted, peak) = (Rc::new(Cell::new(0u64)), received.clone(), most.clone());
        run(&setup, move |os, start| match (start.role, start.argument) {
            (0, _) => lead(os, 5),
            (_, sender @ 0..4) => {
                for number in 0..800 {
                    os.send(0, sender << 16 | number);
                    sent.set(sent.get() + 1);
                    os.user(50);
                }
            }
            _ => {
                for count in 1..=3_200 {
                    let message = os.receive(1);
                    let next = &mut noted.borrow_mut()[(message >> 16) as usize];
                    assert_eq!(message & 0xffff, *next, "messages of one sender stay in order");
                    *next += 1;
                    peak.set(peak.get().max(sent.get().saturating_sub(count)));
                    os.user(4_000);
                }
            }
        });
        assert_eq!(*received.borrow(), [800; 4]);
        // The buffer's limit, and one more message for each sender that checked before another sender's message was in
        // it.
        assert!(
            (270..=277 + 4).contains(&most.get()),
            "{} were on their way",
            most.get()
        );
    }
}

#[test]
fn a_task_that_receives_now_does_not_sleep_and_loses_nothing() {
    let received = Rc::new(RefCell::new(Vec::new()));
    let noted = received.clone();
    run(&Setup::default(), move |os, start| {
        // Nothing would wake it.
        if start.role == 0 {
            os.send(0, 3);
            os.send(0, 4);
            noted
                .borrow_mut()
                .extend([1, 1, 1, 0].map(|socket| os.receive_now(socket)));
            os.done(None);
        }
    });
    assert_eq!(*received.borrow(), [Some(3), Some(4), None, None]);
}

#[test]
fn a_child_interrupts_a_read_that_would_block() {
    let interrupted = Rc::new(Cell::new(0));
    let noted = interrupted.clone();
    run(&Setup::default(), move |os, start| {
        if start.role == 1 {
            return os.user(1_000_000);
        }
        os.wait_for_cpus();
        os.begin();
        os.handle_child_signals();
        os.open_pipe(0, 1);
        os.fork(Fork::Copy { vmas: 4 }, Start::new(1, 0));
        assert_eq!(os.read_pipe(0, 1), None, "there is nothing to read");
        assert!(os.try_wait().is_some(), "the child is dead");
        noted.set(1);
        os.done(None);
    });
    assert_eq!(interrupted.get(), 1);
}

#[test]
fn a_child_that_dies_before_the_read_interrupts_it_too() {
    run(&Setup::default(), |os, start| {
        if start.role == 1 {
            return os.user(u64::from(start.argument) * 1_500);
        }
        os.wait_for_cpus();
        os.begin();
        os.handle_child_signals();
        os.open_pipe(0, 1);
        for argument in 0..200 {
            os.fork(Fork::Copy { vmas: 4 }, Start::new(1, argument));
            os.user(150_000);
            assert_eq!(os.read_pipe(0, 1), None, "there is nothing to read");
            assert!(os.try_wait().is_some(), "the child is dead");
        }
        os.done(None);
    });
}

#[test]
fn room_in_a_buffer_wakes_no_task_that_polls_for_data() {
    const ROUNDS: u32 = 500;
    let outcome = run(&Setup::default(), |os, start| match (start.role, start.argument) {
        (0, _) => lead(os, 2),
        (_, 0) => {
            for message in 0..ROUNDS {
                os.send(0, message);
                os.poll(0);
                os.receive(0);
            }
        }
        _ => {
            for _ in 0..ROUNDS {
                // The question makes room for the next one, long before it is answered.
                let message = os.receive(1);
                os.user(50_000);
                os.send(1, message);
            }
        }
    });
    // The answer wakes the client, which preempts the server before that waits.
    let wakeups = counter(&outcome, "guest.wakeups");
    assert!(
        (u64::from(ROUNDS)..u64::from(ROUNDS) + 20).contains(&wakeups),
        "{wakeups} wakeups in {ROUNDS} rounds"
    );
}

#[test]
fn messages_arrive_in_order() {
    for setup in setups() {
        run(&setup, |os, start| match (start.role, start.argument) {
            (0, _) => lead(os, 4),
            (_, client @ 0..2) => {
                for message in 0..2_000 {
                    os.send(2 * client, message);
                    os.poll(2 * client);
                    assert_eq!(os.receive(2 * client), message + 1);
                    // Every distance between the question of one task and the sleep of the other.
                    os.user(u64::from(message * 37 % 3_000));
                }
                os.send(2 * client, 1_000_000);
            }
            (_, server) => {
                let socket = 2 * (server - 2) + 1;
                let mut expected = 0;
                loop {
                    let message = os.receive(socket);
                    if message == 1_000_000 {
                        return;
                    }
                    assert_eq!(message, expected);
                    expected += 1;
                    os.user(u64::from(message * 53 % 2_000));
                    os.send(socket, message + 1);
                    os.user(u64::from(message * 59 % 12_000));
                }
            }
        });
    }
}

#[test]
fn a_semaphore_admits_as_many_as_it_counts() {
    for setup in setups() {
        let (inside, most) = (Rc::new(Cell::new(0u32)), Rc::new(Cell::new(0u32)));
        let highest = most.clone();
        run(&setup, move |os, start| {
            if start.role == 0 {
                os.semaphore_up(1, 2);
                os.semaphore_up(1, 2);
                return lead(os, 8);
            }
            for _ in 0..50 {
                os.semaphore_down(1, 2);
                inside.set(inside.get() + 1);
                most.set(most.get().max(inside.get()));
                os.user(20_000);
                inside.set(inside.get() - 1);
                os.semaphore_up(1, 2);
                os.user(3_000);
            }
        });
        assert_eq!(highest.get(), 2, "never more than two, and two at times");
    }
}

#[test]
fn a_user_lock_excludes_even_preempted_holders() {
    for setup in setups() {
        let lock: Rc<UserLock<(u64, bool), SimMachine>> = Rc::new(UserLock::new((0, false)));
        let total = Rc::new(RefCell::new(0));
        let sum = total.clone();
        run(&setup, move |os, start| {
            if start.role == 0 {
                lead(os, 8);
                *sum.borrow_mut() = lock.lock(os).0;
                return;
            }
            for _ in 0..100 {
                let mut value = lock.lock(os);
                assert!(!value.1, "two tasks hold the lock");
                value.1 = true;
                value.0 += 1;
                // Long enough to be preempted sometimes.
                os.user(30_000);
                value.1 = false;
                drop(value);
                os.user(10_000);
            }
        });
        let _ = total;
    }
}

#[test]
fn a_pipe_without_sleepers_is_read_without_its_wait_queue() {
    const PAGE: u32 = 4096;
    const PAGES: u32 = 8;
    let locks = |rounds: u32| {
        let outcome = run(&Setup::default(), move |os, start| {
            if start.role == 0 {
                os.wait_for_cpus();
                os.begin();
                os.open_pipe(0, 1);
                os.fork(Fork::Copy { vmas: 1 }, Start::new(1, 0));
                // The reader sleeps now.
                os.sleep(5 * MS);
                os.write_pipe(0, PAGE);
                for _ in 0..rounds {
                    os.sleep(5 * MS);
                    os.write_pipe(0, PAGES * PAGE);
                    os.sleep(5 * MS);
                }
                while os.wait().is_some() {}
                return os.done(None);
            }
            os.read_pipe(0, PAGE).expect("no signal");
            for _ in 0..rounds {
                os.sleep(10 * MS);
                for _ in 0..PAGES {
                    assert_eq!(os.read_pipe(0, PAGE), Some(PAGE), "the page is there");
                }
            }
        });
        counter(&outcome, "lock.wait_queue.acquired")
    };
    let (few, many) = (locks(2), locks(12));
    // The writer looks for readers once in each round.
    assert_eq!(many - few, 10, "{few} in 2 rounds, {many} in 12");
}

#[test]
fn a_line_contains_the_number_of_its_changes() {
    let line: Rc<UserLine<SimMachine>> = Rc::new(UserLine::default());
    run(&Setup::default(), move |os, start| {
        if start.role == 0 {
            assert_eq!(line.read(os), 0);
            lead(os, 3);
            assert_eq!(line.read(os), 3 * 50);
            line.change(os);
            line.change(os);
            assert_eq!(line.read(os), 3 * 50 + 2);
            return;
        }
        (0..50).for_each(|_| line.count(os));
    });
}
