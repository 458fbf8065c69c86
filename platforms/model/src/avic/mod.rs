//! Interrupts under AVIC: the hardware's algorithms (`machine/src/avic`, `machine/src/iommu.rs`) and the hypervisor's
//! side of them (`host/src/interrupts/avic/handshake.rs`, `host/src/interrupts/avic/remap.rs`), the source that runs,
//! under loom.
//!
//! One vCPU waits for one vector from each sender, halted or spinning, and moves to another pCPU on the way. What this
//! folder adds is what lies beneath: memory that loom orders, doorbells, IPIs, a thread that sleeps. Nobody looks at
//! IRR but VMRUN, doorbells, and the code under test. So a lost interrupt is a vCPU that waits for ever, which loom
//! reports as a deadlock.
//!
//! - **Only what races is modelled**: IRR, the table's entry, and of the IOMMU what it shares with the host
//!   (`device.rs`). ISR, TPR and PPR belong to the vCPU's own thread, and no interrupt here is level-triggered.
//! - **Exchanges for stores**: a word that others exchange is exchanged by its owner, too, with the order of a store
//!   (`loom.rs`, *A store after a read-modify-write is later*).

mod device;
mod vcpu;

use std::sync::Arc;

use ::loom::sync::atomic::AtomicU32;
use ::loom::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use holdfast_abi::avic::{IpiFailure, PhysicalEntry};
use holdfast_abi::{Memory, Vmcb, lapic, vmcb};
use holdfast_host::avic::handshake::{self, AvicFaults, Notice, Presence, Tables};
use holdfast_machine::avic::{Avic, AvicHardware};

use crate::checker::{Checker, Explored, Failure};
use crate::interrupts::{Line, LoomMemory, Part, Waiter};
use crate::loom::{Bounds, Loom};
use device::Devices;
use vcpu::VcpuThread;

/// Host-physical address of the vCPU's backing page.
const PAGE: u64 = 0x1_0000;
/// Host-physical address of the physical APIC ID table, in which the vCPU has ID 0.
const TABLE: u64 = 0x2000;
/// The only IRR register in use.
const IRR: u64 = PAGE + lapic::IRR as u64 + 7 * 16;
/// The first sender's vector; the others' are beneath.
const VECTOR: u8 = 0xfd;

/// Who sends an interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// Another vCPU of the VM, in guest mode: hardware, and the handler of its exit.
    Hardware,
    /// The hypervisor: a device's interrupt, a timer's.
    Software,
    /// A device behind the IOMMU, whose remap entry is in guest mode. All of them are one sender, for the IOMMU takes
    /// one interrupt after the other.
    Device,
}

/// How the vCPU waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// It halts, and its thread sleeps.
    Halts,
    /// It spins in guest mode: only a doorbell or an exit makes it take anything.
    Spins,
    /// It spins, loses its pCPU once and goes on elsewhere.
    SpinsAndMoves,
    /// It goes back to an emulated LAPIC before its first entry, and spins.
    Deactivates,
    /// The same on another pCPU than before.
    DeactivatesAndMoves,
}

/// What is explored.
#[derive(Clone, Debug)]
pub struct AvicScenario {
    /// One vector from each.
    pub senders: Vec<Sender>,
    /// How the vCPU waits.
    pub waiting: Waiting,
    /// The part has erratum 1235.
    pub erratum_1235: bool,
    /// IsRunning is shown to hardware.
    pub ipiv: bool,
    /// What is done wrong.
    pub faults: AvicFaults,
    /// The hardware does not fence: no part is so; what the search would say of one.
    pub hardware_without_fence: bool,
    /// A thread that goes to sleep does not fence after it said so.
    pub sleep_without_fence: bool,
    /// The IOMMU's log is full when the devices signal, with an interrupt of another vCPU's, whose handler has yet to
    /// run.
    pub log_is_full: bool,
    /// The hypervisor tells remap entries of a halt when it has looked at IRR.
    pub remap_after_look: bool,
    /// The hypervisor takes a remap entry out of guest mode, and does not wait for the invalidation.
    pub remap_without_invalidation: bool,
}

impl AvicScenario {
    /// As the field knows it, without faults.
    pub fn new(senders: &[Sender], waiting: Waiting) -> AvicScenario {
        AvicScenario {
            senders: senders.to_vec(),
            waiting,
            erratum_1235: false,
            ipiv: true,
            faults: AvicFaults::default(),
            hardware_without_fence: false,
            sleep_without_fence: false,
            log_is_full: false,
            remap_after_look: false,
            remap_without_invalidation: false,
        }
    }

    /// Explores every execution within `bounds`.
    ///
    /// # Errors
    /// The first execution in which an interrupt is lost, or taken twice.
    pub fn explore(&self, bounds: &Bounds) -> Result<Explored, Failure> {
        let scenario = self.clone();
        Loom::explore(bounds, move || scenario.execute())
    }

