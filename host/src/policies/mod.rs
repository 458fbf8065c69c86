//! Policies by which host and guest cooperate against preempted lock holders and waiters. No kernel has them yet.
//!
//! They know of a guest what a real host knows at an exit: the privilege level and the interrupt flag, and the guest's
//! word if it shares one (docs/spec/guest-host-interface.md, "Guest word"). Both can lie. So a vCPU is charged for
//! whatever it gets before its turn, and a handover waits until earlier ones are paid back.

mod boost;
mod grace;
mod grace_and_boost;
mod handover;
mod section;
mod spread;

pub use boost::Boost;
pub use grace::Grace;
pub use grace_and_boost::GraceAndBoost;
pub use handover::Handover;
pub use spread::Spread;
