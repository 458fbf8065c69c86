//! What ends a freestanding binary: each has a `panicked` that tells the VMM.

use core::panic::PanicInfo;

use crate::panicked;

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    panicked(format_args!("{info}"))
}

/// The precompiled `alloc` has landing pads that name it. Nothing unwinds here: panics end the guest.
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    panicked(format_args!("something unwinds"))
}
