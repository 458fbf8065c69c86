//! Tests of each operation alone: the words that it leaves, and what it asks of the kernel.

extern crate std;

use core::cell::{Cell, RefCell};
use std::rc::Rc;
use std::vec::Vec;

use super::*;
use crate::cpu::solo::{Solo, SoloWord};

/// What the kernel was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Sleep(u32),
    Wake(usize, u32),
    /// The value, how many wake, and the key to which the others move.
    Requeue(u32, u32, usize),
}

std::thread_local! {
    static ASKED: RefCell<Vec<Asked>> = const { RefCell::new(Vec::new()) };
    static GENERATION: Cell<u8> = const { Cell::new(0) };
    /// How often [`Futexes::requeue`] finds another value.
    static REFUSALS: Cell<u32> = const { Cell::new(0) };
}

fn ask(asked: Asked) {
    ASKED.with_borrow_mut(|all| all.push(asked));
}

/// Returns what the kernel was asked for since the last call.
fn asked() -> Vec<Asked> {
    ASKED.take()
}

impl Futexes for Solo {
    fn sleep(&self, _: &SoloWord<u32>, value: u32) -> bool {
        ask(Asked::Sleep(value));
        // All waiters that the caller waits for leave meanwhile.
        LEAVERS.with_borrow_mut(|leavers| leavers.drain(..).for_each(|leave| leave()));
        false
    }
    fn wake(&self, key: usize, count: u32) {
        ask(Asked::Wake(key, count));
    }
    fn requeue(&self, word: &SoloWord<u32>, value: u32, count: u32, key: usize) -> bool {
        ask(Asked::Requeue(value, count, key));
        assert_eq!(self.load(word, Relaxed), value, "the present value");
        let left = REFUSALS.get();
        if left > 0 {
            REFUSALS.set(left - 1);
            // A notification came in between.
            self.fetch_add(word, 1, Relaxed);
        }
        left == 0
    }
    fn generation(&self) -> u8 {
        GENERATION.get()
    }
}

std::thread_local! {
    static LEAVERS: RefCell<Vec<std::boxed::Box<dyn Fn()>>> = const { RefCell::new(Vec::new()) };
}

type Variable = RequeueCondvar<SoloWord<u32>, SoloWord<usize>>;

const MUTEX: usize = 0x1000;

fn sequence(variable: &Variable) -> u32 {
    Solo.load(variable.words().0, Relaxed)
}

/// Returns the keys of the words on which waiters and the destroyer sleep.
fn keys(variable: &Variable) -> (usize, usize) {
    let (sequence, waiters, _) = variable.words();
    (Solo.key(sequence), Solo.key(waiters))
}

fn known_mutex(variable: &Variable) -> usize {
    Solo.load_address(variable.words().2, Relaxed)
}

#[test]
fn it_knows_the_mutex_of_its_waiters_and_when_there_are_several() {
    let variable = Variable::new();
    for _ in 0..3 {
        assert_eq!(variable.enter(&Solo, MUTEX), 0);
        assert_eq!(known_mutex(&variable), MUTEX);
    }
    // A broadcast under way that knows one mutex must look again, once.
    for other in [MUTEX + 4, MUTEX, MUTEX + 8] {
        assert_eq!(variable.enter(&Solo, other), 1);
        assert_eq!((known_mutex(&variable), sequence(&variable)), (MIXED, 1));
    }
    assert_eq!(variable.count(&Solo), 6);
    assert_eq!(asked(), []);
}

#[test]
fn waiters_of_another_generation_do_not_count() {
    let variable = Variable::new();
    for generation in [0, 1, 2, 255, 0] {
        GENERATION.set(generation);
        for count in 1..4 {
            variable.enter(&Solo, MUTEX);
            assert_eq!(variable.count(&Solo), count, "generation {generation}");
        }
        GENERATION.set(generation.wrapping_add(1));
        assert_eq!(variable.count(&Solo), 0);
        variable.notify_one(&Solo);
        variable.notify_all(&Solo, 1);
        variable.destroy(&Solo);
        assert_eq!(asked(), [], "no waiter to be woken or waited for");
    }
}

