//! A CPU of the stepping machine: each operation on a word is a step.

use std::rc::Rc;
use std::sync::atomic::Ordering;

use corosensei::Yielder;
use holdfast_locks::conformance::Job;
use holdfast_locks::{
    Budget, CpuId, Event, Interrupts, LockStats, NodeTable, Nodes, Numa, Paravirt, Platform, ReaderLine, Readers,
    Sharing, WaitTable,
};

use super::{Blocked, CpuState, Machine, SPINS_MAX, Settling, StepAddress, StepWord, Stores};

/// A CPU of a [`Machine`], inside its coroutine.
pub struct StepCpu {
    pub(super) id: CpuId,
    pub machine: Rc<Machine>,
    pub(super) yielder: *const Yielder<(), ()>,
}

impl StepCpu {
    fn state(&self) -> &CpuState {
        &self.machine.cpus[self.id.0 as usize]
    }

    /// Lets other CPUs run first if the chooser decides so, then takes interrupts.
    fn step(&self) {
        self.block(Blocked::No);
        self.take_interrupts();
    }

    fn block(&self, why: Blocked) {
        self.state().blocked.set(why);
        // SAFETY: a `StepCpu` lives inside its coroutine's body, which borrows the yielder.
        unsafe { &*self.yielder }.suspend(());
        self.state().blocked.set(Blocked::No);
    }

    pub(super) fn take_interrupts(&self) {
        while self.state().irqs_enabled.get() {
            let Some(handler) = self.state().interrupts.borrow_mut().pop_front() else {
                break;
            };
            self.state().irqs_enabled.set(false);
            handler.run(self);
            self.state().irqs_enabled.set(true);
        }
    }

    /// Posts an interrupt.
    pub fn interrupt(&self, target: CpuId, handler: Job<StepCpu>) {
        self.step();
        self.machine.cpus[target.0 as usize]
            .interrupts
            .borrow_mut()
            .push_back(handler);
    }

    /// Returns whether this CPU has recorded `word`, in which it may have left a trace.
    pub fn has_recorded(&self, word: &StepWord) -> bool {
        self.machine.has_recorded(self.id.0, self.key(word))
    }

    /// Runs `handler` at this point, as a non-maskable interrupt.
    pub fn nmi(&self, handler: impl FnOnce(&StepCpu)) {
        let enabled = self.state().irqs_enabled.replace(false);
        self.state().in_nmi.set(true);
        handler(self);
        self.state().in_nmi.set(false);
        self.state().irqs_enabled.set(enabled);
    }

    /// Compares in one step and stores in another, or in one step while compare-stores are exchanges.
    fn compare_store(&self, word: &StepWord, mask: u32, current: u32, new: u32) -> Result<(), u32> {
        loop {
            self.state().compare_again.set(false);
            if self.changes_over() {
                self.step();
                if self.machine.stores.get() != Stores::Compare {
                    return self.exchange(word, mask, current, new);
                }
            }
            let seen = self.load(word, SC);
            if seen & mask != current {
                return Err(seen & mask);
            }
            self.step();
            if !self.state().compare_again.get() {
                word.0.store(word.0.load(SC) & !mask | new, SC);
                return Ok(());
            }
        }
    }

    fn changes_over(&self) -> bool {
        matches!(
            self.machine.setup.settling,
            Settling::ChangesOver | Settling::ChangesOverAtOnce
        )
    }

    /// An exchange in place of a compare-store. The next one is a compare-store again, unless a changeover is under
    /// way.
    fn exchange(&self, word: &StepWord, mask: u32, current: u32, new: u32) -> Result<(), u32> {
        self.step();
        if self.machine.stores.get() == Stores::Exchange {
            self.machine.stores.set(Stores::Compare);
        }
        self.step();
        let seen = word.0.load(SC);
        if seen & mask != current {
            return Err(seen & mask);
        }
        word.0.store(seen & !mask | new, SC);
        Ok(())
    }

    /// Waits for the compare-stores that have begun, or makes them exchanges before, or finds that they are.
    fn change_over(&self) {
        let stores = &self.machine.stores;
        let before = stores.get();
        if before == Stores::Exchange {
            return;
        }
        stores.set(Stores::Leaving);
        self.step();
        if self.machine.setup.settling == Settling::ChangesOver {
            self.restart_compare_stores();
        }
        self.step();
        if before == Stores::Compare {
            stores.set(Stores::Exchange);
        }
    }

    fn restart_compare_stores(&self) {
        self.machine.cpus.iter().for_each(|cpu| cpu.compare_again.set(true));
    }

    fn halt(&self, why: Blocked) {
        self.state().halts.set(self.state().halts.get() + 1);
        let waits = self.state().waits.take();
        self.state().halted_after.borrow_mut().push(waits);
        let spurious = self.machine.chooser.borrow_mut().spurious();
        let bounded = self.state().bounded.take();
        if !spurious {
            self.block(if bounded { Blocked::Spinning } else { why });
        }
        self.state().kicked.set(false);
    }
}

const SC: Ordering = Ordering::SeqCst;

