//! Guests that do everything to LAPICs that hardware virtualizes, beside devices that signal anything and a VMM that
//! migrates them at any time: no panic, no interrupt of another vCPU, and no vCPU sleeps over an interrupt.
//!
//! Whether they get the right ones in the right order, `apic_model` says. `docs/fuzzing.md` has the commands.

use holdfast_abi::{lapic, msr};
use holdfast_host::{AvicDriver, Event, Exit, HostConfig, Inhibit, Inhibits, PcpuId, VmConfig, VmId, VmmEvent};
use proptest::prelude::*;

use crate::apic_model::Fault;
use crate::hardware::PARTS;
use crate::rig::{Cpu, Rig, some_guest};
use crate::world::Rng;

const HOME: u64 = msr::APIC_BASE_ADDRESS | msr::APIC_BASE_ENABLE;

/// A hostile VM beside one vCPU of a quiet one.
struct Hostility {
    random: Rng,
    config: HostConfig,
    vm: VmConfig,
    pcpus: u32,
    /// What the guests do: 0, interrupts only; 1, changes of IDs too; 2, everything.
    wildness: u64,
    rig: Rig,
    /// The vCPU of the quiet VM.
    quiet: u32,
}

/// Returns the inhibit reasons of a VM's configuration: any in one of eight runs, otherwise none.
fn configured(seed: u64) -> Inhibits {
    let mut reasons = Inhibits::NONE;
    if seed % 8 == 7 {
        let mut random = Rng(seed);
        for reason in Inhibit::ALL {
            reasons.set(reason, random.below(4) == 0);
        }
    }
    reasons
}

impl Hostility {
    fn new(seed: u64, fault: Fault) -> Hostility {
        let mut random = Rng(seed);
        let part = PARTS[1 + random.below(5) as usize];
        let mut config = HostConfig::default();
        part.configure(&mut config);
        config.avic.part.family = if random.below(2) == 0 { 0x15 } else { 0x17 };
        config.avic.driver = [AvicDriver::Now, AvicDriver::Linux4_7][random.below(2) as usize];
        fault.configure(&mut config);
        config.halt_poll_ns = random.below(2) * 50_000;
        let vm = VmConfig {
            waits_for_sipi: random.below(4) == 0,
            apic_inhibits: configured(seed),
            ..VmConfig::default()
        };
        let (vcpus, pcpus) = (1 + random.below(5) as u32, 2 + random.below(3) as u32);
        let mut rig = Rig::new(&config, &vm, pcpus, vec![Cpu::default(); vcpus as usize + 1], true);
        rig.hardware = part.hardware();
        rig.latency = random.below(2_000);
        rig.start();
        Hostility {
            config,
            vm,
            pcpus,
            wildness: random.below(3),
            random,
            rig,
            quiet: vcpus,
        }
    }

    fn word(&mut self) -> u32 {
        let bits = [self.random.next(), self.random.next(), self.random.next()];
        (bits[0] & (bits[1] | bits[2])) as u32
    }

    /// Returns an offset, mostly of a register.
    fn offset(&mut self) -> u32 {
        match self.random.below(8) {
            0 => self.word(),
            _ => self.random.below(64) as u32 * lapic::STRIDE,
        }
    }

    /// Vector, mode and destination mode of an interrupt: mostly a fixed one, now and then to a vector below 16.
    fn interrupt(&mut self) -> u32 {
        let mode = if self.random.below(8) == 0 {
            self.random.below(8) as u32
        } else {
            0
        };
        let bits = self.random.below(256) as u32 & self.random.next() as u32;
        let vector = [0x31, 0x41, 0x42, 0x51, 0xa0, 0xef, bits][self.random.below(7) as usize];
        vector & 0xff | mode << 8 | ((self.word() & self.random.next() as u32 & 0x11) << 11) | 1 << 14
    }

    fn destination(&mut self) -> u32 {
        [
            self.random.below(8) as u32,
            1 << self.random.below(8),
            0xff,
            self.word(),
        ][self.random.below(4) as usize]
    }

    fn step(&mut self) {
        let ns = self.random.below(20_000);
        self.rig.pass(ns);
        match self.random.below(40) {
            0..6 => self.device(),
            6 if self.random.below(8) == 0 => self.migrate(),
            _ => {
                if let Some(pcpu) = some_guest(&self.rig, &mut self.random) {
                    self.act(pcpu);
                }
            }
        }
        let heard = &self.rig.cpus[self.quiet as usize].taken;
        assert!(heard.is_empty(), "another VM's interrupts: {heard:x?}");
    }

