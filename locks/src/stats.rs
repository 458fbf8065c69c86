//! Statistics as Linux publishes them, off at zero cost.

/// What the locks count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Event {
    /// PV ticket: a waiter gave up spinning.
    TakenSlow,
}

/// Receives what the paravirtual locks count.
pub trait Recorder {
    /// Adds `amount` to the counter of `event`.
    #[inline(always)]
    fn add(&self, _event: Event, _amount: u64) {}
    /// A waiter was halted for `ns` nanoseconds.
    #[inline(always)]
    fn blocked(&self, _ns: u64) {}
}

impl Recorder for () {}
