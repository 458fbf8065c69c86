//! Plays the kernel's part, by writing what the kernel writes: the tests need no kernel with the extension.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicI32, AtomicUsize};
use std::fs;
use std::thread;

use lock_api_04::{RawMutex, RawRwLock, RawRwLockDowngrade};
use proptest::prelude::*;

use super::*;
use crate::raw::RawHybrid;
use crate::slice::Extended;

const ASKED: u16 = 1;
const GRANTED: u16 = 0x100;

/// An area, as the kernel sees it.
#[derive(Debug)]
#[repr(align(32))]
struct Memory(UnsafeCell<[u8; 64]>);

impl Memory {
    const fn new() -> Self {
        Memory(UnsafeCell::new([0; 64]))
    }

    /// Returns the area of the calling thread that is this memory.
    fn area(&self) -> Area {
        let pointer: isize;
        // SAFETY: the first word at the thread pointer is its own address.
        unsafe { asm!("mov {}, fs:0", out(reg) pointer, options(nostack)) };
        // SAFETY: this thread's alone, as `Memory` is `!Sync`, and borrowed in each test for as long as the area is
        // in use.
        unsafe { Area::at((self.0.get() as isize).wrapping_sub(pointer)) }
    }

    fn byte(&self, offset: usize) -> *mut u8 {
        assert!(offset < 64);
        self.0.get().cast::<u8>().wrapping_add(offset)
    }

    fn set_control(&self, control: u16) {
        for (offset, byte) in (REQUEST..).zip(control.to_le_bytes()) {
            // SAFETY: within the memory, which has no reference.
            unsafe { self.byte(offset).write_volatile(byte) };
        }
    }

    fn enable(&self, enabled: bool) {
        // SAFETY: as above.
        unsafe { self.byte(FLAGS).write_volatile(u8::from(enabled) << 5) };
    }
}

/// A kernel that has one thread.
#[derive(Debug, Default)]
struct Played<'a> {
    memory: Option<&'a Memory>,
    /// The error of each further call, or 0.
    error: Cell<i32>,
    enabled: Cell<u32>,
    given_back: Cell<u32>,
}

impl<'a> Played<'a> {
    fn with(memory: &'a Memory) -> Self {
        Played {
            memory: Some(memory),
            ..Self::default()
        }
    }

    fn memory(&self) -> &'a Memory {
        self.memory.expect("made with a memory")
    }

    fn control(&self) -> u16 {
        self.memory().area().control()
    }

    fn result(&self) -> Result<(), i32> {
        match self.error.get() {
            0 => Ok(()),
            error => Err(error),
        }
    }

    /// An interrupt that wants another thread to run. Returns whether the kernel has granted more time instead.
    fn interrupt(&self) -> bool {
        let granted = self.memory().area().is_enabled() && self.control() == ASKED;
        self.memory()
            .set_control(if granted { GRANTED } else { self.control() & !GRANTED });
        granted
    }

    /// Any system call, which ends a grant.
    fn call(&self) {
        assert_eq!(self.control() & ASKED, 0, "a request at a system call");
        self.memory().set_control(0);
    }
}

impl Kernel for Played<'_> {
    fn enable(&self) -> Result<(), i32> {
        self.enabled.set(self.enabled.get() + 1);
        self.result().inspect(|()| self.memory().enable(true))
    }
    fn give_back(&self) -> Result<(), i32> {
        assert_eq!(self.control(), GRANTED, "given back without a grant");
        self.given_back.set(self.given_back.get() + 1);
        self.call();
        self.result()
    }
}

#[test]
fn a_section_asks_and_gives_a_grant_back_once() {
    let memory = Memory::new();
    let (sections, kernel) = (Sections::new(), Played::with(&memory));
    let area = memory.area();
    sections.begin(area, &kernel);
    assert_eq!(kernel.control(), ASKED);
    sections.end(area, &kernel);
    assert_eq!((kernel.control(), kernel.given_back.get()), (0, 0));

    sections.begin(area, &kernel);
    assert!(kernel.interrupt());
    sections.end(area, &kernel);
    assert_eq!((kernel.control(), kernel.given_back.get()), (0, 1));

    sections.begin(area, &kernel);
    assert!(kernel.interrupt());
    assert!(!kernel.interrupt(), "scheduled out: the grant has ended");
    sections.end(area, &kernel);
    assert_eq!((kernel.control(), kernel.given_back.get()), (0, 1));
    assert_eq!(kernel.enabled.get(), 1, "enabled once for each thread");
}

#[test]
fn the_request_stays_until_the_last_of_several_sections_ends() {
    let memory = Memory::new();
    let (sections, kernel) = (Sections::new(), Played::with(&memory));
    let area = memory.area();
    sections.begin(area, &kernel);
    sections.begin(area, &kernel);
    sections.end(area, &kernel);
    assert_eq!(kernel.control(), ASKED);
    assert!(kernel.interrupt());
    sections.begin(area, &kernel);
    assert_eq!(kernel.control(), GRANTED, "a grant is enough");
    kernel.call();
    sections.begin(area, &kernel);
    assert_eq!(
        kernel.control(),
        ASKED,
        "the grant has ended, so a new section asks again"
    );
    sections.end(area, &kernel);
    sections.end(area, &kernel);
    assert_eq!(kernel.control(), ASKED);
    sections.end(area, &kernel);
    assert_eq!((kernel.control(), kernel.given_back.get()), (0, 0));
}

