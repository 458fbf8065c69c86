//! What each CPU has of its own.

use alloc::boxed::Box;

use holdfast_locks::Word;

use crate::apic::Timer;
use crate::class::{Event, LockClass};
use crate::kernel::CpuIndex;
use crate::local::{Local, Local32, Shared32};
use crate::machine::{Machine, Mode};
use crate::mm::PageLists;
use crate::sched::RunQueue;
use crate::smp::CallQueue;
use crate::sync::{SpinLock, WordOf};
use crate::task::TaskId;
use crate::time::Timers;

/// The state of one CPU. What only this CPU touches is plain; the rest is a lock, a word or a hint.
pub(crate) struct PerCpu<M: Machine> {
    // Scheduler.
    pub(crate) run_queue: SpinLock<RunQueue, M>,
    /// The task that runs here.
    pub(crate) current: Local32,
    /// The task that this CPU switched from last; read by the one it switched to.
    pub(crate) switched_from: Local32,
    /// The scheduler shall be called at the next chance (`TIF_NEED_RESCHED`). Written under the run queue's lock.
    pub(crate) need_resched: Shared32,
    /// Hint: tasks that are running or ready here.
    pub(crate) load: Local32,
    /// Hint: the run queue's smallest virtual run time, for tasks on their way to or from it.
    pub(crate) min_vruntime: Local,
    /// Tasks that other CPUs have woken for this one: id + 1 of the last, linked by [`Task::wake_next`](crate::task::Task).
    pub(crate) wake_list: WordOf<M>,
    /// Not 0: this CPU shall balance for the idle ones.
    pub(crate) balance_kick: Shared32,
    /// When this CPU balances next, in nanoseconds.
    pub(crate) balance_at: Local,
    /// Not 0: this CPU takes part in scheduling.
    pub(crate) online: Shared32,

    // Where the CPU is, and since when; how long it has been in each mode, nanoseconds.
    mode: Local32,
    mode_since: Local,
    mode_time: [Local; 3],
    /// Spinlocks held.
    pub(crate) preempt_count: Local32,
    /// Nesting of interrupt handlers.
    pub(crate) interrupts: Local32,

    // Time.
    pub(crate) timers: SpinLock<Timers, M>,
    pub(crate) timer: Timer,
    /// Until when RCU callbacks of this CPU keep the tick alive in idle, in nanoseconds.
    pub(crate) callbacks_until: Local,

    // Calls from other CPUs.
    pub(crate) calls: SpinLock<CallQueue, M>,
    /// For each CPU: 1 until it has answered this CPU's call.
    pub(crate) unanswered: Box<[WordOf<M>]>,

    /// When this CPU last executed a [`Function`](crate::smp::Function), nanoseconds.
    pub(crate) executed_at: Local,

    // Memory.
    pub(crate) pages: PageLists,
    /// The address space whose tables this CPU has loaded (task id), maybe lazily.
    pub(crate) active_space: Local32,
    /// Not 0: no user code runs in it now, so that it can simply be dropped.
    pub(crate) lazy_space: Local32,

    // Statistics.
    locks: [LockCounts; LockClass::COUNT],
    events: [Local; Event::COUNT],
}

/// Acquisitions of one class on one CPU.
#[derive(Default)]
struct LockCounts {
    acquired: Local,
    contended: Local,
}

impl<M: Machine> PerCpu<M> {
    pub(crate) fn new(cpu: CpuIndex, cpus: u32, idle: TaskId) -> Self {
        PerCpu {
            run_queue: SpinLock::new(LockClass::RunQueue, RunQueue::new(idle)),
            current: Local32::new(idle.0),
            switched_from: Local32::new(idle.0),
            need_resched: Shared32::new(0),
            load: Local32::new(0),
            min_vruntime: Local::new(0),
            wake_list: WordOf::<M>::new(0),
            balance_kick: Shared32::new(0),
            balance_at: Local::new(0),
            online: Shared32::new(0),
            mode: Local32::new(Mode::Kernel as u32),
            mode_since: Local::new(0),
            mode_time: core::array::from_fn(|_| Local::default()),
            preempt_count: Local32::new(0),
            interrupts: Local32::new(0),
            timers: SpinLock::new(LockClass::TimerBase, Timers::new()),
            timer: Timer::new(),
            callbacks_until: Local::new(0),
            calls: SpinLock::new(LockClass::CallQueue, CallQueue::new()),
            unanswered: (0..cpus).map(|_| WordOf::<M>::new(0)).collect(),
            executed_at: Local::new(0),
            pages: PageLists::new(),
            active_space: Local32::new(cpu),
            lazy_space: Local32::new(1),
            locks: core::array::from_fn(|_| LockCounts::default()),
            events: core::array::from_fn(|_| Local::default()),
        }
    }

    /// Whose time this CPU spends.
    #[inline(always)]
    pub(crate) fn is_in(&self, mode: Mode) -> bool {
        self.mode.get() == mode as u32
    }

    /// From `now` on this CPU's time is `mode`'s (`CONFIG_VIRT_CPU_ACCOUNTING`; what the host steals is in it).
    #[inline(always)]
    pub(crate) fn set_mode(&self, mode: Mode, now: u64) {
        let since = self.mode_since.get();
        self.mode_since.set(now);
        self.mode_time[self.mode.get() as usize].add(now.wrapping_sub(since));
        self.mode.set(mode as u32);
    }

    /// Nanoseconds spent in `mode`, without the current stretch.
    pub(crate) fn time_in(&self, mode: Mode) -> u64 {
        self.mode_time[mode as usize].get()
    }

    #[inline(always)]
    pub(crate) fn count(&self, event: Event) {
        self.events[event as usize].add(1);
    }

    #[inline(always)]
    pub(crate) fn count_lock(&self, class: LockClass, contended: bool) {
        let counts = &self.locks[class as usize];
        counts.acquired.add(1);
        if contended {
            counts.contended.add(1);
        }
    }

    pub(crate) fn events(&self, event: Event) -> u64 {
        self.events[event as usize].get()
    }

    /// Acquisitions and contended acquisitions of `class` on this CPU.
    pub(crate) fn locks(&self, class: LockClass) -> (u64, u64) {
        let counts = &self.locks[class as usize];
        (counts.acquired.get(), counts.contended.get())
    }
}
