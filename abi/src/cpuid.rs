//! CPUID leaves by which a guest finds its hypervisor and the features on offer.
//!
//! Sources: Linux `Documentation/virt/kvm/x86/cpuid.rst` and `arch/x86/include/uapi/asm/kvm_para.h` for KVM's leaves;
//! Intel SDM volume 2, "CPUID", for the architectural bits; AMD APM volume 3, appendix E, for SVM's leaf.

/// The leaf that every CPU has. EAX is the highest basic leaf.
pub const BASIC: u32 = 0;
/// The leaf with family, APIC ID (EBX bits 31:24) and feature bits.
pub const FEATURES: u32 = 1;
/// ECX of [`FEATURES`]: MONITOR and MWAIT exist.
pub const MONITOR: u32 = 1 << 3;
/// ECX of [`FEATURES`]: the TLB tells address spaces apart (process-context identifiers).
pub const PCID: u32 = 1 << 17;
/// ECX of [`FEATURES`]: the LAPIC has an x2APIC mode.
pub const X2APIC: u32 = 1 << 21;
/// ECX of [`FEATURES`]: the LAPIC timer has a TSC-deadline mode.
pub const TSC_DEADLINE: u32 = 1 << 24;
/// ECX of [`FEATURES`]: a hypervisor is present.
pub const HYPERVISOR: u32 = 1 << 31;
/// EDX of [`FEATURES`]: the time-stamp counter exists.
pub const TSC: u32 = 1 << 4;
/// EDX of [`FEATURES`]: model-specific registers exist.
pub const MSR: u32 = 1 << 5;
/// EDX of [`FEATURES`]: a local APIC exists.
pub const APIC: u32 = 1 << 9;

/// The first hypervisor leaf. EAX is the highest hypervisor leaf; EBX, ECX and EDX are [`KVM_SIGNATURE`] under KVM.
pub const HYPERVISOR_BASE: u32 = 0x4000_0000;
/// KVM's feature leaf. EAX has the `KVM_FEATURE_` bits, EDX the hints.
pub const KVM_FEATURES: u32 = 0x4000_0001;
/// The text "KVMKVMKVM\0\0\0" as EBX, ECX, EDX.
pub const KVM_SIGNATURE: [u32; 3] = [0x4b4d_564b, 0x564b_4d56, 0x4d];

/// EAX of [`KVM_FEATURES`]: the steal-time record and its MSR ([`crate::msr::STEAL_TIME`]).
pub const KVM_FEATURE_STEAL_TIME: u32 = 1 << 5;
/// EAX of [`KVM_FEATURES`]: a bit in memory replaces the write to the LAPIC's EOI register ([`crate::msr::PV_EOI`]).
pub const KVM_FEATURE_PV_EOI: u32 = 1 << 6;
/// EAX of [`KVM_FEATURES`]: a lock waiter may halt, and a hypercall ends its halt ([`crate::hypercall::KICK_CPU`]).
pub const KVM_FEATURE_PV_UNHALT: u32 = 1 << 7;
/// EAX of [`KVM_FEATURES`]: the host flushes the TLB of a preempted vCPU on request ([`crate::StealTime::FLUSH_TLB`]).
pub const KVM_FEATURE_PV_TLB_FLUSH: u32 = 1 << 9;
/// EAX of [`KVM_FEATURES`]: IPIs by hypercall ([`crate::hypercall::SEND_IPI`]).
pub const KVM_FEATURE_PV_SEND_IPI: u32 = 1 << 11;
/// EAX of [`KVM_FEATURES`]: the guest may switch off the host's halt polling (`MSR_KVM_POLL_CONTROL`).
pub const KVM_FEATURE_POLL_CONTROL: u32 = 1 << 12;
/// EAX of [`KVM_FEATURES`]: directed yield by hypercall ([`crate::hypercall::SCHED_YIELD`]).
pub const KVM_FEATURE_PV_SCHED_YIELD: u32 = 1 << 13;

/// EAX of [`KVM_FEATURES`]: the host reads the guest's word ([`crate::StealTime::word`]). A bit that KVM does not use.
pub const FEATURE_GUEST_WORD: u32 = 1 << 31;

/// EDX of [`KVM_FEATURES`]: no vCPU is ever preempted for an unbounded time.
pub const KVM_HINTS_REALTIME: u32 = 1 << 0;

/// EDX of AMD's leaf 0x8000_000a: nested page tables.
pub const SVM_NESTED_PAGING: u32 = 1 << 0;
/// EDX of AMD's leaf 0x8000_000a: AVIC.
pub const SVM_AVIC: u32 = 1 << 13;
/// EDX of AMD's leaf 0x8000_000a: AVIC in x2APIC mode.
pub const SVM_X2AVIC: u32 = 1 << 18;
/// EDX of AMD's leaf 0x8000_000a: the idle HLT intercept.
pub const SVM_IDLE_HLT: u32 = 1 << 30;
