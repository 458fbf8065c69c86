//! Calls to other CPUs (`smp_call_function_many`).
//!
//! **One call at a time**: the caller stays on its CPU, in the kernel and with interrupts enabled, until all targets
//! have answered. So two CPUs can call each other.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::cell::OnceCell;
use core::sync::atomic::Ordering::{Relaxed, Release};

use holdfast_abi::hypercall;
use holdfast_locks::{CpuId, Paravirt, Platform, Word};

use crate::class::{Event, LockClass};
use crate::cpu::ThisCpu;
use crate::ids::{CpuTable, TaskId};
use crate::local::Local;
use crate::machine::{Cpu, Machine};
use crate::mask::CpuMask;
use crate::sync::{SpinLock, WordOf};
use crate::{apic, costs, ipi};

/// What the called CPU does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// Flushes the TLB's entries of an address space.
    FlushSpace(TaskId),
    /// Executes a function for a program.
    Execute(Function),
}

/// A kernel function that a program makes other CPUs execute, in an interrupt handler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Function {
    /// The driver whose lock the function takes, and for how many nanoseconds it holds the lock. No task may call this
    /// driver with interrupts enabled.
    pub driver: Option<(u32, u64)>,
}

/// Which CPUs are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Callees {
    /// The caller's own CPU.
    Itself,
    /// This CPU, which must not be the caller's.
    One(CpuId),
    /// All CPUs but the caller's.
    Others,
}

/// The calls between all CPUs.
pub(crate) struct Calls<M: Machine> {
    cpus: CpuTable<CpuCalls<M>>,
}

struct CpuCalls<M: Machine> {
    /// Calls that wait for this CPU, with their callers.
    queue: SpinLock<VecDeque<(Call, CpuId)>, M>,
    /// For each CPU: 1 until it has answered this CPU's call. Made by this CPU at its first call, before it tells any
    /// other CPU, since few CPUs of many make calls.
    unanswered: OnceCell<CpuTable<WordOf<M>>>,
    /// The CPU that wants a backtrace of this CPU, plus 1. 0: none does.
    tracer: WordOf<M>,
    /// When this CPU last executed a [`Function`] or printed a backtrace, in nanoseconds.
    executed_at: Local,
}

impl<M: Machine> Calls<M> {
    pub(crate) fn new(cpus: u32) -> Self {
        Calls {
            cpus: CpuTable::new(cpus, |_| CpuCalls {
                queue: SpinLock::new(LockClass::CallQueue, VecDeque::new()),
                unanswered: OnceCell::new(),
                tracer: WordOf::<M>::new(0),
                executed_at: Local::new(0),
            }),
        }
    }

    /// Returns the word that is 1 until `target` has answered `caller`.
    pub(crate) fn unanswered(&self, caller: CpuId, target: CpuId) -> &WordOf<M> {
        let count = self.cpus.count();
        let words = || CpuTable::new(count, |_| WordOf::<M>::new(0));
        &self.cpus[caller].unanswered.get_or_init(words)[target]
    }

    /// Returns the word with the CPU that wants a backtrace of `target`.
    pub(crate) fn tracer(&self, target: CpuId) -> &WordOf<M> {
        &self.cpus[target].tracer
    }

    /// Returns when `cpu` last did what it was called for, in nanoseconds.
    pub(crate) fn executed_at(&self, cpu: CpuId) -> u64 {
        self.cpus[cpu].executed_at.get()
    }

    /// Notes that the caller's CPU has done now what it was called for.
    pub(crate) fn note_executed(&self, on: &ThisCpu<'_, M>) {
        self.cpus[on.id].executed_at.set(on.now());
    }

    /// Makes `callees` execute `function`, and waits until all have. Appends for each, in the order of the CPUs, how
    /// many nanoseconds after the beginning it was executed.
    pub(crate) fn execute(&self, on: &ThisCpu<'_, M>, callees: Callees, function: Function, after_ns: &mut Vec<u64>) {
        let mut targets = CpuMask::EMPTY;
        match callees {
            Callees::Itself => targets.insert(on.id),
            Callees::One(target) => targets.insert(target),
            Callees::Others => {
                targets = on.system.online_others(on.id);
            }
        }
        let begun = on.now();
        let call = Call::Execute(function);
        if callees == Callees::Itself {
            if self.enqueue(on, on.id, call) {
                on.local.count(Event::CallIpis);
                on.local.apic.send_self(&on.cpu, apic::CALL_VECTOR);
            }
            self.wait_for(on, on.id);
        } else {
            self.call_many(on, &targets, call);
        }
        after_ns.extend(targets.iter().map(|cpu| self.executed_at(cpu).saturating_sub(begun)));
    }

