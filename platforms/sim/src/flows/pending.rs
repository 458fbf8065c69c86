//! Pending time: guest time that a flow has announced and not used yet.
//!
//! A flow's clock runs ahead of the machine's. The stretches in between wait here until virtual time has passed over
//! them; then they are entered in the vCPU's ledger.

use holdfast_machine::Picos;

use crate::books::cause::Cause;

/// Number of pending stretches that a flow can have. A remainder of it needs no bounds check.
const STRETCHES: usize = 8;

/// Guest time of one kind. The kind is fixed when the time is announced: when the time has passed, the flow is ahead
/// and may already do something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// What the time is spent on.
    pub cause: Cause,
    /// Whether the vCPU is in user mode.
    pub user: bool,
    /// Length of the stretch.
    pub span: Picos,
}

/// The pending stretches of a flow, in order.
#[derive(Clone, Copy, Debug)]
pub struct PendingTime {
    stretches: [Stretch; STRETCHES],
    first: usize,
    count: usize,
}

impl PendingTime {
    /// No pending time.
    pub const NONE: PendingTime = PendingTime {
        stretches: [Stretch {
            cause: Cause::Useful,
            user: false,
            span: Picos::ZERO,
        }; STRETCHES],
        first: 0,
        count: 0,
    };

    /// Adds `stretch` at the end. Returns `false` if there is no room.
    #[inline]
    #[must_use]
    pub fn push(&mut self, stretch: Stretch) -> bool {
        let Stretch { cause, user, span } = stretch;
        if span == Picos::ZERO {
            return true;
        }
        if self.count > 0 {
            let last = &mut self.stretches[(self.count - 1) % STRETCHES];
            if last.cause == cause && last.user == user {
                last.span += span;
                return true;
            }
        }
        if self.count == STRETCHES {
            return false;
        }
        self.stretches[self.count % STRETCHES] = stretch;
        self.count += 1;
        true
    }

    /// Drops all pending time.
    #[inline]
    pub fn clear(&mut self) {
        (self.first, self.count) = (0, 0);
    }

    /// Takes the first `span` of it, and calls `used` for each of its stretches in order. The last one may be a part.
    ///
    /// # Panics
    /// If there is less pending time: the flow used more time than it announced.
    #[inline]
    pub fn take(&mut self, span: Picos, mut used: impl FnMut(Stretch)) {
        let (mut first, mut left) = (self.first, span);
        while left != Picos::ZERO {
            assert!(first < self.count, "a flow used {} ps more than it announced", left.0);
            let stretch = &mut self.stretches[first % STRETCHES];
            let Stretch { cause, user, span } = *stretch;
            let taken = span.min(left);
            used(Stretch {
                cause,
                user,
                span: taken,
            });
            left = left - taken;
            stretch.span = span - taken;
            first += usize::from(taken == span);
        }
        self.first = first;
        if first == self.count {
            self.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stretch(cause: Cause, user: bool, span: u64) -> Stretch {
        let span = Picos(span);
        Stretch { cause, user, span }
    }

    fn take(pending: &mut PendingTime, span: u64) -> Vec<Stretch> {
        let mut taken = Vec::new();
        pending.take(Picos(span), |stretch| taken.push(stretch));
        taken
    }

    #[test]
    fn stretches_are_taken_in_order_and_in_parts() {
        let mut pending = PendingTime::NONE;
        assert!(pending.push(stretch(Cause::Useful, false, 10)));
        assert!(pending.push(stretch(Cause::Useful, false, 5)));
        assert!(pending.push(stretch(Cause::CacheTransfer, false, 7)));
        assert_eq!(take(&mut pending, 12), [stretch(Cause::Useful, false, 12)]);
        let rest = [
            stretch(Cause::Useful, false, 3),
            stretch(Cause::CacheTransfer, false, 2),
        ];
        assert_eq!(take(&mut pending, 5), rest);
        assert_eq!(take(&mut pending, 0), []);
        assert_eq!(take(&mut pending, 5), [stretch(Cause::CacheTransfer, false, 5)]);
    }

    #[test]
    fn user_time_stays_user_time_however_late_it_is_taken() {
        let mut pending = PendingTime::NONE;
        for (user, span) in [(false, 10), (true, 5), (true, 1), (false, 7)] {
            assert!(pending.push(stretch(Cause::Useful, user, span)));
        }
        let first = [stretch(Cause::Useful, false, 10), stretch(Cause::Useful, true, 4)];
        assert_eq!(take(&mut pending, 14), first);
        let rest = [stretch(Cause::Useful, true, 2), stretch(Cause::Useful, false, 7)];
        assert_eq!(take(&mut pending, 9), rest);
    }

    #[test]
    fn a_full_list_refuses_another_stretch() {
        let mut pending = PendingTime::NONE;
        for number in 0..STRETCHES {
            let cause = [Cause::Useful, Cause::Idle][number % 2];
            assert!(pending.push(stretch(cause, false, 1)));
        }
        assert!(!pending.push(stretch(Cause::Useful, false, 1)));
        assert!(!pending.push(stretch(Cause::Idle, true, 1)));
        let last = stretch(Cause::Idle, false, 1);
        assert!(pending.push(last), "the last stretch can still grow");
    }

    #[test]
    #[should_panic(expected = "more than it announced")]
    fn time_out_of_nowhere_is_caught() {
        let mut pending = PendingTime::NONE;
        assert!(pending.push(stretch(Cause::Useful, false, 1)));
        take(&mut pending, 2);
    }
}
