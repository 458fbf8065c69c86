//! Host policies: each decision has the effect that it says, within quotas and fairness.

use holdfast_host::policies::Spread;
use holdfast_host::{
    Command, Exit, HostConfig, Linux, Nanos, Pause, PauseHandling, PcpuId, Policy, PolicyKind, Quota, Run, TaskId,
    VcpuId, VcpuState, View, VmConfig, VmGroup, Yield,
};

use crate::spin::spinner;
use crate::world::{Guest, MS, Op, World, apic, places};

const US: u64 = 1_000;

fn host<P: Policy + Default + 'static>(kernel: Linux) -> HostConfig {
    HostConfig {
        policy: PolicyKind::of::<P>("tested"),
        hz: 1000,
        ..HostConfig::of(kernel)
    }
}

/// Makes a policy of one or a few methods.
macro_rules! policy {
    ($name:ident { $($method:item)* }) => {
        #[derive(Clone, Debug, Default)]
        struct $name;
        impl Policy for $name {
            fn about(&self) -> &'static str {
                stringify!($name)
            }
            $($method)*
        }
    };
}

policy!(Kernel {});

/// Returns the lengths of the turns of vCPU 0, in microseconds, while two hogs share a pCPU for two seconds.
fn turns(config: &HostConfig) -> Vec<u64> {
    let mut world = World::new(config, &places(1, 1, 1));
    world.add_vm(&VmConfig::default(), &[], vec![Guest::hog(), Guest::hog()]);
    world.trace = Some(Vec::new());
    world.start();
    world.run_until(2_000 * MS);
    let share = world.vcpu_time(0) as f64 / (2_000 * MS) as f64;
    assert!((share - 0.5).abs() < 0.01, "{share}");
    let (mut since, mut turns) = (0, Vec::new());
    for &(at, command) in world.trace.as_ref().expect("a trace") {
        match command {
            Command::State {
                vcpu: VcpuId(1),
                state: VcpuState::Preempted,
            } => since = at,
            Command::State {
                vcpu: VcpuId(0),
                state: VcpuState::Preempted,
            } => turns.push((at - since) / US),
            _ => {}
        }
    }
    turns.split_off(4)
}

policy!(Short {
    fn slice(&mut self, _: &View<'_>, _: PcpuId, _: TaskId) -> Option<Nanos> {
        Some(Nanos(300 * US))
    }
});

policy!(Long {
    fn slice(&mut self, _: &View<'_>, _: PcpuId, _: TaskId) -> Option<Nanos> {
        Some(Nanos(20 * MS))
    }
});

#[test]
fn a_slice_is_as_long_as_the_policy_says() {
    for kernel in [Linux::V3_3, Linux::V6_12, Linux::V7_3] {
        let short = turns(&host::<Short>(kernel));
        assert!(short.len() > 1_500, "{kernel:?}: {}", short.len());
        let long = turns(&host::<Long>(kernel));
        for (turns, expected) in [(short, 300), (long, 20_000)] {
            // Slices of one thread in a row look like one turn.
            let off = |turn: u64| (turn % expected).min(expected - turn % expected);
            let usual = turns.iter().filter(|&&turn| off(turn) < expected / 10).count();
            assert!(
                usual * 10 > turns.len() * 9,
                "{kernel:?}, {expected}: {:?}",
                &turns[..20]
            );
        }
    }
}

#[test]
fn a_thread_that_is_alone_is_not_interrupted_for_its_slice() {
    let exits = |config: &HostConfig| {
        let mut world = World::new(config, &places(1, 1, 1));
        let vm = world.add_vm(&VmConfig::default(), &[], vec![Guest::hog()]);
        world.start();
        world.run_until(1_000 * MS);
        let (_, exits) = world
            .host
            .counters(vm)
            .find(|(name, _)| *name == "irq_exits")
            .expect("a counter");
        exits
    };
    let (kernel, short) = (
        exits(&host::<Kernel>(Linux::V6_12)),
        exits(&host::<Short>(Linux::V6_12)),
    );
    assert!(short <= kernel + 1, "{short} exits instead of {kernel}");
}

