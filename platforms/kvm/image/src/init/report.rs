//! What the VMM is told, and what it tells.

use alloc::string::ToString;
use core::arch::asm;
use core::fmt;

use holdfast_protocol::layout::{REPORT, START_LINE};
use holdfast_protocol::{Message, encode};

use crate::system::sleep;

/// Tells the VMM. By the first thread only, and after `use_ports`.
pub(crate) fn report(message: &Message) {
    let payload = encode(message);
    out(&(payload.len() as u32).to_le_bytes());
    out(&payload);
}

fn out(bytes: &[u8]) {
    // SAFETY: reads `bytes` and nothing else; without leave to use the port, the kernel ends the process, and with it the guest.
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

/// Whether all guests of the run are there.
pub(crate) fn at_start_line() -> bool {
    let there: u8;
    // SAFETY: touches no memory; as for `out`.
    unsafe { asm!("in al, dx", in("dx") START_LINE, out("al") there, options(nomem, nostack, preserves_flags)) };
    there != 0
}

/// Tells the VMM that there is no going on.
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
