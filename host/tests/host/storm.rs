//! A storm of IPIs between vCPUs that share pCPUs, under hardware that virtualizes their LAPICs: none is lost or
//! doubled by live migration, or by switching the hardware off and on.

use holdfast_abi::{lapic, msr};
use holdfast_host::{AvicDriver, Event, HostConfig, Inhibit, PcpuId, VmConfig, VmId, VmmEvent};

use crate::hardware::{PARTS, Part};
use crate::rig::{Cpu, Rig, some_guest};
use crate::world::Rng;

const VECTORS: u8 = 0x40;
const DEVICE: u8 = 0xe0;

fn host(part: Part) -> HostConfig {
    let mut config = HostConfig::default();
    part.configure(&mut config);
    config
}

/// A storm of IPIs between the vCPUs of one VM.
struct Storm {
    rig: Rig,
    random: Rng,
    vcpus: u32,
    pcpus: u32,
    part: Part,
    config: HostConfig,
    /// IPIs in flight from one vCPU to another.
    sent: Vec<bool>,
    sends: u64,
    taken: u64,
    /// Whether the guest also uses logical destinations.
    logical: bool,
}

impl Storm {
    fn new(part: Part, config: HostConfig, vcpus: u32, pcpus: u32, seed: u64) -> Storm {
        let mut rig = Rig::new(
            &config,
            &VmConfig::default(),
            pcpus,
            vec![Cpu::default(); vcpus as usize],
            false,
        );
        rig.hardware = part.hardware();
        rig.start();
        let mut storm = Storm {
            rig,
            random: Rng(seed),
            vcpus,
            pcpus,
            part,
            config,
            sent: vec![false; (vcpus * vcpus) as usize],
            sends: 0,
            taken: 0,
            logical: true,
        };
        storm.boot();
        storm
    }

    /// Makes every vCPU enable its LAPIC and take a logical ID.
    fn boot(&mut self) {
        let mut booted = vec![false; self.vcpus as usize];
        while !booted.iter().all(|&booted| booted) {
            self.rig.pass(100_000);
            for pcpu in 0..self.pcpus {
                if let Some(vcpu) = self.rig.guest_on(pcpu).filter(|&vcpu| !booted[vcpu as usize]) {
                    self.boot_one(pcpu, vcpu);
                    booted[vcpu as usize] = true;
                }
            }
        }
    }

    /// Makes `vcpu`, which runs on `pcpu`, enable its LAPIC and take a logical ID.
    fn boot_one(&mut self, pcpu: u32, vcpu: u32) {
        self.rig.write(pcpu, lapic::SVR, lapic::SVR_ENABLE | 0xff);
        if self.uses_x2apic() {
            let value = msr::APIC_BASE_ADDRESS | msr::APIC_BASE_ENABLE | msr::APIC_BASE_X2APIC;
            self.rig.write_msr(pcpu, msr::APIC_BASE, value);
            self.rig.cpus[vcpu as usize].x2apic = true;
        } else {
            self.rig.write(pcpu, lapic::LDR, 1 << (24 + vcpu));
        }
        self.rig.set_irqs(pcpu, true);
    }

    /// Returns whether the guests use x2APIC mode.
    fn uses_x2apic(&self) -> bool {
        matches!(self.part, Part::X2Avic | Part::Ipiv | Part::Hybrid)
    }

