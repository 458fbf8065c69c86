//! The panic handler of a freestanding binary, whose `panicked` function reports to the VMM.

use core::panic::PanicInfo;

use crate::panicked;

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    panicked(format_args!("{info}"))
}

/// The function that landing pads in the precompiled `alloc` refer to. Nothing unwinds here, since panics end the
/// guest.
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    panicked(format_args!("something unwinds"))
}
