//! Memory: the page allocator, the LRU lists, slabs, and address spaces.
//!
//! Pages are counted, not stored. What matters is which CPU takes which lock, how often, and for how long.

mod flush;
mod lock;
mod pages;
mod space;

pub(crate) use pages::Memory;
pub(crate) use space::{Fault, Mm, Spaces};
