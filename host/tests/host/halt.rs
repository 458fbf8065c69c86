//! HLT, kicks, polling: what ends a halt and what does not.

use holdfast_abi::{hypercall, msr};
use holdfast_host::{Exit, HostConfig, PauseHandling, Run, TaskConfig, VcpuState, VmConfig};
use proptest::prelude::*;

use crate::world::{Guest, MS, Op, Rng, World, places};

const US: u64 = 1_000;

pub fn kick(target: u64) -> Op {
    Op::Exit(Exit::Hypercall {
        number: hypercall::KICK_CPU,
        arguments: [0, target, 0, 0],
    })
}

/// Returns a hypercall that only marks the progress of the guest.
fn mark() -> Op {
    Op::Exit(Exit::Hypercall {
        number: 99,
        arguments: [0; 4],
    })
}

pub const HLT: Op = Op::Exit(Exit::Hlt);

/// Two pCPUs, one vCPU on each.
pub fn pair(config: &HostConfig, first: Vec<Op>, second: Vec<Op>) -> World {
    let mut world = World::new(config, &places(1, 2, 1));
    world.add_vm(
        &VmConfig::default(),
        &[vec![0], vec![1]],
        vec![Guest::script(first), Guest::script(second)],
    );
    world.start();
    world
}

#[test]
fn a_kick_before_the_halt_ends_it_at_once() {
    let mut world = pair(
        &HostConfig::default(),
        vec![kick(1)],
        vec![Op::Compute(5 * MS), HLT, mark()],
    );
    world.run_until(5 * MS - 1);
    assert!(world.save(1).pv_unhalted);
    world.run_until(6 * MS);
    assert_eq!(world.guests[1].replies.len(), 1, "the halt did not end");
    assert!(!world.save(1).pv_unhalted, "the latch is used up");
}

#[test]
fn a_kick_to_a_running_vcpu_ends_one_halt_only() {
    let mut world = pair(
        &HostConfig::default(),
        vec![kick(1)],
        vec![Op::Compute(MS), HLT, mark(), HLT, mark()],
    );
    world.run_until(50 * MS);
    assert_eq!(world.guests[1].replies.len(), 1);
    assert_eq!(world.guests[1].life, VcpuState::Blocked);
}

#[test]
fn a_kick_wakes_a_sleeper() {
    let mut world = pair(
        &HostConfig::default(),
        vec![Op::Compute(3 * MS), kick(1)],
        vec![HLT, mark()],
    );
    world.run_until(2 * MS);
    assert_eq!(world.guests[1].life, VcpuState::Blocked);
    assert!(world.guests[1].preempted_flag || world.guests[1].stolen == 0);
    assert_eq!(world.what(1), Run::Idle);
    world.run_until(4 * MS);
    assert_eq!(world.guests[1].replies.len(), 1);
}

#[test]
fn a_kick_to_nobody_does_nothing() {
    for target in [2, 255, u64::from(u32::MAX)] {
        let mut world = pair(
            &HostConfig::default(),
            vec![Op::Compute(MS), kick(target), mark()],
            vec![HLT, mark()],
        );
        world.run_until(20 * MS);
        assert_eq!(world.guests[0].replies[0], 0, "target {target}");
        assert_eq!(world.guests[1].life, VcpuState::Blocked, "target {target}");
    }
}

