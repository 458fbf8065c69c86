//! AVIC on the rig: live migration under a storm of IPIs, equal deliveries with and without AVIC, hostile guests.

use holdfast_abi::lapic;
use holdfast_host::{AvicEnable, Event, Exit, HostConfig, Inhibit, PcpuId, Run, SvmPart, VmConfig, VmId};
use proptest::prelude::*;

use crate::image::Random;
use crate::rig::{Cpu, Rig, some_guest};

const VECTORS: u8 = 0x40;
const DEVICE: u8 = 0xe0;

fn host(enable: AvicEnable) -> HostConfig {
    let mut config = HostConfig::default();
    config.avic.enable = enable;
    config.avic.part = SvmPart {
        features: holdfast_abi::cpuid::SVM_AVIC | holdfast_abi::cpuid::SVM_NESTED_PAGING,
        family: 0x15,
    };
    config
}

/// A storm of IPIs between the vCPUs of one VM.
struct Storm {
    rig: Rig,
    random: Random,
    vcpus: u32,
    pcpus: u32,
    config: HostConfig,
    /// Under way from one vCPU to another.
    sent: Vec<bool>,
    sends: u64,
    taken: u64,
    /// Whether the guest also uses logical destinations.
    logical: bool,
}

impl Storm {
    fn new(config: HostConfig, vcpus: u32, pcpus: u32, seed: u64) -> Storm {
        let mut rig = Rig::new(
            &config,
            &VmConfig::default(),
            pcpus,
            vec![Cpu::default(); vcpus as usize],
        );
        rig.start();
        let mut storm = Storm {
            rig,
            random: Random(seed),
            vcpus,
            pcpus,
            config,
            sent: vec![false; (vcpus * vcpus) as usize],
            sends: 0,
            taken: 0,
            logical: true,
        };
        storm.boot();
        storm
    }

    /// Every vCPU switches its LAPIC on and takes a logical ID.
    fn boot(&mut self) {
        let mut booted = vec![false; self.vcpus as usize];
        while !booted.iter().all(|&booted| booted) {
            self.rig.pass(100_000);
            for pcpu in 0..self.pcpus {
                let Some(vcpu) = self.rig.guest_on(pcpu).filter(|&vcpu| !booted[vcpu as usize]) else {
                    continue;
                };
                self.rig.write(pcpu, lapic::SVR, lapic::SVR_ENABLE | 0xff);
                self.rig.write(pcpu, lapic::LDR, 1 << (24 + vcpu));
                self.rig.set_irqs(pcpu, true);
                booted[vcpu as usize] = true;
            }
        }
    }

    fn step(&mut self, sends: bool) {
        let ns = self.random.next(3_000);
        self.rig.pass(ns);
        self.look();
        let Some(pcpu) = some_guest(&self.rig, &mut self.random) else {
            return self.device();
        };
        let Some(vcpu) = self.rig.guest_on(pcpu) else { return };
        match self.random.next(8) {
            _ if self.rig.serve(pcpu).is_some() => {
                if self.rig.guest_on(pcpu) == Some(vcpu) {
                    self.rig.set_irqs(pcpu, true);
                } else {
                    self.rig.cpus[vcpu as usize].irqs = true;
                }
            }
            0 | 1 => {
                self.rig.set_irqs(pcpu, true);
                // Not in a handler, which may just have begun.
                if self.rig.guest_on(pcpu) == Some(vcpu) && self.rig.cpus[vcpu as usize].irqs {
                    self.rig.halt(pcpu);
                }
            }
            2 => self.rig.set_irqs(pcpu, false),
            3 => self.rig.set_irqs(pcpu, true),
            _ if sends => self.send(pcpu, vcpu),
            _ => {
                self.rig.set_irqs(pcpu, true);
            }
        }
        self.look();
    }

    /// A device interrupts one vCPU, lest all sleep.
    fn device(&mut self) {
        let to = self.random.next(u64::from(self.vcpus));
        self.rig.event(Event::Msi {
            pcpu: PcpuId(0),
            vm: VmId(0),
            address: 0xfee0_0000 | to << 12,
            data: u32::from(DEVICE),
        });
    }