// SAFETY: one thread runs all CPUs, so every operation is atomic and sequentially consistent; each CPU has its number.
unsafe impl Platform for StepCpu {
    type Word = StepWord;
    type Address = StepAddress;

    fn cpu(&self) -> CpuId {
        self.id
    }
    /// Numbers the words in the order of their first use: addresses differ by process, and with them the collisions in
    /// hash tables.
    fn key(&self, word: &StepWord) -> usize {
        let address = std::ptr::from_ref(word).addr();
        let mut keyed = self.machine.keyed.borrow_mut();
        let index = keyed.iter().position(|&known| known == address).unwrap_or_else(|| {
            keyed.push(address);
            keyed.len() - 1
        });
        (index + 1) * size_of::<StepWord>()
    }
    fn load(&self, word: &StepWord, _: Ordering) -> u32 {
        self.step();
        word.0.load(SC)
    }
    fn store(&self, word: &StepWord, value: u32, _: Ordering) {
        self.step();
        word.0.store(value, SC);
    }
    fn store_low8(&self, word: &StepWord, value: u8, _: Ordering) {
        self.step();
        word.0.store(word.0.load(SC) & !0xff | u32::from(value), SC);
    }
    fn store_low16(&self, word: &StepWord, value: u16, _: Ordering) {
        self.step();
        word.0.store(word.0.load(SC) & !0xffff | u32::from(value), SC);
    }
    fn swap(&self, word: &StepWord, value: u32, _: Ordering) -> u32 {
        self.step();
        word.0.swap(value, SC)
    }
    fn compare_exchange(&self, word: &StepWord, current: u32, new: u32, _: Ordering, _: Ordering) -> Result<u32, u32> {
        self.step();
        word.0.compare_exchange(current, new, SC, SC)
    }
    fn compare_store_low8(&self, word: &StepWord, current: u8, new: u8, order: Ordering) -> Result<(), u8> {
        if self.machine.setup.hosted {
            let stored = self.compare_store(word, 0xff, current.into(), new.into());
            return stored.map_err(|found| found as u8);
        }
        self.compare_exchange_low8(word, current, new, order, order).map(drop)
    }
    fn compare_store_low16(&self, word: &StepWord, current: u16, new: u16, order: Ordering) -> Result<(), u16> {
        if self.machine.setup.hosted {
            let stored = self.compare_store(word, 0xffff, current.into(), new.into());
            return stored.map_err(|found| found as u16);
        }
        self.compare_exchange_low16(word, current, new, order, order).map(drop)
    }
    fn settle(&self) -> bool {
        if self.machine.setup.hosted {
            self.step();
            match self.machine.setup.settling {
                Settling::Waits => self.restart_compare_stores(),
                Settling::ChangesOver | Settling::ChangesOverAtOnce => self.change_over(),
                Settling::Fails => {}
                Settling::Refused | Settling::RefusedInSilence => self.state().bounded.set(true),
            }
        }
        self.machine.setup.hosted
    }
    fn is_unsettled(&self) -> bool {
        self.machine.setup.settling == Settling::Refused
    }
    fn fetch_add(&self, word: &StepWord, value: u32, _: Ordering) -> u32 {
        self.step();
        word.0.fetch_add(value, SC)
    }
    fn fetch_or(&self, word: &StepWord, bits: u32, _: Ordering) -> u32 {
        self.step();
        word.0.fetch_or(bits, SC)
    }
    fn fetch_and(&self, word: &StepWord, bits: u32, _: Ordering) -> u32 {
        self.step();
        word.0.fetch_and(bits, SC)
    }
    fn load_address(&self, word: &StepAddress, _: Ordering) -> usize {
        self.step();
        word.0.load(SC)
    }
    fn store_address(&self, word: &StepAddress, value: usize, _: Ordering) {
        self.step();
        word.0.store(value, SC);
    }
    fn compare_exchange_address(
        &self,
        word: &StepAddress,
        current: usize,
        new: usize,
        _: Ordering,
        _: Ordering,
    ) -> Result<usize, usize> {
        self.step();
        word.0.compare_exchange(current, new, SC, SC)
    }
    fn fence(&self, _: Ordering) {}
    fn relax(&self) {
        self.step();
    }
    fn contention_begin(&self, lock: &StepWord) {
        self.state().contentions.set(self.state().contentions.get() + 1);
        self.state().contending.borrow_mut().push(self.key(lock));
        self.machine.queue.borrow_mut().push(self.id.0);
    }
    fn contention_end(&self, lock: &StepWord) {
        let begun = self.state().contending.borrow_mut().pop();
        assert_eq!(begun, Some(self.key(lock)), "the end of a wait that has not begun");
        let mut queue = self.machine.queue.borrow_mut();
        let place = queue.iter().rposition(|&cpu| cpu == self.id.0).expect("begun");
        queue.remove(place);
        let overtakes = u32::from(place > 0);
        self.machine.overtaken.set(self.machine.overtaken.get() + overtakes);
    }
    fn wait_begins(&self, lock: &StepWord, alone: fn(u32) -> u32) {
        self.state().waiting.borrow_mut().push(self.key(lock));
        self.state().records.set(self.state().records.get() + 1);
        self.state().alone.set(Some(alone));
        let word = alone(lock.0.load(SC));
        assert_eq!((alone(word), alone(0)), (word, 0), "a waiter is left in {word:#x}");
    }
    fn wait_ends(&self) {
        assert!(
            self.state().waiting.borrow_mut().pop().is_some(),
            "a wait has not begun"
        );
    }
    fn count(&self, event: Event) {
        holdfast_locks::Recorder::add(&self.machine.stats, event, 1);
    }
    fn wait_until(
        &self,
        word: &StepWord,
        budget: Budget,
        order: Ordering,
        until: impl Fn(u32) -> bool,
    ) -> Result<u32, u32> {
        let mut spins = 0;
        loop {
            let value = self.load(word, order);
            if until(value) {
                return Ok(value);
            }
            if budget == Budget::UNBOUNDED {
                self.block(Blocked::Word(word, value));
                self.take_interrupts();
            } else if spins == budget.0.min(2) {
                self.state().waits.borrow_mut().push(budget.0);
                // A longer spin would only repeat this step. A CPU that spins in vain repeatedly lets other CPUs run
                // first.
                let spins = &self.state().spins;
                spins.set((spins.get() + 1) % SPINS_MAX);
                if spins.get() == 0 {
                    self.block(Blocked::Spinning);
                }
                return Err(value);
            }
            spins += 1;
        }
    }
}

