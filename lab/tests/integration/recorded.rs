//! Accounts of recordings, compared with what the simulator knows: a simulated host writes the events that a real one
//! would record, and its timeline and ledger have the truth.

use std::cell::RefCell;
use std::collections::BTreeMap;

use holdfast_lab::experiment::Experiment;
use holdfast_lab::options::Options;
use holdfast_lab::plan::Plan;
use holdfast_lab::replay::{beside, events, process, thread_id};
use holdfast_lab::shipped::{self, EXPERIMENTS};
use holdfast_machine::Time;
use holdfast_recordings::account::{self, Account, Books};
use holdfast_recordings::event::{Event, Tid, What};
use holdfast_recordings::timeline::{Faults, Follower, Occupant, Sink, State, Step, VcpuIndex};
use holdfast_sim::timeline::{Doing, Place, Span, Thread, Timeline, VcpuTimeline, Window};
use holdfast_sim::{CallOff, Config, Outcome};

/// Returns a cell of an experiment.
pub fn cell(name: &str, case: &str, variant: &str, scale: f64, set: &[&str]) -> Config {
    let shipped = shipped::find(EXPERIMENTS, name).expect("it is shipped");
    let experiment = Experiment::parse(shipped.file, shipped.text).expect("a valid experiment");
    let options = Options {
        seeds: Some(1),
        scale: Some(scale),
        cases: vec![case.to_owned()],
        variants: vec![variant.to_owned()],
        set: set.iter().map(|set| (*set).to_owned()).collect(),
        ..Options::default()
    };
    let plan = Plan::new(experiment, &options).unwrap_or_else(|problems| panic!("{problems}"));
    Config {
        seed: 1,
        ..plan.cells[0].config.clone()
    }
}

/// Runs a cell of an experiment, and records all of it.
fn recorded(name: &str, case: &str, variant: &str, scale: f64, set: &[&str]) -> (Outcome, Timeline) {
    record(&cell(name, case, variant, scale, set))
}

/// Runs `config`, and records all of it.
pub fn record(config: &Config) -> (Outcome, Timeline) {
    let window = Window {
        from_ns: 0,
        to_ns: u64::MAX,
    };
    let (outcome, timeline) = holdfast_sim::record(config, &CallOff::new(), window).expect("a machine");
    assert!(!timeline.truncated, "the run is too long for a recording");
    (outcome.unwrap_or_else(|failure| panic!("{failure}")), timeline)
}

/// Time of each thread by state, in ns, and what it waited behind.
#[derive(Debug, Default, PartialEq)]
struct Times {
    states: BTreeMap<Tid, [u64; State::ALL.len()]>,
    /// By thread, and by what had the pCPU: a thread ID, or `None` if that is not known.
    behind: BTreeMap<(Tid, Option<Tid>), u64>,
    threads: Vec<Tid>,
    until_exit: u64,
}

impl Sink for Times {
    fn step(&mut self, step: &Step<'_>) {
        match *step {
            Step::Known { vcpu, thread, .. } => {
                assert_eq!(
                    vcpu,
                    VcpuIndex(self.threads.len() as u32),
                    "no vCPU ends, or changes its thread"
                );
                self.threads.push(thread);
                self.states.insert(thread, Default::default());
            }
            Step::Was {
                vcpu, from, to, state, ..
            } => {
                let thread = self.threads[vcpu.0 as usize];
                self.states.entry(thread).or_default()[state as usize] += to - from;
            }
            Step::Waited {
                vcpu,
                behind,
                until_exit,
                ..
            } => {
                self.until_exit += until_exit;
                let thread = self.threads[vcpu.0 as usize];
                for (occupant, ns) in behind {
                    let who = match occupant {
                        Occupant::Idle => Some(0),
                        Occupant::Vcpu(other) => Some(self.threads[other.0 as usize]),
                        Occupant::Thread { .. } => Some(50),
                        Occupant::Unknown => None,
                    };
                    *self.behind.entry((thread, who)).or_default() += ns;
                }
            }
            _ => {}
        }
    }
}

