//! Telling the VMM: records in shared memory, and a doorbell.

#![expect(unsafe_code, reason = "memory shared with the VMM")]

use alloc::format;
use alloc::string::String;
use core::fmt;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use holdfast_protocol::layout::{DOORBELL, RING, RING_BYTES};
use holdfast_protocol::{Crash, Message, RING_HEADER_BYTES, encode, record_bytes};

use crate::instructions::{cli, interrupts_enabled, outb, sti, stop};
use crate::percpu;

/// The ring as the guest sees it. The VMM reads it while a CPU rings the doorbell, and never writes but `read`.
struct Ring {
    written: &'static AtomicU64,
    read: &'static AtomicU64,
    records: *mut u8,
}

/// Whose turn it is: a flag of its own, not one of the locks under test, and nothing that could wait for a kick.
static BUSY: AtomicBool = AtomicBool::new(false);

fn ring() -> Ring {
    let header = RING as usize;
    let word = |offset: usize| {
        // SAFETY: the ring is mapped, aligned to a page, and accessed as atomics here and by the VMM.
        unsafe { AtomicU64::from_ptr(core::ptr::with_exposed_provenance_mut(header + offset)) }
    };
    Ring {
        written: word(0),
        read: word(8),
        records: core::ptr::with_exposed_provenance_mut(header + RING_HEADER_BYTES as usize),
    }
}

impl Ring {
    fn copy(&self, at: u64, bytes: &[u8]) {
        for (index, &byte) in (at..).zip(bytes) {
            let place = (index % u64::from(RING_BYTES)) as usize;
            // SAFETY: within the ring; the VMM reads it only after `written` says so.
            unsafe { self.records.wrapping_add(place).write_volatile(byte) };
        }
    }

    fn push(&self, payload: &[u8]) {
        let bytes = record_bytes(payload.len() as u64);
        // ORDERING: Relaxed; only the holder of the turn writes it.
        let written = self.written.load(Relaxed);
        // ORDERING: Acquire; what the VMM has read may be overwritten.
        if written + bytes - self.read.load(Acquire) > u64::from(RING_BYTES) {
            // The VMM reads all before this CPU goes on.
            outb(DOORBELL, 0);
        }
        self.copy(written, &(payload.len() as u32).to_le_bytes());
        self.copy(written + 4, payload);
        // ORDERING: Release; publishes the record.
        self.written.store(written + bytes, Release);
    }
}

/// Interrupts are masked meanwhile.
fn in_turn(body: impl FnOnce(&Ring)) {
    let enabled = interrupts_enabled();
    cli();
    // ORDERING: Acquire and Release; a turn passes the ring on.
    while BUSY.swap(true, Acquire) {
        core::hint::spin_loop();
    }
    body(&ring());
    BUSY.store(false, Release);
    if enabled {
        sti();
    }
}

/// Reports `message`, some time.
pub(crate) fn report(message: &Message) {
    let payload = encode(message);
    in_turn(|ring| ring.push(&payload));
}

/// Reports `message` at once: the VMM has it when this returns.
pub(crate) fn report_now(message: &Message) {
    report(message);
    outb(DOORBELL, 0);
}

/// Writes nonsense: for tests of the VMM.
pub(crate) fn corrupt() {
    in_turn(|ring| ring.written.store(u64::MAX, Release));
    outb(DOORBELL, 0);
}

fn last_words(message: String, crash: Option<Crash>) {
    cli();
    // Whoever had its turn may be the one that fails.
    // ORDERING: Release; see `in_turn`.
    BUSY.store(false, Release);
    let cpu = percpu::this().number.get();
    report_now(&Message::Panic { cpu, message, crash });
}

/// The code has given up, and says why. The VMM ends the run.
pub fn panicked(message: fmt::Arguments<'_>) -> ! {
    last_words(format!("{message}"), None);
    stop()
}

/// An exception.
pub(crate) fn crashed(crash: Crash) {
    let name = match crash.vector {
        0 => "divide error",
        1 => "debug",
        2 => "nmi",
        3 => "breakpoint",
        6 => "invalid opcode",
        8 => "double fault",
        12 => "stack fault",
        13 => "general protection",
        14 => "page fault",
        _ => "exception",
    };
    last_words(format!("{name} (vector {})", crash.vector), Some(crash));
}
