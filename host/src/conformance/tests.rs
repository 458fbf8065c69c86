//! The suite passes the kernels' own schedulers, and fails policies with a mistake each.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use super::*;
use crate::boundary::{PcpuId, TaskId, VcpuId};
use crate::faults::Planted;
use crate::policies::{Boost, Grace, GraceAndBoost, Handover, Spread};
use crate::sched::seam::{Pause, RunState, View, Yield};

/// Returns the host of `kernel` with `policy`.
fn of(policy: PolicyKind, kernel: Linux) -> HostConfig {
    HostConfig {
        policy,
        ..HostConfig::of(kernel)
    }
}

/// The kernel, by a policy that changes nothing.
#[derive(Clone, Debug, Default)]
struct Kernel;

impl Policy for Kernel {
    fn about(&self) -> &'static str {
        "nothing changes"
    }
}

#[test]
fn the_kernels_conform() {
    assert_eq!(check::<Kernel>(), Ok(()));
}

#[test]
fn the_kernels_keep_to_half_of_the_longest_wait_and_every_guest_lives() {
    for kernel in KERNELS {
        for world in WORLDS {
            let seen = run(&of(PolicyKind::KERNEL, kernel), world, 1).expect("a host");
            assert!(seen.waited < WAIT_MAX.0 / 2, "{kernel:?}: {seen:?}");
            let whole = u64::from(PCPUS) * SPAN;
            let least = seen.times.iter().min().copied().unwrap_or(0);
            assert!(least > whole / 6, "{kernel:?}: no guest is idle or dead: {seen:?}");
        }
    }
}

#[test]
fn a_policy_without_methods_is_the_kernel() {
    for kernel in Linux::ALL {
        for world in WORLDS {
            let [without, with] = [PolicyKind::KERNEL, PolicyKind::of::<Kernel>("same")]
                .map(|policy| run(&of(policy, kernel), world, 7).expect("a host"));
            assert_eq!(without, with, "{kernel:?}");
        }
    }
}

/// A policy with a queue of its own that drops every hundredth wakeup.
#[derive(Clone, Debug, Default)]
struct Forgets {
    wakeups: u64,
    forgotten: Vec<TaskId>,
}

impl Policy for Forgets {
    fn about(&self) -> &'static str {
        "forgets wakeups"
    }

    fn place(&mut self, _: &View<'_>, task: TaskId, kernel: PcpuId) -> PcpuId {
        self.wakeups += 1;
        if self.wakeups.is_multiple_of(100) {
            self.forgotten.push(task);
        }
        kernel
    }

    fn pick(&mut self, view: &View<'_>, pcpu: PcpuId, kernel: Option<TaskId>) -> Option<TaskId> {
        let mut ready: Vec<TaskId> = view.ready(pcpu).filter(|task| !self.forgotten.contains(task)).collect();
        ready.sort_unstable_by_key(|task| task.0);
        kernel.filter(|task| ready.contains(task)).or(ready.first().copied())
    }

    fn preempts(&mut self, _: &View<'_>, _: TaskId, _: TaskId, _: bool) -> bool {
        false
    }
}

#[test]
fn a_forgotten_wakeup_is_caught() {
    let broken = check::<Forgets>().map_err(|(_, broken)| broken);
    // The host notices as well, and runs the thread in the end.
    assert!(
        matches!(broken, Err(Broken::Rules { .. } | Broken::Starvation { .. })),
        "{broken:?}"
    );
}

/// A policy that picks the first VM's threads in half of the cases.
#[derive(Clone, Debug, Default)]
struct Favors(u64);

impl Policy for Favors {
    fn about(&self) -> &'static str {
        "favors the first guest"
    }

    fn pick(&mut self, view: &View<'_>, pcpu: PcpuId, kernel: Option<TaskId>) -> Option<TaskId> {
        self.0 += 1;
        let is_first = |task: &TaskId| {
            let thread = view.thread(*task).expect("a ready thread");
            thread.vcpu.is_some_and(|(vm, _)| vm == VmId(0))
        };
        let first = view
            .ready(pcpu)
            .filter(is_first)
            .max_by_key(|&task| view.thread(task).map(|at| at.waited));
        first.filter(|_| self.0.is_multiple_of(2)).or(kernel)
    }

    fn slice(&mut self, _: &View<'_>, _: PcpuId, _: TaskId) -> Option<Nanos> {
        Some(Nanos(MS))
    }
}

#[test]
fn a_favored_guest_is_caught() {
    let broken = check::<Favors>().map_err(|(_, broken)| broken);
    // What others lose shows as a wait, as a refusal of the host, or as a share.
    let found = matches!(
        broken,
        Err(Broken::Share { .. } | Broken::Starvation { .. } | Broken::Rules { .. })
    );
    assert!(found, "{broken:?}");
}

