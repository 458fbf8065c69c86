//! Guests that try everything.

use holdfast_host::{Exit, HostConfig, PauseHandling, TaskConfig, VmConfig, VmGroup};
use proptest::prelude::*;

use crate::world::{Guest, Op, World, places};

/// Takes bytes from a fuzzer's input; zeros when it is used up.
struct Bytes<'a>(std::slice::Iter<'a, u8>);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        self.0.next().copied().unwrap_or(0)
    }

    fn word(&mut self) -> u64 {
        (0..8).fold(0, |word, _| word << 8 | u64::from(self.byte()))
    }

    /// An operand: mostly one that means something.
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
const MSRS: [u32; 14] = [
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
        8 => Op::Exit(Exit::Hypercall {
            number: 5,
            arguments: [0, u64::from(bytes.byte()) % 8, 0, 0],
        }),
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
        _ if bytes.byte() == 0 => Op::Exit(Exit::Shutdown),
        _ => Op::Exit(Exit::Pause),
    }
}

/// The entry of a fuzzer: any bytes make guests, and no guest may break the host or the boundary's contract.
pub fn fuzz_one(data: &[u8]) {
    let mut bytes = Bytes(data.iter());
    let shape = bytes.byte();
    let presets = PauseHandling::PRESETS;
    let mut pause = presets[usize::from(bytes.byte()) % presets.len()].1;
    pause.kick_yields |= shape & 2 == 2;
    pause.filters.ipi_aware = shape & 16 == 16;
    let polls = if shape & 1 == 1 { 50_000 } else { 0 };
    let config = HostConfig {
        halt_poll_ns: polls,
        pause,
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
    let pcpus = world.total_time() / world.now;
    assert_eq!(world.total_time(), pcpus * world.now, "time was lost or used twice");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_guest_breaks_the_host(data in proptest::collection::vec(any::<u8>(), 0..1500)) {
        fuzz_one(&data);
    }
}