#[test]
fn hypercalls_are_answered_as_kvm_does() {
    let cases: [(bool, u8, u64, i64); 8] = [
        (true, 0, hypercall::KICK_CPU, 0),
        (true, 3, hypercall::KICK_CPU, hypercall::EPERM),
        (false, 0, hypercall::KICK_CPU, hypercall::ENOSYS),
        (true, 0, 0, hypercall::ENOSYS),
        (true, 0, u64::MAX, hypercall::ENOSYS),
        (true, 255, 77, hypercall::EPERM),
        (true, 0, hypercall::SCHED_YIELD, hypercall::ENOSYS),
        (true, 0, hypercall::SEND_IPI, hypercall::ENOSYS),
    ];
    for (pv_unhalt, cpl, number, expected) in cases {
        let mut world = World::new(&HostConfig::default(), &places(1, 1, 1));
        let call = Op::Exit(Exit::Hypercall {
            number,
            arguments: [0; 4],
        });
        let vm = VmConfig {
            pv_unhalt,
            ..VmConfig::default()
        };
        world.add_vm(&vm, &[], vec![Guest::script(vec![Op::Cpl(cpl), call])]);
        world.start();
        world.run_until(MS);
        assert_eq!(
            world.guests[0].replies,
            [expected as u64],
            "pv_unhalt {pv_unhalt}, cpl {cpl}, number {number}"
        );
    }
}

#[test]
fn a_yield_by_hypercall_is_for_guests_that_are_offered_it() {
    for (offered, expected) in [(true, 0), (false, hypercall::ENOSYS)] {
        let mut world = World::new(&HostConfig::default(), &places(1, 1, 1));
        let vm = VmConfig {
            pv_sched_yield: offered,
            ..VmConfig::default()
        };
        let call = Op::Exit(Exit::Hypercall {
            number: hypercall::SCHED_YIELD,
            arguments: [0; 4],
        });
        world.add_vm(&vm, &[], vec![Guest::script(vec![call])]);
        world.start();
        world.run_until(MS);
        assert_eq!(world.guests[0].replies, [expected as u64], "offered: {offered}");
    }
}

#[test]
fn an_interrupt_does_not_end_a_halt_with_interrupts_masked() {
    let ipi = [
        Op::Compute(MS),
        Op::Exit(Exit::ApicWrite {
            offset: 0x310,
            value: 1 << 24,
        }),
    ];
    let ipi = [
        ipi[0],
        ipi[1],
        Op::Exit(Exit::ApicWrite {
            offset: 0x300,
            value: 0x41,
        }),
    ];
    let enable = Op::Exit(Exit::ApicWrite {
        offset: 0xf0,
        value: 0x1ff,
    });
    for masked in [true, false] {
        let mut second = vec![enable];
        second.extend((!masked).then_some(Op::Interrupts(true)));
        second.extend([HLT, mark()]);
        let mut world = pair(&HostConfig::default(), ipi.to_vec(), second);
        world.run_until(20 * MS);
        assert_eq!(world.guests[1].replies.is_empty(), masked, "masked {masked}");
        assert_eq!(world.guests[1].injected.len(), usize::from(!masked), "masked {masked}");
    }
}

fn polling(ns: u64) -> HostConfig {
    HostConfig {
        halt_poll_ns: ns,
        halt_poll_shrink: 2,
        ..HostConfig::default()
    }
}

#[test]
fn polling_grows_with_short_halts_and_then_catches_kicks() {
    // Halts of 30 µs: the polling time grows 0, 10, 20, 40 µs, and from then on no halt sleeps.
    let mut ring = vec![];
    for _ in 0..50 {
        ring.extend([Op::Compute(30 * US), kick(1), HLT]);
    }
    let mut other = vec![];
    for _ in 0..50 {
        other.extend([HLT, Op::Compute(30 * US), kick(0)]);
    }
    let mut world = pair(&polling(200 * US), ring, other);
    let vm = holdfast_host::VmId(0);
    world.run_until(20 * MS);
    assert_eq!(world.counter(vm, "halt_exits"), 100);
    assert!(
        world.counter(vm, "halt_successful_poll") >= 90,
        "{:?}",
        world.host.counters(vm).collect::<Vec<_>>()
    );
    assert!(world.counter(vm, "halt_wakeup") <= 10);
}

