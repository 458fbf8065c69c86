//! Accounts of recordings of real hosts as tables, as a page, and as a timeline for ui.perfetto.dev.
//!
//! What they say is made in the crate `holdfast-recordings`. Here it is only shown.

mod drawing;
mod page;
mod perfetto;
mod tables;

pub use page::page;
pub use perfetto::perfetto;
pub use tables::{NOTE, behind, exits, figures, host, summary, vcpus, wakers, warnings};
