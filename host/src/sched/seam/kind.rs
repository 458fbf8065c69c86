//! The policies that a host can have, by name.

use alloc::boxed::Box;
use core::fmt;

use super::policy::Policy;

/// A policy that a host can be configured with.
#[derive(Clone, Copy)]
pub struct PolicyKind {
    name: &'static str,
    /// `None`: the kernel decides everything.
    make: Option<fn() -> Box<dyn Policy>>,
}

impl PolicyKind {
    /// No policy: the scheduler of the host's kernel decides everything.
    pub const KERNEL: PolicyKind = PolicyKind {
        name: "kernel",
        make: None,
    };

    /// Returns the policy `P`, which experiments call `name`. Each host begins with `P::default()`.
    pub fn of<P: Policy + Default + 'static>(name: &'static str) -> PolicyKind {
        PolicyKind {
            name,
            make: Some(|| Box::new(P::default())),
        }
    }

    /// Returns the policy's name.
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// Returns what the policy does, in one line.
    pub fn about(self) -> &'static str {
        self.make().map_or("the scheduler decides", |policy| policy.about())
    }

    /// Returns a new policy, or `None` if the kernel decides everything.
    pub(crate) fn make(self) -> Option<Box<dyn Policy>> {
        self.make.map(|make| make())
    }
}

// By name alone: the same function can have several addresses.
impl PartialEq for PolicyKind {
    fn eq(&self, other: &PolicyKind) -> bool {
        self.name == other.name
    }
}

impl Eq for PolicyKind {}

impl fmt::Debug for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