/// Follows `events` to the end of `timeline`.
fn followed(timeline: &Timeline, events: &[Event]) -> (Times, Follower) {
    let mut times = Times::default();
    let follower = follow(timeline, events, &mut times);
    // Guest and host are told apart from the first entry on: before it the host prepares the vCPU.
    for states in times.states.values_mut() {
        states[State::Host as usize] += std::mem::take(&mut states[State::Running as usize]);
    }
    (times, follower)
}

fn follow(timeline: &Timeline, events: &[Event], sink: &mut impl Sink) -> Follower {
    let mut follower = account::follower(&beside(timeline, None));
    for event in events {
        follower.follow(event, sink);
    }
    follower.end(Some(timeline.to.0 / 1000), sink);
    follower
}

/// Returns the length of a span, as events in ns show it.
fn ns<T>(span: &Span<T>) -> u64 {
    span.end.0 / 1000 - span.start.0 / 1000
}

fn within<T, U: Copy>(span: &Span<T>, other: &Span<U>) -> Option<Span<U>> {
    let (start, end) = (span.start.max(other.start), span.end.min(other.end));
    (start < end).then_some(Span {
        start,
        end,
        what: other.what,
    })
}

/// Returns the time at which `vcpu` first had a pCPU.
fn first_run(vcpu: &VcpuTimeline) -> Option<Time> {
    let runs = |place: &&Span<Place>| matches!(place.what, Place::Running { .. });
    vcpu.places.iter().find(runs).map(|place| place.start)
}

/// Returns what is true of each vCPU from the time on at which it first had a pCPU.
fn truth(timeline: &Timeline) -> Times {
    let mut times = Times::default();
    for (index, vcpu) in (0_u32..).zip(&timeline.vcpus) {
        let tid = thread_id(timeline, Thread::Vcpu(index));
        let Some(first) = first_run(vcpu) else { continue };
        let mut states = [0; State::ALL.len()];
        let polls: Vec<Span<Thread>> = timeline
            .pcpus
            .iter()
            .flat_map(|pcpu| &pcpu.threads)
            .filter(|span| span.what == Thread::Poll(index))
            .copied()
            .collect();
        for doing in &vcpu.doings {
            let state = if matches!(doing.what, Doing::Out(_)) {
                State::Host
            } else {
                State::Guest
            };
            states[state as usize] += ns(doing);
        }
        for place in vcpu.places.iter().skip_while(|place| place.start < first) {
            match place.what {
                Place::Running { .. } => {}
                Place::Preempted { .. } | Place::Throttled { .. } | Place::Woken => {
                    states[State::Ready as usize] += ns(place);
                }
                Place::Halted { .. } => {
                    let polled: u64 = polls
                        .iter()
                        .filter_map(|poll| within(place, poll))
                        .map(|part| ns(&part))
                        .sum();
                    states[State::Polling as usize] += polled;
                    states[State::Halted as usize] += ns(place) - polled;
                }
                Place::PauseSleep | Place::Off => states[State::Asleep as usize] += ns(place),
            }
        }
        times.states.insert(tid, states);
        times.behind.extend(behind(timeline, index, first.0));
    }
    times
}

