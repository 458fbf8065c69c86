//! IPIs under AVIC in virtual time: each arrives once, without an exit where the target runs, and planted faults lose
//! some.

use std::cell::Cell;
use std::rc::Rc;

use holdfast_abi::lapic;
use holdfast_guest::{Cpu, GuestImage, Machine, Mode, Report};
use holdfast_host::{AvicConfig, AvicDriver, AvicEnable};
use holdfast_locks::{CpuId, Paravirt, Platform};
use holdfast_machine::avic::AvicHardware;
use holdfast_machine::{AvicModel, Picos};
use holdfast_sim::{CallOff, Config, Failure, Outcome, SimCpu, SimMachine, run_images};

use crate::image::{Random, config};

/// A sender's number in a vector: requests and replies are in classes of their own.
const REQUEST: u8 = 0x40;
const REPLY: u8 = 0x90;

/// How a vCPU waits for a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    Halt,
    Spin,
    Either,
}

/// Each vCPU sends a request by IPI to random other vCPUs, and waits for the reply.
pub struct Storm {
    machine: SimMachine,
    rounds: u32,
    /// Number of vCPUs that send requests; the others only reply.
    askers: u32,
    wait: Wait,
    seed: u64,
    /// Interrupts on their way, by vector, sender and receiver.
    sent: Vec<Cell<bool>>,
    /// Number of vCPUs that have enabled their LAPIC.
    on: Cell<u32>,
    done: Rc<Cell<u32>>,
}

impl Storm {
    fn sent(&self, vector: u8, from: u32, to: u32) -> &Cell<bool> {
        let kind = u32::from(vector >= REPLY);
        let cpus = self.machine.cpus();
        &self.sent[((kind * cpus + from) * cpus + to) as usize]
    }

    fn note(&self, vector: u8, from: u32, to: u32) {
        let was = self.sent(vector, from, to).replace(true);
        assert!(!was, "the last one was not answered");
    }

    fn send(&self, cpu: &SimCpu, vector: u8, to: u32) {
        cpu.apic_write(lapic::ICR_HIGH, lapic::icr_high(to as u8));
        cpu.apic_write(lapic::ICR_LOW, u32::from(vector + cpu.cpu().0 as u8));
    }

    fn ask(&self, cpu: &SimCpu, random: &mut Random) {
        let (this, cpus) = (cpu.cpu().0, u64::from(self.machine.cpus()));
        cpu.compute(random.next(20_000));
        let to = (u64::from(this) + 1 + random.next(cpus - 1)) % cpus;
        cpu.irq_disable();
        self.note(REQUEST, this, to as u32);
        self.send(cpu, REQUEST, to as u32);
        let halts = match self.wait {
            Wait::Halt => true,
            Wait::Spin => false,
            Wait::Either => random.next(2) == 0,
        };
        // The reply has arrived when its handler has taken it.
        while self.sent(REQUEST, this, to as u32).get() || self.sent(REPLY, to as u32, this).get() {
            if halts {
                cpu.halt_unmasked();
            } else {
                cpu.irq_enable();
                cpu.compute(300);
                cpu.irq_disable();
            }
        }
        cpu.irq_enable();
    }
}

impl GuestImage for Storm {
    fn boot(&self, number: CpuId) -> ! {
        let cpu = self.machine.cpu();
        cpu.executing(Mode::Kernel);
        cpu.apic_write(lapic::SVR, lapic::SVR_ENABLE | 0xff);
        cpu.irq_enable();
        if number.0 == 0 {
            self.machine.report(Report::Begin);
        }
        let mut random = Random(self.seed ^ u64::from(number.0) << 32);
        // An emulated LAPIC that is not enabled yet ignores interrupts.
        self.on.set(self.on.get() + 1);
        while self.on.get() < self.machine.cpus() {
            cpu.compute(200_000);
        }
        if number.0 < self.askers {
            for _ in 0..self.rounds {
                self.ask(&cpu, &mut random);
            }
            self.done.set(self.done.get() + 1);
        }
        if self.done.get() == self.askers {
            assert!(self.sent.iter().all(|sent| !sent.get()), "something is still under way");
            self.machine.report(Report::Done { operations: None });
        }
        loop {
            cpu.compute(random.next(20_000));
            if self.wait == Wait::Spin {
                continue;
            }
            cpu.irq_disable();
            cpu.halt_unmasked();
            cpu.irq_enable();
        }
    }

    fn interrupt(&self, vector: u8) {
        let cpu = self.machine.cpu();
        let kind = if vector >= REPLY { REPLY } else { REQUEST };
        let (from, this) = (u32::from(vector - kind), cpu.cpu().0);
        assert!(
            self.sent(kind, from, this).get(),
            "vector {vector:#x} is taken twice, or was never sent"
        );
        if kind == REQUEST {
            self.note(REPLY, this, from);
        }
        self.sent(kind, from, this).set(false);
        if kind == REQUEST {
            self.send(&cpu, REPLY, from);
        }
        cpu.apic_write(lapic::EOI, 0);
    }
}

/// A CPU model with AVIC.
pub fn part() -> AvicModel {
    AvicModel {
        hardware: AvicHardware::default(),
        family: 0x15,
        register: Picos::from_nanos(10),
        ipi: Picos::from_nanos(50),
        doorbell: Picos::from_nanos(100),
        doorbell_latency: Picos::from_nanos(300),
        exit: Picos::from_nanos(200),
    }
}

