//! Numbers of CPUs, tasks and the like as types, and the tables that they index.

use alloc::boxed::Box;
use core::marker::PhantomData;
use core::ops::Index;

use holdfast_locks::CpuId;

use crate::local::Local32;

/// A task's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u32);

impl TaskId {
    /// No task.
    pub(crate) const NONE: TaskId = TaskId(u32::MAX);
}

/// A number that indexes a [`Table`].
pub(crate) trait Id: Copy {
    fn new(number: u32) -> Self;
    fn number(self) -> u32;
}

macro_rules! ids {
    ($($id:ident),+) => {$(
        impl Id for $id {
            #[inline(always)]
            fn new(number: u32) -> Self {
                $id(number)
            }

            #[inline(always)]
            fn number(self) -> u32 {
                self.0
            }
        }
    )+};
}

ids!(CpuId, TaskId);

/// A table that a typed number indexes.
pub(crate) struct Table<I, T> {
    entries: Box<[T]>,
    index: PhantomData<I>,
}

/// A table with one entry for each CPU.
pub(crate) type CpuTable<T> = Table<CpuId, T>;
/// A table with one entry for each slot of a task.
pub(crate) type TaskTable<T> = Table<TaskId, T>;

impl<I: Id, T> Table<I, T> {
    /// Makes a table of `count` entries.
    pub(crate) fn new(count: u32, entry: impl FnMut(I) -> T) -> Self {
        Table {
            entries: (0..count).map(I::new).map(entry).collect(),
            index: PhantomData,
        }
    }

    /// The number of entries.
    #[inline(always)]
    pub(crate) fn count(&self) -> u32 {
        self.entries.len() as u32
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter()
    }
}

impl<I: Id, T> Index<I> for Table<I, T> {
    type Output = T;

    #[inline(always)]
    fn index(&self, id: I) -> &T {
        &self.entries[id.number() as usize]
    }
}

/// A CPU's or a task's number in plain memory, for one owner as in [`Local32`].
pub(crate) struct LocalId<I> {
    number: Local32,
    id: PhantomData<I>,
}

impl<I: Id> LocalId<I> {
    pub(crate) fn new(id: I) -> Self {
        LocalId {
            number: Local32::new(id.number()),
            id: PhantomData,
        }
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> I {
        I::new(self.number.get())
    }

    #[inline(always)]
    pub(crate) fn set(&self, id: I) {
        self.number.set(id.number());
    }
}
