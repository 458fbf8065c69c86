//! Which address space's tables each CPU has loaded, and which CPUs may hold translations of each address space.
//!
//! An address space has the number of the task that owns its slot. A kernel thread or idle task has no user mappings:
//! it keeps the tables of the last task (lazy mode), so that the next switch back needs no flush.

use alloc::boxed::Box;
use core::sync::atomic::Ordering::SeqCst;

use holdfast_abi::StealTime;
use holdfast_locks::{CpuId, Platform, Word};

use crate::class::Event;
use crate::costs;
use crate::cpu::{ThisCpu, idle_task};
use crate::ids::{CpuTable, LocalId, TaskId, TaskTable};
use crate::local::Local32;
use crate::machine::{Cpu, Machine};
use crate::mask::CpuMask;
use crate::pcid::{Identifiers, Pcid, Version};
use crate::smp::{Call, Calls};
use crate::sync::WordOf;

/// The TLBs, as far as the kernel tracks them.
pub(crate) struct Tlbs<M: Machine> {
    cpus: CpuTable<Loaded>,
    spaces: TaskTable<Space<M>>,
}

/// What one CPU has loaded.
struct Loaded {
    /// The address space whose tables this CPU has loaded.
    active: LocalId<TaskId>,
    /// Not 0: lazy mode. No user code runs in that address space now, so the CPU can simply drop its tables.
    lazy: Local32,
    /// The address spaces whose translations its TLB keeps, if this kernel uses process-context identifiers.
    identifiers: Identifiers,
}

/// What each task's slot has for address spaces.
struct Space<M: Machine> {
    /// The address space that this task uses: its own slot's or, for threads and after vfork, another task's.
    used: LocalId<TaskId>,
    /// Number of address spaces that this slot has had.
    context: Local32,
    /// Number of flushes of this slot's address space (`tlb_gen`). Counted if this kernel uses process-context
    /// identifiers.
    flushes: WordOf<M>,
    /// The CPUs whose TLB may hold translations of this slot's address space, 32 a word (`mm_cpumask`).
    holders: Box<[WordOf<M>]>,
}

impl<M: Machine> Tlbs<M> {
    pub(crate) fn new(cpus: u32, tasks: u32) -> Self {
        Tlbs {
            cpus: CpuTable::new(cpus, |cpu| Loaded {
                active: LocalId::new(idle_task(cpu)),
                lazy: Local32::new(1),
                identifiers: Identifiers::new(),
            }),
            spaces: TaskTable::new(tasks, |id| Space {
                used: LocalId::new(id),
                context: Local32::new(1),
                flushes: WordOf::<M>::new(0),
                // An idle task has no user code, and so no translations.
                holders: (0..if id.0 < cpus { 0 } else { cpus.div_ceil(32) })
                    .map(|_| WordOf::<M>::new(0))
                    .collect(),
            }),
        }
    }

    /// The address space that `task` uses.
    #[inline(always)]
    pub(crate) fn space_of(&self, task: TaskId) -> TaskId {
        self.spaces[task].used.get()
    }

    /// Makes `task` use the address space `space`, its own slot's being a new one. The tables are loaded at the next
    /// switch or [`Tlbs::load`].
    pub(crate) fn set_space(&self, task: TaskId, space: TaskId) {
        self.spaces[task].used.set(space);
        if task == space {
            self.spaces[task].context.add(1);
        }
    }

    fn is_idle(&self, task: TaskId) -> bool {
        task.0 < self.cpus.count()
    }

    /// The word and bit that say whether this CPU's TLB may hold translations of `space`.
    fn mark(&self, on: &ThisCpu<'_, M>, space: TaskId) -> (&WordOf<M>, u32) {
        let (word, bit) = (on.id.0 / 32, on.id.0 % 32);
        (&self.spaces[space].holders[word as usize], 1 << bit)
    }

    fn unmark(&self, on: &ThisCpu<'_, M>, space: TaskId) {
        let (word, bit) = self.mark(on, space);
        // ORDERING: SeqCst, here and below: either the flusher sees the mark, or this CPU loads the tables after the
        // flusher changed them.
        on.cpu.fetch_and(word, !bit, SeqCst);
    }

    /// The CPUs whose TLB may hold translations of `space`.
    fn holders(&self, on: &ThisCpu<'_, M>, space: TaskId) -> CpuMask {
        let mut holders = CpuMask::EMPTY;
        for (index, word) in self.spaces[space].holders.iter().enumerate() {
            holders.set_word(index, on.cpu.load(word, SeqCst));
        }
        holders
    }

