//! Draws a timeline as tracks with nested slices, instants and counters. Times are in nanoseconds.

use holdfast_sim::timeline::{
    Behind, Doing, Flow, Happening, Lock, PcpuTimeline, Place, Span, Thread, Timeline, Track as Owner, VcpuTimeline,
};

/// A track and its events.
#[derive(Clone, Debug, Default)]
pub struct Track {
    /// Name as it appears in results.
    pub name: String,
    /// Description in one line.
    pub description: &'static str,
    /// Index of its parent track.
    pub parent: Option<usize>,
    /// Whether the track is a counter.
    pub counts: bool,
    /// Events in the order of time; slices are properly nested.
    pub events: Vec<Event>,
}

/// An event on a track.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Nanoseconds since power-on.
    pub at: u64,
    /// Order of instants with the same time, from 1; 0 for other events, which come before them.
    pub rank: usize,
    /// What happens.
    pub what: Mark,
}

/// Kinds of events.
#[derive(Clone, Debug, PartialEq)]
pub enum Mark {
    /// A slice begins, with the number of its lock if it has one.
    Begin(String, Option<u32>),
    /// The innermost slice ends.
    End,
    /// An instant.
    Instant(String, Option<Flow>),
    /// A counter changes to this value.
    Count(i64),
}

/// Draws `timeline`. Parents come before their children.
pub fn draw(timeline: &Timeline) -> Vec<Track> {
    let artist = Artist(timeline);
    let mut tracks = vec![Track {
        name: "pCPUs".to_owned(),
        description: "Who has each physical CPU, and when it executes host code.",
        ..Track::default()
    }];
    let mut pcpus: Vec<(u32, &PcpuTimeline)> = (0..).zip(&timeline.pcpus).collect();
    pcpus.sort_by_key(|(_, pcpu)| pcpu.number);
    for (index, pcpu) in pcpus {
        let mut slices: Vec<Slice> = Vec::new();
        for span in &pcpu.threads {
            slices.push(slice(span, 0, artist.thread(span.what), None));
        }
        // Host code can continue across a switch of threads.
        for (host, _) in split(&pcpu.host, &pcpu.threads) {
            slices.push(slice(&host, 1, "host code".to_owned(), None));
        }
        tracks.push(Track {
            name: format!("pCPU {}", pcpu.number),
            parent: Some(0),
            events: merge(slices, artist.instants(Owner::Pcpu(index))),
            ..Track::default()
        });
    }
    for (index, name) in timeline.vms.iter().enumerate() {
        artist.vm(index as u32, name, &mut tracks);
    }
    tracks
}

struct Slice {
    start: u64,
    end: u64,
    depth: u8,
    name: String,
    lock: Option<u32>,
}

fn slice<T>(span: &Span<T>, depth: u8, name: String, lock: Option<u32>) -> Slice {
    Slice {
        start: span.start.nanos(),
        end: span.end.nanos(),
        depth,
        name,
        lock,
    }
}

/// Returns `spans`, cut at the starts of `bounds`, each with its bound.
fn split<T: Copy, B: Copy>(spans: &[Span<T>], bounds: &[Span<B>]) -> Vec<(Span<T>, B)> {
    let mut cut = Vec::new();
    let mut first = 0;
    for span in spans {
        while bounds.get(first).is_some_and(|bound| bound.end <= span.start) {
            first += 1;
        }
        for bound in bounds[first..].iter().take_while(|bound| bound.start < span.end) {
            let part = Span {
                start: span.start.max(bound.start),
                end: span.end.min(bound.end),
                what: span.what,
            };
            cut.push((part, bound.what));
        }
    }
    cut
}

