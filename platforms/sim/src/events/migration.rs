//! Live migration: all guests stop at one instant, and continue on another host, of the same kind or another.
//!
//! The migrated state is the state that KVM's interface has of a vCPU ([`holdfast_host::SavedVcpu`]: LAPIC page,
//! timer, pending events, halted or not), and the state of the devices. The host's own state stays behind: run queues,
//! timers, AVIC's tables, posted-interrupt descriptors, doorbells and IPIs on their way, warm caches. The guests'
//! memory is shared. `migration/precopy.rs` has the time that copying it takes, before the guests are stopped and while
//! they are.
//!
//! Threads do not bring along what they are owed of CPU time: the VMM at the destination makes new ones. Each VMM is a
//! process of its own, so none is always the first to continue. Which is first is drawn each time. If it were
//! always the same, its vCPUs would be first in all queues, and with migrations at shorter intervals than a time slice
//! no other guest would ever run.
//!
//! Another kind of host has another kernel, and CPUs with another part in virtualization (`Destination`). All costs
//! stay. The guests go there and come back, in turn.
//!
//! Within a host, a vCPU is moved from pCPU to pCPU by changing its thread's affinity.
//!
//! - **Stopped between two entries**: a vCPU in its guest exits first. A vCPU that the host was about to enter with a
//!   vector takes that vector first, so that LAPIC and registers agree.

use holdfast_host::{Event, MpState, Nanos, PcpuId, Run, SavedVcpu, VcpuId, VcpuState, VmmEvent};
use holdfast_machine::Picos;

use crate::books::happened::Happened;
use crate::core::clock::TimedEvent;
use crate::engine::Engine;
use crate::migration::journey::{Migration, MigrationFaults, Move};
use crate::migration::precopy::{Copying, Migrated, Then};
use crate::parts::pcpu::{Activity, Pcpu};
use crate::parts::vm::Vm;

/// Delay until a move is tried again if no pCPU is free to do it, in nanoseconds.
const RETRY_NS: u64 = 5_000;

impl Engine {
    /// Enters the next migration as an event.
    pub fn plan_migration(&mut self) {
        let next = self.migrations.as_ref().and_then(|all| all.next());
        if let Some(Migration { after_ns, .. }) = next {
            self.plan_in(TimedEvent::Migrate, after_ns);
        }
    }

    /// Enters the next move as an event.
    pub fn plan_move(&mut self) {
        let next = self.migrations.as_mut().and_then(|all| all.moves.front());
        if let Some(&Move { after_ns, .. }) = next {
            self.plan_in(TimedEvent::Move, after_ns);
        }
    }

    /// Moves a vCPU to another pCPU. A pCPU that is not busy with a guest does the work.
    pub fn move_vcpu(&mut self) {
        let able = |pcpu: &Pcpu| matches!(pcpu.activity, Activity::Idle | Activity::Task(_) | Activity::Poll);
        let stopped = self.migrations.as_ref().is_some_and(|all| all.stopped);
        let Some(by) = self.pcpus.ids().find(|&pcpu| !stopped && able(&self.pcpus[pcpu])) else {
            return self.plan_in(TimedEvent::Move, RETRY_NS);
        };
        let Some(Move { vcpu, to, .. }) = self.migrations.as_mut().and_then(|all| all.moves.pop_front()) else {
            return;
        };
        if let Activity::Task(task) = self.pcpus[by].activity {
            self.stop_task(by, task);
        }
        let event = Event::Vmm(VmmEvent::Affinity {
            pcpu: by,
            vcpu: VcpuId(vcpu),
            only: Some(PcpuId(to)),
        });
        self.step_host(by, event);
        if let Some(migrations) = &mut self.migrations {
            migrations.sent += 1;
        }
        self.plan_move();
    }

    fn plan_in(&mut self, event: TimedEvent, ns: u64) {
        self.clock.plan_after(event, Picos::from_nanos(ns));
    }

    /// The time for the next migration has come: its copy begins, or the guests stop at once.
    pub fn begin_migration(&mut self) {
        let Some(migrations) = &mut self.migrations else { return };
        let Some(Migration { copy, downtime_ns, .. }) = migrations.next() else {
            return;
        };
        let Some(how) = copy else {
            return self.stop_guests(downtime_ns);
        };
        let all = self.vms.iter().zip(&migrations.migrated);
        let pages = all.map(|(vm, migrated)| migrated.first_round(vm.pages.touched())).sum();
        let (copying, time) = Copying::begin(how, downtime_ns, pages);
        migrations.copying = Some(copying);
        migrations.copied.copies += 1;
        migrations.copied.begin_round(pages);
        self.memory.dirty_log = Some(how.log);
        self.vms.iter_mut().for_each(|vm| _ = vm.pages.begin_round());
        self.watch_writes(time);
    }

