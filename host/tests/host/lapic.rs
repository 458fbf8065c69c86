//! Emulated interrupts from end to end: IPIs, broadcasts, windows, timers.

use holdfast_abi::{lapic as reg, msr};
use holdfast_host::{Exit, HostConfig, VcpuState, VmConfig, VmId};

use crate::world::{Guest, MS, Op, World, apic, places};

const US: u64 = 1_000;

/// Returns the first operations of a kernel: it enables its LAPIC and unmasks interrupts.
fn boot() -> Vec<Op> {
    vec![apic(reg::SVR, 0x1ff), Op::Interrupts(true)]
}

/// Four vCPUs on four pCPUs; vCPU 0 sends as `ops` say after a millisecond, the others are `receiver`.
fn send(ops: &[Op], receiver: impl Fn(u32) -> Vec<Op>) -> World {
    let mut world = World::new(&HostConfig::default(), &places(1, 4, 1));
    let mut sender = boot();
    sender.push(Op::Compute(MS));
    sender.extend(ops);
    let mut guests = vec![Guest::script(sender)];
    guests.extend((1..4).map(|vcpu| Guest::script(receiver(vcpu))));
    let affinity: Vec<Vec<u32>> = (0..4).map(|pcpu| vec![pcpu]).collect();
    world.add_vm(&VmConfig::default(), &affinity, guests);
    world.start();
    world.run_until(10 * MS);
    world
}

fn received(world: &World) -> Vec<Vec<u8>> {
    world.guests.iter().map(|guest| guest.injected.clone()).collect()
}

#[test]
fn an_ipi_reaches_whom_it_names() {
    let to = |shorthand: u32, low: u32, high: u32| vec![apic(reg::ICR_HIGH, high), apic(reg::ICR_LOW, shorthand | low)];
    let cases: [(&str, Vec<Op>, [usize; 4]); 8] = [
        ("physical", to(0, 0x41, 2 << 24), [0, 0, 1, 0]),
        ("physical, nobody", to(0, 0x41, 9 << 24), [0, 0, 0, 0]),
        ("broadcast", to(0, 0x41, 0xff << 24), [1, 1, 1, 1]),
        ("self", to(reg::ICR_SHORTHAND_SELF, 0x41, 0), [1, 0, 0, 0]),
        ("all", to(reg::ICR_SHORTHAND_ALL, 0x41, 0), [1, 1, 1, 1]),
        ("others", to(reg::ICR_SHORTHAND_OTHERS, 0x41, 0), [0, 1, 1, 1]),
        (
            "logical flat",
            to(0, reg::ICR_LOGICAL | 0x41, 0b1010 << 24),
            [0, 1, 0, 1],
        ),
        (
            "lowest priority",
            to(0, reg::ICR_LOGICAL | 0x141, 0b1110 << 24),
            [0, 1, 0, 0],
        ),
    ];
    for (name, ops, expected) in cases {
        let world = send(&ops, |vcpu| {
            let mut ops = boot();
            ops.push(apic(reg::LDR, 1 << vcpu << 24));
            ops
        });
        let counts: Vec<usize> = received(&world).iter().map(Vec::len).collect();
        assert_eq!(counts, expected, "{name}");
    }
}

#[test]
fn an_ipi_interrupts_a_running_vcpu_at_once() {
    let mut world = World::new(
        &HostConfig {
            hz: 100,
            ..HostConfig::default()
        },
        &places(1, 2, 1),
    );
    let mut sender = boot();
    sender.extend([Op::Compute(MS), apic(reg::ICR_LOW, reg::ICR_SHORTHAND_OTHERS | 0x41)]);
    world.add_vm(
        &VmConfig::default(),
        &[vec![0], vec![1]],
        vec![Guest::script(sender), Guest::script(boot())],
    );
    world.start();
    world.run_until(MS + 30 * US);
    assert_eq!(world.guests[1].injected, [0x41]);
}

