//! Booting: the host's features, the choice of the lock, each CPU's start, and the idle loop.

use alloc::boxed::Box;
use alloc::string::String;
use core::sync::atomic::Ordering::{Acquire, Release, SeqCst};

use holdfast_abi::{cpuid, msr};
use holdfast_locks::{Budget, CpuId, Environment, LockKind, Paravirt, Platform, Selection, select};

use crate::class::Event;
use crate::config::{Assists, BootTimer, Config, Idle};
use crate::cpu::{Chosen, IdleWait, ThisCpu, WATCHED};
use crate::handle::{KernelRef, OwnedKernel};
use crate::ids::TaskId;
use crate::kernel::Kernel;
use crate::machine::{Cpu, GuestImage, Machine, Mode};
use crate::os::Os;
use crate::program::Program;
use crate::sched::{OnCpu, TaskHooks};
use crate::{costs, haltpoll, interrupt, report, sched};

/// Makes a kernel with its program, ready to boot on `machine`.
pub fn image<M: Machine>(machine: M, config: Config, program: Box<dyn Program<M>>) -> Box<dyn GuestImage> {
    let kernel = OwnedKernel::new(Kernel::new(machine, config, &program.limits()));
    let running = Running {
        kernel: kernel.reference(),
        program,
    };
    kernel.sched.set_hooks(Box::new(running));
    Box::new(Image { kernel })
}

/// The kernel and the program that its tasks run.
struct Running<M: Machine> {
    kernel: KernelRef<M>,
    program: Box<dyn Program<M>>,
}

impl<M: Machine> TaskHooks<M> for Running<M> {
    fn body(&self, id: TaskId) -> Box<dyn FnOnce()> {
        let kernel = self.kernel;
        Box::new(move || kernel.sched.hooks().run(id))
    }

    fn run(&self, id: TaskId) {
        let kernel = self.kernel;
        let os = Os::new(kernel);
        sched::finish(&kernel.sched, id);
        loop {
            self.program.run(&os, kernel.processes.start_of(id));
            kernel.processes.exit(&kernel.sched);
        }
    }

    fn left_dead(&self, on: &OnCpu<'_, M>, id: TaskId) {
        self.kernel.processes.put_task(on, id);
    }
}

struct Image<M: Machine> {
    kernel: OwnedKernel<M>,
}

impl<M: Machine> GuestImage for Image<M> {
    fn boot(&self, cpu: CpuId) -> ! {
        let kernel: &Kernel<M> = &self.kernel;
        let on = kernel.sched.on_cpu();
        assert_eq!(on.id, cpu, "cpu {} boots as cpu {}", on.id.0, cpu.0);
        on.current_task()
            .ensure_context(|| kernel.sched.system.machine.empty_context());
        on.execute(Mode::Kernel);
        start(kernel, &on);
        idle(kernel)
    }

    fn zero_statistics(&self) {
        for cpu in self.kernel.sched.system.cpus.iter() {
            cpu.zero_statistics();
        }
    }

    fn statistics(&self, counter: &mut dyn FnMut(String, u64)) {
        report::statistics(&self.kernel, counter);
    }

    fn preempt(&self) {
        interrupt::preempt(&self.kernel);
    }

    fn interrupt(&self, vector: u8) {
        interrupt::handle(&self.kernel, vector);
    }

    fn nmi(&self) {
        interrupt::handle_nmi(&self.kernel);
    }
}

/// The features that the hypervisor offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Features {
    /// The CPU has process-context identifiers.
    pcid: bool,
    /// The CPU has MONITOR and MWAIT.
    monitor: bool,
    /// There is a hypervisor.
    hypervisor: bool,
    /// EAX of the feature leaf. 0 unless the hypervisor is KVM.
    kvm: u32,
    /// EDX of the feature leaf.
    hints: u32,
}

impl Features {
    fn read<M: Machine>(on: &ThisCpu<'_, M>) -> Features {
        Features::of(|leaf| on.cpu.cpuid(leaf))
    }

