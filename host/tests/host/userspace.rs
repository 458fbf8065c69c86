//! vCPUs out of `KVM_RUN`, and threads that come and go: whom a directed yield finds
//! (docs/spec/host.md, "Threads of vCPUs").

use holdfast_host::{
    Command, Event, Exit, GuestState, HardwareEvent, HostConfig, HostInterrupt, Nanos, PauseHandling, PcpuId, Planted,
    Run, SpinFaults, TaskConfig, TaskEvent, TaskId, VcpuId, VcpuState, VmConfig, VmId, YieldFilters,
};
use proptest::prelude::*;

use crate::world::{Driver, MS, drives, places};

const GUEST: GuestState = GuestState {
    interrupts_enabled: true,
    cpl: 0,
    cr8: 0,
    undelivered: None,
    pv_eoi: false,
    word: 0,
};

/// A host with a list of explicit events.
struct Bench {
    driver: Driver,
    ipis: Vec<PcpuId>,
    /// All directed yields: from, to, done.
    yields: Vec<(VcpuId, VcpuId, bool)>,
    states: Vec<VcpuState>,
}

drives!(Bench);

impl Bench {
    /// Pinned to pCPU 0: vCPUs with these threads, then host tasks, of which the last sleeps until it is started.
    fn new(pause: PauseHandling, pcpus: u32, vcpus: u32, tasks: u32) -> Bench {
        Bench::planted(pause, SpinFaults::default(), pcpus, vcpus, tasks)
    }

    /// Returns the bench of [`Bench::new`] with planted `faults`.
    fn planted(pause: PauseHandling, faults: SpinFaults, pcpus: u32, vcpus: u32, tasks: u32) -> Bench {
        let config = HostConfig {
            pause,
            planted: Planted {
                pause: faults,
                ..Planted::default()
            },
            ..HostConfig::default()
        };
        let mut driver = Driver::new(&config, &places(1, pcpus, 1));
        let host = &mut driver.host;
        host.add_vm(&VmConfig::default(), vcpus, &[]).expect("a valid vm");
        for task in 0..tasks {
            let task = TaskConfig {
                dormant: task + 1 == tasks,
                ..TaskConfig::default()
            };
            host.add_task(&task).expect("a valid task");
        }
        let mut bench = Bench {
            driver,
            ipis: Vec::new(),
            yields: Vec::new(),
            states: vec![VcpuState::Woken; vcpus as usize],
        };
        let out = bench.start_host();
        bench.take(out);
        bench
    }

    fn take(&mut self, out: Vec<Command>) {
        for command in out {
            match command {
                Command::Ipi { to, .. } => self.ipis.push(to),
                Command::DirectedYield { from, to, done } => self.yields.push((from, to, done)),
                Command::State { vcpu, state } => self.states[vcpu.0 as usize] = state,
                _ => {}
            }
        }
    }

    fn event(&mut self, event: Event) {
        let out = self.report(event);
        self.take(out);
        while let Some(to) = self.ipis.pop() {
            self.interrupt(to, HostInterrupt::Reschedule);
        }
    }

    fn interrupt(&mut self, pcpu: PcpuId, interrupt: HostInterrupt) {
        let event = self.arrival(pcpu.0, interrupt, |_| GUEST);
        self.event(event);
    }

    fn exit(&mut self, pcpu: u32, exit: Exit) {
        self.event(Event::Hardware(HardwareEvent::Exit {
            pcpu: PcpuId(pcpu),
            exit,
            guest: GUEST,
        }));
    }

    /// Lets time and its timers pass until `is_so`, at most a second.
    fn until(&mut self, is_so: impl Fn(&Bench) -> bool) {
        let end = self.now + 1_000 * MS;
        while !is_so(self) {
            let (at, pcpu) = self.first_timer().expect("a tick");
            assert!(at < end, "it never comes to that: {:?}", self.runs);
            self.now = self.now.max(at);
            self.timers[pcpu as usize] = None;
            self.interrupt(PcpuId(pcpu), HostInterrupt::Timer);
        }
    }

    fn task(&self, pcpu: usize) -> Option<TaskId> {
        match self.runs[pcpu] {
            Run::Task(task) => Some(task),
            _ => None,
        }
    }

    /// Lets time pass until `vcpu` is in guest mode on pCPU 0.
    fn until_guest(&mut self, vcpu: u32) {
        self.until(|bench| bench.guest_on(0) == Some(vcpu));
    }
}

const P0: PcpuId = PcpuId(0);

