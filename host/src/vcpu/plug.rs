//! vCPUs that come and go, and the VMs that they make up.
//!
//! - **The thread itself leaves**: a vCPU is off once its thread has come out of guest mode, a halt or a pause exit and
//!   has ended. Until then the vCPU may execute.
//! - **Nothing points at it**: its timers are off, its LAPIC is reset, no sleeper list, hint or record names it, and
//!   the tables of hardware say that it does not run.
//! - **Parked, as in QEMU**: a vCPU that is off stays with its VM. Interrupts and kicks for it have no effect, and none
//!   is left when it comes back.

use crate::boundary::{Command, VcpuId, VcpuState, VmId};
use crate::interrupts::lapic::Lapic;
use crate::step::Step;
use crate::timers::Timer;
use crate::vcpu::wing::VcpuWing;
use crate::vcpu::{Activity, HaltPoll, IpiRecord, MpState, PendingEvents, Pid};

impl VcpuWing {
    /// Makes the thread of `vcpu` leave, and the vCPU be off. Does nothing if the vCPU is dead.
    pub(crate) fn unplug(&mut self, vcpu: VcpuId, step: &mut Step<'_>) {
        let at = &mut self.guests.vcpus[vcpu];
        if at.activity == Activity::Dead {
            return;
        }
        at.unplugged = true;
        self.interrupts.kick(vcpu, step);
    }

    /// The thread of `vcpu`, which has the executing pCPU and is to leave, ends.
    pub(crate) fn park(&mut self, vcpu: VcpuId, step: &mut Step<'_>) {
        self.threads.sched.set_polling(step.pcpu, false);
        self.interrupts.unblock(vcpu, step.pcpu);
        self.power_off(vcpu, step);
        let at = &mut self.guests.vcpus[vcpu];
        at.set_state(VcpuState::HandlingExit, step);
        at.unplugged = false;
        at.activity = Activity::Dead;
        at.ready = false;
        at.in_spin_loop = false;
        at.dy_eligible = false;
        at.ran = false;
        let (vm, task) = (at.vm, at.task);
        at.set_state(VcpuState::Dead, step);
        self.threads.timers.cancel(Timer::Sleep(task));
        self.threads.records[task].generation += 1;
        self.threads.sched.exit(step.pcpu);
        self.report_end(vm, step);
    }

    /// Resets `vcpu` as at power-on.
    fn power_off(&mut self, vcpu: VcpuId, step: &mut Step<'_>) {
        if self.guests.planted.plug.state_stays {
            return;
        }
        self.guests.change_apic(vcpu, Lapic::power_on);
        self.reset(vcpu, step);
        let at = &mut self.guests.vcpus[vcpu];
        at.requests.apic_update = at.virtualization.is_hardware();
        at.mp_state = MpState::Uninitialized;
        at.pending = PendingEvents::default();
        at.halt = HaltPoll::default();
        at.ipi = IpiRecord::default();
    }

    /// Gives `vcpu`, which is dead, its thread again. It executes at once, or waits for INIT and SIPI.
    ///
    /// # Panics
    /// If the vCPU is not dead.
    pub(crate) fn plug(&mut self, vcpu: VcpuId, executes: bool, step: &mut Step<'_>) {
        assert_eq!(
            self.guests.vcpus[vcpu].state,
            VcpuState::Dead,
            "vcpu {} is plugged twice",
            vcpu.0
        );
        // What came for it since it left.
        self.power_off(vcpu, step);
        let task = self.guests.vcpus[vcpu].task;
        let generation = self.threads.records[task].generation;
        let waited = self.waited_ns(vcpu);
        let at = &mut self.guests.vcpus[vcpu];
        at.pid = Pid { task, generation };
        at.steal.seen_ns = waited;
        at.ready = true;
        (at.mp_state, at.activity) = match executes {
            true => (MpState::Runnable, Activity::Run),
            false => (MpState::Uninitialized, Activity::Block),
        };
        at.set_state(VcpuState::Woken, step);
        self.begin_pause_window(vcpu, step);
        self.threads.start_task(task, step);
    }

    /// Starts `vm`, which was added without being started.
    ///
    /// # Panics
    /// If the VM has ended, or a vCPU of it is not dead.
    pub(crate) fn start_vm(&mut self, vm: VmId, step: &mut Step<'_>) {
        assert!(!self.guests.vms[vm].ended, "vm {} has ended", vm.0);
        let waits = self.guests.vms[vm].config.waits_for_sipi;
        for vcpu in self.guests.vcpus_of(vm) {
            let executes = !waits || self.guests.vcpus[vcpu].index == 0;
            self.plug(vcpu, executes, step);
        }
    }

    /// Ends `vm`: its vCPUs leave, and its devices are gone.
    pub(crate) fn end_vm(&mut self, vm: VmId, step: &mut Step<'_>) {
        let this = &mut self.guests.vms[vm];
        if this.ended {
            return;
        }
        this.ended = true;
        this.doorbells.clear();
        this.ioapic = Default::default();
        self.threads.timers.cancel(Timer::Ioapic(vm));
        self.interrupts.remove_devices(vm);
        for vcpu in self.guests.vcpus_of(vm) {
            self.unplug(vcpu, step);
        }
        self.report_end(vm, step);
    }

    /// Reports that `vm` has ended, once no thread of it is left.
    fn report_end(&self, vm: VmId, step: &mut Step<'_>) {
        if self.guests.is_gone(vm) {
            step.out.push(Command::VmEnded { vm });
        }
    }
}
