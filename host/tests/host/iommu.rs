//! Devices' interrupts through the IOMMU: straight into guests, across sleep, moves, inhibition and a full log; none is
//! lost, and planted faults are found.

use holdfast_abi::iommu::GA_LOG_ENTRIES;
use holdfast_abi::{lapic, msi};
use holdfast_host::avic::handshake::AvicFaults;
use holdfast_host::{Event, HostConfig, Inhibit, PcpuId, Run, VcpuId, VmConfig, VmId, VmmEvent};
use holdfast_machine::iommu::{Delivery, Notice};

use crate::hardware::Part;
use crate::rig::{Cpu, Rig};
use crate::world::Rng;

/// The vector of vCPU 0's device; the others follow.
const VECTOR: u8 = 0xc1;

fn host(faults: AvicFaults) -> HostConfig {
    let mut config = HostConfig::default();
    Part::Avic.configure(&mut config);
    config.planted.avic = faults;
    config
}

/// vCPUs that wait for their devices, each of which signals when its last interrupt has been taken.
struct Waiters {
    rig: Rig,
    random: Rng,
    vcpus: u32,
    pcpus: u32,
    /// For each device, interrupts that were signaled and not taken.
    under_way: Vec<bool>,
    signalled: u64,
    taken: u64,
    posted: u64,
    by_host: u64,
    /// Doorbells rung on a pCPU that did not run the vCPU.
    misled: u64,
}

impl Waiters {
    fn new(faults: AvicFaults, vcpus: u32, pcpus: u32, seed: u64) -> Waiters {
        let guests = vec![Cpu::default(); vcpus as usize];
        let mut rig = Rig::new(&host(faults), &VmConfig::default(), pcpus, guests, false);
        for vcpu in 0..vcpus as u8 {
            let (address, data) = (msi::address(vcpu), u32::from(VECTOR + vcpu));
            rig.host.assign_device(VmId(0), address, data).expect("there is room");
        }
        rig.start();
        let mut booted = vec![false; vcpus as usize];
        while !booted.iter().all(|&booted| booted) {
            rig.pass(100_000);
            for pcpu in 0..pcpus {
                if let Some(vcpu) = rig.guest_on(pcpu) {
                    rig.write(pcpu, lapic::SVR, lapic::SVR_ENABLE | 0xff);
                    booted[vcpu as usize] = true;
                }
            }
        }
        Waiters {
            rig,
            random: Rng(seed),
            vcpus,
            pcpus,
            under_way: vec![false; vcpus as usize],
            signalled: 0,
            taken: 0,
            posted: 0,
            by_host: 0,
            misled: 0,
        }
    }

    /// Lets guests serve their interrupts and wait for more. Some keep interrupts masked for a while.
    fn guests(&mut self) {
        for pcpu in 0..self.pcpus {
            let Some(vcpu) = self.rig.guest_on(pcpu) else { continue };
            while self.rig.guest_on(pcpu) == Some(vcpu) && self.rig.serve(pcpu).is_some() {}
            if self.rig.guest_on(pcpu) != Some(vcpu) {
                continue;
            }
            match self.random.below(4) {
                0 => self.rig.set_irqs(pcpu, false),
                1 => self.rig.set_irqs(pcpu, true),
                _ => {
                    self.rig.set_irqs(pcpu, true);
                    if self.rig.guest_on(pcpu) == Some(vcpu) && self.rig.cpus[vcpu as usize].irqs {
                        self.rig.halt(pcpu);
                    }
                }
            }
        }
        for vcpu in 0..self.vcpus as usize {
            for vector in std::mem::take(&mut self.rig.cpus[vcpu].taken) {
                assert_eq!(usize::from(vector - VECTOR), vcpu, "{vector:#x} is another's");
                assert!(std::mem::take(&mut self.under_way[vcpu]), "{vector:#x} is taken twice");
                self.taken += 1;
            }
        }
    }

    fn signal(&mut self, device: u32) {
        if std::mem::replace(&mut self.under_way[device as usize], true) {
            return;
        }
        self.signalled += 1;
        match self.rig.device(device as u16) {
            Delivery::Guest { notice, .. } => {
                self.posted += 1;
                let vcpu = VcpuId(device);
                let is_there = |pcpu: u32| match self.rig.runs[pcpu as usize] {
                    Run::Guest { vcpu: runs, .. } | Run::Poll(runs) => runs == vcpu,
                    _ => false,
                };
                self.misled += u64::from(matches!(notice, Notice::Doorbell(pcpu) if !is_there(pcpu)));
            }
            Delivery::Host { .. } => self.by_host += 1,
            Delivery::Blocked => panic!("device {device} is assigned"),
        }
    }

