//! Interrupts under AVIC: the hardware's algorithms (`machine/src/avic`) and the hypervisor's side of them
//! (`host/src/avic/handshake.rs`), the source that runs, under loom.
//!
//! One vCPU waits for one vector from each sender, halted or spinning, and moves to another pCPU on the way. What this file
//! adds is what lies beneath: memory that loom orders, doorbells, IPIs, a thread that sleeps. Nobody looks at IRR but VMRUN,
//! doorbells, and the code under test. So a lost interrupt is a vCPU that waits for ever, which loom reports as a deadlock.
//!
//! - **Only what races is modelled**: IRR and the table's entry. ISR, TPR and PPR belong to the vCPU's own thread, and no
//!   interrupt here is level-triggered.
//! - **Exchanges for stores**: a word that others exchange is exchanged by its owner, too, with the order of a store
//!   (`loom.rs`, *A store after a read-modify-write is later*).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool as StdAtomicBool, Ordering as StdOrdering};
use std::sync::{Arc, Mutex};

use ::loom::sync::Notify;
use ::loom::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use ::loom::sync::atomic::{AtomicU32, AtomicU64, fence};
use holdfast_abi::avic::{IpiFailure, PhysicalEntry};
use holdfast_abi::{Memory, Vmcb, lapic, vmcb};
use holdfast_host::avic::handshake::{self, AvicFaults, Notice, Presence, Tables};
use holdfast_machine::avic::{Avic, AvicHardware};

use crate::checker::{Checker, Explored, Failure};
use crate::loom::{Bounds, Loom};

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

/// Memory: what races is loom's.
struct LoomMemory {
    irr: AtomicU32,
    entry: AtomicU64,
    private: Mutex<BTreeMap<u64, u32>>,
}

impl LoomMemory {
    fn private(&self, address: u64, change: impl FnOnce(u32) -> u32) -> u32 {
        let mut words = self.private.lock().expect("no holder panics");
        let word = words.entry(address).or_insert(0);
        std::mem::replace(word, change(*word))
    }
}

impl Memory for LoomMemory {
    fn load32(&self, address: u64) -> Option<u32> {
        Some(match address {
            IRR => self.irr.load(Acquire),
            _ => self.private(address, |word| word),
        })
    }
    fn store32(&self, address: u64, value: u32) {
        assert_ne!(address, IRR, "IRR is changed bit by bit");
        self.private(address, |_| value);
    }
    fn set32(&self, address: u64, bits: u32) -> Option<u32> {
        Some(match address {
            IRR => self.irr.fetch_or(bits, AcqRel),
            _ => self.private(address, |word| word | bits),
        })
    }
    fn clear32(&self, address: u64, bits: u32) -> Option<u32> {
        Some(match address {
            IRR => self.irr.fetch_and(!bits, AcqRel),
            _ => self.private(address, |word| word & !bits),
        })
    }
    fn load64(&self, address: u64) -> Option<u64> {
        (address == TABLE).then(|| self.entry.load(Acquire))
    }
    fn store64(&self, address: u64, value: u64) {
        assert_eq!(address, TABLE, "there is one entry");
        self.entry.store(value, Release);
    }
    fn compare_exchange64(&self, address: u64, _: u64, _: u64) -> Option<Result<u64, u64>> {
        panic!("nobody exchanges what is at {address:#x}");
    }
    fn fence(&self) {
        fence(SeqCst);
    }
}

/// The same memory for a part that does not fence.
struct Unfenced<'m>(&'m LoomMemory);

