//! A modeled CPU: the `Platform` of the locks over any checker.
//!
//! - **Every step is a choice**: each operation on a word, each halt, each kick and each check for interrupts is a
//!   point where the checker may let another CPU run first. There are no other such points.
//! - **Waits do not spin forever**: an unbounded wait reads its word once for each change of the word. A bounded one
//!   reads it a few times and gives up. The omitted reads would repeat a step without effect. A wait that can never end
//!   is reported.
//! - **A kick orders as little as the contract allows**: the halt that it ends acquires what was written before the
//!   kick, and nothing else. Interrupts order nothing.
//! - **Sub-word operations are one step** on the whole word, as on a machine that has them.

mod futexes;
mod platform;

use std::cell::Cell as StdCell;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use holdfast_locks::conformance::Job;
use holdfast_locks::{CpuId, Platform};

use crate::checker::{Atomic, Checker, Rmw};
use crate::fault::Role;
use crate::machine::{CpuState, HALTED, Machine, wake};
use crate::trace::{self, Action};
use crate::word::ModelWord;

const LOW8: u32 = 0x0000_00ff;
const BYTE1: u32 = 0x0000_ff00;
const LOW16: u32 = 0x0000_ffff;
const HIGH16: u32 = 0xffff_0000;

/// A CPU of a [`Machine`], on the thread that executes its job.
pub struct Cpu<C: Checker> {
    id: CpuId,
    machine: Arc<Machine<C>>,
    irqs_enabled: StdCell<bool>,
    in_nmi: StdCell<bool>,
    interrupts_taken: StdCell<u32>,
    /// The number of bounded waits that ended in vain since the last successful one, or since the last halt.
    given_up: StdCell<u32>,
    /// The number of turns without progress of any CPU, and the machine's progress counter during them.
    idle: StdCell<(u32, u64)>,
    /// The machine's progress counter at the last PAUSE.
    paused_at: StdCell<u64>,
    clock: StdCell<u64>,
    /// Whether this CPU only reads memory after all jobs have ended: its loads are not steps.
    inspects: bool,
}

impl<C: Checker> fmt::Debug for Cpu<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cpu").field("id", &self.id).finish_non_exhaustive()
    }
}

impl<C: Checker> Cpu<C> {
    /// Makes CPU `id` on the calling thread.
    pub(crate) fn new(machine: Arc<Machine<C>>, id: CpuId) -> Self {
        let cpu = Cpu::unstarted(machine, id, false);
        let is_first = cpu.state().thread.set(C::current()).is_ok();
        assert!(is_first, "cannot run two jobs on CPU {}", id.0);
        cpu
    }

    /// Makes a CPU that reads the memory of a machine whose CPUs have stopped.
    pub fn inspector(machine: Arc<Machine<C>>) -> Self {
        Cpu::unstarted(machine, CpuId(0), true)
    }

    fn unstarted(machine: Arc<Machine<C>>, id: CpuId, inspects: bool) -> Self {
        Cpu {
            id,
            machine,
            irqs_enabled: true.into(),
            in_nmi: false.into(),
            interrupts_taken: 0.into(),
            given_up: 0.into(),
            idle: (0, 0).into(),
            paused_at: u64::MAX.into(),
            clock: 0.into(),
            inspects,
        }
    }

    /// Runs `job`, then takes the interrupts that have arrived.
    pub(crate) fn play(self, job: Job<Self>) {
        job.run(&self);
        self.take_interrupts();
    }

    /// Runs `handler` at this point, as a non-maskable interrupt.
    pub fn nmi(&self, handler: impl FnOnce(&Self)) {
        let enabled = self.irqs_enabled.replace(false);
        self.in_nmi.set(true);
        handler(self);
        self.in_nmi.set(false);
        self.irqs_enabled.set(enabled);
    }

    #[track_caller]
    fn note(&self, action: Action) {
        trace::note(self.id, action, Location::caller());
    }

    /// Posts an interrupt to `target`. Does nothing on a machine without interrupts.
    #[track_caller]
    pub fn interrupt(&self, target: CpuId, handler: Job<Self>) {
        if !self.takes_interrupts() {
            return;
        }
        self.note(Action::Post(target));
        let target = &self.machine.cpus[target.0 as usize];
        let handlers = &target.interrupts;
        let _ = target.posted.rmw(Rmw::Add(1), Ordering::Relaxed, Ordering::Relaxed);
        handlers.lock().expect("no holder panics").push_back(handler);
        self.progressed();
        if target.sleeps_on.load(Ordering::Relaxed) != 0 {
            wake(target);
        }
    }