// SAFETY: handlers run only in `take_interrupts`, and only if interrupts are enabled.
unsafe impl Interrupts for StepCpu {
    fn irq_save(&self) -> bool {
        self.step();
        self.state().irqs_enabled.replace(false)
    }
    fn irq_restore(&self, enabled: bool) {
        self.state().irqs_enabled.set(enabled);
        self.step();
    }
    fn in_nmi(&self) -> bool {
        self.state().in_nmi.get()
    }
}

// SAFETY: the machine has one table, with nodes for each of its CPUs.
unsafe impl Nodes for StepCpu {
    fn nodes(&self) -> &NodeTable<StepWord> {
        &self.machine.nodes
    }
}

impl Numa for StepCpu {
    fn numa_node(&self, cpu: CpuId) -> u32 {
        cpu.0 % self.machine.setup.numa_nodes
    }
    fn monotonic_ns(&self) -> u64 {
        self.machine.steps.get() * 1000
    }
    fn is_urgent(&self) -> bool {
        !self.state().irqs_enabled.get()
    }
}

// SAFETY: `kicked` stays set until a halt consumes it.
unsafe impl Paravirt for StepCpu {
    type Recorder = LockStats;

    fn halt_masked(&self) {
        self.step();
        self.halt(Blocked::HaltMasked);
    }
    fn halt_unmasked(&self) {
        self.step();
        self.halt(Blocked::HaltUnmasked);
        self.state().irqs_enabled.set(true);
        self.take_interrupts();
        self.state().irqs_enabled.set(false);
    }
    fn kick(&self, cpu: CpuId) {
        self.step();
        self.state().kicks.set(self.state().kicks.get() + 1);
        self.machine.cpus[cpu.0 as usize].kicked.set(true);
    }
    fn is_preempted(&self, _: CpuId) -> bool {
        self.machine.setup.preempted
    }
    fn halts_behind_preempted(&self) -> bool {
        self.machine.setup.halts_behind
    }
    fn waiting(&self) -> &WaitTable<StepWord, StepAddress> {
        &self.machine.waiting
    }
    fn spin_threshold(&self) -> Budget {
        Budget(self.machine.setup.threshold)
    }
    fn sharing(&self) -> Sharing {
        if !self.machine.setup.hosted {
            return Sharing::LINUX;
        }
        Sharing {
            newcomer: Budget(1),
            queued: Budget(0),
            head: Budget(1),
        }
    }
    /// Returns `true` every second time.
    fn overtook(&self) -> bool {
        let overtakes = &self.state().overtakes;
        overtakes.set(overtakes.get() + 1);
        self.machine.setup.hosted && overtakes.get().is_multiple_of(2)
    }
    fn nap(&self) {
        assert!(
            self.machine.setup.hosted,
            "a head that does not compete on equal terms naps"
        );
        self.block(Blocked::Spinning);
    }
    fn now_ns(&self) -> u64 {
        self.machine.steps.get()
    }
    fn recorder(&self) -> &LockStats {
        &self.machine.stats
    }
}

// SAFETY: the lines are those of the machine, and the line of a CPU never changes.
unsafe impl Readers for StepCpu {
    fn own_line(&self) -> &ReaderLine<StepAddress> {
        let lines = self.reader_lines();
        &lines[self.id.0 as usize % lines.len()]
    }
    fn reader_lines(&self) -> &[ReaderLine<StepAddress>] {
        &self.machine.reader_lines
    }
    fn biases(&self) -> bool {
        let biases = self.state().biases_next.get();
        self.state().biases_next.set(!biases);
        biases
    }
}
