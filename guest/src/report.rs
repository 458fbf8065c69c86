//! Publishes the kernel's counters with the results.

use alloc::format;
use alloc::string::String;

use crate::class::{Event, LockClass};
use crate::kernel::Kernel;
use crate::machine::{Machine, Mode, Report};

/// Passes the counters that [`GuestImage::zero_statistics`](crate::GuestImage::zero_statistics) zeroes to `counter`,
/// summed over the CPUs. Lock classes that were never taken are left out.
pub(crate) fn statistics<M: Machine>(kernel: &Kernel<M>, counter: &mut dyn FnMut(String, u64)) {
    let system = &kernel.sched.system;
    for &event in Event::ALL {
        let total = system.cpus.iter().map(|cpu| cpu.events[event as usize].get()).sum();
        counter(format!("guest.{}", event.name()), total);
    }
    if system.policy.is_some() {
        let refused = system.cpus.iter().map(|cpu| cpu.refused.get()).sum();
        counter("guest.policy_refusals".into(), refused);
    }
    let (mut all_acquired, mut all_contended) = (0, 0);
    for &class in LockClass::ALL {
        let acquired: u64 = system.cpus.iter().map(|cpu| cpu.acquired[class as usize].get()).sum();
        let contended: u64 = system.cpus.iter().map(|cpu| cpu.contended[class as usize].get()).sum();
        if acquired > 0 {
            counter(format!("lock.{}.acquired", class.name()), acquired);
            counter(format!("lock.{}.contended", class.name()), contended);
            let waited: u64 = system.cpus.iter().map(|cpu| cpu.waited[class as usize].get()).sum();
            let held: u64 = system.cpus.iter().map(|cpu| cpu.held[class as usize].get()).sum();
            for (what, ns) in [("waited", waited), ("held", held)] {
                if ns > 0 {
                    counter(format!("lock.{}.{what}_ns", class.name()), ns);
                }
            }
        }
        all_acquired += acquired;
        all_contended += contended;
    }
    counter("lock.acquired".into(), all_acquired);
    counter("lock.contended".into(), all_contended);
}

/// Publishes all counters, summed over the CPUs.
pub(crate) fn publish<M: Machine>(kernel: &Kernel<M>) {
    let system = &kernel.sched.system;
    let counter = |name, value| system.machine.report(Report::Counter(name, value));
    statistics(kernel, &mut |name, value| counter(name, value));
    for (mode, name) in [(Mode::User, "user"), (Mode::Kernel, "system"), (Mode::Idle, "idle")] {
        let total = system.cpus.iter().map(|cpu| cpu.spent[mode as usize].get()).sum();
        counter(format!("guest.{name}_ns"), total);
    }
    if let Some(held) = kernel.sched.measured.held_ns() {
        counter("lock.measured_held_ns".into(), held);
    }
    let at_once: u64 = system.cpus.iter().map(|cpu| cpu.at_once.get()).sum();
    if at_once > 0 {
        counter("lock.at_once_ns".into(), at_once);
    }
    counter("guest.numa_nodes".into(), u64::from(system.numa.count));
    counter("guest.cpus".into(), u64::from(system.cpus.count()));
    counter(format!("guest.lock.{}", system.chosen.get().lock.name()), 1);
}
