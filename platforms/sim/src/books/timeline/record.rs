//! The recorder of a timeline. How it draws each happening is in `feed.rs`.

mod feed;

use std::collections::BTreeMap;

use holdfast_guest::LockClass;
use holdfast_host::{IdVec, PcpuId, TaskId, VcpuId};
use holdfast_machine::{LineId, Time};

use super::open::Open;
use super::{
    Behind, Doing, Flow, Happening, Lock, Moment, PcpuTimeline, Place, TaskTimeline, Thread, Timeline, Track,
    VcpuTimeline, Window,
};

use crate::books::happened::View;
use crate::core::cause::Cause;
use crate::core::pending::Stretch;
use crate::parts::vcpu::Announced;

/// Limit of the spans and moments that are kept: a few hundred megabytes.
const RECORDS_MAX: usize = 6_000_000;

/// A kick or an IPI that has not yet had all its effects.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sent {
    from: VcpuId,
    to: VcpuId,
    /// The vector of an IPI; `None` for a kick.
    vector: Option<u8>,
    flow: u64,
    at: Time,
    /// Hardware has set the request, and the sender exits so that the host wakes the target.
    exits: bool,
}

/// The tracks of a pCPU.
#[derive(Clone, Debug)]
struct PcpuTracks {
    threads: Open<Thread>,
    host: Open<()>,
    /// Reschedule IPIs on their way to the pCPU: the sender and the chain.
    ipis: Vec<(PcpuId, u64)>,
}

/// The tracks of a vCPU.
#[derive(Clone, Debug)]
struct VcpuTracks {
    places: Open<Place>,
    doings: Open<Doing>,
    /// The time up to which its doings are recorded: its ledger's cursor, or later while it spins.
    recorded: Time,
    /// The last destination that it wrote to its LAPIC.
    destination: u32,
    /// Yields to it since it last got a pCPU: the yielding vCPU and the chain.
    yields: Vec<(VcpuId, u64)>,
}

/// The track of a host task.
#[derive(Clone, Debug)]
struct TaskTracks {
    task: TaskId,
    name: String,
    sleeps: Open<()>,
}

/// A recording under way.
#[derive(Clone, Debug)]
pub struct Recorder {
    from: Time,
    to: Time,
    truncated: bool,
    count: usize,
    tasks: Vec<TaskTracks>,
    pcpus: IdVec<PcpuId, PcpuTracks>,
    vcpus: IdVec<VcpuId, VcpuTracks>,
    moments: Vec<Moment>,
    classes: BTreeMap<LineId, LockClass>,
    behind: BTreeMap<LineId, Behind>,
    sent: Vec<Sent>,
    flows: u64,
}

impl Recorder {
    /// A recorder for `pcpus` and `vcpus` within `window`. `tasks` are host tasks with their names.
    pub fn new(window: Window, pcpus: usize, vcpus: usize, tasks: impl Iterator<Item = (TaskId, String)>) -> Recorder {
        let pcpu = PcpuTracks {
            threads: Open::new(Some(Thread::Idle)),
            host: Open::new(None),
            ipis: Vec::new(),
        };
        let vcpu = VcpuTracks {
            places: Open::new(Some(Place::Woken)),
            doings: Open::new(None),
            recorded: Time(0),
            destination: 0,
            yields: Vec::new(),
        };
        Recorder {
            from: Time::from_nanos(window.from_ns),
            to: Time::from_nanos(window.to_ns),
            truncated: false,
            count: 0,
            tasks: tasks
                .map(|(task, name)| TaskTracks {
                    task,
                    name,
                    sleeps: Open::new(None),
                })
                .collect(),
            pcpus: IdVec::filled(pcpu, pcpus),
            vcpus: IdVec::filled(vcpu, vcpus),
            moments: Vec::new(),
            classes: BTreeMap::new(),
            behind: BTreeMap::new(),
            sent: Vec::new(),
            flows: 0,
        }
    }

    fn count(&mut self, kept: bool, at: Time) {
        self.count += usize::from(kept);
        if self.count > RECORDS_MAX && !self.truncated {
            self.truncated = true;
            self.to = self.to.min(at);
        }
    }

    fn lock(&self, line: LineId) -> Lock {
        Lock {
            line: line.0,
            class: self.classes.get(&line).copied(),
        }
    }

    fn thread(&mut self, at: Time, pcpu: PcpuId, thread: Thread) {
        let kept = self.pcpus[pcpu].threads.set(at, Some(thread), self.from, self.to);
        self.count(kept, at);
    }

    fn host_code(&mut self, at: Time, pcpu: PcpuId, executes: bool) {
        let kept = self.pcpus[pcpu]
            .host
            .set(at, executes.then_some(()), self.from, self.to);
        self.count(kept, at);
    }

    fn place(&mut self, at: Time, vcpu: VcpuId, place: Place) {
        let kept = self.vcpus[vcpu].places.set(at, Some(place), self.from, self.to);
        self.vcpus[vcpu].places.join();
        self.count(kept, at);
        if !matches!(place, Place::Running { .. }) {
            // What it does in its next place is a span of its own, even if that begins now.
            let kept = self.vcpus[vcpu].doings.set(at, None, self.from, self.to);
            self.count(kept, at);
        }
    }

