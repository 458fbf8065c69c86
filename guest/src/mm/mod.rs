//! Memory: the page allocator, the LRU lists, slabs, address spaces, TLBs.
//!
//! Pages are counted, not stored: what matters is which lock is taken how often, for how long, and by whom.

mod pages;
mod space;
mod tlb;

pub(crate) use pages::{Memory, PageLists};
pub(crate) use space::{
    AddressSpace, Fault, copy_space, fault, map_files, map_pages, release_space, unmap_files, unmap_pages,
};
pub(crate) use tlb::{flush_here, load_space, switch_space};
