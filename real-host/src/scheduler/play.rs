//! The host scheduler plays a scenario: [`Host`] is driven in virtual time, and its commands become [`Event`]s.
//!
//! The threads compute and sleep for the times that the real kernel's player draws, from the same streams. They begin
//! on the same CPUs as there, dealt to the CPUs in turn: so the host scheduler places new threads.

use std::collections::BTreeMap;
use std::fmt;

use holdfast_host::{
    Command, ConfigError, Cost, Event as HostEvent, HardwareEvent, Host, HostConfig, HostInterrupt, Nanos, PcpuId,
    PcpuPlace, Quota, Run, SchedConfig, SchedulerKind, TaskConfig, TaskEvent, TaskId,
};

use super::scenario::{Scenario, Threads};
use super::{Event, START_NS, Thread, What};

/// Ticks per second of Debian's kernels (CONFIG_HZ).
const HZ: u32 = 250;
/// CPU time of a thread between its creation and its sleep until the common start.
const PREPARES_NS: u64 = 20_000;
/// Time after which a thread notices that it has computed: the emulated CPUs take turns of up to 30 µs.
const NOTICES_NS: u64 = 30_000;
/// Time from the sending of a reschedule IPI to its handler.
const IPI_NS: u64 = 1_000;

/// Returns the time of `cost` on the emulated machine, where an instruction takes about 1 ns, divided by the number of
/// CPUs that are busy. Counted in traces of Linux 6.1 to about a half: all are far below what is compared.
const fn cost_ns(cost: Cost) -> u64 {
    match cost {
        Cost::ContextSwitch | Cost::Wake | Cost::Tick | Cost::Balance => 1_000,
        Cost::HostInterrupt | Cost::IdleExit => 500,
        Cost::TimerProgram | Cost::IpiSend => 300,
        _ => 0,
    }
}

/// Why a scenario cannot be played.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlayError {
    scenario: String,
    error: ConfigError,
}

impl fmt::Display for PlayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "scenario \"{}\" cannot be played: {}", self.scenario, self.error)
    }
}

impl std::error::Error for PlayError {}

/// What a thread does.
#[derive(Clone, Debug)]
struct Actor {
    thread: Thread,
    does: Threads,
    /// The task of its partner, if it is paired.
    partner: Option<TaskId>,
    stream: u64,
    /// CPU time until it has computed; `None` if it never does.
    left: Option<u64>,
    /// It has slept until the common start.
    started: bool,
    /// It waits for its partner's first wakeup before it computes.
    waits: bool,
    /// It sleeps until this time, by a timer of this pCPU.
    timer: Option<(u64, PcpuId)>,
    sleeps: bool,
    /// Its partner's wakeups that it has not yet used: the bytes in its pipe.
    bytes: u32,
}

impl Actor {
    /// Returns the next number of its stream, from half to one and a half of `mean_us`, in nanoseconds (`draw` in
    /// platforms/kvm/testhost/player.c).
    fn draw(&mut self, mean_us: u32) -> u64 {
        self.stream ^= self.stream >> 12;
        self.stream ^= self.stream << 25;
        self.stream ^= self.stream >> 27;
        let high = self.stream.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        let mean = u64::from(mean_us) * 1_000;
        mean / 2 + ((mean * high) >> 32)
    }

    /// Begins to compute.
    fn compute(&mut self) {
        let mean = self.does.compute_us;
        self.left = (mean > 0).then(|| self.draw(mean) + NOTICES_NS);
    }
}

/// A pCPU.
#[derive(Clone, Debug)]
struct Pcpu {
    run: Run,
    /// When `run` began, after the host's work.
    since: u64,
    /// Number of its runs, by which a planned end of a run is recognized as outdated.
    runs: u64,
    timer: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Timer(u32),
    Ipi(u32),
    /// The thread on this pCPU has computed, if this is still the run with this number.
    Computed(u32, u64),
}

/// The stage.
struct Stage {
    host: Host,
    actors: Vec<Actor>,
    pcpus: Vec<Pcpu>,
    due: BTreeMap<(u64, u64), Due>,
    sequence: u64,
    events: Vec<Event>,
}

/// Plays `scenario` under the scheduler of `kind`.
///
/// # Errors
/// If the scheduler cannot have such groups.
pub fn play(scenario: &Scenario, kind: SchedulerKind) -> Result<Vec<Event>, PlayError> {
    let failed = |error| PlayError {
        scenario: scenario.name.clone(),
        error,
    };
    let (host, actors) = build(scenario, kind).map_err(failed)?;
    let idle = Pcpu {
        run: Run::Idle,
        since: 0,
        runs: 0,
        timer: None,
    };
    let mut stage = Stage {
        host,
        actors,
        pcpus: vec![idle; scenario.cpus as usize],
        due: BTreeMap::new(),
        sequence: 0,
        events: Vec::new(),
    };
    let mut out = Vec::new();
    stage.host.start(Nanos(0), &mut out);
    stage.carry_out(0, &mut out);
    let end = START_NS + u64::from(scenario.ms) * 1_000_000;
    while let Some(((at, _), due)) = stage.due.pop_first() {
        if at > end {
            break;
        }
        stage.happens(at, due, &mut out);
    }
    stage.events.sort_by_key(|event| event.at_ns);
    Ok(stage.events)
}