/// Returns what vCPU `index` waited behind since `first`, by what had the pCPU that events say it waited for.
fn behind(timeline: &Timeline, index: u32, first: u64) -> BTreeMap<(Tid, Option<Tid>), u64> {
    let tid = thread_id(timeline, Thread::Vcpu(index));
    let mut sums: BTreeMap<(Tid, Option<Tid>), u64> = BTreeMap::new();
    let places = &timeline.vcpus[index as usize].places;
    let is_ready = |place: Place| matches!(place, Place::Preempted { .. } | Place::Throttled { .. } | Place::Woken);
    let mut at = places.partition_point(|place| place.start.0 < first);
    while at < places.len() {
        if !is_ready(places[at].what) {
            at += 1;
            continue;
        }
        let from = at;
        while at < places.len() && is_ready(places[at].what) {
            at += 1;
        }
        let wait = Span {
            start: places[from].start,
            end: places[at - 1].end,
            what: (),
        };
        let before = from.checked_sub(1).map(|before| places[before].what);
        let runs = places[at..].iter().find_map(|place| match place.what {
            Place::Running { pcpu } => Some(pcpu),
            _ => None,
        });
        let queue = match (before, runs) {
            // It was preempted on this pCPU.
            (Some(Place::Running { pcpu }), Some(runs)) if pcpu == runs => Some(pcpu),
            (Some(Place::Running { .. }), Some(_)) => None,
            (Some(Place::Running { pcpu }), None) => Some(pcpu),
            // Its wakeup named the pCPU.
            (_, runs) => runs,
        };
        match queue {
            None => *sums.entry((tid, None)).or_default() += ns(&wait),
            Some(pcpu) => {
                for thread in timeline.pcpus[pcpu as usize]
                    .threads
                    .iter()
                    .filter_map(|span| within(&wait, span))
                {
                    let who = match thread_id(timeline, thread.what) {
                        who @ (0 | 1000..) => who,
                        _ => 50,
                    };
                    *sums.entry((tid, Some(who))).or_default() += ns(&thread);
                }
            }
        }
    }
    sums.retain(|_, ns| *ns > 0);
    sums
}

/// Cells that show halts, kicks, polling, throttling, pause exits, sleeps of pause exits and host tasks.
fn each(check: impl Fn(&str, &Outcome, &Timeline)) {
    let cells: [(&str, &str, &str, f64, &[&str]); 6] = [
        ("kernbench-overcommit", "2x", "pv-ticket", 0.002, &[]),
        ("kernbench-overcommit", "2x", "ticket", 0.002, &["host.halt_poll=0"]),
        (
            "kernbench-overcommit",
            "1x",
            "pv-ticket",
            0.002,
            &["vm.*.cgroup=own", "vm.*.quota=\"600 ms\""],
        ),
        (
            "kernbench-overcommit",
            "1x",
            "pv-ticket",
            0.002,
            &["host.halt_poll=\"200 us\""],
        ),
        ("cgroup-imbalance", "groups", "sleep-100us", 0.01, &[]),
        ("linux-hackbench", "2-vcpus", "pvspin", 0.02, &[]),
    ];
    for (name, case, variant, scale, set) in cells {
        let (outcome, timeline) = recorded(name, case, variant, scale, set);
        check(&format!("{name} {case} {variant} {set:?}"), &outcome, &timeline);
    }
}

#[test]
fn states_and_waits_are_those_of_the_simulated_host() {
    let seen = RefCell::new([0; State::ALL.len()]);
    each(|name, _, timeline| {
        let (found, follower) = followed(timeline, &events(timeline, None));
        assert_eq!(follower.faults(), Faults::default(), "{name}");
        let truth = truth(timeline);
        for (thread, states) in &truth.states {
            assert_eq!(found.states.get(thread), Some(states), "{name}, thread {thread}");
            for (sum, ns) in seen.borrow_mut().iter_mut().zip(states) {
                *sum += ns;
            }
        }
        assert_eq!(found.behind, truth.behind, "{name}");
    });
    for state in State::ALL {
        let shown = seen.borrow()[state as usize] > 0;
        assert_eq!(shown, !matches!(state, State::Running | State::Unknown), "{state:?}");
    }
}

