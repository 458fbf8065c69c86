//! Pending time: guest time that a flow has announced and not used yet.
//!
//! A flow's clock runs ahead of the machine's. The stretches in between wait here until virtual time has passed over
//! them; then they are entered in the vCPU's ledger.

use holdfast_machine::Picos;

use crate::core::cause::Cause;

/// Number of pending stretches that a flow can have. A remainder of it needs no bounds check.
const STRETCHES: usize = 8;

/// The kind of guest time. It is fixed when the time is announced: when the time has passed, the flow is ahead and may
/// already do something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// What the time is spent on.
    pub cause: Cause,
    /// Whether the vCPU is in user mode.
    pub user: bool,
}

/// Guest time of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Its kind.
    pub kind: Kind,
    /// Length of the stretch.
    pub span: Picos,
}

/// The pending stretches of a flow, in order.
///
/// A flow seldom has more than two. So kinds and lengths are apart, and two stretches share a cache line with the
/// flow's clock.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PendingTime {
    first: u32,
    count: u32,
    kinds: [Kind; STRETCHES],
    spans: [Picos; STRETCHES],
}

impl PendingTime {
    /// No pending time.
    pub const NONE: PendingTime = PendingTime {
        first: 0,
        count: 0,
        kinds: [Kind {
            cause: Cause::Useful,
            user: false,
        }; STRETCHES],
        spans: [Picos::ZERO; STRETCHES],
    };

    /// Bytes from the beginning to the end of the second stretch.
    #[cfg(test)]
    pub const BYTES_OF_TWO: usize = std::mem::offset_of!(PendingTime, spans) + 2 * size_of::<Picos>();

    /// Adds `stretch` at the end. Returns `false` if there is no room.
    #[inline]
    #[must_use]
    pub fn push(&mut self, stretch: Stretch) -> bool {
        let Stretch { kind, span } = stretch;
        if span == Picos::ZERO {
            return true;
        }
        let count = self.count as usize;
        if count > 0 && self.kinds[(count - 1) % STRETCHES] == kind {
            self.spans[(count - 1) % STRETCHES] += span;
            return true;
        }
        if count == STRETCHES {
            return false;
        }
        self.kinds[count % STRETCHES] = kind;
        self.spans[count % STRETCHES] = span;
        self.count += 1;
        true
    }

    /// Drops all pending time.
    #[inline]
    pub fn clear(&mut self) {
        (self.first, self.count) = (0, 0);
    }

    /// Takes all of it, and calls `used` for each of its stretches in order.
    #[inline(always)]
    pub fn take_all(&mut self, mut used: impl FnMut(Stretch)) {
        for index in self.first..self.count {
            let index = index as usize % STRETCHES;
            used(Stretch {
                kind: self.kinds[index],
                span: self.spans[index],
            });
        }
        self.clear();
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
            let index = first as usize % STRETCHES;
            let (kind, span) = (self.kinds[index], self.spans[index]);
            let taken = span.min(left);
            used(Stretch { kind, span: taken });
            left = left - taken;
            self.spans[index] = span - taken;
            first += u32::from(taken == span);
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
        let (kind, span) = (Kind { cause, user }, Picos(span));
        Stretch { kind, span }
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
        let mut rest = Vec::new();
        pending.take_all(|stretch| rest.push(stretch));
        assert_eq!(
            rest,
            [stretch(Cause::Useful, true, 2), stretch(Cause::Useful, false, 7)]
        );
        pending.take_all(|stretch| panic!("{stretch:?} was taken before"));
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