    /// Performs an event of the VMM or of a management tool on a pCPU that is not in guest mode.
    fn manage(&mut self, inhibited: &mut bool) {
        let Some(pcpu) = (0..self.pcpus).find(|&pcpu| self.rig.guest_on(pcpu).is_none()) else {
            return;
        };
        let pcpu = PcpuId(pcpu);
        let event = match self.random.below(2) {
            0 => {
                *inhibited = !*inhibited;
                Event::Vmm(VmmEvent::Inhibit {
                    pcpu,
                    vm: VmId(0),
                    reason: Inhibit::BlockIrq,
                    inhibited: *inhibited,
                })
            }
            _ => Event::Vmm(VmmEvent::Affinity {
                pcpu,
                vcpu: VcpuId(self.random.below(u64::from(self.vcpus)) as u32),
                only: Some(PcpuId(self.random.below(u64::from(self.pcpus)) as u32)),
            }),
        };
        self.rig.event(event);
    }

    fn play(&mut self, steps: u32) {
        let mut inhibited = false;
        for _ in 0..steps {
            let ns = self.random.below(4_000);
            self.rig.pass(ns);
            self.guests();
            let device = self.random.below(u64::from(self.vcpus)) as u32;
            self.signal(device);
            if self.random.below(40) == 0 {
                self.manage(&mut inhibited);
            }
        }
    }

    /// Returns whether all signaled interrupts are taken without a further event.
    fn drains(&mut self) -> bool {
        for _ in 0..2_000 {
            self.rig.pass(3_000);
            self.guests();
        }
        self.under_way.iter().all(|&under_way| !under_way)
    }
}

#[test]
fn no_device_interrupt_is_lost_across_sleep_moves_and_inhibition() {
    for seed in 0..8 {
        let mut waiters = Waiters::new(AvicFaults::default(), 4, 3, seed);
        waiters.play(4_000);
        assert!(waiters.drains(), "seed {seed}: {:?}", waiters.under_way);
        assert_eq!(waiters.signalled, waiters.taken);
        assert_eq!(waiters.misled, 0);
        assert!(
            waiters.posted > 500 && waiters.by_host > 500,
            "{} {}",
            waiters.posted,
            waiters.by_host
        );
        assert!(waiters.rig.counter(VmId(0), "avic_ga_log") > 100);
    }
}

#[test]
fn planted_faults_lose_device_interrupts() {
    let none = AvicFaults::default();
    let faults = [
        (
            "log not drained",
            AvicFaults {
                log_not_drained: true,
                ..none
            },
        ),
        (
            "IsRun stays",
            AvicFaults {
                remap_stays_running: true,
                ..none
            },
        ),
    ];
    for (name, faults) in faults {
        let loses = |seed| {
            let mut waiters = Waiters::new(faults, 4, 3, seed);
            waiters.play(1_000);
            !waiters.drains()
        };
        assert!((0..4).any(loses), "{name}");
    }
}

#[test]
fn an_entry_that_keeps_the_pcpu_of_before_rings_there() {
    let stale = AvicFaults {
        remap_keeps_destination: true,
        ..AvicFaults::default()
    };
    let mut waiters = Waiters::new(stale, 4, 3, 1);
    waiters.play(1_000);
    assert!(waiters.misled > 0, "all doorbells rang where the vCPU was");
}

/// Returns whether both sleeping vCPUs are woken if device 0 fills the log and device 1 then signals once.
fn survives_a_full_log(faults: AvicFaults) -> bool {
    let mut waiters = Waiters::new(faults, 2, 2, 1);
    for _ in 0..50 {
        waiters.rig.pass(10_000);
        for pcpu in 0..2 {
            waiters.rig.set_irqs(pcpu, true);
            waiters.rig.halt(pcpu);
        }
    }
    assert!((0..2).all(|pcpu| waiters.rig.guest_on(pcpu).is_none()), "both sleep");
    // The host is slow to take the log's interrupt.
    waiters.rig.latency = 1_000_000;
    let told = |interrupt| Notice::Log { interrupt };
    for entry in 0..GA_LOG_ENTRIES as u32 + 88 {
        let Delivery::Guest { notice: found, .. } = waiters.rig.device(0) else {
            panic!("AVIC is on")
        };
        assert_eq!(found, told(entry == 0), "one interrupt, whatever is lost");
    }
    waiters.under_way = vec![true; 2];
    waiters.rig.device(1);
    waiters.rig.pass(1_500_000);
    waiters.rig.latency = 300;
    let drained = waiters.drains();
    if drained {
        // The log goes on from there.
        waiters.signal(1);
        assert!(waiters.drains());
        assert!(waiters.rig.counter(VmId(0), "avic_ga_log") >= GA_LOG_ENTRIES as u64 - 1);
    }
    drained
}

#[test]
fn a_full_log_loses_entries_and_no_interrupt() {
    assert!(survives_a_full_log(AvicFaults::default()));
    let ignored = AvicFaults {
        overflow_ignored: true,
        ..AvicFaults::default()
    };
    assert!(!survives_a_full_log(ignored), "planted: whose entry was lost sleeps on");
}