/// Returns the events of `slices` and `instants` in an order that nests.
fn merge(mut slices: Vec<Slice>, instants: Vec<Event>) -> Vec<Event> {
    // Slices shorter than a nanosecond are not drawn.
    slices.retain(|slice| slice.start < slice.end);
    slices.sort_by_key(|slice| (slice.start, slice.depth));
    let mut events = Vec::with_capacity(2 * slices.len() + instants.len());
    let mut open: Vec<u64> = Vec::new();
    let mut instants = instants.into_iter().peekable();
    let mut close = |open: &mut Vec<u64>, events: &mut Vec<Event>, until: u64| {
        while let Some(end) = open.pop_if(|end| *end <= until) {
            while let Some(instant) = instants.next_if(|instant| instant.at < end) {
                events.push(instant);
            }
            events.push(Event {
                at: end,
                rank: 0,
                what: Mark::End,
            });
        }
        while let Some(instant) = instants.next_if(|instant| instant.at < until) {
            events.push(instant);
        }
    };
    for slice in slices {
        close(&mut open, &mut events, slice.start);
        open.push(slice.end);
        events.push(Event {
            at: slice.start,
            rank: 0,
            what: Mark::Begin(slice.name, slice.lock),
        });
    }
    close(&mut open, &mut events, u64::MAX);
    events
}

struct Artist<'t>(&'t Timeline);

