//! Virtual time in integer picoseconds. A cycle of a gigahertz clock is a fraction of a nanosecond.

use core::ops::{Add, AddAssign, Sub};

/// A point in virtual time: picoseconds since power-on. The range of 2^64 ps is 213 days.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

/// A span of virtual time in picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Picos(pub u64);

impl Time {
    /// A time after every event.
    pub const NEVER: Time = Time(u64::MAX);

    /// Returns the nanoseconds since power-on, rounded down.
    pub const fn nanos(self) -> u64 {
        self.0 / 1000
    }

    /// Returns the time `nanos` nanoseconds after power-on, or [`Time::NEVER`] if that is out of range.
    pub const fn from_nanos(nanos: u64) -> Time {
        Time(nanos.saturating_mul(1000))
    }

    /// Returns the span from `earlier` to this time. `earlier` must not be later.
    pub const fn since(self, earlier: Time) -> Picos {
        Picos(self.0 - earlier.0)
    }
}

impl Picos {
    /// The empty span.
    pub const ZERO: Picos = Picos(0);

    /// Returns a span of `nanos` nanoseconds. Saturates.
    pub const fn from_nanos(nanos: u64) -> Picos {
        Picos(nanos.saturating_mul(1000))
    }

    /// Returns the duration of `cycles` of a clock with `frequency_hz`, rounded to the nearest picosecond. Saturates.
    pub fn from_cycles(cycles: u64, frequency_hz: u64) -> Picos {
        let hz = u128::from(frequency_hz.max(1));
        let picos = (u128::from(cycles) * 1_000_000_000_000 + hz / 2) / hz;
        Picos(u64::try_from(picos).unwrap_or(u64::MAX))
    }

    /// Returns this span times `count`. Saturates.
    pub const fn times(self, count: u64) -> Picos {
        Picos(self.0.saturating_mul(count))
    }

    /// Returns half of this span, rounded down.
    pub const fn halved(self) -> Picos {
        Picos(self.0 / 2)
    }
}

impl Add<Picos> for Time {
    type Output = Time;
    fn add(self, span: Picos) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Picos> for Time {
    fn add_assign(&mut self, span: Picos) {
        *self = *self + span;
    }
}

impl Add for Picos {
    type Output = Picos;
    fn add(self, other: Picos) -> Picos {
        Picos(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Picos {
    fn add_assign(&mut self, other: Picos) {
        *self = *self + other;
    }
}

impl Sub for Picos {
    type Output = Picos;
    fn sub(self, other: Picos) -> Picos {
        Picos(self.0 - other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_convert_by_thousands_and_round_as_documented() {
        assert_eq!(Time(2_999).nanos(), 2);
        assert_eq!((Time::from_nanos(7), Picos::from_nanos(7)), (Time(7_000), Picos(7_000)));
        assert_eq!(Time::from_nanos(u64::MAX), Time::NEVER);
        // Three cycles of a clock with 7 GHz are 428.57 ps, of one with 2 GHz 1500 ps.
        assert_eq!(Picos::from_cycles(3, 7_000_000_000), Picos(429));
        assert_eq!(Picos::from_cycles(1, 3_000_000_000), Picos(333));
        assert_eq!(Picos::from_cycles(3, 2_000_000_000), Picos(1_500));
        assert_eq!(Picos(7).halved(), Picos(3));
    }

    #[test]
    fn sums_saturate() {
        let mut time = Time(5);
        time += Picos(7);
        assert_eq!((time, time.since(Time(5))), (Time(12), Picos(7)));
        assert_eq!(Time(5) + Picos(u64::MAX), Time::NEVER);
        let mut span = Picos(5) + Picos(7);
        span += Picos(3);
        assert_eq!((span, span - Picos(4)), (Picos(15), Picos(11)));
        assert_eq!(Picos(3).times(4), Picos(12));
        assert_eq!(Picos(3).times(u64::MAX), Picos(u64::MAX));
    }
}
