//! Scenarios of interrupts, and what they share: memory whose racing words loom orders, and the waiting thread.

mod avic;
mod posting;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool as StdAtomicBool, Ordering as StdOrdering};

use ::loom::sync::Notify;
use ::loom::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use ::loom::sync::atomic::{AtomicU32, AtomicU64, fence};
use holdfast_abi::Memory;

pub use avic::{AvicScenario, Sender, Waiting};
pub use posting::PostingScenario;

/// How a word of 64 bits changes: by stores or by exchanges, never by both. See `src/loom.rs`, **A store after a
/// read-modify-write is later**.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Stored,
    Exchanged,
    Never,
}

/// A word of 128 bits. Loom's word holds the index of the value among all values that were stored.
struct Quad {
    number: AtomicU64,
    values: Mutex<Vec<[u64; 2]>>,
}

/// Host-physical memory. The words that race are named when the memory is made. All other 32-bit words are zero, and
/// each of them belongs to one thread.
#[derive(Default)]
pub(crate) struct LoomMemory {
    words: BTreeMap<u64, AtomicU32>,
    doubles: BTreeMap<u64, (Change, AtomicU64)>,
    quads: BTreeMap<u64, Quad>,
    private: Mutex<BTreeMap<u64, u32>>,
}

impl LoomMemory {
    /// Adds a 32-bit word of zero whose bits are set and cleared.
    pub(crate) fn with_bits(mut self, address: u64) -> Self {
        self.words.insert(address, AtomicU32::new(0));
        self
    }

    fn with_double(mut self, address: u64, value: u64, change: Change) -> Self {
        self.doubles.insert(address, (change, AtomicU64::new(value)));
        self
    }

    /// Adds a 64-bit word that is changed by stores.
    pub(crate) fn with_stored(self, address: u64, value: u64) -> Self {
        self.with_double(address, value, Change::Stored)
    }

    /// Adds a 64-bit word that is changed by exchanges.
    pub(crate) fn with_exchanged(self, address: u64, value: u64) -> Self {
        self.with_double(address, value, Change::Exchanged)
    }

    /// Adds a 64-bit word that is never changed.
    pub(crate) fn with_constant(self, address: u64, value: u64) -> Self {
        self.with_double(address, value, Change::Never)
    }

    /// Adds a 128-bit word that is stored in one step.
    pub(crate) fn with_quad(mut self, address: u64, value: [u64; 2]) -> Self {
        let quad = Quad {
            number: AtomicU64::new(0),
            values: Mutex::new(vec![value]),
        };
        self.quads.insert(address, quad);
        self
    }

    fn private(&self, address: u64, change: impl FnOnce(u32) -> u32) -> u32 {
        let mut words = self.private.lock().expect("no holder panics");
        let word = words.entry(address).or_insert(0);
        std::mem::replace(word, change(*word))
    }

    fn double(&self, address: u64, change: Option<Change>) -> &AtomicU64 {
        match self.doubles.get(&address) {
            Some((is, word)) if change.is_none_or(|change| change == *is) => word,
            Some((is, _)) => panic!("cannot change the word at {address:#x} this way: it is declared as {is:?}"),
            None => panic!("cannot access {address:#x}: no word was declared there"),
        }
    }
}

impl Memory for LoomMemory {
    fn load32(&self, address: u64) -> Option<u32> {
        Some(match self.words.get(&address) {
            Some(word) => word.load(Acquire),
            None => self.private(address, |word| word),
        })
    }
    fn store32(&self, address: u64, value: u32) {
        assert!(
            !self.words.contains_key(&address),
            "cannot access {address:#x} as private memory: it is declared as a shared word"
        );
        self.private(address, |_| value);
    }
    fn set32(&self, address: u64, bits: u32) -> Option<u32> {
        Some(match self.words.get(&address) {
            Some(word) => word.fetch_or(bits, AcqRel),
            None => self.private(address, |word| word | bits),
        })
    }
    fn clear32(&self, address: u64, bits: u32) -> Option<u32> {
        Some(match self.words.get(&address) {
            Some(word) => word.fetch_and(!bits, AcqRel),
            None => self.private(address, |word| word & !bits),
        })
    }
    fn load64(&self, address: u64) -> Option<u64> {
        Some(self.double(address, None).load(Acquire))
    }
    fn store64(&self, address: u64, value: u64) {
        self.double(address, Some(Change::Stored)).store(value, Release);
    }
    fn compare_exchange64(&self, address: u64, current: u64, new: u64) -> Option<Result<u64, u64>> {
        let word = self.double(address, Some(Change::Exchanged));
        Some(word.compare_exchange(current, new, AcqRel, Acquire))
    }
    fn load128(&self, address: u64) -> Option<[u64; 2]> {
        let quad = self.quads.get(&address)?;
        let number = quad.number.load(Acquire);
        let values = quad.values.lock().expect("no holder panics");
        Some(values[number as usize])
    }
    fn store128(&self, address: u64, value: [u64; 2]) {
        let quad = self.quads.get(&address).expect("there is a word of 128 bits");
        let number = {
            let mut values = quad.values.lock().expect("no holder panics");
            values.push(value);
            values.len() as u64 - 1
        };
        quad.number.store(number, Release);
    }
    fn fence(&self) {
        fence(SeqCst);
    }
}

