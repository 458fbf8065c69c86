//! The memory of a table with a slot for each CPU: allocated by a kernel, which knows its CPUs at its start, or static
//! in a program. There a waiter must not allocate, since the lock that it waits for may guard the allocator.

use alloc::boxed::Box;
use core::ops::Deref;

/// Its layout, and that of the tables, is the same for all compilers: copies of a program's code share static ones.
#[derive(Debug)]
#[repr(C)]
pub(crate) enum Slots<T: 'static> {
    Owned(Box<[T]>),
    Static(&'static [T]),
}

impl<T> Deref for Slots<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match self {
            Slots::Owned(slots) => slots,
            Slots::Static(slots) => slots,
        }
    }
}

impl<T> FromIterator<T> for Slots<T> {
    fn from_iter<I: IntoIterator<Item = T>>(slots: I) -> Self {
        Slots::Owned(slots.into_iter().collect())
    }
}