impl Artist<'_> {
    /// Returns the number by which users know the pCPU at `index`.
    fn pcpu(&self, index: u32) -> u32 {
        self.0.pcpus.get(index as usize).map_or(index, |pcpu| pcpu.number)
    }

    fn vcpu(&self, vcpu: u32) -> String {
        let Some(track) = self.0.vcpus.get(vcpu as usize) else {
            return format!("vCPU {vcpu}");
        };
        format!("{} vCPU {}", self.0.vms[track.vm as usize], track.number)
    }

    fn thread(&self, thread: Thread) -> String {
        match thread {
            Thread::Vcpu(vcpu) => self.vcpu(vcpu),
            Thread::Poll(vcpu) => format!("polls for {}", self.vcpu(vcpu)),
            Thread::Task(task) => {
                let name = self.0.tasks.iter().find(|known| known.number == task);
                name.map_or_else(|| format!("task {task}"), |known| format!("task {}", known.name))
            }
            Thread::Idle => "idle".to_owned(),
        }
    }

    fn vm(&self, vm: u32, name: &str, tracks: &mut Vec<Track>) {
        let parent = tracks.len();
        tracks.push(Track {
            name: name.to_owned(),
            description: "A guest: its measured interval, and its vCPUs.",
            events: self.instants(Owner::Vm(vm)),
            ..Track::default()
        });
        let mine = || self.0.vcpus.iter().enumerate().filter(|(_, vcpu)| vcpu.vm == vm);
        for (number, vcpu) in mine() {
            let mut slices: Vec<Slice> = Vec::new();
            for span in &vcpu.places {
                let (name, lock) = self.place(span.what);
                slices.push(slice(span, 0, name, lock));
            }
            for span in &vcpu.doings {
                let (name, lock) = self.doing(span.what);
                slices.push(slice(span, 1, name, lock));
            }
            tracks.push(Track {
                name: format!("vCPU {}", vcpu.number),
                description: "Above: whether it has a pCPU, and why not. Below: what it does with it.",
                parent: Some(parent),
                events: merge(slices, self.instants(Owner::Vcpu(number as u32))),
                ..Track::default()
            });
        }
        let counters: [(&str, Stretches); 3] = [
            ("spinning behind a vCPU without a pCPU", spins_behind_preempted),
            ("ready, without a pCPU", ready),
            ("throttled", throttled),
        ];
        for (name, of) in counters {
            let spans: Vec<(u64, u64)> = mine().flat_map(|(_, vcpu)| of(vcpu)).collect();
            if name == "throttled" && spans.is_empty() {
                // Most guests have no quota.
                continue;
            }
            tracks.push(Track {
                name: name.to_owned(),
                description: "Number of vCPUs.",
                parent: Some(parent),
                counts: true,
                events: counted(self.0.from.nanos(), &spans),
            });
        }
    }

    fn place(&self, place: Place) -> (String, Option<u32>) {
        let with = |words: &str, lock: Lock| (format!("{words} {}", class(lock)), Some(lock.line));
        match place {
            Place::Running { pcpu: u32::MAX } => ("on a pCPU".to_owned(), None),
            Place::Running { pcpu } => (format!("on pCPU {}", self.pcpu(pcpu)), None),
            Place::Preempted { holds: Some(lock), .. } => with("preempted, holds", lock),
            Place::Preempted { awaits: Some(lock), .. } => with("preempted, waits for", lock),
            Place::Preempted { .. } => ("preempted".to_owned(), None),
            Place::Throttled { holds: Some(lock), .. } => with("throttled, holds", lock),
            Place::Throttled { awaits: Some(lock), .. } => with("throttled, waits for", lock),
            Place::Throttled { .. } => ("throttled".to_owned(), None),
            Place::Halted { awaits: Some(lock) } => with("halted, waits for", lock),
            Place::Halted { .. } => ("halted, idle".to_owned(), None),
            Place::Woken => ("woken, waits for a pCPU".to_owned(), None),
            Place::PauseSleep => ("sleeps after a pause exit".to_owned(), None),
            Place::Off => ("off".to_owned(), None),
        }
    }

    fn doing(&self, doing: Doing) -> (String, Option<u32>) {
        match doing {
            Doing::User => ("user".to_owned(), None),
            Doing::Kernel => ("kernel".to_owned(), None),
            Doing::IdleLoop => ("idle loop".to_owned(), None),
            Doing::Critical(lock) => (format!("holds {}", class(lock)), Some(lock.line)),
            Doing::Spin { lock, behind } => {
                let behind = match behind {
                    Behind::RunningHolder(vcpu) => format!("behind {}, which holds it and runs", self.vcpu(vcpu)),
                    Behind::PreemptedHolder(vcpu) => format!("behind PREEMPTED HOLDER {}", self.vcpu(vcpu)),
                    Behind::PreemptedWaiter(vcpu) => format!("behind PREEMPTED WAITER {}", self.vcpu(vcpu)),
                    Behind::ThrottledHolder(vcpu) => format!("behind THROTTLED HOLDER {}", self.vcpu(vcpu)),
                    Behind::ThrottledWaiter(vcpu) => format!("behind THROTTLED WAITER {}", self.vcpu(vcpu)),
                    Behind::HandOver => "being handed over".to_owned(),
                };
                (format!("spins for {}, {behind}", class(lock)), Some(lock.line))
            }
            Doing::AwaitsIpi(vcpu) => (format!("awaits the answer of {} to an IPI", self.vcpu(vcpu)), None),
            Doing::Interrupt => ("takes an interrupt".to_owned(), None),
            Doing::Out(cause) => {
                let name = cause.name();
                let exit = name.strip_prefix("exit_").map(|name| format!("exit: {name}"));
                (exit.unwrap_or_else(|| name.replace('_', " ")), None)
            }
        }
    }

    fn instants(&self, owner: Owner) -> Vec<Event> {
        let moments = self.0.moments.iter().enumerate();
        let mine = moments.filter(|(_, moment)| moment.track == owner);
        mine.map(|(index, moment)| Event {
            at: moment.at.nanos(),
            rank: index + 1,
            what: Mark::Instant(self.happening(moment.what), moment.flow),
        })
        .collect()
    }

    fn happening(&self, what: Happening) -> String {
        match what {
            Happening::Kick(to) => format!("kicks {}", self.vcpu(to)),
            Happening::KickedEarly(by) => format!("kicked by {} before it halts", self.vcpu(by)),
            Happening::Woken { by, vector: None } => format!("woken by a kick of {}", self.vcpu(by)),
            Happening::Woken {
                by,
                vector: Some(vector),
            } => format!("woken by {} with vector {vector:#x}", self.vcpu(by)),
            Happening::Ipi { to, vector } => format!("IPI {vector:#x} to {}", self.vcpu(to)),
            Happening::TakesIpi { from, vector } => format!("takes IPI {vector:#x} of {}", self.vcpu(from)),
            Happening::Doorbells(1) => "rings a doorbell".to_owned(),
            Happening::Doorbells(count) => format!("rings {count} doorbells"),
            Happening::HostRings(to) => format!("doorbell of pCPU {}", self.pcpu(to)),
            Happening::DoorbellMissed => "a doorbell finds it out of guest mode".to_owned(),
            Happening::Yield { to, done, to_holder } => format!(
                "{} to {}{}",
                if done { "yields" } else { "tries to yield" },
                self.vcpu(to),
                if to_holder { ", which holds a lock" } else { "" }
            ),
            Happening::YieldedTo(from) => format!("runs, yielded to by {}", self.vcpu(from)),
            Happening::HostIpi(to) => format!("reschedule IPI to pCPU {}", self.pcpu(to)),
            Happening::HostIpiArrives(from) => format!("reschedule IPI of pCPU {}", self.pcpu(from)),
            Happening::Begins => "measured interval begins".to_owned(),
            Happening::Done => "measured interval ends".to_owned(),
        }
    }
}