/// Returns the target of a pause exit of vCPU 0 while vCPU 1 is preempted in user space, and the number of targets
/// tried.
fn yields_to_user_space(filters: YieldFilters) -> (Option<u32>, u64) {
    let pause = PauseHandling {
        filters,
        ..PauseHandling::DIRECTED_YIELD_2011
    };
    let mut bench = Bench::new(pause, 1, 2, 0);
    bench.until_guest(1);
    bench.exit(0, Exit::Userspace);
    assert_eq!(bench.states[1], VcpuState::Userspace);
    assert_eq!(bench.task(0), Some(TaskId(1)), "its thread goes on as a task");
    bench.until_guest(0);
    assert_eq!(
        bench.states[1],
        VcpuState::Userspace,
        "its thread was preempted, the vcpu was not"
    );
    bench.exit(0, Exit::Pause);
    let done = bench.yields.iter().find(|(.., done)| *done).map(|(_, to, _)| to.0);
    (done, bench.counter(VmId(0), "directed_yield_attempted"))
}

#[test]
fn who_is_preempted_in_user_space_is_yielded_to_until_3_9_and_not_later() {
    for filters in [YieldFilters::NONE, YieldFilters::LINUX_3_6, YieldFilters::LINUX_3_9] {
        assert_eq!(yields_to_user_space(filters), (Some(1), 1), "{filters:?}");
    }
    for filters in [
        YieldFilters::LINUX_3_10,
        YieldFilters::LINUX_4_14,
        YieldFilters::LINUX_5_3,
        YieldFilters::LINUX_6_9,
    ] {
        assert_eq!(yields_to_user_space(filters), (None, 0), "{filters:?}");
    }
}

/// vCPU 1 of two has left `KVM_RUN` in its own thread, which sleeps; task 2 takes it over.
fn taken_over(faults: SpinFaults) -> Bench {
    let mut bench = Bench::planted(PauseHandling::DIRECTED_YIELD_2011, faults, 1, 2, 2);
    bench.until_guest(1);
    bench.exit(0, Exit::Userspace);
    bench.event(Event::Task(TaskEvent::Sleeps { pcpu: P0, until: None }));
    bench.until(|bench| bench.task(0) == Some(TaskId(2)));
    bench.event(Event::Task(TaskEvent::RunsVcpu {
        pcpu: P0,
        vcpu: VcpuId(1),
    }));
    assert_eq!(bench.guest_on(0), Some(1));
    assert_eq!(bench.counter(VmId(0), "thread_changes"), 1);
    bench
}

#[test]
fn a_vcpu_that_another_thread_runs_is_yielded_to_by_that_thread() {
    let mut bench = taken_over(SpinFaults::default());
    bench.until_guest(0);
    assert_eq!(bench.states[1], VcpuState::Preempted);
    bench.exit(0, Exit::Pause);
    assert_eq!(bench.yields, [(VcpuId(0), VcpuId(1), true)]);
    let sleeper = bench.host.cpu_time(TaskId(1), Nanos(bench.now));
    bench.until_guest(1);
    assert_eq!(
        bench.host.cpu_time(TaskId(1), Nanos(bench.now)),
        sleeper,
        "it was not the one that sleeps"
    );
}

#[test]
fn a_vcpu_whose_thread_died_is_skipped() {
    let mut bench = taken_over(SpinFaults::default());
    bench.exit(0, Exit::Userspace);
    bench.event(Event::Task(TaskEvent::Ends { pcpu: P0 }));
    bench.until_guest(0);
    bench.exit(0, Exit::Pause);
    assert!(bench.yields.iter().all(|(.., done)| !done), "{:?}", bench.yields);
    assert_eq!(bench.guest_on(0), Some(0), "the spinner goes on");
}

/// Returns whether vCPU 0, which pauses, yields to a restarted task. The task has run vCPU 1 and ended, and its number
/// waits for the pCPU again.
fn yields_to_a_stranger(faults: SpinFaults) -> bool {
    let mut bench = Bench::planted(PauseHandling::DIRECTED_YIELD_2011, faults, 1, 2, 2);
    let (plain, last) = (TaskId(2), TaskId(3));
    bench.until_guest(1);
    bench.exit(0, Exit::Userspace);
    bench.event(Event::Task(TaskEvent::Sleeps { pcpu: P0, until: None }));
    bench.until(|bench| bench.task(0) == Some(plain));
    bench.event(Event::Task(TaskEvent::Starts { pcpu: P0, task: last }));
    bench.until(|bench| bench.task(0) == Some(last));
    bench.event(Event::Task(TaskEvent::RunsVcpu {
        pcpu: P0,
        vcpu: VcpuId(1),
    }));
    bench.exit(0, Exit::Userspace);
    bench.event(Event::Task(TaskEvent::Ends { pcpu: P0 }));
    bench.until(|bench| bench.task(0) == Some(plain));
    bench.event(Event::Task(TaskEvent::Starts { pcpu: P0, task: last }));
    bench.until_guest(0);
    bench.exit(0, Exit::Pause);
    bench.yields.iter().any(|(.., done)| *done)
}

