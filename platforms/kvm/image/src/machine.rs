//! The machine on which the guest kernel runs.

#![expect(unsafe_code, reason = "the machine's trait is unsafe to implement")]

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use core::sync::atomic::Ordering::Relaxed;

use holdfast_guest::{Machine, Report};
use holdfast_locks::{BUCKETS, Event, Paravirt};
use holdfast_protocol::Message;

use crate::context::{Body, Context, switch_contexts};
use crate::cpu::KvmCpu;
use crate::percpu::{self, Shared};
use crate::ring;

/// The machine of a KVM guest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KvmMachine {
    pub(crate) shared: &'static Shared,
}

// SAFETY: `cpu` reads the executing CPU's block through GS. `switch` preserves the callee-saved registers. The image is
// never dropped.
unsafe impl Machine for KvmMachine {
    type Cpu = KvmCpu;
    type Context = Context;

    fn cpus(&self) -> u32 {
        self.shared.cpus
    }

    #[inline(always)]
    fn cpu(&self) -> KvmCpu {
        KvmCpu::current()
    }

    fn proximity_domain(&self, apic_id: u32) -> Option<u32> {
        self.shared.domains.get(apic_id as usize).copied()
    }

    fn new_context(&self, body: Box<dyn FnOnce()>) -> Context {
        Context::new(body as Body)
    }

    fn empty_context(&self) -> Context {
        Context::empty()
    }

    #[inline]
    fn switch(&self, from: &Context, to: &Context) {
        switch_contexts(from, to);
    }

    fn seed(&self, purpose: &str) -> u64 {
        holdfast_workloads::stream_seed(self.shared.seed, self.shared.guest, purpose)
    }

    fn report(&self, report: Report) {
        let now_ns = self.cpu().now_ns();
        match report {
            Report::Begin => ring::report_now(&Message::Begin { now_ns }),
            Report::Done { operations } => {
                counters(self.shared, &mut |name, value| {
                    ring::report(&Message::Counter(name, value));
                });
                ring::report_now(&Message::Done { now_ns, operations });
            }
            Report::Counter(name, value) => ring::report(&Message::Counter(name, value)),
            Report::Panic(message) => ring::panicked(format_args!("{message}")),
        }
    }
}

/// Passes the counters of locks and CPUs that are not 0 to `report`, summed over the CPUs. These are statistics, which
/// other CPUs may still change.
pub(crate) fn counters(shared: &Shared, report: &mut dyn FnMut(String, u64)) {
    let cpus = || (0..shared.cpus).map(percpu::of);
    let mut counter = |name: String, value: u64| {
        if value > 0 {
            report(name, value);
        }
    };
    for &event in Event::ALL {
        let total = cpus().map(|cpu| cpu.lock_stats.count(event)).sum();
        counter(event.name().to_owned(), total);
    }
    let blocked = cpus().map(|cpu| cpu.lock_stats.time_blocked_ns()).sum();
    counter("time_blocked".to_owned(), blocked);
    let histograms = || cpus().map(|cpu| cpu.lock_stats.histogram());
    for bucket in 0..BUCKETS {
        let halts = histograms().map(|histogram| histogram[bucket]).sum();
        counter(format!("histo_blocked.{bucket}"), halts);
    }
    // ORDERING: Relaxed; the counters are statistics.
    counter(
        "guest.kicks".to_owned(),
        cpus().map(|cpu| cpu.kicks.load(Relaxed)).sum(),
    );
    counter("guest.hlt".to_owned(), cpus().map(|cpu| cpu.halts.load(Relaxed)).sum());
}