#[test]
fn one_notification_wakes_one_waiter_if_there_is_one() {
    let variable = Variable::new();
    variable.notify_one(&Solo);
    assert_eq!((asked(), sequence(&variable)), (Vec::new(), 0));
    variable.enter(&Solo, MUTEX);
    for notified in 1..4 {
        assert!(variable.notify_one(&Solo));
        assert_eq!(asked(), [Asked::Wake(keys(&variable).0, 1)]);
        assert_eq!(sequence(&variable), notified);
    }
    assert!(!variable.leave(&Solo));
    assert!(!variable.notify_one(&Solo), "it has left");
    assert_eq!(asked(), []);
}

#[test]
fn a_broadcast_wakes_as_many_as_can_run_and_moves_the_others() {
    for waiters in 0..6 {
        for at_once in 0..6 {
            for (several, refusals) in [(false, 0), (false, 2), (true, 0)] {
                let variable = Variable::new();
                (0..waiters).for_each(|_| _ = variable.enter(&Solo, MUTEX));
                if several && waiters > 0 {
                    Solo.store_address(variable.words().2, MIXED, Relaxed);
                }
                REFUSALS.set(refusals);
                assert_eq!(variable.notify_all(&Solo, at_once), waiters);
                let all = [Asked::Wake(keys(&variable).0, u32::MAX)];
                let moves = |value| Asked::Requeue(value, at_once.max(1), MUTEX);
                let expected: Vec<Asked> = match (waiters, waiters > at_once && !several) {
                    (0, _) => Vec::new(),
                    (_, false) => all.to_vec(),
                    (_, true) => (1..=1 + refusals).map(moves).collect(),
                };
                assert_eq!(asked(), expected, "{waiters} waiters, {at_once} at once");
                REFUSALS.set(0);
                // Each waiter that leaves passes on if others were moved.
                let passes = waiters > at_once;
                (0..waiters).for_each(|_| assert_eq!(variable.leave(&Solo), passes));
                assert_eq!(variable.count(&Solo), 0);
            }
        }
    }
}

#[test]
fn a_waiter_sleeps_on_what_it_read_before_it_unlocked_and_passes_on_with_the_mutex() {
    for (woken, moved) in [(true, true), (true, false), (false, true)] {
        let variable = Variable::new();
        Solo.store(variable.words().0, 7, Relaxed);
        let steps = RefCell::new(Vec::new());
        let sleep = |word: &SoloWord<u32>, value| {
            steps.borrow_mut().push("sleep");
            assert_eq!(
                (Solo.key(word), value, variable.count(&Solo)),
                (keys(&variable).0, 7, 1)
            );
            if moved {
                variable.notify_all(&Solo, 0);
                asked();
            }
            woken
        };
        let lock = || {
            assert_eq!(
                (variable.count(&Solo), asked()),
                (0, Vec::new()),
                "it knows the mutex only"
            );
            steps.borrow_mut().push("lock");
        };
        let unlock = || {
            assert_eq!(variable.count(&Solo), 1);
            steps.borrow_mut().push("unlock");
        };
        variable.wait(&Solo, MUTEX, unlock, sleep, lock);
        assert_eq!(steps.into_inner(), ["unlock", "sleep", "lock"]);
        let expected = if woken && moved {
            std::vec![Asked::Wake(MUTEX, 1)]
        } else {
            Vec::new()
        };
        assert_eq!(asked(), expected, "woken {woken}, moved {moved}");
    }
}

#[test]
fn it_is_destroyed_when_the_last_waiter_has_left() {
    for several in [false, true] {
        let variable = &Rc::new(Variable::new());
        (0..2).for_each(|_| _ = variable.enter(&Solo, MUTEX));
        if several {
            Solo.store_address(variable.words().2, MIXED, Relaxed);
        }
        let (on_sequence, on_waiters) = keys(variable);
        let left = Rc::clone(variable);
        let last = move || {
            // Of those that leave only the last one wakes the destroyer.
            let before = asked();
            assert!(!left.leave(&Solo));
            assert_eq!(asked(), []);
            assert!(!left.leave(&Solo));
            assert_eq!(asked(), [Asked::Wake(on_waiters, u32::MAX)]);
            before.into_iter().for_each(ask);
        };
        LEAVERS.with_borrow_mut(|leavers| leavers.push(std::boxed::Box::new(last)));
        variable.destroy(&Solo);
        let mut expected = std::vec![Asked::Wake(on_sequence, u32::MAX)];
        if !several {
            expected.push(Asked::Wake(MUTEX, u32::MAX));
        }
        expected.push(Asked::Sleep((2 * ONE) | DESTROYED));
        assert_eq!(asked(), expected);
        assert_eq!(sequence(variable), 1);
    }
}
