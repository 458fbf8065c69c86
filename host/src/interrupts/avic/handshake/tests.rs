//! Tests of each step alone: what it leaves in memory, and on which side of its fence.

use alloc::vec::Vec;
use core::cell::{Cell, RefCell};

use super::*;

const PAGE: u64 = 0x8000;
const ENTRY: u64 = 0x1000;

/// What a step did to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Did {
    /// Wrote the entry: whether it says that the vCPU runs, and the host's ID.
    Entry(bool, u32),
    /// Set or cleared bits of the register at this offset of the page.
    Set(u64, u32),
    Clear(u64, u32),
    Fence,
    /// Read whether a doorbell reaches the vCPU, its mode, or its requests.
    Look,
    Mode,
    Active(bool),
}

/// A vCPU and the memory that others know it by.
struct Vcpu {
    entry: Cell<u64>,
    did: RefCell<Vec<Did>>,
    in_guest: bool,
    active: bool,
    request: bool,
    /// What each word of IRR was before.
    irr: u32,
}

impl Vcpu {
    fn new() -> Vcpu {
        Vcpu {
            entry: Cell::new(PhysicalEntry::new(PAGE).0),
            did: RefCell::new(Vec::new()),
            in_guest: true,
            active: true,
            request: false,
            irr: 0,
        }
    }

    fn note(&self, did: Did) {
        self.did.borrow_mut().push(did);
    }

    fn tables(&self, ipiv: bool) -> Tables<'_, Vcpu> {
        Tables {
            memory: self,
            page: PAGE,
            entry: ENTRY,
            ipiv,
            driver: AvicDriver::Now,
            faults: AvicFaults::default(),
        }
    }

    /// Returns what `step` did.
    fn does(&self, step: impl FnOnce(&Vcpu)) -> Vec<Did> {
        step(self);
        self.did.take()
    }
}

impl Memory for Vcpu {
    fn load32(&self, _: u64) -> Option<u32> {
        Some(0)
    }
    fn store32(&self, _: u64, _: u32) {
        panic!("a store could lose what hardware sets");
    }
    fn set32(&self, address: u64, bits: u32) -> Option<u32> {
        self.note(Did::Set(address - PAGE, bits));
        Some(self.irr)
    }
    fn clear32(&self, address: u64, bits: u32) -> Option<u32> {
        self.note(Did::Clear(address - PAGE, bits));
        Some(0)
    }
    fn load64(&self, address: u64) -> Option<u64> {
        assert_eq!(address, ENTRY);
        Some(self.entry.get())
    }
    fn store64(&self, address: u64, value: u64) {
        assert_eq!(address, ENTRY);
        self.entry.set(value);
        let entry = PhysicalEntry(value);
        assert!(entry.is_valid() && entry.backing_page() == PAGE);
        self.note(Did::Entry(entry.is_running(), entry.host_id()));
    }
    fn compare_exchange64(&self, _: u64, _: u64, _: u64) -> Option<Result<u64, u64>> {
        None
    }
    fn fence(&self) {
        self.note(Did::Fence);
    }
}

impl Presence for Vcpu {
    fn is_in_guest(&self) -> bool {
        self.note(Did::Look);
        self.in_guest
    }
    fn set_in_guest(&self) {
        self.note(Did::Mode);
    }
    fn claim_exit(&self) -> bool {
        self.note(Did::Look);
        self.in_guest
    }
    fn is_active(&self) -> bool {
        self.active
    }
    fn set_active(&self, active: bool) {
        self.note(Did::Active(active));
    }
    fn has_request(&self) -> bool {
        self.note(Did::Look);
        self.request
    }
    fn cpu(&self) -> Option<u32> {
        Some(7)
    }
}

#[test]
fn a_vcpu_is_running_from_load_to_put_unless_it_blocks() {
    let vcpu = Vcpu::new();
    let tables = vcpu.tables(true);
    assert_eq!(vcpu.does(|_| tables.load(7, false)), [Did::Entry(true, 7)]);
    assert_eq!(vcpu.does(|_| tables.put()), [Did::Entry(false, 7)]);
    assert_eq!(vcpu.does(|_| tables.load(9, true)), [], "only a wakeup ends its sleep");
    assert_eq!(vcpu.does(|_| tables.unblocking(9)), [Did::Entry(true, 9)]);
    // Before it reads its IRR, others can see that it sleeps.
    assert_eq!(vcpu.does(|_| tables.blocking()), [Did::Entry(false, 9), Did::Fence]);
}

