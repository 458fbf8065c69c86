//! The LAPIC timer: one-shot, periodic and TSC-deadline mode, as deadlines of the host's clock.

use holdfast_abi::lapic as reg;

use super::{Action, Lapic};

/// The frequency that the divider of the emulated timer divides (KVM: 1 GHz).
const BUS_HZ: u64 = 1_000_000_000;

/// Frequencies and limits of timer computations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimerBase {
    pub(crate) tsc_hz: u64,
    pub(crate) min_period_ns: u64,
}

impl TimerBase {
    /// Returns the time-stamp counter at host time `now`. Guests see the host's counter.
    pub(crate) fn tsc(&self, now: u64) -> u64 {
        (u128::from(now) * u128::from(self.tsc_hz) / 1_000_000_000) as u64
    }

    /// Returns the host time at which the counter reaches `tsc`, rounded up.
    fn time_of_tsc(&self, tsc: u64) -> u64 {
        let ns = (u128::from(tsc) * 1_000_000_000).div_ceil(u128::from(self.tsc_hz));
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    /// Returns the nanoseconds that `count` takes at divider `divider`.
    fn count_ns(&self, count: u32, divider: u64) -> u64 {
        let ns = u128::from(count) * u128::from(divider) * 1_000_000_000 / u128::from(BUS_HZ);
        u64::try_from(ns).unwrap_or(u64::MAX)
    }
}

/// The state of a LAPIC timer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LapicTimer {
    /// Host time of the next expiry.
    pub(crate) deadline: Option<u64>,
    /// Nanoseconds between expiries, in periodic mode.
    period: u64,
    /// The MSR IA32_TSC_DEADLINE.
    tsc_deadline: u64,
}

/// A timer as saved state. Times are relative, since the other host has another clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SavedTimer {
    /// Nanoseconds until it expires. 0: it is overdue.
    pub expires_in_ns: Option<u64>,
    /// Nanoseconds between expiries, in periodic mode.
    pub period_ns: u64,
    /// The MSR IA32_TSC_DEADLINE.
    pub tsc_deadline: u64,
}

impl Lapic {
    fn timer_mode(&self) -> u32 {
        self.get(reg::LVT_TIMER) & reg::LVT_TIMER_MODE
    }

    fn divider(&self) -> u64 {
        let bits = self.get(reg::TIMER_DIVIDE);
        // Bits 3, 1 and 0 give the divider: 000 is 2, 001 is 4, up to 110 for 128, and 111 is 1.
        let exponent = ((bits & 3 | (bits & 8) >> 1) + 1) & 7;
        1 << exponent
    }

    pub(super) fn write_lvt_timer(&mut self, value: u32) -> Action {
        let before = self.timer_mode();
        let masked = if self.is_enabled() { 0 } else { reg::LVT_MASKED };
        self.set(
            reg::LVT_TIMER,
            value & (0xff | reg::LVT_MASKED | reg::LVT_TIMER_MODE) | masked,
        );
        let deadline = |mode| mode == reg::LVT_TIMER_TSC_DEADLINE;
        // Entering or leaving deadline mode disarms the timer. Between the other two modes it keeps counting.
        if deadline(before) != deadline(self.timer_mode()) {
            self.timer = LapicTimer::default();
            self.set(reg::TIMER_INITIAL, 0);
            return Action::Timer;
        }
        Action::None
    }

    pub(super) fn write_timer_initial(&mut self, value: u32, now: u64, config: &TimerBase) -> Action {
        if self.timer_mode() == reg::LVT_TIMER_TSC_DEADLINE {
            return Action::None;
        }
        self.set(reg::TIMER_INITIAL, value);
        self.start_count(now, config);
        Action::Timer
    }

    pub(super) fn write_timer_divide(&mut self, value: u32, now: u64, config: &TimerBase) -> Action {
        self.set(reg::TIMER_DIVIDE, value & 0xb);
        if self.timer.deadline.is_none() || self.timer_mode() == reg::LVT_TIMER_TSC_DEADLINE {
            return Action::None;
        }
        self.start_count(now, config);
        Action::Timer
    }

