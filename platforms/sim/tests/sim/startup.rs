//! CPUs that their guest starts, by INIT and SIPI.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

use holdfast_abi::lapic;
use holdfast_guest::{Cpu, GuestImage, Machine, Report};
use holdfast_locks::{Budget, CpuId, LockKind, Paravirt, Platform, Word};
use holdfast_sim::{CallOff, Config, Outcome, SimCpu, SimMachine, run, run_images};
use holdfast_workloads::{Boot, Kernbench, Workload};

use crate::image::config;

/// A build in a guest of `vcpus` on half as many pCPUs, and a hog.
fn build(vcpus: u32, waits_for_sipi: bool) -> Config {
    let mut config = config(vcpus / 2, vcpus, 1, 7);
    config.vms[0].host.waits_for_sipi = waits_for_sipi;
    config.vms[0].boot = Boot {
        workload: Workload::Kernbench(Kernbench {
            jobs: 6,
            scale: 0.002,
            user_cpu_seconds: 50.0,
            ..Kernbench::default()
        }),
        ..Boot::default()
    };
    // With ticket locks one of two runs that are compared may fall into a convoy and take twice as long. Sections that
    // wait for cache lines made that likely.
    config.vms[0].boot.kernel.lock = LockKind::HybridPvQspin;
    config
}

fn play(config: &Config) -> Outcome {
    run(config, &CallOff::new()).unwrap_or_else(|failure| panic!("{failure}"))
}

#[test]
fn a_guest_starts_its_cpus_and_works_on_all_of_them() {
    let [by_machine, by_guest] = [false, true].map(|waits| play(&build(8, waits)));
    let (machine, guest) = (&by_machine.vms[0], &by_guest.vms[0]);
    assert_eq!(machine.counters["guest.forks"], guest.counters["guest.forks"]);
    assert_eq!(machine.counters["init_received"], 0);
    assert_eq!(guest.counters["init_received"], 7);
    // 10 ms pass between INIT and SIPI of each CPU.
    let [elapsed, of_machine] = [guest, machine].map(|vm| vm.elapsed_ns.expect("measured"));
    assert!(by_guest.end_ns - elapsed >= 70_000_000);
    let ratio = elapsed as f64 / of_machine as f64;
    assert!((0.7..1.4).contains(&ratio), "the same work on as many CPUs: {ratio}");
}

#[test]
fn the_same_seed_is_the_same_history_however_cpus_start() {
    let config = build(4, true);
    let (one, other) = (play(&config), play(&config));
    assert_eq!(one.history_hash, other.history_hash);
    assert_ne!(one.history_hash, play(&build(4, false)).history_hash);
}

/// CPU 1 does something that never ends, and CPU 0 starts it again by INIT and SIPI, again and again.
struct Restarted {
    machine: SimMachine,
    /// What CPU 1 does, by how often it has begun.
    does: fn(&SimCpu, &SimWord),
    word: SimWord,
    begun: SimWord,
    enabled: Rc<RefCell<Vec<bool>>>,
}

type SimWord = <SimCpu as Platform>::Word;

const TIMES: u32 = 5;

impl Restarted {
    fn send(&self, cpu: &SimCpu, mode: lapic::DeliveryMode, low: u32) {
        cpu.apic_write(lapic::ICR_HIGH, lapic::icr_high(1));
        cpu.apic_write(lapic::ICR_LOW, mode.bits() | low);
    }
}

impl GuestImage for Restarted {
    fn boot(&self, number: CpuId) -> ! {
        let cpu = self.machine.cpu();
        if number.0 == 1 {
            self.enabled.borrow_mut().push(cpu.irqs_enabled());
            cpu.fetch_add(&self.begun, 1, AcqRel);
            cpu.irq_enable();
            loop {
                (self.does)(&cpu, &self.word);
            }
        }
        self.machine.report(Report::Begin);
        for time in 1..=TIMES {
            while cpu.load(&self.begun, Acquire) < time {
                cpu.compute(1_000);
            }
            cpu.compute(300_000);
            if time < TIMES {
                self.send(&cpu, lapic::DeliveryMode::Init, lapic::ICR_LEVEL | lapic::ICR_ASSERT);
                self.send(&cpu, lapic::DeliveryMode::Startup, 0x9a);
            }
        }
        assert_eq!(cpu.load(&self.begun, Acquire), TIMES, "no flow goes on after an INIT");
        self.machine.report(Report::Done { operations: None });
        loop {
            cpu.halt_masked();
        }
    }

    fn interrupt(&self, vector: u8) {
        panic!("vector {vector:#x} was not sent");
    }
}

#[test]
fn init_ends_a_flow_wherever_it_is_and_sipi_begins_it_again() {
    let doings: [fn(&SimCpu, &SimWord); 5] = [
        |cpu, _| cpu.compute(1_000_000),
        // Parked in a spin.
        |cpu, word| {
            let _ = cpu.wait_until(word, Budget::UNBOUNDED, Acquire, |value| value != 0);
        },
        |cpu, _| cpu.halt_masked(),
        // It waits for a lock that is never free.
        |cpu, word| {
            cpu.contention_begin(word);
            let _ = cpu.wait_until(word, Budget::UNBOUNDED, Acquire, |value| value != 0);
        },
        // It dies with a lock.
        |cpu, word| {
            cpu.lock_acquired(word);
            cpu.compute(1_000_000);
        },
    ];
    for (index, does) in doings.into_iter().enumerate() {
        // Both CPUs have a pCPU, or they share one.
        for pcpus in [1, 2] {
            let enabled = Rc::new(RefCell::new(Vec::new()));
            let image = |machine: SimMachine| -> Box<dyn GuestImage> {
                Box::new(Restarted {
                    machine,
                    does,
                    word: Word::new(0),
                    begun: Word::new(0),
                    enabled: enabled.clone(),
                })
            };
            let outcome = run_images(&config(pcpus, 2, 0, 1), &CallOff::new(), |_, machine| image(machine));
            let outcome = outcome.unwrap_or_else(|failure| panic!("{index} on {pcpus}: {failure}"));
            assert_eq!(outcome.vms[0].counters["init_received"], u64::from(TIMES) - 1);
            assert_eq!(*enabled.borrow(), [false; TIMES as usize], "{index} on {pcpus}");
        }
    }
}