fn build(scenario: &Scenario, kind: SchedulerKind) -> Result<(Host, Vec<Actor>), ConfigError> {
    let config = HostConfig {
        hz: HZ,
        sched: SchedConfig::of(kind),
        ..HostConfig::default()
    };
    let place = |core| PcpuPlace {
        socket: 0,
        core,
        thread: 0,
    };
    let places: Vec<PcpuPlace> = (0..scenario.cpus).map(place).collect();
    let mut host = Host::new(&config, &places)?;
    let mut groups = BTreeMap::new();
    for group in &scenario.groups {
        // `sched_weight_from_cgroup`.
        let id = host.add_group(None, (u64::from(group.weight) * 1024 + 50) / 100)?;
        if group.quota_us > 0 {
            let quota = Quota {
                quota_ns: u64::from(group.quota_us) * 1_000,
                period_ns: u64::from(group.period_us) * 1_000,
                burst_ns: 0,
            };
            host.set_quota(id, quota)?;
        }
        groups.insert(group.name.as_str(), id);
    }
    let mut actors: Vec<Actor> = Vec::new();
    for (of, threads) in scenario.threads.iter().enumerate() {
        for index in 0..threads.count {
            let task = host.add_task(&TaskConfig {
                nice: threads.nice,
                affinity: threads.cpus.clone(),
                group: threads.group.as_deref().and_then(|name| groups.get(name).copied()),
                ..TaskConfig::default()
            })?;
            let seed = actors.len() as u64 + 1;
            actors.push(Actor {
                thread: Thread { of, index },
                does: threads.clone(),
                partner: threads
                    .paired
                    .then(|| TaskId(if index % 2 == 0 { task.0 + 1 } else { task.0 - 1 })),
                stream: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1),
                left: Some(PREPARES_NS),
                started: false,
                waits: threads.paired && index % 2 == 1,
                timer: None,
                sleeps: false,
                bytes: 0,
            });
        }
    }
    Ok((host, actors))
}

impl Stage {
    fn push(&mut self, at: u64, due: Due) {
        self.sequence += 1;
        self.due.insert((at, self.sequence), due);
    }

    fn record(&mut self, at: u64, what: What) {
        self.events.push(Event {
            at_ns: at as i64 - START_NS as i64,
            what,
        });
    }

    fn happens(&mut self, at: u64, due: Due, out: &mut Vec<Command>) {
        let (Due::Timer(pcpu) | Due::Ipi(pcpu) | Due::Computed(pcpu, _)) = due;
        // Host code is not interruptible.
        let since = self.pcpus[pcpu as usize].since;
        if at < since {
            return self.push(since, due);
        }
        let here = PcpuId(pcpu);
        match due {
            Due::Timer(_) => {
                if self.pcpus[pcpu as usize].timer.is_none_or(|timer| timer > at) {
                    return;
                }
                self.pcpus[pcpu as usize].timer = None;
                self.stop(at, pcpu);
                for task in 0..self.actors.len() {
                    if self.actors[task]
                        .timer
                        .is_some_and(|(until, on)| until <= at && on == here)
                    {
                        self.wakes(at, task);
                    }
                }
                self.step(at, here, HostInterrupt::Timer, out);
            }
            Due::Ipi(_) => {
                self.stop(at, pcpu);
                self.step(at, here, HostInterrupt::Reschedule, out);
            }
            Due::Computed(_, run) => {
                if self.pcpus[pcpu as usize].runs == run
                    && let Run::Task(task) = self.pcpus[pcpu as usize].run
                {
                    self.stop(at, pcpu);
                    self.computed(at, here, task, out);
                }
            }
        }
    }

    fn step(&mut self, at: u64, pcpu: PcpuId, interrupt: HostInterrupt, out: &mut Vec<Command>) {
        self.host.handle(
            HostEvent::Hardware(HardwareEvent::Interrupt { pcpu, interrupt }),
            Nanos(at),
            out,
        );
        self.carry_out(at, out);
    }

    /// Notes that `task` is woken.
    fn wakes(&mut self, at: u64, task: usize) {
        let actor = &mut self.actors[task];
        actor.timer = None;
        if std::mem::take(&mut actor.sleeps) {
            let thread = actor.thread;
            self.record(at, What::Wakeup(thread));
        }
    }

