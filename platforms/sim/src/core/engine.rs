//! The engine: one run's whole state, and the loop that plays its events in order.
//!
//! Guest flows run on stacks of their own. A flow that has to wait for its turn switches straight to the flow whose turn
//! it is; only what concerns the host comes back to the loop here.
//!
//! **Strict order**: shared-memory operations, exits and interrupts happen in the order of their keys; nothing else in
//! one flow can be seen by another.
//! **Meeting at the boundary**: guest and host meet in exits, entries and interrupts only (`exits.rs`).

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use holdfast_abi::StealTime;
use holdfast_guest::GuestImage;
use holdfast_host::{Command, Exit, Host, HostInterrupt, PvFaults, TaskId, VmId};
use holdfast_locks::{NodeTable, WaitTable};
use holdfast_machine::{
    Access, ApicvModel, AvicModel, Costs, EventQueue, Key, LineId, Lines, PauseHardware, Picos, Time,
};

use crate::apic::apicv::ApicvCounts;
use crate::apic::avic::AvicCounts;
use crate::apic::iommu::IommuCounts;
use crate::books::audit::Audit;
use crate::books::blame::LockRecord;
use crate::books::cause::Cause;
use crate::books::convoy::ConvoyWatch;
use crate::books::hash::HistoryHash;
use crate::books::timeline::Recorder;
use crate::books::yields::YieldWatch;
use crate::core::failure::{CallOff, Failure};
use crate::cpus::pcpu::{Activity, Pcpu};
use crate::cpus::vcpu::Vcpu;
use crate::flows::context::Saved;
use crate::flows::stack::Stacks;
use crate::guests::migration::Migrations;
use crate::guests::native::{Call, Native};
use crate::guests::net::Network;
use crate::memory::park::Spinners;
use crate::memory::tlb::Spaces;
use crate::memory::word::{SimAddress, SimWord};

/// Class of interrupts and timers: before all else that happens at the same time.
pub const CLASS_INTERRUPT: u8 = 0;
/// Class of what pCPUs do.
pub const CLASS_ACTIVITY: u8 = 1;

/// What a guest is beside its vCPUs.
pub struct Vm {
    /// Its name.
    pub name: String,
    /// Its first vCPU's number among all.
    pub first_vcpu: u32,
    /// How many it has.
    pub vcpus: u32,
    /// Its kernel; there from just after construction.
    pub image: Option<Box<dyn GuestImage>>,
    /// CPU 0 of its kernel starts the others.
    pub waits_for_sipi: bool,
    /// Seed of its streams.
    pub seed: u64,
    /// Iterations before a paravirtual waiter halts.
    pub spin_threshold: u32,
    /// Whether a waiter in a queue halts behind a preempted one.
    pub wait_early_preempted: bool,
    /// Steal-time records, one per vCPU.
    pub steal_time: Box<[StealTime]>,
    /// Words for ends of interrupts, one per vCPU; the host uses bit 0.
    pub pv_eoi: Box<[Cell<u8>]>,
    /// Address spaces.
    pub spaces: Spaces,
    /// Faults planted by tests.
    pub faults: PvFaults,
    /// Exits while its workload was measured, by cause.
    pub exits: [u64; Cause::ALL.len()],
    /// The memory that its network driver shares with the device.
    pub network: Box<holdfast_abi::virtio::Network>,
    /// The firmware's proximity domain of each vCPU; empty: no table.
    pub domains: Box<[u32]>,
    /// The NUMA node that each vCPU's kernel has told it to be of.
    pub numa_nodes: Box<[Cell<u32>]>,
    /// Queue nodes.
    pub nodes: NodeTable<SimWord>,
    /// Halted waiters.
    pub waiting: WaitTable<SimWord, SimAddress>,
    /// Lock statistics.
    pub lock_stats: holdfast_locks::LockStats,
    /// Whether the run waits for it.
    pub measured: bool,
    /// When its workload began and ended.
    pub begun: Option<Time>,
    /// When its workload was done.
    pub done: Option<Time>,
    /// Operations that it reported.
    pub operations: Option<u64>,
    /// Counters that it reported, and the machine's own.
    pub counters: BTreeMap<String, u64>,
    /// Until when one of its vCPUs last did useful or critical work.
    pub last_work: Time,
    /// Until when one of its vCPUs last computed in user mode.
    pub last_user: Time,
    /// The longest time without work since its workload began.
    pub longest_stall: Picos,
    /// Its convoys.
    pub convoys: ConvoyWatch,
    /// vCPUs that lost their pCPU while they held a lock.
    pub preempted_holding: u64,
    /// vCPUs that lost their pCPU while they waited for a lock.
    pub preempted_waiting: u64,
    /// Times that a vCPU was throttled while it held a lock.
    pub throttled_holding: u64,
    /// Times that a vCPU was throttled while it waited for a lock.
    pub throttled_waiting: u64,
    /// Whom directed yields reached.
    pub yields: YieldWatch,
    /// What AVIC did.
    pub avic: AvicCounts,
    /// What APICv did.
    pub apicv: ApicvCounts,
    /// What the IOMMU did with its devices' interrupts.
    pub iommu: IommuCounts,
}

