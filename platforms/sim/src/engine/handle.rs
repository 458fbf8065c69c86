//! The engine's place in memory, and the one way to it for flows of guest code and for the loop.
//!
//! - **One flow at a time**: all flows of a run execute on one thread, one after another.
//! - **Used once**: the engine has one user at a time. What uses it is a closure ([`Handle::with`]): the reference ends
//!   with that and cannot be kept, and a use inside of a use panics. A switch to another flow uses the engine, too, so
//!   it also panics there. The few operations that flows execute at every step take the reference without a closure
//!   ([`Handle::engine`]), which is unsafe, and check that the engine is not in use.
//! - **Nothing refers into it**: what flows hold references to across switches is not part of the engine's memory
//!   ([`FixedPart`](crate::parts::vm::FixedPart), the images, the stacks).
//!
//! What types cannot say is that a handle is used only while its cell exists. Kernels get handles (in a `SimMachine`),
//! and only the engine executes kernels.

#![expect(unsafe_code, reason = "flows share the engine, one use at a time")]
#![expect(
    clippy::mut_from_ref,
    reason = "the engine belongs to the flow that executes, not to the handle"
)]

use std::cell::{Cell, UnsafeCell};
use std::ptr::NonNull;
use std::rc::Rc;

use holdfast_host::VcpuId;

use crate::core::failure::Failure;
use crate::engine::Engine;
use crate::stacks::context::switch;

/// The place of an engine, where it stays for the whole run.
#[derive(Debug)]
pub struct EngineCell {
    /// The engine is in use.
    in_use: Cell<bool>,
    engine: UnsafeCell<Engine>,
}

#[cold]
#[inline(never)]
fn used_twice() -> ! {
    panic!("the engine is used inside of another use of it")
}

impl EngineCell {
    /// Gives `engine` its place, and a handle on itself.
    pub fn new(engine: Engine) -> Rc<EngineCell> {
        let cell = Rc::new(EngineCell {
            in_use: Cell::new(false),
            engine: UnsafeCell::new(engine),
        });
        cell.with(|engine| engine.flows.handle = Some(cell.handle()));
        cell
    }

    /// A handle on it.
    pub fn handle(&self) -> Handle {
        Handle(NonNull::from(self))
    }

    /// Uses the engine.
    ///
    /// After a panic in `work` the engine counts as in use, until [`Handle::abandon`].
    ///
    /// # Panics
    /// If the engine is in use: `work` may neither use it by another way nor switch to another flow.
    #[inline(always)]
    pub fn with<R>(&self, work: impl FnOnce(&mut Engine) -> R) -> R {
        if self.in_use.replace(true) {
            used_twice();
        }
        // SAFETY: this is the only access to `engine`, and **Used once** holds: `in_use` was false, so no other call is
        // in here, on this stack or on another (the cell is not `Sync`); and the reference cannot outlive `work`, which
        // takes it for any lifetime.
        let result = work(unsafe { &mut *self.engine.get() });
        self.in_use.set(false);
        result
    }
}

/// A handle on the engine, for code that executes in flows.
#[derive(Clone, Copy, Debug)]
pub struct Handle(NonNull<EngineCell>);

impl Handle {
    /// Uses the engine, as [`EngineCell::with`] does.
    ///
    /// # Panics
    /// If the engine is in use.
    #[inline(always)]
    pub fn with<R>(&self, work: impl FnOnce(&mut Engine) -> R) -> R {
        // SAFETY: the cell does not move, and exists until the run is over; only code that the run executes has
        // handles (module text).
        unsafe { self.0.as_ref() }.with(work)
    }

    /// The engine, for the operations that flows execute at every step.
    ///
    /// # Safety
    /// Until the last use of the reference, nothing uses the engine in another way, and no flow is switched to: while
    /// the caller has the reference, it calls methods of the engine and of its parts that execute no code of a guest,
    /// and nothing else.
    ///
    /// # Panics
    /// If the engine is in use.
    #[inline(always)]
    pub unsafe fn engine(&self) -> &mut Engine {
        // SAFETY: as in `with`.
        let cell = unsafe { self.0.as_ref() };
        if cell.in_use.get() {
            used_twice();
        }
        // SAFETY: no `with` is under way, and the caller vouches for the rest of **Used once**.
        unsafe { &mut *cell.engine.get() }
    }

    /// Switches from the flow that executes to that of `next`, or to the engine's loop.
    #[inline(always)]
    pub fn switch_to(&self, next: Option<VcpuId>) {
        // SAFETY: until the switch, only methods of the engine and of its parts are called.
        let engine = unsafe { self.engine() };
        let mine = engine.flows.current;
        let here = 0u8;
        if (&raw const here as usize) < engine.vcpus[mine].flow.stack_limit {
            let vm = engine.vcpus[mine].vm;
            engine
                .end
                .fail(|| Failure::StackOverflow(format!("a flow of vcpu {} of vm {}", mine.0, vm.0)));
        }
        engine.books.stats.switches += 1;
        let to = match next {
            Some(vcpu) if engine.end.failure.is_none() => {
                engine.flows.current = vcpu;
                engine.vcpus[vcpu].flow.saved
            }
            _ => engine.flows.main,
        };
        let from = &raw mut engine.vcpus[mine].flow.saved;
        // SAFETY: `to` was saved when that flow last waited, here or in the loop, and each is continued once. `from`
        // is in the engine's table of vCPUs, which does not move during a run, and nothing uses the engine before
        // `switch` has written there, which is the first that it does.
        unsafe { switch(from, to) };
    }

    /// Ends the use that a panic has left.
    ///
    /// # Safety
    /// A panic has ended all that the caller's flow did, and with that the use of the engine, if it was in one.
    pub unsafe fn abandon(&self) {
        // SAFETY: as in `with`.
        unsafe { self.0.as_ref() }.in_use.set(false);
    }
}
