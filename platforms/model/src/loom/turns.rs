//! The thread that loom's rule lets run next: the running thread as long as it can run, then the thread that has
//! yielded least often among those that can run.
//!
//! A thread that sleeps yields again and again. Loom explores its turn in place of another thread's whenever that might
//! matter. After each such turn it might matter again, without end. A sleeping thread that knows that the turn belongs
//! to another thread stops this.

use std::cell::{Cell, RefCell};

/// The number of the thread that runs the execution's body.
pub(super) const MAIN: usize = 0;

#[derive(Clone, Copy)]
struct State {
    yields: u32,
    /// Whether the thread can certainly run, unless it has just yielded.
    alive: bool,
}

thread_local! {
    /// The threads in the order of creation, as in loom.
    static THREADS: RefCell<Vec<State>> = const { RefCell::new(Vec::new()) };
    /// The thread that yielded last. Loom does not choose it unless another thread has run since.
    static YIELDED: Cell<usize> = const { Cell::new(MAIN) };
    /// The thread that was started last.
    static STARTED: Cell<usize> = const { Cell::new(MAIN) };
}

/// Resets the state for a new execution.
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

/// Returns the calling thread. Valid only while the caller has done nothing since its start except start other threads.
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

/// Returns whether the turn that `thread` got after it yielded belongs to another thread.
pub(super) fn is_out_of_turn(thread: usize) -> bool {
    let yielded = YIELDED.get();
    THREADS.with_borrow(|threads| {
        let rank = |index: usize| (threads[index].yields, index);
        (0..threads.len()).any(|other| other != yielded && threads[other].alive && rank(other) < rank(thread))
    })
}
