//! The loop of a run, and the flows that it starts.

#![expect(unsafe_code, reason = "the loop switches to flows, which execute the guest's kernel")]

use std::panic::{AssertUnwindSafe, catch_unwind};

use holdfast_guest::GuestImage;
use holdfast_host::VcpuId;
use holdfast_locks::CpuId;

use crate::core::engine::Engine;
use crate::core::failure::{CallOff, Failure};
use crate::flows::context::{Body, prepare, switch};
use crate::flows::flow::Handle;

/// The whole of a flow. A panic in it ends the run.
pub fn run_flow(handle: Handle, body: Body) {
    let Err(payload) = catch_unwind(AssertUnwindSafe(body)) else {
        unreachable!("a guest flow has returned");
    };
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    let message = text.unwrap_or_else(|| "a panic without a message".to_owned());
    handle.engine().end.fail(|| Failure::GuestPanic(message));
    handle.switch_to(None);
}

/// Makes the flow that boots `vcpu`.
pub fn boot_flow(engine: &mut Engine, vcpu: VcpuId) {
    let handle = Handle::new(engine);
    let this = &mut engine.vcpus[vcpu];
    let (number, vm) = (CpuId(this.number), this.vm);
    let Some(image) = &engine.vms[vm].image else {
        unreachable!("vm {} boots and has no kernel", vm.0)
    };
    let image: *const dyn GuestImage = &**image;
    // SAFETY: the image is boxed, set before the run, dropped after it, and not changed in between.
    let body = move || unsafe { (*image).boot(number) };
    let stack = engine.flows.stacks.take();
    this.flow.stack_limit = stack.limit();
    this.flow.saved = prepare(&stack, Box::new(move || run_flow(handle, Box::new(body))));
}

/// Plays events until the run is finished or has failed.
pub fn play(engine: &mut Engine, call_off: &CallOff) {
    let handle = Handle::new(engine);
    loop {
        let engine = handle.engine();
        if engine.end.finished || engine.end.failure.is_some() || engine.books.failure().is_some() {
            return;
        }
        if let Some(exit) = engine.flows.exit.take() {
            engine.leave_guest(engine.flows.current, exit);
            continue;
        }
        if let Some(call) = engine.flows.call.take() {
            engine.leave_native(engine.flows.current, call);
            continue;
        }
        let Some((time, vcpu)) = engine.next_turn() else {
            engine.play_event(call_off);
            continue;
        };
        engine.clock.now = time;
        engine.flows.current = vcpu;
        engine.books.stats.switches += 1;
        let to = engine.vcpus[vcpu].flow.saved;
        let main = &raw mut engine.flows.main;
        // SAFETY: the flow was prepared, or saved when it last waited; the engine, which contains `main`, does not
        // move.
        unsafe { switch(main, to) };
    }
}