    fn step(&mut self, sends: bool) {
        let ns = self.random.below(3_000);
        self.rig.pass(ns);
        self.look();
        let Some(pcpu) = some_guest(&self.rig, &mut self.random) else {
            return self.device();
        };
        let Some(vcpu) = self.rig.guest_on(pcpu) else { return };
        match self.random.below(8) {
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

    /// Interrupts one vCPU by a device, so that not all sleep.
    fn device(&mut self) {
        let to = self.random.below(u64::from(self.vcpus));
        self.rig.event(Event::Vmm(VmmEvent::Msi {
            pcpu: PcpuId(0),
            vm: VmId(0),
            address: 0xfee0_0000 | to << 12,
            data: u32::from(DEVICE),
        }));
    }

    fn send(&mut self, pcpu: u32, vcpu: u32) {
        let to = self.random.below(u64::from(self.vcpus)) as u32;
        let under_way = &mut self.sent[(vcpu * self.vcpus + to) as usize];
        if std::mem::replace(under_way, true) {
            return;
        }
        self.sends += 1;
        let vector = u32::from(VECTORS) + 16 * vcpu;
        let logical = self.logical && self.random.below(3) == 0;
        let (destination, command) = match logical {
            true => (1 << to, vector | lapic::ICR_LOGICAL),
            false => (to, vector),
        };
        if self.uses_x2apic() {
            let command = u64::from(destination) << 32 | u64::from(command);
            return self.rig.write_msr(pcpu, msr::X2APIC_ICR, command);
        }
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

    /// Checks that each interrupt taken was in flight.
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

    /// Returns whether all interrupts that were sent arrive.
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

/// Migrates at random points of a storm.
fn migrate(part: Part, config: HostConfig, migrations: u32) {
    let mut storm = Storm::new(part, config, 4, 3, 1);
    for migration in 0..migrations {
        for _ in 0..storm.random.below(120) {
            storm.step(true);
        }
        let inhibits = storm.rig.host.apic_inhibits(VmId(0));
        assert!(inhibits.is_some_and(|inhibits| inhibits.is_empty()), "{part:?} is on");
        storm = storm.migrate();
        if migration % 50 == 0 {
            assert!(storm.drains(), "{part:?}: lost by migration {migration}");
        }
    }
    assert!(storm.drains());
    assert_eq!(storm.sends, storm.taken);
    let (sends, rung) = (storm.sends, storm.rig.rung);
    println!("{part:?}: {migrations} migrations, {sends} IPIs, {rung} doorbells or notifications");
    assert!(sends > u64::from(migrations) * 10 && rung > u64::from(migrations));
}

#[test]
fn a_thousand_live_migrations_lose_and_double_no_interrupt() {
    for &part in &PARTS[1..] {
        migrate(part, host(part), 1000);
    }
}

#[test]
fn the_driver_of_4_7_loses_and_doubles_no_interrupt_either() {
    let part = Part::Avic;
    let mut config = host(part);
    config.avic.driver = AvicDriver::Linux4_7;
    migrate(part, config, 200);
}

#[test]
fn a_migration_that_forgets_the_tables_loses_interrupts() {
    let part = Part::Avic;
    let mut config = host(part);
    config.planted.avic.restored_without_tables = true;
    // In 4.7 nothing else sends in place of the hardware.
    config.avic.driver = AvicDriver::Linux4_7;
    let mut storm = Storm::new(part, config, 4, 3, 1);
    for _ in 0..20 {
        for _ in 0..100 {
            storm.step(true);
        }
        storm = storm.migrate();
    }
    assert!(!storm.drains(), "nothing was lost");
}

#[test]
fn switching_hardware_off_and_on_under_load_loses_no_interrupt() {
    for (seed, &part) in (0..8).zip(PARTS[1..].iter().cycle()) {
        let mut config = host(part);
        config.halt_poll_ns = if seed % 2 == 0 { 0 } else { 50_000 };
        let mut storm = Storm::new(part, config, 4, 3, seed);
        let mut inhibited = false;
        for _ in 0..400 {
            for _ in 0..20 {
                storm.step(true);
            }
            // The VMM works where no vCPU is in guest mode.
            let pcpu = (0..storm.pcpus).find(|&pcpu| storm.rig.guest_on(pcpu).is_none());
            if let Some(pcpu) = pcpu.map(PcpuId) {
                inhibited = !inhibited;
                let (vm, reason) = (VmId(0), Inhibit::BlockIrq);
                storm.rig.event(Event::Vmm(VmmEvent::Inhibit {
                    pcpu,
                    vm,
                    reason,
                    inhibited,
                }));
            }
        }
        assert!(storm.drains(), "seed {seed}, {part:?}");
        assert_eq!(storm.sends, storm.taken);
        assert!(storm.rig.counter(VmId(0), "apicv_inhibit_changed") > 10, "seed {seed}");
    }
}

#[test]
fn a_sleeper_that_was_migrated_is_woken_by_what_hardware_sends() {
    for &part in &PARTS[1..] {
        let mut storm = Storm::new(part, host(part), 2, 2, 1);
        let at = |storm: &Storm, vcpu| (0..2).find(|&pcpu| storm.rig.guest_on(pcpu) == Some(vcpu));
        let sleeper = at(&storm, 1).expect("both run");
        storm.rig.halt(sleeper);
        storm.rig.pass(1_000_000);
        let mut storm = storm.migrate();
        let sender = at(&storm, 0).expect("it never halts");
        let command = u64::from(VECTORS) | 1 << 32;
        if storm.uses_x2apic() {
            storm.rig.write_msr(sender, msr::X2APIC_ICR, command);
        } else {
            storm.rig.write(sender, lapic::ICR_HIGH, lapic::icr_high(1));
            storm.rig.write(sender, lapic::ICR_LOW, command as u32);
        }
        storm.rig.pass(1_000_000);
        assert_eq!(storm.rig.cpus[1].taken, [VECTORS], "{part:?}");
    }
}

#[test]
fn x2avic_wakes_whom_it_has_found_by_id_whatever_the_mode_of_their_lapics() {
    let part = Part::X2Avic;
    let mut rig = Rig::new(&host(part), &VmConfig::default(), 2, vec![Cpu::default(); 2], false);
    rig.hardware = part.hardware();
    rig.start();
    rig.pass(100_000);
    let at = |rig: &Rig, vcpu| (0..2).find(|&pcpu| rig.guest_on(pcpu) == Some(vcpu)).expect("both run");
    // One in xAPIC mode sleeps, its LAPIC as after reset; the other has gone on to x2APIC mode.
    let (sender, sleeper) = (at(&rig, 0), at(&rig, 1));
    rig.set_irqs(sleeper, true);
    rig.halt(sleeper);
    let value = msr::APIC_BASE_ADDRESS | msr::APIC_BASE_ENABLE | msr::APIC_BASE_X2APIC;
    rig.write_msr(sender, msr::APIC_BASE, value);
    rig.write_msr(
        sender,
        msr::X2APIC_ICR,
        2 << 32 | u64::from(lapic::ICR_LOGICAL | u32::from(VECTORS)),
    );
    rig.pass(1_000_000);
    assert_eq!(rig.cpus[1].taken, [VECTORS]);
}