    /// Makes each of `targets` do `call`, and waits until all have. The set must not contain the caller's CPU.
    pub(crate) fn call_many(&self, on: &ThisCpu<'_, M>, targets: &CpuMask, call: Call) {
        debug_assert!(on.cpu.irqs_enabled(), "a call with interrupts masked can deadlock");
        // Separate interrupts go out as soon as each call is queued. One interrupt for several CPUs goes out last.
        let collects = ipi::collects(on);
        let mut interrupted = CpuMask::EMPTY;
        for target in targets.iter() {
            if self.enqueue(on, target, call) {
                interrupted.insert(target);
                on.local.count(Event::CallIpis);
                if !collects {
                    ipi::send(on, target, apic::CALL_VECTOR);
                }
            }
        }
        if collects && !interrupted.is_empty() {
            ipi::send_many(on, &interrupted, apic::CALL_VECTOR);
        }
        // Linux calls a single target on another path, which does not yield.
        if interrupted.count() > 1 && on.system.chosen.get().assists.yields {
            yield_to_preempted(on, targets.iter());
        }
        for target in targets.iter() {
            self.wait_for(on, target);
        }
    }

    /// Queues `call` for `target`. Returns `true` if `target` needs an interrupt.
    fn enqueue(&self, on: &ThisCpu<'_, M>, target: CpuId, call: Call) -> bool {
        on.cpu.store(self.unanswered(on.id, target), 1, Relaxed);
        let mut queue = self.cpus[target].queue.lock_irq(on);
        on.work(costs::CALL_QUEUE);
        queue.push_back((call, on.id));
        queue.len() == 1
    }

    /// Waits until `target` has done the call of the caller's CPU.
    pub(crate) fn wait_for(&self, on: &ThisCpu<'_, M>, target: CpuId) {
        let answer = self.unanswered(on.id, target);
        on.cpu.ipi_wait_begin(target);
        on.say(|says| says.waits_for(Some(target)));
        // ORDERING: the wait's Acquire pairs with the Release in `answer`: what the call did is done.
        on.wait_for(answer, |waiting| waiting == 0);
        on.say(|says| says.waits_for(None));
        on.cpu.ipi_wait_end(target);
    }

    /// Handles the call-function IPI: does all calls that wait for this CPU, each by `act`.
    pub(crate) fn answer(&self, on: &ThisCpu<'_, M>, act: impl Fn(Call)) {
        let here = &self.cpus[on.id];
        loop {
            let next = {
                let mut queue = here.queue.lock(on);
                on.work(costs::CALL_QUEUE);
                queue.pop_front()
            };
            let Some((call, from)) = next else { return };
            act(call);
            if let Call::Execute(_) = call {
                self.note_executed(on);
            }
            // ORDERING: Release pairs with the Acquire in `wait_for`.
            on.cpu.store(self.unanswered(from, on.id), 0, Release);
        }
    }
}

/// Gives this CPU's time to the first of `targets` that has work and whose vCPU is preempted
/// (`kvm_smp_send_call_func_ipi`): the caller will wait for its answer. Uses hints only.
fn yield_to_preempted<M: Machine>(on: &ThisCpu<'_, M>, mut targets: impl Iterator<Item = CpuId>) {
    // A halted vCPU reads as preempted, too, so an idle CPU is not a target (5.18).
    let waits = |target: &CpuId| on.system.load_of(*target) > 0 && on.cpu.is_preempted(*target);
    let Some(target) = targets.find(waits) else { return };
    on.local.count(Event::SchedYields);
    let result = on
        .cpu
        .hypercall(hypercall::SCHED_YIELD as u32, [u64::from(target.0), 0, 0, 0]);
    assert_eq!(
        result, 0,
        "the host offers directed yields but refuses one to cpu {}",
        target.0
    );
}
