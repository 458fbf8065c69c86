//! Posted interrupts under loom, in the product's source: the algorithms of the hardware (`machine/src/apicv`) and the
//! hypervisor's side of them (`host/src/interrupts/apicv/posting.rs`).
//!
//! One vCPU waits for one vector from each sender, halted or spinning, and meanwhile moves to another pCPU. This file
//! adds the environment: memory that loom orders, notifications, the wakeup handler, a thread that sleeps. A vCPU that
//! loses an interrupt waits forever, which loom reports as a deadlock.
//!
//! - **Only racing words are modeled**: PIR and the control word. The virtual-APIC page belongs to the vCPU: no other
//!   thread writes it.

use std::sync::Arc;

use ::loom::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use ::loom::sync::atomic::{AtomicU32, fence};
use holdfast_abi::posted::{self, Control, PidPointer};
use holdfast_abi::{Vmcs, lapic, vmcs};
use holdfast_host::apicv::posting::{Descriptor, PostingFaults};
use holdfast_machine::apicv::{Apicv, Notification, WriteOutcome};
use holdfast_model::{Bounds, Checker, Explored, Failure, Loom};

use super::{HardwareMemory, Line, LoomMemory, Sender, Waiter, Waiting};

/// Host-physical address of the vCPU's descriptor.
const DESCRIPTOR: u64 = 0x1000;
/// Host-physical address of the descriptor's control word.
const CONTROL: u64 = DESCRIPTOR + posted::CONTROL;
/// Host-physical address of the only word of PIR in use.
const PIR: u64 = DESCRIPTOR + posted::PIR + 7 * 4;
/// Host-physical address of the PID-pointer table, in which the vCPU has ID 0.
const TABLE: u64 = 0x2000;
/// Host-physical address of the vCPU's page.
const PAGE: u64 = 0x1_0000;
/// The vector of the first sender. The vectors of the others are lower.
const VECTOR: u8 = 0xfd;

/// A scenario to explore.
#[derive(Clone, Debug)]
pub struct PostingScenario {
    /// The senders, each of which sends one vector.
    pub senders: Vec<Sender>,
    /// How the vCPU waits.
    pub waiting: Waiting,
    /// The faults of the hypervisor.
    pub faults: PostingFaults,
    /// Whether hardware that posts omits its fence. No CPU model does. It shows what the search would report of one.
    pub hardware_without_fence: bool,
}

impl PostingScenario {
    /// Makes the scenario as in published systems, without faults.
    pub fn new(senders: &[Sender], waiting: Waiting) -> PostingScenario {
        PostingScenario {
            senders: senders.to_vec(),
            waiting,
            faults: PostingFaults::default(),
            hardware_without_fence: false,
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
        let senders = self.senders.iter().zip(0u8..).map(|(&sender, number)| {
            let world = Arc::clone(&world);
            ::loom::thread::spawn(move || world.send(sender, VECTOR - number))
        });
        let senders: Vec<_> = senders.collect();
        VcpuThread { world: &world, pcpu: 0 }.run();
        for sender in senders {
            sender.join().expect("a panic ends the execution");
        }
    }
}

/// The vCPU, as other threads see it, and the pCPUs.
struct World {
    scenario: PostingScenario,
    memory: LoomMemory,
    in_guest: AtomicU32,
    cpu: AtomicU32,
    /// Whether the vCPU is on its pCPU's list of sleeping vCPUs.
    listed: AtomicU32,
    waiter: Waiter,
    /// Whether the notification vector has arrived at this pCPU.
    notified: [Line; 2],
}

impl World {
    fn new(scenario: &PostingScenario) -> World {
        let control = Control::new(posted::NOTIFICATION_VECTOR, 0);
        World {
            scenario: scenario.clone(),
            memory: LoomMemory::default()
                .with_bits(PIR)
                .with_exchanged(CONTROL, control.0)
                .with_constant(TABLE, PidPointer::new(DESCRIPTOR).0),
            in_guest: AtomicU32::new(0),
            cpu: AtomicU32::new(0),
            listed: AtomicU32::new(0),
            waiter: Waiter::new(),
            notified: [Line::new(), Line::new()],
        }
    }

    fn descriptor(&self) -> Descriptor<'_, LoomMemory> {
        Descriptor {
            memory: &self.memory,
            address: DESCRIPTOR,
            faults: self.scenario.faults,
        }
    }

    /// Sends one interrupt to the vCPU, from its source to its delivery.
    fn send(&self, sender: Sender, vector: u8) {
        match sender {
            Sender::Software => {
                if !self.descriptor().post(vector) {
                    return;
                }
                // Pairs with the fence between the mode and ON at VM entry.
                fence(SeqCst);
                if self.in_guest.load(Acquire) == 1 {
                    self.ring(self.cpu.load(Acquire));
                } else {
                    self.waiter.wake();
                }
            }
            Sender::Hardware => {
                let memory = HardwareMemory {
                    memory: &self.memory,
                    fences: !self.scenario.hardware_without_fence,
                };
                let mut control = control();
                control.virtual_apic_page = PAGE + 0x1000;
                let mut apic = Apicv::new(&memory, &mut control).expect("APICv is on");
                match apic.write(lapic::ICR_LOW, u32::from(vector)) {
                    WriteOutcome::Posted(notification) => notification.into_iter().for_each(|it| self.arrive(it)),
                    other => panic!("an IPI to a vCPU in the table ends in {other:?}"),
                }
            }
            Sender::Device => unreachable!("the IOMMU posts as another vCPU does"),
        }
    }