/// A machine whose host uses AVIC.
pub fn avic_config(pcpus: u32, vcpus: u32, hogs: u32, seed: u64) -> Config {
    let mut config = config(pcpus, vcpus, hogs, seed);
    config.machine.avic = Some(part());
    config.host.avic.enable = AvicEnable::On;
    config.limit_ns = 2_000_000_000;
    config
}

pub fn storm(config: &Config, rounds: u32, wait: Wait) -> Result<Outcome, Failure> {
    asked(config, rounds, wait, config.vms[0].vcpus)
}

fn asked(config: &Config, rounds: u32, wait: Wait, askers: u32) -> Result<Outcome, Failure> {
    run_images(config, &CallOff::new(), |vm, machine| {
        let pairs = 2 * vm.vcpus * vm.vcpus;
        Box::new(Storm {
            machine,
            rounds,
            askers,
            wait,
            seed: config.seed,
            sent: (0..pairs).map(|_| Cell::new(false)).collect(),
            on: Cell::new(0),
            done: Rc::default(),
        })
    })
}

pub fn counter(outcome: &Outcome, name: &str) -> u64 {
    outcome.vms[0].counters.get(name).copied().unwrap_or(0)
}

#[test]
fn ipis_to_running_targets_take_no_exit() {
    let config = avic_config(2, 2, 0, 1);
    let outcome = storm(&config, 500, Wait::Spin).expect("nothing is lost");
    assert_eq!(counter(&outcome, "avic_ipis"), 2000);
    assert_eq!(counter(&outcome, "avic_ipis_without_exit"), 2000);
    assert_eq!(counter(&outcome, "avic_interrupts"), 2000);
    assert_eq!(counter(&outcome, "avic_unaccelerated_access"), 2, "SVR of each");
    assert_eq!(counter(&outcome, "irq_injections"), 0);
    let mut emulated = config.clone();
    emulated.host.avic = AvicConfig::default();
    let emulated = storm(&emulated, 500, Wait::Spin).expect("nothing is lost");
    assert!(
        counter(&emulated, "exits") > counter(&outcome, "exits") + 3 * 2000,
        "ICR twice, and EOI"
    );
}

#[test]
fn no_ipi_is_lost_or_doubled_whoever_is_preempted_or_halts() {
    for seed in 0..12 {
        let config = avic_config(2 + seed as u32 % 3, 5, seed as u32 % 4, seed);
        let outcome = storm(&config, 60, Wait::Either).unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
        assert_eq!(
            counter(&outcome, "avic_interrupts"),
            counter(&outcome, "avic_ipis"),
            "seed {seed}"
        );
        assert!(counter(&outcome, "avic_incomplete_ipi_1") > 0, "seed {seed}");
    }
}

#[test]
fn halts_that_poll_see_what_hardware_posts() {
    let mut config = avic_config(3, 3, 0, 7);
    config.host.halt_poll_ns = 200_000;
    let outcome = storm(&config, 100, Wait::Halt).expect("nothing is lost");
    assert!(counter(&outcome, "halt_successful_poll") > 50);
}

#[test]
fn histories_under_avic_are_reproducible() {
    let config = avic_config(3, 5, 2, 42);
    let hash = || storm(&config, 50, Wait::Either).expect("nothing is lost").history_hash;
    assert_eq!(hash(), hash());
}

#[test]
fn erratum_1235_loses_ipis_and_the_workaround_none() {
    for seed in 0..3 {
        let mut config = avic_config(2, 2, 0, seed);
        config.machine.avic = Some(AvicModel {
            hardware: AvicHardware {
                erratum_1235: true,
                ..AvicHardware::default()
            },
            family: 0x17,
            // Long, so that a target often halts between its resolution and its doorbell.
            ipi: Picos::from_nanos(2000),
            ..part()
        });
        let outcome = asked(&config, 200, Wait::Halt, 1).expect("enable_ipiv=0 loses nothing");
        assert_eq!(counter(&outcome, "avic_ipis_without_exit"), 0, "all exit");
        config.host.avic.driver = AvicDriver::Linux4_7;
        // The watchdog waits for 20 s.
        config.limit_ns = 30_000_000_000;
        let lost = asked(&config, 200, Wait::Halt, 1)
            .expect_err("an IPI is lost")
            .to_string();
        for part in [
            "lost interrupt: vcpu",
            "sleeps, and vector",
            "is pending for it: an IPI that vcpu",
            "sent at",
            "IsRunning",
            "stale",
            "erratum 1235",
        ] {
            assert!(lost.contains(part), "seed {seed}, {part}: {lost}");
        }
        let part = config.machine.avic.as_mut().expect("it has AVIC");
        part.hardware.erratum_1235 = false;
        assert!(asked(&config, 200, Wait::Halt, 1).is_ok(), "a part without the erratum");
    }
}

#[test]
fn the_driver_of_4_7_loses_no_ipi() {
    for seed in 0..6 {
        let mut config = avic_config(2 + seed as u32 % 3, 5, seed as u32 % 4, seed);
        config.host.halt_poll_ns = seed % 2 * 200_000;
        config.host.avic.driver = AvicDriver::Linux4_7;
        let outcome = storm(&config, 60, Wait::Either).unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
        let (taken, sent) = (counter(&outcome, "avic_interrupts"), counter(&outcome, "avic_ipis"));
        assert_eq!(taken, sent, "seed {seed}");
    }
}

#[test]
fn a_running_bit_of_a_blocked_vcpu_is_noticed() {
    let mut config = avic_config(3, 4, 0, 3);
    config.host.planted.avic.running_while_blocked = true;
    assert!(storm(&config, 60, Wait::Halt).is_err());
}