/// A policy that runs the first VM's threads before others that have not waited for long.
#[derive(Clone, Debug, Default)]
struct FavorsInTime;

/// How long the others wait for it.
const PATIENCE: Nanos = Nanos(20 * MS);

impl Policy for FavorsInTime {
    fn about(&self) -> &'static str {
        "favors the first guest, and lets no other wait for long"
    }

    fn pick(&mut self, view: &View<'_>, pcpu: PcpuId, kernel: Option<TaskId>) -> Option<TaskId> {
        let is_first = |task: &TaskId| {
            let vcpu = view.thread(*task).and_then(|thread| thread.vcpu);
            vcpu.is_some_and(|(vm, _)| vm == VmId(0))
        };
        let waited = |task: &TaskId| view.thread(*task).map_or(Nanos(0), |thread| thread.waited);
        let overdue = view.ready(pcpu).filter(|task| waited(task) > PATIENCE);
        let first = view.ready(pcpu).filter(is_first).max_by_key(waited);
        overdue.max_by_key(waited).or(first).or(kernel)
    }

    fn slice(&mut self, _: &View<'_>, _: PcpuId, _: TaskId) -> Option<Nanos> {
        Some(Nanos(MS))
    }
}

#[test]
fn a_guest_favored_in_time_is_caught_by_the_share_alone() {
    for kernel in KERNELS {
        let config = of(PolicyKind::of::<FavorsInTime>("favors"), kernel);
        let seen = run(&config, WORLDS[0], 1).expect("a host");
        assert_eq!(run(&config, WORLDS[0], 1).as_ref(), Ok(&seen), "{kernel:?}: it repeats");
        assert_eq!(seen.refused, 0, "{kernel:?}: no answer is against the rules");
        assert!(seen.waited < WAIT_MAX.0, "{kernel:?}: no thread starves: {seen:?}");
        let broken = check_one(&config, WORLDS[0]);
        assert!(matches!(broken, Err(Broken::Share { .. })), "{kernel:?}: {broken:?}");
    }
}

/// A policy whose slices depend on how often any of its kind was asked.
#[derive(Clone, Debug, Default)]
struct Counts;

impl Policy for Counts {
    fn about(&self) -> &'static str {
        "has a static"
    }

    fn slice(&mut self, _: &View<'_>, _: PcpuId, _: TaskId) -> Option<Nanos> {
        static ASKED: AtomicU64 = AtomicU64::new(0);
        Some(Nanos(1_000_000 + ASKED.fetch_add(1, Relaxed)))
    }
}

/// A policy that reads a clock.
#[derive(Clone, Debug)]
struct Reads(Instant);

impl Default for Reads {
    fn default() -> Reads {
        Reads(Instant::now())
    }
}

impl Policy for Reads {
    fn about(&self) -> &'static str {
        "reads a clock"
    }

    fn slice(&mut self, _: &View<'_>, _: PcpuId, _: TaskId) -> Option<Nanos> {
        Some(Nanos(1_000_000 + self.0.elapsed().as_nanos() as u64 % 1_000_000))
    }
}

#[test]
fn a_static_and_a_clock_are_caught() {
    let broken = check::<Counts>().map_err(|(_, broken)| broken);
    assert_eq!(broken, Err(Broken::Determinism));
    let broken = check::<Reads>().map_err(|(_, broken)| broken);
    assert_eq!(broken, Err(Broken::Determinism));
}

/// A policy that answers anything.
#[derive(Clone, Debug, Default)]
struct Wild(u64);

impl Wild {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn time(&mut self) -> Nanos {
        Nanos([0, 1, 50_000, 1_000_000, 20_000_000, u64::MAX][self.below(6) as usize])
    }
}