    /// Returns what EAX to EDX of the leaves say.
    fn of(leaf: impl Fn(u32) -> [u32; 4]) -> Features {
        let basic = leaf(cpuid::FEATURES)[2];
        let cpu = Features {
            pcid: basic & cpuid::PCID != 0,
            monitor: basic & cpuid::MONITOR != 0,
            ..Features::default()
        };
        if basic & cpuid::HYPERVISOR == 0 {
            return cpu;
        }
        let signature = leaf(cpuid::HYPERVISOR_BASE);
        if signature[1..] != cpuid::KVM_SIGNATURE {
            return Features {
                hypervisor: true,
                ..cpu
            };
        }
        let [kvm, _, _, hints] = leaf(cpuid::KVM_FEATURES);
        Features {
            hypervisor: true,
            kvm,
            hints,
            ..cpu
        }
    }

    /// Returns what a kernel of `cpus` CPUs chooses, apart from the lock.
    fn choose(self, lock: LockKind, config: &Config, cpus: u32) -> Chosen {
        Chosen {
            lock,
            assists: self.assists(cpus),
            pcids: self.pcid && config.uses_pcids(),
            idle: match config.idle {
                Idle::Poll => IdleWait::Poll,
                Idle::Halt | Idle::HaltPoll if self.monitor => IdleWait::Monitor,
                Idle::HaltPoll if self.offers(cpuid::KVM_FEATURE_POLL_CONTROL) => IdleWait::HaltPoll,
                Idle::Halt | Idle::HaltPoll => IdleWait::Halt,
            },
        }
    }

    fn offers(self, feature: u32) -> bool {
        self.kvm & feature != 0
    }

    /// The assists of the host that a kernel of `cpus` CPUs uses: `pv_sched_yield_supported`, `pv_tlb_flush_supported`
    /// and `pv_ipi_supported`. A guest with MWAIT takes its vCPUs to have a CPU each and uses neither of the first two.
    fn assists(self, cpus: u32) -> Assists {
        let knows_preempted = self.offers(cpuid::KVM_FEATURE_STEAL_TIME)
            && self.hints & cpuid::KVM_HINTS_REALTIME == 0
            && cpus > 1
            && !self.monitor;
        Assists {
            yields: knows_preempted && self.offers(cpuid::KVM_FEATURE_PV_SCHED_YIELD),
            flushes: knows_preempted && self.offers(cpuid::KVM_FEATURE_PV_TLB_FLUSH),
            ipis: cpus > 1 && self.offers(cpuid::KVM_FEATURE_PV_SEND_IPI),
        }
    }
}

/// Chooses the lock. Native and unfair locks are used as asked for. For paravirtual locks [`select`] decides.
pub fn choose_lock(asked: LockKind, environment: Environment) -> LockKind {
    let native = match asked {
        LockKind::PvTicket | LockKind::TailPvTicket | LockKind::OpportunisticTicket => LockKind::Ticket,
        LockKind::PvQspin | LockKind::HybridPvQspin | LockKind::EarlyPvQspin | LockKind::AheadPvQspin => {
            LockKind::Qspin
        }
        LockKind::WidePvQspin => LockKind::WideQspin,
        LockKind::WatchingQspin => LockKind::ExchangeQspin,
        // An unfair lock stays unfair where the host cannot kick.
        LockKind::UnfairPvQspin if !environment.pv_unhalt => return LockKind::UnfairQspin,
        LockKind::UnfairWatchingQspin if !environment.pv_unhalt => return LockKind::SimpleUnfairQspin,
        other => return other,
    };
    match select(environment) {
        Selection::Paravirtual => asked,
        Selection::Native => native,
        Selection::TestAndSet => LockKind::Ttas,
    }
}

fn environment<M: Machine>(on: &ThisCpu<'_, M>) -> Environment {
    let features = Features::read(on);
    Environment {
        hypervisor: features.hypervisor,
        pv_unhalt: features.offers(cpuid::KVM_FEATURE_PV_UNHALT),
        realtime_hint: features.hints & cpuid::KVM_HINTS_REALTIME != 0,
        cpus: on.system.cpu_count(),
        nopvspin: on.system.config.nopvspin,
    }
}

