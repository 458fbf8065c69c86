//! The debug library: finds misuse that the locks alone cannot find, as error-checking mutexes of pthreads do.
//!
//! Each thread keeps a list of the locks that it holds. Ended with a message is a thread that takes a lock which it
//! holds, that releases or waits with a lock which it does not hold, or that initializes a lock which it holds.
//! Reported once is an order of locks by which threads may wait for each other forever, a second read by one thread,
//! and a condition variable with two locks at the same time.
//!
//! A lock is known by its address. One that is freed and whose memory becomes another lock should be initialized by its
//! function, so that its order is forgotten. Tables are static: a lock may guard the allocator. Beyond their ends
//! nothing is recorded.

use core::cell::{Cell, RefCell};
use core::ffi::c_void;

use lock_api::Mutex;

use crate::annotate;
use crate::misuse::{end, say};

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Lock,
    Read,
    Write,
}

/// A lock that a thread holds.
#[derive(Clone, Copy)]
struct Held {
    lock: usize,
    access: Access,
    /// The function that took it.
    function: &'static str,
}

/// The locks that a thread can hold with a record of each.
const HELD_MAX: usize = 64;

struct List {
    held: [Option<Held>; HELD_MAX],
    /// The number of locks that are held without a record.
    beyond: usize,
}

thread_local! {
    /// It has no destructor, so that it also works in destructors.
    static HELD: RefCell<List> = const { RefCell::new(List { held: [None; HELD_MAX], beyond: 0 }) };
    /// Whether the thread's second read of a lock has been reported.
    static READS_TWICE: Cell<bool> = const { Cell::new(false) };
}

/// A lock was taken by `function` while `held` was held.
#[derive(Clone, Copy)]
struct Step {
    held: usize,
    taken: usize,
    function: &'static str,
    /// The step by which the search came here.
    came_by: usize,
    seen: bool,
}

const STEPS_MAX: usize = 8192;
const WAITS_MAX: usize = 1024;

/// What all threads together have done.
struct Orders {
    steps: [Option<Step>; STEPS_MAX],
    /// All steps are before this one.
    steps_end: usize,
    /// Condition variables with their lock, and the number of threads that wait.
    waits: [(usize, usize, u32); WAITS_MAX],
}

static ORDERS: Mutex<holdfast_threads::RawHybrid, Orders> = Mutex::new(Orders {
    steps: [None; STEPS_MAX],
    steps_end: 0,
    waits: [(0, 0, 0); WAITS_MAX],
});

/// Ends the process: `function` was called with `lock`.
fn refuse(function: &str, lock: usize, what: &str) -> ! {
    say(format_args!("{function}({lock:#x}): {what}"));
    end()
}

fn find(lock: usize) -> Option<Held> {
    HELD.with_borrow(|list| list.held.iter().flatten().rev().find(|held| held.lock == lock).copied())
}

/// Checks that the calling thread may wait for `lock` in `function`.
pub(crate) fn waits<T>(function: &'static str, lock: *const T, access: Access) {
    let lock = lock.addr();
    match find(lock) {
        Some(held) if (held.access, access) == (Access::Read, Access::Read) => {
            if !READS_TWICE.replace(true) {
                say(format_args!(
                    "{function}({lock:#x}): this thread reads already, and waits forever if a writer comes between"
                ));
            }
        }
        Some(_) => refuse(function, lock, "this thread holds it already, and would wait forever"),
        None => HELD.with_borrow(|list| {
            for held in list.held.iter().flatten() {
                ORDERS.lock().take(held, lock, function);
            }
        }),
    }
}

/// Records that the calling thread has got `lock` in `function`.
pub(crate) fn holds<T>(function: &'static str, lock: *const T, access: Access) {
    annotate::acquired(lock.addr());
    HELD.with_borrow_mut(|list| {
        let held = Held {
            lock: lock.addr(),
            access,
            function,
        };
        match list.held.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(held),
            None => list.beyond += 1,
        }
    });
}

/// Checks that the calling thread holds `lock`, which it is about to release in `function`.
pub(crate) fn releases<T>(function: &'static str, lock: *const T, access: Access) {
    let lock = lock.addr();
    HELD.with_borrow_mut(|list| {
        let is_it = |place: &&mut Option<Held>| place.is_some_and(|held| held.lock == lock);
        match list.held.iter_mut().rev().find(is_it) {
            Some(place) if place.is_some_and(|held| held.access == access) => *place = None,
            Some(_) => refuse(
                function,
                lock,
                "this thread holds it in the other way, as reader or writer",
            ),
            None if list.beyond > 0 => list.beyond -= 1,
            None => refuse(function, lock, "this thread does not hold it"),
        }
    });
    annotate::releases(lock);
}

