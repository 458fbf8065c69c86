//! Reports to the VMM, and its start signal.

use alloc::string::ToString;
use core::arch::asm;
use core::fmt;

use holdfast_protocol::layout::{REPORT, START_LINE};
use holdfast_protocol::{Message, encode};

use crate::system::sleep;

/// Reports `message` to the VMM. Only the first thread may call this, after `use_ports`.
pub(crate) fn report(message: &Message) {
    let payload = encode(message);
    out(&(payload.len() as u32).to_le_bytes());
    out(&payload);
}

fn out(bytes: &[u8]) {
    // SAFETY: the instruction reads `bytes` only. Without permission for the port the kernel ends the process and the
    // guest.
    unsafe {
        asm!(
            "rep outsb",
            in("dx") REPORT,
            inout("rsi") bytes.as_ptr() => _,
            inout("rcx") bytes.len() => _,
            options(nostack, preserves_flags, readonly),
        );
    }
}

/// Returns whether all guests of the run are ready.
pub(crate) fn at_start_line() -> bool {
    let ready: u8;
    // SAFETY: the instruction accesses no memory. For the port's permission see `out`.
    unsafe { asm!("in al, dx", in("dx") START_LINE, out("al") ready, options(nomem, nostack, preserves_flags)) };
    ready != 0
}

/// Reports to the VMM that the process cannot continue.
pub(crate) fn panicked(message: fmt::Arguments<'_>) -> ! {
    report(&Message::Panic {
        cpu: 0,
        message: message.to_string(),
        crash: None,
    });
    loop {
        sleep(u64::MAX / 2);
    }
}
