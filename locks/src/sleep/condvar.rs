//! Condition variables: CPUs wait, without the mutex, until another CPU has changed what the mutex protects.
//!
//! | word | |
//! |---|---|
//! | `lock` | a lock of kind `L`, which protects the lists |
//! | `waiting` | CPU + 1 of the last CPU in the list of waiters, or 0 if the list is empty |
//! | `chained` | the same for the waiters that a broadcast has notified and not woken |
//!
//! A list is a circle in order of arrival. Its links are in the table's slots, one for each CPU.
//!
//! - **No lost notification**: a waiter is in the list before it unlocks the mutex. So a CPU that changes the condition
//!   with the mutex held, and then notifies, finds it there.
//! - **Few at a time**: a broadcast wakes as many waiters as can run, and moves the others to the chain. Each woken
//!   waiter wakes the next one of the chain: at once if the mutex is free, otherwise when it has got the mutex. So
//!   while the mutex is held, no more waiters than can run compete for it, and the others sleep until they can have it.
//!   This is what moving them to the mutex's queue achieves (Linux: `FUTEX_CMP_REQUEUE`), but for every kind of mutex.
//!   Waiters with another mutex than the first one's are woken at once: their progress must not depend on that mutex.
//! - **One answer**: only a CPU that holds `lock` takes a waiter out of a list. So a waiter whose time is up either
//!   takes itself out, or has been notified, and says so.

use alloc::boxed::Box;
use core::fmt;
use core::marker::PhantomData;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::cpu::paravirt::{Paravirt, halt_while};
use crate::cpu::platform::{Budget, CpuId, Platform, Word};
use crate::cpu::steps::{AllSteps, Steps};
use crate::raw::RawLock;

/// How long a CPU that cannot halt waits before it looks again. A thread yields its CPU twice in that time (see
/// [`wait_until`](crate::sleep::thread::wait_until)). On a busy machine each yield may take a time slice of another program.
const GLANCE: Budget = Budget(68);

/// The waiter is in the list of waiters.
const WAITING: u32 = 0;
/// The waiter is in the chain.
const CHAINED: u32 = 1;
/// The waiter is in no list, and wakes.
const WOKEN: u32 = 2;

/// The place of a CPU in a list.
#[derive(Debug)]
#[repr(align(64))]
pub struct CondvarSlot<W, A> {
    /// CPU + 1 of the neighbors in the list.
    next: W,
    prev: W,
    state: W,
    /// The key of the mutex.
    mutex: A,
}

impl<W, A> CondvarSlot<W, A> {
    /// Makes an unused slot of words, which must be zero. Usable in a `static`.
    pub const fn from_words(next: W, prev: W, state: W, mutex: A) -> Self {
        CondvarSlot {
            next,
            prev,
            state,
            mutex,
        }
    }
}

/// The slots of all CPUs. A CPU waits for one condition variable at a time, so it must not be interrupted by code that
/// waits for one.
#[derive(Debug)]
pub struct CondvarTable<W: 'static, A: 'static> {
    slots: Slots<W, A>,
}

#[derive(Debug)]
enum Slots<W: 'static, A: 'static> {
    Owned(Box<[CondvarSlot<W, A>]>),
    Static(&'static [CondvarSlot<W, A>]),
}

impl<W, A> CondvarTable<W, A> {
    /// Makes a table of unused slots, of which those in use take up memory. Usable in a `static`.
    pub const fn from_static(slots: &'static [CondvarSlot<W, A>]) -> Self {
        CondvarTable {
            slots: Slots::Static(slots),
        }
    }

