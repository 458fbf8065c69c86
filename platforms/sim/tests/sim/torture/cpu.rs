//! A vCPU that the host may preempt at any memory operation, by seed.

#![expect(unsafe_code, reason = "implements the platform's traits")]

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use holdfast_guest::Cpu;
use holdfast_locks::{Budget, CpuId, Interrupts, LockStats, NodeTable, Nodes, Numa, Paravirt, Platform, WaitTable};
use holdfast_sim::{SimAddress, SimCpu, SimWord};

use crate::image::Random;

/// A planted fault of the platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// Read-modify-writes are a load and a store, and other operations come in between.
    TornExchange,
    /// Some kicks are dropped.
    DroppedKick,
}

/// The order of service that a lock promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// A waiter is served before all vCPUs that arrive later.
    Arrival,
    /// The waiters in the queue keep their order; other vCPUs may overtake them.
    Queue,
    /// No order is promised.
    Any,
}

/// The waiters for a lock, in the order in which they began to wait.
#[derive(Default)]
struct Waiting {
    lock: usize,
    /// Each waiter's CPU, and the number of vCPUs that have overtaken it.
    queue: VecDeque<(u32, u64)>,
}

/// State that the vCPUs of one run share.
pub struct Dice {
    random: RefCell<Random>,
    /// A preemption precedes one memory operation in this number.
    odds: u64,
    /// PAUSEs after which a pause loop exits; 0 for never.
    pauses: u32,
    fault: Fault,
    order: Order,
    /// One halt in this number ends without a reason; 0 for none.
    spurious: u64,
    numa_nodes: u32,
    waiting: RefCell<Vec<Waiting>>,
    pub begun: Cell<u64>,
    pub preemptions: Cell<u64>,
    pub overtaken_max: Cell<u64>,
    pub violation: RefCell<Option<String>>,
}

impl Dice {
    pub fn new(seed: u64, order: Order, fault: Fault, pauses: u32) -> Dice {
        let mut random = Random(seed ^ 0x70_7274_7572_6521);
        Dice {
            odds: 6 + random.next(90),
            spurious: [0, 16][random.next(2) as usize],
            numa_nodes: 1 + random.next(3) as u32,
            random: RefCell::new(random),
            pauses,
            fault,
            order,
            waiting: RefCell::default(),
            begun: Cell::new(0),
            preemptions: Cell::new(0),
            overtaken_max: Cell::new(0),
            violation: RefCell::new(None),
        }
    }

    pub fn next(&self, below: u64) -> u64 {
        self.random.borrow_mut().next(below)
    }

    pub fn violated(&self, what: impl FnOnce() -> String) {
        self.violation.borrow_mut().get_or_insert_with(what);
    }

    fn with_waiting<R>(&self, lock: &SimWord, act: impl FnOnce(&mut VecDeque<(u32, u64)>) -> R) -> R {
        let address = std::ptr::from_ref(lock) as usize;
        let mut all = self.waiting.borrow_mut();
        let index = all.iter().position(|each| each.lock == address).unwrap_or_else(|| {
            all.push(Waiting {
                lock: address,
                queue: VecDeque::new(),
            });
            all.len() - 1
        });
        act(&mut all[index].queue)
    }

    /// `cpu` has taken `lock` without having had to wait: it has overtaken all waiters.
    pub fn took_at_once(&self, cpu: u32, lock: &SimWord) {
        let before = self.with_waiting(lock, |queue| {
            queue.iter_mut().for_each(|(_, overtaken)| *overtaken += 1);
            queue.front().map(|&(first, _)| first)
        });
        if let (Order::Arrival, Some(first)) = (self.order, before) {
            self.violated(|| format!("vcpu {cpu} has overtaken vcpu {first}, which waits for a fair lock"));
        }
    }
}

/// A vCPU under torture.
#[derive(Clone)]
pub struct Tortured {
    pub cpu: SimCpu,
    pub dice: Rc<Dice>,
}

impl Tortured {
    /// Before a memory operation: the host may take the pCPU away, for a short or a long time.
    fn shake(&self) {
        let dice = &self.dice;
        if dice.next(dice.odds) != 0 {
            return;
        }
        dice.preemptions.set(dice.preemptions.get() + 1);
        match dice.next(8) {
            // Another thread gets this pCPU: a pause loop exits, and the host yields to another vCPU.
            0..=3 if dice.pauses > 0 => (0..dice.pauses + 2).for_each(|_| self.cpu.relax()),
            // Longer than the host's slices.
            4 => self.cpu.compute(dice.next(150_000)),
            5 => self.cpu.compute(dice.next(20_000)),
            _ => self.cpu.compute(dice.next(600)),
        }
    }

