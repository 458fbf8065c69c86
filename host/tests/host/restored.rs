//! Saved state: a round trip changes nothing, and a restored vCPU continues as if it had never stopped.

use holdfast_abi::{hypercall, lapic as reg, msr};
use holdfast_host::{
    Exit, GuestState, HostConfig, MpState, Nanos, PendingEvents, SavedTimer, SavedVcpu, VcpuId, VmConfig, VmId,
};
use proptest::prelude::*;

use crate::hardware::Part;
use crate::rig::{Cpu, Rig};
use crate::world::{Guest, MS, Op, World, apic, places, vectors};

const NOW: Nanos = Nanos(5 * MS);

fn offers() -> VmConfig {
    VmConfig {
        pv_eoi: true,
        ..VmConfig::default()
    }
}

/// Returns a world with one vCPU, which enables interrupts and then computes.
fn world() -> World {
    let mut world = World::new(&HostConfig::default(), &places(1, 1, 1));
    world.add_vm(&offers(), &[], vec![Guest::script(vec![Op::Interrupts(true)])]);
    world
}

/// Sets the bit of `vector` in the eight registers at `offset` of `page`.
fn set(page: &mut [u32; 64], offset: u32, vector: u8) {
    page[(offset / 16) as usize + usize::from(vector / 32)] |= 1 << (vector % 32);
}

fn pending_events() -> impl Strategy<Value = PendingEvents> {
    let undelivered = proptest::option::of(16u8..);
    (0u8..3, any::<bool>(), any::<bool>(), any::<Option<u8>>(), undelivered).prop_map(
        |(nmis, nmi_blocked, init, sipi, undelivered)| PendingEvents {
            nmis,
            nmi_blocked,
            init,
            sipi,
            undelivered,
        },
    )
}

fn mp_state() -> impl Strategy<Value = MpState> {
    prop_oneof![
        Just(MpState::Runnable),
        Just(MpState::Halted),
        Just(MpState::Uninitialized),
        Just(MpState::InitReceived),
    ]
}

proptest! {
    /// A state that is restored and saved at once is the state that was restored.
    #[test]
    fn a_round_trip_changes_nothing(
        (mp_state, pv_unhalted, pending) in (mp_state(), any::<bool>(), pending_events()),
        words in proptest::collection::vec(any::<u32>(), 64), lapic_errors in 0u32..256,
        (mode, cpl, cr8, interrupts_enabled) in (0usize..3, 0u8..4, 0u8..16, any::<bool>()),
        timer in (proptest::option::of(0u64..1 << 40), 0u64..1 << 40, any::<u64>()),
        steal_time_msr in prop_oneof![Just(0u64), Just(0x4001), Just(0x8000)],
        poll_control_msr in Just(1u64),
        pv_eoi_msr in prop_oneof![Just(0u64), Just(0x2005), Just(0x2004)],
    ) {
        let modes = [0, msr::APIC_BASE_ENABLE, msr::APIC_BASE_ENABLE | msr::APIC_BASE_X2APIC];
        let mut lapic = <[u32; 64]>::try_from(words).expect("64 words");
        if mode == 2 {
            // These IDs are derived.
            (lapic[reg::ID as usize / 16], lapic[reg::LDR as usize / 16]) = (0, 1);
        }
        let saved = SavedVcpu {
            guest: GuestState { interrupts_enabled, cpl, cr8, undelivered: None, pv_eoi: false, word: 0 },
            mp_state,
            pv_unhalted,
            pending,
            lapic,
            lapic_errors,
            apic_base: 0x1234_5000 | msr::APIC_BASE_BSP | modes[mode],
            timer: SavedTimer { expires_in_ns: timer.0, period_ns: timer.1, tsc_deadline: timer.2 },
            steal_time_msr,
            pv_eoi_msr,
            poll_control_msr,
            pv_eoi_pending: false,
        };
        let mut world = world();
        prop_assert_eq!(world.host.restore_vcpu(VcpuId(0), &saved, NOW), Ok(()));
        prop_assert_eq!(world.host.save_vcpu(VcpuId(0), NOW), saved);
    }
}

#[test]
fn an_interrupt_that_was_pending_is_injected_at_the_first_entry() {
    let mut world = world();
    let mut saved = world.host.save_vcpu(VcpuId(0), NOW);
    saved.guest.interrupts_enabled = true;
    saved.lapic[reg::SVR as usize / 16] = 0x1ff;
    set(&mut saved.lapic, reg::IRR, 0x51);
    world.host.restore_vcpu(VcpuId(0), &saved, NOW).expect("a legal state");
    world.guests[0].state.interrupts_enabled = true;
    world.now = NOW.0;
    world.start();
    assert_eq!(world.guests[0].injected, [0x51]);
}

#[test]
fn an_end_in_memory_that_the_source_had_not_seen_is_carried_out() {
    for ended in [true, false] {
        let mut world = world();
        let mut saved = world.host.save_vcpu(VcpuId(0), NOW);
        saved.pv_eoi_msr = 0x2004 | msr::PV_EOI_ENABLE;
        saved.pv_eoi_pending = true;
        saved.guest.pv_eoi = !ended;
        set(&mut saved.lapic, reg::ISR, 0x51);
        set(&mut saved.lapic, reg::ISR, 0x31);
        world.host.restore_vcpu(VcpuId(0), &saved, NOW).expect("a legal state");
        let page = world.host.save_vcpu(VcpuId(0), NOW).lapic;
        let served: Vec<u8> = vectors(&page, reg::ISR as usize).collect();
        let expected: &[u8] = if ended { &[0x31] } else { &[0x31, 0x51] };
        assert_eq!(served, expected, "ended {ended}");
    }
}

