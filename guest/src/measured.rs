//! Executes operations as a measured kernel does: its work, and every spinlock that it takes, in order, nested as
//! there, for as long as there.
//!
//! # Locks
//! A row of the profile means a lock of this kernel that the caller names, such as a file's, or else one of the locks
//! here: one for each class and machine, class and node, CPU, or task.
//!
//! **Order**: a lock nested in another is of a higher rank, or it is one that only its task takes, and never as the
//! outermost. So no two CPUs wait for each other.
//!
//! **Mechanisms**: locks that protect values of this kernel (run queues, wait queues, the task list) are taken by the
//! code that uses the values. What an operation takes of them is left out of its rows.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::class::LockClass;
use crate::costs;
use crate::cpu::ThisCpu;
use crate::ids::{CpuTable, TaskTable};
use crate::lines;
use crate::local::Local;
use crate::machine::Machine;
use crate::pages::Memory;
use crate::profile::{KernelProfile, LineProfile, LockProfile, Operation, OperationProfile, Scope};
use crate::sync::SpinLock;

/// A part of a measured operation: a share of each of its counts and of its work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    operation: Operation,
    /// Share in parts of [`WHOLE`].
    share: u64,
    /// System calls whose entry and exit the caller has charged.
    syscalls: u64,
}

const WHOLE: u64 = 32;

const fn step(operation: Operation, share: u64, syscalls: u64) -> Step {
    Step {
        operation,
        share,
        syscalls,
    }
}

impl Step {
    pub(crate) const FORK: Step = step(Operation::Fork, 16, 1);
    pub(crate) const EXIT: Step = step(Operation::Fork, 14, 0);
    pub(crate) const REAP: Step = step(Operation::Fork, 2, 1);
    pub(crate) const ANONYMOUS_FAULT: Step = step(Operation::AnonymousFault, 32, 0);
    pub(crate) const COPY_FAULT: Step = step(Operation::CopyFault, 32, 0);
    pub(crate) const FILE_FAULT: Step = step(Operation::FileFault, 32, 0);
    pub(crate) const OPEN: Step = step(Operation::OpenClose, 16, 1);
    pub(crate) const CLOSE: Step = step(Operation::OpenClose, 16, 1);
    pub(crate) const STAT: Step = step(Operation::Stat, 32, 1);
    pub(crate) const READ_PAGE: Step = step(Operation::ReadPage, 32, 0);
    pub(crate) const OVERWRITE_PAGE: Step = step(Operation::OverwritePage, 32, 0);
    pub(crate) const APPEND_PAGE: Step = step(Operation::AppendPage, 32, 0);
    pub(crate) const MAP: Step = step(Operation::MapUnmap, 12, 1);
    /// Taking a mapping out of the address space, which excludes all others.
    pub(crate) const DETACH: Step = step(Operation::MapUnmap, 13, 1);
    /// Taking its pages and page tables off and freeing it.
    pub(crate) const UNMAP: Step = step(Operation::MapUnmap, 7, 0);
    /// Creating a name, or removing one.
    pub(crate) const CHANGE_NAME: Step = step(Operation::CreateUnlink, 16, 1);
}

/// What [`Operation::Fork`] takes of the locks that scheduling and processes take themselves, in its shortest course:
/// the child is made ready (`pi_lock`, `rq`), the parent sleeps (`wait_queue`, `rq`), the child ends and wakes it
/// (`siglock`, `wait_queue`, `pi_lock`, `rq`, `rq`), and is reaped (`siglock`).
const FORK_MECHANISMS: [(LockClass, u64); 4] = [
    (LockClass::RunQueue, 4),
    (LockClass::TaskWake, 2),
    (LockClass::WaitQueue, 3),
    (LockClass::Signal, 2),
];

/// A row with the acquisitions of one execution.
struct Row {
    class: LockClass,
    scope: Scope,
    /// Acquisitions in a million operations, or in a million acquisitions of the lock that it is nested in.
    per_million: u64,
    own_ps: u64,
    lines: LineProfile,
    /// Its index among all rows of the kernel.
    index: usize,
    nested: Vec<Row>,
}

/// Instructions of one [`Operation::MapUnmap`] in Linux 6.1, and of the touch among them, which is a page fault of its
/// own here. Of the others mmap executes 6 386, munmap 7 240 while it excludes all others and 4 100 afterwards. Counted
/// between the calls of the semaphore.
const TOUCH_OF: u64 = 24_136;
const TOUCH: u64 = 6_377;