#[test]
fn a_thread_asks_no_more_after_an_error() {
    let memory = Memory::new();
    let area = memory.area();
    let asks = |sections: &Sections, kernel: &Played<'_>| {
        sections.begin(area, kernel);
        let control = kernel.control();
        sections.end(area, kernel);
        control == ASKED
    };
    let (sections, kernel) = (Sections::new(), Played::with(&memory));
    kernel.error.set(libc::ENXIO);
    assert!(!asks(&sections, &kernel));
    kernel.error.set(0);
    memory.enable(true);
    assert!(!asks(&sections, &kernel));
    assert_eq!(kernel.enabled.get(), 1);

    let (sections, kernel) = (Sections::new(), Played::with(&memory));
    sections.begin(area, &kernel);
    assert!(kernel.interrupt());
    kernel.error.set(libc::ENOSYS);
    sections.end(area, &kernel);
    kernel.error.set(0);
    assert!(!asks(&sections, &kernel));
    assert_eq!(kernel.given_back.get(), 1);
}

#[test]
fn each_section_looks_whether_the_extension_is_still_enabled() {
    let memory = Memory::new();
    let (sections, kernel) = (Sections::new(), Played::with(&memory));
    let area = memory.area();
    for enabled in [true, false, true] {
        sections.begin(area, &kernel);
        sections.end(area, &kernel);
        memory.enable(enabled);
        sections.begin(area, &kernel);
        assert_eq!(kernel.control() == ASKED, enabled);
        sections.end(area, &kernel);
        assert_eq!(kernel.control(), 0);
    }
    assert_eq!(kernel.enabled.get(), 1, "enabled against the will of another library");
}

