//! Interrupts that are posted: the hardware's algorithms (`machine/src/apicv`) and the hypervisor's side of them
//! (`host/src/interrupts/apicv/posting.rs`), the source that runs, under loom.
//!
//! One vCPU waits for one vector from each sender, halted or spinning, and moves to another pCPU on the way. What this
//! file adds is what lies beneath: memory that loom orders, notifications, the wake-up handler, a thread that sleeps.
//! So a lost interrupt is a vCPU that waits for ever, which loom reports as a deadlock.
//!
//! - **Only what races is modelled**: PIR and the control word. The virtual-APIC page is the vCPU's own: nobody else
//!   writes it.

use std::sync::Arc;

use ::loom::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use ::loom::sync::atomic::{AtomicU32, fence};
use holdfast_abi::posted::{self, Control, PidPointer};
use holdfast_abi::{Vmcs, lapic, vmcs};
use holdfast_host::apicv::posting::{Descriptor, PostingFaults};
use holdfast_machine::apicv::{Apicv, Notification, WriteOutcome};

use crate::avic::{Sender, Waiting};
use crate::checker::{Checker, Explored, Failure};
use crate::interrupts::{Line, LoomMemory, Part, Waiter};
use crate::loom::{Bounds, Loom};

/// Host-physical address of the vCPU's descriptor.
const DESCRIPTOR: u64 = 0x1000;
/// Its control word.
const CONTROL: u64 = DESCRIPTOR + posted::CONTROL;
/// The only word of PIR in use.
const PIR: u64 = DESCRIPTOR + posted::PIR + 7 * 4;
/// Host-physical address of the PID-pointer table, in which the vCPU has ID 0.
const TABLE: u64 = 0x2000;
/// Host-physical address of the vCPU's page.
const PAGE: u64 = 0x1_0000;
/// The first sender's vector; the others' are beneath.
const VECTOR: u8 = 0xfd;

/// What is explored.
#[derive(Clone, Debug)]
pub struct PostingScenario {
    /// One vector from each.
    pub senders: Vec<Sender>,
    /// How the vCPU waits.
    pub waiting: Waiting,
    /// What is done wrong.
    pub faults: PostingFaults,
    /// Whoever posts, in hardware, does not fence: no part is so; what the search would say of one.
    pub hardware_without_fence: bool,
}

impl PostingScenario {
    /// As the field knows it, without faults.
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
    /// The first execution in which an interrupt is lost, or taken twice.
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

/// The vCPU, as others see it, and the pCPUs.
struct World {
    scenario: PostingScenario,
    memory: LoomMemory,
    in_guest: AtomicU32,
    cpu: AtomicU32,
    /// On the list of the sleepers of its pCPU.
    listed: AtomicU32,
    waiter: Waiter,
    /// The notification vector came to this pCPU.
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

    /// One interrupt for the vCPU, all the way.
    fn send(&self, sender: Sender, vector: u8) {
        match sender {
            Sender::Software => {
                if !self.descriptor().post(vector) {
                    return;
                }
                // Pairs with the fence between mode and ON at entry.
                fence(SeqCst);
                if self.in_guest.load(Acquire) == 1 {
                    self.ring(self.cpu.load(Acquire));
                } else {
                    self.waiter.wake();
                }
            }
            Sender::Hardware => {
                let memory = Part {
                    memory: &self.memory,
                    fences: !self.scenario.hardware_without_fence,
                };
                let mut control = control();
                control.virtual_apic_page = PAGE + 0x1000;
                let mut apic = Apicv::new(&memory, &mut control).expect("it is on");
                match apic.write(lapic::ICR_LOW, u32::from(vector)) {
                    WriteOutcome::Posted(notification) => notification.into_iter().for_each(|it| self.arrive(it)),
                    other => panic!("an IPI to a vCPU in the table ends in {other:?}"),
                }
            }
            Sender::Device => unreachable!("the IOMMU posts as another vCPU does"),
        }
    }

    /// A host interrupt.
    fn arrive(&self, notification: Notification) {
        match notification.vector {
            posted::NOTIFICATION_VECTOR => self.ring(notification.destination),
            posted::WAKEUP_VECTOR => self.look_for_sleepers(),
            other => panic!("nobody asked for vector {other:#x}"),
        }
    }

    /// The handler of the wake-up vector, on the pCPU that the vCPU's list belongs to.
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

/// The control structure of the vCPU.
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
    /// Until every vector has been taken.
    fn run(&mut self) {
        let world = self.world;
        let mut control = control();
        let all: u32 = (0..world.scenario.senders.len()).map(|number| 1 << number).sum();
        let (mut taken, mut moved) = (0u32, false);
        loop {
            // Interrupts are masked: notifications that came before count for nothing, later ones wait for the entry.
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

    /// Software moves what is posted to the page, and says so in RVI.
    fn sync(&self, control: &mut Vmcs) {
        if let Some(highest) = self.world.descriptor().sync(PAGE) {
            let status = control.status;
            control.status = vmcs::InterruptStatus::new(status.requesting().max(highest), status.servicing());
        }
    }

    /// Whether the vCPU stays in its guest, where something posted has come.
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
        let mut apic = Apicv::new(&world.memory, control).expect("it is on");
        apic.notified(posted::NOTIFICATION_VECTOR)
    }

    /// HLT has exited.
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

/// Takes and ends all that is requested.
fn take_all(memory: &LoomMemory, control: &mut Vmcs, taken: &mut u32) {
    let mut apic = Apicv::new(memory, control).expect("it is on");
    while apic.pending().is_some() {
        let vector = apic.take();
        apic.write(lapic::EOI, 0);
        let bit = 1 << (VECTOR - vector);
        assert!(*taken & bit == 0, "vector {vector:#x} is taken twice");
        *taken |= bit;
    }
}
