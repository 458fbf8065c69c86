//! Tables indexed by typed numbers: a pCPU's number cannot select a vCPU.

use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

use holdfast_host::{PcpuId, VcpuId, VmId};
use holdfast_machine::LineId;

/// A number that names one of many things of a kind, counted from 0.
pub trait Id: Copy {
    /// The number as an index.
    fn index(self) -> usize;

    /// The thing with this index.
    fn at(index: usize) -> Self;
}

macro_rules! ids {
    ($($id:ident),*) => {$(
        impl Id for $id {
            #[inline(always)]
            fn index(self) -> usize {
                self.0 as usize
            }

            #[inline(always)]
            fn at(index: usize) -> Self {
                $id(index as u32)
            }
        }
    )*};
}

ids!(PcpuId, VcpuId, VmId, LineId);

/// A vector of `T` that only an `I` can index.
#[derive(Clone, Debug)]
pub struct IdVec<I, T> {
    items: Vec<T>,
    id: PhantomData<I>,
}

impl<I: Id, T> IdVec<I, T> {
    /// A table with `items` in the order of their numbers.
    pub fn new(items: Vec<T>) -> Self {
        IdVec { items, id: PhantomData }
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Adds `item` and returns its number.
    pub fn push(&mut self, item: T) -> I {
        self.items.push(item);
        I::at(self.items.len() - 1)
    }

    /// The item `id`, or `None` if there is none.
    #[inline(always)]
    pub fn get(&self, id: I) -> Option<&T> {
        self.items.get(id.index())
    }

    /// The item `id`; the table grows by empty items if it is not there yet.
    #[inline]
    pub fn grow_to(&mut self, id: I) -> &mut T
    where
        T: Default,
    {
        if id.index() >= self.items.len() {
            self.items.resize_with(id.index() + 1, T::default);
        }
        &mut self.items[id.index()]
    }

    /// All items in the order of their numbers.
    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.items.iter()
    }

    /// All items, to be changed.
    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, T> {
        self.items.iter_mut()
    }

    /// The numbers of all items.
    pub fn ids(&self) -> impl Iterator<Item = I> + use<I, T> {
        (0..self.items.len()).map(I::at)
    }

    /// The number of the first item that `accept` accepts.
    pub fn position(&self, accept: impl FnMut(&T) -> bool) -> Option<I> {
        self.items.iter().position(accept).map(I::at)
    }
}

impl<I: Id, T> FromIterator<T> for IdVec<I, T> {
    fn from_iter<A: IntoIterator<Item = T>>(items: A) -> Self {
        IdVec::new(items.into_iter().collect())
    }
}

impl<I: Id, T> Index<I> for IdVec<I, T> {
    type Output = T;

    #[inline(always)]
    fn index(&self, id: I) -> &T {
        &self.items[id.index()]
    }
}

impl<I: Id, T> IndexMut<I> for IdVec<I, T> {
    #[inline(always)]
    fn index_mut(&mut self, id: I) -> &mut T {
        &mut self.items[id.index()]
    }
}

impl<I, T> IntoIterator for IdVec<I, T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.into_iter()
    }
}
