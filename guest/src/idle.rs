//! The idle loop of a CPU.

use core::sync::atomic::Ordering::{Acquire, SeqCst};

use holdfast_locks::{Budget, Paravirt, Platform};

use crate::class::Event;
use crate::cpu::{IdleWait, WATCHED};
use crate::kernel::Kernel;
use crate::machine::{Cpu, Machine, Mode};
use crate::sched::OnCpu;
use crate::{costs, haltpoll, interrupt, sched};

/// Runs tasks, and waits while there are none.
pub(crate) fn idle<M: Machine>(kernel: &Kernel<M>) -> ! {
    if let Some(threads) = kernel.sched.system.machine.threads() {
        kernel.sched.on_cpu().execute(Mode::Idle);
        loop {
            threads.idle();
        }
    }
    loop {
        let on = kernel.sched.on_cpu();
        on.cpu.irq_disable();
        begin_to_watch(&on);
        on.work(costs::IDLE);
        on.execute(Mode::Idle);
        // Checked with interrupts masked. `sti; hlt` is one step, so an IPI that sets the flag ends the halt.
        while on.local.need_resched.get() == 0 {
            match on.system.chosen.get().idle {
                IdleWait::Halt => halt(kernel, &on),
                IdleWait::HaltPoll => {
                    let governor = &on.local.halt_poll;
                    match governor.poll_ns() {
                        0 => {
                            let since = on.now();
                            halt(kernel, &on);
                            governor.halted(on.now().saturating_sub(since));
                        }
                        limit_ns => {
                            let until = on.now() + limit_ns;
                            watch(kernel, &on, IdleWait::HaltPoll, until);
                            governor.polled(on.now() >= until);
                        }
                    }
                }
                IdleWait::PollTimer => read_timer(&on),
                wait => watch(kernel, &on, wait, u64::MAX),
            }
        }
        on.execute(Mode::Kernel);
        kernel.time.leave_idle(&on);
        end_watch(kernel, &on);
        on.cpu.irq_enable();
        sched::schedule(&kernel.sched);
    }
}

/// Port of the ACPI PM timer, as QEMU's chipset places it (PMBASE 0x600 and 8).
const PM_TIMER: u16 = 0x608;

/// Reads the emulated timer once, with interrupts enabled. Interrupts are masked.
fn read_timer<M: Machine>(on: &OnCpu<'_, M>) {
    on.cpu.irq_enable();
    on.cpu.port_write(PM_TIMER, 0);
    on.cpu.irq_disable();
}

/// From here on no CPU sends this one the reschedule IPI, but writes its word (`__current_set_polling`). Interrupts are
/// masked.
fn begin_to_watch<M: Machine>(on: &OnCpu<'_, M>) {
    if on.system.chosen.get().idle != IdleWait::PollTimer {
        // ORDERING: SeqCst, see `send_reschedule`.
        on.cpu.swap(&on.system.idle_words[on.id], WATCHED, SeqCst);
    }
}

/// From here on this CPU needs the IPI again (`current_clr_polling_and_test`). Does what an IPI that was not sent would
/// have done. Interrupts are masked.
fn end_watch<M: Machine>(kernel: &Kernel<M>, on: &OnCpu<'_, M>) {
    // ORDERING: SeqCst, see `send_reschedule`.
    on.cpu.swap(&on.system.idle_words[on.id], 0, SeqCst);
    interrupt::woken_by_word(kernel, on);
}

/// Halts until an interrupt, unless another CPU has found something to do meanwhile. Interrupts are masked.
fn halt<M: Machine>(kernel: &Kernel<M>, on: &OnCpu<'_, M>) {
    kernel.time.enter_idle(on);
    end_watch(kernel, on);
    if on.local.need_resched.get() == 0 {
        on.local.count(Event::Halts);
        on.cpu.halt_unmasked();
    }
    begin_to_watch(on);
}

/// Waits for a write to this CPU's word, or an interrupt, and does what the reschedule IPI would have done. A loop that
/// polls ends at `until`, in nanoseconds. Interrupts are masked, and the word says that this CPU watches it.
fn watch<M: Machine>(kernel: &Kernel<M>, on: &OnCpu<'_, M>, wait: IdleWait, until: u64) {
    let word = &on.system.idle_words[on.id];
    if wait == IdleWait::Monitor {
        kernel.time.enter_idle(on);
        on.local.count(Event::Halts);
    }
    if on.local.need_resched.get() == 0 && !sched::has_ipi_work(on) {
        // A handler that comes here or later writes the word (`interrupt::handle`).
        on.cpu.irq_enable();
        if wait == IdleWait::Monitor {
            on.cpu.monitor_wait(word, WATCHED);
        } else {
            let is_over = |value| value != WATCHED;
            let budget = if until == u64::MAX {
                Budget::UNBOUNDED
            } else {
                haltpoll::LOOK_AT_CLOCK
            };
            while on.cpu.wait_until(word, budget, Acquire, is_over).is_err() && on.now() < until {}
        }
        on.cpu.irq_disable();
    }
    begin_to_watch(on);
    interrupt::woken_by_word(kernel, on);
}
