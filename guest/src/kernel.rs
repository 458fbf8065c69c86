//! The kernel: its tables, and the view of it from a CPU.

use alloc::boxed::Box;
use core::cell::{Cell, OnceCell};

use holdfast_locks::{LockKind, OsqTable, Paravirt, Platform, Word};

use crate::class::LockClass;
use crate::driver::Drivers;
use crate::fs::FileSystem;
use crate::handle::KernelRef;
use crate::ipc::Ipc;
use crate::ipi::ApicOptions;
use crate::machine::{Cpu, Machine, Mode};
use crate::mask::CPUS_MAX;
use crate::mm::{Memory, MmapLock};
use crate::mutex::OwnerSpinning;
use crate::net::Net;
use crate::numa::NumaMap;
use crate::percpu::PerCpu;
use crate::program::{Limits, Program};
use crate::sync::{SpinLock, WordOf};
use crate::task::{TaskId, Tasks};
use crate::time::TimeKeeper;

/// A CPU's number as an index.
pub(crate) type CpuIndex = u32;

/// What the kernel boots with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The spinlock asked for.
    pub lock: LockKind,
    /// Timer interrupts per second of a busy CPU.
    pub hz: u32,
    /// `nopvspin`: no paravirtual spinlocks.
    pub nopvspin: bool,
    /// `no-steal-acc`: no steal-time record.
    pub no_steal_acc: bool,
    /// Whether the CPUs say that they share a last-level cache. A guest's do not by default: QEMU makes each vCPU a socket
    /// of its own. Wake-ups across caches go through the target CPU's wake list and an IPI, and look for no idle
    /// neighbour.
    pub shared_cache: bool,
    /// Who spins for a mutex whose owner runs. The published kernels of 3.3 to 3.9 know neither queue nor preempted flag.
    pub owner_spinning: OwnerSpinning,
    /// What the lock of an address space keeps out.
    pub mmap_lock: MmapLock,
    /// Whether a wake-up for a CPU of another cache is handed over to that CPU (`TTWU_QUEUE`, Linux 3.0 and later). Before,
    /// the waker itself takes the run queue's lock of the CPU where the task slept, and then of the one where it goes.
    pub ttwu_queue: bool,
    /// Whether tasks that wake many others leave them where they slept (`wake_wide`, Linux 3.12 and later, here as of 4.3).
    pub wake_wide: bool,
    /// How the APIC is used.
    pub apic: ApicOptions,
}

/// What the host does for this kernel, as its CPUID says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Assists {
    /// Preempted vCPUs are yielded to after a call to several (`pv_sched_yield`).
    pub(crate) yields: bool,
    /// The TLBs of preempted vCPUs are flushed by the host (`pv_tlb_flush`).
    pub(crate) flushes: bool,
    /// Interrupts for several CPUs are sent by hypercall (`pv_ipi`).
    pub(crate) ipis: bool,
}

/// The kernel.
pub(crate) struct Kernel<M: Machine> {
    pub(crate) machine: M,
    pub(crate) config: Config,
    lock_kind: Cell<LockKind>,
    assists: Cell<Assists>,
    me: OnceCell<KernelRef<M>>,
    /// CPUs that have booted; CPU 0 sets it to 1 once the kernel can be used.
    pub(crate) booted: WordOf<M>,
    pub(crate) cpus: Box<[PerCpu<M>]>,
    pub(crate) numa: NumaMap,
    pub(crate) tasks: Tasks<M>,
    pub(crate) memory: Memory<M>,
    pub(crate) files: FileSystem<M>,
    pub(crate) ipc: Ipc<M>,
    pub(crate) drivers: Drivers<M>,
    pub(crate) net: Net<M>,
    pub(crate) time: TimeKeeper<M>,
    /// Places of those who spin for mutexes in turn.
    pub(crate) spinners: OsqTable<WordOf<M>>,
    /// The kernel looks whose vCPU is preempted: its CPUs have registered their steal-time records, and it has paravirtual
    /// locks.
    pub(crate) sees_preempted: Cell<bool>,
    /// `tasklist_lock`.
    pub(crate) task_list: SpinLock<(), M>,
    pub(crate) program: Box<dyn Program<M>>,
}

