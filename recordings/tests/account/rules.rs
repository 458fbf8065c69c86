//! Each rule by which events change states, in a recording of a few lines.

use holdfast_recordings::account::account;
use holdfast_recordings::event::{Left, Name, What};
use holdfast_recordings::hosts::{Beside, VmFiles};
use holdfast_recordings::timeline::{How, Occupant, State, VcpuIndex};

use crate::host::{A, B, CC, HLT, Host, INTERRUPT, compiler, followed};

/// CPU 0 runs vCPU A in its guest since 1000, CPU 1 the compiler.
fn running() -> Host {
    let mut host = Host::default();
    host.switch(0, 1, Left::Asleep, CC);
    host.switch(900, 0, Left::Asleep, A);
    host.entry(1000, 0);
    host
}

#[test]
fn a_preempted_vcpu_waits_behind_what_has_its_pcpu() {
    let mut host = running();
    host.exit(1500, 0, INTERRUPT);
    host.switch(1600, 0, Left::Ready, B);
    host.entry(1650, 0);
    host.exit(1900, 0, HLT);
    host.switch(2000, 0, Left::Asleep, CC);
    host.switch(2700, 0, Left::Ready, A);
    host.entry(2750, 0);
    host.exit(3000, 0, INTERRUPT);
    let steps = host.steps();
    let wait = &steps.waits[0];
    assert_eq!((wait.from, wait.to, wait.waker), (1600, 2700, None));
    assert_eq!(wait.behind, [(Occupant::Vcpu(VcpuIndex(1)), 400), (compiler(), 700)]);
    assert_eq!(
        steps.states(0),
        [
            (State::Unknown, 0),
            (State::Running, 100),
            (State::Guest, 500),
            (State::Host, 100),
            (State::Ready, 1100),
            (State::Host, 50),
            (State::Guest, 250),
        ][1..]
    );
}

#[test]
fn polling_is_split_off_when_the_halt_ends() {
    for (slept, polled) in [(false, 280), (true, 180)] {
        let mut host = running();
        host.exit(1500, 0, HLT);
        if slept {
            host.switch(1700, 0, Left::Asleep, 0);
            host.wake(1740, 1, A, 0);
            host.switch(1750, 0, Left::Asleep, A);
        }
        host.halt_end(1800, 0, 280, slept);
        host.entry(1850, 0);
        host.exit(1900, 0, INTERRUPT);
        let steps = host.steps();
        assert_eq!(steps.halts, [(VcpuIndex(0), polled, !slept)]);
        let states = steps.states(0);
        // 1500 to 1520: the exit. The halt began at 1800 - 280.
        let rest: &[(State, u64)] = if slept {
            &[
                (State::Polling, 180),
                (State::Halted, 40),
                (State::Ready, 10),
                (State::Host, 100),
            ]
        } else {
            &[(State::Polling, 280), (State::Host, 50)]
        };
        assert_eq!(states[2..3], [(State::Host, 20)], "{states:?}");
        assert_eq!(&states[3..3 + rest.len()], rest, "{states:?}");
    }
}

#[test]
fn a_wakeup_that_is_recorded_before_the_sleep_counts() {
    let mut host = running();
    host.exit(1500, 0, HLT);
    host.wake(1598, 1, A, 0);
    host.switch(1600, 0, Left::Asleep, 0);
    host.switch(1700, 0, Left::Asleep, A);
    let steps = host.steps();
    assert_eq!(steps.waits.len(), 1);
    assert_eq!((steps.waits[0].from, steps.waits[0].to), (1600, 1700));
    // Without it, what the vCPU did is not known.
    host.events.retain(|event| !matches!(event.what, What::Waking { .. }));
    let steps = host.steps();
    assert!(steps.waits.is_empty());
    assert!(steps.states(0).contains(&(State::Unknown, 100)));
}

#[test]
fn an_early_wakeup_does_not_hide_the_real_one() {
    let mut host = running();
    host.wake(1200, 1, A, 0);
    host.exit(1500, 0, HLT);
    host.switch(1600, 0, Left::Asleep, 0);
    host.wake(1900, 1, A, 0);
    host.switch(1950, 0, Left::Asleep, A);
    let steps = host.steps();
    assert_eq!((steps.waits[0].from, steps.waits[0].to), (1900, 1950));
    assert!(steps.states(0).contains(&(State::Halted, 300)));
}

