//! Which threads of a host belong to which virtual machine: by their names, and by files beside the recording.
//!
//! `names.rs` has the names that monitors give their threads, `threads.rs` the threads that are alive, `files.rs` reads
//! copies of `/proc` and `/sys`, `groups.rs` control groups, `libvirt.rs` domains, `features.rs` their
//! paravirtual features, `topology.rs` the pCPUs.

mod copy;
mod features;
pub mod files;
mod groups;
mod libvirt;
pub mod names;
pub mod threads;
mod topology;

pub use features::Feature;
pub use files::{Beside, VmFiles};
pub use groups::{Groups, Level};
pub use libvirt::Domain;
pub use topology::{Place, list};
