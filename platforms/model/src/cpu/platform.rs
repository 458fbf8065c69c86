//! The platform traits of a modeled CPU: each operation is one of its steps.

#![expect(unsafe_code, reason = "implements the platform traits")]

use std::panic::Location;
use std::sync::atomic::Ordering;

use holdfast_locks::{
    Budget, CpuId, Interrupts, NodeTable, Nodes, Numa, Paravirt, Platform, ReaderLine, Readers, Sharing, WaitTable,
};

use super::{BYTE1, Cpu, HIGH16, LOW8, LOW16, narrow};
use crate::checker::{Atomic, Checker, Rmw};
use crate::fault::Role;
use crate::machine::{HALTED, wake};
use crate::trace::Action;
use crate::word::ModelWord;

// SAFETY: a checker's words are atomic and order as asked, except where a test weakens an ordering to see that the
// checker finds it. `Machine::run` runs each CPU once, on one thread.
unsafe impl<C: Checker> Platform for Cpu<C> {
    type Word = ModelWord<C>;
    type Address = ModelWord<C>;

    fn cpu(&self) -> CpuId {
        self.id
    }
    fn key(&self, word: &ModelWord<C>) -> usize {
        word.number as usize
    }
    #[track_caller]
    fn load(&self, word: &ModelWord<C>, order: Ordering) -> u32 {
        if self.inspects {
            return word.atomic.newest();
        }
        let value = word.atomic.load(self.order(Role::Load, order));
        self.note(Action::Load(word.number, value));
        self.take_interrupts();
        value
    }
    #[track_caller]
    fn load_low16(&self, word: &ModelWord<C>, order: Ordering) -> u16 {
        self.load(word, order) as u16
    }
    #[track_caller]
    fn load_byte1(&self, word: &ModelWord<C>, order: Ordering) -> u8 {
        (self.load(word, order) >> 8) as u8
    }
    #[track_caller]
    fn load_high16(&self, word: &ModelWord<C>, order: Ordering) -> u16 {
        (self.load(word, order) >> 16) as u16
    }
    #[track_caller]
    fn store(&self, word: &ModelWord<C>, value: u32, order: Ordering) {
        let changed = word.atomic.store(value, self.order(Role::Store, order));
        self.note(Action::Store(word.number, value));
        if changed {
            self.machine.changed(word);
        }
        self.take_interrupts();
    }
    #[track_caller]
    fn store_low8(&self, word: &ModelWord<C>, value: u8, order: Ordering) {
        self.swap_bits(word, LOW8, value.into(), order);
    }
    #[track_caller]
    fn store_low16(&self, word: &ModelWord<C>, value: u16, order: Ordering) {
        self.swap_bits(word, LOW16, value.into(), order);
    }
    #[track_caller]
    fn store_byte1(&self, word: &ModelWord<C>, value: u8, order: Ordering) {
        self.swap_bits(word, BYTE1, u32::from(value) << 8, order);
    }
    #[track_caller]
    fn swap(&self, word: &ModelWord<C>, value: u32, order: Ordering) -> u32 {
        self.update(word, Rmw::Swap(value), order)
    }
    #[track_caller]
    fn swap_low8(&self, word: &ModelWord<C>, value: u8, order: Ordering) -> u8 {
        self.swap_bits(word, LOW8, value.into(), order) as u8
    }
    #[track_caller]
    fn swap_low16(&self, word: &ModelWord<C>, value: u16, order: Ordering) -> u16 {
        self.swap_bits(word, LOW16, value.into(), order) as u16
    }
    #[track_caller]
    fn swap_high16(&self, word: &ModelWord<C>, value: u16, order: Ordering) -> u16 {
        (self.swap_bits(word, HIGH16, u32::from(value) << 16, order) >> 16) as u16
    }
    #[track_caller]
    fn compare_exchange(
        &self,
        word: &ModelWord<C>,
        current: u32,
        new: u32,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u32, u32> {
        self.exchange_bits(word, u32::MAX, current, new, success, failure)
    }
    #[track_caller]
    fn compare_exchange_low8(
        &self,
        word: &ModelWord<C>,
        current: u8,
        new: u8,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u8, u8> {
        self.exchange_bits(word, LOW8, current.into(), new.into(), success, failure)
            .map(|before| before as u8)
            .map_err(|found| found as u8)
    }
    #[track_caller]
    fn compare_exchange_low16(
        &self,
        word: &ModelWord<C>,
        current: u16,
        new: u16,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u16, u16> {
        self.exchange_bits(word, LOW16, current.into(), new.into(), success, failure)
            .map(|before| before as u16)
            .map_err(|found| found as u16)
    }
    #[track_caller]
    fn compare_store_low8(&self, word: &ModelWord<C>, current: u8, new: u8, order: Ordering) -> Result<(), u8> {
        self.compare_store(word, LOW8, current.into(), new.into(), order)
            .map_err(|found| found as u8)
    }
    #[track_caller]
    fn compare_store_low16(&self, word: &ModelWord<C>, current: u16, new: u16, order: Ordering) -> Result<(), u16> {
        self.compare_store(word, LOW16, current.into(), new.into(), order)
            .map_err(|found| found as u16)
    }
    fn settle(&self) -> bool {
        self.machine.setup.compare_stores && {
            self.restart_others();
            true
        }
    }
    #[track_caller]
    fn fetch_add(&self, word: &ModelWord<C>, value: u32, order: Ordering) -> u32 {
        self.update(word, Rmw::Add(value), order)
    }
    #[track_caller]
    fn fetch_add_high16(&self, word: &ModelWord<C>, value: u16, order: Ordering) -> u32 {
        let before = self.fetch_add(word, u32::from(value) << 16, order);
        if !self.machine.setup.compare_stores {
            return before;
        }
        // A half-word addition, then a load of the other half.
        before & HIGH16 | u32::from(self.load_low16(word, order))
    }
    #[track_caller]
    fn fetch_or(&self, word: &ModelWord<C>, bits: u32, order: Ordering) -> u32 {
        self.update(word, Rmw::Or(bits), order)
    }
    #[track_caller]
    fn fetch_and(&self, word: &ModelWord<C>, bits: u32, order: Ordering) -> u32 {
        self.update(word, Rmw::And(bits), order)
    }
    #[track_caller]
    fn load_address(&self, word: &ModelWord<C>, order: Ordering) -> usize {
        self.load(word, order) as usize
    }
    #[track_caller]
    fn store_address(&self, word: &ModelWord<C>, value: usize, order: Ordering) {
        self.store(word, narrow(value), order);
    }
    #[track_caller]
    fn compare_exchange_address(
        &self,
        word: &ModelWord<C>,
        current: usize,
        new: usize,
        success: Ordering,
        failure: Ordering,
    ) -> Result<usize, usize> {
        self.compare_exchange(word, narrow(current), narrow(new), success, failure)
            .map(|before| before as usize)
            .map_err(|found| found as usize)
    }
    #[track_caller]
    fn fence(&self, order: Ordering) {
        let orderings = &self.machine.setup.orderings;
        if let Some(order) = orderings.of(Location::caller(), Role::Fence, order) {
            self.note(Action::Fence(order));
            C::fence(order);
        }
    }
    fn relax(&self) {
        self.pause();
        self.take_interrupts();
    }
    #[track_caller]
    fn wait_until(
        &self,
        word: &ModelWord<C>,
        budget: Budget,
        order: Ordering,
        until: impl Fn(u32) -> bool,
    ) -> Result<u32, u32> {
        let order = self.order(Role::Wait, order);
        let mut looks = budget.0.min(self.machine.setup.looks_max);
        loop {
            let newest_is_accepted = until(word.atomic.newest());
            if budget == Budget::UNBOUNDED && !newest_is_accepted && !word.atomic.may_read(&until) {
                // No further read can be accepted before the word changes.
                self.await_value(word, &until);
            }
            let value = word.atomic.load(order);
            self.note(Action::Wait(word.number, value));
            if until(value) {
                self.given_up.set(0);
                return Ok(value);
            }
            if budget != Budget::UNBOUNDED {
                if looks == 0 {
                    self.give_up();
                    return Err(value);
                }
                looks -= 1;
            } else if until(word.atomic.newest()) {
                // The read has returned an old value. In another execution it returns the new one.
                C::cut();
                C::pause(self.thread());
            } else {
                self.await_value(word, &until);
            }
            self.take_interrupts();
        }
    }
}

// SAFETY: handlers run only in `take_interrupts`, on this thread, and only if interrupts are enabled.
unsafe impl<C: Checker> Interrupts for Cpu<C> {
    fn irq_save(&self) -> bool {
        self.take_interrupts();
        self.irqs_enabled.replace(false)
    }
    fn irq_restore(&self, enabled: bool) {
        self.irqs_enabled.set(enabled);
        self.take_interrupts();
    }
    fn in_nmi(&self) -> bool {
        self.in_nmi.get()
    }
}

// SAFETY: the machine has one table, with nodes for each of its CPUs.
unsafe impl<C: Checker> Nodes for Cpu<C> {
    fn nodes(&self) -> &NodeTable<ModelWord<C>> {
        &self.machine.nodes
    }
}

impl<C: Checker> Numa for Cpu<C> {
    fn numa_node(&self, cpu: CpuId) -> u32 {
        cpu.0 % self.machine.setup.numa_nodes
    }
    fn monotonic_ns(&self) -> u64 {
        self.now_ns()
    }
    fn is_urgent(&self) -> bool {
        !self.irqs_enabled.get()
    }
}

// SAFETY: `kicked` stays set until a halt consumes it.
unsafe impl<C: Checker> Paravirt for Cpu<C> {
    type Recorder = ();

    #[track_caller]
    fn halt_masked(&self) {
        self.halt(false);
    }
    #[track_caller]
    fn halt_unmasked(&self) {
        self.halt(true);
        self.irqs_enabled.set(true);
        if self.takes_interrupts() {
            // The interrupt that ended the halt has arrived.
            self.newest_posted();
        }
        self.take_interrupts();
        self.irqs_enabled.set(false);
    }
    #[track_caller]
    fn kick(&self, cpu: CpuId) {
        self.note(Action::Kick(cpu));
        let target = &self.machine.cpus[cpu.0 as usize];
        let _ = target.kick.rmw(Rmw::Swap(1), Ordering::Release, Ordering::Relaxed);
        target.kicked.store(true, Ordering::Relaxed);
        self.progressed();
        if target.sleeps_on.load(Ordering::Relaxed) == HALTED {
            wake(target);
        }
    }
    fn is_preempted(&self, _: CpuId) -> bool {
        self.chance()
    }
    fn waiting(&self) -> &WaitTable<ModelWord<C>, ModelWord<C>> {
        &self.machine.waiting
    }
    fn spin_threshold(&self) -> Budget {
        Budget(self.machine.setup.spin_threshold)
    }
    fn sharing(&self) -> Sharing {
        self.machine.setup.sharing
    }
    fn overtook(&self) -> bool {
        self.chance()
    }
    /// Returns the number of readings so far, so that equal executions read equal times.
    fn now_ns(&self) -> u64 {
        self.clock.set(self.clock.get() + 1000);
        self.clock.get()
    }
    fn recorder(&self) -> &() {
        &()
    }
}

// SAFETY: the lines are those of the machine, and the line of a CPU never changes.
unsafe impl<C: Checker> Readers for Cpu<C> {
    fn own_line(&self) -> &ReaderLine<ModelWord<C>> {
        let lines = self.reader_lines();
        &lines[self.id.0 as usize % lines.len()]
    }
    fn reader_lines(&self) -> &[ReaderLine<ModelWord<C>>] {
        &self.machine.reader_lines
    }
    /// Returns `true`, on an odd machine every second time on average.
    fn biases(&self) -> bool {
        self.machine.setup.odds == 0 || C::chance(2)
    }
}
