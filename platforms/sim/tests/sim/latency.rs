//! The costs on an interrupt's way delay it: host code has its effects when it has run, not when it begins.

use std::cell::Cell;
use std::rc::Rc;

use holdfast_abi::lapic;
use holdfast_guest::{Cpu, GuestImage, Machine, Mode, Report};
use holdfast_locks::{CpuId, Paravirt};
use holdfast_machine::{Costs, IdleState, Picos};
use holdfast_sim::{CallOff, Config, SimMachine, run_images};

use crate::apicv::apicv_config;
use crate::avic::avic_config;
use crate::image::config;

const VECTOR: u8 = 0x40;
const CALLS: u32 = 20;
/// How much dearer an operation gets.
const MORE_NS: u64 = 10_000;
const MORE: Picos = Picos::from_nanos(MORE_NS);

/// What vCPU 0 does while it is called.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Called {
    Computes,
    Halts,
}

/// vCPU 1 calls all other vCPUs by IPI and waits until they have taken the call.
struct Calls {
    machine: SimMachine,
    called: Called,
    sent_ns: Cell<u64>,
    /// vCPUs that have not taken the call yet.
    missing: Cell<u32>,
    /// Sums of the times from a call's begin until its first and its last handler begin.
    waited_ns: Rc<[Cell<u64>; 2]>,
}

impl GuestImage for Calls {
    fn boot(&self, number: CpuId) -> ! {
        let cpu = self.machine.cpu();
        cpu.executing(Mode::Kernel);
        cpu.apic_write(lapic::SVR, lapic::SVR_ENABLE | 0xff);
        if number.0 != 1 {
            if number.0 == 0 {
                self.machine.report(Report::Begin);
            }
            loop {
                cpu.irq_enable();
                match self.called {
                    Called::Computes => cpu.compute(1_000_000_000),
                    Called::Halts => cpu.halt_unmasked(),
                }
            }
        }
        for _ in 0..CALLS {
            // Long enough for the other vCPU to halt and its pCPU to idle.
            cpu.compute(400_000);
            cpu.apic_write(lapic::ICR_HIGH, 0);
            self.sent_ns.set(cpu.now_ns());
            let others = self.machine.cpus() - 1;
            self.missing.set(others);
            let to = if others > 1 { lapic::ICR_SHORTHAND_OTHERS } else { 0 };
            cpu.apic_write(lapic::ICR_LOW, lapic::ICR_ASSERT | to | u32::from(VECTOR));
            while self.missing.get() > 0 {
                cpu.compute(500);
            }
        }
        self.machine.report(Report::Done { operations: None });
        loop {
            cpu.compute(1_000_000_000);
        }
    }

    fn interrupt(&self, _: u8) {
        let cpu = self.machine.cpu();
        let [first, last] = &*self.waited_ns;
        let waited = cpu.now_ns() - self.sent_ns.get();
        if self.missing.get() + 1 == self.machine.cpus() {
            first.set(first.get() + waited);
        }
        self.missing.set(self.missing.get() - 1);
        if self.missing.get() == 0 {
            last.set(last.get() + waited);
        }
        cpu.apic_write(lapic::EOI, 0);
    }
}

/// The mean time of a call in nanoseconds, until the last vCPU has taken it.
fn call_ns(config: &Config, called: Called) -> u64 {
    let [_, last] = calls_ns(config, called);
    last
}

