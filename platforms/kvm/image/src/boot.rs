//! The boot of a CPU, from its first Rust code to its task.

#![expect(unsafe_code, reason = "the first code takes over memory and CPU from the VMM")]

use alloc::boxed::Box;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use holdfast_abi::{cpuid, msr};
use holdfast_guest::Cpu;
use holdfast_locks::{CpuId, NodeTable, Paravirt, WaitTable};
use holdfast_protocol::layout::{ORDERS, ORDERS_BYTES};
use holdfast_protocol::{Message, Orders, Task, decode, heap_in};

use crate::clock::{Record, Time};
use crate::cpu::KvmCpu;
use crate::hypervisor::Hypervisor;
use crate::instructions::{self, stop};
use crate::machine::KvmMachine;
use crate::percpu::{self, PerCpu, Shared};
use crate::{contend, fault, heap, interrupts, pace, ring, tables};

/// The plan that CPU 0 has published, or null.
static READY: AtomicPtr<Plan> = AtomicPtr::new(core::ptr::null_mut());
/// Number of CPUs that compute while they wait for the plan.
static WAITING: AtomicU32 = AtomicU32::new(0);
/// Number of CPUs that execute the task.
static STARTED: AtomicU32 = AtomicU32::new(0);

/// Iterations between two checks whether CPU 0 is ready: less than a microsecond.
const WAIT_ITERATIONS: u64 = 200;

/// Longest time in nanoseconds that CPU 0 waits for the others before it measures its pace: a few time slices of the
/// host.
const OTHERS_NS: u64 = 20_000_000;

struct Plan {
    shared: &'static Shared,
    task: Task,
}

/// The first Rust code of CPU `number`. It runs on the boot stack with interrupts masked.
///
/// # Safety
/// The image's entry point must call this once on each CPU that the VMM starts, with that CPU's number.
pub unsafe extern "sysv64" fn main(number: u32) -> ! {
    // SAFETY: this function's own contract.
    let block = unsafe { percpu::enter(number) };
    let plan = if number == 0 { prepare(block) } else { join(block) };
    tables::load(&block.tables);
    run(&KvmCpu::current(), plan)
}

/// Returns the encoded orders.
fn orders() -> &'static [u8] {
    let length = core::ptr::with_exposed_provenance::<u32>(ORDERS as usize);
    // SAFETY: the VMM has mapped the orders' page, and written the length before it started this CPU.
    let length = (unsafe { length.read_volatile() } as usize).min(ORDERS_BYTES as usize - 4);
    // SAFETY: as above; nothing writes to the page after that.
    unsafe { core::slice::from_raw_parts(core::ptr::with_exposed_provenance(ORDERS as usize + 4), length) }
}

fn prepare(block: &'static PerCpu) -> &'static Plan {
    let bytes = orders();
    let unread = || -> ! {
        let length = bytes.len();
        panic!("cannot decode orders of {length} bytes: vmm and image have different versions")
    };
    let Some(heap) = heap_in(bytes) else { unread() };
    // SAFETY: the range is mapped memory that the VMM has reserved for the heap, and nothing was allocated before:
    // `heap_in` takes no memory.
    unsafe { heap::begin(heap.begin as usize, heap.end as usize) };
    let Some(orders) = decode::<Orders>(bytes) else {
        unread()
    };
    tables::fill_gates(interrupts::stubs());
    let time = Time::start(orders.clock, &block.clock);
    let cpus = orders.cpus as usize;
    await_others(orders.cpus - 1, &time, &block.clock);
    let shared: &'static Shared = Box::leak(Box::new(Shared {
        cpus: orders.cpus,
        seed: orders.seed,
        guest: orders.guest,
        spin_threshold: spin_threshold(&orders.task),
        halts_behind_preempted: matches!(&orders.task, Task::Kernel(boot) if boot.wait_early_preempted),
        domains: orders.domains,
        hypervisor: Hypervisor::discover(),
        time,
        pace: pace::measure(|| time.now(&block.clock)),
        nodes: NodeTable::new(cpus),
        waiting: WaitTable::new(cpus),
    }));
    block.begin(shared);
    let machine = KvmMachine { shared };
    match &orders.task {
        Task::Kernel(boot) => interrupts::deliver_to(holdfast_workloads::image(machine, boot)),
        Task::Micro { micro, samples } => {
            interrupts::deliver_to(holdfast_workloads::micro::micro(machine, *micro, *samples));
        }
        Task::Contention(_) | Task::Hog | Task::Fault(_) => {}
    }
    let task = orders.task;
    let plan = Box::leak(Box::new(Plan { shared, task }));
    // ORDERING: Release; pairs with the Acquire in `join`.
    READY.store(plan, Release);
    plan
}

/// Waits until `others` CPUs compute, or for [`OTHERS_NS`]. The pace must be measured on a busy machine.
fn await_others(others: u32, time: &Time, record: &Record) {
    let begin = time.now(record);
    // ORDERING: Relaxed; the count publishes no other data.
    while WAITING.load(Relaxed) < others && time.now(record) - begin < OTHERS_NS {
        instructions::spin(WAIT_ITERATIONS);
    }
}

fn join(block: &'static PerCpu) -> &'static Plan {
    // ORDERING: Relaxed; the count publishes no other data.
    WAITING.fetch_add(1, Relaxed);
    loop {
        // ORDERING: Acquire; pairs with the Release in `prepare`, so that the plan's content is visible.
        let plan = READY.load(Acquire);
        // SAFETY: the pointer is null or a leaked box.
        if let Some(plan) = unsafe { plan.as_ref() } {
            block.begin(plan.shared);
            plan.shared.time.join(&block.clock);
            return plan;
        }
        // Compute as the task will, since CPU 0 measures its pace meanwhile.
        instructions::spin(WAIT_ITERATIONS);
    }
}

fn spin_threshold(task: &Task) -> u32 {
    match task {
        Task::Kernel(boot) => boot.spin_threshold,
        Task::Contention(contention) => contention.spin_threshold,
        Task::Micro { .. } | Task::Hog | Task::Fault(_) => 1 << 15,
    }
}

fn run(cpu: &KvmCpu, plan: &'static Plan) -> ! {
    let number = cpu.block().number.get();
    let started = Message::Started {
        cpu: number,
        now_ns: cpu.now_ns(),
    };
    // ORDERING: AcqRel; the last CPU's increment comes after the others' reports.
    if STARTED.fetch_add(1, AcqRel) + 1 == plan.shared.cpus {
        ring::report_now(&started);
    } else {
        ring::report(&started);
    }
    match &plan.task {
        Task::Kernel(_) | Task::Micro { .. } => match interrupts::image() {
            Some(image) => image.boot(CpuId(number)),
            None => unreachable!("cpu 0 creates the kernel before it publishes the plan"),
        },
        Task::Contention(contention) => {
            register_steal_time(cpu);
            contend::run(cpu, contention);
        }
        Task::Hog => loop {
            instructions::spin(1 << 30);
        },
        Task::Fault(fault) => fault::commit(cpu, *fault),
    }
    stop()
}

/// Registers this CPU's steal-time record, as a kernel does. Locks read its preempted flag.
fn register_steal_time(cpu: &KvmCpu) {
    if cpu.shared().hypervisor.offers(cpuid::KVM_FEATURE_STEAL_TIME) {
        let number = CpuId(cpu.block().number.get());
        cpu.wrmsr(msr::STEAL_TIME, cpu.steal_time_address(number) | msr::STEAL_TIME_ENABLE);
    }
}