#[test]
fn an_ipi_wakes_a_halted_vcpu() {
    let world = send(&[apic(reg::ICR_LOW, reg::ICR_SHORTHAND_OTHERS | 0x41)], |_| {
        let mut ops = boot();
        ops.push(Op::Exit(Exit::Hlt));
        ops
    });
    assert!(world.guests.iter().all(|guest| guest.life == VcpuState::InGuest));
    assert_eq!(received(&world)[1..], [[0x41], [0x41], [0x41]]);
}

#[test]
fn a_masked_guest_gets_its_interrupts_through_a_window_highest_first() {
    let ops = [
        apic(reg::ICR_LOW, reg::ICR_SHORTHAND_OTHERS | 0x35),
        apic(reg::ICR_LOW, reg::ICR_SHORTHAND_OTHERS | 0x85),
        apic(reg::ICR_LOW, reg::ICR_SHORTHAND_OTHERS | 0x35),
    ];
    let world = send(&ops, |_| {
        vec![apic(reg::SVR, 0x1ff), Op::Compute(3 * MS), Op::Interrupts(true)]
    });
    assert_eq!(received(&world)[1..], [[0x85, 0x35], [0x85, 0x35], [0x85, 0x35]]);
    assert!(world.counter(VmId(0), "irq_window") >= 3);
}

#[test]
fn task_priority_holds_lower_classes_back() {
    let ops = [
        apic(reg::ICR_LOW, reg::ICR_SHORTHAND_OTHERS | 0x35),
        apic(reg::ICR_LOW, reg::ICR_SHORTHAND_OTHERS | 0x55),
    ];
    let world = send(&ops, |_| {
        let mut ops = vec![apic(reg::TPR, 0x40)];
        ops.extend(boot());
        ops.extend([Op::Compute(4 * MS), apic(reg::TPR, 0)]);
        ops
    });
    assert_eq!(received(&world)[1..], [[0x55, 0x35], [0x55, 0x35], [0x55, 0x35]]);
}

#[test]
fn vectors_below_16_are_errors_of_the_sender() {
    let ops = [apic(reg::ICR_LOW, reg::ICR_SHORTHAND_OTHERS | 3), apic(reg::ESR, 0)];
    let read = Op::Exit(Exit::ApicRead { offset: reg::ESR });
    let world = send(&[ops[0], ops[1], read], |_| boot());
    assert_eq!(received(&world), [[0u8; 0]; 4]);
    assert_eq!(world.guests[0].replies, [u64::from(reg::ESR_SEND_ILLEGAL_VECTOR)]);
}

#[test]
fn the_unhalt_pseudo_mode_is_a_kick() {
    let kick = apic(reg::ICR_LOW, reg::DeliveryMode::Unhalt.bits());
    let world = send(&[apic(reg::ICR_HIGH, 2 << 24), kick], |_| vec![Op::Exit(Exit::Hlt)]);
    let awake: Vec<bool> = world
        .guests
        .iter()
        .map(|guest| guest.life == VcpuState::InGuest)
        .collect();
    assert_eq!(awake, [true, false, true, false]);
}

#[test]
fn x2apic_sends_with_one_write() {
    let enable = Op::Exit(Exit::WriteMsr {
        msr: msr::APIC_BASE,
        value: 0xfee0_0d00,
    });
    let svr = Op::Exit(Exit::WriteMsr {
        msr: msr::X2APIC_BASE + 0xf,
        value: 0x1ff,
    });
    let icr = |value| {
        Op::Exit(Exit::WriteMsr {
            msr: msr::X2APIC_ICR,
            value,
        })
    };
    // vCPU 3 by its physical ID, then 1 and 2 by their logical one.
    let world = send(
        &[
            enable,
            icr(3 << 32 | 0x41),
            icr(0b110 << 32 | u64::from(reg::ICR_LOGICAL) | 0x42),
        ],
        |_| vec![enable, svr, Op::Interrupts(true)],
    );
    assert_eq!(received(&world), [vec![], vec![0x42], vec![0x42], vec![0x41]]);
    assert_eq!(world.guests[0].faults, 0);
}

