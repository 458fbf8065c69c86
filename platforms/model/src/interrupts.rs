//! What scenarios of interrupts share: memory that loom orders where threads race, and the thread that waits.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool as StdAtomicBool, Ordering as StdOrdering};

use ::loom::sync::Notify;
use ::loom::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use ::loom::sync::atomic::{AtomicU32, AtomicU64, fence};
use holdfast_abi::Memory;

/// How a word of 64 bits changes. Never in both ways: see `loom.rs`, **A store after a read-modify-write is later**.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Stored,
    Exchanged,
    Never,
}

/// A word of 128 bits: loom's is the number of the value among all that were stored.
struct Quad {
    number: AtomicU64,
    values: Mutex<Vec<[u64; 2]>>,
}

/// Host-physical memory. Words that race are named when it is made; all others of 32 bits are one thread's own, and
/// zero.
#[derive(Default)]
pub(crate) struct LoomMemory {
    words: BTreeMap<u64, AtomicU32>,
    doubles: BTreeMap<u64, (Change, AtomicU64)>,
    quads: BTreeMap<u64, Quad>,
    private: Mutex<BTreeMap<u64, u32>>,
}

impl LoomMemory {
    /// With a word of 32 bits, zero, whose bits are set and cleared.
    pub(crate) fn with_bits(mut self, address: u64) -> Self {
        self.words.insert(address, AtomicU32::new(0));
        self
    }

    fn with_double(mut self, address: u64, value: u64, change: Change) -> Self {
        self.doubles.insert(address, (change, AtomicU64::new(value)));
        self
    }

    /// With a word of 64 bits that is stored.
    pub(crate) fn with_stored(self, address: u64, value: u64) -> Self {
        self.with_double(address, value, Change::Stored)
    }

    /// With a word of 64 bits that is exchanged.
    pub(crate) fn with_exchanged(self, address: u64, value: u64) -> Self {
        self.with_double(address, value, Change::Exchanged)
    }

    /// With a word of 64 bits that nobody changes.
    pub(crate) fn with_constant(self, address: u64, value: u64) -> Self {
        self.with_double(address, value, Change::Never)
    }

    /// With a word of 128 bits that is stored in one step.
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
            Some((is, _)) => panic!("{address:#x} is changed otherwise: {is:?}"),
            None => panic!("nothing is at {address:#x}"),
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
        assert!(!self.words.contains_key(&address), "{address:#x} is changed bit by bit");
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

/// The memory as a part accesses it that fences, or does not.
pub(crate) struct Part<'m> {
    pub(crate) memory: &'m LoomMemory,
    pub(crate) fences: bool,
}

impl Memory for Part<'_> {
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

/// A line into a pCPU that is pulled, and looked at.
pub(crate) struct Line(AtomicU32);

impl Line {
    pub(crate) fn new() -> Line {
        Line(AtomicU32::new(0))
    }

    pub(crate) fn pull(&self) {
        self.0.swap(1, AcqRel);
    }

    /// Whether it was pulled since the last look.
    pub(crate) fn take(&self) -> bool {
        self.0.swap(0, AcqRel) == 1
    }
}

/// The vCPU's thread as others wake it.
pub(crate) struct Waiter {
    /// 1 while it sleeps, or is about to.
    sleeping: AtomicU32,
    /// Says so to the thread itself, and orders nothing.
    woken: StdAtomicBool,
    /// Something came that it may wait for.
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

    /// Says that it is about to sleep: an exchange, as the kernel's `set_current_state` is on x86; loom orders no plain
    /// store after another's exchange. With a fence behind it, unless that is left out.
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

    /// Says that it does not sleep.
    pub(crate) fn finish(&self) {
        self.sleeping.swap(0, AcqRel);
    }

    /// Wakes it if it sleeps.
    pub(crate) fn wake(&self) -> bool {
        fence(SeqCst);
        let slept = self.sleeping.compare_exchange(1, 0, AcqRel, Relaxed).is_ok();
        if slept {
            self.woken.store(true, StdOrdering::Relaxed);
            self.notify.notify();
        }
        slept
    }

    /// Something came that it may wait for, awake.
    pub(crate) fn notify(&self) {
        self.notify.notify();
    }

    /// Waits for that.
    pub(crate) fn wait(&self) {
        self.notify.wait();
    }
}