    fn send(&mut self, pcpu: u32, vcpu: u32) {
        let to = self.random.next(u64::from(self.vcpus)) as u32;
        let under_way = &mut self.sent[(vcpu * self.vcpus + to) as usize];
        if std::mem::replace(under_way, true) {
            return;
        }
        self.sends += 1;
        let vector = u32::from(VECTORS) + 16 * vcpu;
        let logical = self.logical && self.random.next(3) == 0;
        let (destination, command) = match logical {
            true => (1 << to, vector | lapic::ICR_LOGICAL),
            false => (to, vector),
        };
        // With interrupts masked, as kernels do it.
        let irqs = std::mem::replace(&mut self.rig.cpus[vcpu as usize].irqs, false);
        self.rig
            .write(pcpu, lapic::ICR_HIGH, lapic::icr_high(destination as u8));
        while self.rig.guest_on(pcpu) != Some(vcpu) {
            self.rig.pass(10_000);
            let Some(at) = (0..self.pcpus).find(|&at| self.rig.guest_on(at) == Some(vcpu)) else {
                continue;
            };
            return self.finish_send(at, vcpu, command, irqs);
        }
        self.finish_send(pcpu, vcpu, command, irqs);
    }

    fn finish_send(&mut self, pcpu: u32, vcpu: u32, command: u32, irqs: bool) {
        self.rig.write(pcpu, lapic::ICR_LOW, command);
        if self.rig.guest_on(pcpu) == Some(vcpu) {
            self.rig.set_irqs(pcpu, irqs);
        } else {
            self.rig.cpus[vcpu as usize].irqs = irqs;
        }
    }

    /// What was taken was under way.
    fn look(&mut self) {
        for vcpu in 0..self.vcpus {
            let taken = std::mem::take(&mut self.rig.cpus[vcpu as usize].taken);
            for vector in taken.into_iter().filter(|&vector| vector != DEVICE) {
                let from = u32::from(vector - VECTORS) / 16;
                let under_way = &mut self.sent[(from * self.vcpus + vcpu) as usize];
                assert!(
                    std::mem::replace(under_way, false),
                    "{vector:#x} is taken twice by vcpu {vcpu}"
                );
                self.taken += 1;
            }
        }
    }

    fn migrate(mut self) -> Storm {
        self.look();
        self.rig = self.rig.migrate(&self.config, &VmConfig::default(), self.pcpus);
        self
    }

    /// Whether all that was sent arrives.
    fn drains(&mut self) -> bool {
        for _ in 0..20_000 {
            self.step(false);
            if self.sent.iter().all(|&under_way| !under_way) {
                return true;
            }
        }
        false
    }
}

#[test]
fn a_thousand_live_migrations_lose_and_double_no_interrupt() {
    let mut storm = Storm::new(host(AvicEnable::On), 4, 3, 1);
    let mut doorbells = 0;
    for migration in 0..1000 {
        for _ in 0..storm.random.next(120) {
            storm.step(true);
        }
        let inhibits = storm.rig.host.apicv_inhibits(VmId(0));
        assert!(inhibits.is_some_and(|inhibits| inhibits.is_empty()), "AVIC is on");
        doorbells = storm.rig.doorbells;
        storm = storm.migrate();
        if migration % 50 == 0 {
            assert!(storm.drains(), "lost by migration {migration}");
        }
    }
    assert!(storm.drains());
    assert_eq!(storm.sends, storm.taken);
    println!("1000 migrations: {} IPIs, {doorbells} doorbells", storm.sends);
    assert!(storm.sends > 10_000 && doorbells > 1_000);
}

#[test]
fn a_migration_that_forgets_the_tables_loses_interrupts() {
    let mut config = host(AvicEnable::On);
    config.avic.faults.restored_without_tables = true;
    // As in 4.7, which had nobody else to send for the hardware.
    config.avic.sends_to_invalid = false;
    let mut storm = Storm::new(config, 4, 3, 1);
    for _ in 0..20 {
        for _ in 0..100 {
            storm.step(true);
        }
        storm = storm.migrate();
    }
    assert!(!storm.drains(), "nothing was lost");
}

