//! Contexts: flows of control, each with its own stack, and the switch between two of them.

#![expect(unsafe_code, reason = "switching stacks")]

use alloc::alloc::{Layout, alloc};
use alloc::boxed::Box;
use core::cell::Cell;
use core::ptr;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

/// Size of a task's stack in bytes. Interrupts run on it too.
const STACK_BYTES: usize = 64 << 10;
/// Step in bytes between the offsets, within a page, of the stacks' tops. Equal offsets would share cache sets.
const COLOR_STEP: usize = 192;
const PAGE: usize = 4096;

/// The body of a flow. It never returns: its last action is to switch away.
pub(crate) type Body = Box<dyn FnOnce()>;

/// A saved flow. Its stack is never freed, because no kernel drops a task's context.
#[derive(Debug)]
pub struct Context {
    saved: Cell<*mut u8>,
}

/// Allocates a stack and returns its lowest byte.
fn new_stack() -> *mut u8 {
    // Both constants are powers of two.
    let layout = Layout::from_size_align(STACK_BYTES, 16).unwrap_or(Layout::new::<u8>());
    // SAFETY: the layout has a size.
    let block = unsafe { alloc(layout) };
    assert!(!block.is_null(), "out of memory: no {STACK_BYTES} bytes for a stack");
    block
}

impl Context {
    /// Returns a flow that will run `body`.
    pub(crate) fn new(body: Body) -> Context {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        // ORDERING: Relaxed; any distribution of the offsets is correct.
        let color = MADE.fetch_add(1, Relaxed) * COLOR_STEP % PAGE;
        let body = Box::into_raw(Box::new(body));
        // The words that `switch` pops: r15, r14, r13, r12, rbx, rbp, return address. Then 0 as the return address of
        // the flow, so that backtraces end. `enter` starts with the stack pointer 16 bytes below the top, aligned for
        // its call.
        let words = [0, 0, 0, body.expose_provenance(), 0, 0, enter as *const () as usize, 0];
        let frame = new_stack().wrapping_add(STACK_BYTES - color - 72);
        // SAFETY: the eight words end 8 bytes below the top of the new block, which no flow uses.
        unsafe { frame.cast::<[usize; 8]>().write(words) };
        Context {
            saved: Cell::new(frame),
        }
    }

    /// Returns the context of a flow that already runs. Its first switch away fills it.
    pub(crate) const fn empty() -> Context {
        Context {
            saved: Cell::new(ptr::null_mut()),
        }
    }
}

/// Saves the caller in `from` and continues `to`.
///
/// # Panics
/// Panics if `to` was not saved since it was last continued.
#[inline]
pub(crate) fn switch_contexts(from: &Context, to: &Context) {
    let next = to.saved.replace(ptr::null_mut());
    assert!(!next.is_null(), "a context is continued that was never saved");
    // SAFETY: `next` was prepared by `new` or saved by `switch`. It was taken out just now, so it is continued once.
    // Its stack is never freed. `from` is not moved before its flow is continued.
    unsafe { switch(from.saved.as_ptr(), next) };
}

/// The first instructions of every flow.
#[unsafe(naked)]
unsafe extern "sysv64" fn enter() {
    core::arch::naked_asm!("mov rdi, r12", "xor ebp, ebp", "call {main}", "ud2", main = sym main)
}

extern "sysv64" fn main(body: *mut Body) -> ! {
    // SAFETY: `Context::new` has made the pointer with `Box::into_raw`, and a flow starts once.
    let body = unsafe { Box::from_raw(body) };
    body();
    panic!("a flow returned from its body")
}

/// Saves the stack pointer to `from` and continues the flow whose saved stack pointer is `to`.
///
/// # Safety
/// `from` must be writable, and `to` a stack pointer that `Context::new` or this function has saved and that was not
/// continued since.
#[unsafe(naked)]
unsafe extern "sysv64" fn switch(from: *mut *mut u8, to: *mut u8) {
    // Only callee-saved registers are saved. No code here changes MXCSR or the x87 control word.
    core::arch::naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "mov [rdi], rsp",
        "mov rsp, rsi",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    )
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;
    use core::cell::{OnceCell, RefCell};

    use super::*;

    #[test]
    fn a_flow_keeps_its_registers_across_switches() {
        struct Pair {
            main: Context,
            flow: OnceCell<Context>,
            seen: RefCell<Vec<f64>>,
        }
        let pair: &'static Pair = Box::leak(Box::new(Pair {
            main: Context::empty(),
            flow: OnceCell::new(),
            seen: RefCell::new(Vec::new()),
        }));
        let flow = || pair.flow.get().expect("made before the first switch");
        let body = move || {
            let mut value = 1.5f64;
            loop {
                value *= 2.0;
                pair.seen.borrow_mut().push(value);
                switch_contexts(flow(), &pair.main);
            }
        };
        assert!(pair.flow.set(Context::new(Box::new(body))).is_ok());
        for _ in 0..3 {
            switch_contexts(&pair.main, flow());
        }
        assert_eq!(*pair.seen.borrow(), [3.0, 6.0, 12.0]);
    }
}
