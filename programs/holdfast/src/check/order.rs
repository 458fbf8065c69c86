//! The locks that each thread holds, and the order in which threads have taken locks.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::record::{Hold, Record};
use super::violation::{Access, Step, Violation, ViolationKind};
use super::{Stack, report};

/// The number of violations found.
pub(super) static COUNT: AtomicU64 = AtomicU64::new(0);

/// A lock that the calling thread holds.
struct Held {
    id: u32,
    access: Access,
    stack: Stack,
    hold: Hold,
}

thread_local!(static HELD: RefCell<Vec<Held>> = const { RefCell::new(Vec::new()) });

/// How and where two locks were taken, the second one while the first one was held.
struct Pair {
    held: (Access, Stack),
    taken: (Access, Stack),
}

/// What all threads together have done.
struct Orders {
    /// For each pair of locks, of which the first was held when the second was taken: how both were first taken so.
    steps: BTreeMap<(u32, u32), Pair>,
    names: BTreeMap<u32, String>,
    /// Where each lock was when a thread last waited for it.
    addresses: BTreeMap<u32, usize>,
    /// The locks that a thread has been seen to read twice.
    read_twice: BTreeSet<u32>,
}

static ORDERS: Mutex<Orders> = Mutex::new(Orders {
    steps: BTreeMap::new(),
    names: BTreeMap::new(),
    addresses: BTreeMap::new(),
    read_twice: BTreeSet::new(),
});

fn orders() -> MutexGuard<'static, Orders> {
    ORDERS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Orders {
    fn name(&self, id: u32) -> String {
        let named = self.names.get(&id).cloned();
        named.unwrap_or_else(|| match self.addresses.get(&id) {
            Some(address) => format!("lock {id} at {address:#x}"),
            None => format!("lock {id}"),
        })
    }

    fn step(&self, from: u32, to: u32) -> Option<Step> {
        let Pair { held, taken } = self.steps.get(&(from, to))?;
        Some(Step {
            held: self.name(from),
            held_as: held.0,
            held_at: held.1.clone(),
            taken: self.name(to),
            taken_as: taken.0,
            taken_at: taken.1.clone(),
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
    fn take(&mut self, held: &Held, to: u32, access: Access, stack: &Stack) -> Option<Violation> {
        if self.steps.contains_key(&(held.id, to)) {
            return None;
        }
        let back = self.chain(to, held.id);
        let pair = Pair {
            held: (held.access, held.stack.clone()),
            taken: (access, stack.clone()),
        };
        self.steps.insert((held.id, to), pair);
        let back = back?;
        let mut steps = vec![self.step(held.id, to)?];
        steps.extend(back.windows(2).filter_map(|pair| self.step(pair[0], pair[1])));
        Some(Violation {
            kind: ViolationKind::Order,
            steps,
        })
    }
}

/// Counts and reports a violation.
pub(super) fn found(violation: &Violation) {
    // ORDERING: Relaxed; a count.
    COUNT.fetch_add(1, Relaxed);
    report(violation);
}

/// Checks that the calling thread may wait for the lock of `record`, at `stack`.
///
/// # Panics
/// If it would wait forever, because it holds the lock; but see [`super::report_only`].
pub(super) fn before(record: &Record, access: Access, stack: &Stack) {
    let id = record.id();
    let mut violations = Vec::new();
    // In the last destructors of a thread it is not known what it holds.
    let _ = HELD.try_with(|held| {
        let held = held.borrow();
        let mut orders = orders();
        orders.addresses.insert(id, record.address());
        for held in held.iter() {
            if held.id != id {
                violations.extend(orders.take(held, id, access, stack));
                continue;
            }
            let both_read = (held.access, access) == (Access::Read, Access::Read);
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
                    held_as: held.access,
                    held_at: held.stack.clone(),
                    taken: orders.name(id),
                    taken_as: access,
                    taken_at: stack.clone(),
                }],
            });
        }
    });
    violations.iter().for_each(found);
    let twice = |violation: &&Violation| violation.kind == ViolationKind::Twice;
    if super::panics()
        && let Some(twice) = violations.iter().find(twice)
    {
        panic!("{twice}");
    }
}

/// Records that the calling thread has got the lock of `record`.
pub(super) fn after(record: &Record, access: Access, stack: Stack) {
    let hold = record.acquired(&stack);
    let id = record.id();
    let _ = HELD.try_with(|held| {
        held.borrow_mut().push(Held {
            id,
            access,
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
            .for_each(|held| held.access = Access::Read);
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
    orders.addresses.remove(&id);
    orders.read_twice.remove(&id);
}