fn class(lock: Lock) -> &'static str {
    lock.class.map_or("a lock", |class| class.name())
}

/// Kinds of vCPU time that are counted.
type Stretches = fn(&VcpuTimeline) -> Vec<(u64, u64)>;

fn spins_behind_preempted(vcpu: &VcpuTimeline) -> Vec<(u64, u64)> {
    let spins = vcpu.doings.iter().filter(|span| match span.what {
        Doing::Spin { behind, .. } => !matches!(behind, Behind::RunningHolder(_) | Behind::HandOver),
        _ => false,
    });
    spins.map(|span| (span.start.nanos(), span.end.nanos())).collect()
}

fn ready(vcpu: &VcpuTimeline) -> Vec<(u64, u64)> {
    let ready = |span: &&Span<Place>| matches!(span.what, Place::Preempted { .. } | Place::Woken);
    let ready = vcpu.places.iter().filter(ready);
    ready.map(|span| (span.start.nanos(), span.end.nanos())).collect()
}

fn throttled(vcpu: &VcpuTimeline) -> Vec<(u64, u64)> {
    let throttled = |span: &&Span<Place>| matches!(span.what, Place::Throttled { .. });
    let throttled = vcpu.places.iter().filter(throttled);
    throttled.map(|span| (span.start.nanos(), span.end.nanos())).collect()
}

/// Returns the number of `spans` at each time.
fn counted(from: u64, spans: &[(u64, u64)]) -> Vec<Event> {
    let mut steps: Vec<(u64, i64)> = spans.iter().flat_map(|&(start, end)| [(start, 1), (end, -1)]).collect();
    steps.push((from, 0));
    steps.sort_unstable();
    let mut events: Vec<Event> = Vec::new();
    let mut count = 0;
    for at_once in steps.chunk_by(|one, other| one.0 == other.0) {
        let before = count;
        count += at_once.iter().map(|(_, step)| step).sum::<i64>();
        if count != before || events.is_empty() {
            events.push(Event {
                at: at_once[0].0,
                rank: 0,
                what: Mark::Count(count),
            });
        }
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bare(start: u64, end: u64, depth: u8) -> Slice {
        Slice {
            start,
            end,
            depth,
            name: format!("{depth}"),
            lock: None,
        }
    }

    #[test]
    fn slices_nest_and_instants_keep_their_time() {
        let instant = |at| Event {
            at,
            rank: 1,
            what: Mark::Instant("!".to_owned(), None),
        };
        let slices = vec![
            bare(0, 10, 0),
            bare(10, 20, 0),
            bare(0, 4, 1),
            bare(4, 10, 1),
            bare(12, 12, 1),
        ];
        let events = merge(slices, vec![instant(0), instant(4), instant(10), instant(20)]);
        let shown: Vec<String> = events
            .iter()
            .map(|event| match &event.what {
                Mark::Begin(name, _) => format!("{}({name}", event.at),
                Mark::End => format!("{})", event.at),
                _ => format!("{}!", event.at),
            })
            .collect();
        assert_eq!(
            shown,
            [
                "0(0", "0(1", "0!", "4)", "4(1", "4!", "10)", "10)", "10(0", "10!", "20)", "20!"
            ]
        );
    }

    #[test]
    fn counts_change_once_at_a_time() {
        let counts = counted(5, &[(5, 9), (7, 9), (9, 12)]);
        let shown: Vec<(u64, Mark)> = counts.into_iter().map(|event| (event.at, event.what)).collect();
        assert_eq!(
            shown,
            [
                (5, Mark::Count(1)),
                (7, Mark::Count(2)),
                (9, Mark::Count(1)),
                (12, Mark::Count(0))
            ]
        );
    }
}