    /// Performs a device's or the VMM's event on a pCPU that is not in guest mode.
    fn device(&mut self) {
        let Some(pcpu) = (0..self.pcpus)
            .find(|&pcpu| self.rig.guest_on(pcpu).is_none())
            .map(PcpuId)
        else {
            return;
        };
        let vm = VmId(0);
        let (data, destination) = (self.interrupt(), self.destination());
        let event = match self.random.below(8) {
            0 => Event::Vmm(VmmEvent::Inhibit {
                pcpu,
                vm,
                reason: Inhibit::ALL[self.random.below(14) as usize],
                inhibited: self.random.below(3) == 0,
            }),
            _ => Event::Vmm(VmmEvent::Msi {
                pcpu,
                vm,
                address: 0xfee0_0000 ^ u64::from(destination & 0xffff) << 12 ^ (self.random.below(4) << 2),
                data,
            }),
        };
        self.rig.event(event);
    }

    fn migrate(&mut self) {
        let fresh = Rig::new(&self.config, &self.vm, 1, vec![Cpu::default(); 2], true);
        let rig = std::mem::replace(&mut self.rig, fresh);
        self.rig = rig.migrate(&self.config, &self.vm, self.pcpus);
    }

    /// Performs a random act of the guest on `pcpu`.
    fn act(&mut self, pcpu: u32) {
        let Some(vcpu) = self.rig.guest_on(pcpu) else { return };
        if vcpu == self.quiet {
            self.rig.store(pcpu, lapic::SVR, lapic::SVR_ENABLE | 0xff);
            return self.rig.set_irqs(pcpu, true);
        }
        let (word, offset) = (self.word(), self.offset());
        let msr = [
            msr::APIC_BASE,
            msr::X2APIC_BASE + word % 0x40,
            msr::TSC_DEADLINE,
            msr::X2APIC_ICR,
        ];
        let msr = msr[self.random.below(4) as usize];
        match self.random.below([14, 22, 28][self.wildness as usize]) {
            0 | 1 => {
                if word & 4 == 0 {
                    self.rig.set_irqs(pcpu, true);
                }
                // The handler of what has come has just begun.
                if self.rig.guest_on(pcpu) == Some(vcpu) && (word & 4 != 0 || self.rig.cpus[vcpu as usize].irqs) {
                    self.rig.halt(pcpu);
                }
            }
            2..5 => self.rig.set_irqs(pcpu, true),
            5 => self.rig.set_irqs(pcpu, false),
            6 | 7 => {
                self.rig.serve(pcpu);
            }
            8 => {
                self.rig.read(pcpu, offset);
                self.go_on(pcpu, vcpu, |rig| rig.read_msr(pcpu, msr));
            }
            9 => self.boot(pcpu, vcpu),
            10..13 => self.send(pcpu, vcpu),
            13 => self.rig.write_cr8(pcpu, word as u8 & 0xf & self.random.next() as u8),
            // Often the same, so that they are aliased.
            14 => self.rig.store(pcpu, lapic::LDR, 1 << (24 + self.random.below(3))),
            15 => self.rig.store(pcpu, lapic::ID, (self.random.below(3) as u32) << 24),
            16 => self.rig.store(pcpu, lapic::DFR, [u32::MAX, 0, word][word as usize % 3]),
            17 | 18 => self
                .rig
                .store(pcpu, lapic::SVR, [0x1ff, 0x1ff, 0xff, word][word as usize % 4]),
            19..22 => self.use_ports(pcpu, vcpu),
            22 => {
                let value = match self.random.below(4) {
                    0 | 1 => HOME ^ self.random.below(16) << 8,
                    2 => self.random.below(1 << 40) & !0xfff | self.random.below(16) << 8,
                    _ => u64::from(word),
                };
                self.rig.write_msr(pcpu, msr, value);
            }
            _ => self.rig.store(pcpu, offset, word),
        }
    }

    /// Writes to a port, which has no device.
    fn use_ports(&mut self, pcpu: u32, vcpu: u32) {
        let (port, value) = (self.random.below(1 << 16) as u16, self.word());
        self.go_on(pcpu, vcpu, |rig| rig.exit(pcpu, Exit::PortWrite { port, value }));
        let lint0 = [0x700, 0x700, lapic::LVT_MASKED][value as usize % 3];
        self.go_on(pcpu, vcpu, |rig| rig.store(pcpu, lapic::LVT_LINT0, lint0));
    }