    /// The vCPU did `doing` from the end of the last entry up to `until`.
    fn did(&mut self, until: Time, vcpu: VcpuId, doing: Option<Doing>) {
        let start = std::mem::replace(&mut self.vcpus[vcpu].recorded, until);
        if start < until {
            let kept = self.vcpus[vcpu].doings.set(start, doing, self.from, self.to);
            self.count(kept, start);
        }
    }

    /// `vcpu`, which is `this`, used `stretch` of its pending time from `start` on.
    #[cold]
    pub fn used(&mut self, vcpu: VcpuId, announced: &Announced, start: Time, stretch: Stretch) {
        let cause = match stretch.kind.cause {
            Cause::CacheTransfer => announced.wait_cause(),
            cause => cause,
        };
        let doing = match (cause, announced.held.last(), announced.ipi_target) {
            (Cause::InterruptEntry, ..) => Doing::Interrupt,
            (Cause::Idle, ..) => Doing::IdleLoop,
            (Cause::IpiRunningTarget | Cause::IpiPreemptedTarget, _, Some(target)) => Doing::AwaitsIpi(target.0),
            (Cause::CriticalSection, Some(&line), _) => Doing::Critical(self.lock(line)),
            _ if stretch.kind.user => Doing::User,
            _ => Doing::Kernel,
        };
        self.did(start + stretch.span, vcpu, Some(doing));
    }

    fn moment(&mut self, at: Time, track: Track, what: Happening, flow: Option<Flow>) {
        if self.from <= at && at < self.to {
            self.moments.push(Moment { at, track, what, flow });
            self.count(true, at);
        }
    }

    fn new_flow(&mut self) -> u64 {
        self.flows += 1;
        self.flows
    }

    /// The whole timeline of a run that has ended.
    pub fn finish(mut self, view: &View<'_>) -> Timeline {
        let (from, to) = (self.from, self.to.min(view.now));
        self.moments.retain(|moment| moment.at < to);
        // The clock of a flow that was stopped by a failure can be behind; equal times keep their order.
        self.moments.sort_by_key(|moment| moment.at);
        let mut links: BTreeMap<u64, u32> = BTreeMap::new();
        for flow in self.moments.iter().filter_map(|moment| moment.flow) {
            *links.entry(flow.id).or_default() += 1;
        }
        for moment in &mut self.moments {
            moment.flow = moment.flow.filter(|flow| links[&flow.id] > 1);
        }
        let pcpus = self.pcpus.iter_mut().zip(0..).map(|(tracks, index)| PcpuTimeline {
            number: index,
            threads: tracks.threads.finish(to, from, to),
            host: tracks.host.finish(to, from, to),
        });
        let tasks = self.tasks.into_iter().map(|mut tracks| TaskTimeline {
            number: tracks.task.0,
            name: tracks.name,
            sleeps: tracks.sleeps.finish(to, from, to),
        });
        let vcpus = self
            .vcpus
            .iter_mut()
            .zip(view.vcpus.iter())
            .map(|(tracks, vcpu)| VcpuTimeline {
                vm: vcpu.vm.0,
                number: vcpu.number,
                places: tracks.places.finish(to, from, to),
                doings: tracks.doings.finish(tracks.recorded.min(to), from, to),
            });
        Timeline {
            from,
            to,
            end: view.now,
            begun: view.vms.iter().map(|vm| vm.report.begun).collect(),
            truncated: self.truncated,
            vms: view.vms.iter().map(|vm| vm.name.clone()).collect(),
            tasks: tasks.collect(),
            pcpus: pcpus.collect(),
            vcpus: vcpus.collect(),
            moments: self.moments,
        }
    }

    /// `from` kicks `to`, or sends it `vector`.
    fn send(&mut self, at: Time, from: VcpuId, to: VcpuId, vector: Option<u8>) {
        let flow = self.new_flow();
        let what = match vector {
            None => Happening::Kick(to.0),
            Some(vector) => Happening::Ipi { to: to.0, vector },
        };
        self.moment(at, Track::Vcpu(from.0), what, Some(Flow { id: flow, ends: false }));
        // Vectors that are never taken must not pile up.
        self.sent
            .retain(|sent| (sent.from, sent.to, sent.vector) != (from, to, vector));
        self.sent.push(Sent {
            from,
            to,
            vector,
            flow,
            at,
            exits: false,
        });
    }

    /// `vcpu` was woken: by the kick or IPI that was sent to it at the same time, or by an IPI that hardware left to
    /// the host, if there was one.
    fn woken(&mut self, at: Time, vcpu: VcpuId) {
        let wakes = |sent: &Sent| sent.to == vcpu && (sent.at == at || sent.exits);
        let Some(index) = self.sent.iter().rposition(wakes) else {
            return;
        };
        let Sent { from, vector, flow, .. } = self.sent[index];
        // The vector is still to be taken; a kick has done its work.
        let ends = vector.is_none();
        if ends {
            self.sent.remove(index);
        }
        let what = Happening::Woken { by: from.0, vector };
        self.moment(at, Track::Vcpu(vcpu.0), what, Some(Flow { id: flow, ends }));
    }
}
