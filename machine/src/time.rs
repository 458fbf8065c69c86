//! Virtual time: integers, in picoseconds, since cycles of gigahertz clocks are fractions of a nanosecond.

use core::ops::{Add, AddAssign, Sub};

/// A point in virtual time: picoseconds since power-on (2^64 ps are 213 days).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

/// A span of virtual time in picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Picos(pub u64);

impl Time {
    /// Later than every event.
    pub const NEVER: Time = Time(u64::MAX);

    /// Nanoseconds since power-on, rounded down.
    pub const fn nanos(self) -> u64 {
        self.0 / 1000
    }

    /// The point `nanos` nanoseconds after power-on, or [`Time::NEVER`] beyond the range.
    pub const fn from_nanos(nanos: u64) -> Time {
        Time(nanos.saturating_mul(1000))
    }

    /// The span since `earlier`, which must not be later.
    pub const fn since(self, earlier: Time) -> Picos {
        Picos(self.0 - earlier.0)
    }
}

impl Picos {
    /// No time at all.
    pub const ZERO: Picos = Picos(0);

    /// A span of `nanos` nanoseconds, saturating.
    pub const fn from_nanos(nanos: u64) -> Picos {
        Picos(nanos.saturating_mul(1000))
    }

    /// `cycles` of a clock of `frequency_hz`, rounded; saturating.
    pub fn from_cycles(cycles: u64, frequency_hz: u64) -> Picos {
        let hz = u128::from(frequency_hz.max(1));
        let picos = (u128::from(cycles) * 1_000_000_000_000 + hz / 2) / hz;
        Picos(u64::try_from(picos).unwrap_or(u64::MAX))
    }

    /// This span `count` times, saturating.
    pub const fn times(self, count: u64) -> Picos {
        Picos(self.0.saturating_mul(count))
    }

    /// Half of this span, rounded down.
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
