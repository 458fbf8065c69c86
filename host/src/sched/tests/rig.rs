//! The scheduler alone in virtual time: ticks, timers, IPIs, and threads that run for a while and sleep for a while.

use alloc::collections::BTreeMap;

use super::super::config::{SchedConfig, SchedulerKind};
use super::super::fault::Fault;
use super::*;
use crate::timers::Timer;

/// All kinds of schedulers.
pub(super) const ALL: [SchedulerKind; 8] = SchedulerKind::ALL;

/// What a thread does, forever.
#[derive(Clone, Copy, Debug)]
pub(super) struct Habit {
    /// How long it runs. Nanoseconds.
    pub(super) busy: u64,
    /// How long it sleeps then. 0: it never sleeps. Nanoseconds.
    pub(super) sleep: u64,
}

impl Habit {
    pub(super) const HOG: Habit = Habit {
        busy: u64::MAX,
        sleep: 0,
    };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Tick(u32),
    Ipi(u32),
    Wake(u32),
    /// The running thread of this pCPU may have come to its sleep.
    Sleep(u32),
    Timer(bool, u32),
    /// The timer that ends the slice of this pCPU's running thread.
    Slice(u32),
}

/// A scheduler with threads, in virtual time.
pub(super) struct Rig {
    pub(super) sched: Scheduler,
    pub(super) now: u64,
    pub(super) tick: u64,
    habits: Vec<Habit>,
    left: Vec<u64>,
    /// When each pCPU last began to run what it runs.
    began: Vec<u64>,
    /// When the timer that ends slices is due on each pCPU.
    slices: Vec<Option<u64>>,
    queue: BTreeMap<(u64, u64), What>,
    sequence: u64,
    out: Vec<Command>,
    /// When each group's pool was filled up. Nanoseconds.
    pub(super) fills: Vec<(GroupId, u64)>,
    /// A check after every event.
    pub(super) watch: Option<fn(&Scheduler)>,
}

impl Rig {
    pub(super) fn new(kind: SchedulerKind, pcpus: u32, hz: u32) -> Rig {
        let config = HostConfig {
            hz,
            sched: SchedConfig::of(kind),
            ..HostConfig::default()
        };
        Rig::with(&config, 1, pcpus)
    }

    pub(super) fn with(config: &HostConfig, sockets: u32, cores: u32) -> Rig {
        let bench = Bench::new(config, sockets, cores);
        let pcpus = sockets * cores;
        let mut rig = Rig {
            sched: bench.sched,
            now: 0,
            tick: 1_000_000_000 / u64::from(config.hz),
            habits: Vec::new(),
            left: Vec::new(),
            began: vec![0; pcpus as usize],
            slices: vec![None; pcpus as usize],
            queue: BTreeMap::new(),
            sequence: 0,
            out: Vec::new(),
            fills: Vec::new(),
            watch: None,
        };
        for pcpu in 0..pcpus {
            rig.push(rig.tick, What::Tick(pcpu));
        }
        rig
    }

    pub(super) fn plant(mut self, fault: Option<Fault>) -> Rig {
        self.sched.hierarchy.fault = fault;
        self
    }

    fn push(&mut self, at: u64, what: What) {
        self.sequence += 1;
        self.queue.insert((at, self.sequence), what);
    }

    /// Adds the thread of a vCPU. [`Rig::start`] must follow.
    pub(super) fn add_vcpu(&mut self, vm: VmId, vcpu: VcpuId, habit: Habit) -> TaskId {
        let task = self.sched.add_thread(weight::NICE_0, ROOT, None);
        self.sched.add_vcpu(vm, vcpu, task);
        self.habits.push(habit);
        self.left.push(habit.busy);
        task
    }

    pub(super) fn start(&mut self, task: TaskId) {
        self.on(0, |sched, step| sched.start_thread(task, step));
    }

    pub(super) fn add(&mut self, nice: i8, group: GroupId, only: Option<u32>, habit: Habit) -> TaskId {
        let mask = only.map(|pcpu| {
            let mut mask = Mask::new(self.began.len());
            mask.set(pcpu, true);
            mask
        });
        let task = self.sched.add_thread(weight::of_nice(nice), group, mask);
        self.habits.push(habit);
        self.left.push(habit.busy);
        self.start(task);
        task
    }

