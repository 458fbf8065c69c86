//! The guest's clock, in nanoseconds since CPU 0 booted.

#![expect(unsafe_code, reason = "KVM's clock is written by the host")]

use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::Acquire;
use core::sync::atomic::compiler_fence;

use holdfast_protocol::Clock;

use crate::instructions::{rdtsc, wrmsr};

/// The register `MSR_KVM_SYSTEM_TIME_NEW`.
const SYSTEM_TIME: u32 = 0x4b56_4d01;
const ENABLE: u64 = 1;

/// The source of the time, chosen at boot.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Time {
    /// The time-stamp counter: the counts since `base`, times `multiplier`, divided by 2^32.
    Tsc { base: u64, multiplier: u64 },
    /// Each CPU's record of KVM's clock, minus `base` nanoseconds.
    Kvm { base: u64 },
}

/// One CPU's record of KVM's clock, which the host updates (`struct pvclock_vcpu_time_info`).
#[derive(Debug, Default)]
#[repr(C, align(32))]
pub(crate) struct Record(UnsafeCell<Fields>);

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Fields {
    version: u32,
    pad: u32,
    tsc_timestamp: u64,
    system_time: u64,
    multiplier: u32,
    shift: i8,
    flags: u8,
    pad2: [u8; 2],
}

impl Record {
    /// Returns a zeroed record.
    pub(crate) const fn new() -> Record {
        Record(UnsafeCell::new(Fields {
            version: 0,
            pad: 0,
            tsc_timestamp: 0,
            system_time: 0,
            multiplier: 0,
            shift: 0,
            flags: 0,
            pad2: [0; 2],
        }))
    }

    /// Registers the record with the host.
    fn register(&self) {
        // SAFETY: the VMM orders this clock only if KVM has the register. The host then writes to this record, which is
        // static and which the guest reads only by volatile accesses.
        unsafe { wrmsr(SYSTEM_TIME, self.0.get().addr() as u64 | ENABLE) };
    }

    /// Returns the nanoseconds of the host's clock. `version` is odd during an update by the host and changes with each
    /// one.
    fn nanos(&self) -> u64 {
        loop {
            // SAFETY: the record is valid. If the host writes to it concurrently, the versions differ and the value is
            // unused.
            let fields = unsafe { self.0.get().read_volatile() };
            compiler_fence(Acquire);
            let now = rdtsc();
            // SAFETY: as above.
            let after = unsafe { self.0.get().read_volatile() }.version;
            if fields.version & 1 == 0 && fields.version == after {
                return fields.at(now);
            }
        }
    }
}

impl Fields {
    fn at(&self, tsc: u64) -> u64 {
        let passed = tsc.wrapping_sub(self.tsc_timestamp);
        let scaled = if self.shift < 0 {
            passed >> -self.shift
        } else {
            passed << self.shift
        };
        self.system_time
            .wrapping_add(((u128::from(scaled) * u128::from(self.multiplier)) >> 32) as u64)
    }
}

impl Time {
    /// Starts the clock on CPU 0, whose record is `record`. Returns its source.
    pub(crate) fn start(clock: Clock, record: &Record) -> Time {
        match clock {
            Clock::Tsc { khz } => Time::Tsc {
                base: rdtsc(),
                multiplier: (1_000_000 << 32) / u64::from(khz.max(1)),
            },
            Clock::Kvm => {
                record.register();
                Time::Kvm { base: record.nanos() }
            }
        }
    }

    /// Starts the clock on another CPU, whose record is `record`.
    pub(crate) fn join(&self, record: &Record) {
        if let Time::Kvm { .. } = self {
            record.register();
        }
    }

    /// Returns the nanoseconds since the start.
    #[inline]
    pub(crate) fn now(&self, record: &Record) -> u64 {
        match *self {
            Time::Tsc { base, multiplier } => {
                // Another CPU's counter may be slightly behind that of CPU 0.
                let counts = rdtsc().saturating_sub(base);
                ((u128::from(counts) * u128::from(multiplier)) >> 32) as u64
            }
            Time::Kvm { base } => record.nanos().saturating_sub(base),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kvm_clock_scales_as_documented() {
        // 2.5 GHz: each count is 0.4 ns.
        let fields = Fields {
            tsc_timestamp: 1_000,
            system_time: 77,
            multiplier: (0.8 * 4_294_967_296.0) as u32,
            shift: -1,
            ..Fields::default()
        };
        assert_eq!(fields.at(1_000), 77);
        assert!(fields.at(1_000 + 2_500_000_000).abs_diff(1_000_000_077) < 10);
    }
}