    fn at(&self, code: u32) -> &CondvarSlot<W, A> {
        let slots: &[_] = match &self.slots {
            Slots::Owned(slots) => slots,
            Slots::Static(slots) => slots,
        };
        &slots[code as usize - 1]
    }
}

impl<W: Word<u32>, A: Word<usize>> CondvarTable<W, A> {
    /// Makes unused slots for `cpus` CPUs, 64 bytes for each.
    pub fn new(cpus: usize) -> Self {
        let slot = |_| {
            let slot = CondvarSlot::from_words(W::new(0), W::new(0), W::new(0), A::new(0));
            let line = slot.next.line();
            slot.prev.place(line);
            slot.state.place(line);
            slot.mutex.place(line);
            slot
        };
        CondvarTable {
            slots: Slots::Owned((0..cpus).map(slot).collect()),
        }
    }
}

const fn encode(cpu: CpuId) -> u32 {
    cpu.0 + 1
}

const fn decode(code: u32) -> CpuId {
    CpuId(code - 1)
}

/// A condition variable. All calls for one must be given the same table. `L` is the kind of the lock that protects the
/// lists, `S` the steps that it takes.
pub struct Condvar<W, L, S = AllSteps> {
    lock: W,
    waiting: W,
    chained: W,
    algorithm: PhantomData<fn() -> (L, S)>,
}

impl<W, L, S> Condvar<W, L, S> {
    /// Makes a condition variable of three words, which must be zero. Usable in a `static`.
    pub const fn from_words(lock: W, waiting: W, chained: W) -> Self {
        Condvar {
            lock,
            waiting,
            chained,
            algorithm: PhantomData,
        }
    }

    /// Makes a condition variable for which no CPU waits.
    pub fn new() -> Self
    where
        W: Word<u32>,
    {
        let new = Self::from_words(W::new(0), W::new(0), W::new(0));
        let line = new.lock.line();
        new.waiting.place(line);
        new.chained.place(line);
        new
    }
}

impl<W: Word<u32>, L, S> Default for Condvar<W, L, S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<W, L, S: Steps> Condvar<W, L, S> {
    /// Unlocks `mutex`, which the caller must hold by a lock of kind `M`, and waits until it is notified or its time is
    /// up. Then takes `mutex` again. Returns `false` if the caller was not notified. May return `true` for no reason on
    /// a CPU that cannot halt.
    ///
    /// `expired` is called before each halt and returns whether the time is up. It must see to it that the halt ends
    /// when it would return `true`.
    pub fn wait<P, M>(
        &self,
        cpu: &P,
        table: &CondvarTable<W, P::Address>,
        mutex: &W,
        mut expired: impl FnMut() -> bool,
    ) -> bool
    where
        P: Paravirt<Word = W>,
        L: RawLock<P>,
        M: RawLock<P>,
    {
        if cpu.in_nmi() {
            return self.wait_without_halt::<P, M>(cpu, mutex, expired);
        }
        if !S::ENLIST_FIRST {
            M::unlock(cpu, mutex);
        }
        self.enlist(cpu, table, cpu.key(mutex));
        if S::ENLIST_FIRST {
            M::unlock(cpu, mutex);
        }
        let me = table.at(encode(cpu.cpu()));
        // ORDERING: Acquire; pairs with the Release in `wake`: the slot's next use follows the waker's last one.
        let notified = loop {
            if cpu.load(&me.state, Acquire) == WOKEN {
                break true;
            }
            if expired() {
                break self.leave(cpu, table);
            }
            // ORDERING: Relaxed; the loop acquires.
            halt_while::<P, S>(cpu, || cpu.load(&me.state, Relaxed) != WOKEN);
        };
        let waits_for_mutex = M::is_locked(cpu, mutex);
        if notified && S::PASS_ON && !waits_for_mutex {
            self.pass_on(cpu, table, cpu.key(mutex));
        }
        M::lock(cpu, mutex);
        if notified && S::PASS_ON && waits_for_mutex {
            self.pass_on(cpu, table, cpu.key(mutex));
        }
        notified
    }

    /// Gives other CPUs time to change the condition. The caller looks again, whether it was notified or not.
    fn wait_without_halt<P, M>(&self, cpu: &P, mutex: &W, mut expired: impl FnMut() -> bool) -> bool
    where
        P: Paravirt<Word = W>,
        M: RawLock<P>,
    {
        M::unlock(cpu, mutex);
        // ORDERING: Relaxed; nothing is read.
        let _ = cpu.wait_until(&self.waiting, GLANCE, Relaxed, |_| false);
        let notified = !expired();
        M::lock(cpu, mutex);
        notified
    }