    fn start_count(&mut self, now: u64, config: &TimerBase) {
        let count = self.get(reg::TIMER_INITIAL);
        if count == 0 {
            self.timer.deadline = None;
            return;
        }
        let mut period = config.count_ns(count, self.divider());
        if self.timer_mode() == reg::LVT_TIMER_PERIODIC {
            period = period.max(config.min_period_ns);
        }
        self.timer.period = period;
        self.timer.deadline = Some(now.saturating_add(period));
    }

    pub(super) fn timer_current(&self, now: u64) -> u32 {
        let Some(deadline) = self.timer.deadline else { return 0 };
        if self.timer_mode() == reg::LVT_TIMER_TSC_DEADLINE {
            return 0;
        }
        let left = u128::from(deadline.saturating_sub(now)) * u128::from(BUS_HZ);
        (left / 1_000_000_000 / u128::from(self.divider())) as u32
    }

    /// Returns IA32_TSC_DEADLINE: 0 if disarmed, or in another mode.
    pub(crate) fn tsc_deadline(&self) -> u64 {
        if self.timer_mode() == reg::LVT_TIMER_TSC_DEADLINE {
            self.timer.tsc_deadline
        } else {
            0
        }
    }

    /// Writes IA32_TSC_DEADLINE. Ignored in other modes.
    pub(crate) fn write_tsc_deadline(&mut self, value: u64, now: u64, config: &TimerBase) -> Action {
        if self.timer_mode() != reg::LVT_TIMER_TSC_DEADLINE {
            return Action::None;
        }
        self.timer.tsc_deadline = value;
        self.timer.deadline = (value != 0).then(|| config.time_of_tsc(value).max(now));
        Action::Timer
    }

    /// Handles the expiry of the host timer, and sets the next deadline. Returns the vector to accept, unless the timer
    /// is masked.
    pub(crate) fn timer_expired(&mut self, now: u64) -> Option<u8> {
        let periodic = self.timer_mode() == reg::LVT_TIMER_PERIODIC && self.timer.period > 0;
        self.timer.tsc_deadline = 0;
        // Expiries that the host missed count as one.
        self.timer.deadline = self.timer.deadline.filter(|_| periodic).map(|deadline| {
            let late = now.saturating_sub(deadline) / self.timer.period.max(1);
            deadline.saturating_add(self.timer.period.saturating_mul(late + 1))
        });
        let lvt = self.get(reg::LVT_TIMER);
        (lvt & reg::LVT_MASKED == 0).then_some(lvt as u8)
    }

    pub(crate) fn save_timer(&self, now: u64) -> SavedTimer {
        SavedTimer {
            expires_in_ns: self.timer.deadline.map(|deadline| deadline.saturating_sub(now)),
            period_ns: self.timer.period,
            tsc_deadline: self.timer.tsc_deadline,
        }
    }

    pub(crate) fn load_timer(&mut self, saved: &SavedTimer, now: u64) {
        self.timer = LapicTimer {
            deadline: saved.expires_in_ns.map(|ns| now.saturating_add(ns)),
            period: saved.period_ns,
            tsc_deadline: saved.tsc_deadline,
        };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A counter of 2 GHz: two of its ticks are a nanosecond.
    const BASE: TimerBase = TimerBase {
        tsc_hz: 2_000_000_000,
        min_period_ns: 500,
    };

    #[derive(Clone, Copy, Debug)]
    enum Act {
        /// Mode (bits 17 and 18), mask and vector.
        Lvt(u32, bool, u8),
        Initial(u32),
        Divide(u32),
        Deadline(u64),
        Pass(u64),
        Migrate(u64),
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            3 => (0u32..3, any::<bool>(), any::<u8>()).prop_map(|(mode, masked, vector)| Act::Lvt(mode, masked, vector)),
            3 => prop_oneof![Just(0), 1u32..2_000].prop_map(Act::Initial),
            2 => (0u32..16).prop_map(Act::Divide),
            3 => prop_oneof![Just(0), 1u64..40_000].prop_map(Act::Deadline),
            4 => (1u64..3_000).prop_map(Act::Pass),
            1 => (0u64..3_000).prop_map(Act::Migrate),
        ]
    }

    /// A timer in plain words (SDM volume 3, "APIC Timer"). It counts nanoseconds.
    #[derive(Clone, Copy, Debug, Default)]
    struct Plain {
        mode: u32,
        masked: bool,
        vector: u8,
        initial: u32,
        divide: u32,
        due: Option<u64>,
        period: u64,
        tsc: u64,
    }