/// The locks of one class of the machine or a node.
type ByClass<M> = Box<[SpinLock<(), M>]>;

/// The measured kernel, if there is one.
pub(crate) struct Measured<M: Machine>(Option<Box<State<M>>>);

struct State<M: Machine> {
    /// By operation.
    rows: Vec<(u64, Vec<Row>)>,
    shared: ByClass<M>,
    nodes: Box<[ByClass<M>]>,
    /// Of each CPU: one for outermost locks, one for those nested in another.
    cpus: CpuTable<(PerCpu, [SpinLock<(), M>; 2])>,
    tasks: TaskTable<[SpinLock<(), M>; 2]>,
}

/// What a CPU carries over to the next execution.
struct PerCpu {
    /// By row: acquisitions in millionths.
    due: Box<[Local]>,
    /// Picoseconds of work.
    work: Local,
    /// Nanoseconds for which it has held locks of rows.
    held_ns: Local,
}

const MILLION: u64 = 1_000_000;

impl<M: Machine> Measured<M> {
    pub(crate) fn new(profile: Option<&KernelProfile>, nodes: u32, cpus: u32, tasks: u32) -> Self {
        let Some(profile) = profile else { return Measured(None) };
        let mut count = 0;
        let fault = &profile.operations[Operation::AnonymousFault as usize];
        let operations = Operation::ALL.iter().zip(&profile.operations);
        let rows = operations
            .map(|(operation, measured)| {
                let without = mechanisms(*operation, fault);
                let touch = if *operation == Operation::MapUnmap { TOUCH } else { 0 };
                let work_ps = measured.work_ps * (TOUCH_OF - touch) / TOUCH_OF;
                (work_ps, rows(&measured.locks, &without, &mut count))
            })
            .collect();
        let by_class = || LockClass::ALL.iter().map(|class| SpinLock::new(*class, ())).collect();
        let pair = || [0; 2].map(|_| SpinLock::new(LockClass::Other, ()));
        Measured(Some(Box::new(State {
            rows,
            shared: by_class(),
            nodes: (0..nodes).map(|_| by_class()).collect(),
            cpus: CpuTable::new(cpus, |_| {
                let due = (0..count).map(|_| Local::new(0)).collect();
                let (work, held_ns) = (Local::new(0), Local::new(0));
                (PerCpu { due, work, held_ns }, pair())
            }),
            tasks: TaskTable::new(tasks, |_| pair()),
        })))
    }

    /// Returns `true` if the kernel is a measured one.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Nanoseconds for which CPUs have held locks of rows. `None`: the kernel is not a measured one.
    pub(crate) fn held_ns(&self) -> Option<u64> {
        let state = self.0.as_ref()?;
        Some(state.cpus.iter().map(|(carried, _)| carried.held_ns.get()).sum())
    }

    /// Executes `step` as measured. `pick` returns the caller's lock of a class, if it has one. Returns `false` if the
    /// kernel is not a measured one.
    #[inline]
    pub(crate) fn execute<'a>(
        &'a self,
        on: &'a ThisCpu<'a, M>,
        step: Step,
        memory: &'a Memory<M>,
        pick: impl Fn(LockClass) -> Option<&'a SpinLock<(), M>>,
    ) -> bool {
        let Some(state) = &self.0 else { return false };
        state.execute(on, step, &|class| pick(class).or_else(|| memory.lock_of(on, class)));
        true
    }
}

