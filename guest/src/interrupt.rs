//! Interrupt entry, dispatch and exit.

use core::sync::atomic::Ordering::Release;

use holdfast_locks::Platform;

use crate::apic;
use crate::costs;
use crate::cpu::IdleWait;
use crate::kernel::Kernel;
use crate::machine::{Cpu, Machine, Mode};
use crate::sched::{self, OnCpu};
use crate::smp::Call;

/// Handles `vector` on the stack of the interrupted flow. Interrupts are masked, and will be enabled on return.
pub(crate) fn handle<M: Machine>(kernel: &Kernel<M>, vector: u8) {
    let on = kernel.sched.on_cpu();
    let from_user = on.local.is_in(Mode::User);
    let from_idle = on.local.is_in(Mode::Idle);
    if from_user || from_idle {
        on.execute(Mode::Kernel);
    }
    on.local.interrupts.add(1);
    on.end_of_interrupt();
    on.work(costs::IPI_HANDLER);
    match vector {
        apic::TIMER_VECTOR => kernel.time.interrupt(&on),
        apic::RESCHEDULE_VECTOR => sched::reschedule_ipi(&on),
        apic::CALL_VECTOR => kernel.sched.calls.answer(&on, |call| do_call(kernel, &on, call)),
        apic::NETWORK_VECTOR => kernel.net.interrupt(&on),
        apic::DISK_VECTOR => kernel.block.iter().for_each(|block| block.interrupt(&on)),
        // Spurious or unknown vectors are only acknowledged, as in Linux.
        _ => {}
    }
    on.local.interrupts.sub(1);
    if on.local.interrupts.get() == 0 {
        softirq(kernel, &on, vector);
    }
    if from_idle && on.system.chosen.get().idle != IdleWait::Halt {
        // The interrupt ends MWAIT, and the polling loop must see what the handler wants.
        on.cpu.store(&on.system.idle_words[on.id], 0, Release);
    }
    if from_user {
        return_to_user(kernel);
    } else if from_idle {
        on.execute(Mode::Idle);
    }
}

/// Handles a non-maskable interrupt on the stack of the interrupted flow, which may be a handler. It takes no lock and
/// schedules nothing.
pub(crate) fn handle_nmi<M: Machine>(kernel: &Kernel<M>) {
    let on = kernel.sched.on_cpu();
    let interrupted = [Mode::User, Mode::Idle].into_iter().find(|&mode| on.local.is_in(mode));
    if interrupted.is_some() {
        on.execute(Mode::Kernel);
    }
    kernel.sched.calls.answer_nmi(&on);
    if let Some(mode) = interrupted {
        on.execute(mode);
    }
}

/// Does the work of a reschedule IPI that an idle CPU was not sent, if there is any. Interrupts are masked.
pub(crate) fn woken_by_word<M: Machine>(kernel: &Kernel<M>, on: &OnCpu<'_, M>) {
    if !sched::has_ipi_work(on) {
        return;
    }
    let is_idle = on.local.is_in(Mode::Idle);
    on.execute(Mode::Kernel);
    sched::reschedule_ipi(on);
    softirq(kernel, on, apic::RESCHEDULE_VECTOR);
    if is_idle {
        on.execute(Mode::Idle);
    }
}

/// Does `call` of another CPU.
fn do_call<M: Machine>(kernel: &Kernel<M>, on: &OnCpu<'_, M>, call: Call) {
    match call {
        Call::FlushSpace(space) => kernel.sched.tlbs.flush_here(on, space),
        Call::Execute(function) => {
            if let Some((driver, held_ns)) = function.driver {
                kernel.drivers[driver as usize].call(on, held_ns);
            }
        }
    }
}

/// Gives up the CPU of the caller's task, which is in user mode, because the host's scheduler wants the CPU. Interrupts
/// are masked.
pub(crate) fn preempt<M: Machine>(kernel: &Kernel<M>) {
    kernel.sched.on_cpu().execute(Mode::Kernel);
    return_to_user(kernel);
}

/// Does the work that an interrupt defers until interrupts are enabled again. The handler's depth prevents nesting.
fn softirq<M: Machine>(kernel: &Kernel<M>, on: &OnCpu<'_, M>, vector: u8) {
    let balance_kick = &on.queue().balance_kick;
    let kicked = balance_kick.get() != 0;
    let due = vector == apic::TIMER_VECTOR && sched::wants_balance(on);
    if kicked || due {
        balance_kick.set(0);
        on.local.interrupts.add(1);
        on.cpu.irq_enable();
        sched::balance_others(on);
        on.cpu.irq_disable();
        on.local.interrupts.sub(1);
    }
    while kernel.net.take_pending() {
        on.local.interrupts.add(1);
        on.cpu.irq_enable();
        kernel.net.poll(on);
        on.cpu.irq_disable();
        on.local.interrupts.sub(1);
    }
}

/// Calls the scheduler until it no longer wants the CPU, then continues in user mode, maybe on another CPU.
fn return_to_user<M: Machine>(kernel: &Kernel<M>) {
    loop {
        let on = kernel.sched.on_cpu();
        if !on.wants_to_reschedule() {
            on.execute(Mode::User);
            return;
        }
        sched::schedule(&kernel.sched);
        kernel.sched.on_cpu().cpu.irq_disable();
    }
}