/// The mean times of a call in nanoseconds, until the first and until the last vCPU has taken it.
fn calls_ns(config: &Config, called: Called) -> [u64; 2] {
    let waited_ns = Rc::new([const { Cell::new(0) }; 2]);
    let outcome = run_images(config, &CallOff::new(), |_, machine| {
        Box::new(Calls {
            machine,
            called,
            sent_ns: Cell::new(0),
            missing: Cell::new(0),
            waited_ns: waited_ns.clone(),
        })
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
    [0, 1].map(|index| waited_ns[index].get() / u64::from(CALLS))
}

type CostOf = fn(&mut Costs) -> &mut Picos;

/// Asserts that each of `costs`, `MORE` dearer, delays a call by that much as often as it says.
fn assert_delays(config: &Config, called: Called, costs: &[(&str, u64, CostOf)]) {
    let base = call_ns(config, called);
    let found = costs.iter().map(|&(name, _, cost)| {
        let mut dearer = config.clone();
        *cost(&mut dearer.machine.costs) += MORE;
        let more = call_ns(&dearer, called).saturating_sub(base);
        (name, (more + 500) / MORE_NS)
    });
    let expected: Vec<_> = costs.iter().map(|&(name, times, _)| (name, times)).collect();
    assert_eq!(found.collect::<Vec<_>>(), expected, "{called:?}");
}

#[test]
fn an_ipi_leaves_when_the_senders_exit_was_handled() {
    let sent: &[(&str, u64, CostOf)] = &[
        // The receiver exits too.
        ("exit_hardware", 2, |costs| &mut costs.exit_hardware),
        ("exit_software", 2, |costs| &mut costs.exit_software),
        ("apic_deliver", 1, |costs| &mut costs.apic_deliver),
        ("ipi_send", 1, |costs| &mut costs.ipi_send),
        ("ipi_latency", 1, |costs| &mut costs.ipi_latency),
        ("host_interrupt", 1, |costs| &mut costs.host_interrupt),
        ("inject", 1, |costs| &mut costs.inject),
        ("guest_interrupt", 1, |costs| &mut costs.guest_interrupt),
    ];
    assert_delays(&config(2, 2, 0, 1), Called::Computes, sent);
}

#[test]
fn a_wakeup_ipi_leaves_when_its_sender_has_woken_the_thread() {
    let sent: &[(&str, u64, CostOf)] = &[
        // The receiver is entered, and does not exit.
        ("exit_hardware", 1, |costs| &mut costs.exit_hardware),
        ("exit_software", 1, |costs| &mut costs.exit_software),
        ("apic_deliver", 1, |costs| &mut costs.apic_deliver),
        ("wake", 1, |costs| &mut costs.wake),
        ("wake_cold", 1, |costs| &mut costs.wake_cold),
        ("ipi_send", 1, |costs| &mut costs.ipi_send),
        ("ipi_latency", 1, |costs| &mut costs.ipi_latency),
        ("idle_exit", 1, |costs| &mut costs.idle_exit),
        ("context_switch", 1, |costs| &mut costs.context_switch),
        ("inject", 1, |costs| &mut costs.inject),
    ];
    assert_delays(&config(2, 2, 0, 1), Called::Halts, sent);
}

#[test]
fn a_broadcast_pays_for_each_target_what_each_target_takes() {
    let sent: &[(&str, u64, CostOf)] = &[
        ("exit_software", 1, |costs| &mut costs.exit_software),
        ("wake", 5, |costs| &mut costs.wake),
        // The first wakeup has brought the scheduler's code and data into the caches.
        ("wake_cold", 1, |costs| &mut costs.wake_cold),
        ("ipi_send", 5, |costs| &mut costs.ipi_send),
        ("ipi_latency", 1, |costs| &mut costs.ipi_latency),
        ("idle_exit", 1, |costs| &mut costs.idle_exit),
        ("context_switch", 1, |costs| &mut costs.context_switch),
    ];
    assert_delays(&config(6, 6, 0, 1), Called::Halts, sent);
}

#[test]
fn hardware_serves_the_targets_of_a_broadcast_one_after_another() {
    let base = calls_ns(&avic_config(6, 6, 0, 1), Called::Computes);
    let mut slower = avic_config(6, 6, 0, 1);
    slower.machine.avic.as_mut().expect("the machine has AVIC").ipi += MORE;
    let slow = calls_ns(&slower, Called::Computes);
    let more = [0, 1].map(|index| (slow[index] - base[index] + MORE_NS / 2) / MORE_NS);
    assert_eq!(
        more,
        [1, 5],
        "times that the first and the last of 5 targets wait longer"
    );
}

#[test]
fn a_wakeup_pays_for_the_idle_state_that_its_target_had_time_to_reach() {
    // The target is idle for somewhat less than the caller's 400 us.
    let state = |exit_ns, residency_ns| IdleState {
        exit: Picos::from_nanos(exit_ns),
        residency: Picos::from_nanos(residency_ns),
    };
    let (shallow, reached, deep) = (state(0, 1_000), state(2_000, 300_000), state(4_000, 500_000));
    let call = |idle_states: [IdleState; 3]| {
        let mut config = config(2, 2, 0, 1);
        config.machine.idle_states = idle_states.into();
        call_ns(&config, Called::Halts)
    };
    let base = call([shallow, reached, deep]);
    let dearer = |state: IdleState| IdleState {
        exit: state.exit + MORE,
        ..state
    };
    assert_eq!(
        call([dearer(shallow), reached, deep]),
        base,
        "the state is left for a deeper one"
    );
    assert_eq!(
        call([shallow, reached, dearer(deep)]),
        base,
        "the idle time was too short"
    );
    let more = call([shallow, dearer(reached), deep]) - base;
    assert!(
        (9_500..10_500).contains(&more),
        "10 us more for the exit delay by {more} ns"
    );
}

#[test]
fn hardware_that_sends_ipis_spares_the_exits_only() {
    let spared: &[(&str, u64, CostOf)] = &[
        ("exit_hardware", 0, |costs| &mut costs.exit_hardware),
        ("exit_software", 0, |costs| &mut costs.exit_software),
        ("guest_interrupt", 1, |costs| &mut costs.guest_interrupt),
    ];
    assert_delays(&avic_config(2, 2, 0, 1), Called::Computes, spared);
    assert_delays(&apicv_config(true, 2, 2, 0, 1), Called::Computes, spared);
    let mut slower = apicv_config(true, 2, 2, 0, 1);
    let base = call_ns(&slower, Called::Computes);
    slower.machine.apicv.as_mut().expect("the machine has APICv").ipi += MORE;
    let more = call_ns(&slower, Called::Computes) - base;
    assert!(
        (10_000..11_500).contains(&more),
        "10 us more for an IPI delay it by {more} ns"
    );
}