#[test]
fn switching_avic_off_and_on_under_load_loses_no_interrupt() {
    for seed in 0..8 {
        let mut config = host(AvicEnable::On);
        config.halt_poll_ns = if seed % 2 == 0 { 0 } else { 50_000 };
        let mut storm = Storm::new(config, 4, 3, seed);
        let mut inhibited = false;
        for _ in 0..400 {
            for _ in 0..20 {
                storm.step(true);
            }
            // The VMM works where nobody is in guest mode.
            let pcpu = (0..storm.pcpus).find(|&pcpu| storm.rig.guest_on(pcpu).is_none());
            if let Some(pcpu) = pcpu.map(PcpuId) {
                inhibited = !inhibited;
                let (vm, reason) = (VmId(0), Inhibit::BlockIrq);
                storm.rig.event(Event::Inhibit {
                    pcpu,
                    vm,
                    reason,
                    inhibited,
                });
            }
        }
        assert!(storm.drains(), "seed {seed}");
        assert_eq!(storm.sends, storm.taken);
        assert!(storm.rig.counter("apicv_inhibit_changed") > 10, "seed {seed}");
    }
}

/// One thing that the guest on a pCPU does to its LAPIC.
#[derive(Clone, Debug)]
enum Act {
    Tpr(u8),
    Eoi,
    Irqs(bool),
    Send { to: u8, vector: u8, shorthand: u8 },
    Read(u32),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        1 => any::<u8>().prop_map(Act::Tpr),
        4 => Just(Act::Eoi),
        4 => any::<bool>().prop_map(Act::Irqs),
        6 => (0u8..3, 1u8..=255, 0u8..8).prop_map(|(to, vector, shorthand)| Act::Send { to, vector, shorthand }),
        1 => (0u32..64).prop_map(|register| Act::Read(register * 16)),
    ]
}

/// What each vCPU has taken and read after each act.
fn play(enable: AvicEnable, acts: &[(u8, Act)]) -> Vec<(Vec<u8>, Option<u32>)> {
    let mut rig = Rig::new(&host(enable), &VmConfig::default(), 2, vec![Cpu::default(); 2]);
    rig.latency = 0;
    rig.start();
    let mut log = Vec::new();
    for vcpu in 0..2 {
        let Some(pcpu) = (0..2).find(|&pcpu| rig.guest_on(pcpu) == Some(vcpu)) else {
            unreachable!("both run, and for ever")
        };
        rig.write(pcpu, lapic::SVR, lapic::SVR_ENABLE | 0xff);
    }
    for (vcpu, act) in acts {
        let vcpu = u32::from(*vcpu) % 2;
        let Some(pcpu) = (0..2).find(|&pcpu| rig.guest_on(pcpu) == Some(vcpu)) else {
            unreachable!("both run, and for ever")
        };
        let mut value = None;
        match *act {
            Act::Tpr(value) => rig.write(pcpu, lapic::TPR, u32::from(value)),
            Act::Eoi => rig.write(pcpu, lapic::EOI, 0),
            Act::Irqs(irqs) => rig.set_irqs(pcpu, irqs),
            Act::Send { to, vector, shorthand } => {
                rig.write(pcpu, lapic::ICR_HIGH, lapic::icr_high(if to == 2 { 0xff } else { to }));
                let shorthand = if shorthand < 4 { u32::from(shorthand) << 18 } else { 0 };
                rig.write(pcpu, lapic::ICR_LOW, u32::from(vector) | shorthand);
            }
            Act::Read(offset) => value = rig.read(pcpu, offset),
        }
        rig.pass(10);
        // An error that hardware and software each note in their way is not compared: a vector below 16.
        value = value.filter(|_| !matches!(act, Act::Read(lapic::ESR | lapic::TIMER_CURRENT)));
        let taken = rig
            .cpus
            .iter_mut()
            .flat_map(|cpu| std::mem::take(&mut cpu.taken))
            .collect();
        log.push((taken, value));
    }
    log
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// The emulated LAPIC agrees with a plain reference model by the host's own tests; AVIC agrees with it.
    #[test]
    fn avic_delivers_what_the_emulated_lapic_delivers(acts in proptest::collection::vec((any::<u8>(), act()), 0..150)) {
        prop_assert_eq!(play(AvicEnable::On, &acts), play(AvicEnable::Off, &acts));
    }

    /// Any register, any value, in any order, on two VMs' worth of hostility: no panic.
    #[test]
    fn hostile_guests_get_exits_and_errors(seed in any::<u64>()) {
        hostile(seed, 400);
    }
}

