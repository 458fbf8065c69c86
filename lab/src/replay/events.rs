//! The events that a real host would have recorded, from the timeline of a simulated one.
//!
//! So that the account of a replay is computed by the same code as that of the recording.

use std::collections::HashMap;

use holdfast_machine::Time;
use holdfast_recordings::event::{Event, Left, Name, Tid, What};
use holdfast_recordings::hosts::names::is_vcpu;
use holdfast_sim::Cause;
use holdfast_sim::timeline::{Doing, Happening, Place, Span, TaskTimeline, Thread, Timeline, Track, VcpuTimeline};

use super::ids::{TASKS, thread_id};
use super::tasks;

/// Reasons of exits as VMX numbers them (SDM volume 3, appendix C).
const INTERRUPT: u32 = 1;
const WINDOW: u32 = 7;
const CPUID: u32 = 10;
const HLT: u32 = 12;
const HYPERCALL: u32 = 18;
const PORT: u32 = 30;
const WRMSR: u32 = 32;
const PAUSE: u32 = 40;
const APIC_ACCESS: u32 = 44;
const NESTED_FAULT: u32 = 48;

/// The hypercall that kicks a vCPU (`KVM_HC_KICK_CPU`).
const KICK: u64 = 5;

/// Returns the events that a real host would have recorded, in the order of time. The vCPUs of the guest `others` are
/// threads of the host itself.
pub fn events(timeline: &Timeline, others: Option<u32>) -> Vec<Event> {
    let mut writer = Writer::new(timeline, others);
    (0..timeline.pcpus.len()).for_each(|index| writer.switches(index));
    for vcpu in 0..timeline.vcpus.len() as u32 {
        writer.sleeps(vcpu);
        if Some(timeline.vcpus[vcpu as usize].vm) != others {
            writer.guest(vcpu);
            writer.halts(vcpu);
        }
    }
    for task in &timeline.tasks {
        writer.task(task);
    }
    writer.sends();
    writer.rows.sort_by_key(|(ps, order, _)| (*ps, *order));
    writer.rows.into_iter().map(|(.., event)| event).collect()
}

/// The order of events at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Order {
    Exit,
    Send,
    /// A pCPU goes through its idle thread, so that a thread can leave one pCPU and get another at the same time.
    ToIdle,
    Wake,
    ToThread,
    HaltEnd,
    Entry,
}

/// A simulated host that writes down events.
struct Writer<'t> {
    timeline: &'t Timeline,
    others: Option<u32>,
    /// The vCPU that woke each vCPU at each time.
    wakers: HashMap<(u32, Time), u32>,
    /// Picoseconds, the order of events at the same time, and the event.
    rows: Vec<(u64, Order, Event)>,
}

impl<'t> Writer<'t> {
    fn new(timeline: &'t Timeline, others: Option<u32>) -> Writer<'t> {
        let woken = timeline
            .moments
            .iter()
            .filter_map(|moment| match (moment.track, moment.what) {
                (Track::Vcpu(vcpu), Happening::Woken { by, .. }) => Some(((vcpu, moment.at), by)),
                _ => None,
            });
        Writer {
            timeline,
            others,
            wakers: woken.collect(),
            rows: Vec::new(),
        }
    }

    fn vcpu(&self, vcpu: u32) -> &'t VcpuTimeline {
        &self.timeline.vcpus[vcpu as usize]
    }

    /// Returns the thread ID of vCPU `vcpu`.
    fn tid(&self, vcpu: u32) -> Tid {
        thread_id(self.timeline, Thread::Vcpu(vcpu))
    }

    fn name(&self, tid: Tid) -> Name {
        match tid {
            0 => Name::from("swapper"),
            1..1000 => {
                let task = self.task_of(tid - TASKS);
                // A task may have any name, and is no vCPU.
                let name = task.map(|task| task.name.as_str()).filter(|name| !is_vcpu(name));
                Name::from(name.unwrap_or("task"))
            }
            _ if Some(tid / 1000 - 1) == self.others => Name::from("thread"),
            _ => Name::from(format!("CPU {}/KVM", tid % 1000 - 1).as_str()),
        }
    }

