//! What flows of guest code do between two events: they wait for their turn, spend virtual time, access shared words
//! and their LAPIC, and leave their guest.

pub mod apicv;
pub mod avic;
pub mod flow;
pub mod lapic;
pub mod operations;
