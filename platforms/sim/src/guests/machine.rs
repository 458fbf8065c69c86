//! The guest's view of its machine: its CPUs, contexts for tasks, random streams, and reports to the outside.

#![expect(
    unsafe_code,
    reason = "contexts are switched, and the machine's trait is unsafe to implement"
)]

use core::cell::Cell;
use std::rc::Rc;

use holdfast_guest::{Machine, Report, Threads};
use holdfast_host::{HostInterrupt, PcpuId, VcpuId, VmId};
use holdfast_locks::CpuId;
use holdfast_machine::Picos;

use crate::books::happened::Happened;
use crate::core::failure::Failure;
use crate::engine::boot::run_flow;
use crate::engine::handle::Handle;
use crate::guests::cpu::SimCpu;
use crate::parts::vm::{FixedPart, Vm};
use crate::stacks::context::{Body, Saved, prepare, switch};
use crate::tasks::native::{Call, Flow};

/// A guest's machine in virtual time. Only code that the engine runs may use it.
#[derive(Clone, Copy, Debug)]
pub struct SimMachine {
    /// The handle with which its flows execute.
    pub(super) handle: Handle,
    vm: VmId,
    native: bool,
    fixed: *const FixedPart,
    first_vcpu: VcpuId,
    vcpus: u32,
}

impl SimMachine {
    /// The machine of guest `vm`; for the bare-metal kernel the machine itself.
    pub(crate) fn new(handle: Handle, vm: VmId) -> SimMachine {
        handle.with(|engine| SimMachine {
            handle,
            vm,
            native: engine.tasks.native.as_ref().is_some_and(|native| native.vm == vm),
            fixed: Rc::as_ptr(&engine.vms[vm].fixed),
            first_vcpu: engine.vms[vm].first_vcpu,
            vcpus: engine.vms[vm].vcpus,
        })
    }

    fn fixed(&self) -> &FixedPart {
        // SAFETY: as for `SimCpu::fixed`.
        unsafe { &*self.fixed }
    }
}

/// The page at which CPUs other than CPU 0 start, as Linux's trampoline below 640 KiB. The page is empty: the image
/// knows its entry point.
const STARTUP_PAGE: u8 = 0x9a;

/// A saved flow of guest code.
#[derive(Debug)]
pub struct SimContext {
    saved: Cell<Saved>,
    stack_limit: Cell<usize>,
}

// SAFETY: `cpu` reads which vCPU executes; `switch` keeps the callee-saved registers (`context.rs`).
unsafe impl Machine for SimMachine {
    type Cpu = SimCpu;
    type Context = SimContext;

    fn cpus(&self) -> u32 {
        self.vcpus
    }

    #[inline]
    fn cpu(&self) -> SimCpu {
        // SAFETY: only methods of the engine and of its parts are called.
        let engine = unsafe { self.handle.engine() };
        let number = engine.flows.current.0 - self.first_vcpu.0;
        SimCpu::new(self.handle, self.vm, number, self.fixed)
    }

    fn proximity_domain(&self, apic_id: u32) -> Option<u32> {
        self.fixed().settings.domains.get(apic_id as usize).copied()
    }

    fn startup_page(&self) -> Option<u8> {
        self.fixed().settings.waits_for_sipi.then_some(STARTUP_PAGE)
    }

    fn network(&self) -> Option<&holdfast_abi::virtio::Network> {
        let has = self
            .handle
            .with(|engine| engine.tasks.networks.iter().any(|network| network.vm == self.vm));
        has.then(|| &*self.fixed().memory.network)
    }

    fn disk(&self) -> Option<&holdfast_abi::virtio::Disk> {
        let has = self
            .handle
            .with(|engine| engine.tasks.disks.iter().any(|disk| disk.vm == self.vm));
        has.then(|| &*self.fixed().memory.disk)
    }

    fn new_context(&self, body: Body) -> SimContext {
        let stack = self.handle.with(|engine| engine.flows.stacks.take());
        let handle = self.handle;
        let saved = prepare(&stack, Box::new(move || run_flow(handle, body)));
        SimContext {
            saved: Cell::new(saved),
            stack_limit: Cell::new(stack.limit()),
        }
    }

