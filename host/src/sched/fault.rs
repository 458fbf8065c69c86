//! Faults that tests plant in the scheduler, to see that its properties catch them. None of them exists outside of
//! tests.

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Buddies stay marked when what they mark is picked, or leaves.
    BuddyKept,
    /// A mark is set on the thread's own level only.
    LevelSkipped,
    /// A woken thread comes without the lag that it left with.
    LagLost,
    /// A period does not fill up its group's quota.
    QuotaNotRefilled,
    /// A pCPU that runs out of a group's threads keeps what it drew of the quota.
    SliceKept,
    /// Lag is credited beyond what anyone may have.
    CreditUnbounded,
    /// What is to be done once in an interval only is done at every directed yield.
    FavorUnlimited,
    /// A yield back to the yielder is no reason to push it less.
    PairForgotten,
}