    /// A round of copying is over: another one follows, or the guests stop.
    pub fn end_round(&mut self) {
        let Some(migrations) = &mut self.migrations else { return };
        let Some(copying) = &mut migrations.copying else { return };
        // A throttled guest writes less.
        let awake = u64::from(100 - copying.throttle());
        let span_ns = copying.span().0 / 1_000 / 100 * awake;
        let left = |(vm, migrated): (&mut Vm, &Migrated)| {
            let written = vm.pages.begin_round();
            migrated.next_round(vm.pages.touched(), written, span_ns)
        };
        let pages = self.vms.iter_mut().zip(&migrations.migrated).map(left).sum();
        let before = copying.throttle();
        match copying.next(pages) {
            Then::Round(time) => {
                let percent = copying.throttle();
                migrations.copied.begin_round(pages);
                migrations.copied.throttle_max = migrations.copied.throttle_max.max(percent);
                if percent != before {
                    self.host.throttle_guests(percent);
                    self.emit(&Happened::GuestsThrottled { percent });
                }
                self.watch_writes(time);
            }
            Then::Stop(rest) => {
                migrations.copying = None;
                migrations.copied.stop(pages, rest);
                self.memory.dirty_log = None;
                self.stop_guests(rest.0 / 1_000);
            }
        }
    }

    /// Watches the guests' writes for `time`, in which a round of copying sends what they have written.
    fn watch_writes(&mut self, time: Picos) {
        // Entries of TLBs could still allow writes that no page table records.
        for vcpu in self.vcpus.ids() {
            self.empty_tlb(vcpu);
        }
        self.clock.plan_after(TimedEvent::Round, time);
    }

    /// All guests stop for `downtime_ns` nanoseconds, and their state goes to another host.
    pub fn stop_guests(&mut self, downtime_ns: u64) {
        let Some(mut migrations) = self.migrations.take() else {
            return;
        };
        let Some(Migration { mp_state_only, .. }) = migrations.next() else {
            return;
        };
        migrations.planned.pop_front();
        let faults = migrations.faults;
        self.emit(&Happened::GuestsStopped);
        self.emit(&Happened::GuestsThrottled { percent: 0 });
        for pcpu in self.pcpus.ids() {
            self.stop_pcpu(pcpu, faults);
        }
        self.clock.forget_signals();
        // The VMM completes what its device models do for a vCPU before it saves the vCPU.
        self.tasks.in_vmm.clear();
        let resumes = Nanos((self.clock.now + Picos::from_nanos(downtime_ns)).nanos());
        let (mut host, part) = migrations.next.clone();
        std::mem::swap(&mut migrations.next, &mut migrations.other);
        self.hardware.become_part(&part);
        host.continue_counters(&self.host);
        for vcpu in self.vcpus.ids() {
            let mut saved = self.save(vcpu, faults);
            if mp_state_only && saved.forget_kick() {
                migrations.kicks_lost += 1;
            }
            if let Err(error) = host.restore_vcpu(vcpu, &saved, resumes) {
                self.end.invalid(error);
            }
            self.empty_tlb(vcpu);
            self.set_state(vcpu, VcpuState::Userspace);
        }
        let before = std::mem::replace(&mut self.host, host);
        self.emit(&Happened::HostCompared {
            host: &before,
            when: "before migration",
        });
        let (books, view) = self.books_and_view();
        let host = view.host;
        books.observe(
            &view,
            &Happened::HostCompared {
                host,
                when: "by migration",
            },
        );
        migrations.done += 1;
        migrations.stopped = true;
        self.migrations = Some(migrations);
        self.plan_in(TimedEvent::Resume, downtime_ns);
    }

    /// The guests continue on the other host, which starts.
    pub fn resume_guests(&mut self) {
        self.emit(&Happened::GuestsResumed);
        if let Some(mut migrations) = self.migrations.take() {
            self.start_migrated_host(&mut |count| migrations.draw(count));
            migrations.stopped = false;
            self.migrations = Some(migrations);
        }
        self.plan_migration();
    }

    /// `pcpu` stops what it does.
    fn stop_pcpu(&mut self, pcpu: PcpuId, faults: MigrationFaults) {
        let this = &self.pcpus[pcpu];
        match (this.activity, this.next) {
            (Activity::Guest(vcpu), _) => self.suspend(vcpu),
            (Activity::Host, Run::Guest { vcpu, inject, .. }) => {
                if let Some(vector) = inject {
                    self.vcpus[vcpu].interrupts.vector = Some(vector).filter(|_| !faults.without_injection);
                }
            }
            (Activity::Task(task), _) => {
                let ran = self.clock.now.since(this.since);
                self.tasks.ran(task, ran);
            }
            (Activity::Host | Activity::Idle | Activity::Poll, _) => {}
        }
        self.clock.forget_pcpu(pcpu);
        self.pcpus[pcpu] = Pcpu::new();
    }

    /// The state of `vcpu`, which has stopped.
    fn save(&mut self, vcpu: VcpuId, faults: MigrationFaults) -> SavedVcpu {
        let guest = self.guest_state(vcpu);
        let mut saved = self.host.save_vcpu(vcpu, Nanos(self.clock.now.nanos()));
        saved.guest = guest;
        self.vcpus[vcpu].interrupts.window = false;
        if faults.without_requests {
            let first = (holdfast_abi::lapic::IRR / holdfast_abi::lapic::STRIDE) as usize;
            saved.lapic[first..first + 8].fill(0);
        }
        if faults.without_flags && saved.mp_state == MpState::Halted {
            saved.guest.interrupts_enabled = false;
        }
        saved
    }
}