#[test]
fn init_ends_the_records_that_the_guest_shares() {
    let write = |msr, value| Op::Exit(Exit::WriteMsr { msr, value });
    let mut world = World::new(&HostConfig::default(), &places(1, 2, 1));
    let sender = vec![
        apic(reg::SVR, 0x1ff),
        Op::Compute(5 * MS),
        apic(reg::ICR_HIGH, 1 << 24),
        apic(reg::ICR_LOW, reg::ICR_ASSERT | reg::DeliveryMode::Init.bits()),
    ];
    let receiver = vec![write(msr::STEAL_TIME, 0x4001), write(msr::PV_EOI, 0x2005)];
    let guests = vec![Guest::script(sender), Guest::script(receiver)];
    world.add_vm(&offers(), &[vec![0], vec![1]], guests);
    world.start();
    world.run_until(4 * MS);
    let records = |world: &World| {
        let saved = world.host.save_vcpu(VcpuId(1), Nanos(world.now));
        (saved.steal_time_msr, saved.pv_eoi_msr)
    };
    assert_eq!((records(&world), world.guests[1].inits), ((0x4001, 0x2005), 0));
    world.run_until(10 * MS);
    assert_eq!((records(&world), world.guests[1].inits), ((0, 0), 1));
}

#[test]
fn time_stolen_before_there_was_a_record_is_not_reported() {
    // Two vCPUs on one pCPU: each waits for half of the time.
    let mut world = World::new(&HostConfig::default(), &places(1, 1, 1));
    let late = vec![
        Op::Compute(300 * MS),
        Op::Exit(Exit::WriteMsr {
            msr: msr::STEAL_TIME,
            value: 0x4001,
        }),
    ];
    world.add_vm(&VmConfig::default(), &[], vec![Guest::script(late), Guest::hog()]);
    world.start();
    world.run_until(1_000 * MS);
    let stolen = world.guests[0].stolen;
    assert!((150 * MS..250 * MS).contains(&stolen), "{stolen} ns of the last 400 ms");
}

#[test]
fn a_vcpu_beyond_the_logical_table_still_gets_its_logical_interrupts() {
    // An entry of AVIC's logical table names vCPUs 0 to 255 only.
    for named in [255, 256, 260] {
        let (mut config, part) = (HostConfig::default(), Part::X2Avic);
        part.configure(&mut config);
        let mut rig = Rig::new(&config, &VmConfig::default(), 1, vec![Cpu::default(); 300], false);
        rig.hardware = part.hardware();
        for vcpu in 0..300 {
            let mut saved = rig.host.save_vcpu(VcpuId(vcpu), NOW);
            saved.lapic[reg::SVR as usize / 16] = 0x1ff;
            saved.lapic[reg::LDR as usize / 16] = if vcpu == named { 0x80 << 24 } else { 0 };
            saved.mp_state = if vcpu == 0 { MpState::Runnable } else { MpState::Halted };
            rig.host.restore_vcpu(VcpuId(vcpu), &saved, NOW).expect("a legal state");
        }
        rig.now = NOW.0;
        rig.start();
        assert_eq!(rig.hardware(0).is_on(), named <= 255, "{named}");
        rig.write(0, reg::ICR_HIGH, 0x80 << 24);
        rig.write(0, reg::ICR_LOW, reg::ICR_LOGICAL | 0x61);
        rig.pass(MS);
        let requested = |vcpu: &u32| {
            let page = rig.host.save_vcpu(VcpuId(*vcpu), NOW).lapic;
            vectors(&page, reg::IRR as usize).any(|vector| vector == 0x61)
        };
        let receivers: Vec<u32> = (0..300).filter(requested).collect();
        assert_eq!(receivers, [named]);
    }
}

#[test]
fn a_halt_that_was_carried_over_counts_from_then_on() {
    // Its end 15 us after the restoration is that of a short halt, so the next halt polls.
    let config = HostConfig {
        halt_poll_ns: 200_000,
        ..HostConfig::default()
    };
    let mut world = World::new(&config, &places(1, 2, 1));
    let kick = Op::Exit(Exit::Hypercall {
        number: hypercall::KICK_CPU,
        arguments: [0, 1, 0, 0],
    });
    let guests = vec![
        Guest::script(vec![Op::Compute(15_000), kick]),
        Guest::script(vec![Op::Exit(Exit::Hlt)]),
    ];
    world.add_vm(&offers(), &[vec![0], vec![1]], guests);
    let mut saved = world.host.save_vcpu(VcpuId(1), NOW);
    saved.mp_state = MpState::Halted;
    world.host.restore_vcpu(VcpuId(1), &saved, NOW).expect("a legal state");
    world.now = NOW.0;
    world.start();
    world.run_until(NOW.0 + MS);
    assert_eq!(world.counter(VmId(0), "halt_attempted_poll"), 1);
}

#[test]
fn a_vector_that_the_guest_state_names_is_not_injected_twice() {
    // The events have it already.
    for pending in [None, Some(0x61)] {
        let mut world = world();
        let mut saved = world.host.save_vcpu(VcpuId(0), NOW);
        saved.guest.interrupts_enabled = true;
        saved.guest.undelivered = Some(0x51);
        saved.pending.undelivered = pending;
        world.host.restore_vcpu(VcpuId(0), &saved, NOW).expect("a legal state");
        let restored = world.host.save_vcpu(VcpuId(0), NOW);
        assert_eq!(
            (restored.guest.undelivered, restored.pending.undelivered),
            (None, pending)
        );
    }
}
