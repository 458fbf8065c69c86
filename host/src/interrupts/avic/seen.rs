//! A vCPU as the other sides of the handshake see it.

use super::handshake::Presence;
use crate::vcpu::{Mode, Vcpu};

/// A vCPU as senders see it.
pub(crate) struct Seen<'h>(pub(crate) &'h Vcpu);

impl Presence for Seen<'_> {
    fn is_in_guest(&self) -> bool {
        self.0.mode.get() == Mode::InGuest
    }
    fn set_in_guest(&self) {
        self.0.mode.set(Mode::InGuest);
    }
    fn claim_exit(&self) -> bool {
        let claimed = self.is_in_guest();
        if claimed {
            self.0.mode.set(Mode::Exiting);
        }
        claimed
    }
    fn is_active(&self) -> bool {
        self.0.virtualization.avic().is_some_and(|avic| avic.active.get())
    }
    fn set_active(&self, active: bool) {
        if let Some(avic) = self.0.virtualization.avic() {
            avic.active.set(active);
        }
    }
    fn has_request(&self) -> bool {
        self.0.requests.any()
    }
    fn cpu(&self) -> Option<u32> {
        self.0.cpu
    }
}
