//! Which CPUs may hold translations of an address space, and telling them to forget.

use core::sync::atomic::Ordering::SeqCst;

use holdfast_abi::StealTime;
use holdfast_locks::{CpuId, Platform};

use super::space::{AddressSpace, space_of};
use crate::class::Event;
use crate::costs;
use crate::kernel::{CpuIndex, OnCpu};
use crate::machine::{Cpu, Machine};
use crate::mask::CpuMask;
use crate::smp::{self, Call};
use crate::task::TaskId;

impl<M: Machine> AddressSpace<M> {
    fn mark(&self, on: &OnCpu<'_, M>) {
        // ORDERING: SeqCst, here and below: either the flusher sees the mark, or this CPU loads the tables after the
        // flusher changed them.
        on.cpu
            .fetch_or(&self.cpus[on.index as usize / 32], 1 << (on.index % 32), SeqCst);
    }

    fn unmark(&self, on: &OnCpu<'_, M>) {
        on.cpu
            .fetch_and(&self.cpus[on.index as usize / 32], !(1 << (on.index % 32)), SeqCst);
    }
}

/// Makes every CPU forget what its TLB holds of `space` (`flush_tlb_mm`): those that run at once, and those that the host
/// has taken off their CPUs when they run again, if the host sees to that.
pub(super) fn flush_space<M: Machine>(on: &OnCpu<'_, M>, space: TaskId) {
    let change = on.cpu.tables_changed(space.0);
    if TaskId(on.local.active_space.get()) == space {
        empty(on);
    }
    let mut targets = CpuMask::EMPTY;
    for (index, word) in space_of(on.kernel, space).cpus.iter().enumerate() {
        targets.set_word(index, on.cpu.load(word, SeqCst));
    }
    targets.remove(on.index);
    if !targets.is_empty() {
        on.local.count(Event::Shootdowns);
        if on.kernel.assists().flushes {
            leave_preempted_to_host(on, &mut targets);
        }
        if !targets.is_empty() {
            smp::call_many(on, &targets, Call::FlushSpace(space));
        }
    }
    on.cpu.tables_flushed(space.0, change);
}

/// Takes those out of `targets` whose TLBs the host will flush before they run again (`kvm_flush_tlb_multi`).
///
/// **Flushed or called**: the host exchanges the state byte with 0 before it lets a vCPU run; so either it finds the bit that
/// was added here, or the bit could not be added and the vCPU is called. The tables were changed before.
fn leave_preempted_to_host<M: Machine>(on: &OnCpu<'_, M>, targets: &mut CpuMask) {
    for target in targets.iter() {
        let state = on.cpu.preempted_state(CpuId(target));
        if state & StealTime::PREEMPTED != 0 && on.cpu.ask_for_flush(CpuId(target), state) {
            targets.remove(target);
            on.local.count(Event::PvTlbFlushes);
        }
    }
}

/// Empties this CPU's TLB.
fn empty<M: Machine>(on: &OnCpu<'_, M>) {
    on.work(costs::TLB_FLUSH);
    on.cpu.flush_tlb();
}

/// A CPU's part of a shootdown. One that only kept the tables because nobody needed others drops them (`leave_mm`).
pub(crate) fn flush_here<M: Machine>(on: &OnCpu<'_, M>, space: TaskId) {
    if TaskId(on.local.active_space.get()) != space {
        return;
    }
    if on.local.lazy_space.is_set() {
        space_of(on.kernel, space).unmark(on);
        on.local.active_space.set(kernel_space(on.index).0);
        on.cpu.load_tables(kernel_space(on.index).0);
    } else {
        empty(on);
    }
}

/// The idle task's, which maps nothing.
fn kernel_space(cpu: CpuIndex) -> TaskId {
    TaskId(cpu)
}

/// Loads the tables of `next`'s address space (`switch_mm`). An idle task borrows what is loaded.
pub(crate) fn switch_space<M: Machine>(on: &OnCpu<'_, M>, next: TaskId) {
    let (kernel, local) = (on.kernel, on.local);
    if kernel.tasks.is_idle(next) {
        local.lazy_space.set(1);
        return;
    }
    let space = TaskId(kernel.tasks.get(next).space.get());
    load_space(on, space);
}

/// Loads the tables of `space` on this CPU.
pub(crate) fn load_space<M: Machine>(on: &OnCpu<'_, M>, space: TaskId) {
    let local = on.local;
    let active = TaskId(local.active_space.get());
    local.lazy_space.set(0);
    if active == space {
        return;
    }
    if !on.kernel.tasks.is_idle(active) {
        space_of(on.kernel, active).unmark(on);
    }
    local.active_space.set(space.0);
    space_of(on.kernel, space).mark(on);
    on.cpu.load_tables(space.0);
}
