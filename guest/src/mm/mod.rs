//! Memory: the page allocator, the LRU lists, slabs, address spaces.
//!
//! Pages are counted, not stored: what matters is which lock is taken how often, for how long, and by whom.

mod pages;
mod space;

pub(crate) use pages::{Memory, PageLists};
pub(crate) use space::{
    AddressSpace, Fault, copy_space, fault, flush_here, load_space, map_files, map_pages, release_space, switch_space,
    unmap_files, unmap_pages,
};
