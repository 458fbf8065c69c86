//! The vCPU wing: the state of a vCPU, and the handlers that its thread executes (docs/spec/host.md, "vCPU states").
//!
//! `exit.rs` dispatches exits to their handlers: `halt.rs`, `hypercall.rs`, `msr.rs`, `cpuid.rs`, `userspace.rs`,
//! `nested.rs`, and those of the interrupt and pause wings. `entry.rs` enters the guest.

pub(crate) mod after;
pub(crate) mod cpuid;
pub(crate) mod entry;
pub(crate) mod exit;
pub(crate) mod halt;
pub(crate) mod hypercall;
pub(crate) mod init;
pub(crate) mod load;
pub(crate) mod migration;
pub(crate) mod msr;
pub(crate) mod nested;
pub(crate) mod plug;
pub(crate) mod resume;
mod state;
pub(crate) mod steal_time;
pub(crate) mod throttle;
pub(crate) mod userspace;

use core::cell::Cell;

use crate::boundary::{Command, GuestState, TaskId, VcpuId, VcpuState, VmId};
use crate::counters::Counters;
use crate::interrupts::VcpuApic;
use crate::interrupts::lapic::Lapic;
use crate::step::Step;

pub(crate) use state::{Activity, Armed, Halt, Mode, Pid, PvEoi, Requests, Spin, Steal, VcpuThread};
pub use state::{MpState, PendingEvents};

/// A vCPU. Its state is divided by wing: `thread` and `halt` are this wing's, `spin` the pause wing's, `apic`,
/// `virtualization` and `pv_eoi` the interrupt wing's.
#[derive(Clone, Debug)]
pub(crate) struct Vcpu {
    pub(crate) id: VcpuId,
    pub(crate) vm: VmId,
    /// Its index in its VM, which is its initial APIC ID.
    pub(crate) index: u32,
    pub(crate) thread: VcpuThread,
    pub(crate) state: VcpuState,
    pub(crate) activity: Activity,
    pub(crate) mode: Cell<Mode>,
    pub(crate) requests: Requests,
    /// The guest state at the last exit.
    pub(crate) guest: GuestState,
    pub(crate) mp_state: MpState,
    pub(crate) pending: PendingEvents,
    pub(crate) armed: Armed,
    /// It executes a guest of its own.
    pub(crate) nested: bool,
    pub(crate) spin: Spin,
    pub(crate) halt: Halt,
    pub(crate) steal: Steal,
    pub(crate) pv_eoi: PvEoi,
    pub(crate) apic: Lapic,
    /// What virtualizes its LAPIC.
    pub(crate) virtualization: VcpuApic,
    pub(crate) counters: Counters,
}

impl Vcpu {
    pub(crate) fn new(id: VcpuId, vm: VmId, index: u32, task: TaskId) -> Vcpu {
        Vcpu {
            id,
            vm,
            index,
            thread: VcpuThread {
                task,
                pid: Pid { task, generation: 0 },
                timer: task,
                cpu: None,
                ran: false,
                ready: true,
                preempted: false,
                preempted_in_kernel: false,
                between_instructions: false,
                unplugged: false,
                throttled_until: 0,
            },
            state: VcpuState::Woken,
            activity: Activity::Run,
            mode: Cell::new(Mode::Outside),
            requests: Requests::default(),
            guest: GuestState::default(),
            mp_state: MpState::Runnable,
            pending: PendingEvents::default(),
            armed: Armed::default(),
            nested: false,
            spin: Spin::default(),
            halt: Halt::default(),
            steal: Steal::default(),
            pv_eoi: PvEoi::default(),
            apic: Lapic::new(index),
            virtualization: VcpuApic::Emulated,
            counters: Counters::default(),
        }
    }

    /// Makes it one that has not been started, or has left.
    pub(crate) fn switch_off(&mut self) {
        self.state = VcpuState::Dead;
        self.activity = Activity::Dead;
        self.thread.ready = false;
    }

    /// Changes the state to `state`, and reports the change.
    pub(crate) fn set_state(&mut self, state: VcpuState, step: &mut Step<'_>) {
        if self.state != state {
            self.state = state;
            step.out.push(Command::State { vcpu: self.id, state });
        }
    }

    /// Takes over pending events and CR8 from the exit information.
    pub(crate) fn take_from_exit(&mut self) {
        self.pending.undelivered = self.guest.undelivered.take();
        if !self.armed.cr8 && !self.virtualization.keeps_cr8() {
            self.apic.set_cr8(self.guest.cr8);
        }
    }

    /// Returns whether waiting must end, or not begin (docs/spec/host.md, "Halt and polling"). For a halt: a latched
    /// kick, or an interrupt that the guest would take.
    pub(crate) fn wake_condition(&mut self) -> bool {
        if self.virtualization.is_hardware() {
            // Hardware sets IRR without an exit.
            self.apic.expect_requests();
        }
        match self.mp_state {
            MpState::Runnable => true,
            MpState::Halted => {
                self.halt.pv_unhalted
                    || self.pending.init
                    || self.pending.has_nmi()
                    || (self.guest.interrupts_enabled && self.apic.deliverable().is_some())
            }
            MpState::Uninitialized => self.pending.init,
            MpState::InitReceived => self.pending.init || self.pending.sipi.is_some(),
        }
    }

    /// Returns whether an interrupt is pending that the guest would take with interrupts enabled, or is posted.
    pub(crate) fn has_interrupt(&mut self) -> bool {
        self.virtualization.is_posted() || self.apic.deliverable().is_some()
    }

    /// Injects a pending non-maskable interrupt with the next entry.
    pub(crate) fn inject_nmi(&mut self, step: &mut Step<'_>) {
        self.pending.nmis -= 1;
        self.pending.nmi_blocked = true;
        self.counters.nmi_injections += 1;
        step.out.push(Command::InjectNmi { vcpu: self.id });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_non_maskable_interrupt_waits_behind_the_one_that_is_handled() {
        for (nmi_blocked, most) in [(false, 2), (true, 1)] {
            let mut pending = PendingEvents {
                nmi_blocked,
                ..PendingEvents::default()
            };
            for sent in 1..4 {
                pending.add_nmi();
                assert_eq!(pending.nmis, most.min(sent), "blocked {nmi_blocked}");
                assert_eq!(pending.has_nmi(), !nmi_blocked);
            }
        }
    }

    #[test]
    fn each_reason_alone_ends_a_wait() {
        // Whether it ends a halt, the wait for an INIT, and the wait for a SIPI.
        type Reason = (fn(&mut Vcpu), [bool; 3]);
        let reasons: [Reason; 6] = [
            (|_| (), [false, false, false]),
            (|vcpu| vcpu.halt.pv_unhalted = true, [true, false, false]),
            (|vcpu| vcpu.pending.init = true, [true, true, true]),
            (|vcpu| vcpu.pending.nmis = 1, [true, false, false]),
            (|vcpu| vcpu.pending.sipi = Some(7), [false, false, true]),
            (|vcpu| vcpu.guest.interrupts_enabled = true, [false, false, false]),
        ];
        for (index, (happens, ends)) in reasons.into_iter().enumerate() {
            let waits = [MpState::Halted, MpState::Uninitialized, MpState::InitReceived];
            for (mp_state, ends) in waits.into_iter().zip(ends) {
                let mut vcpu = Vcpu::new(VcpuId(0), VmId(0), 0, TaskId(0));
                vcpu.mp_state = mp_state;
                happens(&mut vcpu);
                assert_eq!(vcpu.wake_condition(), ends, "reason {index}, {mp_state:?}");
            }
        }
    }
}