impl Vm {
    /// One of its vCPUs worked from `start` on for `span`.
    #[inline]
    pub fn worked(&mut self, start: Time, span: Picos, user: bool) {
        let end = start + span;
        self.convoys.worked(end, span);
        if start > self.last_work {
            self.longest_stall = self.longest_stall.max(start.since(self.last_work));
        }
        self.last_work = self.last_work.max(end);
        if user {
            self.last_user = self.last_user.max(end);
        }
    }
}

/// A host task that is no vCPU.
#[derive(Clone, Debug)]
pub struct Task {
    /// CPU time between two sleeps; `None`: never sleeps.
    pub busy: Option<Picos>,
    /// How long it sleeps.
    pub sleep: Picos,
    /// CPU time until its next sleep.
    pub remaining: Picos,
}

/// What is kept of a cache line beside its place in the caches.
#[derive(Clone, Debug, Default)]
pub struct LineRecord {
    /// Whose spins on it are skipped; there once anybody's was.
    pub spinners: Option<Spinners>,
    /// Who holds and who awaits the lock in it.
    pub lock: LockRecord,
}

/// Counts of the engine's own work.
#[derive(Clone, Copy, Debug, Default)]
pub struct EngineStats {
    /// Ordered memory operations.
    pub operations: u64,
    /// Switches between flows.
    pub switches: u64,
    /// Spins that were skipped.
    pub parks: u64,
    /// Events handled by the loop.
    pub events: u64,
    /// Host steps.
    pub host_steps: u64,
    /// Lock acquisitions that guests announced.
    pub acquisitions: u64,
}

/// One run.
pub struct Engine {
    /// Tells the words of this run from those of others; of no influence on the history.
    pub run: u32,
    /// Virtual time.
    pub now: Time,
    /// The next event of each slot: activities, timers, the watchdog, interrupts under way.
    pub queue: EventQueue,
    /// Cache lines.
    pub lines: Lines,
    /// What is kept of each line.
    pub records: Vec<LineRecord>,
    /// The lines that several words share, by the number of the words' group.
    pub groups: BTreeMap<u32, LineId>,
    /// What everything costs.
    pub costs: Costs,
    /// What detects pause loops.
    pub pause_hardware: Option<PauseHardware>,
    /// AVIC, if the part has it.
    pub avic: Option<AvicModel>,
    /// Intel's APIC virtualization, if the part has it.
    pub apicv: Option<ApicvModel>,
    /// Buffer for the doorbells of one IPI.
    pub rung: Vec<u32>,
    /// Of clock and time-stamp counter.
    pub frequency_hz: u64,
    /// Physical CPUs.
    pub pcpus: Vec<Pcpu>,
    /// Virtual CPUs, by the host's numbers.
    pub vcpus: Vec<Vcpu>,
    /// Guests.
    pub vms: Vec<Vm>,
    /// The kernel on the machine itself, if there is one.
    pub native: Option<Native>,
    /// Guests' network devices.
    pub networks: Vec<Network>,
    /// Host tasks that are no vCPUs.
    pub tasks: BTreeMap<TaskId, Task>,
    /// The vCPU whose flow executes.
    pub current: u32,
    /// The loop's own flow, while another executes.
    pub main: Saved,
    /// Stacks of the guests' flows.
    pub stacks: Stacks,
    /// The hypervisor.
    pub host: Host,
    /// Buffer for the host's commands.
    pub commands: Vec<Command>,
    /// The executing flow leaves its guest for this.
    pub exit: Option<Exit>,
    /// The executing flow of the kernel on the machine itself makes this call.
    pub call: Option<Call>,
    /// The run cannot go on.
    pub failure: Option<Failure>,
    /// All measured guests are done.
    pub finished: bool,
    /// What is recorded of the history, if anything is.
    pub timeline: Option<Box<Recorder>>,
    /// The books of all interrupts, if they are kept.
    pub audit: Option<Box<Audit>>,
    /// Live migrations to come, if any are.
    pub migrations: Option<Box<Migrations>>,
    /// Hash of the history.
    pub hash: HistoryHash,
    /// Counts.
    pub stats: EngineStats,
    /// Execute spins instead of skipping them.
    pub execute_spins: bool,
    /// End of patience.
    pub limit: Time,
    /// The timer that goes off, until the host sets it again.
    pub firing: Option<u32>,
    /// What the slots behind the watchdog's are for.
    pub spare_slots: Vec<Spare>,
    /// Those whose interrupts have arrived.
    pub free_slots: Vec<u32>,
    /// Those of lines that have no misses to come.
    pub free_line_slots: Vec<u32>,
}

