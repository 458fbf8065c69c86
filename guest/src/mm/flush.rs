//! TLB shootdown: all CPUs forget their translations of an address space.

use holdfast_abi::StealTime;

use crate::class::Event;
use crate::ids::TaskId;
use crate::machine::{Cpu, Machine};
use crate::mask::CpuMask;
use crate::sched::OnCpu;
use crate::smp::{Call, Calls};
use crate::tlb;

/// Makes every CPU flush its translations of `space` (`flush_tlb_mm`). Preempted vCPUs flush them before they run
/// again, if the host supports that. All other CPUs do at once.
pub(super) fn flush_space<M: Machine>(on: &OnCpu<'_, M>, calls: &Calls<M>, space: TaskId) {
    let tlbs = &on.sched.tlbs;
    let change = on.cpu.tables_changed(space.0);
    if tlbs.has_loaded(on.id, space) {
        tlb::flush(on);
    }
    let mut targets = tlbs.holders(on, space);
    targets.remove(on.id);
    if !targets.is_empty() {
        on.local.count(Event::Shootdowns);
        if on.system.chosen.get().assists.flushes {
            leave_preempted_to_host(on, &mut targets);
        }
        if !targets.is_empty() {
            calls.call_many(on, &targets, Call::FlushSpace(space));
        }
    }
    on.cpu.tables_flushed(space.0, change);
}

/// Removes the CPUs from `targets` whose TLBs the host will flush before they run again (`kvm_flush_tlb_multi`).
///
/// **Flushed or called**: the host exchanges the state byte with 0 before it lets a vCPU run. So either the host finds
/// the bit that was added here, or the bit could not be added and the vCPU is called. The tables were changed before.
fn leave_preempted_to_host<M: Machine>(on: &OnCpu<'_, M>, targets: &mut CpuMask) {
    for target in targets.iter() {
        let state = on.cpu.preempted_state(target);
        if state & StealTime::PREEMPTED != 0 && on.cpu.ask_for_flush(target, state) {
            targets.remove(target);
            on.local.count(Event::PvTlbFlushes);
        }
    }
}
