//! Booting: features, the lock's choice, each CPU's start, the idle loop.

use alloc::boxed::Box;
use core::sync::atomic::Ordering::{Acquire, Release};

use holdfast_abi::{cpuid, msr};
use holdfast_locks::{Budget, CpuId, Environment, LockKind, Paravirt, Platform, Selection, select};

use crate::class::Event;
use crate::handle::OwnedKernel;
use crate::kernel::{Assists, Config, Kernel, OnCpu};
use crate::machine::{Cpu, GuestImage, Machine, Mode};
use crate::program::Program;
use crate::{apic, costs, interrupt, process, sched, time};

/// A kernel with its program, ready to boot on `machine`.
pub fn image<M: Machine>(machine: M, config: Config, program: Box<dyn Program<M>>) -> Box<dyn GuestImage> {
    Box::new(Image {
        kernel: OwnedKernel::new(Kernel::new(machine, config, program)),
    })
}

struct Image<M: Machine> {
    kernel: OwnedKernel<M>,
}

impl<M: Machine> GuestImage for Image<M> {
    fn boot(&self, cpu: CpuId) -> ! {
        let kernel: &Kernel<M> = &self.kernel;
        let on = kernel.on_cpu();
        assert_eq!(on.index, cpu.0, "cpu {} boots as cpu {}", on.index, cpu.0);
        kernel
            .tasks
            .get(on.current())
            .ensure_context(|| kernel.machine.empty_context());
        on.execute(Mode::Kernel);
        start(&on);
        idle(kernel)
    }

    fn preempt(&self) {
        interrupt::preempt(&self.kernel);
    }

    fn interrupt(&self, vector: u8) {
        interrupt::handle(&self.kernel, vector);
    }
}

/// What the hypervisor offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Features {
    /// There is one.
    hypervisor: bool,
    /// EAX of the feature leaf; 0 unless the hypervisor is KVM.
    kvm: u32,
    /// EDX of it.
    hints: u32,
}

impl Features {
    fn read<M: Machine>(on: &OnCpu<'_, M>) -> Features {
        if on.cpu.cpuid(cpuid::FEATURES)[2] & cpuid::HYPERVISOR == 0 {
            return Features::default();
        }
        let signature = on.cpu.cpuid(cpuid::HYPERVISOR_BASE);
        if signature[1..] != cpuid::KVM_SIGNATURE {
            return Features {
                hypervisor: true,
                ..Features::default()
            };
        }
        let leaf = on.cpu.cpuid(cpuid::KVM_FEATURES);
        Features {
            hypervisor: true,
            kvm: leaf[0],
            hints: leaf[3],
        }
    }

    fn offers(self, feature: u32) -> bool {
        self.kvm & feature != 0
    }

    /// What a kernel of `cpus` CPUs leaves to the host: `pv_sched_yield_supported`, `pv_tlb_flush_supported` and
    /// `pv_ipi_supported`. Deliberately missing: MWAIT in guests, which would forbid the first two.
    fn assists(self, cpus: u32) -> Assists {
        let knows_preempted =
            self.offers(cpuid::KVM_FEATURE_STEAL_TIME) && self.hints & cpuid::KVM_HINTS_REALTIME == 0 && cpus > 1;
        Assists {
            yields: knows_preempted && self.offers(cpuid::KVM_FEATURE_PV_SCHED_YIELD),
            flushes: knows_preempted && self.offers(cpuid::KVM_FEATURE_PV_TLB_FLUSH),
            ipis: cpus > 1 && self.offers(cpuid::KVM_FEATURE_PV_SEND_IPI),
        }
    }
}

/// What becomes of the lock asked for. A native or unfair one is taken at its word; a paravirtual one is for
/// [`select`] to decide.
pub fn choose_lock(asked: LockKind, environment: Environment) -> LockKind {
    let native = match asked {
        LockKind::PvTicket => LockKind::Ticket,
        LockKind::PvQspin | LockKind::HybridPvQspin => LockKind::Qspin,
        // Unfair without anybody's help.
        LockKind::UnfairPvQspin => {
            return if environment.pv_unhalt {
                asked
            } else {
                LockKind::UnfairQspin
            };
        }
        other => return other,
    };
    match select(environment) {
        Selection::Paravirtual => asked,
        Selection::Native => native,
        Selection::TestAndSet => LockKind::Ttas,
    }
}

fn environment<M: Machine>(on: &OnCpu<'_, M>) -> Environment {
    let features = Features::read(on);
    Environment {
        hypervisor: features.hypervisor,
        pv_unhalt: features.offers(cpuid::KVM_FEATURE_PV_UNHALT),
        realtime_hint: features.hints & cpuid::KVM_HINTS_REALTIME != 0,
        cpus: on.kernel.machine.cpus(),
        nopvspin: on.kernel.config.nopvspin,
    }
}

