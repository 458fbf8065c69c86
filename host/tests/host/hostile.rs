//! Guests that try everything.

use holdfast_host::{
    Exit, HostConfig, PauseHandling, Planted, SchedConfig, SchedulerKind, SpinFaults, TaskConfig, VmConfig, VmGroup,
    VmId,
};
use proptest::prelude::*;
use std::panic::catch_unwind;

use crate::world::{Guest, Op, World, places};

/// Bytes of a fuzzer's input, followed by zeros.
struct Bytes<'a>(std::slice::Iter<'a, u8>);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        self.0.next().copied().unwrap_or(0)
    }

    fn word(&mut self) -> u64 {
        (0..8).fold(0, |word, _| word << 8 | u64::from(self.byte()))
    }

    /// Returns an operand, mostly a meaningful one.
    fn operand(&mut self) -> u64 {
        match self.byte() % 8 {
            0 => self.word(),
            1 => u64::MAX,
            2 => u64::from(u32::MAX),
            3 => 0,
            _ => u64::from(self.byte()),
        }
    }
}

const OFFSETS: [u32; 20] = [
    0x20, 0x30, 0x80, 0x90, 0xa0, 0xb0, 0xd0, 0xe0, 0xf0, 0x100, 0x1f0, 0x200, 0x280, 0x300, 0x310, 0x320, 0x370,
    0x380, 0x390, 0x3e0,
];
const MSRS: [u32; 15] = [
    0x10,
    0x1b,
    0x6e0,
    0x800,
    0x808,
    0x80b,
    0x80d,
    0x80f,
    0x828,
    0x830,
    0x832,
    0x838,
    0x83f,
    0x4b56_4d03,
    0x4b56_4d04,
];

/// One guest operation out of a few bytes.
fn op(bytes: &mut Bytes<'_>) -> Op {
    let offset = |bytes: &mut Bytes<'_>| match bytes.byte() {
        byte if byte < 200 => OFFSETS[usize::from(byte) % OFFSETS.len()],
        _ => bytes.word() as u32,
    };
    let msr = |bytes: &mut Bytes<'_>| match bytes.byte() {
        byte if byte < 220 => MSRS[usize::from(byte) % MSRS.len()],
        _ => bytes.word() as u32,
    };
    match bytes.byte() % 20 {
        0..3 => Op::Compute(u64::from(bytes.byte()) << (bytes.byte() % 16)),
        3 => Op::Exit(Exit::Hlt),
        4 => Op::Interrupts(bytes.byte() & 1 == 1),
        5 => Op::Cpl(bytes.byte()),
        6..8 => Op::Exit(Exit::Hypercall {
            number: bytes.operand() % 16,
            arguments: std::array::from_fn(|_| bytes.operand()),
        }),
        8 => {
            let target = u64::from(bytes.byte()) % 8;
            let (number, arguments) = match bytes.byte() % 3 {
                0 => (5, [0, target, 0, 0]),
                1 => (11, [target, 0, 0, 0]),
                _ => (10, [bytes.operand(), bytes.operand(), target, bytes.operand()]),
            };
            Op::Exit(Exit::Hypercall { number, arguments })
        }
        9 => Op::Exit(Exit::Cpuid {
            leaf: bytes.operand() as u32,
        }),
        10 => Op::Exit(Exit::ReadMsr { msr: msr(bytes) }),
        11..13 => Op::Exit(Exit::WriteMsr {
            msr: msr(bytes),
            value: bytes.operand(),
        }),
        13 => Op::Exit(Exit::WriteMsr {
            msr: 0x1b,
            value: 0xfee0_0000 | u64::from(bytes.byte()) << 8,
        }),
        14..17 => Op::Exit(Exit::ApicWrite {
            offset: offset(bytes),
            value: bytes.operand() as u32,
        }),
        17 => Op::Exit(Exit::ApicWrite {
            offset: 0xf0,
            value: 0x1ff,
        }),
        18 => Op::Exit(Exit::ApicRead { offset: offset(bytes) }),
        _ if bytes.byte() < 16 => Op::End,
        _ if bytes.byte() == 1 => Op::Exit(Exit::NestedFault),
        _ if bytes.byte() == 2 => Op::Exit(Exit::WriteFault),
        _ if bytes.byte() == 3 => Op::Exit(Exit::PageLogFull { entries: 512 }),
        _ if bytes.byte() == 4 => Op::Exit(Exit::Vmrun),
        _ if bytes.byte() == 0 => Op::Exit(Exit::Shutdown),
        _ => Op::Exit(Exit::Pause),
    }
}