    /// Returns the thread that has the pCPU at `index` just at `at`, between switches.
    fn on(&self, index: usize, at: u64) -> Tid {
        let spans = &self.timeline.pcpus[index].threads;
        let next = spans.partition_point(|span| span.start.0 <= at);
        let Some(span) = next.checked_sub(1).map(|at| &spans[at]) else {
            return 0;
        };
        let tid = thread_id(self.timeline, span.what);
        let before = next
            .checked_sub(2)
            .map(|before| thread_id(self.timeline, spans[before].what));
        // At a switch the pCPU idles for no time: see `Order::ToIdle`.
        if span.start.0 == at && before != Some(tid) {
            0
        } else {
            tid
        }
    }

    /// Returns the index of the pCPU that vCPU `vcpu` has just before `at`.
    fn pcpu_before(&self, vcpu: u32, at: u64) -> Option<usize> {
        let places = &self.vcpu(vcpu).places;
        let next = places.partition_point(|place| place.end.0 < at);
        match places.get(next).filter(|place| place.start.0 < at)?.what {
            Place::Running { pcpu } => Some(pcpu as usize),
            _ => None,
        }
    }

    /// Returns whether vCPU `vcpu` leaves its guest at `at`.
    fn exits(&self, vcpu: u32, at: u64) -> bool {
        let doings = &self.vcpu(vcpu).doings;
        let last = doings.partition_point(|doing| doing.end.0 < at);
        let ends = |doing: &&Span<Doing>| doing.end.0 == at && is_guest(doing);
        doings.get(last).filter(ends).is_some() && !doings.get(last + 1).is_some_and(is_guest)
    }

    fn row(&mut self, ps: u64, order: Order, index: usize, thread: Tid, what: What) {
        let event = Event {
            at: ps / 1000,
            cpu: self.timeline.pcpus[index].number,
            thread,
            what,
        };
        self.rows.push((ps, order, event));
    }

    fn switch(&mut self, ps: u64, index: usize, (prev, left): (Tid, Left), next: Tid) {
        let what = What::Switch {
            prev,
            prev_name: self.name(prev),
            left,
            next,
            next_name: self.name(next),
            next_prio: 120,
        };
        let order = if next == 0 { Order::ToIdle } else { Order::ToThread };
        self.row(ps, order, index, prev, what);
    }

    fn switches(&mut self, index: usize) {
        let mut before = Thread::Idle;
        let mut prev = 0;
        for span in &self.timeline.pcpus[index].threads {
            let next = thread_id(self.timeline, span.what);
            let ps = span.start.0;
            if next != prev {
                if prev != 0 {
                    self.switch(ps, index, (prev, self.left(before, ps)), 0);
                }
                if next != 0 {
                    self.switch(ps, index, (0, Left::Ready), next);
                }
            }
            prev = next;
            before = span.what;
        }
    }