/// Brings this CPU up. Interrupts are masked.
fn start<M: Machine>(kernel: &Kernel<M>, on: &OnCpu<'_, M>) {
    let system = on.system;
    on.cpu.join_node(system.numa.nodes[on.id]);
    if on.id == CpuId(0) {
        let lock = choose_lock(system.config.lock, environment(on));
        let features = Features::read(on);
        system
            .chosen
            .set(features.choose(lock, &system.config, system.cpu_count()));
        // ORDERING: Release pairs with the Acquire of the CPUs that wait for it below.
        on.cpu.store(&kernel.booted, 1, Release);
    } else {
        on.wait_for(&kernel.booted, |booted| booted != 0);
        on.cpu.fetch_add(&kernel.booted, 1, Release);
    }
    register_with_host(on);
    // For a kernel on the machine itself, the host has the tick and the interrupt controller.
    if system.machine.threads().is_none() {
        let nox2apic = system.config.apic.nox2apic;
        on.local.apic.enable(&on.cpu, on.id, system.cpu_count(), nox2apic);
        if on.id == CpuId(0) && system.config.boot_timer == BootTimer::Pit {
            kernel.boot_timer.calibrate(on);
        }
        kernel.time.start_tick(on);
    }
    kernel.hotplug.take_part(on);
    if on.id == CpuId(0) {
        start_others(kernel, on);
        kernel.processes.create_first(on);
    }
}

/// Registers what this CPU shares with the host: the paravirtual EOI word, and the steal-time record. Switches off the
/// host's halt polling if this kernel polls itself.
fn register_with_host<M: Machine>(on: &ThisCpu<'_, M>) {
    let features = Features::read(on);
    if features.offers(cpuid::KVM_FEATURE_PV_EOI)
        && let Some(address) = on.cpu.pv_eoi_address()
    {
        on.local.apic.enable_pv_eoi(&on.cpu, address);
    }
    if on.system.config.apic.auto_eoi && on.system.machine.threads().is_none() {
        on.local.apic.enable_auto_eoi(&on.cpu);
    }
    if on.system.chosen.get().idle == IdleWait::HaltPoll {
        on.cpu.wrmsr(msr::POLL_CONTROL, 0);
    }
    if features.offers(cpuid::KVM_FEATURE_STEAL_TIME) {
        let address = on.cpu.steal_time_address(on.id);
        on.cpu.wrmsr(msr::STEAL_TIME, address | msr::STEAL_TIME_ENABLE);
        // `kvm_spinlock_init` implemented `vcpu_is_preempted` only where it had chosen paravirtual locks (until about
        // 5.17). Later kernels implement it wherever there is a steal-time record.
        let sees_preempted = select(environment(on)) == Selection::Paravirtual;
        on.system.sees_preempted.set(sees_preempted);
    }
}

/// Starts the other CPUs from CPU 0, one after another, unless the machine does.
fn start_others<M: Machine>(kernel: &Kernel<M>, on: &ThisCpu<'_, M>) {
    let machine = &on.system.machine;
    let Some(page) = machine.startup_page().filter(|_| machine.threads().is_none()) else {
        return;
    };
    for target in 1..machine.cpus() {
        on.local.apic.start_cpu(&on.cpu, CpuId(target), page);
        // ORDERING: the wait's Acquire pairs with the Release of the CPU that comes up.
        on.wait_for(&kernel.booted, |booted| booted > target);
    }
}

/// The idle loop.
fn idle<M: Machine>(kernel: &Kernel<M>) -> ! {
    if let Some(threads) = kernel.sched.system.machine.threads() {
        kernel.sched.on_cpu().execute(Mode::Idle);
        loop {
            threads.idle();
        }
    }
    loop {
        let on = kernel.sched.on_cpu();
        on.cpu.irq_disable();
        let act = |call| interrupt::do_call(kernel, &on, call);
        kernel.hotplug.leave_if_asked(&kernel.time, &on, act);
        on.work(costs::IDLE);
        on.execute(Mode::Idle);
        // Checked with interrupts masked. `sti; hlt` is one step, so an IPI that sets the flag ends the halt.
        while on.local.need_resched.get() == 0 {
            match on.system.chosen.get().idle {
                IdleWait::Halt => halt(kernel, &on),
                IdleWait::HaltPoll => {
                    let governor = &on.local.halt_poll;
                    match governor.poll_ns() {
                        0 => {
                            let since = on.now();
                            halt(kernel, &on);
                            governor.halted(on.now().saturating_sub(since));
                        }
                        limit_ns => {
                            let until = on.now() + limit_ns;
                            watch(kernel, &on, IdleWait::HaltPoll, until);
                            governor.polled(on.now() >= until);
                        }
                    }
                }
                wait => watch(kernel, &on, wait, u64::MAX),
            }
        }
        on.execute(Mode::Kernel);
        kernel.time.leave_idle(&on);
        on.cpu.irq_enable();
        sched::schedule(&kernel.sched);
    }
}

