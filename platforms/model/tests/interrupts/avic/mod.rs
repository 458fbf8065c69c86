//! Interrupts under AVIC and loom, in the product's source: the algorithms of the hardware (`machine/src/avic`,
//! `machine/src/iommu.rs`) and the hypervisor's side of them (`host/src/interrupts/avic/handshake.rs`,
//! `host/src/interrupts/avic/remap.rs`).
//!
//! One vCPU waits for one vector from each sender, halted or spinning, and meanwhile moves to another pCPU. This folder
//! adds the environment: memory that loom orders, doorbells, IPIs, a thread that sleeps. Only VMRUN, doorbells and the
//! code under test read IRR. A vCPU that loses an interrupt waits forever, which loom reports as a deadlock.
//!
//! - **Only racing words are modeled**: IRR, the table's entry, and the words that the IOMMU shares with the host
//!   (`device.rs`). ISR, TPR and PPR belong to the vCPU's own thread, and no interrupt here is level-triggered.
//! - **Exchanges for stores**: if other threads exchange a word, its owner exchanges it, too, with the ordering of a
//!   store (`src/loom.rs`, *A store after a read-modify-write is later*).

mod device;
mod vcpu;

use std::sync::Arc;

use ::loom::sync::atomic::AtomicU32;
use ::loom::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use holdfast_abi::avic::{IpiFailure, PhysicalEntry};
use holdfast_abi::{Memory, Vmcb, lapic, vmcb};
use holdfast_host::AvicDriver;
use holdfast_host::avic::handshake::{self, AvicFaults, Notice, Presence, Tables};
use holdfast_machine::avic::{Avic, AvicHardware};
use holdfast_model::{Bounds, Checker, Explored, Failure, Loom};

use super::{HardwareMemory, Line, LoomMemory, Waiter};
use device::Devices;
use vcpu::VcpuThread;

/// Host-physical address of the vCPU's backing page.
const PAGE: u64 = 0x1_0000;
/// Host-physical address of the physical APIC ID table, in which the vCPU has ID 0.
const TABLE: u64 = 0x2000;
/// Host-physical address of the only IRR register in use.
const IRR: u64 = PAGE + lapic::IRR as u64 + 7 * 16;
/// The vector of the first sender. The vectors of the others are lower.
const VECTOR: u8 = 0xfd;

/// The sender of an interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// Another vCPU of the VM, in guest mode: the hardware, and the handler of the vCPU's exit.
    Hardware,
    /// The hypervisor: the interrupt of a device or a timer.
    Software,
    /// A device behind the IOMMU, whose remap entry is in guest mode. All devices are one sender, because the IOMMU
    /// delivers one interrupt after the other.
    Device,
}

/// How the vCPU waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// The vCPU halts, and its thread sleeps.
    Halts,
    /// The vCPU spins in guest mode: only after a doorbell or an exit it takes an interrupt.
    Spins,
    /// The vCPU spins, is preempted once and continues on another pCPU.
    SpinsAndMoves,
    /// The vCPU switches to an emulated LAPIC before its first entry, and spins.
    Deactivates,
    /// The vCPU does so on another pCPU than before.
    DeactivatesAndMoves,
}

/// A scenario to explore.
#[derive(Clone, Debug)]
pub struct AvicScenario {
    /// The senders, each of which sends one vector.
    pub senders: Vec<Sender>,
    /// How the vCPU waits.
    pub waiting: Waiting,
    /// Whether the CPU model has erratum 1235.
    pub erratum_1235: bool,
    /// Whether the hypervisor sets IsRunning for the hardware.
    pub ipiv: bool,
    /// The hypervisor's driver.
    pub driver: AvicDriver,
    /// The faults of the hypervisor.
    pub faults: AvicFaults,
    /// Whether the hardware omits its fence. No CPU model does. It shows what the search would report of one.
    pub hardware_without_fence: bool,
    /// Whether a thread omits the fence after it has announced that it will sleep.
    pub sleep_without_fence: bool,
    /// Whether the IOMMU's log is full when the devices signal: it holds an interrupt of another vCPU, whose handler
    /// has not run yet.
    pub log_is_full: bool,
    /// Whether the hypervisor updates the remap entries for a halt only after it has read IRR.
    pub remap_after_look: bool,
    /// Whether the hypervisor does not wait for the invalidation after it has taken a remap entry out of guest mode.
    pub remap_without_invalidation: bool,
}

impl AvicScenario {
    /// Makes the scenario as in published systems, without faults.
    pub fn new(senders: &[Sender], waiting: Waiting) -> AvicScenario {
        AvicScenario {
            senders: senders.to_vec(),
            waiting,
            erratum_1235: false,
            ipiv: true,
            driver: AvicDriver::Now,
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
    /// If an interrupt is lost or taken twice. The error describes the first such execution.
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

/// The interrupt lines into a pCPU.
struct Lines {
    doorbell: Line,
    ipi: Line,
}

/// The vCPU, as other threads see it, and the pCPUs.
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
            driver: self.scenario.driver,
            faults: self.scenario.faults,
        }
    }

    fn hardware(&self) -> AvicHardware {
        AvicHardware {
            erratum_1235: self.scenario.erratum_1235,
            ..AvicHardware::default()
        }
    }

    /// Returns the memory as the hardware accesses it, with fences unless the scenario omits them.
    fn hardware_memory(&self) -> HardwareMemory<'_> {
        HardwareMemory {
            memory: &self.memory,
            fences: !self.scenario.hardware_without_fence,
        }
    }

    /// Sends one interrupt to the vCPU, from its source to its delivery.
    fn send(&self, sender: Sender, vector: u8) {
        let notice = match sender {
            Sender::Software => handshake::deliver(&self.tables(), self, vector, false, None),
            Sender::Hardware => match self.send_ipi(&self.hardware_memory(), vector) {
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
            Notice::Unneeded => {}
        }
    }

    /// Sends a guest's IPI by hardware. Returns the work for the handler of its exit, if it exits.
    fn send_ipi(&self, memory: &impl Memory, vector: u8) -> Option<Notice> {
        let mut sender = Vmcb::new();
        sender.write32(vmcb::INT_CTL, vmcb::AVIC_ENABLE);
        sender.write64(vmcb::AVIC_BACKING_PAGE, PAGE + 0x1000);
        sender.write64(vmcb::AVIC_PHYSICAL_TABLE, TABLE);
        let avic = Avic::new(memory, &sender, self.hardware()).expect("AVIC is on");
        let targets = avic.resolve(u64::from(vector)).expect("the vCPU is in the table");
        let exit = avic.post(&targets, |host_id| self.ring(host_id)).exit?;
        assert_eq!(exit.id(), IpiFailure::TargetNotRunning as u32);
        Some(handshake::complete(&self.tables(), self, None))
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