policy!(Grace {
    fn slice_ends(&mut self, view: &View<'_>, _: PcpuId, task: TaskId) -> Option<Nanos> {
        let seen = view.thread(task).expect("a thread").guest;
        // The kernel's slices end at whole milliseconds, and the grace in between.
        let graced = view.now().0 % MS > 400 * US;
        (seen.in_kernel && seen.masked && !graced).then_some(Nanos(500 * US))
    }
});

#[test]
fn grace_comes_at_the_end_of_a_slice_and_is_paid_back() {
    for kernel in [Linux::V3_3, Linux::V6_12] {
        let kernels = |turns: &[u64]| {
            turns
                .iter()
                .filter(|&&turn| (400..600).contains(&(turn % 1_000)))
                .count()
        };
        let without = turns(&host::<Kernel>(kernel));
        assert_eq!(kernels(&without), 0, "{kernel:?}: {without:?}");
        // `turns` checks that the shares are the same.
        let with = turns(&host::<Grace>(kernel));
        assert!(with.len() > 50, "{kernel:?}: {with:?}");
        let late = with
            .iter()
            .filter(|&&turn| turn % 1_000 < 100 || turn % 1_000 > 900)
            .count();
        assert!(
            late * 10 > with.len() * 9,
            "each turn begins and ends half a millisecond late: {with:?}"
        );
    }
}

policy!(ForSections {
    fn slice_ends(&mut self, view: &View<'_>, _: PcpuId, task: TaskId) -> Option<Nanos> {
        let word = view.thread(task).expect("a thread").guest.word;
        word.is_some_and(|word| word.in_section).then_some(Nanos(500 * US))
    }
});

/// Returns the steal-time record's registration. The VM must offer a word.
fn speaks() -> Op {
    Op::Exit(Exit::WriteMsr {
        msr: holdfast_abi::msr::STEAL_TIME,
        value: 0x1001,
    })
}

fn with_word() -> VmConfig {
    VmConfig {
        guest_word: true,
        ..VmConfig::default()
    }
}

/// Returns for how long each grace of vCPU 0 lasted, which has sections of 300 us and next to a hog yields to itself
/// after each if it `yields`. Microseconds.
fn graces(kernel: Linux, yields: bool) -> Vec<u64> {
    let mut world = World::new(&host::<ForSections>(kernel), &places(1, 1, 1));
    let done = Op::Exit(Exit::Hypercall {
        number: holdfast_abi::hypercall::SCHED_YIELD,
        arguments: [0; 4],
    });
    let after = if yields { done } else { Op::Compute(US) };
    let round = [
        Op::Word(1),
        Op::Compute(300 * US),
        Op::Word(0),
        after,
        Op::Compute(20 * US),
    ];
    let mut ops = std::iter::once(speaks()).chain(std::iter::repeat(round).flatten());
    let sections = Guest::new(Box::new(move || ops.next().expect("it never ends")));
    world.add_vm(&with_word(), &[], vec![sections]);
    world.add_vm(&VmConfig::default(), &[], vec![Guest::hog()]);
    world.trace = Some(Vec::new());
    world.start();
    world.run_until(2_000 * MS);
    let share = world.vcpu_time(0) as f64 / (2_000 * MS) as f64;
    assert!((share - 0.5).abs() < 0.01, "{kernel:?}: {share}");
    let (mut since, mut lengths) = (None, Vec::new());
    for &(at, command) in world.trace.as_ref().expect("a trace") {
        match command {
            Command::Grant { granted: true, .. } => since = Some(at),
            Command::State {
                vcpu: VcpuId(0),
                state: VcpuState::Preempted,
            } => lengths.extend(since.take().map(|since| (at - since) / US)),
            _ => {}
        }
    }
    lengths
}

