//! Live migration: what is saved on one host goes on on another.

use holdfast_abi::lapic as reg;
use holdfast_host::{
    Command, Host, HostConfig, Inhibit, Nanos, PendingEvents, RestoreError, Run, SavedVcpu, TaskConfig, VcpuId,
    VmConfig, VmId,
};
use proptest::prelude::*;

use crate::halt::{HLT, kick};
use crate::world::{Guest, MS, Op, Rng, World, places};

const US: u64 = 1_000;

/// Returns a ring of vCPUs with one token: each vCPU that is kicked kicks the next. A lost kick stops the token.
fn ring(seed: u64, vcpus: u64, pcpus: u32, config: &HostConfig) -> World {
    let mut world = World::new(config, &places(1, pcpus, 1));
    let guests = (0..vcpus).map(|vcpu| {
        let mut rng = Rng(seed ^ vcpu);
        let mut next = if vcpu == 0 { 2 } else { 0 };
        Guest::new(Box::new(move || {
            next += 1;
            match (next - 1) % 4 {
                0 => Op::Compute(1 + rng.below(40 * US)),
                1 => HLT,
                2 => Op::Compute(1 + rng.below(20 * US)),
                _ => kick((vcpu + 1) % vcpus),
            }
        }))
    });
    world.add_vm(&VmConfig::default(), &[], guests.collect());
    world
}

/// Moves all guests of `from` to a new host. `carry` transforms their state.
fn migrate(
    mut from: World,
    vcpus: u64,
    pcpus: u32,
    config: &HostConfig,
    carry: impl Fn(&SavedVcpu) -> SavedVcpu,
) -> World {
    from.freeze();
    let mut to = ring(0, vcpus, pcpus, config);
    let start = 3 * MS;
    for vcpu in 0..vcpus as u32 {
        let saved = carry(&from.save(vcpu));
        to.host
            .restore_vcpu(VcpuId(vcpu), &saved, Nanos(start))
            .expect("a state that was saved");
    }
    to.guests = from.guests;
    for guest in &mut to.guests {
        guest.life = holdfast_host::VcpuState::Woken;
        guest.carried();
    }
    to.now = start;
    to.start();
    to
}

#[test]
fn counters_go_on_where_they_were() {
    let config = HostConfig::default();
    let mut from = ring(1, 3, 2, &config);
    from.start();
    from.run_until(2 * MS);
    let counters = |world: &World| Vec::from_iter(world.host.counters(VmId(0)));
    let mut to = ring(1, 3, 2, &config);
    assert_ne!(counters(&from), counters(&to));
    to.host.continue_counters(&from.host);
    assert_eq!(counters(&from), counters(&to));
}

#[test]
fn vms_and_tasks_take_turns_to_start_on_the_host_to_which_they_migrate() {
    let mut host = Host::new(&HostConfig::default(), &places(1, 1, 1)).expect("a host");
    for vcpus in [2, 1] {
        host.add_vm(&VmConfig::default(), vcpus, &[]).expect("a vm");
    }
    host.add_task(&TaskConfig::default()).expect("a task");
    let (mut asked, mut out) = (Vec::new(), Vec::new());
    let mut draw = |below| {
        asked.push(below);
        0
    };
    host.start_migrated(&mut draw, Nanos(0), &mut out);
    assert_eq!(asked, [3, 2], "one draw for each turn but the first");
    let runs = |command: &Command| matches!(command, Command::Run { run, .. } if *run != Run::Idle);
    assert!(out.iter().any(runs), "a thread runs at once: {out:?}");
}

/// Returns whether the token still moves on the new host.
fn turns(mut world: World) -> bool {
    let vm = VmId(0);
    world.run_until(world.now + 20 * MS);
    let before = world.counter(vm, "kicks_sent");
    world.run_until(world.now + 20 * MS);
    world.counter(vm, "kicks_sent") > before
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_latched_kick_survives_migration(seed: u64, vcpus in 2u64..5, pcpus in 1u32..4, at in 1u64..3_000, poll: bool) {
        let config = HostConfig { halt_poll_ns: if poll { 50 * US } else { 0 }, ..HostConfig::default() };
        let mut world = ring(seed, vcpus, pcpus, &config);
        world.start();
        world.run_until(at * US);
        prop_assert!(turns(migrate(world, vcpus, pcpus, &config, |saved| *saved)));
    }
}

