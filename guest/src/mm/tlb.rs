//! Which CPUs may hold translations of an address space, and telling them to forget.

use core::sync::atomic::Ordering::SeqCst;

use holdfast_locks::Platform;

use super::space::{AddressSpace, space_of};
use crate::class::Event;
use crate::costs;
use crate::kernel::{CpuIndex, OnCpu};
use crate::machine::Machine;
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

/// Makes every CPU forget what its TLB holds of `space` (`flush_tlb_mm`).
pub(super) fn flush_space<M: Machine>(on: &OnCpu<'_, M>, space: TaskId) {
    let words = &space_of(on.kernel, space).cpus;
    if TaskId(on.local.active_space.get()) == space {
        on.work(costs::TLB_FLUSH);
    }
    for (index, word) in words.iter().enumerate() {
        let base = index as u32 * 32;
        let mut marked = on.cpu.load(word, SeqCst);
        if on.index / 32 == index as u32 {
            marked &= !(1 << (on.index % 32));
        }
        if marked != 0 {
            on.local.count(Event::Shootdowns);
            let targets = (0..32)
                .filter(move |bit| marked & (1 << bit) != 0)
                .map(move |bit| base + bit);
            smp::call_many(on, targets, Call::FlushSpace(space));
        }
    }
}

/// A CPU's part of a shootdown. One that only kept the tables because nobody needed others drops them (`leave_mm`).
pub(crate) fn flush_here<M: Machine>(on: &OnCpu<'_, M>, space: TaskId) {
    if TaskId(on.local.active_space.get()) != space {
        return;
    }
    if on.local.lazy_space.is_set() {
        space_of(on.kernel, space).unmark(on);
        on.local.active_space.set(kernel_space(on.index).0);
    } else {
        on.work(costs::TLB_FLUSH);
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
}