#[test]
fn a_yield_to_itself_ends_a_grace_with_its_section() {
    for kernel in [Linux::V3_3, Linux::V6_12] {
        let [held, left] = [graces(kernel, false), graces(kernel, true)];
        assert!(held.len() > 50 && left.len() > 50, "{kernel:?}: {held:?}, {left:?}");
        assert!(held.iter().all(|&us| us >= 490), "{kernel:?}: {held:?}");
        assert!(left.iter().all(|&us| us <= 310), "{kernel:?}: {left:?}");
    }
}

/// Returns for what part of the time both vCPUs of a VM run that wait for a lock, each next to a hog of another VM.
fn both_run(config: HostConfig) -> f64 {
    let config = HostConfig {
        pause: PauseHandling::DIRECTED_YIELD_2011,
        ..config
    };
    let mut world = World::new(&config, &places(1, 2, 1));
    let waiter = || {
        let round = [Op::Compute(20 * US), Op::Exit(Exit::Pause)];
        let mut ops = [speaks(), Op::Word(2)]
            .into_iter()
            .chain(std::iter::repeat(round).flatten());
        Guest::new(Box::new(move || ops.next().expect("it never ends")))
    };
    let apart = [vec![0], vec![1]];
    world.add_vm(&with_word(), &apart, vec![waiter(), waiter()]);
    world.add_vm(&VmConfig::default(), &apart, vec![Guest::hog(), Guest::hog()]);
    world.trace = Some(Vec::new());
    world.start();
    world.run_until(2_000 * MS);
    let time = world.vcpu_time(0) + world.vcpu_time(1);
    let share = time as f64 / (4_000 * MS) as f64;
    assert!((share - 0.5).abs() < 0.02, "{share}");
    let (mut runs, mut since, mut both) = ([false; 2], 0, 0);
    for &(at, command) in world.trace.as_ref().expect("a trace") {
        if let Command::State { vcpu, state } = command
            && vcpu.0 < 2
        {
            both += if runs == [true; 2] { at - since } else { 0 };
            since = at;
            runs[vcpu.0 as usize] = state == VcpuState::InGuest;
        }
    }
    both as f64 / (2_000 * MS) as f64
}

#[test]
fn waiters_that_spread_run_in_turn_and_keep_their_share() {
    for kernel in [Linux::V6_12, Linux::V7_3] {
        let [kernels, spread] = [both_run(host::<Resumes>(kernel)), both_run(host::<Spread>(kernel))];
        assert!(kernels > 0.3, "{kernel:?}: {kernels}");
        assert!(spread < 0.05, "{kernel:?}: {spread}");
    }
}

policy!(Resumes {
    fn pause_exit(&mut self, _: &View<'_>, _: VcpuId) -> Pause {
        Pause::Resume
    }
});

policy!(Greedy {
    fn slice(&mut self, _: &View<'_>, _: PcpuId, _: TaskId) -> Option<Nanos> {
        Some(Nanos(100 * MS))
    }

    fn slice_ends(&mut self, _: &View<'_>, _: PcpuId, _: TaskId) -> Option<Nanos> {
        Some(Nanos(5 * MS))
    }
});

#[test]
fn a_quota_ends_what_a_policy_would_extend() {
    let share = |config: &HostConfig| {
        let mut world = World::new(config, &places(1, 1, 1));
        let quota = Quota {
            quota_ns: 10 * MS,
            period_ns: 100 * MS,
            burst_ns: 0,
        };
        let vm = VmConfig {
            group: VmGroup::Own { shares: 1024 },
            quota: Some(quota),
            ..VmConfig::default()
        };
        world.add_vm(&vm, &[], vec![Guest::hog()]);
        world.add_vm(&VmConfig::default(), &[], vec![Guest::hog()]);
        world.start();
        world.run_until(2_000 * MS);
        world.vcpu_time(0) as f64 / (2_000 * MS) as f64
    };
    for kernel in [Linux::V3_3, Linux::V6_12, Linux::V7_3] {
        let [kernels, greedy] = [share(&host::<Kernel>(kernel)), share(&host::<Greedy>(kernel))];
        assert!(greedy < kernels + 0.01, "{kernel:?}: {greedy} instead of {kernels}");
    }
}

