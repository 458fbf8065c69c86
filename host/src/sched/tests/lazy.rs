//! Lazy preemption: which pCPUs are interrupted at once, and which go on until their next exit or tick.

use super::super::config::Preempt;
use super::*;

const ALL: [Preempt; 4] = [Preempt::None, Preempt::Voluntary, Preempt::Full, Preempt::Lazy];

fn only(pcpu: u32) -> Option<Mask> {
    let mut mask = Mask::new(2);
    mask.set(pcpu, true);
    Some(mask)
}

/// Two pCPUs. A thread runs on the first one, and a thread sleeps whose pCPU is the second one.
fn bench(preempt: Preempt, kind: SchedulerKind) -> (Bench, TaskId) {
    let config = HostConfig {
        sched: SchedConfig {
            preempt,
            ..SchedConfig::of(kind)
        },
        ..HostConfig::default()
    };
    let mut bench = Bench::new(&config, 1, 2);
    let mut start = |pcpu| {
        let task = bench.sched.add_thread(weight::NICE_0, ROOT, only(pcpu));
        bench.on(0, |sched, step| sched.start_thread(task, step));
        task
    };
    let (_, sleeper) = (start(0), start(1));
    bench.schedule(0);
    assert_eq!(bench.schedule(1), Some(sleeper));
    bench.now += 1_000;
    bench.on(1, |sched, _| sched.sleep(1));
    bench.schedule(1);
    (bench, sleeper)
}

/// Lets a hog run on pCPU 1 for 40 ms.
fn add_hog(bench: &mut Bench) {
    let hog = bench.sched.add_thread(weight::NICE_0, ROOT, only(1));
    bench.on(0, |sched, step| sched.start_thread(hog, step));
    assert_eq!(bench.schedule(1), Some(hog));
    for _ in 0..10 {
        bench.now += 4 * MS;
        bench.on(1, |sched, step| sched.tick(1, step));
    }
}

/// Acts on pCPU 0. Returns the number of IPIs that this sends to pCPU 1.
fn ipis(bench: &mut Bench, act: impl FnOnce(&mut Scheduler, &mut Step<'_>)) -> usize {
    bench.out.clear();
    bench.on(0, act);
    let to_one = |command: &&Command| matches!(command, Command::Ipi { to: PcpuId(1), .. });
    bench.out.iter().filter(to_one).count()
}

#[test]
fn a_wakeup_interrupts_a_busy_pcpu_unless_preemption_is_lazy() {
    for kind in [SchedulerKind::Cfs412, SchedulerKind::Eevdf612] {
        for preempt in ALL {
            let (mut bench, sleeper) = bench(preempt, kind);
            add_hog(&mut bench);
            let sent = ipis(&mut bench, |sched, step| assert!(sched.wake(sleeper, step)));
            assert_eq!(sent, usize::from(preempt != Preempt::Lazy), "{preempt:?} {kind:?}");
            // The next exit or tick there finds the request.
            assert!(bench.sched.need_resched(1), "{preempt:?} {kind:?}");
            assert_eq!(bench.schedule(1), Some(sleeper));
            assert!(!bench.sched.need_resched(1));
        }
    }
}

#[test]
fn an_idle_pcpu_is_interrupted_whatever_the_preemption() {
    for preempt in ALL {
        let (mut bench, sleeper) = bench(preempt, SchedulerKind::Eevdf612);
        let sent = ipis(&mut bench, |sched, step| assert!(sched.wake(sleeper, step)));
        assert_eq!(sent, 1, "{preempt:?}");
    }
}

#[test]
fn what_cannot_wait_interrupts_a_pcpu_that_was_asked_lazily() {
    let (mut bench, sleeper) = bench(Preempt::Lazy, SchedulerKind::Eevdf612);
    add_hog(&mut bench);
    assert_eq!(ipis(&mut bench, |sched, step| assert!(sched.wake(sleeper, step))), 0);
    assert_eq!(ipis(&mut bench, |sched, step| sched.resched(1, step)), 1);
    assert_eq!(
        ipis(&mut bench, |sched, step| sched.resched(1, step)),
        0,
        "it was asked"
    );
}

#[test]
fn the_timer_that_ends_slices_preempts_whatever_the_preemption() {
    for preempt in ALL {
        let (mut bench, sleeper) = bench(preempt, SchedulerKind::Eevdf73);
        add_hog(&mut bench);
        ipis(&mut bench, |sched, step| assert!(sched.wake(sleeper, step)));
        bench.on(1, |sched, step| sched.slice_timer(1, step));
        assert!(bench.sched.need_resched(1) && !bench.sched.rq(1).lazily, "{preempt:?}");
    }
}

#[test]
fn a_wakeup_arms_the_timer_by_an_ipi_unless_it_is_armed() {
    let (mut bench, sleeper) = bench(Preempt::Lazy, SchedulerKind::Eevdf73);
    add_hog(&mut bench);
    let wake = |bench: &mut Bench| ipis(bench, |sched, step| assert!(sched.wake(sleeper, step)));
    assert_eq!(wake(&mut bench), 1);
    bench.on(1, |sched, _| assert!(sched.arm_slice_timer(1).is_some()));
    assert_eq!(bench.schedule(1), Some(sleeper));
    bench.now += 1_000;
    bench.on(1, |sched, _| sched.sleep(1));
    bench.schedule(1);
    // The hog is alone again, and the timer stays armed.
    bench.on(1, |sched, _| assert!(sched.arm_slice_timer(1).is_some()));
    assert_eq!(wake(&mut bench), 0);
}