impl<M: Machine> State<M> {
    fn execute<'a>(
        &'a self,
        on: &'a ThisCpu<'a, M>,
        step: Step,
        pick: &dyn Fn(LockClass) -> Option<&'a SpinLock<(), M>>,
    ) {
        let (work_ps, rows) = &self.rows[step.operation as usize];
        let charged = costs::SYSCALL * 1_000 * step.syscalls;
        let work_ps = (work_ps * step.share / WHOLE).saturating_sub(charged);
        let part = work_ps / (rows.len() as u64 + 1);
        let mut waiting = work_ps - part * rows.len() as u64;
        for row in rows {
            waiting += part;
            for _ in 0..self.due(on, row, row.per_million * step.share / WHOLE) {
                self.work(on, core::mem::take(&mut waiting));
                let lock = pick(row.class).unwrap_or_else(|| self.lock(on, row, 0));
                self.hold(on, lock, row, || self.execute_nested(on, row, pick));
            }
        }
        self.work(on, waiting);
    }

    fn execute_nested<'a>(
        &'a self,
        on: &'a ThisCpu<'a, M>,
        outer: &Row,
        pick: &dyn Fn(LockClass) -> Option<&'a SpinLock<(), M>>,
    ) {
        for row in &outer.nested {
            for _ in 0..self.due(on, row, row.per_million) {
                let lock = if rank(row.class) > rank(outer.class) {
                    pick(row.class).unwrap_or_else(|| self.lock(on, row, 1))
                } else {
                    &self.tasks[on.current()][1]
                };
                self.hold(on, lock, row, || {});
            }
        }
    }

    /// Returns how often `row` is due now, of `millionths` acquisitions and what is left from before.
    fn due(&self, on: &ThisCpu<'_, M>, row: &Row, millionths: u64) -> u64 {
        let left = &self.cpus[on.id].0.due[row.index];
        let due = left.get() + millionths;
        left.set(due % MILLION);
        due / MILLION
    }

    fn lock(&self, on: &ThisCpu<'_, M>, row: &Row, depth: usize) -> &SpinLock<(), M> {
        match row.scope {
            Scope::Global | Scope::Shared => &self.shared[row.class as usize],
            Scope::Node => &self.nodes[on.system.numa.nodes[on.id] as usize][row.class as usize],
            Scope::Cpu => &self.cpus[on.id].1[depth],
            Scope::Process | Scope::Object => &self.tasks[on.current()][depth],
        }
    }

    fn hold<'a>(&'a self, on: &'a ThisCpu<'a, M>, lock: &'a SpinLock<(), M>, row: &Row, inside: impl FnOnce()) {
        let held = lock.lock_as(on, row.class, rank(row.class) > 0);
        let since = on.now();
        let held = held.touching(row.lines);
        self.work(on, row.own_ps);
        inside();
        self.cpus[on.id].0.held_ns.add(on.now() - since);
        drop(held);
    }

    fn work(&self, on: &ThisCpu<'_, M>, ps: u64) {
        let left = &self.cpus[on.id].0.work;
        let ps = left.get() + ps;
        left.set(ps % 1_000);
        if ps >= 1_000 {
            on.work(ps / 1_000);
        }
    }
}

/// The order in which locks of classes that interrupt handlers or several other classes nest are taken. All others have
/// rank 0.
fn rank(class: LockClass) -> u32 {
    match class {
        LockClass::WaitQueue => 1,
        LockClass::TaskWake => 2,
        LockClass::RunQueue => 3,
        LockClass::Slab => 4,
        LockClass::Lru => 5,
        LockClass::PageList => 6,
        LockClass::Zone => 7,
        LockClass::TimerBase => 8,
        _ => 0,
    }
}

/// What other code takes of the locks of `operation`, in millionths: the code that uses the values behind them, and for
/// [`Operation::MapUnmap`] the touch, which is a page fault of its own here. The last figure is the hold.
fn mechanisms(operation: Operation, fault: &OperationProfile) -> Vec<(LockClass, u64, u64)> {
    let fork = FORK_MECHANISMS
        .iter()
        .map(|(class, count)| (*class, count * MILLION, u64::MAX));
    let touch = fault
        .locks
        .iter()
        .map(|lock| (lock.class, lock.per_million, lock.own_ps));
    match operation {
        Operation::Fork => fork.collect(),
        Operation::MapUnmap => touch.collect(),
        _ => Vec::new(),
    }
}