    pub(crate) fn takes_interrupts(&self) -> bool {
        self.machine.setup.interrupts
    }

    fn thread(&self) -> &C::Thread {
        self.state().thread.get().expect("set at the beginning of `play`")
    }

    fn state(&self) -> &CpuState<C> {
        &self.machine.cpus[self.id.0 as usize]
    }

    fn progressed(&self) {
        self.machine.progress.fetch_add(1, Ordering::Relaxed);
    }

    fn has_interrupts(&self) -> bool {
        !self.state().interrupts.lock().expect("no holder panics").is_empty()
    }

    /// Takes the interrupts that have arrived. The checker explores when each one arrives.
    fn take_interrupts(&self) {
        if !self.takes_interrupts() {
            return;
        }
        while self.irqs_enabled.get() && self.state().posted.load(Ordering::Relaxed) > self.interrupts_taken.get() {
            let handler = self.state().interrupts.lock().expect("no holder panics").pop_front();
            let handler = handler.expect("as many handlers as were posted");
            self.interrupts_taken.set(self.interrupts_taken.get() + 1);
            self.irqs_enabled.set(false);
            self.note(Action::Handler);
            handler.run(self);
            self.note(Action::HandlerEnd);
            self.irqs_enabled.set(true);
        }
    }

    /// Fails the execution if no CPU has made progress for many of the caller's turns.
    fn count_turn(&self) {
        let Some(turns_max) = C::IDLE_TURNS_MAX else { return };
        let progress = self.machine.progress.load(Ordering::Relaxed);
        let (idle, seen) = self.idle.get();
        let idle = if progress == seen { idle + 1 } else { 0 };
        self.idle.set((idle, progress));
        assert!(idle < turns_max, "no progress: CPU {} waits in vain", self.id.0);
    }

    /// Lets other CPUs run before the caller repeats a step. A first repetition may have effects, a second one has
    /// none.
    fn pause(&self) {
        let progress = self.machine.progress.load(Ordering::Relaxed);
        if self.paused_at.replace(progress) == progress {
            C::cut();
        }
        C::pause(self.thread());
        self.count_turn();
    }

    /// Sleeps as long as `asleep` returns true. The CPU must be woken when that changes.
    ///
    /// Without `orders` the caller acquires nothing. But if the checker gives it the turn of another CPU, the caller
    /// blocks: then the checker knows that it cannot run and explores the other CPUs in its place. In such executions
    /// the wait acquires more than it should. What that hides is found in the other executions.
    fn sleep_while(&self, on: u32, orders: bool, asleep: impl Fn() -> bool) {
        let state = self.state();
        state.sleeps_on.store(on, Ordering::Relaxed);
        let mut blocks = orders;
        while asleep() {
            if blocks {
                C::block(self.thread());
            } else {
                C::sleep(self.thread());
                self.count_turn();
                blocks = C::is_out_of_turn(self.thread());
            }
        }
        state.sleeps_on.store(0, Ordering::Relaxed);
    }

    /// Waits for a value of `word` that `until` accepts, or for an interrupt that can be taken.
    fn await_value(&self, word: &ModelWord<C>, until: impl Fn(u32) -> bool) {
        let interruptible = self.takes_interrupts() && self.irqs_enabled.get();
        self.sleep_while(word.number, false, || {
            !(until(word.atomic.newest()) || interruptible && self.has_interrupts())
        });
        if interruptible {
            self.newest_posted();
        }
    }

    /// Ends a bounded wait in vain. A CPU that only waits again must let other CPUs run first.
    fn give_up(&self) {
        let given_up = self.given_up.get();
        if given_up > 0 {
            self.pause();
        }
        self.given_up.set(given_up + 1);
    }

    /// Sleeps until a kick, which it consumes, or if `unmasked` until an interrupt, which stays pending.
    #[track_caller]
    fn halt(&self, unmasked: bool) {
        let state = self.state();
        self.note(Action::Halt);
        self.given_up.set(0);
        if self.chance() {
            return;
        }
        let interruptible = unmasked && self.takes_interrupts();
        let kicked = || state.kicked.load(Ordering::Relaxed);
        let orders = self.machine.setup.kick_orders;
        self.sleep_while(HALTED, orders, || !(kicked() || interruptible && self.has_interrupts()));
        self.note(Action::Wake);
        let order = if orders { Ordering::AcqRel } else { Ordering::Relaxed };
        let _ = state.kick.rmw(Rmw::Swap(0), order, Ordering::Relaxed);
        state.kicked.store(false, Ordering::Relaxed);
    }