#[test]
fn a_thread_with_a_dead_threads_number_is_not_taken_for_it() {
    assert!(!yields_to_a_stranger(SpinFaults::default()));
    let planted = SpinFaults {
        dead_threads_stay: true,
        ..SpinFaults::default()
    };
    assert!(yields_to_a_stranger(planted), "the planted fault does not show");
}

#[test]
fn a_timer_that_expires_in_user_space_is_injected_at_the_next_entry_and_wakes_nobody() {
    let mut bench = Bench::new(PauseHandling::NONE, 1, 1, 0);
    bench.until_guest(0);
    let write = |bench: &mut Bench, offset, value| bench.exit(0, Exit::ApicWrite { offset, value });
    write(&mut bench, 0xf0, 0x1ff);
    write(&mut bench, 0x320, 0x51);
    write(&mut bench, 0x3e0, 0xb);
    write(&mut bench, 0x380, 3 * MS as u32);
    bench.exit(0, Exit::Userspace);
    let later = bench.now + 40 * MS;
    bench.event(Event::Task(TaskEvent::Sleeps {
        pcpu: P0,
        until: Some(Nanos(later)),
    }));
    assert_eq!(bench.runs[0], Run::Idle);
    bench.until(|bench| bench.counter(VmId(0), "apic_timer") == 1);
    assert_eq!(bench.runs[0], Run::Idle, "what its thread waits for is another thing");
    bench.until(|bench| bench.task(0) == Some(TaskId(0)));
    assert!(bench.now >= later);
    bench.event(Event::Task(TaskEvent::RunsVcpu {
        pcpu: P0,
        vcpu: VcpuId(0),
    }));
    let Run::Guest { inject, .. } = bench.runs[0] else {
        panic!("not in guest mode")
    };
    assert_eq!(inject, Some(0x51));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    /// Whatever threads do with vCPUs, a successful yield goes to a vCPU whose thread exists and waits, and no time is
    /// lost.
    #[test]
    fn threads_that_take_turns_with_vcpus_break_nothing(
        acts in proptest::collection::vec((0u32..2, 0u32..8, 0u32..3, 1u64..3 * MS), 1..300), later in any::<bool>(),
    ) {
        let filters = if later { YieldFilters::LINUX_6_9 } else { YieldFilters::NONE };
        let mut bench = Bench::new(PauseHandling { filters, ..PauseHandling::DIRECTED_YIELD_2011 }, 2, 3, 3);
        // For each vCPU the thread that has it, or had it last, in KVM_RUN.
        let mut threads = [0, 1, 2];
        for (pcpu, act, which, wait) in acts {
            let at = pcpu as usize;
            bench.now += wait;
            let overdue = bench.timers.iter().position(|due| due.is_some_and(|due| due <= bench.now));
            if let Some(overdue) = overdue {
                bench.timers[overdue] = None;
                bench.interrupt(PcpuId(overdue as u32), HostInterrupt::Timer);
            }
            let pcpu = PcpuId(pcpu);
            let before = bench.yields.len();
            let states = bench.states.clone();
            match (bench.runs[at], act) {
                (Run::Guest { .. }, 0..3) => bench.exit(pcpu.0, Exit::Userspace),
                (Run::Guest { .. }, _) => bench.exit(pcpu.0, Exit::Pause),
                (Run::Task(task), 0..4) if states[which as usize] == VcpuState::Userspace => {
                    threads[which as usize] = task.0;
                    bench.event(Event::Task(TaskEvent::RunsVcpu { pcpu, vcpu: VcpuId(which) }));
                }
                (Run::Task(_), 4) => {
                    let until = Some(Nanos(bench.now + wait));
                    bench.event(Event::Task(TaskEvent::Sleeps { pcpu, until }));
                }
                (Run::Task(task), 5) if task.0 == 5 => bench.event(Event::Task(TaskEvent::Ends { pcpu })),
                (Run::Task(task), 6)
                    if task.0 != 5
                        && (0..3).all(|vcpu| threads[vcpu] != 5 || states[vcpu] == VcpuState::Userspace) =>
                    bench.event(Event::Task(TaskEvent::Starts { pcpu, task: TaskId(5) })),
                _ => {}
            }
            for (from, to, done) in &bench.yields[before..] {
                prop_assert_ne!(from, to);
                let asleep = matches!(states[to.0 as usize], VcpuState::Blocked | VcpuState::Dead | VcpuState::InGuest);
                prop_assert!(!(asleep && *done), "yielded to one that is {:?}", states[to.0 as usize]);
            }
            let now = Nanos(bench.now);
            let ran: u64 = (0..6).map(|task| bench.host.cpu_time(TaskId(task), now).0).sum();
            let idle: u64 = (0..2).map(|pcpu| bench.host.idle_time(PcpuId(pcpu), now).0).sum();
            prop_assert_eq!(ran + idle, 2 * bench.now);
        }
    }
}