    /// Returns `true` if this CPU has the tables of `space` loaded.
    fn has_loaded(&self, cpu: CpuId, space: TaskId) -> bool {
        self.cpus[cpu].active.get() == space
    }

    /// Makes every CPU flush its translations of `space` (`flush_tlb_mm`). Preempted vCPUs flush them before they run
    /// again, if the host supports that. All other CPUs do at once.
    pub(crate) fn flush_space(&self, on: &ThisCpu<'_, M>, calls: &Calls<M>, space: TaskId) {
        let change = on.cpu.tables_changed(space.0);
        let uses_pcids = on.system.chosen.get().pcids;
        let mut flushes = 0;
        if uses_pcids {
            // ORDERING: SeqCst: CPUs that are not among the holders below load the tables later, and then find this
            // number.
            flushes = on.cpu.fetch_add(&self.spaces[space].flushes, 1, SeqCst).wrapping_add(1);
        }
        if self.has_loaded(on.id, space) {
            flush(on);
            if uses_pcids {
                self.cpus[on.id].identifiers.flushed(flushes);
            }
        }
        let mut targets = self.holders(on, space);
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

    /// Does a CPU's share of a shootdown. A CPU in lazy mode drops the tables (`leave_mm`).
    pub(crate) fn flush_here(&self, on: &ThisCpu<'_, M>, space: TaskId) {
        if !self.has_loaded(on.id, space) {
            return;
        }
        let loaded = &self.cpus[on.id];
        if loaded.lazy.is_set() {
            self.unmark(on, space);
            // The idle task's address space maps nothing.
            let kernel = idle_task(on.id);
            loaded.active.set(kernel);
            on.cpu.load_tables(kernel.0, self.identify(on, kernel));
        } else if on.system.chosen.get().pcids {
            // Read before the flush: a later change may not be part of it.
            let flushes = on.cpu.load(&self.spaces[space].flushes, SeqCst);
            flush(on);
            loaded.identifiers.flushed(flushes);
        } else {
            flush(on);
        }
    }

    /// Puts this CPU in lazy mode: the loaded tables stay loaded until another task's are needed, or a flush comes.
    pub(crate) fn enter_lazy(&self, cpu: CpuId) {
        self.cpus[cpu].lazy.set(1);
    }

    /// Loads the tables of `next`'s address space (`switch_mm`). An idle task keeps the loaded tables.
    #[inline]
    pub(crate) fn switch_to(&self, on: &ThisCpu<'_, M>, next: TaskId) {
        if self.is_idle(next) {
            self.enter_lazy(on.id);
        } else {
            self.load(on, self.space_of(next));
        }
    }

    /// Loads the tables of `space` on this CPU.
    pub(crate) fn load(&self, on: &ThisCpu<'_, M>, space: TaskId) {
        let loaded = &self.cpus[on.id];
        let active = loaded.active.get();
        loaded.lazy.set(0);
        if active == space {
            return;
        }
        if !self.is_idle(active) {
            self.unmark(on, active);
        }
        loaded.active.set(space);
        let (word, bit) = self.mark(on, space);
        on.cpu.fetch_or(word, bit, SeqCst);
        on.cpu.load_tables(space.0, self.identify(on, space));
    }

    /// The identifier under which this CPU loads the tables of `space`. The CPU must be one of its holders.
    fn identify(&self, on: &ThisCpu<'_, M>, space: TaskId) -> Pcid {
        if !on.system.chosen.get().pcids {
            return Pcid::NONE;
        }
        let at = &self.spaces[space];
        self.cpus[on.id].identifiers.choose(Version {
            space,
            context: at.context.get(),
            flushes: on.cpu.load(&at.flushes, SeqCst),
        })
    }
}

/// Flushes this CPU's TLB.
fn flush<M: Machine>(on: &ThisCpu<'_, M>) {
    on.work(costs::TLB_FLUSH);
    on.cpu.flush_tlb();
}

/// Removes the CPUs from `targets` whose TLBs the host will flush before they run again (`kvm_flush_tlb_multi`).
///
/// **Flushed or called**: the host exchanges the state byte with 0 before it lets a vCPU run. So either the host finds
/// the bit that was added here, or the bit could not be added and the vCPU is called. The tables were changed before.
fn leave_preempted_to_host<M: Machine>(on: &ThisCpu<'_, M>, targets: &mut CpuMask) {
    let all = targets.clone();
    for target in all.iter() {
        let state = on.cpu.preempted_state(target);
        if state & StealTime::PREEMPTED != 0 && on.cpu.ask_for_flush(target, state) {
            targets.remove(target);
            on.local.count(Event::PvTlbFlushes);
        }
    }
}