/// A guest that polls itself switches the host's polling off, if it is offered that. Other values fault and change
/// nothing.
#[test]
fn the_host_does_not_poll_for_a_guest_that_does() {
    let run = |offered: bool, value: u64| {
        let write = Op::Exit(Exit::WriteMsr {
            msr: msr::POLL_CONTROL,
            value,
        });
        let ring: Vec<Op> = [write]
            .into_iter()
            .chain((0..100).flat_map(|_| [HLT, kick(1)]))
            .collect();
        let other = (0..100).flat_map(|_| [Op::Compute(30 * US), kick(0), HLT]).collect();
        let mut world = World::new(&polling(200 * US), &places(1, 2, 1));
        let config = VmConfig {
            poll_control: offered,
            ..VmConfig::default()
        };
        world.add_vm(
            &config,
            &[vec![0], vec![1]],
            vec![Guest::script(ring), Guest::script(other)],
        );
        world.start();
        world.run_until(50 * MS);
        (
            world.save(0).poll_control_msr,
            world.counter(holdfast_host::VmId(0), "halt_attempted_poll"),
        )
    };
    let (msr, both) = run(true, 1);
    assert!(msr == 1 && both > 100, "{both} polls of both vCPUs");
    let (msr, one) = run(true, 0);
    assert!(
        msr == 0 && one < both / 2 + 10,
        "{one} polls of the other vCPU, {both} of both"
    );
    for (offered, value) in [(false, 0), (true, 2), (true, u64::MAX)] {
        assert_eq!(run(offered, value), (1, both), "offered {offered}, value {value:#x}");
    }
}

#[test]
fn a_polling_vcpu_sees_a_kick_at_once() {
    // The first halt teaches the host to poll; the second is kicked after 300 µs, and ends then and not at a tick.
    let config = HostConfig {
        hz: 100,
        halt_poll_grow_start_ns: MS,
        ..polling(100 * MS)
    };
    let first = vec![Op::Compute(60 * US), kick(1), Op::Compute(300 * US), kick(1)];
    let mut world = pair(&config, first, vec![HLT, mark(), HLT, mark()]);
    world.run_until(360 * US);
    assert_eq!(world.guests[1].life, VcpuState::Polling);
    world.run_until(375 * US);
    assert_eq!(world.guests[1].replies.len(), 2, "still {:?}", world.guests[1].life);
    assert_eq!(world.counter(holdfast_host::VmId(0), "halt_successful_poll"), 1);
}

#[test]
fn a_kick_reaches_another_socket() {
    let mut world = World::new(
        &HostConfig {
            hz: 100,
            ..HostConfig::default()
        },
        &places(2, 1, 1),
    );
    let guests = vec![
        Guest::script(vec![Op::Compute(MS), kick(1)]),
        Guest::script(vec![HLT, mark()]),
    ];
    world.add_vm(&VmConfig::default(), &[vec![0], vec![1]], guests);
    world.start();
    world.run_until(MS + 30 * US);
    assert_eq!(world.guests[1].replies.len(), 1, "still {:?}", world.guests[1].life);
}

#[test]
fn polling_shrinks_after_a_long_halt() {
    let mut second = vec![];
    for _ in 0..6 {
        second.extend([HLT, mark()]);
    }
    let mut first = vec![];
    for wait in [15 * US, 15 * US, 15 * US, 5 * MS, 5 * MS, 5 * MS] {
        first.extend([Op::Compute(wait), kick(1)]);
    }
    let mut world = pair(&polling(200 * US), first, second);
    world.trace = Some(Vec::new());
    world.run_until(100 * MS);
    let vm = holdfast_host::VmId(0);
    assert_eq!(world.guests[1].replies.len(), 6);
    // At most the two halts after the growth polled in vain, the last ones did not poll at all.
    assert!(world.counter(vm, "halt_poll_fail_ns") < 100 * US);
}