    /// Returns how many interrupts have been posted, arrived or not. For a later load they have all arrived.
    fn newest_posted(&self) -> u32 {
        let posted = self
            .state()
            .posted
            .rmw(Rmw::Or(0), Ordering::Relaxed, Ordering::Relaxed);
        posted.unwrap_or_else(|found| found)
    }

    fn chance(&self) -> bool {
        match self.machine.setup.odds {
            0 => false,
            odds => C::chance(odds),
        }
    }

    #[track_caller]
    fn order(&self, role: Role, order: Ordering) -> Ordering {
        let orderings = &self.machine.setup.orderings;
        orderings
            .of(Location::caller(), role, order)
            .expect("only fences are left out")
    }

    #[track_caller]
    fn rmw(&self, word: &ModelWord<C>, change: Rmw, success: Ordering, failure: Ordering) -> Result<u32, u32> {
        let success = self.order(Role::Rmw, success);
        let failure = self.order(Role::Failure, failure);
        let result = word.atomic.rmw(change, success, failure);
        self.note(Action::Rmw(word.number, change, result));
        if let Ok(before) = result
            && change.apply(before) != Some(before)
        {
            self.machine.changed(word);
        }
        self.take_interrupts();
        result
    }

    /// Executes a read-modify-write that cannot fail, and returns the previous value.
    #[track_caller]
    fn update(&self, word: &ModelWord<C>, change: Rmw, order: Ordering) -> u32 {
        self.rmw(word, change, order, Ordering::Relaxed)
            .unwrap_or_else(|before| before)
    }

    /// Replaces the bits of `mask` by `new` and returns the previous value of the whole word.
    #[track_caller]
    fn swap_bits(&self, word: &ModelWord<C>, mask: u32, new: u32, order: Ordering) -> u32 {
        let current = None;
        self.update(word, Rmw::Masked { mask, current, new }, order)
    }

    #[track_caller]
    fn exchange_bits(
        &self,
        word: &ModelWord<C>,
        mask: u32,
        current: u32,
        new: u32,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u32, u32> {
        let current = Some(current);
        self.rmw(word, Rmw::Masked { mask, current, new }, success, failure)
    }
}

// Compare-stores in two steps, and the operation that waits for them.
impl<C: Checker> Cpu<C> {
    /// Compares, then stores. On a machine without compare-stores this is one exchange. On a machine with them it is
    /// two steps, and the store overwrites changes in between unless a [`restart`](Cpu::restart_others) prevents it.
    #[track_caller]
    fn compare_store(
        &self,
        word: &ModelWord<C>,
        mask: u32,
        current: u32,
        new: u32,
        order: Ordering,
    ) -> Result<(), u32> {
        if !self.machine.setup.compare_stores {
            let result = self.exchange_bits(word, mask, current, new, order, Ordering::Relaxed);
            return result.map(drop);
        }
        let comparing = &self.state().comparing;
        loop {
            comparing.store(true, Ordering::Relaxed);
            let found = self.load(word, Ordering::Relaxed) & mask;
            if found != current {
                comparing.store(false, Ordering::Relaxed);
                return Err(found);
            }
            // Other CPUs may run before this step. The store that follows belongs to it.
            let restarts = &self.state().restarts;
            let _ = restarts.rmw(Rmw::Or(0), Ordering::Acquire, Ordering::Relaxed);
            if comparing.swap(false, Ordering::Relaxed) {
                let order = self.order(Role::Rmw, order);
                let current = None;
                let before = C::same_step(|| {
                    let before = word
                        .atomic
                        .rmw(Rmw::Masked { mask, current, new }, order, Ordering::Relaxed);
                    let _ = restarts.rmw(Rmw::Or(0), Ordering::Release, Ordering::Relaxed);
                    before
                });
                self.note(Action::Rmw(word.number, Rmw::Masked { mask, current, new }, before));
                self.machine.changed(word);
                self.take_interrupts();
                return Ok(());
            }
        }
    }

    /// Makes every CPU that has compared but not yet stored compare again and see what this CPU has written. This CPU
    /// sees what the others have stored. (Linux: `membarrier(2)` with `PRIVATE_EXPEDITED_RSEQ`.)
    fn restart_others(&self) {
        C::fence(Ordering::SeqCst);
        for (index, other) in self.machine.cpus.iter().enumerate() {
            if index != self.id.0 as usize {
                let _ = other.restarts.rmw(Rmw::Add(1), Ordering::AcqRel, Ordering::Relaxed);
                other.comparing.store(false, Ordering::Relaxed);
            }
        }
        C::fence(Ordering::SeqCst);
    }
}

/// Returns a key as a 32-bit word holds it.
fn narrow(key: usize) -> u32 {
    u32::try_from(key).expect("a key fits 32 bits")
}
