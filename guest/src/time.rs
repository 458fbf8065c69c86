//! Time: the tick, its absence in idle, and timers that wake sleepers.
//!
//! As a high-resolution kernel does it: the tick is one more timer of its CPU, and every timer interrupt programs the
//! next. All CPUs' ticks fall on the same moments (`skew_tick=0`).

use alloc::collections::BinaryHeap;
use core::cmp::Reverse;

use crate::class::{Event, LockClass};
use crate::kernel::{Kernel, OnCpu};
use crate::local::Shared32;
use crate::machine::Machine;
use crate::sched::{self, WakeHint};
use crate::sync::SpinLock;
use crate::task::{TaskId, state};
use crate::{apic, costs};

/// Ticks for which RCU callbacks keep the tick alive after they were queued: a grace period. [E]
const CALLBACK_TICKS: u64 = 3;

/// Sleepers of one CPU: when, in which order they came, who.
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(u64, u64, TaskId)>>,
    count: u64,
}

impl Timers {
    pub(crate) fn new() -> Self {
        Timers {
            heap: BinaryHeap::new(),
            count: 0,
        }
    }

    fn first(&self) -> u64 {
        self.heap.peek().map_or(u64::MAX, |Reverse((at, _, _))| *at)
    }
}

/// What the CPUs share.
pub(crate) struct TimeKeeper<M: Machine> {
    /// Nanoseconds per tick.
    pub(crate) period: u64,
    /// CPU + 1 that keeps the time of day; 0: the next to tick takes over.
    keeper: Shared32,
    /// Ticks since boot.
    xtime: SpinLock<u64, M>,
}

impl<M: Machine> TimeKeeper<M> {
    pub(crate) fn new(hz: u32) -> Self {
        assert!((1..=10_000).contains(&hz), "a tick of {hz} Hz: expected 1 to 10000");
        TimeKeeper {
            period: 1_000_000_000 / u64::from(hz),
            keeper: Shared32::new(0),
            xtime: SpinLock::new(LockClass::Xtime, 0),
        }
    }
}

/// The next moment on the tick's grid after `now`.
fn next_tick(now: u64, period: u64) -> u64 {
    (now / period + 1) * period
}

/// Starts this CPU's tick. Interrupts are masked.
pub(crate) fn start_tick<M: Machine>(on: &OnCpu<'_, M>) {
    let at = next_tick(on.now(), on.kernel.time.period);
    on.local.timer.next_tick.set(at);
    apic::set_timer(on, at);
}

/// The timer interrupt. Interrupts are masked.
pub(crate) fn interrupt<M: Machine>(on: &OnCpu<'_, M>) {
    apic::timer_fired(on);
    let now = on.now();
    let timer = &on.local.timer;
    if !timer.tick_stopped.is_set() && now >= timer.next_tick.get() {
        tick(on);
        timer.next_tick.set(next_tick(now, on.kernel.time.period));
    }
    let first = wake_sleepers(on, now);
    program(on, first);
}

fn tick<M: Machine>(on: &OnCpu<'_, M>) {
    on.local.count(Event::Ticks);
    let keeper = &on.kernel.time.keeper;
    if keeper.get() == 0 {
        keeper.set(on.index + 1);
    }
    if keeper.get() == on.index + 1 {
        let mut ticks = on.kernel.time.xtime.lock(on);
        *ticks += 1;
        on.work(costs::XTIME);
    }
    on.work(costs::TICK);
    sched::tick(on);
    if let Some(helper) = sched::idle_helper(on) {
        on.kernel.cpus[helper as usize].balance_kick.set(1);
        on.local.count(Event::RescheduleIpis);
        apic::send(on, helper, apic::RESCHEDULE_VECTOR);
    }
}

/// Wakes whose time has come; when the next one's comes.
fn wake_sleepers<M: Machine>(on: &OnCpu<'_, M>, now: u64) -> u64 {
    loop {
        let mut timers = on.local.timers.lock(on);
        on.work(costs::TIMER);
        match timers.heap.peek() {
            Some(Reverse((at, _, _))) if *at <= now => {
                let Some(Reverse((_, _, id))) = timers.heap.pop() else {
                    return u64::MAX;
                };
                drop(timers);
                sched::wake(on, id, state::ASLEEP, WakeHint::Plain);
            }
            _ => return timers.first(),
        }
    }
}

fn program<M: Machine>(on: &OnCpu<'_, M>, first_timer: u64) {
    let timer = &on.local.timer;
    let tick = if timer.tick_stopped.is_set() {
        u64::MAX
    } else {
        timer.next_tick.get()
    };
    apic::set_timer(on, tick.min(first_timer));
}

/// Puts the caller's task to sleep for `ns` nanoseconds (`hrtimer_nanosleep`).
pub(crate) fn sleep<M: Machine>(kernel: &Kernel<M>, ns: u64) {
    let on = kernel.on_cpu();
    let at = on.now() + ns;
    if let Some(threads) = kernel.machine.threads() {
        return sched::sleep_hosted(kernel, threads, at);
    }
    let id = on.current();
    {
        let mut timers = on.local.timers.lock_irq(&on);
        on.work(costs::TIMER);
        timers.count += 1;
        let order = timers.count;
        timers.heap.push(Reverse((at, order, id)));
        kernel.tasks.get(id).state.set(state::UNINTERRUPTIBLE);
        if at < apic::timer_setting(&on) {
            apic::set_timer(&on, at);
        }
    }
    sched::schedule(kernel);
}

/// The CPU goes idle: stops its tick if nothing needs it. Interrupts are masked.
pub(crate) fn enter_idle<M: Machine>(on: &OnCpu<'_, M>) {
    let timer = &on.local.timer;
    if timer.tick_stopped.is_set() || on.now() < on.local.callbacks_until.get() {
        return;
    }
    timer.tick_stopped.set(1);
    if on.kernel.time.keeper.get() == on.index + 1 {
        on.kernel.time.keeper.set(0);
    }
    let first = on.local.timers.lock(on).first();
    program(on, first);
}

/// The CPU has work again: restarts the tick. Interrupts are masked.
pub(crate) fn leave_idle<M: Machine>(on: &OnCpu<'_, M>) {
    let timer = &on.local.timer;
    if timer.tick_stopped.is_set() {
        timer.tick_stopped.set(0);
        timer.next_tick.set(next_tick(on.now(), on.kernel.time.period));
        let first = on.local.timers.lock(on).first();
        program(on, first);
    }
}

/// The CPU has queued work for after an RCU grace period, which needs its tick.
pub(crate) fn queue_callback<M: Machine>(on: &OnCpu<'_, M>) {
    on.local
        .callbacks_until
        .set(on.now() + CALLBACK_TICKS * on.kernel.time.period);
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
