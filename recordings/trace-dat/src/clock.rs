//! From the times in a file to nanoseconds, and from a guest's clock to its host's.

/// How the cycles of the clock `x86-tsc` become nanoseconds (option `TSC2NSEC`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TscScale {
    /// Cycles are multiplied by this,
    pub mult: u32,
    /// divided by 2 to the power of this,
    pub shift: u32,
    /// and then this many ns are added.
    pub offset: u64,
}

impl TscScale {
    /// Returns a time in ns.
    #[must_use]
    pub fn ns(&self, cycles: u64) -> u64 {
        let scaled = (u128::from(cycles) * u128::from(self.mult)) >> self.shift.min(127);
        (scaled as u64).wrapping_add(self.offset)
    }
}

/// A correction of a guest's clock, as it was measured once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Correction {
    /// The guest's time of the measurement.
    pub at: u64,
    /// The time is multiplied by this,
    pub scaling: u64,
    /// divided by 2 to the power of this,
    pub fraction_bits: u64,
    /// and then this is added.
    pub offset: i64,
}

/// How a guest's times become its host's (option `TIME_SHIFT` of `trace-cmd record -A`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeShift {
    /// Identity of the other recording, usually the host's.
    pub peer: u64,
    /// Flags of the protocol that measured it. Bit 0: interpolate between the measurements.
    pub flags: u32,
    /// The corrections of each CPU, in the order of their times. A CPU without any has those of the first.
    pub cpus: Vec<Vec<Correction>>,
}

impl TimeShift {
    /// Returns the host's time for a time on a CPU of the guest.
    #[must_use]
    pub fn apply(&self, cpu: u32, at: u64) -> u64 {
        let of = |cpu: usize| self.cpus.get(cpu).filter(|list| !list.is_empty());
        let Some(list) = of(cpu as usize).or_else(|| of(0)) else {
            return at;
        };
        let after = list.partition_point(|correction| correction.at <= at);
        let (Some(first), last) = (list.get(after.saturating_sub(1)), list.get(after)) else {
            return at;
        };
        let scaled = match first.scaling {
            0 => at,
            scaling => ((u128::from(at) * u128::from(scaling)) >> first.fraction_bits.min(127)) as u64,
        };
        // Between two measurements the offset changes evenly. Outside them the nearest one holds.
        let offset = match last.filter(|last| after > 0 && last.at > first.at) {
            Some(last) => {
                let (part, whole) = (i128::from(at - first.at), i128::from(last.at - first.at));
                let change = i128::from(last.offset) - i128::from(first.offset);
                (i128::from(first.offset) + change * part / whole) as i64
            }
            None => first.offset,
        };
        scaled.wrapping_add_signed(offset)
    }
}

#[cfg(test)]
mod tests {
    use super::{Correction, TimeShift, TscScale};

    #[test]
    fn cycles_become_nanoseconds() {
        let scale = TscScale {
            mult: 1 << 20,
            shift: 22,
            offset: 5,
        };
        assert_eq!(scale.ns(400), 105);
        assert_eq!(
            TscScale {
                mult: u32::MAX,
                shift: u32::MAX,
                offset: 0
            }
            .ns(u64::MAX),
            0
        );
    }

    #[test]
    fn offsets_change_evenly_between_measurements_and_stay_outside() {
        let at = |at, offset| Correction {
            at,
            scaling: 1,
            fraction_bits: 0,
            offset,
        };
        let shift = TimeShift {
            peer: 1,
            flags: 1,
            cpus: vec![vec![at(100, -10), at(200, 10)]],
        };
        let shifted: Vec<u64> = [50, 100, 150, 175, 200, 300].map(|time| shift.apply(3, time)).to_vec();
        assert_eq!(shifted, [40, 90, 150, 180, 210, 310]);
        let halved = Correction {
            scaling: 1,
            fraction_bits: 1,
            ..at(0, 7)
        };
        let shift = TimeShift {
            cpus: vec![vec![halved]],
            ..shift
        };
        assert_eq!(shift.apply(0, 100), 57);
        assert_eq!(TimeShift { cpus: vec![], ..shift }.apply(0, 100), 100);
    }
}