/// Returns the state after a round trip through KVM_GET_MP_STATE and KVM_SET_MP_STATE, which have no latch.
///
/// A halted vCPU with a latched kick reads as runnable, so its HLT returns. A kick latched *before* HLT is lost.
fn through_mp_state(saved: &SavedVcpu) -> SavedVcpu {
    let mut saved = *saved;
    saved.forget_kick();
    saved
}

/// What KVM_GET_MP_STATE cannot say: a kick that came just before HLT. Somewhere in the ring's life is a moment at
/// which migration by `mp_state` alone hangs it, and the whole state does not.
#[test]
fn mp_state_alone_loses_a_kick_taken_before_the_halt() {
    let config = HostConfig::default();
    let moments = (1..400).map(|step| step * 2 * US);
    let hung: Vec<u64> = moments
        .filter(|&at| {
            let mut world = ring(7, 2, 2, &config);
            world.start();
            world.run_until(at);
            let latched = (0..2).any(|vcpu| world.save(vcpu).pv_unhalted);
            let hangs = !turns(migrate(world, 2, 2, &config, through_mp_state));
            assert!(!hangs || latched, "hangs at {at} ns without a latched kick");
            hangs
        })
        .collect();
    assert!(
        !hung.is_empty(),
        "no moment was found at which the kick is latched before the halt"
    );
    for at in hung {
        let mut world = ring(7, 2, 2, &config);
        world.start();
        world.run_until(at);
        assert!(
            turns(migrate(world, 2, 2, &config, |saved| *saved)),
            "the whole state hangs too, at {at} ns"
        );
    }
}

#[test]
fn foreign_state_is_checked() {
    let config = HostConfig::default();
    let mut world = ring(1, 2, 1, &config);
    let good = world.save(0);
    let bad_base = SavedVcpu {
        apic_base: 0x400,
        ..good
    };
    let bad_steal = SavedVcpu {
        steal_time_msr: 0x1003,
        ..good
    };
    let restore = |world: &mut World, vcpu, saved: &SavedVcpu| world.host.restore_vcpu(VcpuId(vcpu), saved, Nanos(0));
    assert_eq!(restore(&mut world, 0, &bad_base), Err(RestoreError::BadApicBase(0x400)));
    assert_eq!(
        restore(&mut world, 0, &bad_steal),
        Err(RestoreError::BadStealTime(0x1003))
    );
    for (nmis, undelivered, legal) in [(2, Some(16), true), (3, None, false), (0, Some(15), true)] {
        let pending = PendingEvents {
            nmis,
            undelivered,
            ..good.pending
        };
        let expected = if legal {
            Ok(())
        } else {
            Err(RestoreError::BadPending(pending))
        };
        assert_eq!(restore(&mut world, 0, &SavedVcpu { pending, ..good }), expected);
    }
    assert_eq!(restore(&mut world, 9, &good), Err(RestoreError::UnknownVcpu(VcpuId(9))));
    assert_eq!(restore(&mut world, 0, &good), Ok(()));
    world.start();
    assert_eq!(restore(&mut world, 0, &good), Err(RestoreError::Started));
}

/// Returns a host whose VM has `vcpus` vCPUs, and what is saved of them.
fn host(config: &HostConfig, vcpus: u32) -> (Host, Vec<SavedVcpu>) {
    let mut host = Host::new(config, &places(1, 2, 1)).expect("a valid host");
    host.add_vm(&VmConfig::default(), vcpus, &[]).expect("a valid vm");
    let saved = (0..vcpus).map(|vcpu| host.save_vcpu(VcpuId(vcpu), Nanos(0))).collect();
    (host, saved)
}

/// AVIC's logical table has 8 bits for an index, and an entry for each logical ID.
#[test]
fn logical_ids_that_avics_table_cannot_hold_inhibit_it() {
    let mut config = HostConfig::default();
    crate::hardware::Part::X2Avic.configure(&mut config);
    for (named, aliased) in [
        (&[(0, 1), (255, 2)][..], false),
        (&[(0, 1), (256, 2)], true),
        (&[(0, 1), (255, 1)], true),
    ] {
        let (mut host, saved) = host(&config, 257);
        for &(vcpu, ldr) in named {
            let mut saved = saved[vcpu as usize];
            saved.lapic[(reg::LDR / 16) as usize] = ldr << 24;
            host.restore_vcpu(VcpuId(vcpu), &saved, Nanos(0))
                .expect("a legal state");
        }
        let inhibits = host.apic_inhibits(VmId(0)).expect("avic is used");
        assert_eq!(inhibits.has(Inhibit::LogicalIdAliased), aliased, "{named:?}");
    }
}
