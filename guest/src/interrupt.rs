//! Interrupt entry and exit.

use crate::kernel::{Kernel, OnCpu};
use crate::machine::{Cpu, Machine, Mode};
use crate::sched;
use crate::{apic, costs, net, smp, time};

/// Handles `vector` on the stack of what it interrupted. Interrupts are masked, and will be enabled on return.
pub(crate) fn handle<M: Machine>(kernel: &Kernel<M>, vector: u8) {
    let on = kernel.on_cpu();
    let from_user = on.local.is_in(Mode::User);
    let from_idle = on.local.is_in(Mode::Idle);
    if from_user || from_idle {
        on.execute(Mode::Kernel);
    }
    on.local.interrupts.add(1);
    apic::end_of_interrupt(&on);
    on.work(costs::IPI_HANDLER);
    match vector {
        apic::TIMER_VECTOR => time::interrupt(&on),
        apic::RESCHEDULE_VECTOR => sched::reschedule_ipi(&on),
        apic::CALL_VECTOR => smp::call_ipi(&on),
        apic::NETWORK_VECTOR => net::interrupt(&on),
        // Spurious or unknown: acknowledged, as Linux does.
        _ => {}
    }
    on.local.interrupts.sub(1);
    if on.local.interrupts.get() == 0 {
        softirq(&on, vector);
    }
    if from_user {
        return_to_user(kernel);
    } else if from_idle {
        on.execute(Mode::Idle);
    }
}

/// The scheduler beneath wants the CPU of the task that executes the caller in user mode. Interrupts are masked.
pub(crate) fn preempt<M: Machine>(kernel: &Kernel<M>) {
    kernel.on_cpu().execute(Mode::Kernel);
    return_to_user(kernel);
}

/// What an interrupt leaves for when interrupts are enabled again. The handler's own depth keeps it from nesting.
fn softirq<M: Machine>(on: &OnCpu<'_, M>, vector: u8) {
    let kicked = on.local.balance_kick.get() != 0;
    let due = vector == apic::TIMER_VECTOR && sched::wants_balance(on);
    if kicked || due {
        on.local.balance_kick.set(0);
        on.local.interrupts.add(1);
        on.cpu.irq_enable();
        sched::balance_others(on);
        on.cpu.irq_disable();
        on.local.interrupts.sub(1);
    }
    while net::take_pending(on) {
        on.local.interrupts.add(1);
        on.cpu.irq_enable();
        net::poll(on);
        on.cpu.irq_disable();
        on.local.interrupts.sub(1);
    }
}

/// Calls the scheduler until it has nothing better, then continues in user mode, maybe on another CPU.
fn return_to_user<M: Machine>(kernel: &Kernel<M>) {
    loop {
        let on = kernel.on_cpu();
        if !on.wants_to_reschedule() {
            on.execute(Mode::User);
            return;
        }
        sched::schedule(kernel);
        kernel.on_cpu().cpu.irq_disable();
    }
}