#[test]
fn who_woke_it_and_by_what_is_known() {
    for (what, how) in [
        (Some(What::Hypercall { nr: 5, args: [0, 1] }), How::Kick),
        (
            Some(What::Ipi {
                icr_low: 0xfd,
                destination: 1,
            }),
            How::Ipi,
        ),
        (None, How::Thread),
    ] {
        let mut host = running();
        // B halts on CPU 1.
        host.switch(1010, 1, Left::Ready, B);
        host.entry(1020, 1);
        host.exit(1030, 1, HLT);
        host.switch(1040, 1, Left::Asleep, CC);
        host.exit(1100, 0, 18);
        if let Some(what) = what {
            host.event(1110, 0, what);
        }
        host.wake(1120, 0, B, 1);
        host.switch(1200, 1, Left::Ready, B);
        let steps = host.steps();
        let waker = steps.waits[0].waker.expect("it was woken");
        assert_eq!((waker.who, waker.how), (Occupant::Vcpu(VcpuIndex(0)), how));
    }
    let mut host = running();
    host.switch(1010, 1, Left::Ready, B);
    host.entry(1020, 1);
    host.exit(1030, 1, HLT);
    host.switch(1040, 1, Left::Asleep, CC);
    // A timer on the pCPU of A is not A's doing.
    host.exit(1100, 0, INTERRUPT);
    host.wake(1120, 0, B, 1);
    host.switch(1200, 1, Left::Ready, B);
    assert_eq!(host.steps().waits[0].waker.expect("it was woken").how, How::Interrupt);
}

#[test]
fn a_halt_counts_from_the_begin_of_the_recording() {
    let mut host = running();
    host.switch(1010, 1, Left::Ready, B);
    host.exit(1020, 1, HLT);
    host.switch(1040, 1, Left::Asleep, CC);
    host.exit(1100, 0, 18);
    host.event(1110, 0, What::Hypercall { nr: 5, args: [0, 1] });
    host.wake(1120, 0, B, 1);
    host.switch(1200, 1, Left::Ready, B);
    // As KVM says, it had halted long before; and a second end is of no other halt.
    host.halt_end(1210, 1, 1_000_000, true);
    host.halt_end(1210, 1, 1_000_000, true);
    let account = account(host.events, &Beside::default());
    let figures = account
        .vms
        .iter()
        .flat_map(|vm| vm.vcpus.iter().flat_map(|vcpu| &vcpu.figures));
    let halted = figures.filter(|figure| figure.name == "halted_for_kick_percent");
    let most = halted.filter_map(|figure| figure.value).fold(0.0, f64::max);
    assert!((50.0..=100.0).contains(&most), "{most}");
}

#[test]
fn a_wait_until_the_next_exit_is_told_from_a_lost_competition() {
    // B is woken on CPU 0, where A stays in its guest.
    let woken = || {
        let mut host = running();
        host.switch(1010, 1, Left::Ready, B);
        host.entry(1020, 1);
        host.exit(1030, 1, HLT);
        host.switch(1040, 1, Left::Asleep, CC);
        host.wake(1100, 1, B, 0);
        host.exit(4000, 0, INTERRUPT);
        host
    };
    let mut host = woken();
    host.switch(4100, 0, Left::Ready, B);
    assert_eq!(host.steps().waits[0].until_exit, 2900);
    let mut host = woken();
    host.entry(4050, 0);
    host.exit(8000, 0, INTERRUPT);
    host.switch(8100, 0, Left::Ready, B);
    assert_eq!(host.steps().waits[0].until_exit, 0);
}

#[test]
fn a_moved_waiter_waits_behind_the_new_pcpu() {
    let mut host = running();
    host.switch(1010, 2, Left::Asleep, B);
    host.exit(1500, 0, INTERRUPT);
    host.switch(1600, 0, Left::Ready, CC + 1);
    host.event(
        2000,
        2,
        What::Migrate {
            moved: A,
            from: 0,
            to: 2,
        },
    );
    host.switch(2300, 2, Left::Ready, A);
    let steps = host.steps();
    let wait = steps
        .waits
        .iter()
        .find(|wait| wait.vcpu == VcpuIndex(0))
        .expect("A waited");
    assert_eq!(wait.behind.len(), 2);
    assert_eq!(wait.behind[1], (Occupant::Vcpu(VcpuIndex(1)), 300));
    // Unseen moves are not guessed.
    host.events.retain(|event| !matches!(event.what, What::Migrate { .. }));
    let steps = host.steps();
    let wait = steps
        .waits
        .iter()
        .find(|wait| wait.vcpu == VcpuIndex(0))
        .expect("A waited");
    assert_eq!(wait.behind, [(Occupant::Unknown, 700)]);
}

#[test]
fn lost_events_leave_a_hole_and_nothing_is_guessed_over_it() {
    let mut host = running();
    host.exit(1500, 0, INTERRUPT);
    host.entry(1510, 0);
    host.event(5000, 0, What::Lost { events: Some(9) });
    // The thread has changed unseen.
    host.events.push(holdfast_recordings::event::Event {
        at: 5000,
        cpu: 0,
        thread: B,
        what: What::Exit {
            vcpu: Some(1),
            reason: INTERRUPT,
            isa: 1,
        },
    });
    let (steps, follower) = followed(&host.events);
    assert_eq!((follower.faults().gaps, follower.faults().lost_events), (1, 9));
    let states = steps.states(0);
    // Known up to the last event of that CPU.
    assert_eq!(states.last(), Some(&(State::Unknown, 3490)), "{states:?}");
}

