//! Counter 0 of the 8254 interval timer (docs/spec/interrupts.md, "PIC and PIT").
//!
//! It counts in binary. A new count restarts it at once, as in KVM: hardware ends the period in rate mode first. The
//! modes that its gate would trigger (1 and 5) request no interrupt, since the gate is always high. The status part of
//! the read-back command is left out.
//!
//! - **The guest cannot break it**: every port and value has a meaning or is ignored, and no period is below the
//!   host's limit.

use holdfast_abi::pit as reg;

/// Which bytes of the count an access has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Low,
    High,
    /// The low byte, then the high byte.
    Both,
}

/// The counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pit {
    access: Access,
    /// Mode 0 to 5.
    mode: u8,
    /// The count from which it counts down. `None`: none was written since the last control word.
    count: Option<u64>,
    /// The low byte that was written and waits for the high one.
    low: Option<u8>,
    /// The next byte read is the high one.
    reads_high: bool,
    latched: Option<u16>,
    /// Host time at which the present count was written. Nanoseconds.
    since: u64,
    /// Host time of the next interrupt request.
    pub(crate) deadline: Option<u64>,
    /// Nanoseconds between requests, in a periodic mode.
    period: u64,
    /// Requests that the guest has not ended, if they are made up for.
    missed: u32,
    /// The guest has ended the last request.
    ended: bool,
}

impl Default for Pit {
    fn default() -> Pit {
        Pit {
            access: Access::Both,
            mode: 0,
            count: None,
            low: None,
            reads_high: false,
            latched: None,
            since: 0,
            deadline: None,
            period: 0,
            missed: 0,
            ended: true,
        }
    }
}

impl Pit {
    /// Returns whether `port` is one of the timer's: those of its counters, and that of the control word.
    pub(crate) fn has_port(port: u16) -> bool {
        (reg::COUNTER_0..=reg::CONTROL).contains(&port)
    }

    /// Writes `value` to `port` at `now`. Periods are at least `least` nanoseconds.
    pub(crate) fn write(&mut self, port: u16, value: u8, now: u64, least: u64) {
        match port {
            reg::CONTROL => self.control(value, now),
            reg::COUNTER_0 => self.write_count(value, now, least),
            // The other counters request no interrupts.
            _ => {}
        }
    }

    fn control(&mut self, value: u8, now: u64) {
        let read_back = value & reg::COUNTER == reg::COUNTER;
        if read_back {
            // Bit 5 set: the count is not latched. Bit 1: counter 0.
            if value & 0x22 == 0x02 {
                self.latch(now);
            }
            return;
        }
        if value & reg::COUNTER != 0 {
            return;
        }
        let access = match value & reg::ACCESS {
            reg::ACCESS_LOW => Access::Low,
            reg::ACCESS_HIGH => Access::High,
            reg::ACCESS_BOTH => Access::Both,
            _ => return self.latch(now),
        };
        let mode = (value & reg::MODE) >> 1;
        *self = Pit {
            access,
            mode: if mode > 5 { mode & 3 } else { mode },
            missed: self.missed,
            ended: self.ended,
            ..Pit::default()
        };
    }

    fn write_count(&mut self, value: u8, now: u64, least: u64) {
        let count = match (self.access, self.low) {
            (Access::Low, _) => u16::from(value),
            (Access::High, _) => u16::from(value) << 8,
            (Access::Both, None) => {
                self.low = Some(value);
                if self.mode == 0 {
                    // The first of two bytes stops it.
                    self.deadline = None;
                }
                return;
            }
            (Access::Both, Some(low)) => u16::from(value) << 8 | u16::from(low),
        };
        self.low = None;
        let count = if count == 0 { reg::FULL_COUNT } else { u64::from(count) };
        self.count = Some(count);
        self.since = now;
        let time = count * 1_000_000_000 / reg::HZ;
        self.period = time.max(least).max(1);
        self.deadline = match self.mode {
            0 | 4 => Some(now.saturating_add(time)),
            2 | 3 => Some(now.saturating_add(self.period)),
            _ => None,
        };
    }

    /// Returns the count at `now`, 0 before the first.
    fn now(&self, now: u64) -> u16 {
        let Some(count) = self.count else { return 0 };
        let clocks = u128::from(now.wrapping_sub(self.since)) * u128::from(reg::HZ) / 1_000_000_000;
        let passed = |clocks: u128| (clocks % u128::from(count)) as u64;
        let left = match self.mode {
            2 => count - passed(clocks),
            // A square wave counts by twos, twice in a period.
            3 => count - passed(2 * clocks),
            _ => count.wrapping_sub(clocks as u64),
        };
        left as u16
    }

    fn latch(&mut self, now: u64) {
        if self.latched.is_none() {
            self.latched = Some(self.now(now));
        }
    }

    /// Reads `port` at `now`. Ports other than counter 0's read as 0xff.
    pub(crate) fn read(&mut self, port: u16, now: u64) -> u8 {
        if port != reg::COUNTER_0 {
            return 0xff;
        }
        let [low, high] = self.latched.unwrap_or_else(|| self.now(now)).to_le_bytes();
        let (byte, is_last) = match self.access {
            Access::Low => (low, true),
            Access::High => (high, true),
            Access::Both if self.reads_high => (high, true),
            Access::Both => (low, false),
        };
        self.reads_high = !is_last;
        if is_last {
            self.latched = None;
        }
        byte
    }

    /// Handles the expiry of the host timer, and sets the next deadline. Returns whether an interrupt is requested.
    /// With `reinjects`, a request that the guest has not ended holds back the next ones, which are made up for later.
    pub(crate) fn expired(&mut self, now: u64, reinjects: bool) -> bool {
        let Some(deadline) = self.deadline.filter(|&deadline| deadline <= now) else {
            return false;
        };
        let periodic = matches!(self.mode, 2 | 3);
        let late = if periodic { (now - deadline) / self.period } else { 0 };
        self.deadline = periodic.then(|| deadline.saturating_add(self.period.saturating_mul(late + 1)));
        if !reinjects {
            return true;
        }
        let requests = u32::try_from(late + 1).unwrap_or(u32::MAX);
        self.missed = self.missed.saturating_add(requests);
        core::mem::take(&mut self.ended)
    }

    /// The guest has ended a request. Returns whether the next is made, for one that was missed.
    pub(crate) fn request_ended(&mut self) -> bool {
        self.missed = self.missed.saturating_sub(1);
        self.ended = self.missed == 0;
        !self.ended
    }

    /// Returns the state with times relative to `now`, for another host.
    pub(crate) fn relative_to(&self, now: u64) -> Pit {
        Pit {
            since: self.since.wrapping_sub(now),
            deadline: self.deadline.map(|deadline| deadline.saturating_sub(now)),
            ..*self
        }
    }

    /// Undoes [`Pit::relative_to`] on a host whose time is `now`.
    pub(crate) fn continued_at(&self, now: u64) -> Pit {
        Pit {
            since: self.since.wrapping_add(now),
            deadline: self.deadline.map(|left| now.saturating_add(left)),
            ..*self
        }
    }
}
