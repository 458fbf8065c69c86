//! Non-maskable interrupts: a backtrace of all CPUs (`trigger_all_cpu_backtrace`), also of those that mask interrupts.
//!
//! **One backtrace at a time**: a CPU answers the caller that it finds in its word.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use holdfast_abi::lapic;
use holdfast_locks::{CpuId, Platform};

use crate::class::Event;
use crate::costs;
use crate::cpu::ThisCpu;
use crate::machine::Machine;
use crate::smp::Calls;

/// An interrupt command: fixed destination, delivery mode "NMI", asserted.
const NMI: u32 = (lapic::DeliveryMode::Nmi as u32) << 8 | lapic::ICR_SHORTHAND_NONE | 1 << 14;

impl<M: Machine> Calls<M> {
    /// Makes all other CPUs print where they are, and waits until all have. Appends for each, in the order of the CPUs,
    /// how many nanoseconds after the beginning it was done.
    pub(crate) fn backtrace(&self, on: &ThisCpu<'_, M>, after_ns: &mut alloc::vec::Vec<u64>) {
        let targets = on.system.online_others(on.id);
        let begun = on.now();
        for target in targets.iter() {
            on.cpu.store(self.unanswered(on.id, target), 1, Relaxed);
            // ORDERING: Release pairs with the Acquire in `answer_nmi`, which then clears the word before.
            on.cpu.store(self.tracer(target), on.id.0 + 1, Release);
            on.local.count(Event::Nmis);
            on.local.apic.command(&on.cpu, target.0, NMI);
        }
        for target in targets.iter() {
            self.wait_for(on, target);
        }
        let done = targets.iter().map(|cpu| self.executed_at(cpu));
        after_ns.extend(done.map(|at| at.saturating_sub(begun)));
    }

    /// Handles an NMI of this CPU.
    pub(crate) fn answer_nmi(&self, on: &ThisCpu<'_, M>) {
        on.work(costs::NMI_HANDLER);
        // ORDERING: Acquire pairs with the Release in `backtrace`.
        let from = on.cpu.load(self.tracer(on.id), Acquire);
        // Without a caller it is another's NMI, or a second one.
        let Some(from) = from.checked_sub(1) else { return };
        on.work(costs::BACKTRACE);
        on.cpu.store(self.tracer(on.id), 0, Relaxed);
        self.note_executed(on);
        // ORDERING: Release pairs with the Acquire in `wait_for`.
        on.cpu.store(self.unanswered(CpuId(from), on.id), 0, Release);
    }
}
