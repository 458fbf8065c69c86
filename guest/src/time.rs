//! Time: the tick, its absence in idle, and timers that wake sleepers.
//!
//! As in a high-resolution kernel, the tick is one more timer of its CPU, and every timer interrupt programs the next
//! one. The ticks of all CPUs come at the same times (`skew_tick=0`).

use alloc::collections::BinaryHeap;
use alloc::collections::binary_heap::PeekMut;
use core::cmp::Reverse;

use crate::class::{Event, LockClass};
use crate::config::Config;
use crate::costs;
use crate::cpu::ThisCpu;
use crate::ids::{CpuTable, TaskId};
use crate::local::{Local, Local32, Shared32};
use crate::machine::Machine;
use crate::sched::{self, OnCpu, Scheduler, WakeHint};
use crate::sync::SpinLock;
use crate::task::state;

/// Ticks for which RCU callbacks keep the tick running after they were queued: a grace period. [E]
const CALLBACK_TICKS: u64 = 3;

/// The kernel's time.
pub(crate) struct Time<M: Machine> {
    /// Nanoseconds per tick.
    period: u64,
    /// CPU + 1 that keeps the time of day. 0: the next CPU to tick takes over.
    keeper: Shared32,
    /// Linux's `xtime_lock`.
    xtime: SpinLock<(), M>,
    cpus: CpuTable<CpuTime<M>>,
}

/// What each CPU has of its own.
struct CpuTime<M: Machine> {
    timers: SpinLock<Timers, M>,
    /// When the next tick is due, in nanoseconds.
    next_tick: Local,
    /// Not 0: this idle CPU has no tick.
    tick_stopped: Local32,
}

/// The sleepers of one CPU: wakeup time, order of arrival, task.
#[derive(Default)]
struct Timers {
    heap: BinaryHeap<Reverse<(u64, u64, TaskId)>>,
    count: u64,
}

impl Timers {
    /// When the first sleeper wakes up. `u64::MAX`: there is none.
    fn first(&self) -> u64 {
        self.heap.peek().map_or(u64::MAX, |Reverse((at, _, _))| *at)
    }
}

impl<M: Machine> Time<M> {
    pub(crate) fn new(config: &Config, cpus: u32) -> Self {
        let hz = config.hz;
        assert!((1..=10_000).contains(&hz), "a tick of {hz} Hz: expected 1 to 10000 Hz");
        Time {
            period: config.tick_ns(),
            keeper: Shared32::new(0),
            xtime: SpinLock::new(LockClass::Xtime, ()),
            cpus: CpuTable::new(cpus, |_| CpuTime {
                timers: SpinLock::new(LockClass::TimerBase, Timers::default()),
                next_tick: Local::new(0),
                tick_stopped: Local32::new(0),
            }),
        }
    }

    /// Starts this CPU's tick. Interrupts are masked.
    pub(crate) fn start_tick(&self, on: &ThisCpu<'_, M>) {
        let at = next_tick(on.now(), self.period);
        self.cpus[on.id].next_tick.set(at);
        on.set_timer(at);
    }

    /// Handles the timer interrupt. Interrupts are masked.
    pub(crate) fn interrupt(&self, on: &OnCpu<'_, M>) {
        // The timer has fired, and is off.
        on.local.apic.timer.set(u64::MAX);
        let now = on.now();
        let here = &self.cpus[on.id];
        if !here.tick_stopped.is_set() && now >= here.next_tick.get() {
            self.tick(on);
            here.next_tick.set(next_tick(now, self.period));
        }
        let first = here.wake_sleepers(on, now);
        here.program(on, first);
    }

    fn tick(&self, on: &OnCpu<'_, M>) {
        on.local.count(Event::Ticks);
        let me = on.id.0 + 1;
        if self.keeper.get() == 0 {
            self.keeper.set(me);
        }
        if self.keeper.get() == me {
            self.xtime.hold(on, costs::XTIME);
        }
        on.work(costs::TICK);
        sched::tick(on);
        if let Some(helper) = sched::idle_helper(on) {
            on.sched.queues[helper].balance_kick.set(1);
            on.send_reschedule(helper);
        }
    }