impl Policy for Wild {
    fn about(&self) -> &'static str {
        "answers anything"
    }

    fn pick(&mut self, view: &View<'_>, _: PcpuId, kernel: Option<TaskId>) -> Option<TaskId> {
        let any = TaskId(self.below(12) as u32);
        let known = view.thread(any).is_some_and(|thread| thread.run == RunState::Ready);
        let siblings = view.siblings(any).count() as u64;
        match self.below(4) {
            0 => None,
            1 if known => Some(any),
            2 => Some(TaskId(u32::MAX - siblings as u32)),
            _ => kernel.or(Some(any)),
        }
    }

    fn slice(&mut self, _: &View<'_>, _: PcpuId, _: TaskId) -> Option<Nanos> {
        (self.below(2) == 0).then(|| self.time())
    }

    fn slice_ends(&mut self, _: &View<'_>, _: PcpuId, _: TaskId) -> Option<Nanos> {
        (self.below(2) == 0).then(|| self.time())
    }

    fn preempts(&mut self, _: &View<'_>, _: TaskId, _: TaskId, _: bool) -> bool {
        self.below(2) == 0
    }

    fn place(&mut self, view: &View<'_>, task: TaskId, _: PcpuId) -> PcpuId {
        let pcpu = PcpuId(self.below(4) as u32);
        let _ = (
            view.may_run_on(task, pcpu),
            view.runnable(pcpu),
            view.share_cache(pcpu, pcpu),
        );
        let _ = (
            view.ready(pcpu).count(),
            view.running(pcpu),
            view.thread_of(VcpuId(pcpu.0 * 9)),
        );
        pcpu
    }

    fn moves(&mut self, _: &View<'_>, _: TaskId, _: PcpuId) -> bool {
        self.below(2) == 0
    }

    fn pause_exit(&mut self, _: &View<'_>, _: VcpuId) -> Pause {
        match self.below(6) {
            0 => Pause::Kernel,
            1 => Pause::Resume,
            2 => Pause::YieldTo(VcpuId(self.below(12) as u32)),
            3 => Pause::Boost(VcpuId(self.below(12) as u32)),
            4 => Pause::Leave,
            _ => Pause::Sleep(self.time()),
        }
    }

    fn yields(&mut self, _: &View<'_>, _: TaskId, _: TaskId) -> Yield {
        match self.below(4) {
            0 => Yield::Kernel,
            1 => Yield::Refuse,
            2 => Yield::Penalty(self.time()),
            _ => Yield::Handover,
        }
    }

    fn kick_yields(&mut self, _: &View<'_>, _: VcpuId, _: VcpuId, _: bool) -> bool {
        self.below(2) == 0
    }

    fn hint(&mut self, _: &View<'_>, _: VcpuId, number: u64, _: [u64; 4]) -> Option<u64> {
        (self.below(2) == 0).then_some(number)
    }
}

#[test]
fn wrong_answers_are_refused_and_every_thread_runs() {
    for kernel in Linux::ALL {
        for world in WORLDS {
            let seen = run(&of(PolicyKind::of::<Wild>("wild"), kernel), world, 3).expect("a host");
            assert!(seen.refused > 0, "{kernel:?}");
            // Four threads, of which each is taken in the end because it was forgotten.
            assert!(seen.waited < 2 * 4 * 100 * MS, "{kernel:?}: {seen:?}");
        }
    }
}

#[test]
fn grace_without_payback_is_caught_by_the_share_alone() {
    for kernel in KERNELS {
        let free = |is_free| {
            let planted = Planted {
                grace_is_free: is_free,
                ..Planted::default()
            };
            HostConfig {
                planted,
                ..of(PolicyKind::of::<Grace<500, 4>>("grace"), kernel)
            }
        };
        let liars = WORLDS.iter().find(|world| world.guests.concat().contains(&Masks));
        let liars = liars.expect("a world of guests that lie");
        assert_eq!(check_one(&free(false), liars), Ok(()), "{kernel:?}");
        let broken = check_one(&free(true), liars);
        assert!(matches!(broken, Err(Broken::Share { .. })), "{kernel:?}: {broken:?}");
    }
}

#[test]
fn whatever_a_guest_says_it_gains_nothing_from_a_guest_that_computes() {
    for world in WORLDS.iter().filter(|world| world.guests.concat().contains(&Masks)) {
        for seed in 2..12 {
            for policy in [
                PolicyKind::of::<Grace<500, 4>>("grace"),
                PolicyKind::of::<GraceAndBoost>("both"),
            ] {
                let run = |policy| run(&of(policy, Linux::V6_12), world, seed).expect("a host").times[0];
                let (with, without) = (run(policy), run(PolicyKind::KERNEL));
                let percent = u64::from(PCPUS) * SPAN / 100;
                assert!(
                    with + percent > without,
                    "{policy:?}, seed {seed}: {with} of {without} ns"
                );
            }
        }
    }
}

#[test]
fn cooperation_conforms() {
    assert_eq!(check::<Grace>(), Ok(()));
    assert_eq!(check::<Grace<500, 4>>(), Ok(()));
    assert_eq!(check::<Handover>(), Ok(()));
    assert_eq!(check::<Boost>(), Ok(()));
    assert_eq!(check::<Spread>(), Ok(()));
    assert_eq!(check::<GraceAndBoost>(), Ok(()));
}