    fn task_of(&self, number: u32) -> Option<&'t TaskTimeline> {
        self.timeline.tasks.iter().find(|task| task.number == number)
    }

    /// Returns what becomes of `thread` when it leaves its pCPU at `at`.
    fn left(&self, thread: Thread, at: u64) -> Left {
        match thread {
            Thread::Vcpu(vcpu) | Thread::Poll(vcpu) => left(self.vcpu(vcpu), at),
            Thread::Task(task) => match self.task_of(task) {
                Some(task) if !tasks::is_asleep(task, at) => Left::Ready,
                _ => Left::Asleep,
            },
            Thread::Idle => Left::Asleep,
        }
    }

    /// Wakeups of a host task.
    fn task(&mut self, task: &TaskTimeline) {
        let woken = thread_id(self.timeline, Thread::Task(task.number));
        for (at, index) in tasks::wakeups(self.timeline, task) {
            let what = What::Waking {
                woken,
                name: self.name(woken),
                target: self.timeline.pcpus[index].number,
                queued: false,
            };
            self.row(at, Order::Wake, index, self.on(index, at), what);
        }
    }

    /// Returns the index of the pCPU that vCPU `vcpu` runs on next, from `at` on, and when.
    fn next_run(&self, vcpu: u32, at: u64) -> Option<(usize, u64)> {
        let places = &self.vcpu(vcpu).places;
        let first = places.partition_point(|place| place.end.0 <= at);
        places[first..].iter().find_map(|place| match place.what {
            Place::Running { pcpu } => Some((pcpu as usize, place.start.0.max(at))),
            _ => None,
        })
    }

    /// Returns the index of the pCPU that polls for vCPU `vcpu` up to `at`.
    fn polled(&self, vcpu: u32, at: u64) -> Option<usize> {
        (0..self.timeline.pcpus.len()).find(|index| {
            let spans = &self.timeline.pcpus[*index].threads;
            let next = spans.partition_point(|span| span.end.0 < at);
            let polls = spans
                .get(next)
                .filter(|span| span.end.0 == at && span.what == Thread::Poll(vcpu));
            polls.is_some()
        })
    }

    /// Wakeups, and the ends of halts.
    fn sleeps(&mut self, vcpu: u32) {
        let tid = self.tid(vcpu);
        let is_vcpu = Some(self.vcpu(vcpu).vm) != self.others;
        let places = &self.vcpu(vcpu).places;
        let mut begun = None;
        for pair in places.windows(2) {
            if !sleeps(pair[0].what) {
                continue;
            }
            let start = *begun.get_or_insert(pair[0].start.0);
            if sleeps(pair[1].what) {
                continue;
            }
            begun = None;
            let at = pair[1].start.0;
            let halted = matches!(pair[0].what, Place::Halted { .. }) && is_vcpu;
            let ended = |until: u64, slept| What::HaltEnd {
                ns: until / 1000 - start / 1000,
                slept,
                valid: true,
            };
            if let Some(index) = self.polled(vcpu, at) {
                self.row(at, Order::HaltEnd, index, tid, ended(at, false));
                continue;
            }
            let runs = self.next_run(vcpu, at);
            // Where it never ran again, the pCPU that it waited for is not known.
            let index = runs.map_or(0, |(index, _)| index);
            let target = runs.map_or(u32::MAX, |(index, _)| self.timeline.pcpus[index].number);
            let what = What::Waking {
                woken: tid,
                name: self.name(tid),
                target,
                queued: false,
            };
            let by = self.wakers.get(&(vcpu, Time(at))).copied();
            match by.and_then(|by| Some((by, self.pcpu_before(by, at)?))) {
                Some((by, on)) => self.row(at, Order::Send, on, self.tid(by), what),
                None => self.row(at, Order::Wake, index, self.on(index, at), what),
            }
            if let Some((_, runs)) = runs.filter(|_| halted) {
                self.row(runs, Order::HaltEnd, index, tid, ended(runs, true));
            }
        }
    }

    /// Entries and exits.
    fn guest(&mut self, vcpu: u32) {
        let tid = self.tid(vcpu);
        let (doings, places) = (&self.vcpu(vcpu).doings, &self.vcpu(vcpu).places);
        let number = self.vcpu(vcpu).number;
        let mut first = 0;
        while first < doings.len() {
            if !is_guest(&doings[first]) {
                first += 1;
                continue;
            }
            let mut last = first;
            while last + 1 < doings.len()
                && is_guest(&doings[last + 1])
                && doings[last + 1].start == doings[last].end
                && places
                    .binary_search_by_key(&doings[last].end, |place| place.start)
                    .is_err()
            {
                last += 1;
            }
            let (from, to) = (doings[first].start.0, doings[last].end.0);
            let next = places.partition_point(|place| place.start.0 < to);
            let next = places.get(next).filter(|place| place.start.0 == to);
            let halts = next.is_some_and(|place| matches!(place.what, Place::Halted { .. }));
            let out = doings.get(last + 1).filter(|next| next.start.0 == to);
            let reason = match out.map(|next| next.what) {
                _ if halts => HLT,
                Some(Doing::Out(cause)) => reason(cause),
                _ => INTERRUPT,
            };
            let at = places.partition_point(|place| place.end.0 <= from);
            if let Some(Place::Running { pcpu }) = places.get(at).map(|place| place.what) {
                self.row(from, Order::Entry, pcpu as usize, tid, What::Entry { vcpu: number });
                self.row(to, Order::Exit, pcpu as usize, tid, exit(number, reason));
            }
            first = last + 1;
        }
    }

    /// Halts right after another exit: the guest runs for no time between them.
    fn halts(&mut self, vcpu: u32) {
        let tid = self.tid(vcpu);
        let (doings, places) = (&self.vcpu(vcpu).doings, &self.vcpu(vcpu).places);
        let number = self.vcpu(vcpu).number;
        for pair in places.windows(2) {
            let (Place::Running { pcpu }, Place::Halted { .. }) = (pair[0].what, pair[1].what) else {
                continue;
            };
            let ps = pair[1].start.0;
            let last = doings.partition_point(|doing| doing.end.0 < ps);
            let is_out = |doing: &&Span<Doing>| doing.end.0 == ps && matches!(doing.what, Doing::Out(_));
            if doings.get(last).filter(is_out).is_none() {
                continue;
            }
            self.row(ps, Order::Exit, pcpu as usize, tid, What::Entry { vcpu: number });
            self.row(ps, Order::Exit, pcpu as usize, tid, exit(number, HLT));
        }
    }

    /// Kicks and IPIs for which the sender leaves its guest.
    fn sends(&mut self) {
        for moment in &self.timeline.moments {
            let Track::Vcpu(from) = moment.track else { continue };
            let (to, vector) = match moment.what {
                Happening::Kick(to) => (to, None),
                Happening::Ipi { to, vector } => (to, Some(vector)),
                _ => continue,
            };
            let at = moment.at.0;
            let Some(index) = self.pcpu_before(from, at).filter(|_| self.exits(from, at)) else {
                continue;
            };
            if Some(self.vcpu(from).vm) == self.others {
                continue;
            }
            let (tid, apic) = (self.tid(from), self.vcpu(to).number);
            let sent = match vector {
                None => What::Hypercall {
                    nr: KICK,
                    args: [0, u64::from(apic)],
                },
                Some(vector) => What::Ipi {
                    icr_low: u32::from(vector),
                    destination: apic,
                },
            };
            let vector = vector.unwrap_or(0);
            self.row(at, Order::Send, index, tid, sent);
            self.row(at, Order::Send, index, tid, What::Interrupt { apic, vector });
        }
    }
}

