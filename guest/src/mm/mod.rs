//! Memory: the page allocator, the LRU lists, slabs, address spaces, TLBs.
//!
//! Pages are counted, not stored: what matters is which lock is taken how often, for how long, and by whom.

mod lock;
mod pages;
mod space;
mod tlb;

pub use lock::MmapLock;

pub(crate) use pages::{Memory, PageLists};
pub(crate) use space::{
    AddressSpace, Fault, add_thread, copy_space, discard, fault, map, map_files, map_pages, release_space, unmap,
    unmap_files,
};
pub(crate) use tlb::{flush_here, load_space, switch_space};
