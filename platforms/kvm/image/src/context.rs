//! Contexts: flows of control, each with its own stack, and the switch between two of them.

#![expect(unsafe_code, reason = "switching stacks")]

use alloc::alloc::{Layout, alloc, dealloc};
use alloc::boxed::Box;
use core::cell::Cell;
use core::ptr::{self, NonNull};
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

/// Size of a task's stack in bytes. Interrupts run on it too.
const STACK_BYTES: usize = 64 << 10;
/// Step in bytes between the offsets, within a page, of the stacks' tops. Equal offsets would share cache sets.
const COLOR_STEP: usize = 192;
const PAGE: usize = 4096;
/// Number of canary words at the bottom of a stack, which must not change.
const CANARY_WORDS: usize = 16;
const CANARY: u64 = 0x5afe_57ac_5afe_57ac;

/// The body of a flow. It never returns: its last action is to switch away.
pub(crate) type Body = Box<dyn FnOnce()>;

/// A saved flow, with its stack unless it runs on a CPU's boot stack.
#[derive(Debug)]
pub struct Context {
    saved: Cell<*mut u8>,
    stack: Option<Stack>,
}

#[derive(Debug)]
struct Stack(NonNull<u8>);

fn layout() -> Layout {
    // Both constants are powers of two.
    Layout::from_size_align(STACK_BYTES, 16).unwrap_or(Layout::new::<u8>())
}

impl Stack {
    fn new() -> Stack {
        // SAFETY: the layout has a size.
        let block = unsafe { alloc(layout()) };
        let Some(block) = NonNull::new(block) else {
            panic!("out of memory: no {STACK_BYTES} bytes for a stack")
        };
        let canary = block.cast::<[u64; CANARY_WORDS]>();
        // SAFETY: the lowest words of the block that was just allocated.
        unsafe { canary.write([CANARY; CANARY_WORDS]) };
        Stack(block)
    }

    fn canary_is_intact(&self) -> bool {
        // SAFETY: `new` has written the words, and no flow runs on the stack.
        let words = unsafe { self.0.cast::<[u64; CANARY_WORDS]>().read() };
        words == [CANARY; CANARY_WORDS]
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: allocated by `new` with this layout.
        unsafe { dealloc(self.0.as_ptr(), layout()) };
    }
}

impl Context {
    /// Returns a flow that will run `body`.
    pub(crate) fn new(body: Body) -> Context {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        // ORDERING: Relaxed; any distribution of the offsets is correct.
        let color = MADE.fetch_add(1, Relaxed) * COLOR_STEP % PAGE;
        let stack = Stack::new();
        let body = Box::into_raw(Box::new(body));
        // The words that `switch` pops: r15, r14, r13, r12, rbx, rbp, return address. Then 0 as the return address of
        // the flow, so that backtraces end. `enter` starts with the stack pointer 16 bytes below the top, aligned for
        // its call.
        let words = [0, 0, 0, body.expose_provenance(), 0, 0, enter as *const () as usize, 0];
        let frame = stack.0.as_ptr().wrapping_add(STACK_BYTES - color - 72);
        // SAFETY: the eight words end 8 bytes below the top of the new block, which no flow uses, far above its canary.
        unsafe { frame.cast::<[usize; 8]>().write(words) };
        Context {
            saved: Cell::new(frame),
            stack: Some(stack),
        }
    }

    /// Returns the context of a flow that already runs. Its first switch away fills it.
    pub(crate) const fn empty() -> Context {
        Context {
            saved: Cell::new(ptr::null_mut()),
            stack: None,
        }
    }

    /// Releases a context that will not be continued.
    ///
    /// # Panics
    /// Panics if the flow has overrun its stack.
    pub(crate) fn release(self) {
        let overrun = self.stack.as_ref().is_some_and(|stack| !stack.canary_is_intact());
        assert!(!overrun, "a flow has overrun its stack of {STACK_BYTES} bytes");
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
    // Its context owns its stack until release. `from` is not moved before its flow is continued.
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

    #[test]
    #[should_panic = "overrun its stack"]
    fn an_overrun_is_detected_when_the_context_is_released() {
        let context = Context::new(Box::new(|| ()));
        let bottom = context.stack.as_ref().expect("it was just made").0;
        // SAFETY: the lowest byte of a stack on which no flow runs.
        unsafe { bottom.write(0) };
        context.release();
    }
}