    /// Puts the caller's task to sleep for `ns` nanoseconds (`hrtimer_nanosleep`).
    pub(crate) fn sleep(&self, sched: &Scheduler<M>, ns: u64) {
        let on = sched.on_cpu();
        let at = on.now() + ns;
        if let Some(threads) = sched.system.machine.threads() {
            return sched::sleep_hosted(sched, threads, at);
        }
        let id = on.current();
        {
            let mut timers = self.cpus[on.id].timers.lock_irq(&on);
            on.work(costs::TIMER);
            timers.count += 1;
            let order = timers.count;
            timers.heap.push(Reverse((at, order, id)));
            on.task(id).state.set(state::UNINTERRUPTIBLE);
            if at < on.local.apic.timer.get() {
                on.set_timer(at);
            }
        }
        sched::schedule(sched);
    }

    /// Stops this CPU's tick when the CPU goes idle, unless RCU callbacks need it. Interrupts are masked.
    pub(crate) fn enter_idle(&self, on: &ThisCpu<'_, M>) {
        let here = &self.cpus[on.id];
        if here.tick_stopped.is_set() || on.now() < on.local.callbacks_until.get() {
            return;
        }
        here.tick_stopped.set(1);
        if self.keeper.get() == on.id.0 + 1 {
            self.keeper.set(0);
        }
        let first = here.timers.lock(on).first();
        here.program(on, first);
    }

    /// Restarts this CPU's tick when the CPU has work again. Interrupts are masked.
    pub(crate) fn leave_idle(&self, on: &ThisCpu<'_, M>) {
        let here = &self.cpus[on.id];
        if here.tick_stopped.is_set() {
            here.tick_stopped.set(0);
            here.next_tick.set(next_tick(on.now(), self.period));
            let first = here.timers.lock(on).first();
            here.program(on, first);
        }
    }
}

/// Keeps this CPU's tick running until an RCU grace period has passed, for a callback that the caller queues.
pub(crate) fn queue_callback<M: Machine>(on: &ThisCpu<'_, M>) {
    let ticks = CALLBACK_TICKS * on.system.config.tick_ns();
    on.local.callbacks_until.set(on.now() + ticks);
}

impl<M: Machine> CpuTime<M> {
    /// Wakes the sleepers whose time has come. Returns when the next one wakes up.
    fn wake_sleepers(&self, on: &OnCpu<'_, M>, now: u64) -> u64 {
        loop {
            let mut timers = self.timers.lock(on);
            on.work(costs::TIMER);
            let first = timers.heap.peek_mut().filter(|timer| timer.0.0 <= now);
            let Some(Reverse((_, _, id))) = first.map(PeekMut::pop) else {
                return timers.first();
            };
            drop(timers);
            sched::wake(on, id, state::ASLEEP, WakeHint::Plain);
        }
    }

    /// Sets the hardware timer for the tick or the first sleeper, whichever is earlier.
    fn program(&self, on: &ThisCpu<'_, M>, first_timer: u64) {
        let tick = if self.tick_stopped.is_set() {
            u64::MAX
        } else {
            self.next_tick.get()
        };
        on.set_timer(tick.min(first_timer));
    }
}

/// The first tick after `now`: a multiple of `period`.
fn next_tick(now: u64, period: u64) -> u64 {
    (now / period + 1) * period
}

#[cfg(test)]
mod tests {
    use super::next_tick;

    #[test]
    fn ticks_are_on_one_grid_and_in_the_future() {
        assert_eq!(next_tick(0, 1_000_000), 1_000_000);
        assert_eq!(next_tick(999_999, 1_000_000), 1_000_000);
        assert_eq!(next_tick(1_000_000, 1_000_000), 2_000_000);
    }
}