policy!(HandsOver {
    fn pause_exit(&mut self, _: &View<'_>, _: VcpuId) -> Pause {
        Pause::YieldTo(VcpuId(1))
    }

    fn yields(&mut self, _: &View<'_>, _: TaskId, _: TaskId) -> Yield {
        Yield::Handover
    }
});

#[test]
fn a_handover_runs_the_target_at_once_on_the_yielders_pcpu() {
    for kernel in [Linux::V3_3, Linux::V6_12] {
        let config = HostConfig {
            pause: PauseHandling::DIRECTED_YIELD_2011,
            ..host::<HandsOver>(kernel)
        };
        let mut world = World::new(&config, &places(1, 2, 1));
        world.add_vm(&VmConfig::default(), &[vec![0], vec![]], vec![spinner(), Guest::hog()]);
        world.add_vm(&VmConfig::default(), &[vec![1]], vec![Guest::hog()]);
        world.trace = Some(Vec::new());
        world.start();
        world.run_until(200 * MS);
        let mut yields = 0;
        let mut expected = false;
        for (_, command) in world.trace.take().expect("a trace") {
            match command {
                Command::DirectedYield {
                    from: VcpuId(0),
                    to: VcpuId(1),
                    done: true,
                } => expected = true,
                Command::Run { pcpu: PcpuId(0), run } if expected => {
                    assert!(matches!(run, Run::Guest { vcpu: VcpuId(1), .. }), "{run:?}");
                    (expected, yields) = (false, yields + 1);
                }
                _ => {}
            }
        }
        assert!(yields > 5, "{kernel:?}: {yields}");
    }
}

policy!(Boosts {
    fn pause_exit(&mut self, _: &View<'_>, _: VcpuId) -> Pause {
        Pause::Boost(VcpuId(1))
    }
});

#[test]
fn a_boost_runs_the_target_on_its_own_pcpu_and_the_spinner_stays() {
    for kernel in [Linux::V3_3, Linux::V6_12] {
        let config = HostConfig {
            pause: PauseHandling::DIRECTED_YIELD_2011,
            ..host::<Boosts>(kernel)
        };
        let mut world = World::new(&config, &places(1, 2, 1));
        world.add_vm(&VmConfig::default(), &[vec![0], vec![1]], vec![spinner(), Guest::hog()]);
        world.add_vm(&VmConfig::default(), &[vec![1]], vec![Guest::hog()]);
        world.trace = Some(Vec::new());
        world.start();
        world.run_until(200 * MS);
        let (mut boosts, mut expected) = (0, false);
        for (_, command) in world.trace.take().expect("a trace") {
            match command {
                Command::DirectedYield {
                    from: VcpuId(0),
                    to: VcpuId(1),
                    done: true,
                } => (boosts, expected) = (boosts + 1, true),
                Command::Run { pcpu: PcpuId(0), run } => {
                    assert!(matches!(run, Run::Guest { vcpu: VcpuId(0), .. } | Run::Idle), "{run:?}");
                }
                Command::Run {
                    pcpu: PcpuId(1),
                    run: Run::Guest { vcpu, .. },
                } if expected => {
                    assert_eq!(vcpu, VcpuId(1), "{kernel:?}");
                    expected = false;
                }
                _ => {}
            }
        }
        assert!(boosts > 5, "{kernel:?}: {boosts}");
    }
}

policy!(Penalizes {
    fn yields(&mut self, _: &View<'_>, _: TaskId, _: TaskId) -> Yield {
        Yield::Penalty(Nanos(10 * MS))
    }
});

