//! The locks that each thread holds, and the order in which threads have taken locks.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::record::{Hold, Record};
use super::{Stack, report};

/// The number of violations found.
pub(super) static COUNT: AtomicU64 = AtomicU64::new(0);

/// A lock that the calling thread holds.
struct Held {
    id: u32,
    shared: bool,
    stack: Stack,
    hold: Hold,
}

thread_local!(static HELD: RefCell<Vec<Held>> = const { RefCell::new(Vec::new()) });

/// What all threads together have done.
#[derive(Default)]
struct Orders {
    /// For each pair of locks, of which the first was held when the second was taken: where both were first taken so.
    steps: BTreeMap<(u32, u32), (Stack, Stack)>,
    names: BTreeMap<u32, String>,
    /// The locks that a thread has been seen to read twice.
    read_twice: BTreeSet<u32>,
}

static ORDERS: Mutex<Orders> = Mutex::new(Orders {
    steps: BTreeMap::new(),
    names: BTreeMap::new(),
    read_twice: BTreeSet::new(),
});

fn orders() -> MutexGuard<'static, Orders> {
    ORDERS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Orders {
    fn name(&self, id: u32) -> String {
        self.names.get(&id).cloned().unwrap_or_else(|| format!("lock {id}"))
    }

    fn step(&self, from: u32, to: u32) -> Option<Step> {
        let (first, second) = self.steps.get(&(from, to))?.clone();
        Some(Step {
            held: self.name(from),
            held_at: first,
            taken: self.name(to),
            taken_at: second,
        })
    }

    /// Returns the shortest chain of locks from `from` to `to`, both included, in which each was held when the next one
    /// was taken.
    fn chain(&self, from: u32, to: u32) -> Option<Vec<u32>> {
        let mut came = BTreeMap::from([(from, from)]);
        let mut todo = VecDeque::from([from]);
        while let Some(at) = todo.pop_front() {
            if at == to {
                let mut chain = vec![to];
                while chain[chain.len() - 1] != from {
                    chain.push(came[&chain[chain.len() - 1]]);
                }
                chain.reverse();
                return Some(chain);
            }
            for &(_, next) in self.steps.range((at, 0)..=(at, u32::MAX)).map(|(step, _)| step) {
                came.entry(next).or_insert_with(|| {
                    todo.push_back(next);
                    at
                });
            }
        }
        None
    }

    /// Records that `to` is taken with `held` held. Returns the circle that this closes, if it does so for the first
    /// time.
    fn take(&mut self, held: &Held, to: u32, stack: &Stack) -> Option<Violation> {
        if self.steps.contains_key(&(held.id, to)) {
            return None;
        }
        let back = self.chain(to, held.id);
        self.steps.insert((held.id, to), (held.stack.clone(), stack.clone()));
        let back = back?;
        let mut steps = vec![self.step(held.id, to)?];
        steps.extend(back.windows(2).filter_map(|pair| self.step(pair[0], pair[1])));
        Some(Violation {
            kind: ViolationKind::Order,
            steps,
        })
    }
}

/// A mistake in the use of locks.
#[derive(Clone, Debug)]
pub struct Violation {
    /// What is wrong.
    pub kind: ViolationKind,
    /// For a circle its steps, of which the first has closed it; otherwise one step, whose two locks are the same.
    pub steps: Vec<Step>,
}

/// The kinds of violations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ViolationKind {
    /// Locks were taken in orders that form a circle.
    Order,
    /// A thread takes a lock that it holds, and would wait forever.
    Twice,
    /// A thread reads what it reads already, and waits forever if a writer comes in between.
    ReadTwice,
}

/// A lock was taken while another one was held.
#[derive(Clone, Debug)]
pub struct Step {
    /// The name or number of the lock that was held.
    pub held: String,
    /// Where it was taken.
    pub held_at: Stack,
    /// The name or number of the lock that was taken then.
    pub taken: String,
    /// Where that was.
    pub taken_at: Stack,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            ViolationKind::Order => writeln!(f, "lock order: threads may wait for each other forever")?,
            ViolationKind::Twice => writeln!(f, "a thread takes a lock that it holds")?,
            ViolationKind::ReadTwice => {
                writeln!(f, "a thread reads twice, and waits forever if a writer comes between")?
            }
        }
        for (step, when) in self
            .steps
            .iter()
            .zip(std::iter::once("now").chain(std::iter::repeat("before")))
        {
            write!(f, "  {when}: {} is held, taken at\n{}", step.held, step.held_at)?;
            write!(f, "  {when}: {} is taken at\n{}", step.taken, step.taken_at)?;
        }
        Ok(())
    }
}

fn found(violation: &Violation) {
    // ORDERING: Relaxed; a count.
    COUNT.fetch_add(1, Relaxed);
    report(violation);
}

/// Checks that the calling thread may wait for the lock of `record`, at `stack`.
///
/// # Panics
/// If it would wait forever, because it holds the lock.
pub(super) fn before(record: &Record, shared: bool, stack: &Stack) {
    let id = record.id();
    let mut violations = Vec::new();
    // In the last destructors of a thread it is not known what it holds.
    let _ = HELD.try_with(|held| {
        let held = held.borrow();
        let mut orders = orders();
        for held in held.iter() {
            if held.id != id {
                violations.extend(orders.take(held, id, stack));
                continue;
            }
            let both_read = held.shared && shared;
            if both_read && !orders.read_twice.insert(id) {
                continue;
            }
            violations.push(Violation {
                kind: if both_read {
                    ViolationKind::ReadTwice
                } else {
                    ViolationKind::Twice
                },
                steps: vec![Step {
                    held: orders.name(id),
                    held_at: held.stack.clone(),
                    taken: orders.name(id),
                    taken_at: stack.clone(),
                }],
            });
        }
    });
    violations.iter().for_each(found);
    if let Some(twice) = violations
        .iter()
        .find(|violation| violation.kind == ViolationKind::Twice)
    {
        panic!("{twice}");
    }
}

/// Records that the calling thread has got the lock of `record`.
pub(super) fn after(record: &Record, shared: bool, stack: Stack) {
    let hold = record.acquired(&stack);
    let id = record.id();
    let _ = HELD.try_with(|held| {
        held.borrow_mut().push(Held {
            id,
            shared,
            stack,
            hold,
        })
    });
}

/// Records that the calling thread is about to unlock the lock of `record`. Returns where it had taken the lock.
pub(super) fn release(record: &Record) -> Option<Stack> {
    let id = record.id();
    let held = HELD.try_with(|held| {
        let mut held = held.borrow_mut();
        let last = held.iter().rposition(|held| held.id == id)?;
        Some(held.remove(last))
    });
    let held = held.ok().flatten()?;
    record.released(held.hold);
    Some(held.stack)
}

/// Records that the calling thread, which writes, from now on reads.
pub(super) fn downgrade(record: &Record) {
    let id = record.id();
    let _ = HELD.try_with(|held| {
        let mut held = held.borrow_mut();
        held.iter_mut()
            .filter(|held| held.id == id)
            .for_each(|held| held.shared = true);
    });
}

pub(super) fn name(id: u32, name: &str) {
    orders().names.insert(id, name.to_owned());
}

pub(super) fn name_of(id: u32) -> String {
    orders().name(id)
}

/// Forgets a lock that does not exist any more.
pub(super) fn forget(id: u32) {
    let mut orders = orders();
    orders.steps.retain(|&(from, to), _| from != id && to != id);
    orders.names.remove(&id);
    orders.read_twice.remove(&id);
}