#[test]
fn a_silence_and_a_clock_that_goes_back_are_counted() {
    let mut host = running();
    host.exit(1500, 0, INTERRUPT);
    host.event(20_000_000_000, 0, What::Injected { vector: 3 });
    host.event(10, 0, What::Injected { vector: 3 });
    let (steps, follower) = followed(&host.events);
    let faults = follower.faults();
    assert_eq!((faults.clock_ahead, faults.clock_back), (1, 1));
    assert!(
        steps
            .states(0)
            .iter()
            .any(|(state, ns)| *state == State::Unknown && *ns > 19_000_000_000)
    );
}

#[test]
fn the_id_of_an_ended_thread_is_another_thread() {
    let mut host = running();
    host.exit(1500, 0, INTERRUPT);
    host.event(1600, 0, What::Ended { ended: A });
    host.switch(1700, 0, Left::Dead, 0);
    host.switch(2000, 0, Left::Asleep, A);
    host.entry(2100, 0);
    let steps = host.steps();
    assert_eq!(steps.gone, [(VcpuIndex(0), 1600)]);
    assert_eq!(steps.known.iter().map(|(vcpu, _)| vcpu.0).max(), Some(1));
    // The first one ends with its thread.
    assert_eq!(
        steps
            .was
            .iter()
            .filter(|(vcpu, ..)| vcpu.0 == 0)
            .map(|(_, _, to, _)| *to)
            .max(),
        Some(1600)
    );
}

#[test]
fn a_thread_of_any_name_that_enters_a_guest_is_a_vcpu() {
    let mut host = Host::default();
    host.switch(0, 0, Left::Asleep, 500);
    host.event(100, 0, What::Entry { vcpu: 3 });
    host.exit(400, 0, HLT);
    host.switch(450, 0, Left::Asleep, 0);
    let steps = host.steps();
    assert_eq!(steps.states(0), [(State::Guest, 300), (State::Host, 50)]);
}

#[test]
fn a_name_that_comes_later_makes_a_vcpu_from_then_on() {
    let mut host = Host::default();
    host.switch(0, 0, Left::Asleep, 500);
    let named = What::Named {
        named: 500,
        process: Some(499),
        name: Name::from("vcpu0"),
    };
    host.event(1000, 0, named);
    host.switch(1500, 0, Left::Ready, CC);
    let steps = host.steps();
    assert_eq!(steps.known[0].1, 1000);
    assert_eq!(steps.states(0), [(State::Running, 500)]);
}

/// So perf names threads that were there before its recording.
#[test]
fn a_thread_is_named_on_no_pcpu() {
    let mut host = running();
    let (named, process, name) = (A, Some(77), Name::from("CPU 0/KVM"));
    host.event(1000, u32::MAX, What::Named { named, process, name });
    host.switch(1500, 0, Left::Ready, CC);
    let account = account(host.events.clone(), &Beside::default());
    assert_eq!((account.vms[0].process, account.faults.ignored), (Some(77), 0));
}

/// The pCPU idles, and then runs another thread, while the only vCPU is ready.
#[test]
fn a_throttled_vcpu_waits_for_its_quota_and_not_for_an_idle_pcpu() {
    let mut host = running();
    host.switch(1_000_000, 0, Left::Ready, 0);
    host.switch(31_000_000, 0, Left::Asleep, CC);
    host.switch(41_000_000, 0, Left::Asleep, A);
    host.entry(41_000_100, 0);
    let sentence = |files: VmFiles| {
        let mut beside = Beside::default();
        beside.processes.insert(A, 100);
        beside.vms.insert(100, files);
        account(host.events.clone(), &beside).sentence
    };
    let of_a_quota = VmFiles {
        quota: Some(Some(0.5)),
        ..VmFiles::default()
    };
    let said = sentence(of_a_quota);
    assert!(
        said.ends_with("three quarters of that while its quota was spent."),
        "{said}"
    );
    let said = sentence(VmFiles::default());
    assert!(
        said.ends_with("three quarters of that while the pCPU was idle."),
        "{said}"
    );
}

/// A few wakeups say nothing of it, and neither does what looks like throttling where a quota may throttle.
#[test]
fn the_way_out_of_idle_is_that_of_woken_vcpus_on_idle_pcpus() {
    let of = |wakeups: u64, late: u64, quota: Option<Option<f64>>| {
        let mut host = running();
        for number in 0..wakeups {
            let at = 10_000 + number * (10_000 + late);
            host.exit(at, 0, HLT);
            host.switch(at + 10, 0, Left::Asleep, 0);
            host.wake(at + 1_000, 1, A, 0);
            host.switch(at + 1_000 + late, 0, Left::Asleep, A);
            host.entry(at + 1_050 + late, 0);
        }
        let mut beside = Beside::default();
        beside.processes.insert(A, 7);
        let files = VmFiles {
            quota,
            ..VmFiles::default()
        };
        beside.vms.insert(7, files);
        account(host.events.clone(), &beside).idle_exit_ns
    };
    assert_eq!(of(20, 300, None), Some(300));
    assert_eq!(of(19, 300, None), None);
    assert_eq!(of(40, 2_000_000, None), None);
    assert_eq!(of(40, 2_000_000, Some(Some(0.5))), None);
    assert_eq!(of(40, 2_000_000, Some(None)), Some(2_000_000));
}
