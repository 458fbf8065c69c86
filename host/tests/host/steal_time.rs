//! The steal-time record: stolen time, and whether a vCPU seems preempted.

use holdfast_abi::msr;
use holdfast_host::{Exit, HostConfig, Linux, PauseHandling, Policy, PolicyKind, VcpuState, VmConfig, VmId};

use crate::halt::{HLT, kick, pair};
use crate::world::{Guest, MS, Op, World, places};

const US: u64 = 1_000;

/// Writes the register that says where the record is.
fn register(value: u64) -> Op {
    Op::Exit(Exit::WriteMsr {
        msr: msr::STEAL_TIME,
        value,
    })
}

#[test]
fn steal_time_is_what_the_thread_waited() {
    let mut world = World::new(&HostConfig::default(), &places(1, 1, 1));
    let guest = || Guest::script(vec![register(0x1001)]);
    world.add_vm(&VmConfig::default(), &[], vec![guest(), guest()]);
    world.start();
    world.run_until(1_000 * MS);
    for vcpu in 0..2 {
        let waited = world.now - world.vcpu_time(vcpu);
        let stolen = world.guests[vcpu as usize].stolen;
        assert!(
            waited.abs_diff(stolen) < 30 * MS,
            "vcpu {vcpu}: waited {waited}, stolen {stolen}"
        );
        let preempted = world.guests[vcpu as usize].life == VcpuState::Preempted;
        assert_eq!(world.guests[vcpu as usize].preempted_flag, preempted, "vcpu {vcpu}");
    }
}

#[test]
fn the_steal_time_register_faults_on_reserved_bits() {
    for (offered, value, faults) in [
        (true, 0x1001, 0),
        (true, 0x1003, 1),
        (true, 0x1021, 1),
        (false, 0x1001, 1),
    ] {
        let mut world = World::new(&HostConfig::default(), &places(1, 1, 1));
        let vm = VmConfig {
            steal_time: offered,
            ..VmConfig::default()
        };
        world.add_vm(&vm, &[], vec![Guest::script(vec![register(value)])]);
        world.start();
        world.run_until(MS);
        assert_eq!(world.guests[0].faults, faults, "{value:#x}, offered {offered}");
    }
}

#[test]
fn the_preempted_flag_is_set_in_a_halt_until_5_18() {
    for (kernel, set) in [
        (Linux::V3_3, true),
        (Linux::V4_12, true),
        (Linux::V6_1, false),
        (Linux::V7_3, false),
    ] {
        let mut world = pair(
            &HostConfig::of(kernel),
            vec![Op::Compute(5 * MS), kick(1)],
            vec![register(0x1001), HLT],
        );
        world.run_until(4 * MS);
        assert_eq!(world.guests[1].preempted_flag, set, "{kernel:?}");
        world.run_until(6 * MS);
        assert!(!world.guests[1].preempted_flag);
    }
}

/// A policy that decides as the kernel does, and tells guests of yields.
#[derive(Clone, Debug, Default)]
struct TellsOfYields;

impl Policy for TellsOfYields {
    fn about(&self) -> &'static str {
        "the kernel's decisions"
    }

    fn reports_yields(&self) -> bool {
        true
    }
}

#[test]
fn since_5_19_a_vcpu_that_yields_in_a_pause_exit_does_not_seem_preempted() {
    // A policy may say so of vCPUs that give their pCPU away.
    let policies = [PolicyKind::KERNEL, PolicyKind::of::<TellsOfYields>("tested")];
    for (kernel, policy, seen) in [
        (Linux::V4_12, policies[0], true),
        (Linux::V6_1, policies[0], false),
        (Linux::V6_1, policies[1], true),
    ] {
        let config = HostConfig {
            policy,
            pause: PauseHandling::DIRECTED_YIELD_2011,
            ..HostConfig::of(kernel)
        };
        let mut world = World::new(&config, &places(1, 1, 1));
        let mut spins = vec![register(0x1001)];
        spins.extend((0..200).flat_map(|_| [Op::Compute(2 * US), Op::Exit(Exit::Pause)]));
        spins.push(Op::Compute(500 * MS));
        world.add_vm(&VmConfig::default(), &[], vec![Guest::script(spins), Guest::hog()]);
        world.start();
        let (mut yielded, mut flagged) = (0, 0);
        for at in 1..3_000 {
            world.run_until(at * 100 * US);
            let spins = world.counter(VmId(0), "pause_exits") < 200;
            if spins && world.guests[0].life == VcpuState::Preempted {
                yielded += 1;
                flagged += u32::from(world.guests[0].preempted_flag);
            }
        }
        assert!(yielded > 10, "{yielded}");
        assert_eq!(flagged > yielded / 2, seen, "{kernel:?}: {flagged} of {yielded}");
    }
}