impl<M: Machine> Kernel<M> {
    pub(crate) fn new(machine: M, config: Config, program: Box<dyn Program<M>>) -> Self {
        let cpus = machine.cpus();
        assert!(cpus <= CPUS_MAX, "{cpus} cpus: at most {CPUS_MAX}");
        let limits: Limits = program.limits();
        if let Some(threads) = machine.threads() {
            threads.reserve(limits.tasks);
        }
        // One on each CPU can be leaving.
        let leaving = if machine.threads().is_none() {
            cpus.min(limits.tasks)
        } else {
            0
        };
        let numa = NumaMap::read(&machine);
        Kernel {
            lock_kind: Cell::new(config.lock),
            assists: Cell::new(Assists::default()),
            me: OnceCell::new(),
            booted: WordOf::<M>::new(0),
            cpus: (0..cpus).map(|cpu| PerCpu::new(cpu, cpus, TaskId(cpu))).collect(),
            tasks: Tasks::new(cpus, limits.tasks, leaving),
            memory: Memory::new(numa.count()),
            numa,
            files: FileSystem::new(&limits),
            ipc: Ipc::new(&limits),
            drivers: Drivers::new(limits.drivers),
            net: Net::new(),
            time: TimeKeeper::new(config.hz),
            spinners: OsqTable::new(cpus as usize),
            sees_preempted: Cell::new(false),
            task_list: SpinLock::new(LockClass::TaskList, ()),
            program,
            machine,
            config,
        }
    }

    pub(crate) fn introduce(&self, me: KernelRef<M>) {
        assert!(self.me.set(me).is_ok(), "a kernel has two owners");
    }

    /// What a new flow of control holds.
    pub(crate) fn handle(&self) -> KernelRef<M> {
        *self.me.get().expect("a kernel runs before it has an owner")
    }

    /// The algorithm of every spinlock. Fixed before a second CPU runs.
    #[inline(always)]
    pub(crate) fn lock_kind(&self) -> LockKind {
        self.lock_kind.get()
    }

    pub(crate) fn choose_lock(&self, kind: LockKind) {
        self.lock_kind.set(kind);
    }

    /// What the host does for this kernel. Fixed before a second CPU runs.
    #[inline(always)]
    pub(crate) fn assists(&self) -> Assists {
        self.assists.get()
    }

    pub(crate) fn choose_assists(&self, assists: Assists) {
        self.assists.set(assists);
    }

    /// Whether every CPU has started.
    pub(crate) fn all_booted(&self) -> bool {
        self.cpus.iter().all(|cpu| cpu.online.get() != 0)
    }

    /// The kernel as the CPU that executes the caller sees it: good until the caller blocks or can be preempted.
    #[inline(always)]
    pub(crate) fn on_cpu(&self) -> OnCpu<'_, M> {
        let cpu = self.machine.cpu();
        let index = cpu.cpu().0;
        OnCpu {
            kernel: self,
            local: &self.cpus[index as usize],
            cpu,
            index,
        }
    }

    /// Whether CPUs `one` and `other` share a last-level cache.
    #[inline]
    pub(crate) fn share_cache(&self, one: CpuIndex, other: CpuIndex) -> bool {
        self.config.shared_cache || one == other
    }
}

/// The kernel on a CPU.
pub(crate) struct OnCpu<'k, M: Machine> {
    pub(crate) kernel: &'k Kernel<M>,
    pub(crate) local: &'k PerCpu<M>,
    pub(crate) cpu: M::Cpu,
    pub(crate) index: CpuIndex,
}

impl<M: Machine> OnCpu<'_, M> {
    /// Kernel work of `ns` nanoseconds.
    #[inline(always)]
    pub(crate) fn work(&self, ns: u64) {
        self.cpu.compute(ns);
    }

    /// Whether the scheduler wants this CPU (`need_resched`).
    #[inline(always)]
    pub(crate) fn wants_to_reschedule(&self) -> bool {
        match self.kernel.machine.threads() {
            Some(threads) => threads.wants_to_reschedule(),
            None => self.local.need_resched.get() != 0,
        }
    }

    /// The task that runs here.
    #[inline(always)]
    pub(crate) fn current(&self) -> TaskId {
        TaskId(self.local.current.get())
    }

    /// Says whose time this CPU spends from now on.
    #[inline(always)]
    pub(crate) fn execute(&self, mode: Mode) {
        self.local.set_mode(mode, self.now());
        self.cpu.executing(mode);
    }

    /// Nanoseconds since boot.
    #[inline(always)]
    pub(crate) fn now(&self) -> u64 {
        self.cpu.now_ns()
    }
}