fn is_guest(doing: &Span<Doing>) -> bool {
    !matches!(doing.what, Doing::Out(_))
}

fn sleeps(place: Place) -> bool {
    matches!(place, Place::Halted { .. } | Place::PauseSleep | Place::Off)
}

fn exit(vcpu: u32, reason: u32) -> What {
    What::Exit {
        vcpu: Some(vcpu),
        reason,
        isa: 1,
    }
}

/// Returns the reason of an exit whose time counts to `cause`.
fn reason(cause: Cause) -> u32 {
    match cause {
        Cause::ExitHlt => HLT,
        Cause::ExitPause => PAUSE,
        Cause::ExitHypercall => HYPERCALL,
        Cause::ExitMsr => WRMSR,
        Cause::ExitApic => APIC_ACCESS,
        Cause::ExitPort => PORT,
        Cause::ExitCpuid => CPUID,
        Cause::ExitWindow => WINDOW,
        Cause::ExitNestedFault => NESTED_FAULT,
        _ => INTERRUPT,
    }
}

/// What becomes of `vcpu` when it leaves its pCPU at `at`.
fn left(vcpu: &VcpuTimeline, at: u64) -> Left {
    let next = vcpu.places.partition_point(|place| place.end.0 <= at);
    match vcpu.places.get(next).map(|place| place.what) {
        Some(place) if sleeps(place) => Left::Asleep,
        _ => Left::Ready,
    }
}