/// Halts until an interrupt. Interrupts are masked.
fn halt<M: Machine>(kernel: &Kernel<M>, on: &OnCpu<'_, M>) {
    kernel.time.enter_idle(on);
    on.local.count(Event::Halts);
    on.cpu.halt_unmasked();
}

/// Waits for a write to this CPU's word, or an interrupt, and does what the reschedule IPI would have done. A loop that
/// polls ends at `until`, in nanoseconds. Interrupts are masked.
fn watch<M: Machine>(kernel: &Kernel<M>, on: &OnCpu<'_, M>, wait: IdleWait, until: u64) {
    let word = &on.system.idle_words[on.id];
    if wait == IdleWait::Monitor {
        kernel.time.enter_idle(on);
        on.local.count(Event::Halts);
    }
    // ORDERING: SeqCst, see `send_reschedule`.
    on.cpu.swap(word, WATCHED, SeqCst);
    if on.local.need_resched.get() == 0 && !sched::has_ipi_work(on) {
        // A handler that comes here or later writes the word (`interrupt::handle`).
        on.cpu.irq_enable();
        if wait == IdleWait::Monitor {
            on.cpu.monitor_wait(word, WATCHED);
        } else {
            let is_over = |value| value != WATCHED;
            let budget = if until == u64::MAX {
                Budget::UNBOUNDED
            } else {
                haltpoll::LOOK_AT_CLOCK
            };
            while on.cpu.wait_until(word, budget, Acquire, is_over).is_err() && on.now() < until {}
        }
        on.cpu.irq_disable();
    }
    on.cpu.swap(word, 0, SeqCst);
    interrupt::woken_by_word(kernel, on);
}

#[cfg(test)]
mod tests {
    use super::*;

    const KVM: Environment = Environment {
        hypervisor: true,
        pv_unhalt: true,
        realtime_hint: false,
        cpus: 8,
        nopvspin: false,
    };

    #[test]
    fn yields_need_the_feature_the_steal_time_record_and_a_host_that_preempts() {
        let whole = Features {
            hypervisor: true,
            kvm: cpuid::KVM_FEATURE_PV_SCHED_YIELD | cpuid::KVM_FEATURE_STEAL_TIME,
            ..Features::default()
        };
        assert!(whole.assists(2).yields);
        assert!(!whole.assists(1).yields);
        let without = |kvm, hints| Features { kvm, hints, ..whole }.assists(2).yields;
        assert!(!without(cpuid::KVM_FEATURE_STEAL_TIME, 0));
        assert!(!without(cpuid::KVM_FEATURE_PV_SCHED_YIELD, 0));
        assert!(!without(whole.kvm, cpuid::KVM_HINTS_REALTIME));
        let monitor = Features { monitor: true, ..whole };
        assert!(!monitor.assists(2).yields);
    }

    #[test]
    fn each_assist_needs_its_own_bit() {
        let assists = |kvm| {
            let features = Features {
                hypervisor: true,
                kvm: kvm | cpuid::KVM_FEATURE_STEAL_TIME,
                ..Features::default()
            };
            let Assists { yields, flushes, ipis } = features.assists(2);
            [yields, flushes, ipis]
        };
        assert_eq!(assists(0), [false; 3]);
        assert_eq!(assists(cpuid::KVM_FEATURE_PV_SCHED_YIELD), [true, false, false]);
        assert_eq!(assists(cpuid::KVM_FEATURE_PV_TLB_FLUSH), [false, true, false]);
        assert_eq!(assists(cpuid::KVM_FEATURE_PV_SEND_IPI), [false, false, true]);
        let alone = Features {
            hypervisor: true,
            kvm: u32::MAX,
            ..Features::default()
        }
        .assists(1);
        assert_eq!(alone, Assists::default());
    }

