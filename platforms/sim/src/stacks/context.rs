//! Stackful contexts: a flow of guest code with a stack of its own, and the switch between two of them.
//!
//! **One flow at a time**: all flows of a run belong to the thread that runs it. A flow executes only between two
//! [`switch`]es.

#![expect(unsafe_code, reason = "switching stacks")]

use crate::stacks::stack::Stack;

/// A saved flow: the stack pointer under which [`switch`] left its registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Saved(*mut u8);

impl Saved {
    /// No saved flow.
    pub const NONE: Saved = Saved(core::ptr::null_mut());
}

/// The code of a new flow. It must neither return nor unwind: its last act is to switch away.
pub type Body = Box<dyn FnOnce()>;

/// Prepares `stack` so that the first switch to the result runs `body`.
pub fn prepare(stack: &Stack, body: Body) -> Saved {
    let body = Box::into_raw(Box::new(body));
    // The frame that `switch` pops: r15, r14, r13, r12, rbx, rbp, return address. `body` travels in r12.
    let top = stack.top() & !15;
    // `enter` starts with the stack pointer 16 bytes below the top, aligned as a call requires.
    let frame = (top - 72) as *mut usize;
    let words = [0, 0, 0, body as usize, 0, 0, enter as *const () as usize, 0];
    // SAFETY: the eight words end 8 bytes below the top of a stack that is mapped, exclusively ours, and not in use.
    unsafe { core::slice::from_raw_parts_mut(frame, words.len()) }.copy_from_slice(&words);
    Saved(frame.cast())
}

/// First instruction of every flow: passes `body` on, and traps if that returns.
#[unsafe(naked)]
unsafe extern "sysv64" fn enter() {
    core::arch::naked_asm!(
        "mov rdi, r12",
        "xor ebp, ebp",
        "call {main}",
        "ud2",
        main = sym main,
    )
}

extern "sysv64" fn main(body: *mut Body) -> ! {
    // SAFETY: `prepare` made it with `Box::into_raw`, and a flow starts once.
    let body = unsafe { Box::from_raw(body) };
    body();
    eprintln!("a guest flow returned from its body");
    std::process::abort()
}

/// Saves the caller in `from` and continues `to`.
///
/// # Safety
/// `to` was saved by `switch` or made by [`prepare`] on a stack that still exists, and has not been continued since.
/// `from` stays valid until the caller is continued. No reference to data that other flows may touch is used across
/// the call.
#[unsafe(naked)]
pub unsafe extern "sysv64" fn switch(from: *mut Saved, to: Saved) {
    // Only callee-saved registers: the code that runs here never changes MXCSR and the x87 control word.
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
#[expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "one argument covers the switch and both fields that it is given"
)]
mod tests {
    use super::*;
    use crate::stacks::stack::Stacks;

    struct Pair {
        main: Saved,
        flow: Saved,
        seen: Vec<f64>,
    }

    fn pause(pair: *mut Pair) {
        // SAFETY: the main flow waits in `resume`, and `pair` outlives both flows.
        unsafe { switch(&raw mut (*pair).flow, (*pair).main) };
    }

    fn resume(pair: *mut Pair) {
        // SAFETY: the other flow is fresh or waits in `pause`, and `pair` outlives both flows.
        unsafe { switch(&raw mut (*pair).main, (*pair).flow) };
    }

    #[test]
    fn a_flow_keeps_its_registers_across_switches() {
        let mut stacks = Stacks::default();
        let stack = stacks.take();
        let mut pair = Pair {
            main: Saved::NONE,
            flow: Saved::NONE,
            seen: Vec::new(),
        };
        let shared = &raw mut pair;
        let body = move || {
            let mut value = 1.5f64;
            loop {
                value *= 2.0;
                // SAFETY: only one flow runs at a time, and no reference into `pair` is used across a switch.
                unsafe { (*shared).seen.push(value) };
                pause(shared);
            }
        };
        pair.flow = prepare(&stack, Box::new(body));
        for _ in 0..3 {
            resume(shared);
        }
        assert_eq!(pair.seen, [3.0, 6.0, 12.0]);
    }

    #[test]
    fn a_panic_is_caught_on_its_own_stack() {
        let mut stacks = Stacks::default();
        let stack = stacks.take();
        let mut pair = Pair {
            main: Saved::NONE,
            flow: Saved::NONE,
            seen: Vec::new(),
        };
        let shared = &raw mut pair;
        let body = move || {
            let caught = std::panic::catch_unwind(|| panic!("over"));
            // SAFETY: as above: one flow at a time, no reference across a switch.
            unsafe { (*shared).seen.push(if caught.is_err() { 1.0 } else { 0.0 }) };
            pause(shared);
        };
        pair.flow = prepare(&stack, Box::new(body));
        resume(shared);
        assert_eq!(pair.seen, [1.0]);
    }
}