    fn execute(&self) {
        let world = Arc::new(World::new(self));
        let mut threads = Vec::new();
        for (&sender, number) in self.senders.iter().zip(0u8..) {
            if sender != Sender::Device {
                let world = Arc::clone(&world);
                threads.push(::loom::thread::spawn(move || world.send(sender, VECTOR - number)));
            }
        }
        if self.senders.contains(&Sender::Device) {
            let world = Arc::clone(&world);
            threads.push(::loom::thread::spawn(move || world.signal_all()));
        }
        VcpuThread::new(&world).run();
        for thread in threads {
            thread.join().expect("a panic ends the execution");
        }
    }
}

const OUTSIDE: u32 = 0;
const IN_GUEST: u32 = 1;
const EXITING: u32 = 2;

/// A pCPU's lines from outside.
struct Lines {
    doorbell: Line,
    ipi: Line,
}

/// The vCPU, as others see it, and the pCPUs.
struct World {
    scenario: AvicScenario,
    memory: LoomMemory,
    devices: Devices,
    mode: AtomicU32,
    active: AtomicU32,
    request: AtomicU32,
    cpu: AtomicU32,
    waiter: Waiter,
    pcpus: [Lines; 2],
}

impl Presence for World {
    fn is_in_guest(&self) -> bool {
        self.mode.load(Acquire) == IN_GUEST
    }
    fn set_in_guest(&self) {
        self.mode.swap(IN_GUEST, Release);
    }
    fn claim_exit(&self) -> bool {
        self.mode.compare_exchange(IN_GUEST, EXITING, AcqRel, Relaxed).is_ok()
    }
    fn is_active(&self) -> bool {
        self.active.load(Acquire) == 1
    }
    fn set_active(&self, active: bool) {
        self.active.store(u32::from(active), Release);
    }
    fn has_request(&self) -> bool {
        self.request.load(Acquire) == 1
    }
    fn cpu(&self) -> Option<u32> {
        Some(self.cpu.load(Acquire))
    }
}

impl World {
    fn new(scenario: &AvicScenario) -> World {
        let lines = || Lines {
            doorbell: Line::new(),
            ipi: Line::new(),
        };
        let first = PhysicalEntry::new(PAGE).running(0);
        let first = if scenario.ipiv { first } else { first.stopped() };
        let memory = LoomMemory::default().with_bits(IRR).with_stored(TABLE, first.0);
        let devices = Devices::new(scenario);
        World {
            scenario: scenario.clone(),
            memory: devices.lay_out(memory, scenario),
            devices,
            mode: AtomicU32::new(OUTSIDE),
            active: AtomicU32::new(1),
            request: AtomicU32::new(0),
            cpu: AtomicU32::new(0),
            waiter: Waiter::new(),
            pcpus: [lines(), lines()],
        }
    }

    fn tables(&self) -> Tables<'_, LoomMemory> {
        Tables {
            memory: &self.memory,
            page: PAGE,
            entry: TABLE,
            ipiv: self.scenario.ipiv,
            faults: self.scenario.faults,
        }
    }

    fn hardware(&self) -> AvicHardware {
        AvicHardware {
            erratum_1235: self.scenario.erratum_1235,
            ..AvicHardware::default()
        }
    }

    /// What is the hardware's: it fences, if the scenario's does.
    fn part(&self) -> Part<'_> {
        Part {
            memory: &self.memory,
            fences: !self.scenario.hardware_without_fence,
        }
    }

    /// One interrupt for the vCPU, all the way.
    fn send(&self, sender: Sender, vector: u8) {
        let notice = match sender {
            Sender::Software => handshake::deliver(&self.tables(), self, vector, false, None),
            Sender::Hardware => match self.send_ipi(&self.part(), vector) {
                Some(notice) => notice,
                None => return,
            },
            Sender::Device => unreachable!("the IOMMU sends it"),
        };
        match notice {
            Notice::Kick => {
                self.request.swap(1, Release);
                if !self.waiter.wake() && handshake::kick(&self.memory, self) {
                    self.interrupt(self.cpu.load(Acquire));
                }
            }
            Notice::Doorbell(pcpu) => self.ring(pcpu),
            Notice::Wake => {
                self.waiter.wake();
            }
            Notice::Here => {}
        }
    }

    /// A guest's IPI; what the handler of its exit has to do, if there is one.
    fn send_ipi(&self, memory: &impl Memory, vector: u8) -> Option<Notice> {
        let mut sender = Vmcb::new();
        sender.write32(vmcb::INT_CTL, vmcb::AVIC_ENABLE);
        sender.write64(vmcb::AVIC_BACKING_PAGE, PAGE + 0x1000);
        sender.write64(vmcb::AVIC_PHYSICAL_TABLE, TABLE);
        let avic = Avic::new(memory, &sender, self.hardware()).expect("it is on");
        let targets = avic.resolve(u64::from(vector)).expect("the vCPU is in the table");
        let exit = avic.post(&targets, |host_id| self.ring(host_id)).exit?;
        assert_eq!(exit.id(), IpiFailure::TargetNotRunning as u32);
        Some(handshake::complete(self, None, self.scenario.faults))
    }

    fn ring(&self, pcpu: u32) {
        self.pcpus[pcpu as usize].doorbell.pull();
        self.waiter.notify();
    }

    fn interrupt(&self, pcpu: u32) {
        self.pcpus[pcpu as usize].ipi.pull();
        self.waiter.notify();
    }
}