#[test]
fn a_cluster_of_x2apic_holds_sixteen_vcpus() {
    let enable = Op::Exit(Exit::WriteMsr {
        msr: msr::APIC_BASE,
        value: 0xfee0_0c00,
    });
    let enable_first = Op::Exit(Exit::WriteMsr {
        msr: msr::APIC_BASE,
        value: 0xfee0_0d00,
    });
    let svr = Op::Exit(Exit::WriteMsr {
        msr: msr::X2APIC_BASE + 0xf,
        value: 0x1ff,
    });
    // The destination, and its vCPUs of 40. The last cluster has only eight, and others have none.
    let cases: [(u64, &[usize]); 5] = [
        (0x1_8001, &[16, 31]),
        (0x0_8002, &[1, 15]),
        (0x2_ff80, &[39]),
        (0x3_ffff, &[]),
        (0xffff_ffff >> 1, &[]),
    ];
    for (destination, expected) in cases {
        let mut world = World::new(&HostConfig::default(), &places(1, 2, 1));
        let icr = Op::Exit(Exit::WriteMsr {
            msr: msr::X2APIC_ICR,
            value: destination << 32 | u64::from(reg::ICR_LOGICAL) | 0x42,
        });
        let sender = vec![enable_first, svr, Op::Interrupts(true), Op::Compute(200 * MS), icr];
        let mut guests = vec![Guest::script(sender)];
        guests.extend((1..40).map(|_| Guest::script(vec![enable, svr, Op::Interrupts(true), Op::Exit(Exit::Hlt)])));
        let mut affinity = vec![vec![1]; 40];
        affinity[0] = vec![0];
        world.add_vm(&VmConfig::default(), &affinity, guests);
        world.start();
        world.run_until(1_000 * MS);
        let receivers: Vec<usize> = (0..40)
            .filter(|&vcpu| !world.guests[vcpu].injected.is_empty())
            .collect();
        assert_eq!(receivers, expected, "{destination:#x}");
    }
}

#[test]
fn every_init_resets_but_its_deassertion() {
    for (flags, resets) in [
        (0, true),
        (reg::ICR_ASSERT, true),
        (reg::ICR_ASSERT | reg::ICR_LEVEL, true),
        (reg::ICR_LEVEL, false),
    ] {
        let init = apic(reg::ICR_LOW, flags | reg::DeliveryMode::Init.bits());
        let world = send(&[apic(reg::ICR_HIGH, 2 << 24), init], |_| boot());
        let inits: Vec<u32> = world.guests.iter().map(|guest| guest.inits).collect();
        assert_eq!(inits, [0, 0, u32::from(resets), 0], "{flags:#x}");
    }
}

#[test]
fn timers_fire_when_they_should() {
    let divide_by_1 = apic(reg::TIMER_DIVIDE, 0xb);
    let tsc = |ns: u64| ns * 2_930 / 1_000;
    let cases: [(&str, Vec<Op>, usize); 5] = [
        (
            "one-shot",
            vec![
                apic(reg::LVT_TIMER, 0x60),
                divide_by_1,
                apic(reg::TIMER_INITIAL, 2_000_000),
            ],
            1,
        ),
        (
            "masked",
            vec![
                apic(reg::LVT_TIMER, 0x1_0060),
                divide_by_1,
                apic(reg::TIMER_INITIAL, 2_000_000),
            ],
            0,
        ),
        (
            "periodic",
            vec![
                apic(reg::LVT_TIMER, 0x2_0060),
                divide_by_1,
                apic(reg::TIMER_INITIAL, 1_000_000),
            ],
            9,
        ),
        (
            "too fast",
            vec![
                apic(reg::LVT_TIMER, 0x2_0060),
                divide_by_1,
                apic(reg::TIMER_INITIAL, 10),
            ],
            19,
        ),
        (
            "tsc deadline",
            vec![
                apic(reg::LVT_TIMER, 0x4_0060),
                Op::Exit(Exit::WriteMsr {
                    msr: msr::TSC_DEADLINE,
                    value: tsc(5 * MS),
                }),
            ],
            1,
        ),
    ];
    for halts in [false, true] {
        for (name, ops, expected) in &cases {
            let mut world = World::new(&HostConfig::default(), &places(1, 2, 1));
            let mut ops: std::collections::VecDeque<Op> = boot().into_iter().chain(ops.iter().copied()).collect();
            let guest = Guest::new(Box::new(move || match ops.pop_front() {
                Some(op) => op,
                None if halts => Op::Exit(Exit::Hlt),
                None => Op::Compute(100 * US),
            }));
            world.add_vm(&VmConfig::default(), &[], vec![guest]);
            world.start();
            world.run_until(10 * MS - 300 * US);
            assert_eq!(world.guests[0].injected.len(), *expected, "{name}, halts {halts}");
            assert!(world.guests[0].injected.iter().all(|&vector| vector == 0x60));
        }
    }
}

