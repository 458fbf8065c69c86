//! Tests of one descriptor and one register page, without concurrency.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cell::RefCell;

use super::*;

const DESCRIPTOR: u64 = 0x1000;
const PAGE: u64 = 0x8000;

/// Memory of 32-bit words.
#[derive(Debug, Default)]
struct Words(RefCell<BTreeMap<u64, u32>>);

impl Words {
    fn change(&self, address: u64, change: impl FnOnce(u32) -> u32) -> u32 {
        let mut words = self.0.borrow_mut();
        let word = words.entry(address).or_default();
        core::mem::replace(word, change(*word))
    }
}

impl Memory for Words {
    fn load32(&self, address: u64) -> Option<u32> {
        Some(self.change(address, |word| word))
    }
    fn store32(&self, address: u64, value: u32) {
        self.change(address, |_| value);
    }
    fn set32(&self, address: u64, bits: u32) -> Option<u32> {
        Some(self.change(address, |word| word | bits))
    }
    fn clear32(&self, address: u64, bits: u32) -> Option<u32> {
        Some(self.change(address, |word| word & !bits))
    }
    fn load64(&self, address: u64) -> Option<u64> {
        Some(u64::from(self.load32(address)?) | u64::from(self.load32(address + 4)?) << 32)
    }
    fn store64(&self, address: u64, value: u64) {
        self.store32(address, value as u32);
        self.store32(address + 4, (value >> 32) as u32);
    }
    fn compare_exchange64(&self, address: u64, current: u64, new: u64) -> Option<Result<u64, u64>> {
        let found = self.load64(address)?;
        if found == current {
            self.store64(address, new);
        }
        Some(if found == current { Ok(found) } else { Err(found) })
    }
    fn fence(&self) {}
}

fn descriptor(memory: &Words) -> Descriptor<'_, Words> {
    Descriptor {
        memory,
        address: DESCRIPTOR,
        faults: PostingFaults::default(),
    }
}

/// Returns the vectors in IRR of the page.
fn requested(memory: &Words) -> Vec<u8> {
    let holds = |vector: &u8| {
        let word = u64::from(*vector) / 32;
        memory.load32(PAGE + u64::from(reg::IRR) + word * 16).unwrap_or(0) & 1 << (vector % 32) != 0
    };
    (0..=255).filter(holds).collect()
}

#[test]
fn every_posted_vector_is_requested_once() {
    for vector in 0..=255 {
        let memory = Words::default();
        let descriptor = descriptor(&memory);
        assert!(descriptor.is_empty() && descriptor.sync(PAGE).is_none());
        assert!(!descriptor.holds(vector));
        assert!(descriptor.post(vector), "the first vector notifies");
        assert!(!descriptor.post(vector), "a vector that is posted already does not");
        assert!(
            !descriptor.post(vector ^ 1),
            "nor does another while a notification is outstanding"
        );
        assert!(descriptor.holds(vector) && !descriptor.is_empty());
        assert!((0..=255).all(|other| descriptor.holds(other) == (other | 1 == vector | 1)));
        assert_eq!(descriptor.sync(PAGE), Some(vector | 1));
        assert_eq!(requested(&memory), [vector & !1, vector | 1]);
        assert!(descriptor.is_empty() && descriptor.sync(PAGE).is_none());
    }
}

#[test]
fn vectors_of_all_words_are_moved_together() {
    let memory = Words::default();
    let descriptor = descriptor(&memory);
    let vectors: Vec<u8> = (0..8).map(|word| word * 32 + 3 * word).collect();
    for &vector in &vectors {
        descriptor.post(vector);
    }
    assert_eq!(descriptor.sync(PAGE), vectors.last().copied());
    assert_eq!(requested(&memory), vectors);
}

#[test]
fn forgotten_interrupts_do_not_come_back() {
    let memory = Words::default();
    let descriptor = descriptor(&memory);
    descriptor.load(5);
    (0..=255).for_each(|vector| {
        descriptor.post(vector);
    });
    descriptor.forget();
    assert!(descriptor.is_empty() && descriptor.sync(PAGE).is_none());
    assert_eq!(requested(&memory), []);
    let control = descriptor.control();
    assert_eq!((control.is_on(), control.destination()), (false, 5));
    assert!(descriptor.post(0x61), "the next vector notifies again");
}

#[test]
fn the_vcpus_thread_says_where_notifications_go() {
    let memory = Words::default();
    let descriptor = descriptor(&memory);
    let control = || descriptor.control();
    descriptor.load(7);
    assert_eq!(
        (control().vector(), control().destination()),
        (posted::NOTIFICATION_VECTOR, 7)
    );
    descriptor.preempt();
    assert!(control().is_suppressed());
    // Hardware posts without a notification, and the next load notices.
    memory.set32(DESCRIPTOR + posted::PIR + 4, 1);
    assert!(!control().is_on());
    descriptor.load(9);
    assert!(control().is_on() && !control().is_suppressed());
    assert_eq!(control().destination(), 9);
    // A vCPU about to sleep learns of it.
    assert!(descriptor.block());
    assert_eq!(
        (control().vector(), control().destination()),
        (posted::WAKEUP_VECTOR, 9)
    );
    assert!(control().is_on() && !control().is_suppressed());
    descriptor.sync(PAGE);
    assert!(!descriptor.block());
}
