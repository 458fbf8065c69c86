//! Live migration: all guests stop at one instant, and go on on another host of the same kind.
//!
//! What travels is what KVM's interface has of a vCPU ([`holdfast_host::SavedVcpu`]: LAPIC page, timer, pending events,
//! halted or not), and the state of the devices. What is a host's own stays behind: run queues, timers, AVIC's tables, posted
//! interrupts' descriptors, doorbells and IPIs under way, warm caches. Guests' memory is the same one: how it is copied, and what
//! that takes before the guests are stopped, is not simulated.
//!
//! Within a host vCPUs are sent from pCPU to pCPU by changing where their threads may run.
//!
//! - **Stopped between two entries**: a vCPU in its guest exits first. One that the host was about to enter with a vector takes
//!   that first: LAPIC and registers agree.

use std::collections::VecDeque;

use holdfast_host::{Event, GuestState, Host, MpState, Nanos, PcpuId, Run, SavedVcpu, VcpuId, VcpuState};
use holdfast_machine::{Key, Picos};

use crate::core::engine::{CLASS_INTERRUPT, Engine, Spare};
use crate::core::failure::Failure;
use crate::cpus::pcpu::{Activity, Pcpu};
use crate::cpus::vcpu::Mode;

/// When nobody has a pCPU for it, a move is tried again so much later. Nanoseconds.
const RETRY_NS: u64 = 5_000;

/// One migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migration {
    /// For how long the guests run before it, in nanoseconds.
    pub after_ns: u64,
    /// For how long they stand still, in nanoseconds.
    pub downtime_ns: u64,
}

/// A vCPU is sent to another pCPU of its host, as by libvirt's vcpupin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// For how long nothing is moved before that, in nanoseconds.
    pub after_ns: u64,
    /// Its number among all vCPUs.
    pub vcpu: u32,
    /// The one pCPU where it may run from then on, until it is sent elsewhere or migrates.
    pub to: u32,
}

/// Where the guests of a run go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Journey {
    /// One after another.
    pub migrations: Vec<Migration>,
    /// One after another.
    pub moves: Vec<Move>,
    /// Planted faults.
    #[doc(hidden)]
    pub faults: MigrationFaults,
}

/// Steps left out, for tests that must see them caught.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MigrationFaults {
    /// IRR stays behind.
    pub without_requests: bool,
    /// Vectors that were about to be injected stay behind.
    pub without_injection: bool,
    /// RFLAGS.IF of halted vCPUs stays behind: nothing ends their sleep.
    pub without_flags: bool,
}

/// What is to come.
#[derive(Debug)]
pub struct Migrations {
    planned: VecDeque<Migration>,
    moves: VecDeque<Move>,
    /// A host like the first one, on which nothing has happened yet.
    fresh: Host,
    /// The guests stand still.
    stopped: bool,
    done: u64,
    sent: u64,
    faults: MigrationFaults,
}

impl Migrations {
    /// Plans `journey`, whose migrations all go to a host like `fresh`.
    pub fn new(journey: &Journey, fresh: Host) -> Migrations {
        Migrations {
            planned: journey.migrations.iter().copied().collect(),
            moves: journey.moves.iter().copied().collect(),
            fresh,
            stopped: false,
            done: 0,
            sent: 0,
            faults: journey.faults,
        }
    }

    /// Number of migrations that took place.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// Number of vCPUs that were sent to another pCPU.
    pub fn sent(&self) -> u64 {
        self.sent
    }
}

impl Engine {
    /// Enters the next migration as an event.
    pub fn plan_migration(&mut self) {
        let next = self.migrations.as_mut().and_then(|all| all.planned.front());
        if let Some(&Migration { after_ns, .. }) = next {
            self.later(Spare::Stop, after_ns);
        }
    }

    /// Enters the next move as an event.
    pub fn plan_move(&mut self) {
        let next = self.migrations.as_mut().and_then(|all| all.moves.front());
        if let Some(&Move { after_ns, .. }) = next {
            self.later(Spare::Move, after_ns);
        }
    }

    /// A vCPU is sent to another pCPU, by whoever has one for its work just now.
    pub fn move_vcpu(&mut self) {
        let able = |pcpu: &Pcpu| matches!(pcpu.activity, Activity::Idle | Activity::Task(_) | Activity::Poll);
        let stopped = self.migrations.as_ref().is_some_and(|all| all.stopped);
        let Some(by) = self.pcpus.iter().position(able).filter(|_| !stopped) else {
            return self.later(Spare::Move, RETRY_NS);
        };
        let Some(Move { vcpu, to, .. }) = self.migrations.as_mut().and_then(|all| all.moves.pop_front()) else {
            return;
        };
        let pcpu = &mut self.pcpus[by];
        if let Activity::Task(task) = pcpu.activity {
            let ran = self.now.since(pcpu.since);
            pcpu.ran += ran;
            if let Some(task) = self.tasks.get_mut(&task) {
                task.remaining = Picos(task.remaining.0.saturating_sub(ran.0));
            }
        }
        let event = Event::Affinity {
            pcpu: PcpuId(by as u32),
            vcpu: VcpuId(vcpu),
            only: Some(PcpuId(to)),
        };
        self.step_host(by as u32, event);
        if let Some(migrations) = &mut self.migrations {
            migrations.sent += 1;
        }
        self.plan_move();
    }

