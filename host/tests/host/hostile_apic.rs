//! Guests that do everything to their interrupt controllers, and devices that signal anything: the host neither panics
//! nor breaks the boundary's contract, and no other VM notices. Whether what they get is right, `apic_model` says.
//!
//! `docs/fuzzing.md` has the command that runs this for as long as wanted.

use holdfast_abi::{ioapic, lapic as reg, msr};
use holdfast_host::{Event, Exit, HostConfig, PcpuId, VmConfig, VmId, VmmEvent};
use proptest::prelude::*;

use crate::apic_model::{self, Setup, Shape};
use crate::hardware::PARTS;
use crate::world::{Guest, Op, Rng, World, places};

/// The pCPU on which devices work; no vCPU runs there.
const DEVICES: PcpuId = PcpuId(3);

fn value(rng: &mut Rng) -> u64 {
    match rng.below(8) {
        0 => rng.next(),
        1 => u64::MAX,
        2 => u64::from(u32::MAX),
        3 => 1 << rng.below(64),
        4 => rng.next() & 0xfcfff,
        5 => rng.below(16),
        _ => rng.below(256),
    }
}

/// Returns an offset in a page, mostly of a register.
fn offset(rng: &mut Rng) -> u64 {
    match rng.below(4) {
        0 => rng.below(0x1000),
        1 => rng.next(),
        _ => rng.below(0x40) * u64::from(reg::STRIDE),
    }
}

fn address(rng: &mut Rng) -> u64 {
    let page = [msr::APIC_BASE_ADDRESS, ioapic::ADDRESS, 0, 1 << 35, value(rng)][rng.below(5) as usize];
    page.wrapping_add(offset(rng))
}

fn base(rng: &mut Rng) -> u64 {
    let bits = rng.below(16) << 8;
    let place = if rng.below(3) == 0 {
        value(rng)
    } else {
        msr::APIC_BASE_ADDRESS
    };
    place ^ bits
}

fn op(rng: &mut Rng) -> Op {
    Op::Exit(match rng.below(24) {
        0..3 => return Op::Compute(1 << rng.below(18)),
        3 => return Op::Interrupts(rng.below(4) > 0),
        4..11 => Exit::ApicWrite {
            offset: offset(rng) as u32,
            value: value(rng) as u32,
        },
        11..13 => Exit::ApicRead {
            offset: offset(rng) as u32,
        },
        13..15 => Exit::WriteMsr {
            msr: msr::X2APIC_BASE + rng.below(0x101) as u32,
            value: value(rng),
        },
        15 => Exit::ReadMsr {
            msr: msr::X2APIC_BASE + rng.below(0x101) as u32,
        },
        16 => Exit::WriteMsr {
            msr: msr::APIC_BASE,
            value: base(rng),
        },
        17 => Exit::WriteMsr {
            msr: msr::TSC_DEADLINE,
            value: value(rng),
        },
        18 => Exit::WriteCr8 { value: value(rng) },
        19 => Exit::Iret,
        20 => Exit::Hlt,
        21 => Exit::ApicWrite {
            offset: reg::SVR,
            value: 0x1ff,
        },
        // Makes the next IPI an INIT or a SIPI.
        _ => Exit::ApicWrite {
            offset: reg::ICR_LOW,
            value: (0x4500 + 0x100 * rng.below(2) as u32) | (rng.below(4) as u32) << 18,
        },
    })
}

/// A VM of three hostile vCPUs beside a quiet one, on shared pCPUs.
fn fuzz(seed: u64) {
    let mut rng = Rng(seed);
    let config = HostConfig {
        halt_poll_ns: rng.below(2) * 50_000,
        ..HostConfig::default()
    };
    let mut world = World::new(&config, &places(1, 4, 1));
    let vm = VmConfig {
        waits_for_sipi: rng.below(2) == 0,
        ..VmConfig::default()
    };
    let hostile = (0..3).map(|_| Guest::script((0..rng.below(120)).map(|_| op(&mut rng)).collect()));
    let hostile: Vec<Guest> = hostile.collect();
    let here = vec![vec![0, 1, 2]; 3];
    world.add_vm(&vm, &here, hostile);
    let quiet = (0..2).map(|_| {
        Guest::script(vec![
            Op::Exit(Exit::ApicWrite {
                offset: reg::SVR,
                value: 0x1ff,
            }),
            Op::Interrupts(true),
            Op::Compute(1_000_000),
            Op::Exit(Exit::Hlt),
        ])
    });
    world.add_vm(&VmConfig::default(), &here[..2], quiet.collect());
    world.start();
    for step in 1..40 {
        world.run_until(step * 250_000);
        world.handle(Event::Vmm(VmmEvent::Msi {
            pcpu: DEVICES,
            vm: VmId(0),
            address: address(&mut rng) ^ (8 * rng.below(2)),
            data: value(&mut rng) as u32,
        }));
        world.check_no_lost_wakeup();
    }
    for guest in &world.guests[3..] {
        assert!(
            guest.injected.is_empty(),
            "another VM's interrupt: {:?}",
            guest.injected
        );
        assert_eq!((guest.nmis, guest.inits, guest.faults), (0, 0, 0), "another VM's event");
        assert!(guest.startups.is_empty(), "another VM's SIPI");
    }
}

proptest! {
    #[test]
    fn no_guest_breaks_the_interrupt_controllers_or_reaches_another_vm(seed in any::<u64>()) {
        fuzz(seed);
    }
}

/// `HOLDFAST_FUZZ_CASES` guests from `HOLDFAST_FUZZ_SEED` on, and as many programs compared with the reference model.
#[test]
#[ignore = "runs for as long as it is asked to"]
fn as_many_as_asked() {
    let number = |name: &str, default| std::env::var(name).map_or(default, |text| text.parse().expect("a number"));
    let (cases, first) = (number("HOLDFAST_FUZZ_CASES", 10_000), number("HOLDFAST_FUZZ_SEED", 1));
    let mut taken = 0;
    for seed in first..first + cases {
        fuzz(seed);
        let mut rng = Rng(seed ^ 0x6170_6963);
        let shape = [Shape::XApic, Shape::X2Apic, Shape::Hostile][(seed % 3) as usize];
        let setup = Setup {
            part: PARTS[rng.below(PARTS.len() as u64) as usize],
        };
        let data: Vec<u8> = (0..rng.below(3000)).map(|_| rng.next() as u8).collect();
        match apic_model::compare(setup, shape, &data) {
            Ok(count) => taken += count,
            Err(difference) => panic!("seed {seed}: {difference}"),
        }
        if seed % 10_000 == 0 {
            println!("{} cases, {taken} interrupts taken in programs", seed + 1 - first);
        }
    }
    println!("{cases} cases, {taken} interrupts taken in programs");
}