    /// Enables a LAPIC as a kernel does at boot.
    fn boot(&mut self, pcpu: u32, vcpu: u32) {
        let mode = [0, msr::APIC_BASE_X2APIC][self.random.below(2) as usize];
        let x2apic = self.rig.hardware.x2avic || self.wildness > 0;
        self.rig
            .write_msr(pcpu, msr::APIC_BASE, HOME | if x2apic { mode } else { 0 });
        for (offset, value) in [
            (lapic::ID, vcpu << 24),
            (lapic::DFR, u32::MAX),
            (lapic::LDR, 1 << (24 + vcpu)),
            (lapic::SVR, lapic::SVR_ENABLE | 0xff),
            (lapic::TPR, 0),
        ] {
            let msr = msr::X2APIC_BASE + offset / lapic::STRIDE;
            self.go_on(pcpu, vcpu, |rig| rig.store(pcpu, offset, value));
            self.go_on(pcpu, vcpu, |rig| rig.write_msr(pcpu, msr, u64::from(value)));
        }
    }

    fn send(&mut self, pcpu: u32, vcpu: u32) {
        let (low, destination) = (self.interrupt(), self.destination());
        let shorthand = if self.random.below(4) == 0 {
            (self.random.below(4) as u32) << 18
        } else {
            0
        };
        self.rig.store(pcpu, lapic::ICR_HIGH, destination << 24);
        self.go_on(pcpu, vcpu, |rig| rig.store(pcpu, lapic::ICR_LOW, low | shorthand));
        let command = u64::from(destination) << 32 | u64::from(low | shorthand);
        self.go_on(pcpu, vcpu, |rig| rig.write_msr(pcpu, msr::X2APIC_ICR, command));
    }

    /// Continues `vcpu` on `pcpu`, unless the pCPU runs another vCPU by now.
    fn go_on(&mut self, pcpu: u32, vcpu: u32, act: impl FnOnce(&mut Rig)) {
        if self.rig.guest_on(pcpu) == Some(vcpu) {
            act(&mut self.rig);
        }
    }

    /// Lets all events complete. Returns a vCPU that then sleeps with a deliverable interrupt, and its vector.
    fn rest(&mut self) -> Option<(u32, u8)> {
        for _ in 0..40 {
            self.rig.pass(1_000_000);
        }
        self.rig.forgotten()
    }
}

/// Performs `steps` random acts.
fn hostile(seed: u64, steps: u32) {
    assert_eq!(play(seed, steps, Fault::None), None, "a vcpu sleeps over a vector");
}

/// Returns a vCPU that sleeps with a deliverable interrupt, and its vector, if there is one.
fn play(seed: u64, steps: u32, fault: Fault) -> Option<(u32, u8)> {
    let mut hostility = Hostility::new(seed, fault);
    (0..steps).find_map(|step| {
        hostility.step();
        if step % 100 == 99 { hostility.rest() } else { None }
    })
}

#[test]
fn faults_planted_in_drivers_let_somebody_sleep_over_an_interrupt() {
    for fault in [
        Fault::RunningWhileBlocked,
        Fault::BlockKeepsVector,
        Fault::BlockSuppresses,
    ] {
        let found = (0..200).any(|seed| play(seed, 400, fault).is_some());
        assert!(found, "{fault:?}: nobody does");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_guest_breaks_the_hardware_or_sleeps_over_an_interrupt(seed in any::<u64>()) {
        hostile(seed, 400);
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// For `HOLDFAST_FUZZ_SECONDS`, programs from number `HOLDFAST_FUZZ_SEED` on.
#[test]
#[ignore = "runs for as long as HOLDFAST_FUZZ_SECONDS says"]
fn fuzz_the_boundary_of_hardware() {
    let (seconds, first) = (number("HOLDFAST_FUZZ_SECONDS", 10), number("HOLDFAST_FUZZ_SEED", 0));
    let start = std::time::Instant::now();
    let mut programs = 0;
    let mut said = 0;
    while start.elapsed().as_secs() < seconds {
        let seed = first + programs;
        if std::panic::catch_unwind(|| hostile(seed, 2_000)).is_err() {
            panic!("program {seed}: HOLDFAST_FUZZ_SEED={seed} plays it again");
        }
        programs += 1;
        if start.elapsed().as_secs() / 60 > said {
            said = start.elapsed().as_secs() / 60;
            println!("{programs} programs of 2000 acts from {first} on, {said} minutes");
        }
    }
    println!("{programs} programs of 2000 acts from {first} on");
}