/// One of the schedulers.
fn scheduler(bytes: &mut Bytes<'_>) -> SchedConfig {
    let kinds = SchedulerKind::ALL;
    SchedConfig::of(kinds[usize::from(bytes.byte()) % kinds.len()])
}

/// Runs the guests that `data` encodes. No guest may break the host or the boundary's contract.
pub fn fuzz_one(data: &[u8]) {
    let mut bytes = Bytes(data.iter());
    let shape = bytes.byte();
    let presets = PauseHandling::PRESETS;
    let mut pause = presets[usize::from(bytes.byte()) % presets.len()].1;
    pause.kick_yields |= shape & 2 == 2;
    let polls = if shape & 1 == 1 { 50_000 } else { 0 };
    let config = HostConfig {
        halt_poll_ns: polls,
        pause,
        sched: scheduler(&mut bytes),
        ..HostConfig::default()
    };
    let mut world = World::new(
        &config,
        &places(1 + u32::from(shape >> 2 & 1), 1 + u32::from(shape >> 3 & 1), 1),
    );
    let groups = [
        VmGroup::Root,
        VmGroup::Own { shares: 1024 },
        VmGroup::OwnWithVcpuGroups { shares: 2 },
    ];
    for _ in 0..2 {
        let group = groups[usize::from(bytes.byte()) % groups.len()];
        let config = VmConfig {
            group,
            pv_unhalt: bytes.byte() & 3 != 0,
            pv_sched_yield: true,
            pv_send_ipi: bytes.byte() & 3 != 0,
            pv_eoi: bytes.byte() & 3 != 0,
            pv_tlb_flush: true,
            nested: true,
            ..VmConfig::default()
        };
        let guests = (0..3).map(|_| {
            let count = usize::from(bytes.byte()) % 64;
            let ops: Vec<Op> = (0..count).map(|_| op(&mut bytes)).collect();
            Guest::script(ops)
        });
        let guests = guests.collect();
        world.add_vm(&config, &[], guests);
    }
    world.add_task(&TaskConfig::default(), 300_000, 200_000);
    world.start();
    for step in 1..40 {
        world.run_until(step * 500_000);
        world.check_no_lost_wakeup();
    }
    check_yields_are_counted(&world);
    let pcpus = world.total_time() / world.now;
    assert_eq!(world.total_time(), pcpus * world.now, "time was lost or used twice");
}

/// Checks that the host's work for spins and kicks is bounded by the number of spins and kicks.
fn check_yields_are_counted(world: &World) {
    for vm in [VmId(0), VmId(1)] {
        let counter = |name| world.counter(vm, name);
        let vcpus = world.host.vcpus(vm).count() as u64;
        let (attempted, done) = (
            counter("directed_yield_attempted"),
            counter("directed_yield_successful"),
        );
        // With the relaxed pass two rounds, and the confirmed receiver before them.
        let looks = counter("pause_exits") * (2 * (vcpus - 1) + 1);
        assert!(counter("directed_yield_looks") <= looks);
        assert!(attempted <= counter("directed_yield_looks") + counter("hypercalls"));
        assert!(done <= attempted);
        assert!(done <= counter("pause_exits") + counter("hypercalls"));
    }
}

/// Returns a guest that does `ops` again and again.
fn repeating(ops: Vec<Op>) -> Guest {
    let mut at = 0;
    Guest::new(Box::new(move || {
        at = (at + 1) % ops.len();
        ops[at]
    }))
}

fn hypercall(number: u64, target: u64) -> Op {
    let arguments = if number == 5 {
        [0, target, 0, 0]
    } else {
        [target, 0, 0, 0]
    };
    Op::Exit(Exit::Hypercall { number, arguments })
}

fn ipis(bits: u64, base: u64, icr: u64) -> Op {
    Op::Exit(Exit::Hypercall {
        number: 10,
        arguments: [bits, bits, base, icr],
    })
}

/// Returns programs of endless pauses and kicks only.
fn attacks() -> Vec<(&'static str, Vec<Op>)> {
    vec![
        ("pauses", vec![Op::Exit(Exit::Pause)]),
        ("pauses in user mode", vec![Op::Cpl(3), Op::Exit(Exit::Pause)]),
        ("kicks itself", vec![hypercall(5, 0), hypercall(5, 1), hypercall(5, 2)]),
        (
            "yields to itself",
            vec![hypercall(11, 0), hypercall(11, 1), hypercall(11, 2)],
        ),
        (
            "kicks strangers",
            vec![hypercall(5, 3), hypercall(5, 254), hypercall(5, u64::MAX)],
        ),
        (
            "yields to strangers",
            vec![
                hypercall(11, 3),
                hypercall(11, u64::from(u32::MAX)),
                hypercall(11, 1 << 32 | 1),
            ],
        ),
        (
            "sends ipis to all",
            vec![
                ipis(u64::MAX, 0, 0x41),
                ipis(u64::MAX, u64::from(u32::MAX) - 3, 0x1_0041),
            ],
        ),
        (
            "all",
            vec![
                ipis(7, 0, 0x300),
                Op::Exit(Exit::Pause),
                hypercall(5, 0),
                hypercall(11, 7),
                Op::Compute(100),
                hypercall(11, 1),
            ],
        ),
    ]
}