#[test]
fn a_timer_goes_where_its_vcpu_goes() {
    // Eight vCPUs that halt until their timers tick, and threads that come and go, on four pCPUs: everything migrates.
    let mut world = World::new(&HostConfig::default(), &places(2, 2, 1));
    let guests = (0..8).map(|_| {
        let mut ops: Vec<Op> = boot();
        ops.extend([apic(reg::LVT_TIMER, 0x2_0060), apic(reg::TIMER_DIVIDE, 0xb)]);
        ops.push(apic(reg::TIMER_INITIAL, 1_000_000));
        let mut ops = ops.into_iter();
        let mut halts = false;
        Guest::new(Box::new(move || {
            ops.next().unwrap_or_else(|| {
                halts = !halts;
                if halts {
                    Op::Exit(Exit::Hlt)
                } else {
                    Op::Compute(700 * US)
                }
            })
        }))
    });
    world.add_vm(&VmConfig::default(), &[], guests.collect());
    for busy in 1..4 {
        world.add_task(&holdfast_host::TaskConfig::default(), busy * 3 * MS, busy * 2 * MS);
    }
    world.start();
    world.run_until(500 * MS);
    for (vcpu, guest) in world.guests.iter().enumerate() {
        assert!(guest.injected.len() > 50, "vcpu {vcpu}: {} ticks", guest.injected.len());
    }
}

#[test]
fn the_current_count_runs_down() {
    let mut world = World::new(&HostConfig::default(), &places(1, 1, 1));
    let mut ops = boot();
    ops.extend([
        apic(reg::LVT_TIMER, 0x60),
        apic(reg::TIMER_DIVIDE, 0xb),
        apic(reg::TIMER_INITIAL, 2_000_000),
    ]);
    ops.extend([
        Op::Compute(500 * US),
        Op::Exit(Exit::ApicRead {
            offset: reg::TIMER_CURRENT,
        }),
    ]);
    world.add_vm(&VmConfig::default(), &[], vec![Guest::script(ops)]);
    world.start();
    world.run_until(MS);
    let [count] = world.guests[0].replies[..] else {
        panic!("{:?}", world.guests[0].replies)
    };
    assert!((1_450_000..1_500_000).contains(&count), "{count}");
}