    /// Handles a host interrupt on a pCPU.
    fn arrive(&self, notification: Notification) {
        match notification.vector {
            posted::NOTIFICATION_VECTOR => self.ring(notification.destination),
            posted::WAKEUP_VECTOR => self.look_for_sleepers(),
            other => panic!("cannot handle host vector {other:#x}: no handler is registered"),
        }
    }

    /// Handles the wakeup vector on the pCPU to whose list the vCPU belongs.
    fn look_for_sleepers(&self) {
        if self.listed.load(Acquire) == 1 && self.descriptor().control().is_on() {
            self.waiter.wake();
        }
    }

    fn ring(&self, pcpu: u32) {
        self.notified[pcpu as usize].pull();
        self.waiter.notify();
    }
}

/// Returns the control structure of the vCPU.
fn control() -> Vmcs {
    Vmcs {
        pin: vmcs::PIN_POSTED_INTERRUPTS,
        secondary: vmcs::APIC_REGISTER_VIRTUALIZATION | vmcs::VIRTUAL_INTERRUPT_DELIVERY,
        tertiary: vmcs::IPI_VIRTUALIZATION,
        virtual_apic_page: PAGE,
        descriptor: DESCRIPTOR,
        notification_vector: posted::NOTIFICATION_VECTOR,
        pid_table: TABLE,
        ..Vmcs::default()
    }
}

/// The vCPU's thread.
struct VcpuThread<'w> {
    world: &'w World,
    pcpu: u32,
}

impl VcpuThread<'_> {
    /// Runs until every vector has been taken.
    fn run(&mut self) {
        let world = self.world;
        let mut control = control();
        let all: u32 = (0..world.scenario.senders.len()).map(|number| 1 << number).sum();
        let (mut taken, mut moved) = (0u32, false);
        loop {
            // Interrupts are masked: earlier notifications have no effect, later ones wait for VM entry.
            world.notified[self.pcpu as usize].take();
            world.in_guest.store(1, Release);
            fence(SeqCst);
            self.sync(&mut control);
            loop {
                take_all(&world.memory, &mut control, &mut taken);
                if taken == all {
                    world.in_guest.store(0, Release);
                    return;
                }
                if !self.stays(moved, &mut control) {
                    break;
                }
            }
            world.in_guest.store(0, Release);
            if world.scenario.waiting == Waiting::Halts {
                self.sleep(&mut control);
            } else {
                moved = true;
                world.descriptor().preempt();
                self.load(self.pcpu ^ 1);
            }
        }
    }

    fn load(&mut self, pcpu: u32) {
        self.pcpu = pcpu;
        self.world.cpu.store(pcpu, Release);
        self.world.descriptor().load(pcpu);
    }

    /// Moves the posted vectors to the page and updates RVI, by software.
    fn sync(&self, control: &mut Vmcs) {
        if let Some(highest) = self.world.descriptor().sync(PAGE) {
            let status = control.status;
            control.status = vmcs::InterruptStatus::new(status.requesting().max(highest), status.servicing());
        }
    }

    /// Returns whether the vCPU stays in its guest, where a posted vector has arrived.
    fn stays(&self, moved: bool, control: &mut Vmcs) -> bool {
        let world = self.world;
        match world.scenario.waiting {
            Waiting::Halts => return false,
            Waiting::SpinsAndMoves if !moved => return false,
            Waiting::SpinsAndMoves | Waiting::Spins => {}
            Waiting::Deactivates | Waiting::DeactivatesAndMoves => unreachable!("posting has no such toggle"),
        }
        while !world.notified[self.pcpu as usize].take() {
            world.waiter.wait();
        }
        let mut apic = Apicv::new(&world.memory, control).expect("APICv is on");
        apic.notified(posted::NOTIFICATION_VECTOR)
    }

    /// Handles an exit by HLT.
    fn sleep(&mut self, control: &mut Vmcs) {
        let world = self.world;
        world.waiter.prepare(true);
        self.sync(control);
        if control.status.requesting() == 0 {
            world.listed.store(1, Release);
            if world.descriptor().block() {
                world.look_for_sleepers();
            }
            world.waiter.sleep();
            world.listed.store(0, Release);
            self.load(self.pcpu ^ 1);
        }
        world.waiter.finish();
    }
}

/// Takes all requested vectors and signals their EOI.
fn take_all(memory: &LoomMemory, control: &mut Vmcs, taken: &mut u32) {
    let mut apic = Apicv::new(memory, control).expect("APICv is on");
    while apic.pending().is_some() {
        let vector = apic.take();
        apic.write(lapic::EOI, 0);
        let bit = 1 << (VECTOR - vector);
        assert!(*taken & bit == 0, "vector {vector:#x} is taken twice");
        *taken |= bit;
    }
}
