//! Intel's APICv and posted interrupts, driven (§7).

pub mod posting;