/// Without its records nobody knows who is preempted.
fn assists<M: Machine>(kernel: &Kernel<M>, features: Features) -> Assists {
    let mut assists = features.assists(kernel.machine.cpus());
    assists.flushes &= !kernel.config.no_steal_acc;
    assists
}

/// Brings this CPU up. Interrupts are masked.
fn start<M: Machine>(on: &OnCpu<'_, M>) {
    let kernel = on.kernel;
    on.cpu.join_node(kernel.numa.node_of(on.index));
    if on.index == 0 {
        kernel.choose_lock(choose_lock(kernel.config.lock, environment(on)));
        kernel.choose_assists(assists(kernel, Features::read(on)));
        // ORDERING: Release pairs with the Acquire of the CPUs that wait for it below.
        on.cpu.store(&kernel.booted, 1, Release);
    } else {
        let ready = on
            .cpu
            .wait_until(&kernel.booted, Budget::UNBOUNDED, Acquire, |booted| booted != 0);
        assert!(ready.is_ok(), "an unbounded wait gave up");
        on.cpu.fetch_add(&kernel.booted, 1, Release);
    }
    let features = Features::read(on);
    if features.offers(cpuid::KVM_FEATURE_PV_EOI)
        && let Some(address) = on.cpu.pv_eoi_address()
    {
        on.cpu.wrmsr(msr::PV_EOI, address | msr::PV_EOI_ENABLE);
        on.local.timer.pv_eoi.set(1);
    }
    if features.offers(cpuid::KVM_FEATURE_STEAL_TIME) && !kernel.config.no_steal_acc {
        let address = on.cpu.steal_time_address(CpuId(on.index));
        on.cpu.wrmsr(msr::STEAL_TIME, address | msr::STEAL_TIME_ENABLE);
        // `kvm_spinlock_init` gave `vcpu_is_preempted` its body where it had chosen paravirtual locks, and only there (until 5.17 or
        // so; later kernels do so wherever there is a record).
        let paravirtual = select(environment(on)) == Selection::Paravirtual;
        kernel.sees_preempted.set(paravirtual);
    }
    // The scheduler beneath has the tick, and its kernel the interrupt controller.
    if kernel.machine.threads().is_none() {
        apic::enable(on);
        time::start_tick(on);
    }
    on.local.online.set(1);
    if on.index == 0 {
        start_others(on);
        process::create_first(on);
    }
}

/// CPU 0 starts the others, one after another, unless the machine does.
fn start_others<M: Machine>(on: &OnCpu<'_, M>) {
    let machine = &on.kernel.machine;
    let Some(page) = machine.startup_page().filter(|_| machine.threads().is_none()) else {
        return;
    };
    for target in 1..machine.cpus() {
        apic::start_cpu(on, target, page);
        // ORDERING: Acquire pairs with the Release of the CPU that comes up.
        let up = on
            .cpu
            .wait_until(&on.kernel.booted, Budget::UNBOUNDED, Acquire, |booted| booted > target);
        assert!(up.is_ok(), "an unbounded wait gave up");
    }
}

/// The idle task's life.
fn idle<M: Machine>(kernel: &Kernel<M>) -> ! {
    if let Some(threads) = kernel.machine.threads() {
        kernel.on_cpu().execute(Mode::Idle);
        loop {
            threads.idle();
        }
    }
    loop {
        let on = kernel.on_cpu();
        on.cpu.irq_disable();
        on.work(costs::IDLE);
        on.execute(Mode::Idle);
        // Checked with interrupts masked, and `sti; hlt` is one step: an IPI that sets it ends the halt.
        while on.local.need_resched.get() == 0 {
            time::enter_idle(&on);
            on.local.count(Event::Halts);
            on.cpu.halt_unmasked();
        }
        on.execute(Mode::Kernel);
        time::leave_idle(&on);
        on.cpu.irq_enable();
        sched::schedule(kernel);
    }
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
            hints: 0,
        };
        assert!(whole.assists(2).yields);
        assert!(!whole.assists(1).yields);
        let without = |kvm, hints| Features { kvm, hints, ..whole }.assists(2).yields;
        assert!(!without(cpuid::KVM_FEATURE_STEAL_TIME, 0));
        assert!(!without(cpuid::KVM_FEATURE_PV_SCHED_YIELD, 0));
        assert!(!without(whole.kvm, cpuid::KVM_HINTS_REALTIME));
    }

    #[test]
    fn each_assist_needs_its_own_bit() {
        let assists = |kvm| {
            let features = Features {
                hypervisor: true,
                kvm: kvm | cpuid::KVM_FEATURE_STEAL_TIME,
                hints: 0,
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
            hints: 0,
        }
        .assists(1);
        assert_eq!(alone, Assists::default());
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
            let is_paravirtual = kind.halts();
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
