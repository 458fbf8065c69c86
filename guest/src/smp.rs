//! Calls to other CPUs (`smp_call_function_many`).
//!
//! **One call at a time**: the caller stays on its CPU, in the kernel and with interrupts enabled, until all targets
//! have answered. So two CPUs can call each other.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::cell::OnceCell;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use holdfast_abi::hypercall;
use holdfast_locks::{CpuId, Paravirt, Platform, Word};

use crate::class::{Event, LockClass};
use crate::cpu::ThisCpu;
use crate::ids::{CpuTable, TaskId};
use crate::local::{Local, Local32};
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
    /// The callers that wait for this CPU, the first one first.
    queue: SpinLock<VecDeque<CpuId>, M>,
    /// The list in place of the queue in a kernel with lock-free calls (`call_single_queue`, an `llist`): the caller
    /// that came last, plus 1. Its word of [`CpuCalls::unanswered`] has the one before.
    newest: WordOf<M>,
    /// What this CPU calls others for.
    call: Posted,
    /// For each CPU: not 0 until it has answered this CPU's call. Made by this CPU at its first call, before it tells
    /// any other CPU, since few CPUs of many make calls.
    unanswered: OnceCell<CpuTable<WordOf<M>>>,
    /// The CPU that wants a backtrace of this CPU, plus 1. 0: none does.
    tracer: WordOf<M>,
    /// When this CPU last executed a [`Function`] or printed a backtrace, in nanoseconds.
    executed_at: Local,
}

/// The call of one CPU. It is written before the call is queued, and stays until all have answered.
#[derive(Default)]
struct Posted {
    kind: Local32,
    /// The task of an address space, or a driver's number plus 1.
    number: Local32,
    held_ns: Local,
}

impl Posted {
    const FLUSH_SPACE: u32 = 0;
    const EXECUTE: u32 = 1;

    fn set(&self, call: Call) {
        let (kind, number, held_ns) = match call {
            Call::FlushSpace(space) => (Self::FLUSH_SPACE, space.0, 0),
            Call::Execute(Function { driver: None }) => (Self::EXECUTE, 0, 0),
            Call::Execute(Function {
                driver: Some((number, held_ns)),
            }) => (Self::EXECUTE, number + 1, held_ns),
        };
        self.kind.set(kind);
        self.number.set(number);
        self.held_ns.set(held_ns);
    }

    fn get(&self) -> Call {
        let number = self.number.get();
        if self.kind.get() == Self::FLUSH_SPACE {
            return Call::FlushSpace(TaskId(number));
        }
        let driver = number.checked_sub(1).map(|number| (number, self.held_ns.get()));
        Call::Execute(Function { driver })
    }
}

impl<M: Machine> Calls<M> {
    pub(crate) fn new(cpus: u32) -> Self {
        Calls {
            cpus: CpuTable::new(cpus, |_| CpuCalls {
                queue: SpinLock::new(LockClass::CallQueue, VecDeque::new()),
                newest: WordOf::<M>::new(0),
                call: Posted::default(),
                unanswered: OnceCell::new(),
                tracer: WordOf::<M>::new(0),
                executed_at: Local::new(0),
            }),
        }
    }

    /// Returns the word that is not 0 until `target` has answered `caller`.
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
            self.cpus[on.id].call.set(call);
            if self.enqueue(on, on.id) {
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
        self.cpus[on.id].call.set(call);
        for target in targets.iter() {
            if self.enqueue(on, target) {
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

    /// Queues the call of the caller's CPU for `target`. Returns `true` if `target` needs an interrupt.
    fn enqueue(&self, on: &ThisCpu<'_, M>, target: CpuId) -> bool {
        if on.system.config.lock_free_calls {
            return self.push(on, target);
        }
        on.cpu.store(self.unanswered(on.id, target), 1, Relaxed);
        let mut queue = self.cpus[target].queue.lock_irq(on);
        on.work(costs::CALL_QUEUE);
        queue.push_back(on.id);
        queue.len() == 1
    }

    /// [`Calls::enqueue`] without a lock (`llist_add`).
    fn push(&self, on: &ThisCpu<'_, M>, target: CpuId) -> bool {
        on.work(costs::CALL_QUEUE);
        let (newest, mine) = (&self.cpus[target].newest, self.unanswered(on.id, target));
        let mut before = on.cpu.load(newest, Relaxed);
        loop {
            on.cpu.store(mine, before + 1, Relaxed);
            // ORDERING: Release pairs with the Acquire in `take_all`: the call and the one before are written. Relaxed
            // on failure: nothing was published.
            match on.cpu.compare_exchange(newest, before, on.id.0 + 1, Release, Relaxed) {
                Ok(_) => return before == 0,
                Err(seen) => before = seen,
            }
        }
    }

    /// Takes all callers off the list of the caller's CPU (`llist_del_all`) and turns their order round. Returns the
    /// first caller, plus 1. Its word has the one after, plus 1.
    fn take_all(&self, on: &ThisCpu<'_, M>) -> u32 {
        // ORDERING: Acquire pairs with the Release in `push`, of each caller: a compare-exchange continues the release
        // sequence of the one before.
        let mut newest = on.cpu.swap(&self.cpus[on.id].newest, 0, Acquire);
        let mut first = 0;
        while newest != 0 {
            let link = self.unanswered(CpuId(newest - 1), on.id);
            // ORDERING: Relaxed: the caller only waits for 0, and other CPUs do not read the word.
            let before = on.cpu.load(link, Relaxed) - 1;
            on.cpu.store(link, first + 1, Relaxed);
            (first, newest) = (newest, before);
        }
        first
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
        if on.system.config.lock_free_calls {
            let mut next = self.take_all(on);
            while let Some(from) = next.checked_sub(1) {
                on.work(costs::CALL_QUEUE);
                let from = CpuId(from);
                next = on.cpu.load(self.unanswered(from, on.id), Relaxed) - 1;
                self.answer_one(on, from, &act);
            }
            return;
        }
        let here = &self.cpus[on.id];
        loop {
            let next = {
                let mut queue = here.queue.lock(on);
                on.work(costs::CALL_QUEUE);
                queue.pop_front()
            };
            let Some(from) = next else { return };
            self.answer_one(on, from, &act);
        }
    }

    fn answer_one(&self, on: &ThisCpu<'_, M>, from: CpuId, act: &impl Fn(Call)) {
        let call = self.cpus[from].call.get();
        act(call);
        if let Call::Execute(_) = call {
            self.note_executed(on);
        }
        // ORDERING: Release pairs with the Acquire in `wait_for`.
        on.cpu.store(self.unanswered(from, on.id), 0, Release);
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
