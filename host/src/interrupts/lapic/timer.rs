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
