//! Assembles a timeline from the lines of a trace.

use std::collections::BTreeMap;

use holdfast_machine::Time;
use holdfast_sim::Cause;
use holdfast_sim::timeline::{
    Doing, Flow, Happening, Moment, Open, PcpuTimeline, Place, TaskTimeline, Thread, Timeline, Track, VcpuTimeline,
};

use super::line::{Event, Line, parse};

/// Thread of a vCPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct VcpuThread {
    /// Index of its VM.
    pub(super) vm: u32,
    /// Its number in the VM, which is its APIC ID.
    pub(super) number: u32,
    /// The host's thread ID.
    pub(super) thread: u32,
}

/// The whole range of time.
const EVER: (Time, Time) = (Time(0), Time(u64::MAX));

struct Vcpu {
    place: Open<Place>,
    doing: Open<Doing>,
    /// The vCPU that it kicks in this exit, and the index of the kick among the moments.
    kicks: Option<(usize, usize)>,
}

#[derive(Default)]
struct Pcpu {
    thread: Option<Open<Thread>>,
    host: Option<Open<()>>,
}

struct Assembly<'a> {
    threads: &'a [VcpuThread],
    index: BTreeMap<u32, usize>,
    vcpus: Vec<Vcpu>,
    pcpus: Vec<Pcpu>,
    tasks: BTreeMap<u32, String>,
    moments: Vec<Moment>,
    flows: u64,
}

/// Returns the timeline of `text`, from the time when the records of all CPUs have begun. `vms`: names of the VMs.
pub(super) fn assemble(text: &str, vms: Vec<String>, threads: &[VcpuThread]) -> Timeline {
    let begin = begin_ns(text);
    let mut assembly = Assembly {
        threads,
        index: threads.iter().map(|vcpu| vcpu.thread).zip(0..).collect(),
        vcpus: Vec::new(),
        pcpus: Vec::new(),
        tasks: BTreeMap::new(),
        moments: Vec::new(),
        flows: 0,
    };
    assembly.vcpus.resize_with(threads.len(), || Vcpu {
        place: Open::new(None),
        doing: Open::new(None),
        kicks: None,
    });
    let mut now = Time(0);
    for line in text.lines().filter_map(parse).filter(|line| line.at_ns >= begin) {
        // The kernel merges its CPUs' records by time. A clock that steps back must not reverse spans.
        now = now.max(Time((line.at_ns - begin).saturating_mul(1000)));
        assembly.take(now, &line);
    }
    assembly.finish(now, vms)
}

/// Returns the time when the records of all CPUs have begun. After overwriting, each CPU has its own first record.
fn begin_ns(text: &str) -> u64 {
    let mut first: BTreeMap<u32, u64> = BTreeMap::new();
    for line in text.lines().filter_map(parse) {
        first.entry(line.cpu).or_insert(line.at_ns);
    }
    let begins = first.values().copied();
    if is_overwritten(text) {
        begins.max()
    } else {
        begins.min()
    }
    .unwrap_or(0)
}

/// `# entries-in-buffer/entries-written: 140080/250280   #P:4`
fn is_overwritten(text: &str) -> bool {
    let head = text.lines().take_while(|line| line.starts_with('#'));
    let counts = head.filter_map(|line| line.split_once("entries-written: "));
    let counts = counts.filter_map(|(_, counts)| counts.split_whitespace().next()?.split_once('/'));
    counts.into_iter().any(|(kept, written)| kept != written)
}