#[test]
fn successful_polls_count_the_time_from_the_halt_to_the_kick() {
    // The first halt teaches the host to poll; of the others each polls until its kick.
    let mut first = vec![];
    for wait in [60 * US, 100 * US, 200 * US, 300 * US] {
        first.extend([Op::Compute(wait), kick(1)]);
    }
    let config = HostConfig {
        halt_poll_grow_start_ns: MS,
        ..polling(100 * MS)
    };
    let mut world = pair(&config, first, [HLT, mark()].repeat(4));
    world.run_until(20 * MS);
    let vm = holdfast_host::VmId(0);
    assert_eq!(world.counter(vm, "halt_successful_poll"), 3);
    let polled = world.counter(vm, "halt_poll_success_ns");
    assert!((580 * US..615 * US).contains(&polled), "{polled}");
    let waited = world.counter(vm, "halt_wait_ns");
    assert!((50 * US..65 * US).contains(&waited), "{waited}");
}

#[test]
fn polling_ends_when_it_shrinks_below_its_first_length() {
    // Halts of 15 us grow the polling time 0, 10, 20 us. Long halts halve it: 10 us, and 5 us would be too short.
    let mut first = vec![];
    for wait in [15 * US, 15 * US, MS, MS, MS, MS] {
        first.extend([Op::Compute(wait), kick(1)]);
    }
    let second = [HLT, mark()].repeat(6);
    let mut world = pair(&polling(200 * US), first, second);
    world.run_until(20 * MS);
    assert_eq!(world.guests[1].replies.len(), 6);
    let vm = holdfast_host::VmId(0);
    assert_eq!(world.counter(vm, "halt_attempted_poll"), 3);
    assert_eq!(world.counter(vm, "halt_poll_fail_ns"), 40 * US);
}

#[test]
fn polling_stops_when_another_thread_wants_the_pcpu() {
    // A first halt of 60 µs teaches the host to poll; in the second a task on the same pCPU wakes meanwhile.
    let config = HostConfig {
        halt_poll_grow_start_ns: MS,
        ..polling(100 * MS)
    };
    let mut world = World::new(&config, &places(1, 2, 1));
    let first = vec![Op::Compute(60 * US), kick(1)];
    let second = vec![HLT, mark(), HLT, mark()];
    world.add_vm(
        &VmConfig::default(),
        &[vec![0], vec![1]],
        vec![Guest::script(first), Guest::script(second)],
    );
    let affinity = vec![1];
    let task = world.add_task(
        &TaskConfig {
            affinity,
            ..TaskConfig::default()
        },
        5 * US,
        400 * US,
    );
    world.start();
    let vm = holdfast_host::VmId(0);
    world.run_until(390 * US);
    assert_eq!(world.guests[1].life, VcpuState::Polling);
    world.run_until(600 * US);
    assert_eq!(
        world.guests[1].life,
        VcpuState::Blocked,
        "the task must end the polling"
    );
    assert!(world.cpu_time(task) >= 10 * US);
    assert_eq!(world.counter(vm, "halt_successful_poll"), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Kicks and halts at random: no vCPU ever sleeps on a latched kick, and no rule is broken.
    #[test]
    fn no_wakeup_is_lost(seed: u64, vcpus in 1u32..7, sockets in 1u32..3, cores in 1u32..4, poll in prop_oneof![Just(0u64), Just(50_000)], yields: bool) {
        let config = HostConfig { halt_poll_ns: poll, pause: PauseHandling { kick_yields: yields, ..PauseHandling::NONE }, ..HostConfig::default() };
        let mut world = World::new(&config, &places(sockets, cores, 1));
        let guests = (0..vcpus).map(|vcpu| {
            let mut rng = Rng(seed ^ u64::from(vcpu));
            Guest::new(Box::new(move || match rng.below(4) {
                0 => HLT,
                1 => kick(rng.below(u64::from(vcpus))),
                _ => Op::Compute(rng.below(300 * US)),
            }))
        });
        let guests = guests.collect();
        world.add_vm(&VmConfig::default(), &[], guests);
        world.start();
        for step in 1..200 {
            world.run_until(step * MS / 4);
            world.check_no_lost_wakeup();
        }
        prop_assert_eq!(world.total_time(), world.now * u64::from(sockets * cores));
    }
}
