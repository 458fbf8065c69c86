//! CPU hot-plug: a CPU is taken out of service, and started again by INIT and SIPI (`cpu_down`, `cpu_up`).
//!
//! - **Drained**: when INIT comes, the CPU runs no task, has none ready, keeps no timer and no translation, and no CPU
//!   waits for its answer. What INIT ends is a loop of HLT.
//! - **No task is lost**: a CPU that is not online is not chosen for tasks. A choice that was made before has been
//!   carried out when the CPU begins to drain, because all CPUs answer a call in between: choices are made and carried
//!   out with interrupts masked.

use alloc::vec::Vec;
use core::sync::atomic::Ordering::Release;

use holdfast_abi::hotplug;
use holdfast_locks::{CpuId, Paravirt, Platform, Word};

use crate::ids::CpuTable;
use crate::machine::{Cpu, Machine, Mode};
use crate::sched::{self, OnCpu};
use crate::smp::{Call, Callees, Function};
use crate::sync::WordOf;
use crate::time::Time;

/// The CPUs that are out of service.
pub(crate) struct Hotplug<M: Machine> {
    /// 1 for a CPU that has left and may be started again. It is 0 again once the CPU has started.
    gone: CpuTable<WordOf<M>>,
}

impl<M: Machine> Hotplug<M> {
    pub(crate) fn new(cpus: u32) -> Self {
        Hotplug {
            gone: CpuTable::new(cpus, |_| WordOf::<M>::new(0)),
        }
    }

    /// Takes `target` out of service, starts it again, and waits until it takes part. Returns for how many nanoseconds
    /// its start took. Only one CPU at a time may be out of service. `target` is neither CPU 0 nor the caller's CPU.
    /// With `ejects`, the VMM ends its vCPU's thread in between, and makes a new one (`_EJ0` of ACPI).
    pub(crate) fn replug(&self, time: &Time<M>, on: &OnCpu<'_, M>, target: CpuId, ejects: bool) -> u64 {
        let system = on.system;
        let Some(page) = system.machine.startup_page() else {
            system.panic("this kernel starts no CPUs (starts_cpus), so it cannot start one again".into());
        };
        let there = &system.cpus[target];
        assert!(
            target != on.id && target != CpuId(0) && system.is_online(target),
            "cpu {} cannot be replugged",
            target.0
        );
        there.online.set(0);
        // Each CPU answers with interrupts enabled: what it had chosen for `target` is on that CPU's queue now.
        on.sched
            .calls
            .execute(on, Callees::Others, Function::default(), &mut Vec::new());
        there.leaving.set(on.id.0 + 1);
        {
            let _queue = on.sched.queues[target].run_queue.lock_irq(on);
            on.ask_to_reschedule(target);
        }
        let gone = &self.gone[target];
        // ORDERING: the wait's Acquire pairs with the Release in `leave`.
        on.wait_for(gone, |gone| gone != 0);
        time.take_over(on, target);
        there.leaving.set(0);
        if ejects {
            on.cpu.port_write(hotplug::SELECT, target.0);
            on.cpu.port_write(hotplug::FLAGS, hotplug::EJECT);
        }
        let begun = on.now();
        on.local.apic.start_cpu(&on.cpu, target, page);
        // ORDERING: the wait's Acquire pairs with the Release in `take_part`.
        on.wait_for(gone, |gone| gone == 0);
        on.sched.calls.executed_at(target).saturating_sub(begun)
    }

    /// Leaves service if another CPU has asked for that; `act` does the calls that still wait for this CPU. The caller
    /// is the idle loop, with interrupts masked.
    pub(crate) fn leave_if_asked(&self, time: &Time<M>, on: &OnCpu<'_, M>, act: impl Fn(Call)) {
        let Some(haven) = on.local.leaving.get().checked_sub(1) else {
            return;
        };
        sched::drain(on, CpuId(haven));
        on.sched.tlbs.leave(on);
        on.sched.calls.close(on, act);
        time.leave(on);
        on.execute(Mode::Idle);
        on.local.left.set(1);
        // ORDERING: Release pairs with the Acquire in `replug`: this CPU does nothing more.
        on.cpu.store(&self.gone[on.id], 1, Release);
        // INIT ends this.
        loop {
            on.cpu.halt_masked();
        }
    }

    /// Lets a CPU that comes up take part in scheduling. Interrupts are masked.
    pub(crate) fn take_part(&self, on: &OnCpu<'_, M>) {
        let returns = on.local.left.is_set();
        if returns {
            on.local.left.set(0);
            on.sched.calls.reopen(on);
        }
        on.local.online.set(1);
        if returns {
            // ORDERING: Release pairs with the Acquire in `replug`, whose caller may then use this CPU.
            on.cpu.store(&self.gone[on.id], 0, Release);
        }
    }
}