    /// A read-modify-write of `word`, torn apart if that is the fault.
    fn rmw<R>(
        &self,
        word: &SimWord,
        whole: impl FnOnce(&SimCpu) -> R,
        torn: impl FnOnce(u32) -> (Option<u32>, R),
    ) -> R {
        self.shake();
        if self.dice.fault != Fault::TornExchange {
            return whole(&self.cpu);
        }
        let (new, result) = torn(self.cpu.load(word, Ordering::Relaxed));
        if let Some(new) = new {
            self.shake();
            self.cpu.store(word, new, Ordering::Relaxed);
        }
        result
    }
}

// SAFETY: `SimCpu`'s, with time passing in between; except where a fault is planted, which the caller has to detect.
unsafe impl Platform for Tortured {
    type Word = SimWord;
    type Address = SimAddress;

    fn cpu(&self) -> CpuId {
        self.cpu.cpu()
    }
    fn key(&self, word: &SimWord) -> usize {
        self.cpu.key(word)
    }
    fn load(&self, word: &SimWord, order: Ordering) -> u32 {
        self.shake();
        self.cpu.load(word, order)
    }
    fn store(&self, word: &SimWord, value: u32, order: Ordering) {
        self.shake();
        self.cpu.store(word, value, order);
    }
    fn store_low8(&self, word: &SimWord, value: u8, order: Ordering) {
        self.shake();
        self.cpu.store_low8(word, value, order);
    }
    fn store_low16(&self, word: &SimWord, value: u16, order: Ordering) {
        self.shake();
        self.cpu.store_low16(word, value, order);
    }
    fn store_byte1(&self, word: &SimWord, value: u8, order: Ordering) {
        self.shake();
        self.cpu.store_byte1(word, value, order);
    }
    fn swap(&self, word: &SimWord, value: u32, order: Ordering) -> u32 {
        self.rmw(word, |cpu| cpu.swap(word, value, order), |old| (Some(value), old))
    }
    fn swap_low8(&self, word: &SimWord, value: u8, order: Ordering) -> u8 {
        self.rmw(
            word,
            |cpu| cpu.swap_low8(word, value, order),
            |old| (Some(old & !0xff | u32::from(value)), old as u8),
        )
    }
    fn swap_low16(&self, word: &SimWord, value: u16, order: Ordering) -> u16 {
        self.rmw(
            word,
            |cpu| cpu.swap_low16(word, value, order),
            |old| (Some(old & !0xffff | u32::from(value)), old as u16),
        )
    }
    fn swap_high16(&self, word: &SimWord, value: u16, order: Ordering) -> u16 {
        self.rmw(
            word,
            |cpu| cpu.swap_high16(word, value, order),
            |old| (Some(old & 0xffff | u32::from(value) << 16), (old >> 16) as u16),
        )
    }
    fn compare_exchange(
        &self,
        word: &SimWord,
        current: u32,
        new: u32,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u32, u32> {
        self.rmw(
            word,
            |cpu| cpu.compare_exchange(word, current, new, success, failure),
            |old| {
                if old == current {
                    (Some(new), Ok(old))
                } else {
                    (None, Err(old))
                }
            },
        )
    }
    fn compare_exchange_low8(
        &self,
        word: &SimWord,
        current: u8,
        new: u8,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u8, u8> {
        self.rmw(
            word,
            |cpu| cpu.compare_exchange_low8(word, current, new, success, failure),
            |old| match old as u8 {
                found if found == current => (Some(old & !0xff | u32::from(new)), Ok(found)),
                found => (None, Err(found)),
            },
        )
    }
    fn compare_exchange_low16(
        &self,
        word: &SimWord,
        current: u16,
        new: u16,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u16, u16> {
        self.rmw(
            word,
            |cpu| cpu.compare_exchange_low16(word, current, new, success, failure),
            |old| match old as u16 {
                found if found == current => (Some(old & !0xffff | u32::from(new)), Ok(found)),
                found => (None, Err(found)),
            },
        )
    }
    fn fetch_add(&self, word: &SimWord, value: u32, order: Ordering) -> u32 {
        self.rmw(
            word,
            |cpu| cpu.fetch_add(word, value, order),
            |old| (Some(old.wrapping_add(value)), old),
        )
    }
    fn fetch_or(&self, word: &SimWord, bits: u32, order: Ordering) -> u32 {
        self.rmw(
            word,
            |cpu| cpu.fetch_or(word, bits, order),
            |old| (Some(old | bits), old),
        )
    }
    fn fetch_and(&self, word: &SimWord, bits: u32, order: Ordering) -> u32 {
        self.rmw(
            word,
            |cpu| cpu.fetch_and(word, bits, order),
            |old| (Some(old & bits), old),
        )
    }
    fn load_address(&self, word: &SimAddress, order: Ordering) -> usize {
        self.shake();
        self.cpu.load_address(word, order)
    }
    fn store_address(&self, word: &SimAddress, value: usize, order: Ordering) {
        self.shake();
        self.cpu.store_address(word, value, order);
    }
    fn compare_exchange_address(
        &self,
        word: &SimAddress,
        current: usize,
        new: usize,
        success: Ordering,
        failure: Ordering,
    ) -> Result<usize, usize> {
        self.shake();
        self.cpu.compare_exchange_address(word, current, new, success, failure)
    }
    fn fence(&self, order: Ordering) {
        self.cpu.fence(order);
    }
    fn relax(&self) {
        self.cpu.relax();
    }
    fn wait_until(
        &self,
        word: &SimWord,
        budget: Budget,
        order: Ordering,
        until: impl Fn(u32) -> bool,
    ) -> Result<u32, u32> {
        self.shake();
        self.cpu.wait_until(word, budget, order, until)
    }
    // No ordered operation lies between what a lock does to queue, or to take the lock, and these: they come in the
    // same order.
    fn contention_begin(&self, lock: &SimWord) {
        self.dice.begun.set(self.dice.begun.get() + 1);
        self.dice.with_waiting(lock, |queue| queue.push_back((self.cpu().0, 0)));
        self.cpu.contention_begin(lock);
    }
    fn contention_end(&self, lock: &SimWord) {
        self.cpu.contention_end(lock);
        let (dice, me) = (&self.dice, self.cpu().0);
        let place = dice.with_waiting(lock, |queue| {
            let place = queue.iter().position(|&(cpu, _)| cpu == me)?;
            queue.iter_mut().take(place).for_each(|(_, overtaken)| *overtaken += 1);
            let (_, overtaken) = queue.remove(place)?;
            dice.overtaken_max.set(dice.overtaken_max.get().max(overtaken));
            Some(place)
        });
        match place {
            None => dice.violated(|| format!("vcpu {me} has waited for a lock without saying so")),
            Some(0) => {}
            Some(place) if dice.order != Order::Any => {
                dice.violated(|| format!("vcpu {me} is served before {place} who queued earlier"));
            }
            Some(_) => {}
        }
    }
}

// SAFETY: as `SimCpu`'s.
unsafe impl Interrupts for Tortured {
    fn irq_save(&self) -> bool {
        self.cpu.irq_save()
    }
    fn irq_restore(&self, enabled: bool) {
        self.cpu.irq_restore(enabled);
    }
    fn in_nmi(&self) -> bool {
        false
    }
}

// SAFETY: as `SimCpu`'s.
unsafe impl Nodes for Tortured {
    fn nodes(&self) -> &NodeTable<SimWord> {
        self.cpu.nodes()
    }
}

impl Numa for Tortured {
    fn numa_node(&self, cpu: CpuId) -> u32 {
        cpu.0 % self.dice.numa_nodes
    }
    fn monotonic_ns(&self) -> u64 {
        self.cpu.now_ns()
    }
    fn is_urgent(&self) -> bool {
        !self.cpu.irqs_enabled()
    }
}

// SAFETY: as `SimCpu`'s; a halt may end for no reason. A dropped kick is a fault that was asked for.
unsafe impl Paravirt for Tortured {
    type Recorder = LockStats;

    fn halt_masked(&self) {
        self.shake();
        if self.dice.spurious == 0 || self.dice.next(self.dice.spurious) != 0 {
            self.cpu.halt_masked();
        }
    }
    fn halt_unmasked(&self) {
        self.shake();
        if self.dice.spurious == 0 || self.dice.next(self.dice.spurious) != 0 {
            self.cpu.halt_unmasked();
        } else {
            self.cpu.irq_restore(true);
            self.cpu.irq_save();
        }
    }
    fn kick(&self, cpu: CpuId) {
        self.shake();
        if self.dice.fault == Fault::DroppedKick && self.dice.next(4) == 0 {
            return;
        }
        self.cpu.kick(cpu);
    }
    fn is_preempted(&self, cpu: CpuId) -> bool {
        self.cpu.is_preempted(cpu)
    }

    fn halts_behind_preempted(&self) -> bool {
        self.cpu.halts_behind_preempted()
    }
    fn waiting(&self) -> &WaitTable<SimWord, SimAddress> {
        self.cpu.waiting()
    }
    fn spin_threshold(&self) -> Budget {
        self.cpu.spin_threshold()
    }
    fn now_ns(&self) -> u64 {
        self.cpu.now_ns()
    }
    fn recorder(&self) -> &LockStats {
        self.cpu.recorder()
    }
}