/// `steps` random accesses.
fn hostile(seed: u64, steps: u32) {
    let mut random = Random(seed);
    let mut config = host(AvicEnable::On);
    config.avic.sends_to_invalid = random.next(2) == 0;
    config.avic.part.family = if random.next(2) == 0 { 0x15 } else { 0x17 };
    let vcpus = 1 + random.next(5) as usize;
    let mut rig = Rig::new(
        &config,
        &VmConfig::default(),
        1 + random.next(4) as u32,
        vec![Cpu::default(); vcpus],
    );
    rig.hardware.erratum_1235 = random.next(2) == 0;
    rig.latency = random.next(2_000);
    rig.start();
    for _ in 0..steps {
        let ns = random.next(20_000);
        rig.pass(ns);
        let Some(pcpu) = some_guest(&rig, &mut random) else {
            continue;
        };
        let word = (random.next(1 << 32) as u32) & (random.next(1 << 32) as u32 | random.next(1 << 32) as u32);
        let offset = if random.next(8) == 0 {
            word
        } else {
            random.next(64) as u32 * 16
        };
        let msr = [0x1b, 0x800 + random.next(0x40) as u32, 0x6e0, 0x830][random.next(4) as usize];
        match random.next(16) {
            0 => rig.halt(pcpu),
            1 => rig.set_irqs(pcpu, true),
            2 => rig.set_irqs(pcpu, false),
            3 => {
                rig.serve(pcpu);
            }
            4 => {
                rig.read(pcpu, offset);
            }
            5 => {
                let value = match random.next(3) {
                    0 => 0xfee0_0000 | random.next(16) << 8,
                    1 => random.next(1 << 40) & !0xfff | random.next(16) << 8,
                    _ => u64::from(word),
                };
                rig.exit(pcpu, Exit::WriteMsr { msr, value });
            }
            6 => rig.exit(pcpu, Exit::ReadMsr { msr }),
            7 => rig.write(pcpu, lapic::ICR_LOW, word & 0xc_cfff),
            8 => rig.write(pcpu, lapic::LDR, word),
            9 => rig.write(pcpu, lapic::ID, word),
            10 => rig.exit(pcpu, Exit::Nested { runs: word & 1 != 0 }),
            _ => rig.write(pcpu, offset, word),
        }
    }
    assert!(rig.runs.iter().all(|run| !matches!(run, Run::Task(_))));
}

/// The fuzzing entry: `HOLDFAST_FUZZ_SECONDS=60 cargo test --release -p holdfast-sim --test sim fuzz -- --ignored`.
#[test]
#[ignore = "runs for as long as HOLDFAST_FUZZ_SECONDS says"]
fn fuzz_the_boundary_of_avic() {
    let seconds: u64 = std::env::var("HOLDFAST_FUZZ_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(10);
    let first: u64 = std::env::var("HOLDFAST_FUZZ_SEED")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0);
    let start = std::time::Instant::now();
    let mut programs = 0;
    while start.elapsed().as_secs() < seconds {
        let seed = first + programs;
        if std::panic::catch_unwind(|| hostile(seed, 2_000)).is_err() {
            panic!("program {seed}: HOLDFAST_FUZZ_SEED={seed} plays it again");
        }
        programs += 1;
    }
    println!("{programs} programs of 2000 accesses");
}