    impl Plain {
        fn divider(&self) -> u64 {
            [2, 4, 8, 16, 32, 64, 128, 1][(self.divide & 3 | (self.divide & 8) >> 1) as usize]
        }

        fn start(&mut self, now: u64) {
            self.due = None;
            if self.initial > 0 {
                let least = if self.mode == 1 { 500 } else { 0 };
                self.period = (u64::from(self.initial) * self.divider()).max(least);
                self.due = Some(now + self.period);
            }
        }

        /// Returns whether the timer of the host has to be set again.
        fn act(&mut self, act: Act, now: u64) -> bool {
            let by_deadline = self.mode == 2;
            match act {
                Act::Lvt(mode, masked, vector) => {
                    let switches = by_deadline != (mode == 2);
                    if switches {
                        let divide = self.divide;
                        *self = Plain {
                            divide,
                            ..Plain::default()
                        };
                    }
                    (self.mode, self.masked, self.vector) = (mode, masked, vector);
                    switches
                }
                Act::Initial(count) => {
                    if !by_deadline {
                        self.initial = count;
                        self.start(now);
                    }
                    !by_deadline
                }
                Act::Divide(bits) => {
                    self.divide = bits & 0xb;
                    let counts = !by_deadline && self.due.is_some();
                    if counts {
                        self.start(now);
                    }
                    counts
                }
                Act::Deadline(tsc) => {
                    if by_deadline {
                        self.tsc = tsc;
                        self.due = (tsc > 0).then_some(tsc.div_ceil(2).max(now));
                    }
                    by_deadline
                }
                Act::Pass(_) | Act::Migrate(_) => false,
            }
        }

        /// Returns the vector at the end of the time, unless it is masked. Ends that are missed count as one.
        fn expire(&mut self, now: u64) -> Option<u8> {
            self.tsc = 0;
            let mut next = self.due.take().filter(|_| self.mode == 1);
            while next.is_some_and(|due| due <= now) {
                next = next.map(|due| due + self.period);
            }
            self.due = next;
            (!self.masked).then_some(self.vector)
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

        #[test]
        fn a_timer_counts_as_the_manual_has_it(acts in prop::collection::vec(act(), 1..40)) {
            let mut lapic = Lapic::new(0);
            lapic.write(reg::SVR, 0x1ff, 0, &BASE);
            let mut plain = Plain { masked: true, ..Plain::default() };
            let mut now = 1;
            for act in acts {
                let asks = match act {
                    Act::Lvt(mode, masked, vector) => {
                        let value = mode << 17 | u32::from(masked) << 16 | u32::from(vector);
                        lapic.write(reg::LVT_TIMER, value, now, &BASE)
                    }
                    Act::Initial(count) => lapic.write(reg::TIMER_INITIAL, count, now, &BASE),
                    Act::Divide(bits) => lapic.write(reg::TIMER_DIVIDE, bits, now, &BASE),
                    Act::Deadline(tsc) => lapic.write_tsc_deadline(tsc, now, &BASE),
                    Act::Pass(ns) => {
                        now += ns;
                        if plain.due.is_some_and(|due| due <= now) {
                            prop_assert_eq!(lapic.timer_expired(now), plain.expire(now));
                        }
                        Action::None
                    }
                    Act::Migrate(ns) => {
                        // The clock of the other host is ahead.
                        let saved = lapic.save_timer(now);
                        plain.due = plain.due.map(|due| due.max(now) + ns);
                        now += ns;
                        lapic.load_timer(&saved, now);
                        Action::None
                    }
                };
                let expected = if plain.act(act, now) { Action::Timer } else { Action::None };
                prop_assert_eq!(asks, expected, "{:?}", act);
                prop_assert_eq!(lapic.timer.deadline, plain.due, "{:?}", act);
                prop_assert_eq!(lapic.tsc_deadline(), plain.tsc);
                prop_assert_eq!(lapic.read(reg::TIMER_INITIAL, now), plain.initial);
                let left = plain.due.filter(|_| plain.mode != 2).map_or(0, |due| (due - now) / plain.divider());
                prop_assert_eq!(u64::from(lapic.read(reg::TIMER_CURRENT, now)), left);
            }
        }
    }
}