/// Two pCPUs, a guest of three vCPUs that does `ops` forever, one of two hogs.
fn attacked(ops: &[Op], pause: PauseHandling) -> World {
    attacked_under(ops, pause, SchedConfig::default(), SpinFaults::default())
}

/// Runs [`attacked`] with the scheduler `sched` and the planted `faults`.
fn attacked_under(ops: &[Op], pause: PauseHandling, sched: SchedConfig, faults: SpinFaults) -> World {
    let config = HostConfig {
        pause,
        sched,
        planted: Planted {
            pause: faults,
            ..Planted::default()
        },
        ..HostConfig::default()
    };
    let mut world = World::new(&config, &places(1, 2, 1));
    world.cost_ns = 2_000;
    let own = VmConfig {
        group: VmGroup::Own { shares: 1024 },
        pv_sched_yield: true,
        pv_send_ipi: true,
        ..VmConfig::default()
    };
    world.add_vm(&own, &[], (0..3).map(|_| repeating(ops.to_vec())).collect());
    world.add_vm(&own, &[], (0..2).map(|_| Guest::hog()).collect());
    world.start();
    world.run_until(200_000_000);
    world
}

#[test]
fn a_guest_that_only_pauses_or_kicks_takes_only_its_share() {
    let mut eras: Vec<(&str, PauseHandling)> = PauseHandling::PRESETS.to_vec();
    eras.dedup_by_key(|(_, pause)| *pause);
    for (name, pause) in eras {
        for (attack, ops) in attacks() {
            let world = attacked(&ops, pause);
            check_yields_are_counted(&world);
            let share = (world.vcpu_time(3) + world.vcpu_time(4)) as f64 / (2 * world.now) as f64;
            assert!(share > 0.4, "{attack} under {name}: the other guest got {share}");
            let counted = world.counter(VmId(0), "pause_exits") + world.counter(VmId(0), "hypercalls");
            assert!(counted > 100, "{attack} under {name}: {counted}");
        }
    }
}

#[test]
fn a_kick_to_oneself_that_yields_is_seen() {
    let mut pause = PauseHandling::DIRECTED_YIELD_2011;
    pause.kick_yields = true;
    let kicks = [hypercall(5, 0), hypercall(5, 1), hypercall(5, 2)];
    attacked(&kicks, pause);
    let faults = SpinFaults {
        self_kick_yields: true,
        ..SpinFaults::default()
    };
    let seen = catch_unwind(|| attacked_under(&kicks, pause, SchedConfig::default(), faults))
        .err()
        .expect("the world sees it");
    let message = seen.downcast_ref::<String>().expect("an assertion's message");
    assert!(message.contains("yields to itself"), "{message}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_guest_breaks_the_host(data in proptest::collection::vec(any::<u8>(), 0..1500)) {
        fuzz_one(&data);
    }
}

/// Returns the share of a hog that shares a pCPU with another guest's two spinning vCPUs.
fn share_beside_spinners(group: VmGroup) -> f64 {
    let (_, pause) = PauseHandling::PRESETS[PauseHandling::PRESETS.len() - 1];
    let config = HostConfig {
        pause,
        sched: SchedConfig::of(SchedulerKind::Eevdf612),
        ..HostConfig::default()
    };
    let mut world = World::new(&config, &places(1, 1, 1));
    let vm = VmConfig {
        group,
        ..VmConfig::default()
    };
    world.add_vm(&vm, &[], (0..2).map(|_| crate::spin::spinner()).collect());
    world.add_vm(&vm, &[], vec![Guest::hog()]);
    world.start();
    world.run_until(2_000_000_000);
    world.vcpu_time(2) as f64 / world.now as f64
}

#[test]
fn two_endless_spinners_that_yield_to_each_other_leave_a_hog_its_share() {
    let own = VmGroup::Own { shares: 1024 };
    for (group, due) in [(VmGroup::Root, 1.0 / 3.0), (own, 0.5)] {
        let share = share_beside_spinners(group);
        assert!(share > due - 0.01, "{group:?}: {share}");
    }
}