impl Memory for Unfenced<'_> {
    fn load32(&self, address: u64) -> Option<u32> {
        self.0.load32(address)
    }
    fn store32(&self, address: u64, value: u32) {
        self.0.store32(address, value);
    }
    fn set32(&self, address: u64, bits: u32) -> Option<u32> {
        self.0.set32(address, bits)
    }
    fn clear32(&self, address: u64, bits: u32) -> Option<u32> {
        self.0.clear32(address, bits)
    }
    fn load64(&self, address: u64) -> Option<u64> {
        self.0.load64(address)
    }
    fn store64(&self, address: u64, value: u64) {
        self.0.store64(address, value);
    }
    fn compare_exchange64(&self, address: u64, current: u64, new: u64) -> Option<Result<u64, u64>> {
        self.0.compare_exchange64(address, current, new)
    }
    fn fence(&self) {}
}

const OUTSIDE: u32 = 0;
const IN_GUEST: u32 = 1;
const EXITING: u32 = 2;

/// A pCPU's lines from outside.
struct Lines {
    doorbell: AtomicU32,
    ipi: AtomicU32,
}

/// The vCPU, as others see it, and the pCPUs.
struct World {
    scenario: AvicScenario,
    memory: LoomMemory,
    mode: AtomicU32,
    active: AtomicU32,
    request: AtomicU32,
    cpu: AtomicU32,
    /// 1 while its thread sleeps, or is about to.
    sleeping: AtomicU32,
    /// Says so to the thread itself, and orders nothing.
    woken: StdAtomicBool,
    /// Something came that the thread may wait for.
    notify: Notify,
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
            doorbell: AtomicU32::new(0),
            ipi: AtomicU32::new(0),
        };
        let first = PhysicalEntry::new(PAGE).on(0);
        let first = if scenario.ipiv { first } else { first.off() };
        World {
            scenario: scenario.clone(),
            memory: LoomMemory {
                irr: AtomicU32::new(0),
                entry: AtomicU64::new(first.0),
                private: Mutex::default(),
            },
            mode: AtomicU32::new(OUTSIDE),
            active: AtomicU32::new(1),
            request: AtomicU32::new(0),
            cpu: AtomicU32::new(0),
            sleeping: AtomicU32::new(0),
            woken: StdAtomicBool::new(false),
            notify: Notify::new(),
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

    /// One interrupt for the vCPU, all the way.
    fn send(&self, sender: Sender, vector: u8) {
        let notice = match sender {
            Sender::Software => handshake::deliver(&self.tables(), self, vector, false, None),
            Sender::Hardware if self.scenario.hardware_without_fence => {
                match self.send_ipi(&Unfenced(&self.memory), vector) {
                    Some(notice) => notice,
                    None => return,
                }
            }
            Sender::Hardware => match self.send_ipi(&self.memory, vector) {
                Some(notice) => notice,
                None => return,
            },
        };
        match notice {
            Notice::Kick => {
                self.request.swap(1, Release);
                if !self.wake() && handshake::kick(&self.memory, self) {
                    self.interrupt(self.cpu.load(Acquire));
                }
            }
            Notice::Doorbell(pcpu) => self.ring(pcpu),
            Notice::Wake => {
                self.wake();
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
        self.pcpus[pcpu as usize].doorbell.swap(1, AcqRel);
        self.notify.notify();
    }

    fn interrupt(&self, pcpu: u32) {
        self.pcpus[pcpu as usize].ipi.swap(1, AcqRel);
        self.notify.notify();
    }

    /// Wakes the vCPU's thread if it sleeps.
    fn wake(&self) -> bool {
        fence(SeqCst);
        let slept = self.sleeping.compare_exchange(1, 0, AcqRel, Relaxed).is_ok();
        if slept {
            self.woken.store(true, StdOrdering::Relaxed);
            self.notify.notify();
        }
        slept
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
        let mut control = Vmcb::new();
        control.write32(vmcb::INT_CTL, vmcb::AVIC_ENABLE);
        control.write64(vmcb::AVIC_BACKING_PAGE, PAGE);
        control.write64(vmcb::AVIC_PHYSICAL_TABLE, TABLE);
        let avic = Avic::new(&world.memory, &control, world.hardware()).expect("it is on");
        let all: u32 = (0..world.scenario.senders.len() as u8).map(|number| 1 << number).sum();
        let (mut taken, mut moves) = (0u32, 0);
        match world.scenario.waiting {
            Waiting::Deactivates => handshake::deactivate(&world.tables(), world),
            Waiting::DeactivatesAndMoves => {
                self.move_over();
                handshake::deactivate(&world.tables(), world);
            }
            Waiting::Halts | Waiting::Spins | Waiting::SpinsAndMoves => {}
        }
        loop {
            // Requests are looked at, and an emulated LAPIC's interrupts injected.
            if world.request.load(Acquire) == 1 {
                world.request.swap(0, Relaxed);
                fence(SeqCst);
            }
            if world.active.load(Relaxed) == 0 {
                take_all(&avic, &mut taken);
            }
            let entered = handshake::enter(&world.memory, world, world.scenario.faults);
            if entered {
                // VMRUN: doorbells that came before count for nothing, since it evaluates.
                world.pcpus[self.pcpu as usize].doorbell.swap(0, AcqRel);
                loop {
                    if world.active.load(Relaxed) == 1 {
                        take_all(&avic, &mut taken);
                    }
                    if taken == all {
                        world.mode.swap(OUTSIDE, Release);
                        return;
                    }
                    if !self.spins_on(&mut moves) {
                        break;
                    }
                }
            }
            world.mode.swap(OUTSIDE, Release);
            if taken == all {
                return;
            }
            if entered {
                self.leave(&avic, &mut moves);
            }
        }
    }

    /// Whether the vCPU stays in its guest, where a doorbell has come.
    fn spins_on(&self, moves: &mut u32) -> bool {
        let world = self.world;
        let lines = &world.pcpus[self.pcpu as usize];
        match world.scenario.waiting {
            Waiting::Halts => return false,
            Waiting::SpinsAndMoves if *moves == 0 => return false,
            _ => {}
        }
        loop {
            if lines.doorbell.swap(0, AcqRel) == 1 && world.active.load(Relaxed) == 1 {
                return true;
            }
            if lines.ipi.swap(0, AcqRel) == 1 {
                return false;
            }
            world.notify.wait();
        }
    }

    /// What the exit leads to.
    fn leave(&mut self, avic: &Avic<'_, LoomMemory>, moves: &mut u32) {
        let world = self.world;
        let tables = world.tables();
        match world.scenario.waiting {
            Waiting::Halts => {
                tables.blocking();
                loop {
                    world.sleeping.swap(1, Release);
                    if !world.scenario.sleep_without_fence {
                        fence(SeqCst);
                    }
                    if avic.pending().is_some() {
                        break;
                    }
                    tables.put();
                    while !world.woken.swap(false, StdOrdering::Relaxed) {
                        world.notify.wait();
                    }
                    self.take_pcpu(true);
                }
                world.sleeping.swap(0, Release);
                tables.unblocking(self.pcpu);
            }
            Waiting::SpinsAndMoves if *moves == 0 => {
                *moves = 1;
                self.move_over();
            }
            _ => {}
        }
    }

    /// Loses its pCPU and goes on on the other one.
    fn move_over(&mut self) {
        self.world.tables().put();
        self.take_pcpu(false);
    }

    fn take_pcpu(&mut self, blocks: bool) {
        self.pcpu ^= 1;
        self.world.cpu.store(self.pcpu, Release);
        self.world.tables().load(self.pcpu, blocks);
    }
}

/// Takes and ends all that is pending.
fn take_all(avic: &Avic<'_, LoomMemory>, taken: &mut u32) {
    while let Some(vector) = avic.pending() {
        avic.take(vector);
        avic.write(lapic::EOI, 0);
        let bit = 1 << (VECTOR - vector);
        assert!(*taken & bit == 0, "vector {vector:#x} is taken twice");
        *taken |= bit;
    }
}
