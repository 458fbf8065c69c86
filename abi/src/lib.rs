//! What guest and host must agree on: CPUID leaves, MSRs, hypercalls, LAPIC registers, the steal-time record.
#![no_std]

mod steal_time;
pub use steal_time::StealTime;