#[test]
fn a_request_of_another_library_is_kept() {
    let memory = Memory::new();
    let (sections, kernel) = (Sections::new(), Played::with(&memory));
    let area = memory.area();
    for theirs in [ASKED, GRANTED] {
        memory.set_control(theirs);
        sections.begin(area, &kernel);
        sections.end(area, &kernel);
        assert_eq!((kernel.control(), kernel.given_back.get()), (theirs, 0));
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Begin,
    End,
    Sleep,
    Interrupt,
    Switch(bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        Just(Step::Begin),
        Just(Step::End),
        Just(Step::Sleep),
        Just(Step::Interrupt),
        any::<bool>().prop_map(Step::Switch),
    ];
    prop::collection::vec(step, 0..60)
}

proptest! {
    /// Whatever happens in whichever order: without a section there is neither request nor grant, nothing is asked at
    /// a system call, and a grant ends once, by being given back or by the kernel.
    #[test]
    fn no_grant_outlives_the_sections(steps in steps()) {
        let memory = Memory::new();
        let (sections, kernel) = (Sections::new(), Played::with(&memory));
        let area = memory.area();
        let mut depth = 0_u32;
        for step in steps {
            let before = (kernel.control(), kernel.given_back.get());
            match step {
                Step::Begin => {
                    sections.begin(area, &kernel);
                    depth += 1;
                }
                Step::End if depth > 0 => {
                    sections.end(area, &kernel);
                    depth -= 1;
                    let due = u32::from(depth == 0 && before.0 == GRANTED);
                    prop_assert_eq!(kernel.given_back.get(), before.1 + due);
                }
                Step::End => {}
                Step::Sleep => sections.outside(area, || kernel.call()),
                Step::Interrupt => _ = kernel.interrupt(),
                Step::Switch(enabled) => memory.enable(enabled),
            }
            prop_assert!(depth > 0 || kernel.control() == 0, "{step:?} leaves {:#x}", kernel.control());
        }
    }
}

/// Returns how often the thread `id` of this process has slept if it sleeps now.
fn sleeps(id: i32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/self/task/{id}/status")).ok()?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let is_asleep = field("State:")?.starts_with('S');
    let slept = field("voluntary_ctxt_switches:")?.parse().ok()?;
    is_asleep.then_some(slept)
}

thread_local! {
    /// At the same distance from the thread pointer in each thread of the test binary.
    static PLAYED: Memory = const { Memory::new() };
}

/// Lets the locks of this process find the played areas.
fn play() {
    AREA.store(PLAYED.with(Memory::area).0, Relaxed);
}

/// Makes the calling thread one for which the kernel has enabled the extension.
fn play_enabled() {
    PLAYED.with(|memory| memory.enable(true));
    SECTIONS.with(|sections| sections.state.set(State::Enabled));
}

#[test]
fn a_waiter_asks_for_nothing_while_it_sleeps_and_asks_when_it_holds() {
    static LOCK: Extended<RawHybrid> = RawMutex::INIT;
    static WAITER: AtomicI32 = AtomicI32::new(0);
    static CONTROL: AtomicUsize = AtomicUsize::new(0);
    play();
    LOCK.lock();
    let waiter = thread::spawn(|| {
        play_enabled();
        CONTROL.store(PLAYED.with(|memory| memory.byte(REQUEST).expose_provenance()), Relaxed);
        // SAFETY: the function has no preconditions.
        WAITER.store(unsafe { libc::gettid() }, Relaxed);
        LOCK.lock();
        let holding = PLAYED.with(Memory::area).control();
        // SAFETY: just locked.
        unsafe { LOCK.unlock() };
        (holding, PLAYED.with(Memory::area).control())
    });
    let mut found = 0;
    // Sleeps of the head of a queue are short, so several looks are needed. The waiter sleeps before each of them and
    // sleeps still after it.
    while found < 3 {
        thread::yield_now();
        let id = WAITER.load(Relaxed);
        let Some(slept) = (id != 0).then(|| sleeps(id)).flatten() else {
            continue;
        };
        let request = core::ptr::with_exposed_provenance::<u8>(CONTROL.load(Relaxed));
        // SAFETY: the waiter's memory: it waits for the lock, which this thread holds.
        let request = unsafe { request.read_volatile() };
        if sleeps(id) == Some(slept) {
            found += 1;
            assert_eq!(request, 0, "asleep with a request");
        }
    }
    // SAFETY: locked above.
    unsafe { LOCK.unlock() };
    assert_eq!(waiter.join().expect("the waiter ends"), (ASKED, 0));
}

/// A lock that looks at the request of the thread that takes it and releases it.
struct Probe;

thread_local! {
    static SEEN: Cell<Vec<u16>> = const { Cell::new(Vec::new()) };
}

impl Probe {
    fn look() {
        let mut seen = SEEN.take();
        seen.push(PLAYED.with(Memory::area).control());
        SEEN.set(seen);
    }
}

// SAFETY: protects no data.
unsafe impl RawMutex for Probe {
    const INIT: Self = Probe;
    type GuardMarker = lock_api_04::GuardNoSend;

    fn lock(&self) {
        Self::look();
    }
    fn try_lock(&self) -> bool {
        Self::look();
        false
    }
    unsafe fn unlock(&self) {
        Self::look();
    }
}

#[test]
fn the_request_is_there_from_before_the_lock_is_taken_until_it_is_released() {
    play();
    let thread = thread::spawn(|| {
        play_enabled();
        let lock = <Extended<Probe> as RawMutex>::INIT;
        lock.lock();
        // SAFETY: just locked.
        unsafe { lock.unlock() };
        let after = PLAYED.with(Memory::area).control();
        assert!(!lock.try_lock());
        (SEEN.take(), after, PLAYED.with(Memory::area).control())
    });
    assert_eq!(thread.join().expect("no panic"), (vec![ASKED; 3], 0, 0));
}

// SAFETY: protects no data.
unsafe impl RawRwLock for Probe {
    const INIT: Self = Probe;
    type GuardMarker = lock_api_04::GuardNoSend;

    fn lock_shared(&self) {
        Self::look();
    }
    fn try_lock_shared(&self) -> bool {
        Self::look();
        false
    }
    unsafe fn unlock_shared(&self) {
        Self::look();
    }
    fn lock_exclusive(&self) {
        Self::look();
    }
    fn try_lock_exclusive(&self) -> bool {
        Self::look();
        false
    }
    unsafe fn unlock_exclusive(&self) {
        Self::look();
    }
}

// SAFETY: as above.
unsafe impl RawRwLockDowngrade for Probe {
    unsafe fn downgrade(&self) {
        Self::look();
    }
}

#[test]
fn readers_and_writers_ask_while_they_hold_and_not_after() {
    play();
    let lock = const { <Extended<Probe> as RawRwLock>::INIT };
    let asks = |uses: &dyn Fn(&Extended<Probe>)| {
        uses(&lock);
        (SEEN.take(), PLAYED.with(Memory::area).control())
    };
    let thread = thread::scope(|scope| {
        let thread = scope.spawn(|| {
            play_enabled();
            let read = asks(&|lock| {
                lock.lock_shared();
                // SAFETY: just locked, here and below.
                unsafe { lock.unlock_shared() };
            });
            let write = asks(&|lock| {
                lock.lock_exclusive();
                // SAFETY: as above.
                unsafe { lock.unlock_exclusive() };
            });
            let downgrade = asks(&|lock| {
                lock.lock_exclusive();
                // SAFETY: as above.
                unsafe { lock.downgrade() };
                // SAFETY: as above.
                unsafe { lock.unlock_shared() };
            });
            let refused = asks(&|lock| assert!(!lock.try_lock_shared() && !lock.try_lock_exclusive()));
            [read, write, downgrade, refused]
        });
        thread.join().expect("no panic")
    });
    assert_eq!(thread, [2, 2, 3, 2].map(|looks| (vec![ASKED; looks], 0)));
}