    #[test]
    fn each_feature_is_a_bit_of_its_own() {
        let read = |basic: u32, signature: [u32; 3]| {
            Features::of(|leaf| match leaf {
                cpuid::FEATURES => [0, 0, basic, 0],
                cpuid::HYPERVISOR_BASE => [cpuid::KVM_FEATURES, signature[0], signature[1], signature[2]],
                cpuid::KVM_FEATURES => [5, 6, 7, 8],
                _ => [0; 4],
            })
        };
        let none = Features::default();
        let other = !(cpuid::PCID | cpuid::MONITOR | cpuid::HYPERVISOR);
        assert_eq!(read(0, cpuid::KVM_SIGNATURE), none);
        assert_eq!(read(other, cpuid::KVM_SIGNATURE), none);
        let pcid = Features { pcid: true, ..none };
        assert_eq!(read(cpuid::PCID, cpuid::KVM_SIGNATURE), pcid);
        let monitor = Features { monitor: true, ..none };
        assert_eq!(read(cpuid::MONITOR, cpuid::KVM_SIGNATURE), monitor);
        let unknown = Features {
            hypervisor: true,
            ..none
        };
        assert_eq!(read(cpuid::HYPERVISOR, [1, 2, 3]), unknown);
        let kvm = Features {
            kvm: 5,
            hints: 8,
            ..unknown
        };
        assert_eq!(read(cpuid::HYPERVISOR, cpuid::KVM_SIGNATURE), kvm);
    }

    #[test]
    fn contexts_and_idle_waits_need_the_cpu_and_the_wish() {
        for (pcid, wanted) in [(false, false), (false, true), (true, false), (true, true)] {
            let features = Features {
                pcid,
                ..Features::default()
            };
            let config = Config {
                pcid: Some(wanted),
                ..Config::default()
            };
            assert_eq!(features.choose(LockKind::Ticket, &config, 2).pcids, pcid && wanted);
        }
        let idle = |monitor, idle| {
            let features = Features {
                monitor,
                ..Features::default()
            };
            let config = Config {
                idle,
                ..Config::default()
            };
            features.choose(LockKind::Ticket, &config, 2).idle
        };
        assert_eq!(idle(false, Idle::Halt), IdleWait::Halt);
        assert_eq!(idle(true, Idle::Halt), IdleWait::Monitor);
        assert_eq!(idle(true, Idle::Poll), IdleWait::Poll);
        assert_eq!(idle(true, Idle::HaltPoll), IdleWait::Monitor);
        assert_eq!(idle(false, Idle::HaltPoll), IdleWait::Halt);
        let offered = Features {
            kvm: cpuid::KVM_FEATURE_POLL_CONTROL,
            ..Features::default()
        };
        for (wanted, waits) in [
            (Idle::Halt, IdleWait::Halt),
            (Idle::Poll, IdleWait::Poll),
            (Idle::HaltPoll, IdleWait::HaltPoll),
        ] {
            let config = Config {
                idle: wanted,
                ..Config::default()
            };
            assert_eq!(offered.choose(LockKind::Ticket, &config, 2).idle, waits);
        }
    }

    #[test]
    fn only_paravirtual_locks_depend_on_the_host() {
        for &kind in LockKind::ALL {
            let with = choose_lock(kind, KVM);
            let without = choose_lock(
                kind,
                Environment {
                    pv_unhalt: false,
                    ..KVM
                },
            );
            assert_eq!(with, kind, "the host offers all that {kind} needs");
            let is_paravirtual = kind.kicks();
            assert_eq!(
                without != kind,
                is_paravirtual,
                "{kind} becomes {without} on a host that cannot kick"
            );
        }
        assert_eq!(
            choose_lock(LockKind::PvTicket, Environment { nopvspin: true, ..KVM }),
            LockKind::Ticket
        );
    }
}
