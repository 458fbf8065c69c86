//! Booting: the kernel's image, and the start of each CPU.

use alloc::boxed::Box;
use alloc::string::String;
use core::sync::atomic::Ordering::Release;

use holdfast_abi::{cpuid, msr};
use holdfast_locks::{CpuId, Platform, Selection, select};

use crate::config::Config;
use crate::cpu::{IdleWait, ThisCpu};
use crate::features::{Features, choose_lock, environment};
use crate::handle::{KernelRef, OwnedKernel};
use crate::idle::idle;
use crate::ids::TaskId;
use crate::kernel::Kernel;
use crate::machine::{Cpu, GuestImage, Machine, Mode};
use crate::os::Os;
use crate::program::Program;
use crate::sched::{OnCpu, TaskHooks};
use crate::{interrupt, report, sched};

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
        kernel.time.start_tick(on);
    }
    on.local.online.set(1);
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