#[test]
fn cpu_ready_is_that_of_the_ledger() {
    each(|name, outcome, timeline| {
        let mut books = Books::default();
        let follower = follow(timeline, &events(timeline, None), &mut books);
        let account = account::of(&books, &follower, &beside(timeline, None));
        for (index, vm) in (0_u32..).zip(&outcome.vms) {
            let found = account.vms.iter().find(|found| found.process == Some(process(index)));
            let found = found.unwrap_or_else(|| panic!("{name}: {} is missing", vm.name));
            let whole_ps = found.vcpus.len() as f64 * outcome.end_ns as f64 * 1e3;
            // The ledger of a guest ends with its work.
            if (vm.vcpu_time_ps as f64) < 0.999 * whole_ps {
                continue;
            }
            let figure = |name| {
                Account::figure(&found.figures, name)
                    .and_then(|figure| figure.value)
                    .expect("known")
            };
            let ready_ns = figure("ready_percent") / 100.0 * figure("recorded_s") * 1e9;
            // A recording knows nothing of a thread before its first event.
            let unseen = timeline.vcpus.iter().filter(|vcpu| vcpu.vm == index);
            let unseen_ns: u64 = unseen.filter_map(|vcpu| Some(first_run(vcpu)?.0 / 1000)).sum();
            let ledger_ns = vm.counters["ready_ns"] as f64 - unseen_ns as f64;
            let error = (ready_ns - ledger_ns).abs();
            assert!(
                error <= 0.0001 * ledger_ns + 1e4,
                "{name}, {}: {ready_ns} ns of CPU ready, {ledger_ns} in the ledger",
                vm.name
            );
        }
    });
}

/// A planted fault is seen: an event that is left out.
#[test]
fn a_missing_wakeup_makes_a_wait_unknown_and_not_something_else() {
    let (_, timeline) = recorded("kernbench-overcommit", "2x", "pv-ticket", 0.002, &[]);
    let mut events = events(&timeline, None);
    let truth = truth(&timeline);
    let wakeups = |event: &Event| matches!(event.what, What::Waking { .. });
    let at = events.iter().enumerate().filter(|(_, event)| wakeups(event)).nth(100);
    let (at, _) = at.expect("halts end");
    let What::Waking { woken, .. } = events[at].what else {
        unreachable!()
    };
    events.remove(at);
    let (found, _) = followed(&timeline, &events);
    let (found, truth) = (found.states[&woken], truth.states[&woken]);
    assert!(found[State::Unknown as usize] > 0);
    for state in State::ALL.into_iter().filter(|state| *state != State::Unknown) {
        assert!(found[state as usize] <= truth[state as usize], "{state:?}");
    }
}

/// Under lazy preemption a woken vCPU waits until the one that has its pCPU leaves its guest.
#[test]
fn waits_for_the_next_exit_grow_under_lazy_preemption() {
    let until_exit = |model: &str| {
        let preempt = format!("host.preempt={model}");
        let set = [
            "vm.neighbour.workload=hog",
            "vm.neighbour.hz=10",
            &preempt,
            "host.hz=250",
        ];
        let (_, timeline) = recorded("ipi-bench", "unicast-halted", "x2apic", 0.002, &set);
        followed(&timeline, &events(&timeline, None)).0.until_exit
    };
    let (full, lazy) = (until_exit("full"), until_exit("lazy"));
    assert!(lazy > 4 * full.max(1), "{full} and {lazy} ns");
}

/// A host task computes for 2 ms and sleeps for 3 ms.
#[test]
fn host_tasks_sleep_as_long_as_configured_and_have_no_pcpu_meanwhile() {
    let text = include_str!("misconfigured/own-threads.toml");
    let experiment = Experiment::parse("own-threads.toml", text).expect("a valid experiment");
    let plan = Plan::new(experiment, &Options::default()).unwrap_or_else(|problems| panic!("{problems}"));
    let (_, timeline) = record(&plan.cells[0].config);
    let task = timeline
        .tasks
        .iter()
        .find(|task| task.name == "web-io")
        .expect("it is configured");
    let whole: Vec<&Span<()>> = task.sleeps.iter().filter(|sleep| sleep.end < timeline.to).collect();
    assert!(whole.len() > 10, "{} sleeps", whole.len());
    let spans = timeline.pcpus.iter().flat_map(|pcpu| &pcpu.threads);
    let runs: Vec<_> = spans.filter(|span| span.what == Thread::Task(task.number)).collect();
    for sleep in whole {
        let us = ns(sleep) / 1000;
        assert!((2_990..=3_100).contains(&us), "{us} us");
        // It leaves its pCPU a switch after it has gone to sleep.
        let runs = runs
            .iter()
            .filter(|run| run.start >= sleep.start && run.start < sleep.end);
        assert_eq!(runs.count(), 0, "it runs while it sleeps");
    }
}