    /// Takes the time that the thread on `pcpu` has computed from what is left.
    fn stop(&mut self, at: u64, pcpu: u32) {
        let row = &mut self.pcpus[pcpu as usize];
        if let Run::Task(task) = row.run
            && let Some(left) = &mut self.actors[task.0 as usize].left
        {
            *left = left.saturating_sub(at - row.since);
        }
        row.since = at;
    }

    /// The thread on `pcpu` has computed.
    fn computed(&mut self, at: u64, pcpu: PcpuId, task: TaskId, out: &mut Vec<Command>) {
        let actor = &mut self.actors[task.0 as usize];
        let mut until = None;
        if !actor.started {
            actor.started = true;
            until = Some(START_NS);
            if !actor.waits {
                actor.compute();
            } else {
                actor.left = Some(0);
            }
        } else if let Some(partner) = actor.partner {
            let waited = std::mem::take(&mut actor.waits);
            if !waited {
                let other = &mut self.actors[partner.0 as usize];
                other.bytes += 1;
                if other.sleeps && other.timer.is_none() {
                    self.wakes(at, partner.0 as usize);
                    let wakes = HostEvent::Task(TaskEvent::WakesSync { pcpu, task: partner });
                    self.host.handle(wakes, Nanos(at), out);
                    self.carry_out(at, out);
                    // The write has taken its time, or another thread runs now. The read follows.
                    let actor = &mut self.actors[task.0 as usize];
                    actor.waits = true;
                    actor.left = Some(0);
                    return self.plan(pcpu.0);
                }
            }
            let actor = &mut self.actors[task.0 as usize];
            if actor.bytes > 0 {
                actor.bytes -= 1;
                actor.compute();
                return self.plan(pcpu.0);
            }
            // It finds the byte when it runs again.
            actor.waits = true;
            actor.left = Some(0);
        } else if actor.does.yields {
            actor.compute();
            self.host
                .handle(HostEvent::Task(TaskEvent::GivesWay { pcpu }), Nanos(at), out);
            return self.carry_out(at, out);
        } else {
            let sleep = actor.does.sleep_us;
            until = Some(at + actor.draw(sleep));
            actor.compute();
        }
        let actor = &mut self.actors[task.0 as usize];
        actor.sleeps = true;
        actor.timer = until.map(|until| (until, pcpu));
        let until = until.map(Nanos);
        self.host
            .handle(HostEvent::Task(TaskEvent::Sleeps { pcpu, until }), Nanos(at), out);
        self.carry_out(at, out);
    }

    /// Plans the end of the present run of `pcpu`.
    fn plan(&mut self, pcpu: u32) {
        let row = &mut self.pcpus[pcpu as usize];
        row.runs += 1;
        let (since, runs) = (row.since, row.runs);
        if let Run::Task(task) = row.run
            && let Some(left) = self.actors[task.0 as usize].left
        {
            self.push(since + left, Due::Computed(pcpu, runs));
        }
    }

    fn carry_out(&mut self, now: u64, out: &mut Vec<Command>) {
        let mut spent = vec![0; self.pcpus.len()];
        for command in std::mem::take(out) {
            match command {
                Command::Charge { pcpu, cost, count } => {
                    spent[pcpu.0 as usize] += cost_ns(cost) * u64::from(count);
                }
                Command::Run { pcpu, run } => {
                    let begins = now + spent[pcpu.0 as usize];
                    let before = std::mem::replace(&mut self.pcpus[pcpu.0 as usize].run, run);
                    self.pcpus[pcpu.0 as usize].since = begins;
                    if before != run {
                        self.switched(begins, pcpu.0, before, run);
                    }
                    self.plan(pcpu.0);
                }
                Command::Timer { pcpu, at } => {
                    self.pcpus[pcpu.0 as usize].timer = at.map(|at| at.0);
                    if let Some(at) = at {
                        self.push(at.0.max(now), Due::Timer(pcpu.0));
                    }
                }
                Command::Ipi { from, to } => {
                    self.push(now + spent[from.0 as usize] + IPI_NS, Due::Ipi(to.0));
                }
                _ => {}
            }
        }
    }

    fn switched(&mut self, at: u64, cpu: u32, from: Run, to: Run) {
        let actor = |run| match run {
            Run::Task(task) => Some(&self.actors[task.0 as usize]),
            _ => None,
        };
        let from = actor(from);
        let what = What::Switch {
            cpu,
            from: from.map(|actor| actor.thread),
            runnable: from.is_none_or(|actor| !actor.sleeps),
            to: actor(to).map(|actor| actor.thread),
        };
        self.record(at, what);
    }
}