    /// Lets the scheduler act on `pcpu`, and that pCPU reschedule if it has to.
    pub(super) fn on<R>(&mut self, pcpu: u32, act: impl FnOnce(&mut Scheduler, &mut Step<'_>) -> R) -> R {
        let now = self.now;
        self.sched.begin(now);
        let before = self.sched.current(pcpu);
        let mut out = core::mem::take(&mut self.out);
        let mut step = Step::new(Nanos(now), PcpuId(pcpu), &mut out);
        let result = act(&mut self.sched, &mut step);
        if self.sched.need_resched(pcpu) {
            if let Some(before) = before {
                self.stop(pcpu, before);
            }
            self.sched.schedule(pcpu, &mut step);
            self.begin(pcpu);
        }
        for command in out.drain(..) {
            if let Command::Ipi { to, .. } = command {
                self.push(now + 1_000, What::Ipi(to.0));
            }
        }
        self.out = out;
        while let Some((timer, at)) = self.sched.next_timer() {
            match timer {
                Timer::Period(group) => {
                    self.fills.push((group, now));
                    self.push(at, What::Timer(true, group.0));
                }
                Timer::Slack(group) => self.push(at, What::Timer(false, group.0)),
                Timer::Sleep(_) | Timer::Lapic(_) => {
                    panic!("a timer of the host's own")
                }
            }
        }
        let slice = self.sched.arm_slice_timer(pcpu);
        if slice != self.slices[pcpu as usize] {
            self.slices[pcpu as usize] = slice;
            slice.into_iter().for_each(|at| self.push(at, What::Slice(pcpu)));
        }
        while self.sched.next_throttle_change().is_some() {}
        while self.sched.poll_ends.pop().is_some() {}
        if let Some(watch) = self.watch {
            watch(&self.sched);
        }
        result
    }

    fn stop(&mut self, pcpu: u32, task: TaskId) {
        let ran = self.now - self.began[pcpu as usize];
        let left = &mut self.left[task.0 as usize];
        *left = left.saturating_sub(ran).max(1);
    }

    fn begin(&mut self, pcpu: u32) {
        self.began[pcpu as usize] = self.now;
        if let Some(task) = self.sched.current(pcpu) {
            let left = self.left[task.0 as usize];
            if left != u64::MAX && self.habits[task.0 as usize].sleep > 0 {
                self.push(self.now + left, What::Sleep(pcpu));
            }
        }
    }

    pub(super) fn run_until(&mut self, end: u64) {
        while let Some((&(at, sequence), &what)) = self.queue.first_key_value() {
            if at > end {
                break;
            }
            self.queue.remove(&(at, sequence));
            self.now = at;
            self.happens(what);
        }
        self.now = end;
        self.sched.begin(end);
    }

    fn happens(&mut self, what: What) {
        match what {
            What::Tick(pcpu) => {
                self.push(self.now + self.tick, What::Tick(pcpu));
                // An idle pCPU's tick is stopped.
                if self.sched.current(pcpu).is_some() {
                    self.on(pcpu, |sched, step| sched.tick(pcpu, step));
                }
            }
            What::Ipi(pcpu) => self.on(pcpu, |sched, step| sched.interrupt(pcpu, step)),
            What::Wake(task) => {
                let pcpu = self.sched.threads[TaskId(task)].pcpu;
                self.on(pcpu, |sched, step| {
                    sched.wake(TaskId(task), step);
                });
            }
            What::Sleep(pcpu) => self.sleeps(pcpu),
            What::Slice(pcpu) => {
                // Otherwise it was set again meanwhile.
                if self.slices[pcpu as usize] == Some(self.now) {
                    self.slices[pcpu as usize] = None;
                    self.on(pcpu, |sched, step| {
                        assert!(sched.slice_due(pcpu));
                        sched.slice_timer(pcpu, step);
                    });
                }
            }
            What::Timer(period, group) => {
                let timer = if period {
                    Timer::Period(GroupId(group))
                } else {
                    Timer::Slack(GroupId(group))
                };
                self.on(0, |sched, step| sched.bandwidth_timer(timer, step));
            }
        }
    }

    fn sleeps(&mut self, pcpu: u32) {
        let Some(task) = self.sched.current(pcpu) else { return };
        let (habit, left) = (self.habits[task.0 as usize], self.left[task.0 as usize]);
        // Said of an earlier stretch.
        if habit.sleep == 0 || self.now - self.began[pcpu as usize] != left {
            return;
        }
        self.left[task.0 as usize] = habit.busy;
        self.push(self.now + habit.sleep, What::Wake(task.0));
        let began = self.now;
        self.began[pcpu as usize] = began;
        self.on(pcpu, |sched, step| {
            sched.sleep(pcpu);
            sched.schedule(pcpu, step);
        });
        self.begin(pcpu);
    }

    pub(super) fn ran(&self, task: TaskId) -> u64 {
        self.sched.ran(task, self.now)
    }

    /// Returns the time of all threads and of all idle pCPUs.
    pub(super) fn whole(&self) -> u64 {
        let threads: u64 = (0..self.habits.len() as u32).map(|task| self.ran(TaskId(task))).sum();
        let idle: u64 = (0..self.began.len() as u32)
            .map(|pcpu| self.sched.idle_ns(pcpu, self.now))
            .sum();
        threads + idle
    }
}
