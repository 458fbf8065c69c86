//! Faults that tests plant in the scheduler, so that its properties can catch them. They exist only in tests.

/// A planted fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Buddies stay marked when the marked entity is picked or leaves.
    BuddyKept,
    /// A mark is set on the thread's own level only.
    LevelSkipped,
    /// A woken thread arrives without the lag that it left with.
    LagLost,
    /// A period does not refill its group's quota.
    QuotaNotRefilled,
    /// A pCPU that runs out of a group's threads keeps its quota.
    SliceKept,
}