    /// Appends the caller to the list of waiters.
    fn enlist<P>(&self, cpu: &P, table: &CondvarTable<W, P::Address>, mutex: usize)
    where
        P: Paravirt<Word = W>,
        L: RawLock<P>,
    {
        let code = encode(cpu.cpu());
        let me = table.at(code);
        // ORDERING: Relaxed, here and for everything in the lists; the lock orders it.
        cpu.store_address(&me.mutex, mutex, Relaxed);
        cpu.store(&me.state, WAITING, Relaxed);
        L::lock(cpu, &self.lock);
        push(cpu, table, &self.waiting, code);
        L::unlock(cpu, &self.lock);
    }

    /// Takes the caller, whose time is up, out of its list: **One answer**. Returns whether it was notified before.
    fn leave<P>(&self, cpu: &P, table: &CondvarTable<W, P::Address>) -> bool
    where
        P: Paravirt<Word = W>,
        L: RawLock<P>,
    {
        let code = encode(cpu.cpu());
        L::lock(cpu, &self.lock);
        // ORDERING: Relaxed; the lock orders it.
        let state = cpu.load(&table.at(code).state, Relaxed);
        match state {
            WAITING => remove(cpu, table, &self.waiting, code),
            CHAINED => remove(cpu, table, &self.chained, code),
            _ => {}
        }
        L::unlock(cpu, &self.lock);
        state != WAITING && S::LEAVE_RECHECK
    }

    /// Wakes the first waiter of the chain whose mutex is `mutex`: **Few at a time**.
    fn pass_on<P>(&self, cpu: &P, table: &CondvarTable<W, P::Address>, mutex: usize)
    where
        P: Paravirt<Word = W>,
        L: RawLock<P>,
    {
        // ORDERING: Relaxed; the broadcast made the chain before it woke the caller, or is the caller.
        if cpu.load(&self.chained, Relaxed) == 0 {
            return;
        }
        L::lock(cpu, &self.lock);
        // ORDERING: Relaxed; the lock orders it.
        let is_next = |code| cpu.load_address(&table.at(code).mutex, Relaxed) == mutex;
        let next = codes(cpu, table, &self.chained).find(|&code| is_next(code));
        if let Some(code) = next {
            remove(cpu, table, &self.chained, code);
            wake(cpu, table, code);
        }
        L::unlock(cpu, &self.lock);
        if let Some(code) = next {
            kick::<P, S>(cpu, code);
        }
    }

    /// Notifies the waiter that has waited for longest. Returns `false` if no CPU waits.
    pub fn notify_one<P>(&self, cpu: &P, table: &CondvarTable<W, P::Address>) -> bool
    where
        P: Paravirt<Word = W>,
        L: RawLock<P>,
    {
        // ORDERING: Relaxed; **No lost notification**: the mutex orders it.
        if cpu.load(&self.waiting, Relaxed) == 0 {
            return false;
        }
        L::lock(cpu, &self.lock);
        let first = pop(cpu, table, &self.waiting);
        if let Some(code) = first {
            wake(cpu, table, code);
        }
        L::unlock(cpu, &self.lock);
        if let Some(code) = first {
            kick::<P, S>(cpu, code);
        }
        first.is_some()
    }