/// What a slot behind the watchdog's is for.
#[derive(Clone, Copy, Debug)]
pub enum Spare {
    /// An interrupt on its way to this pCPU.
    Interrupt(u32, HostInterrupt),
    /// An AVIC doorbell on its way to this pCPU.
    Doorbell(u32),
    /// A notification of posted interrupts, or their wake-up vector, on its way to this pCPU.
    Notification(u32, u8),
    /// A vCPU is sent to another pCPU.
    Move,
    /// A network device that is hardware is ready for its next step, by its number.
    Nic(u32),
    /// All guests stop, to go on on another host.
    Stop,
    /// They go on there.
    Resume,
    /// The next miss of those that spin on this line.
    Line(LineId),
}

impl Engine {
    /// The slot of the timer of `pcpu`.
    pub fn timer_slot(&self, pcpu: u32) -> u32 {
        self.pcpus.len() as u32 + pcpu
    }

    /// The slot of the watchdog.
    pub fn watchdog_slot(&self) -> u32 {
        2 * self.pcpus.len() as u32
    }

    /// The first slot behind the watchdog's.
    fn first_spare_slot(&self) -> u32 {
        self.watchdog_slot() + 1
    }

    fn add_spare_slot(&mut self, spare: Spare) -> u32 {
        self.spare_slots.push(spare);
        self.first_spare_slot() + self.spare_slots.len() as u32 - 1
    }

    /// A slot for the misses on `line`. Interrupts have others: of theirs, the numbers decide between equal times.
    pub fn take_line_slot(&mut self, line: LineId) -> u32 {
        let Some(slot) = self.free_line_slots.pop() else {
            return self.add_spare_slot(Spare::Line(line));
        };
        let index = slot - self.first_spare_slot();
        self.spare_slots[index as usize] = Spare::Line(line);
        slot
    }

    /// A fresh line.
    pub fn add_line(&mut self) -> LineId {
        self.records.push(LineRecord::default());
        self.lines.add()
    }

    /// The line of the words of `group`; a fresh one if there is none yet, or for group 0, which is none.
    pub fn line_of_group(&mut self, group: u32) -> LineId {
        if group == 0 {
            return self.add_line();
        }
        if let Some(&line) = self.groups.get(&group) {
            return line;
        }
        let line = self.add_line();
        self.groups.insert(group, line);
        line
    }

    /// The VM of `vcpu`.
    #[inline]
    pub fn vm_of(&mut self, vcpu: u32) -> &mut Vm {
        &mut self.vms[self.vcpus[vcpu as usize].vm.0 as usize]
    }

    /// The number among all vCPUs of number `number` of `vm`.
    pub fn vcpu_of(&self, vm: VmId, number: u32) -> u32 {
        self.vms[vm.0 as usize].first_vcpu + number
    }