    fn later(&mut self, spare: Spare, ns: u64) {
        let slot = self.take_spare_slot(spare);
        let at = self.now + Picos::from_nanos(ns);
        self.queue.set(slot, Key::new(at, CLASS_INTERRUPT, slot));
    }

    /// All guests stop, and their state goes to another host.
    pub fn stop_guests(&mut self) {
        let Some(mut migrations) = self.migrations.take() else {
            return;
        };
        let Some(Migration { downtime_ns, .. }) = migrations.planned.pop_front() else {
            return;
        };
        let faults = migrations.faults;
        self.hash.add(self.now.0);
        for pcpu in 0..self.pcpus.len() as u32 {
            self.stop_pcpu(pcpu, faults);
        }
        self.forget_signals();
        let resumes = Nanos((self.now + Picos::from_nanos(downtime_ns)).nanos());
        let mut host = migrations.fresh.clone();
        host.continue_counters(&self.host);
        for vcpu in 0..self.vcpus.len() as u32 {
            let saved = self.save(vcpu, faults);
            if let Err(error) = host.restore_vcpu(VcpuId(vcpu), &saved, resumes) {
                self.failure.get_or_insert(Failure::Invalid(error.to_string()));
            }
            self.flush_tlb(vcpu);
            self.set_state(vcpu, VcpuState::Userspace);
        }
        let before = std::mem::replace(&mut self.host, host);
        self.audit_host(&before, "before migration");
        let before = std::mem::replace(&mut self.host, before);
        self.audit_host(&before, "by migration");
        self.host = before;
        migrations.done += 1;
        migrations.stopped = true;
        self.migrations = Some(migrations);
        self.later(Spare::Resume, downtime_ns);
    }

    /// The other host starts.
    pub fn resume_guests(&mut self) {
        self.start_host();
        if let Some(migrations) = &mut self.migrations {
            migrations.stopped = false;
        }
        self.plan_migration();
    }

    /// Whatever `pcpu` did, it does no longer.
    fn stop_pcpu(&mut self, pcpu: u32, faults: MigrationFaults) {
        let this = &self.pcpus[pcpu as usize];
        match (this.activity, this.next) {
            (Activity::Guest(vcpu), _) => self.suspend(vcpu),
            (Activity::Host, Run::Guest { vcpu, inject, .. }) => {
                if let Some(vector) = inject {
                    self.vcpus[vcpu.0 as usize].inject = Some(vector).filter(|_| !faults.without_injection);
                }
            }
            (Activity::Task(task), _) => {
                let ran = self.now.since(this.since);
                if let Some(task) = self.tasks.get_mut(&task) {
                    task.remaining = Picos(task.remaining.0.saturating_sub(ran.0));
                }
            }
            (Activity::Host | Activity::Idle | Activity::Poll, _) => {}
        }
        self.queue.clear(pcpu);
        let timer = self.timer_slot(pcpu);
        self.queue.clear(timer);
        self.pcpus[pcpu as usize] = Pcpu::new();
    }

    /// State of `vcpu`, which has stopped.
    fn save(&mut self, vcpu: u32, faults: MigrationFaults) -> SavedVcpu {
        let pv_eoi = self.take_pv_eoi(vcpu);
        let mut saved = self.host.save_vcpu(VcpuId(vcpu), Nanos(self.now.nanos()));
        let this = &mut self.vcpus[vcpu as usize];
        this.window = false;
        saved.guest = GuestState {
            // A vector that was given and not yet taken has entered its handler.
            interrupts_enabled: this.irqs_enabled && this.inject.is_none(),
            cpl: if this.mode == Mode::User { 3 } else { 0 },
            cr8: this.cr8,
            undelivered: None,
            pv_eoi,
        };
        if faults.without_requests {
            let first = (holdfast_abi::lapic::IRR / holdfast_abi::lapic::STRIDE) as usize;
            saved.lapic[first..first + 8].fill(0);
        }
        if faults.without_flags && saved.mp_state == MpState::Halted {
            saved.guest.interrupts_enabled = false;
        }
        saved
    }

    /// Interrupts and doorbells under way arrive nowhere any more.
    fn forget_signals(&mut self) {
        for (index, spare) in self.spare_slots.iter().enumerate() {
            let slot = self.watchdog_slot() + 1 + index as u32;
            let signal = matches!(
                spare,
                Spare::Interrupt(..) | Spare::Doorbell(_) | Spare::Notification(..)
            );
            if signal && !self.free_slots.contains(&slot) {
                self.queue.clear(slot);
                self.free_slots.push(slot);
            }
        }
    }
}