/// Checks that the calling thread is the writer, which becomes a reader.
pub(crate) fn downgrades<T>(function: &'static str, lock: *const T) {
    releases(function, lock, Access::Write);
    holds(function, lock, Access::Read);
}

/// Forgets what was at the address of a lock that is initialized.
pub(crate) fn initializes<T>(function: &'static str, lock: *const T) {
    let lock = lock.addr();
    if find(lock).is_some() {
        refuse(function, lock, "this thread holds it");
    }
    for step in &mut ORDERS.lock().steps {
        if step.is_some_and(|step| step.held == lock || step.taken == lock) {
            *step = None;
        }
    }
}

/// Checks that the calling thread may wait for `cond` with `lock`, and makes the wait.
pub(crate) fn cond_wait<R>(
    function: &'static str,
    cond: *const c_void,
    lock: *const c_void,
    wait: impl FnOnce() -> R,
) -> R {
    releases(function, lock, Access::Lock);
    // The wait takes the lock again, whatever else the thread holds.
    waits(function, lock, Access::Lock);
    let other = ORDERS.lock().begin_wait(cond.addr(), lock.addr());
    if let Some(other) = other {
        say(format_args!(
            "{function}({:#x}, {:#x}): another thread waits for it with the lock {other:#x}",
            cond.addr(),
            lock.addr()
        ));
    }
    let result = wait();
    ORDERS.lock().end_wait(cond.addr());
    holds(function, lock, Access::Lock);
    result
}

impl Orders {
    /// Records that `lock` is taken with `held` held, and reports the circle that this closes.
    fn take(&mut self, held: &Held, lock: usize, function: &'static str) {
        let is_known = |step: &Step| (step.held, step.taken) == (held.lock, lock);
        if self.steps[..self.steps_end].iter().flatten().any(is_known) {
            return;
        }
        let Some(place) = self.steps.iter().position(Option::is_none) else {
            return;
        };
        self.steps_end = self.steps_end.max(place + 1);
        self.steps[place] = Some(Step {
            held: held.lock,
            taken: lock,
            function,
            came_by: place,
            seen: false,
        });
        let Some(mut last) = self.way(lock, held.lock) else {
            return;
        };
        say(format_args!(
            "{function}({lock:#x}): lock order: this thread holds {:#x}, taken by {}",
            held.lock, held.function
        ));
        while let Some(step) = self.steps[last] {
            say(format_args!(
                "  before, {}({:#x}) was called with {:#x} held",
                step.function, step.taken, step.held
            ));
            if step.came_by == last {
                return;
            }
            last = step.came_by;
        }
    }

    /// Searches for steps that lead from `from` to `to`. Returns the last one, from which `came_by` leads back.
    fn way(&mut self, from: usize, to: usize) -> Option<usize> {
        self.steps.iter_mut().flatten().for_each(|step| step.seen = false);
        loop {
            let mut goes_on = false;
            for index in 0..self.steps_end {
                let Some(step) = self.steps[index].filter(|step| !step.seen) else {
                    continue;
                };
                let before = if step.held == from {
                    Some(index)
                } else {
                    let leads =
                        |other: &Option<Step>| other.is_some_and(|other| other.seen && other.taken == step.held);
                    self.steps[..self.steps_end].iter().position(leads)
                };
                let Some(came_by) = before else { continue };
                self.steps[index] = Some(Step {
                    came_by,
                    seen: true,
                    ..step
                });
                if step.taken == to {
                    return Some(index);
                }
                goes_on = true;
            }
            if !goes_on {
                return None;
            }
        }
    }

    /// Records a wait. Returns the lock with which other threads wait, if it is another one.
    fn begin_wait(&mut self, cond: usize, lock: usize) -> Option<usize> {
        let known = self.waits.iter().position(|wait| wait.0 == cond && wait.2 > 0);
        let place = known.or_else(|| self.waits.iter().position(|wait| wait.2 == 0))?;
        let (first, count) = match self.waits[place] {
            (_, first, count) if known.is_some() => (first, count),
            _ => (lock, 0),
        };
        self.waits[place] = (cond, first, count + 1);
        (first != lock).then_some(first)
    }

    fn end_wait(&mut self, cond: usize) {
        let known = self.waits.iter_mut().find(|wait| wait.0 == cond && wait.2 > 0);
        known.into_iter().for_each(|wait| wait.2 -= 1);
    }
}