#[test]
fn a_penalty_costs_the_yielder_time() {
    let time = |config: HostConfig| {
        let config = HostConfig {
            pause: PauseHandling::DIRECTED_YIELD_2011,
            ..config
        };
        let mut world = World::new(&config, &places(1, 1, 1));
        world.add_vm(&VmConfig::default(), &[], vec![spinner(), Guest::hog()]);
        world.start();
        world.run_until(1_000 * MS);
        world.vcpu_time(0)
    };
    for kernel in [Linux::V3_3, Linux::V6_12] {
        let (without, with) = (time(host::<Kernel>(kernel)), time(host::<Penalizes>(kernel)));
        assert!(with * 2 < without, "{kernel:?}: {with} instead of {without}");
    }
}

/// Counts interrupts, and answers with their number.
#[derive(Clone, Debug, Default)]
struct Listens(u64);

impl Policy for Listens {
    fn about(&self) -> &'static str {
        "listens"
    }

    fn ipi(&mut self, _: &View<'_>, from: VcpuId, to: VcpuId) {
        assert_eq!((from, to), (VcpuId(0), VcpuId(1)));
        self.0 += 1;
    }

    fn hint(&mut self, _: &View<'_>, from: VcpuId, number: u64, arguments: [u64; 4]) -> Option<u64> {
        (number == 100).then(|| self.0 << 32 | u64::from(from.0) << 16 | arguments[3])
    }
}

#[test]
fn a_policy_hears_interrupts_and_answers_hints() {
    let hint = |number| {
        Op::Exit(Exit::Hypercall {
            number,
            arguments: [0, 0, 0, 7],
        })
    };
    let replies = |config: &HostConfig| {
        let script = vec![
            apic(0xf0, 0x1ff),
            apic(0x310, 1 << 24),
            apic(0x300, 0x4041),
            apic(0x300, 0x4042),
            hint(100),
            hint(101),
            Op::Cpl(3),
            hint(100),
        ];
        let mut world = World::new(config, &places(1, 2, 1));
        world.add_vm(&VmConfig::default(), &[], vec![Guest::script(script), Guest::hog()]);
        world.start();
        world.run_until(10 * MS);
        world.guests[0].replies.clone()
    };
    let [enosys, eperm] = [-1000_i64 as u64, -1_i64 as u64];
    assert_eq!(replies(&host::<Listens>(Linux::V6_12)), [2 << 32 | 7, enosys, eperm]);
    assert_eq!(replies(&host::<Kernel>(Linux::V6_12)), [enosys, enosys, eperm]);
}

policy!(KickYields {
    fn kick_yields(&mut self, _: &View<'_>, _: VcpuId, _: VcpuId, kernel: bool) -> bool {
        assert!(!kernel, "since 6.12 kicks yield only by a policy here");
        true
    }
});

#[test]
fn a_kick_yields_if_the_policy_says_so() {
    let yields = |config: HostConfig| {
        let config = HostConfig {
            pause: PauseHandling::DIRECTED_YIELD_2011,
            ..config
        };
        let mut world = World::new(&config, &places(1, 1, 1));
        let kick = Op::Exit(Exit::Hypercall {
            number: 5,
            arguments: [0, 1, 0, 0],
        });
        let mut turn = false;
        let kicker = Guest::new(Box::new(move || {
            turn = !turn;
            if turn { Op::Compute(100 * US) } else { kick }
        }));
        world.add_vm(&VmConfig::default(), &[], vec![kicker, Guest::hog()]);
        world.trace = Some(Vec::new());
        world.start();
        world.run_until(100 * MS);
        let trace = world.trace.take().expect("a trace");
        let yields = trace
            .iter()
            .filter(|(_, command)| matches!(command, Command::DirectedYield { .. }));
        yields.count()
    };
    assert_eq!(yields(host::<Kernel>(Linux::V6_12)), 0);
    assert!(yields(host::<KickYields>(Linux::V6_12)) > 5);
}