/// The memory as a CPU model accesses it that executes fences, or does not.
pub(crate) struct HardwareMemory<'m> {
    pub(crate) memory: &'m LoomMemory,
    pub(crate) fences: bool,
}

impl Memory for HardwareMemory<'_> {
    fn load32(&self, address: u64) -> Option<u32> {
        self.memory.load32(address)
    }
    fn store32(&self, address: u64, value: u32) {
        self.memory.store32(address, value);
    }
    fn set32(&self, address: u64, bits: u32) -> Option<u32> {
        self.memory.set32(address, bits)
    }
    fn clear32(&self, address: u64, bits: u32) -> Option<u32> {
        self.memory.clear32(address, bits)
    }
    fn load64(&self, address: u64) -> Option<u64> {
        self.memory.load64(address)
    }
    fn store64(&self, address: u64, value: u64) {
        self.memory.store64(address, value);
    }
    fn compare_exchange64(&self, address: u64, current: u64, new: u64) -> Option<Result<u64, u64>> {
        self.memory.compare_exchange64(address, current, new)
    }
    fn load128(&self, address: u64) -> Option<[u64; 2]> {
        self.memory.load128(address)
    }
    fn store128(&self, address: u64, value: [u64; 2]) {
        self.memory.store128(address, value);
    }
    fn fence(&self) {
        if self.fences {
            self.memory.fence();
        }
    }
}

/// An interrupt line into a pCPU.
pub(crate) struct Line(AtomicU32);

impl Line {
    pub(crate) fn new() -> Line {
        Line(AtomicU32::new(0))
    }

    pub(crate) fn pull(&self) {
        self.0.swap(1, AcqRel);
    }

    /// Returns whether the line was raised since the last call.
    pub(crate) fn take(&self) -> bool {
        self.0.swap(0, AcqRel) == 1
    }
}

/// The vCPU's thread, which other threads wake.
pub(crate) struct Waiter {
    /// 1 while the thread sleeps or is about to sleep.
    sleeping: AtomicU32,
    /// The wakeup as the sleeping thread sees it, which orders nothing.
    woken: StdAtomicBool,
    /// Whether an event has arrived for which the thread may wait.
    notify: Notify,
}

impl Waiter {
    pub(crate) fn new() -> Waiter {
        Waiter {
            sleeping: AtomicU32::new(0),
            woken: StdAtomicBool::new(false),
            notify: Notify::new(),
        }
    }

    /// Announces that the thread is about to sleep, by an exchange, like the kernel's `set_current_state` on x86. (Loom
    /// does not order a plain store after another thread's exchange.) A fence follows, unless it is left out.
    pub(crate) fn prepare(&self, fences: bool) {
        self.sleeping.swap(1, Release);
        if fences {
            fence(SeqCst);
        }
    }

    /// Sleeps until woken.
    pub(crate) fn sleep(&self) {
        while !self.woken.swap(false, StdOrdering::Relaxed) {
            self.notify.wait();
        }
    }

    /// Announces that the thread does not sleep.
    pub(crate) fn finish(&self) {
        self.sleeping.swap(0, AcqRel);
    }

    /// Wakes the thread if it sleeps. Returns whether it slept.
    pub(crate) fn wake(&self) -> bool {
        fence(SeqCst);
        let slept = self.sleeping.compare_exchange(1, 0, AcqRel, Relaxed).is_ok();
        if slept {
            self.woken.store(true, StdOrdering::Relaxed);
            self.notify.notify();
        }
        slept
    }

    /// Reports an event for which the thread may wait while it is awake.
    pub(crate) fn notify(&self) {
        self.notify.notify();
    }

    /// Waits, awake, for such an event.
    pub(crate) fn wait(&self) {
        self.notify.wait();
    }
}
