//! How a flow begins.

#![expect(unsafe_code, reason = "a flow executes the guest's kernel")]

use std::panic::{AssertUnwindSafe, catch_unwind};

use holdfast_guest::GuestImage;
use holdfast_host::VcpuId;
use holdfast_locks::CpuId;

use crate::core::failure::Failure;
use crate::engine::Engine;
use crate::engine::handle::Handle;
use crate::stacks::context::{Body, prepare};

/// The whole of a flow. A panic in it ends the run.
pub fn run_flow(handle: Handle, body: Body) {
    let Err(payload) = catch_unwind(AssertUnwindSafe(body)) else {
        unreachable!("a guest flow has returned");
    };
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    let message = text.unwrap_or_else(|| "a panic without a message".to_owned());
    // SAFETY: `catch_unwind` is the first call of the flow, so nothing of that is left. No other flow is in a use, or
    // this one would not execute.
    unsafe { handle.abandon() };
    handle.with(|engine| engine.end.fail(|| Failure::GuestPanic(message)));
    handle.switch_to(None);
}

/// Makes the flow that boots `vcpu`.
pub fn boot_flow(engine: &mut Engine, vcpu: VcpuId) {
    let handle = engine.flows.handle.expect("an engine with flows has its place");
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
