//! A reader-writer lock that counts its holders, and CPUs that use it.

#![expect(unsafe_code, reason = "plants faults")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use holdfast_locks::conformance::Job;
use holdfast_locks::{AllSteps, Budget, CpuId, Platform, PvQspin, Qrwlock, RawLock, Steps, Word};

use crate::scenes::job;
use crate::steps::{StepCpu, StepWord};

/// Defines a set of steps with one left out.
macro_rules! without {
    ($fault:ident, $step:ident) => {
        pub struct $fault;
        // SAFETY: the tests protect no memory with these locks.
        unsafe impl Steps for $fault {
            const $step: bool = false;
        }
    };
}
without!(NoRecheck, RECHECK);
without!(NoKick, KICK);
without!(NoBlock, BLOCK);

pub const WRITER: u32 = 1;
pub const BLOCKED: u32 = 2;
pub const HEAD: u32 = 0xfffc;
pub const READER: u32 = 1 << 16;
/// Readers that fit: one bit of the count says that there are too many.
pub const READERS_MAX: u32 = 32_767;

/// A lock, and what its holders are. `Q` is the kind of the queue.
pub struct Shared<Q = PvQspin, S = AllSteps> {
    pub lock: Qrwlock<StepWord, Q, S>,
    pub readers: AtomicU32,
    pub writers: AtomicU32,
    /// CPU `n` may come once this is at least `n`.
    pub turn: StepWord,
}

impl<Q: RawLock<StepCpu> + 'static, S: Steps + 'static> Shared<Q, S> {
    pub fn new(state: u32) -> Arc<Self> {
        Arc::new(Shared {
            lock: Qrwlock::from_words(StepWord::new(state), StepWord::new(0)),
            readers: AtomicU32::new(0),
            writers: AtomicU32::new(0),
            turn: StepWord::new(0),
        })
    }

    pub fn state(&self, cpu: &StepCpu) -> u32 {
        cpu.load(self.lock.word(), Relaxed)
    }

    /// Waits until `until` accepts the state.
    pub fn wait_for(&self, cpu: &StepCpu, until: impl Fn(u32) -> bool) {
        let _ = cpu.wait_until(self.lock.word(), Budget::UNBOUNDED, Relaxed, until);
    }

    pub fn wait_for_turn(&self, cpu: &StepCpu, turn: u32) {
        let _ = cpu.wait_until(&self.turn, Budget::UNBOUNDED, Relaxed, |now| now >= turn);
    }

    pub fn read(&self, cpu: &StepCpu, body: impl FnOnce()) {
        self.lock.lock_shared(cpu);
        self.as_reader(cpu, body);
        self.lock.unlock_shared(cpu);
    }

    pub fn write(&self, cpu: &StepCpu, body: impl FnOnce()) {
        self.lock.lock_exclusive(cpu);
        self.as_writer(cpu, body);
        self.lock.unlock_exclusive(cpu);
    }

    pub fn as_reader(&self, cpu: &StepCpu, body: impl FnOnce()) {
        self.readers.fetch_add(1, Relaxed);
        assert!(self.lock.is_locked(cpu), "a lock that a reader holds is free");
        assert!(!self.lock.is_locked_exclusive(cpu), "a reader next to a writer");
        assert_eq!(self.writers.load(Relaxed), 0, "a reader next to a writer");
        body();
        self.readers.fetch_sub(1, Relaxed);
    }

    pub fn as_writer(&self, cpu: &StepCpu, body: impl FnOnce()) {
        assert_eq!(self.writers.fetch_add(1, Relaxed), 0, "two writers");
        assert!(self.lock.is_locked(cpu) && self.lock.is_locked_exclusive(cpu));
        assert_eq!(self.readers.load(Relaxed), 0, "a writer next to a reader");
        body();
        self.writers.fetch_sub(1, Relaxed);
    }
}

/// Each CPU takes the lock `times` times: the first `writers` CPUs to write, the next one writes and downgrades, the
/// others read.
pub fn mixture<Q, S>(cpus: u32, writers: u32, times: u32) -> Vec<(CpuId, Job<StepCpu>)>
where
    Q: RawLock<StepCpu> + 'static,
    S: Steps + 'static,
{
    let shared = Shared::<Q, S>::new(0);
    let each = |number: u32| {
        let shared = Arc::clone(&shared);
        let body = move |cpu: &StepCpu| {
            for _ in 0..times {
                if number < writers {
                    shared.write(cpu, || ());
                } else if number == writers {
                    shared.lock.lock_exclusive(cpu);
                    shared.as_writer(cpu, || ());
                    shared.lock.downgrade(cpu);
                    shared.as_reader(cpu, || ());
                    shared.lock.unlock_shared(cpu);
                } else {
                    shared.read(cpu, || ());
                }
            }
        };
        (CpuId(number), job(body))
    };
    (0..cpus).map(each).collect()
}
