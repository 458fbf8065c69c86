//! Reports to the VMM: records in shared memory, and a doorbell.

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

/// The guest's side of the ring. The VMM reads the ring while a CPU rings the doorbell, and writes only `read`.
struct Ring {
    written: &'static AtomicU64,
    read: &'static AtomicU64,
    records: *mut u8,
}

/// Set while a CPU writes to the ring. It is a plain flag and not one of the locks under test, so no waiter needs a
/// kick.
static BUSY: AtomicBool = AtomicBool::new(false);

fn ring() -> Ring {
    let header = RING as usize;
    let word = |offset: usize| {
        // SAFETY: the ring is mapped and aligned to a page. Guest and VMM access this word as an atomic.
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
            // SAFETY: the address is within the ring. The VMM reads the byte only after `written` covers it.
            unsafe { self.records.wrapping_add(place).write_volatile(byte) };
        }
    }

    fn push(&self, payload: &[u8]) {
        let bytes = record_bytes(payload.len() as u64);
        // ORDERING: Relaxed; only the CPU that holds `BUSY` writes it.
        let written = self.written.load(Relaxed);
        // ORDERING: Acquire; pairs with the VMM's Release. Bytes that the VMM has read may be overwritten.
        if written + bytes - self.read.load(Acquire) > u64::from(RING_BYTES) {
            // The VMM reads the whole ring before this CPU continues.
            outb(DOORBELL, 0);
        }
        self.copy(written, &(payload.len() as u32).to_le_bytes());
        self.copy(written + 4, payload);
        // ORDERING: Release; pairs with the VMM's Acquire and publishes the record.
        self.written.store(written + bytes, Release);
    }
}

/// Calls `body` with the ring while no other CPU uses it. Interrupts are masked meanwhile.
fn in_turn(body: impl FnOnce(&Ring)) {
    let enabled = interrupts_enabled();
    cli();
    // ORDERING: Acquire and Release; each CPU sees the ring as the last one left it.
    while BUSY.swap(true, Acquire) {
        core::hint::spin_loop();
    }
    body(&ring());
    BUSY.store(false, Release);
    if enabled {
        sti();
    }
}

/// Adds `message` to the ring. The VMM reads it at the next doorbell.
pub(crate) fn report(message: &Message) {
    let payload = encode(message);
    in_turn(|ring| ring.push(&payload));
}

/// Reports `message` at once: the VMM has read it when this returns.
pub(crate) fn report_now(message: &Message) {
    report(message);
    outb(DOORBELL, 0);
}

/// Writes an impossible length, for tests of the VMM.
pub(crate) fn corrupt() {
    in_turn(|ring| ring.written.store(u64::MAX, Release));
    outb(DOORBELL, 0);
}

/// Writes `bytes` after the last record and claims that `claimed` more bytes are written, for tests of the VMM.
pub(crate) fn overwrite(claimed: u64, bytes: &[u8]) {
    in_turn(|ring| {
        // ORDERING: as in `push`.
        let written = ring.written.load(Relaxed);
        ring.copy(written, bytes);
        ring.written.store(written.wrapping_add(claimed), Release);
    });
    outb(DOORBELL, 0);
}

fn last_words(message: String, crash: Option<Crash>) {
    cli();
    // The CPU that holds `BUSY` may be the one that fails, so the flag is cleared.
    // ORDERING: Release; as in `in_turn`.
    BUSY.store(false, Release);
    let cpu = percpu::this().number.get();
    report_now(&Message::Panic { cpu, message, crash });
}

/// Reports a panic with `message` and stops the CPU. The VMM then ends the run.
pub fn panicked(message: fmt::Arguments<'_>) -> ! {
    last_words(format!("{message}"), None);
    stop()
}

/// Reports an exception.
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