    /// Notifies all waiters, of which `at_once` wake now, and the others **few at a time**. Returns how many there
    /// were.
    pub fn notify_all<P>(&self, cpu: &P, table: &CondvarTable<W, P::Address>, at_once: u32) -> u32
    where
        P: Paravirt<Word = W>,
        L: RawLock<P>,
    {
        // ORDERING: Relaxed; as in `notify_one`.
        if cpu.load(&self.waiting, Relaxed) == 0 {
            return 0;
        }
        L::lock(cpu, &self.lock);
        let mut count = 0;
        let mut first = None;
        while let Some(code) = pop(cpu, table, &self.waiting) {
            count += 1;
            // ORDERING: Relaxed, both; the lock orders them.
            let mutex = cpu.load_address(&table.at(code).mutex, Relaxed);
            match first {
                None => first = Some((code, mutex)),
                Some((_, of_first)) if of_first == mutex => {
                    cpu.store(&table.at(code).state, CHAINED, Relaxed);
                    push(cpu, table, &self.chained, code);
                }
                Some(_) => {
                    wake(cpu, table, code);
                    kick::<P, S>(cpu, code);
                }
            }
        }
        if let Some((code, _)) = first {
            wake(cpu, table, code);
        }
        L::unlock(cpu, &self.lock);
        if let Some((code, mutex)) = first {
            kick::<P, S>(cpu, code);
            (1..at_once.min(count)).for_each(|_| self.pass_on(cpu, table, mutex));
        }
        count
    }
}

impl<W, L, S> fmt::Debug for Condvar<W, L, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Condvar").finish_non_exhaustive()
    }
}

/// Lets the waiter, which is in no list, go on once it is kicked. From here on its slot is its own.
fn wake<P: Platform>(cpu: &P, table: &CondvarTable<P::Word, P::Address>, code: u32) {
    // ORDERING: Release; pairs with the Acquire in `Condvar::wait`.
    cpu.store(&table.at(code).state, WOKEN, Release);
}

fn kick<P: Paravirt, S: Steps>(cpu: &P, code: u32) {
    if S::KICK {
        cpu.kick(decode(code));
    }
}

/// Appends `code` to the list whose last member is in `last`.
fn push<P: Platform>(cpu: &P, table: &CondvarTable<P::Word, P::Address>, last: &P::Word, code: u32) {
    let me = table.at(code);
    // ORDERING: Relaxed, here and below; the condition variable's lock orders it.
    let before = match cpu.load(last, Relaxed) {
        0 => code,
        before => before,
    };
    let first = if before == code {
        code
    } else {
        cpu.load(&table.at(before).next, Relaxed)
    };
    cpu.store(&me.next, first, Relaxed);
    cpu.store(&me.prev, before, Relaxed);
    cpu.store(&table.at(before).next, code, Relaxed);
    cpu.store(&table.at(first).prev, code, Relaxed);
    cpu.store(last, code, Relaxed);
}

/// Removes `code` from the list whose last member is in `last`.
fn remove<P: Platform>(cpu: &P, table: &CondvarTable<P::Word, P::Address>, last: &P::Word, code: u32) {
    let me = table.at(code);
    let [next, prev] = [&me.next, &me.prev].map(|link| cpu.load(link, Relaxed));
    if next == code {
        cpu.store(last, 0, Relaxed);
        return;
    }
    cpu.store(&table.at(prev).next, next, Relaxed);
    cpu.store(&table.at(next).prev, prev, Relaxed);
    if cpu.load(last, Relaxed) == code {
        cpu.store(last, prev, Relaxed);
    }
}

/// Removes the first member of the list and returns it.
fn pop<P: Platform>(cpu: &P, table: &CondvarTable<P::Word, P::Address>, last: &P::Word) -> Option<u32> {
    let first = codes(cpu, table, last).next()?;
    remove(cpu, table, last, first);
    Some(first)
}

/// Returns the members of the list, which must not change meanwhile.
fn codes<'a, P: Platform>(
    cpu: &'a P,
    table: &'a CondvarTable<P::Word, P::Address>,
    last: &P::Word,
) -> impl Iterator<Item = u32> + use<'a, P> {
    let next = |code: u32| cpu.load(&table.at(code).next, Relaxed);
    let last = cpu.load(last, Relaxed);
    let first = (last != 0).then(|| next(last));
    core::iter::successors(first, move |&code| (code != last).then(|| next(code)))
}
