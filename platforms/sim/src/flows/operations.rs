//! Operations of a flow on shared words, and its waits for them.

#![expect(unsafe_code, reason = "operations are executed at every step (`Handle::engine`)")]

use holdfast_locks::Budget;
use holdfast_machine::{Access, Picos};

use crate::core::cause::Cause;
use crate::engine::Engine;
use crate::engine::handle::Handle;
use crate::memory::park::Woken;
use crate::memory::word::{Shared, SimWord};

impl Handle {
    /// One ordered operation on a word: `change` maps its value to the new one.
    #[inline]
    pub fn operate<T: Copy, R>(&self, word: &Shared<T>, access: Access, change: impl FnOnce(T) -> (Option<T>, R)) -> R {
        self.order();
        // SAFETY: only methods of the engine and of its parts are called.
        let engine = unsafe { self.engine() };
        let line = word.line_in(&mut engine.memory);
        engine.take_line(line, access);
        let (new, result) = change(word.get());
        if let Some(value) = new {
            word.set(value);
        }
        result
    }

    /// One ordered load.
    #[inline]
    pub fn load<T: Copy>(&self, word: &Shared<T>) -> T {
        self.order();
        // SAFETY: only methods of the engine and of its parts are called.
        let engine = unsafe { self.engine() };
        let vcpu = engine.flows.current;
        let line = word.line_in(&mut engine.memory);
        let spent = engine.load(vcpu, line);
        let hit = engine.hardware.costs.load_hit;
        let this = &mut engine.vcpus[vcpu];
        this.flow.clock += spent;
        if this.spin.waiting {
            this.announce_wait(spent);
        } else if this.announced.contending.is_none() {
            let own = this.announced.work_cause();
            let fits = this.announce(own, hit) && this.announce(Cause::CacheTransfer, spent - hit);
            debug_assert!(fits, "pending time was not drained before the load");
        }
        word.get()
    }

    /// Waits until `until` accepts the word's value, for at most `budget` PAUSEs. Returns the last value: `Ok` if it
    /// was accepted.
    pub fn wait(&self, word: &SimWord, budget: Budget, until: impl Fn(u32) -> bool) -> Result<u32, u32> {
        self.set_waiting(true);
        let result = self.spin(word, budget, until);
        self.set_waiting(false);
        result
    }

    fn set_waiting(&self, waiting: bool) {
        self.with(|engine| engine.current().spin.waiting = waiting);
    }

    fn spin(&self, word: &SimWord, budget: Budget, until: impl Fn(u32) -> bool) -> Result<u32, u32> {
        let endless = budget == Budget::UNBOUNDED;
        let mut left = u64::from(budget.0);
        let mut value = self.load(word);
        loop {
            if until(value) {
                return Ok(value);
            }
            if left == 0 {
                return Err(value);
            }
            let seen = self.with(|engine| engine.clock.now);
            self.pause();
            left -= u64::from(!endless);
            // If time has passed, the word may have changed: load it again before parking.
            if self.with(|engine| engine.flows.execute_spins || engine.clock.now != seen) {
                value = self.load(word);
                continue;
            }
            let loads = if endless { u64::MAX } else { left + 1 };
            let resumption = self.park(word, loads, &until);
            left -= if endless { 0 } else { resumption.passed };
            value = match resumption.woken {
                Woken::Read(value) => value,
                Woken::Due => self.load(word),
            };
        }
    }

    /// One PAUSE. It may exit; then the host says whether it is executed again.
    pub fn pause(&self) {
        let exits = |engine: &mut Engine| {
            let this = engine.current();
            this.spin.pauses.pause(this.is_in_kernel(), this.flow.clock)
        };
        while self.with(exits) {
            self.exit(holdfast_host::Exit::Pause);
            if self.with(|engine| std::mem::take(&mut engine.current().spin.skip_pause)) {
                return;
            }
        }
        let (cause, pause) = self.with(|engine| {
            let pause: Picos = engine.hardware.costs.pause;
            (engine.current().announced.wait_cause(), pause)
        });
        self.spend(cause, pause);
    }
}
