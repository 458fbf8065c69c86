//! Whose turn it is by loom's rule: the running thread's, for as long as it can run; then of those that can, the one
//! that has yielded least often.
//!
//! A thread that sleeps yields and yields. Loom tries its turn in place of others' wherever that might matter, and
//! after each such turn it might matter again, without end. A sleeper who knows that the turn was another's ends that.

use std::cell::{Cell, RefCell};

/// The thread that runs the execution's body.
pub(super) const MAIN: usize = 0;

#[derive(Clone, Copy)]
struct State {
    yields: u32,
    /// Can certainly run, unless it has just yielded.
    alive: bool,
}

thread_local! {
    /// In the order of creation, as in loom.
    static THREADS: RefCell<Vec<State>> = const { RefCell::new(Vec::new()) };
    /// The thread that yielded last: unless another has run since, loom passes it over.
    static YIELDED: Cell<usize> = const { Cell::new(MAIN) };
    /// The thread that was started last.
    static STARTED: Cell<usize> = const { Cell::new(MAIN) };
}

/// Begins an execution.
pub(super) fn clear() {
    THREADS.with_borrow_mut(Vec::clear);
    add_thread();
    start(MAIN);
}

pub(super) fn add_thread() -> usize {
    THREADS.with_borrow_mut(|threads| {
        threads.push(State { yields: 0, alive: true });
        threads.len() - 1
    })
}

pub(super) fn start(thread: usize) {
    STARTED.set(thread);
}

/// The calling thread, if it has done nothing since its start but to start others.
pub(super) fn current() -> usize {
    STARTED.get()
}

pub(super) fn set_alive(thread: usize, alive: bool) {
    THREADS.with_borrow_mut(|threads| threads[thread].alive = alive);
}

pub(super) fn note_yield(thread: usize) {
    THREADS.with_borrow_mut(|threads| threads[thread].yields += 1);
    YIELDED.set(thread);
}

/// Whether the turn that `thread` has got, after it had yielded itself, was another's.
pub(super) fn is_out_of_turn(thread: usize) -> bool {
    let yielded = YIELDED.get();
    THREADS.with_borrow(|threads| {
        let rank = |index: usize| (threads[index].yields, index);
        (0..threads.len()).any(|other| other != yielded && threads[other].alive && rank(other) < rank(thread))
    })
}