impl Assembly<'_> {
    fn take(&mut self, now: Time, line: &Line<'_>) {
        let (from, to) = EVER;
        let cpu = line.cpu as usize;
        if self.pcpus.len() <= cpu {
            self.pcpus.resize_with(cpu + 1, Pcpu::default);
        }
        let mine = self.index.get(&line.thread).copied();
        match line.event {
            Event::Switch {
                from: goes,
                runnable,
                to: comes,
                name,
            } => {
                let thread = self.thread(comes, name);
                self.pcpus[cpu]
                    .thread
                    .get_or_insert_with(|| Open::new(None))
                    .set(now, Some(thread), from, to);
                self.host(cpu, now, false);
                if let Some(&vcpu) = self.index.get(&goes) {
                    let place = match runnable {
                        true => Place::Preempted {
                            holds: None,
                            awaits: None,
                        },
                        false => Place::Halted { awaits: None },
                    };
                    self.set(vcpu, now, place, None);
                }
                if let Some(&vcpu) = self.index.get(&comes) {
                    self.set(
                        vcpu,
                        now,
                        Place::Running { pcpu: line.cpu },
                        Some(Doing::Out(Cause::HostOverhead)),
                    );
                }
            }
            Event::Waking(thread) => {
                let Some(&woken) = self.index.get(&thread) else { return };
                if matches!(self.vcpus[woken].place.now(), Some(Place::Halted { .. })) {
                    self.set(woken, now, Place::Woken, None);
                }
                if let Some(by) = mine
                    && let Some((_, kick)) = self.vcpus[by].kicks.take_if(|(kicked, _)| *kicked == woken)
                {
                    self.link(now, kick, by, woken);
                }
            }
            Event::Entry | Event::Exit(_) => {
                let Some(vcpu) = mine else { return };
                let (doing, out) = match line.event {
                    Event::Exit(cause) => (Some(Doing::Out(cause)), true),
                    _ => (None, false),
                };
                self.set(vcpu, now, Place::Running { pcpu: line.cpu }, doing);
                self.vcpus[vcpu].kicks = None;
                self.host(cpu, now, out);
            }
            Event::Kick(apic) => {
                let Some(by) = mine else { return };
                let vm = self.threads[by].vm;
                let of_vm = |vcpu: &VcpuThread| vcpu.vm == vm && vcpu.number == apic;
                let Some(kicked) = self.threads.iter().position(of_vm) else {
                    return;
                };
                self.vcpus[by].kicks = Some((kicked, self.moments.len()));
                self.moment(now, by, Happening::Kick(kicked as u32), None);
            }
        }
    }

    fn set(&mut self, vcpu: usize, now: Time, place: Place, doing: Option<Doing>) {
        self.vcpus[vcpu].place.set(now, Some(place), EVER.0, EVER.1);
        self.vcpus[vcpu].doing.set(now, doing, EVER.0, EVER.1);
    }

    fn host(&mut self, cpu: usize, now: Time, out: bool) {
        let track = self.pcpus[cpu].host.get_or_insert_with(|| Open::new(None));
        track.set(now, out.then_some(()), EVER.0, EVER.1);
    }

    fn thread(&mut self, number: u32, name: &str) -> Thread {
        match self.index.get(&number) {
            Some(&vcpu) => Thread::Vcpu(vcpu as u32),
            None if number == 0 => Thread::Idle,
            None => {
                self.tasks.entry(number).or_insert_with(|| name.to_owned());
                Thread::Task(number)
            }
        }
    }

    fn moment(&mut self, at: Time, vcpu: usize, what: Happening, flow: Option<Flow>) {
        self.moments.push(Moment {
            at,
            track: Track::Vcpu(vcpu as u32),
            what,
            flow,
        });
    }

    /// Links the kick at index `kick` with the vCPU that it woke.
    fn link(&mut self, now: Time, kick: usize, by: usize, woken: usize) {
        self.flows += 1;
        let flow = |ends| Some(Flow { id: self.flows, ends });
        self.moments[kick].flow = flow(false);
        let ends = flow(true);
        let what = Happening::Woken {
            by: by as u32,
            vector: None,
        };
        self.moment(now, woken, what, ends);
    }

    fn finish(self, end: Time, vms: Vec<String>) -> Timeline {
        let (from, to) = (Time(0), end);
        let pcpus = self.pcpus.into_iter().zip(0..).map(|(pcpu, number)| PcpuTimeline {
            number,
            threads: pcpu
                .thread
                .map_or_else(Vec::new, |mut track| track.finish(end, from, to)),
            host: pcpu.host.map_or_else(Vec::new, |mut track| track.finish(end, from, to)),
        });
        let vcpus = self
            .vcpus
            .into_iter()
            .zip(self.threads)
            .map(|(mut vcpu, thread)| VcpuTimeline {
                vm: thread.vm,
                number: thread.number,
                places: vcpu.place.finish(end, from, to),
                doings: vcpu.doing.finish(end, from, to),
            });
        let tasks = self.tasks.into_iter().map(|(number, name)| TaskTimeline {
            number,
            name,
            sleeps: Vec::new(),
        });
        Timeline {
            from,
            to,
            end,
            begun: vec![None; vms.len()],
            truncated: false,
            pcpus: pcpus.collect(),
            vcpus: vcpus.collect(),
            vms,
            tasks: tasks.collect(),
            moments: self.moments,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const THREADS: [VcpuThread; 2] = [
        VcpuThread {
            vm: 0,
            number: 0,
            thread: 11,
        },
        VcpuThread {
            vm: 0,
            number: 1,
            thread: 12,
        },
    ];

    /// vCPU 1 halts for a lock on pCPU 1; vCPU 0 kicks it, and then loses pCPU 0 to a task.
    const KICK: &str = "\
# tracer: nop
# entries-in-buffer/entries-written: 9/9   #P:2
          <idle>-0       [000] d..2.   10.000000: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=CPU 0/KVM next_pid=11 next_prio=120
       CPU 0/KVM-11      [000] d....   10.000010: kvm_entry: vcpu 0, rip 0x1000
       CPU 1/KVM-12      [001] .....   10.000020: kvm_exit: vcpu 1 reason hlt rip 0x1000 info1 0x0
       CPU 1/KVM-12      [001] d..2.   10.000030: sched_switch: prev_comm=CPU 1/KVM prev_pid=12 prev_prio=120 prev_state=S ==> next_comm=swapper/1 next_pid=0 next_prio=120
       CPU 0/KVM-11      [000] .....   10.000040: kvm_exit: vcpu 0 reason hypercall rip 0x1000 info1 0x0
       CPU 0/KVM-11      [000] .....   10.000041: kvm_hypercall: nr 0x5 a0 0x0 a1 0x1 a2 0x0 a3 0x0
       CPU 0/KVM-11      [000] d..4.   10.000042: sched_waking: comm=CPU 1/KVM pid=12 prio=120 target_cpu=001
          <idle>-0       [001] d..2.   10.000060: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=CPU 1/KVM next_pid=12 next_prio=120
       CPU 0/KVM-11      [000] d..2.   10.000070: sched_switch: prev_comm=CPU 0/KVM prev_pid=11 prev_prio=120 prev_state=R+ ==> next_comm=make -j next_pid=99 next_prio=120
       CPU 1/KVM-12      [001] d....   10.000080: kvm_entry: vcpu 1, rip 0x1001
";

    fn of(text: &str) -> Timeline {
        assemble(text, vec!["vm1".to_owned()], &THREADS)
    }

    #[test]
    fn a_kick_leads_from_who_gives_it_to_who_wakes() {
        let timeline = of(KICK);
        let us = |us: u64| Time(us * 1_000_000);
        let places: Vec<_> = timeline.vcpus[1]
            .places
            .iter()
            .map(|span| (span.start, span.what))
            .collect();
        let expected = [
            (us(20), Place::Running { pcpu: 1 }),
            (us(30), Place::Halted { awaits: None }),
            (us(42), Place::Woken),
            (us(60), Place::Running { pcpu: 1 }),
        ];
        assert_eq!(places, expected);
        let doings: Vec<_> = timeline.vcpus[0]
            .doings
            .iter()
            .map(|span| (span.start, span.what))
            .collect();
        let expected = [
            (us(0), Doing::Out(Cause::HostOverhead)),
            (us(40), Doing::Out(Cause::ExitHypercall)),
        ];
        assert_eq!(doings, expected);
        let threads: Vec<_> = timeline.pcpus[0].threads.iter().map(|span| span.what).collect();
        assert_eq!(threads, [Thread::Vcpu(0), Thread::Task(99)]);
        let tasks = timeline.tasks.iter().map(|task| (task.number, task.name.as_str()));
        assert_eq!(tasks.collect::<Vec<_>>(), [(99, "make -j")]);
        let moments: Vec<_> = timeline
            .moments
            .iter()
            .map(|moment| (moment.at, moment.what, moment.flow.map(|flow| (flow.id, flow.ends))))
            .collect();
        let woken = Happening::Woken { by: 0, vector: None };
        let expected = [
            (us(41), Happening::Kick(1), Some((1, false))),
            (us(42), woken, Some((1, true))),
        ];
        assert_eq!(moments, expected);
        assert!(!holdfast_lab::trace::encode(&timeline).is_empty());
    }

    #[test]
    fn what_was_overwritten_on_one_cpu_is_shown_of_none() {
        let text = KICK.replace("9/9", "9/2000");
        let timeline = of(&text);
        // pCPU 1's records begin 20 us after pCPU 0's.
        assert_eq!((of(KICK).end, timeline.end), (Time(80_000_000), Time(60_000_000)));
        assert_eq!(timeline.vcpus[1].places[0].what, Place::Running { pcpu: 1 });
    }

    proptest! {
        #[test]
        fn damage_leaves_spans_in_order(cut in 0..KICK.len(), at in 0..KICK.len(), noise in "[ -~\n]{0,30}") {
            let mut text = KICK[..cut].to_owned();
            text.insert_str(at.min(cut), &noise);
            let timeline = of(&text);
            for vcpu in &timeline.vcpus {
                prop_assert!(vcpu.places.iter().all(|span| span.start < span.end));
                prop_assert!(vcpu.places.windows(2).all(|pair| pair[0].end <= pair[1].start));
            }
            let _ = holdfast_lab::trace::encode(&timeline);
        }
    }
}
