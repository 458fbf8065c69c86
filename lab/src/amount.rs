//! Times with their unit as users write them: `4 cycles`, `7.6 ns`, `24 ms`.

use std::fmt;

use holdfast_machine::Picos;

use crate::document::Value;

/// Units of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A picosecond.
    Picos,
    /// Time in nanoseconds.
    Nanos,
    /// A microsecond.
    Micros,
    /// A millisecond.
    Millis,
    /// A second.
    Seconds,
    /// Cycles of the machine's clock.
    Cycles,
}

impl Unit {
    /// All units by name.
    pub const NAMES: [(&'static str, Unit); 6] = [
        ("ps", Unit::Picos),
        ("ns", Unit::Nanos),
        ("us", Unit::Micros),
        ("ms", Unit::Millis),
        ("s", Unit::Seconds),
        ("cycles", Unit::Cycles),
    ];

    /// Returns the unit called `name`.
    pub fn by_name(name: &str) -> Option<Unit> {
        Unit::NAMES
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, unit)| *unit)
    }

    fn name(self) -> &'static str {
        Unit::NAMES
            .iter()
            .find(|(_, unit)| *unit == self)
            .map_or("", |(name, _)| name)
    }

    /// Returns the picoseconds of one unit on a clock of `frequency_hz`.
    fn picos(self, frequency_hz: u64) -> f64 {
        match self {
            Unit::Picos => 1.0,
            Unit::Nanos => 1e3,
            Unit::Micros => 1e6,
            Unit::Millis => 1e9,
            Unit::Seconds => 1e12,
            Unit::Cycles => 1e12 / frequency_hz as f64,
        }
    }
}

/// A time with its unit; never negative, and always finite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Amount {
    value: f64,
    unit: Unit,
}

/// Form of an amount, for messages.
pub const EXPECTED: &str = "a time with its unit (ps, ns, us, ms, s or cycles), such as \"7.6 ns\"";
/// Form of an amount where cycles make no sense.
pub const EXPECTED_NO_CYCLES: &str =
    "a time with its unit (ns, us, ms or s), such as \"24 ms\", or a whole number of nanoseconds";

impl Amount {
    /// Returns `value` times `unit`, or `None` if `value` is negative or not finite.
    pub fn new(value: f64, unit: Unit) -> Option<Amount> {
        (value.is_finite() && value >= 0.0).then_some(Amount { value, unit })
    }

    /// Cycles of the machine's clock.
    pub fn from_cycles(cycles: u32) -> Amount {
        Amount {
            value: f64::from(cycles),
            unit: Unit::Cycles,
        }
    }

    /// Time in nanoseconds.
    pub fn from_nanos(nanos: u64) -> Amount {
        Amount {
            value: nanos as f64,
            unit: Unit::Nanos,
        }
    }

    /// Reads `4 cycles`, `7.6ns`, `24 ms`.
    pub fn parse(text: &str) -> Option<Amount> {
        let (value, unit) = number_and_unit(text)?;
        Amount::new(value, Unit::by_name(unit)?)
    }

    /// Returns the time in whole picoseconds on a clock of `frequency_hz`, or `None` beyond 2^64 ps (213 days).
    pub fn picos(self, frequency_hz: u64) -> Option<Picos> {
        let picos = (self.value * self.unit.picos(frequency_hz)).round();
        (picos < u64::MAX as f64).then_some(Picos(picos as u64))
    }

    /// Returns the time in whole cycles of a clock of `frequency_hz`, or `None` beyond 2^64.
    pub fn cycles(self, frequency_hz: u64) -> Option<u64> {
        let cycles = match self.unit {
            Unit::Cycles => self.value.round(),
            unit => (self.value * unit.picos(frequency_hz) / Unit::Cycles.picos(frequency_hz)).round(),
        };
        (cycles < u64::MAX as f64).then_some(cycles as u64)
    }

    /// Returns the time in whole nanoseconds, or `None` for cycles and beyond 2^64 ns.
    pub fn nanos(self) -> Option<u64> {
        if self.unit == Unit::Cycles {
            return None;
        }
        let nanos = (self.value * self.unit.picos(1) / 1e3).round();
        (nanos < u64::MAX as f64).then_some(nanos as u64)
    }

    /// Reads a time from a value, which is a string with a unit.
    pub fn of_value(value: &Value) -> Option<Amount> {
        match value {
            Value::Text(text) => Amount::parse(text),
            _ => None,
        }
    }
}

/// Reads a number with its unit, which may be unknown, and the number out of range.
pub(crate) fn number_and_unit(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let split = text.find(|c: char| c.is_ascii_alphabetic() && c != 'e' && c != 'E')?;
    let (number, unit) = text.split_at(split);
    // "1e3 s": the exponent belongs to the number, and no unit begins with an e.
    Some((number.trim().replace('_', "").parse().ok()?, unit.trim()))
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.value, self.unit.name())
    }
}

/// Returns `nanos` in the largest unit that leaves a whole number.
pub fn show_nanos(nanos: u64) -> String {
    for (size, unit) in [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")] {
        if nanos >= size && nanos.is_multiple_of(size) {
            return format!("{} {unit}", nanos / size);
        }
    }
    format!("{nanos} ns")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_write() {
        let picos = |text: &str| Amount::parse(text).and_then(|a| a.picos(2_000_000_000)).map(|p| p.0);
        assert_eq!(picos("4 cycles"), Some(2_000));
        assert_eq!(picos("7.6ns"), Some(7_600));
        assert_eq!(picos(" 1e3 us "), Some(1_000_000_000));
        assert_eq!(picos("1_000 ps"), Some(1_000));
        for wrong in [
            "", "4", "cycles", "-1 ns", "nan ns", "inf s", "1 parsec", "1 s 2", "1e300 s",
        ] {
            assert_eq!(picos(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn shown_nanos_read_back() {
        for nanos in [0, 1, 999, 1_000, 24_000_000, 1_500_000, 1_000_000_000, 7_000_000_001] {
            assert_eq!(Amount::parse(&show_nanos(nanos)).and_then(Amount::nanos), Some(nanos));
        }
    }
}