#[test]
fn x2apic_registers_are_read_by_msr_and_all_else_faults() {
    let read = |offset: u32| {
        Op::Exit(Exit::ReadMsr {
            msr: msr::X2APIC_BASE + offset / reg::STRIDE,
        })
    };
    let write = |msr, value| Op::Exit(Exit::WriteMsr { msr, value });
    let registers = [
        (reg::ID, 1),
        (reg::VERSION, 0x0005_0014),
        (reg::TPR, 0x30),
        (reg::PPR, 0x30),
        (reg::LDR, 2),
        (reg::SVR, 0x1ff),
        (reg::ISR, 0),
        (reg::IRR + 7 * reg::STRIDE, 0),
        (reg::LVT_TIMER, 0x1_0041),
        (reg::TIMER_INITIAL, 0),
        (reg::TIMER_DIVIDE, 0xb),
    ];
    let absent = [0x10, 0x40, reg::EOI, 0xe0, 0x290, 0x2f0, 0x3a0, 0x3d0, 0x3f0];
    let mut ops = vec![read(reg::ID), write(msr::APIC_BASE, 0xfee0_0c00)];
    ops.push(write(msr::X2APIC_BASE + reg::ICR_LOW / reg::STRIDE, 5 << 32 | 0x41));
    for (offset, value) in registers {
        if matches!(offset, reg::TPR | reg::SVR | reg::LVT_TIMER | reg::TIMER_DIVIDE) {
            ops.push(write(msr::X2APIC_BASE + offset / reg::STRIDE, value));
        }
    }
    ops.extend(registers.map(|(offset, _)| read(offset)));
    ops.push(read(reg::ICR_LOW));
    ops.extend(absent.map(read));
    let mut world = World::new(&HostConfig::default(), &places(1, 2, 1));
    world.add_vm(&VmConfig::default(), &[], vec![Guest::hog(), Guest::script(ops)]);
    world.start();
    world.run_until(10 * MS);
    let mut expected = registers.map(|(_, value)| value).to_vec();
    expected.push(5 << 32 | 0x41);
    assert_eq!(world.guests[1].replies, expected);
    assert_eq!(world.guests[1].faults as usize, 1 + absent.len());
}

/// Returns the registers of the x2APIC range on which `access` faults, in a vCPU that is in x2APIC mode if `on`.
fn faulting(on: bool, access: impl Fn(u32) -> Exit) -> Vec<u32> {
    let faults = |register: u32| {
        let mut world = World::new(&HostConfig::default(), &places(1, 1, 1));
        let mut ops = Vec::new();
        if on {
            let value = 0xfee0_0000 | msr::APIC_BASE_ENABLE | msr::APIC_BASE_X2APIC | msr::APIC_BASE_BSP;
            let msr = msr::APIC_BASE;
            ops.push(Op::Exit(Exit::WriteMsr { msr, value }));
        }
        ops.push(Op::Exit(access(msr::X2APIC_BASE + register)));
        world.add_vm(&VmConfig::default(), &[], vec![Guest::script(ops)]);
        world.start();
        world.run_until(MS);
        world.guests[0].faults
    };
    let all = 0..=msr::X2APIC_LAST - msr::X2APIC_BASE;
    all.filter(|&register| faults(register) > 0).collect()
}

#[test]
fn registers_of_x2apic_fault_where_the_manual_says_so() {
    // SDM volume 3, "x2APIC Register Address Space".
    let all: Vec<u32> = (0..=msr::X2APIC_LAST - msr::X2APIC_BASE).collect();
    let but = |these: &[u32]| -> Vec<u32> { all.iter().copied().filter(|at| !these.contains(at)).collect() };
    let vectors: Vec<u32> = (0x10..0x28).collect();
    let local: Vec<u32> = (0x32..0x39).collect();
    let readable = [
        &[0x02, 0x03, 0x08, 0x0a, 0x0d, 0x0f, 0x28, 0x30, 0x39, 0x3e],
        &vectors[..],
        &local[..],
    ]
    .concat();
    let writable = [&[0x08, 0x0b, 0x0f, 0x28, 0x30, 0x3e, 0x3f], &local[..]].concat();
    let read = |msr| Exit::ReadMsr { msr };
    let write = |value| move |msr| Exit::WriteMsr { msr, value };
    assert_eq!(faulting(true, read), but(&readable));
    assert_eq!(faulting(true, write(0)), but(&writable));
    assert_eq!(
        faulting(true, write(1 << 32)),
        but(&[0x30]),
        "only the command has 64 bits"
    );
    // Outside x2APIC mode there are none.
    assert_eq!(faulting(false, read), all);
    assert_eq!(faulting(false, write(0)), all);
}