#[test]
fn hardware_never_sees_it_running_where_it_would_act_on_a_stale_bit() {
    let vcpu = Vcpu::new();
    let tables = vcpu.tables(false);
    assert_eq!(vcpu.does(|_| tables.load(7, false)), [Did::Entry(false, 7)]);
    assert_eq!(vcpu.does(|_| tables.unblocking(8)), [Did::Entry(false, 8)]);
    assert_eq!(
        vcpu.does(|vcpu| activate(&tables, vcpu, 9)),
        [Did::Active(true), Did::Entry(false, 9)]
    );
}

#[test]
fn each_side_writes_then_fences_then_reads() {
    let vcpu = Vcpu::new();
    let tables = vcpu.tables(true);
    // A page's TMR and IRR, then the mode.
    let sent = vcpu.does(|vcpu| assert_eq!(deliver(&tables, vcpu, 0x41, false, None), Notice::Doorbell(7)));
    let [tmr, irr] = [Did::Clear(0x1a0, 2), Did::Set(0x220, 2)];
    assert_eq!(sent, [tmr, irr, Did::Fence, Did::Look]);
    let entered = vcpu.does(|vcpu| assert!(enter(vcpu, vcpu, AvicFaults::default())));
    assert_eq!(entered, [Did::Mode, Did::Fence, Did::Look]);
    assert_eq!(vcpu.does(|vcpu| assert!(kick(vcpu, vcpu))), [Did::Fence, Did::Look]);
    let ended = vcpu.does(|vcpu| deactivate(&tables, vcpu));
    assert_eq!(ended, [Did::Active(false), Did::Entry(false, 0), Did::Fence]);
}

#[test]
fn a_vcpu_with_a_request_does_not_enter() {
    let mut vcpu = Vcpu::new();
    vcpu.request = true;
    assert!(!enter(&vcpu, &vcpu, AvicFaults::default()));
}

#[test]
fn a_notice_goes_where_the_vcpu_can_get_it() {
    // In guest mode, hardware virtualizes its LAPIC, IsRunning, the sender's own pCPU.
    let cases = [
        (true, true, true, None, [Notice::Doorbell(7), Notice::Doorbell(7)]),
        (true, true, true, Some(7), [Notice::Unneeded, Notice::Doorbell(7)]),
        (true, true, true, Some(6), [Notice::Doorbell(7), Notice::Doorbell(7)]),
        (false, true, true, None, [Notice::Wake, Notice::Doorbell(7)]),
        (false, true, false, None, [Notice::Wake, Notice::Wake]),
        (true, false, true, None, [Notice::Kick, Notice::Kick]),
        (false, false, false, None, [Notice::Kick, Notice::Kick]),
    ];
    for (in_guest, active, running, here, expected) in cases {
        for (driver, expected) in [AvicDriver::Now, AvicDriver::Linux4_7].into_iter().zip(expected) {
            let mut vcpu = Vcpu::new();
            (vcpu.in_guest, vcpu.active) = (in_guest, active);
            let tables = Tables {
                driver,
                ..vcpu.tables(true)
            };
            if running {
                tables.load(7, false);
            }
            assert_eq!(deliver(&tables, &vcpu, 0x41, true, here), expected, "{driver:?}");
            let again = match expected {
                // The first driver rings only for its own interrupts.
                Notice::Doorbell(_) if driver == AvicDriver::Linux4_7 => Notice::Unneeded,
                same => same,
            };
            assert_eq!(complete(&tables, &vcpu, here), again, "{driver:?}");
        }
    }
}

#[test]
fn a_request_sets_the_vectors_bits_of_irr_and_tmr_and_says_whether_it_is_new() {
    for vector in 0..=255u8 {
        let (word, bit) = (u64::from(vector / 32) * 16, 1 << (vector % 32));
        for (irr, is_new) in [(0, true), (!bit, true), (bit, false)] {
            let vcpu = Vcpu { irr, ..Vcpu::new() };
            for (level, tmr) in [
                (true, Did::Set(0x180 + word, bit)),
                (false, Did::Clear(0x180 + word, bit)),
            ] {
                // Bits of an entry that are no address are ignored.
                let entry = PAGE | PhysicalEntry::IS_RUNNING | 7;
                let did = vcpu.does(|vcpu| assert_eq!(request(vcpu, entry, vector, level), is_new));
                assert_eq!(did, [tmr, Did::Set(0x200 + word, bit)]);
            }
        }
    }
}
