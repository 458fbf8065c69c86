//! The machine with one CPU of the tests of `locks`.

pub(crate) mod platform {
    pub(crate) use holdfast_locks::{CpuId, Platform, Word};
}

#[allow(dead_code, reason = "these locks need less of it")]
#[path = "../../src/cpu/solo.rs"]
pub(crate) mod solo;