/// Builds the rows of an operation without what is taken `without` them, of rows with similar holds first.
fn rows(locks: &[LockProfile], without: &[(LockClass, u64, u64)], count: &mut usize) -> Vec<Row> {
    let mut left: Vec<u64> = locks.iter().map(|lock| lock.per_million).collect();
    for (class, taken, own_ps) in without {
        let mut taken = *taken;
        let mut alike: Vec<usize> = (0..locks.len()).filter(|index| locks[*index].class == *class).collect();
        alike.sort_by_key(|index| locks[*index].own_ps.abs_diff(*own_ps));
        for index in alike {
            let less = taken.min(left[index]);
            left[index] -= less;
            taken -= less;
        }
    }
    let mut row = |index: usize, per_million: u64| {
        *count += 1;
        let lock = &locks[index];
        Row {
            class: lock.class,
            scope: lock.scope,
            per_million,
            own_ps: lock.own_ps,
            lines: lock.lines.unwrap_or(lines::of(lock.class)),
            index: *count - 1,
            nested: Vec::new(),
        }
    };
    let mut rows = Vec::new();
    for (index, lock) in locks.iter().enumerate() {
        // A row whose outer lock is a mechanism's is an outermost one here.
        let is_outermost = lock.under.is_none_or(|outer| left[outer as usize] == 0);
        if !is_outermost || left[index] == 0 {
            continue;
        }
        let mut outer = row(index, left[index]);
        let nested = locks
            .iter()
            .enumerate()
            .filter(|(_, lock)| lock.under == Some(index as u32));
        for (inner, _) in nested.filter(|(inner, _)| left[*inner] > 0) {
            let per_acquisition = left[inner] * MILLION / left[index];
            outer.nested.push(row(inner, per_acquisition));
        }
        rows.push(outer);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_nested_in_those_that_kernels_take_before_it() {
        // A sleeper's queue before its state before its CPU's queue (`wake_up`, `try_to_wake_up`); memory from a cache
        // of objects through the lists of pages to the zone; a timer's base innermost.
        let inwards = [
            LockClass::Other,
            LockClass::WaitQueue,
            LockClass::TaskWake,
            LockClass::RunQueue,
            LockClass::Slab,
            LockClass::Lru,
            LockClass::PageList,
            LockClass::Zone,
            LockClass::TimerBase,
        ];
        assert!(inwards.is_sorted_by(|outer, inner| rank(*outer) < rank(*inner)));
        let ranked = LockClass::ALL.iter().filter(|class| rank(**class) > 0);
        assert_eq!(ranked.count(), inwards.len() - 1, "a ranked class is not listed here");
    }

    /// Returns all rows, nested ones too: class, hold, acquisitions, index, and that of the row they are nested in.
    fn flat(rows: &[Row]) -> Vec<(u64, u64, usize, Option<usize>)> {
        let one = |row: &Row, outer| (row.own_ps, row.per_million, row.index, outer);
        let all = rows.iter().flat_map(|row| {
            let nested = row.nested.iter().map(|inner| one(inner, Some(row.index)));
            core::iter::once(one(row, None)).chain(nested)
        });
        all.collect()
    }

    #[test]
    fn what_mechanisms_take_is_left_out_of_the_rows_with_similar_holds_first() {
        let lock = |class, per_million, own_ps, under| LockProfile {
            class,
            scope: Scope::Shared,
            per_million,
            own_ps,
            under,
            lines: None,
        };
        let locks = [
            lock(LockClass::RunQueue, 3 * MILLION, 400, None),
            lock(LockClass::RunQueue, 3 * MILLION / 2, 80, None),
            lock(LockClass::Slab, 6 * MILLION, 30, Some(0)),
            lock(LockClass::Zone, MILLION, 50, Some(1)),
            lock(LockClass::Signal, 2 * MILLION, 60, None),
        ];
        let rows_without = |taken| {
            let mut count = 10;
            let rows = rows(&locks, &[(LockClass::RunQueue, taken, 90)], &mut count);
            let rows = flat(&rows);
            // Each row has an index of its own, without gaps.
            let mut indices: Vec<usize> = rows.iter().map(|row| row.2).collect();
            indices.sort_unstable();
            assert!(indices.into_iter().eq(10..count));
            rows
        };
        // Twice the slab's lock in each hold of the first, the zone's in two of three holds of the second.
        assert_eq!(
            rows_without(0),
            [
                (400, 3 * MILLION, 10, None),
                (30, 2 * MILLION, 11, Some(10)),
                (80, 3 * MILLION / 2, 12, None),
                (50, 666_666, 13, Some(12)),
                (60, 2 * MILLION, 14, None),
            ]
        );
        // The second row's hold is nearer. What is nested in it is then more of the rest.
        assert_eq!(
            rows_without(MILLION / 2)[2..4],
            [(80, MILLION, 12, None), (50, MILLION, 13, Some(12))]
        );
        // Nothing is left of it: what was nested is outermost. The rest is taken off the first row.
        assert_eq!(
            rows_without(5 * MILLION / 2),
            [
                (400, 2 * MILLION, 10, None),
                (30, 3 * MILLION, 11, Some(10)),
                (50, MILLION, 12, None),
                (60, 2 * MILLION, 13, None),
            ]
        );
        assert_eq!(rows_without(9 * MILLION).len(), 3, "no more than there is");
    }
}
