//! The interrupt controllers (PICs) and the interval timer (PIT) that PCs had before APICs: a kernel takes its first
//! ticks from them (docs/spec/interrupts.md, "PIC and PIT").
//!
//! These are the chips alone. [`deliver`] connects them to a VM.

mod deliver;
mod pic;
mod pit;
#[cfg(test)]
mod tests;

use pic::Pics;
use pit::Pit;

/// Returns whether a chip that the host emulates is at I/O port `port`, one of the PICs or the PIT: accesses are
/// [`Exit::PortWrite`](crate::Exit::PortWrite) and [`Exit::PortRead`](crate::Exit::PortRead).
pub fn has_legacy_chip(port: u16) -> bool {
    Pics::has_port(port) || Pit::has_port(port)
}

/// The chips of a VM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Legacy {
    pics: Pics,
    pit: Pit,
}

/// State of the PICs and the PIT of a VM (KVM_GET_IRQCHIP, KVM_GET_PIT2). Times are relative, since the other host has
/// another clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedLegacy(Legacy);
