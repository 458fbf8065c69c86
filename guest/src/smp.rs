//! Calls to other CPUs (`smp_call_function_many`), and the TLB shootdown that is made of them.
//!
//! **One call at a time**: the caller stays on its CPU, in the kernel and with interrupts enabled, until all have
//! answered; so two CPUs can call each other.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use holdfast_abi::hypercall;
use holdfast_locks::{Budget, CpuId, Paravirt, Platform};

use crate::class::Event;
use crate::kernel::{CpuIndex, OnCpu};
use crate::machine::{Cpu, Machine};
use crate::mask::CpuMask;
use crate::task::TaskId;
use crate::{apic, costs, driver, ipi, mm};

/// What another CPU is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// Forget what the TLB holds of an address space.
    FlushSpace(TaskId),
    /// Execute a function of a program's.
    Execute(Function),
}

/// A kernel function that a program has other CPUs execute, in an interrupt's handler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Function {
    /// The driver whose lock it takes, and for how many nanoseconds it holds that. Nobody else may call this driver with
    /// interrupts enabled.
    pub driver: Option<(u32, u64)>,
}

/// Who is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Callees {
    /// The caller's own CPU.
    Itself,
    /// This one; not the caller's.
    One(CpuId),
    /// All but the caller's.
    Others,
}

/// Has `callees` execute `function`, and waits until all have. Appends how long after the beginning each had, in nanoseconds
/// and in the order of the CPUs.
pub(crate) fn execute<M: Machine>(on: &OnCpu<'_, M>, callees: Callees, function: Function, after_ns: &mut Vec<u64>) {
    let mut targets = CpuMask::EMPTY;
    match callees {
        Callees::Itself => targets.insert(on.index),
        Callees::One(target) => targets.insert(target.0),
        Callees::Others => {
            targets = CpuMask::first(on.kernel.machine.cpus());
            targets.remove(on.index);
        }
    }
    let begun = on.now();
    let call = Call::Execute(function);
    if callees == Callees::Itself {
        if enqueue(on, on.index, call) {
            on.local.count(Event::CallIpis);
            apic::send_self(on, apic::CALL_VECTOR);
        }
        wait_for(on, on.index);
    } else {
        call_many(on, &targets, call);
    }
    let executed = |cpu: CpuIndex| on.kernel.cpus[cpu as usize].executed_at.get();
    after_ns.extend(targets.iter().map(|cpu| executed(cpu).saturating_sub(begun)));
}

/// Calls that wait for a CPU.
pub(crate) struct CallQueue {
    calls: VecDeque<(Call, CpuIndex)>,
}

impl CallQueue {
    pub(crate) fn new() -> Self {
        CallQueue { calls: VecDeque::new() }
    }
}

/// Makes each of `targets` do `call`, and waits until all have. The set must not contain the caller's CPU.
pub(crate) fn call_many<M: Machine>(on: &OnCpu<'_, M>, targets: &CpuMask, call: Call) {
    debug_assert!(on.cpu.irqs_enabled(), "a call with interrupts masked can deadlock");
    // An interrupt for each goes out as soon as it is queued; one for several when all are.
    let collects = ipi::collects(on);
    let mut interrupted = CpuMask::EMPTY;
    for target in targets.iter() {
        if enqueue(on, target, call) {
            interrupted.insert(target);
            on.local.count(Event::CallIpis);
            if !collects {
                apic::send(on, target, apic::CALL_VECTOR);
            }
        }
    }
    if collects && !interrupted.is_empty() {
        ipi::send_many(on, &interrupted, apic::CALL_VECTOR);
    }
    // One target alone is called by another way, which does not yield.
    if interrupted.count() > 1 && on.kernel.assists().yields {
        yield_to_preempted(on, targets.iter());
    }
    for target in targets.iter() {
        wait_for(on, target);
    }
}

/// Queues `call` for `target`; whether it must be told.
fn enqueue<M: Machine>(on: &OnCpu<'_, M>, target: CpuIndex, call: Call) -> bool {
    on.cpu.store(&on.local.unanswered[target as usize], 1, Relaxed);
    let mut queue = on.kernel.cpus[target as usize].calls.lock_irq(on);
    on.work(costs::CALL_QUEUE);
    queue.calls.push_back((call, on.index));
    queue.calls.len() == 1
}

/// Waits until `target` has done the call of the caller's CPU.
fn wait_for<M: Machine>(on: &OnCpu<'_, M>, target: CpuIndex) {
    let answer = &on.local.unanswered[target as usize];
    on.cpu.ipi_wait_begin(CpuId(target));
    // ORDERING: Acquire pairs with the Release in `call_ipi`: what the call did is done.
    let answered = on
        .cpu
        .wait_until(answer, Budget::UNBOUNDED, Acquire, |waiting| waiting == 0);
    assert!(answered.is_ok(), "an unbounded wait gave up");
    on.cpu.ipi_wait_end(CpuId(target));
}

/// Gives this CPU's time to the first of `targets` that has work and no pCPU (`kvm_smp_send_call_func_ipi`): its answer will
/// be awaited. Hints only.
fn yield_to_preempted<M: Machine>(on: &OnCpu<'_, M>, mut targets: impl Iterator<Item = CpuIndex>) {
    let kernel = on.kernel;
    // A halted vCPU reads as preempted, too: only one that is not idle (5.18).
    let waits = |target: &CpuIndex| kernel.cpus[*target as usize].load.get() > 0 && on.cpu.is_preempted(CpuId(*target));
    let Some(target) = targets.find(waits) else { return };
    on.local.count(Event::SchedYields);
    let result = on
        .cpu
        .hypercall(hypercall::SCHED_YIELD as u32, [u64::from(target), 0, 0, 0]);
    assert_eq!(result, 0, "a host that offers directed yields refuses one");
}

/// The call-function IPI's handler.
pub(crate) fn call_ipi<M: Machine>(on: &OnCpu<'_, M>) {
    loop {
        let next = {
            let mut queue = on.local.calls.lock(on);
            on.work(costs::CALL_QUEUE);
            queue.calls.pop_front()
        };
        let Some((call, from)) = next else { return };
        match call {
            Call::FlushSpace(space) => mm::flush_here(on, space),
            Call::Execute(function) => {
                if let Some((driver, held_ns)) = function.driver {
                    driver::call(on, driver, held_ns);
                }
                on.local.executed_at.set(on.now());
            }
        }
        // ORDERING: Release pairs with the Acquire in `call_many`.
        on.cpu
            .store(&on.kernel.cpus[from as usize].unanswered[on.index as usize], 0, Release);
    }
}
