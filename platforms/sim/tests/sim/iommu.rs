//! A guest's own network device: interrupts through the IOMMU straight into it, wherever it runs.

use holdfast_host::Nic;
use holdfast_sim::{Audited, CallOff, Config, Failure, Journey, Move, Outcome, run_migrating};
use holdfast_workloads::{Boot, KernelConfig, Netperf, Workload};

use crate::avic::{avic_config, counter};
use crate::image::{Random, config};

/// The vector that the guest's driver has requested.
const DRIVERS_VECTOR: u8 = 0x41;

/// netperf in a guest with an assigned network device.
fn netperf(mut config: Config) -> Config {
    config.vms[0].host.nic = Nic::Assigned;
    config.vms[0].boot = Boot {
        kernel: KernelConfig {
            hz: 250,
            ..KernelConfig::default()
        },
        workload: Workload::Netperf(Netperf { transactions: 400 }),
        ..Boot::default()
    };
    config.limit_ns = 5_000_000_000;
    config
}

/// Runs `config` while vCPU 0, which has the device, is moved from pCPU to pCPU.
fn moved(config: &Config) -> Result<(Outcome, Audited), Failure> {
    let pcpus = u64::from(config.machine.topology.pcpus());
    let mut random = Random(config.seed);
    let moves = (0..60).map(|_| Move {
        after_ns: 1 + random.next(400_000),
        vcpu: 0,
        to: random.next(pcpus) as u32,
    });
    let journey = Journey {
        moves: moves.collect(),
        ..Journey::default()
    };
    run_migrating(config, &CallOff::new(), &journey, |vm, machine| {
        holdfast_workloads::image(machine, &vm.boot)
    })
}

#[test]
fn answers_reach_a_guest_without_the_host() {
    let mut polling = netperf(avic_config(3, 1, 0, 1));
    polling.host.halt_poll_ns = 400_000;
    let (outcome, audited) = moved(&polling).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(audited.moves > 10);
    let sent = audited
        .by_vector
        .iter()
        .find(|(vector, _)| *vector == DRIVERS_VECTOR)
        .map(|(_, fate)| fate.sent);
    assert_eq!(
        sent,
        Some(counter(&outcome, "iommu_posted")),
        "AVIC is on before the driver is"
    );
    assert!(counter(&outcome, "iommu_doorbells") > 200);
    assert_eq!(counter(&outcome, "io_exits"), 0, "the guest rings the device itself");
    // Without polling the vCPU sleeps, and the log wakes it.
    let (outcome, _) = moved(&netperf(avic_config(3, 1, 0, 1))).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(counter(&outcome, "avic_ga_log") > 200);
    // Without AVIC all interrupts go through the host.
    let (outcome, _) = moved(&netperf(config(3, 1, 0, 1))).unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(counter(&outcome, "iommu_posted"), 0);
    assert!(counter(&outcome, "iommu_by_host") >= 400);
}

#[test]
fn histories_with_an_assigned_device_are_reproducible() {
    let hash = || {
        moved(&netperf(avic_config(3, 2, 2, 9)))
            .expect("nothing is lost")
            .0
            .history_hash
    };
    assert_eq!(hash(), hash());
}