    fn empty_context(&self) -> SimContext {
        let stack_limit = self.handle.with(|engine| engine.current().flow.stack_limit);
        SimContext {
            saved: Cell::new(Saved::NONE),
            stack_limit: Cell::new(stack_limit),
        }
    }

    fn switch(&self, from: &SimContext, to: &SimContext) {
        self.handle.with(|engine| {
            engine.books.stats.switches += 1;
            let limit = &mut engine.current().flow.stack_limit;
            // After an INIT, a CPU's own context has another stack than the one it was made on.
            from.stack_limit.set(std::mem::replace(limit, to.stack_limit.get()));
        });
        let to = to.saved.replace(Saved::NONE);
        assert!(to != Saved::NONE, "a context that was never saved is continued");
        // SAFETY: `to` was prepared or saved by this function and was just taken out, so it is continued once; `from`
        // belongs to the kernel, which keeps a task's context at its place.
        unsafe { switch(from.saved.as_ptr(), to) };
    }

    #[inline(always)]
    fn threads(&self) -> Option<&dyn Threads<SimContext>> {
        if self.native { Some(self) } else { None }
    }

    fn seed(&self, purpose: &str) -> u64 {
        let settings = &self.fixed().settings;
        holdfast_workloads::stream_seed(settings.seed, settings.number, purpose)
    }

    fn report(&self, report: Report) {
        self.handle.order();
        let is_over = self.handle.with(|engine| {
            match &report {
                Report::Begin => engine.emit(&Happened::IntervalBegan { vm: self.vm }),
                Report::Done { .. } => engine.emit(&Happened::IntervalEnded { vm: self.vm }),
                _ => {}
            }
            let now = engine.clock.now;
            let vm = &mut engine.vms[self.vm];
            match report {
                Report::Begin => vm.report.begun = Some(now),
                Report::Done { operations } => {
                    vm.report.done = Some(now);
                    vm.report.operations = operations;
                    engine.end.finished = engine.vms.iter().all(Vm::is_finished);
                    return engine.end.finished;
                }
                Report::Counter(name, value) => *vm.report.counters.entry(name).or_insert(0) += value,
                Report::Panic(message) => {
                    engine.end.failure = Some(Failure::GuestPanic(message));
                    return true;
                }
            }
            false
        });
        if is_over {
            self.handle.switch_to(None);
        }
    }

    fn operation_completed(&self, ns: u64) {
        self.handle.with(|engine| {
            let report = &mut engine.vms[self.vm].report;
            if report.is_measuring() {
                report.latencies.record(ns);
            }
        });
    }
}

impl Threads<SimContext> for SimMachine {
    fn reserve(&self, count: u32) {
        self.handle.with(|engine| engine.native_reserve(count));
    }

    fn start(&self, thread: u32, context: &SimContext) {
        self.handle.order();
        let has_started = self.handle.with(|engine| {
            let saved = context.saved.replace(Saved::NONE);
            if saved != Saved::NONE
                && let Some(native) = &mut engine.tasks.native
            {
                native.threads[thread as usize].flow = Flow {
                    saved,
                    stack_limit: context.stack_limit.get(),
                };
            }
            engine.start_before_host(thread)
        });
        if !has_started {
            self.handle.call(Call::Start(thread));
        }
    }

    fn wake(&self, thread: u32) {
        self.handle.call(Call::Wake(thread));
    }

    fn sleep(&self, until: Option<u64>) {
        self.handle.call(Call::Sleep(until));
    }

    fn end(&self) {
        self.handle.call(Call::End);
    }

    fn yield_cpu(&self) {
        self.handle.call(Call::Preempt);
    }

    fn execute(&self) {
        self.handle.call(Call::Execute);
    }

    #[inline]
    fn wants_to_reschedule(&self) -> bool {
        // SAFETY: only methods of the engine and of its parts are called.
        let engine = unsafe { self.handle.engine() };
        let pcpu = engine.current().last_pcpu;
        engine.host.wants_to_reschedule(pcpu)
    }

    fn call(&self, target: CpuId) {
        let send = self.handle.with(|engine| engine.hardware.costs.ipi_send);
        self.handle.work(send);
        self.handle.order();
        self.handle
            .with(|engine| engine.send_ipi(PcpuId(target.0), HostInterrupt::Call, Picos::ZERO));
    }

    fn idle(&self) {
        self.handle.call(Call::Idle);
    }
}
