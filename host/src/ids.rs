//! Tables indexed by a typed number, so that a vCPU's number cannot index a table of pCPUs.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Index, IndexMut};

/// A number that names one row of a table. Rows are numbered from 0.
pub trait Id: Copy {
    /// Returns the number of the row.
    fn index(self) -> usize;
    /// Returns the id of the row `index`.
    fn of_index(index: usize) -> Self;
}

/// Implements [`Id`] for tuple structs of one `u32`.
macro_rules! id {
    ($($name:ty),+ $(,)?) => {
        $(impl $crate::ids::Id for $name {
            #[inline(always)]
            fn index(self) -> usize {
                self.0 as usize
            }
            #[inline(always)]
            fn of_index(index: usize) -> Self {
                Self(index as u32)
            }
        })+
    };
}
pub(crate) use id;

id!(crate::PcpuId, crate::VmId, crate::VcpuId, crate::TaskId, crate::GroupId);

/// A vector whose rows are named by `I`.
#[derive(Clone, PartialEq, Eq)]
pub struct IdVec<I, T> {
    rows: Vec<T>,
    id: PhantomData<fn(I) -> I>,
}

impl<I: Id, T> IdVec<I, T> {
    /// Returns an empty table.
    pub const fn new() -> IdVec<I, T> {
        IdVec {
            rows: Vec::new(),
            id: PhantomData,
        }
    }

    /// Returns a table of `count` copies of `row`.
    pub fn filled(row: T, count: usize) -> IdVec<I, T>
    where
        T: Clone,
    {
        IdVec {
            rows: vec![row; count],
            id: PhantomData,
        }
    }

    /// Returns the number of rows.
    #[inline]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns whether the table has no rows.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the id that the next row will get.
    pub fn next_id(&self) -> I {
        I::of_index(self.rows.len())
    }

    /// Appends `row` and returns its id.
    pub fn push(&mut self, row: T) -> I {
        let id = self.next_id();
        self.rows.push(row);
        id
    }

    /// Returns the row `id`, or `None` if there is none.
    #[inline]
    pub fn get(&self, id: I) -> Option<&T> {
        self.rows.get(id.index())
    }

    /// Returns the row `id`, or `None` if there is none.
    #[inline]
    pub fn get_mut(&mut self, id: I) -> Option<&mut T> {
        self.rows.get_mut(id.index())
    }

    /// Returns all ids in ascending order.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = I> + ExactSizeIterator + use<I, T> {
        (0..self.rows.len()).map(I::of_index)
    }

    /// Returns all rows in the order of their ids.
    #[inline]
    pub fn iter(&self) -> core::slice::Iter<'_, T> {
        self.rows.iter()
    }

    /// Returns all rows in the order of their ids.
    #[inline]
    pub fn iter_mut(&mut self) -> core::slice::IterMut<'_, T> {
        self.rows.iter_mut()
    }

    /// Returns all rows with their ids.
    pub fn enumerate(&self) -> impl DoubleEndedIterator<Item = (I, &T)> {
        self.rows
            .iter()
            .enumerate()
            .map(|(index, row)| (I::of_index(index), row))
    }
}

impl<I: Id, T> Default for IdVec<I, T> {
    fn default() -> IdVec<I, T> {
        IdVec::new()
    }
}

impl<I: Id, T> FromIterator<T> for IdVec<I, T> {
    fn from_iter<R: IntoIterator<Item = T>>(rows: R) -> IdVec<I, T> {
        IdVec {
            rows: rows.into_iter().collect(),
            id: PhantomData,
        }
    }
}

impl<I: Id, T> Index<I> for IdVec<I, T> {
    type Output = T;

    #[inline(always)]
    #[track_caller]
    fn index(&self, id: I) -> &T {
        &self.rows[id.index()]
    }
}

impl<I: Id, T> IndexMut<I> for IdVec<I, T> {
    #[inline(always)]
    #[track_caller]
    fn index_mut(&mut self, id: I) -> &mut T {
        &mut self.rows[id.index()]
    }
}

impl<I, T: fmt::Debug> fmt::Debug for IdVec<I, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.rows).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PcpuId, VcpuId};

    #[test]
    fn rows_are_found_by_the_id_that_push_returned() {
        let mut table: IdVec<VcpuId, char> = IdVec::new();
        assert!(table.is_empty());
        let ids = ['a', 'b', 'c'].map(|row| table.push(row));
        assert_eq!(ids.map(|id| table[id]), ['a', 'b', 'c']);
        assert!(!table.is_empty());
        assert_eq!(table.get(table.next_id()), None);
        assert!(table.ids().eq(ids));
        table[ids[1]] = 'x';
        assert!(table.enumerate().eq([(ids[0], &'a'), (ids[1], &'x'), (ids[2], &'c')]));
        assert_eq!(IdVec::<PcpuId, u8>::filled(7, 2).len(), 2);
    }
}