    /// `interrupt` sets out for `pcpu` and arrives at `at`.
    pub fn send_ipi(&mut self, pcpu: u32, interrupt: HostInterrupt, at: Time) {
        let slot = self.take_spare_slot(Spare::Interrupt(pcpu, interrupt));
        self.queue.set(slot, Key::new(at, CLASS_INTERRUPT, slot));
    }

    /// A slot for `spare`, which is free again once that has arrived.
    pub fn take_spare_slot(&mut self, spare: Spare) -> u32 {
        let slot = self.free_slots.pop().unwrap_or_else(|| self.add_spare_slot(spare));
        let index = slot - self.first_spare_slot();
        self.spare_slots[index as usize] = spare;
        slot
    }

    /// Whose flow is to execute next: a vCPU's, if the next event is one's turn. Spinners' misses are played on the way.
    #[inline]
    pub fn next_turn(&mut self) -> Option<(Time, u32)> {
        loop {
            let (key, slot) = self.queue.first()?;
            if let Some(pcpu) = self.pcpus.get(slot as usize) {
                return match pcpu.activity {
                    Activity::Guest(vcpu) => Some((key.time(), vcpu)),
                    _ => None,
                };
            }
            let index = slot.checked_sub(self.first_spare_slot())?;
            match self.spare_slots[index as usize] {
                Spare::Line(line) => self.play_misses(line),
                Spare::Interrupt(..)
                | Spare::Doorbell(_)
                | Spare::Notification(..)
                | Spare::Nic(_)
                | Spare::Move
                | Spare::Stop
                | Spare::Resume => return None,
            }
        }
    }

    /// `vcpu` loads `line` now; returns what it costs.
    #[inline]
    pub fn load(&mut self, vcpu: u32, line: LineId) -> Picos {
        self.stats.operations += 1;
        let pcpu = self.vcpus[vcpu as usize].last_pcpu;
        let charge = self.lines.access(line, pcpu, Access::Load, self.now);
        if charge.changed {
            self.hash
                .add(self.now.0 ^ u64::from(line.0) << 20 ^ u64::from(vcpu) << 52);
        }
        charge.instruction + charge.transfer
    }

    /// Plays one event that is no flow's turn.
    pub fn play(&mut self, call_off: &CallOff) {
        let Some((key, slot)) = self.queue.first() else {
            self.failure = Some(Failure::Deadlock(self.describe_all()));
            return;
        };
        self.stats.events += 1;
        self.now = key.time();
        let pcpus = self.pcpus.len() as u32;
        if slot < pcpus {
            self.activity_ends(slot);
            return;
        }
        if slot < self.watchdog_slot() {
            // Most timers are set again at once: only one that is not must be taken out.
            self.firing = Some(slot);
            self.interrupt(slot - pcpus, HostInterrupt::Timer);
            if self.firing.take().is_some() {
                self.queue.clear(slot);
            }
            return;
        }
        self.queue.clear(slot);
        if slot == self.watchdog_slot() {
            if call_off.load(Ordering::Relaxed) {
                self.failure = Some(Failure::CalledOff);
            }
            self.watch();
        } else {
            let index = slot - self.first_spare_slot();
            match self.spare_slots[index as usize] {
                Spare::Interrupt(pcpu, interrupt) => {
                    self.free_slots.push(slot);
                    if interrupt == HostInterrupt::Reschedule {
                        self.record_host_ipi_arrives(pcpu);
                    }
                    self.interrupt(pcpu, interrupt);
                }
                Spare::Doorbell(pcpu) => {
                    self.free_slots.push(slot);
                    self.doorbell(pcpu);
                }
                Spare::Notification(pcpu, vector) => {
                    self.free_slots.push(slot);
                    self.notification(pcpu, vector);
                }
                Spare::Nic(nic) => {
                    self.free_slots.push(slot);
                    self.step_nic(nic);
                }
                Spare::Move => {
                    self.free_slots.push(slot);
                    self.move_vcpu();
                }
                Spare::Stop => {
                    self.free_slots.push(slot);
                    self.stop_guests();
                }
                Spare::Resume => {
                    self.free_slots.push(slot);
                    self.resume_guests();
                }
                Spare::Line(_) => {}
            }
        }
    }
}
