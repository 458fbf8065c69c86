//! Tasks that are no vCPUs and are preempted only where they say so: a kernel's own.

use holdfast_host::{
    Command, Event, HardwareEvent, Host, HostConfig, HostInterrupt, Nanos, PcpuId, Run, TaskConfig, TaskEvent, TaskId,
    VcpuId, VmConfig,
};

use crate::world::{Guest, MS, World, places};

const HERE: PcpuId = PcpuId(0);

/// A host with `pcpus` and two voluntary tasks: the first runs on pCPU 0, the second may be dormant.
struct Bench {
    host: Host,
    now: u64,
    first: TaskId,
    second: TaskId,
}

impl Bench {
    fn new(pcpus: u32, second_is_dormant: bool) -> Bench {
        let config = HostConfig::default();
        let mut host = Host::new(&config, &places(1, pcpus, 1)).expect("a valid host");
        let mut add = |dormant| {
            let config = TaskConfig {
                voluntary: true,
                dormant,
                ..TaskConfig::default()
            };
            host.add_task(&config).expect("a valid task")
        };
        let (mut first, mut second) = (add(false), add(second_is_dormant));
        let mut out = Vec::new();
        host.start(Nanos(0), &mut out);
        let runs = |task| {
            out.contains(&Command::Run {
                pcpu: HERE,
                run: Run::Task(task),
            })
        };
        if runs(second) {
            (first, second) = (second, first);
        }
        assert!(runs(first), "{out:?}");
        Bench {
            host,
            now: 0,
            first,
            second,
        }
    }

    /// Handles `event`. Returns what its pCPU runs then, and all commands.
    fn step(&mut self, event: Event) -> (Run, Vec<Command>) {
        let mut out = Vec::new();
        self.host.handle(event, Nanos(self.now), &mut out);
        let run = out.iter().find_map(|command| match command {
            Command::Run { pcpu, run } if *pcpu == event.pcpu() => Some(*run),
            _ => None,
        });
        (run.expect("every event has its run"), out)
    }

    /// Lets 100 ms of ticks pass. Returns what runs then.
    fn tick_long(&mut self) -> Run {
        let mut run = Run::Idle;
        for _ in 0..100 {
            self.now += MS;
            let interrupt = HostInterrupt::Timer;
            run = self
                .step(Event::Hardware(HardwareEvent::Interrupt { pcpu: HERE, interrupt }))
                .0;
        }
        run
    }
}

#[test]
fn a_voluntary_task_keeps_its_pcpu_until_it_yields() {
    let mut bench = Bench::new(1, false);
    assert_eq!(bench.tick_long(), Run::Task(bench.first));
    assert!(bench.host.wants_to_reschedule(HERE), "a slice is less than 100 ms");
    let (run, out) = bench.step(Event::Task(TaskEvent::Yields { pcpu: HERE }));
    assert_eq!(run, Run::Task(bench.second));
    let (task, pcpu) = (bench.first, HERE);
    assert!(out.contains(&Command::TaskWaits { task, pcpu }), "{out:?}");
    assert!(!bench.host.wants_to_reschedule(HERE));
}

#[test]
fn a_yield_that_nobody_asked_for_changes_nothing() {
    let mut bench = Bench::new(1, false);
    let (run, _) = bench.step(Event::Task(TaskEvent::Yields { pcpu: HERE }));
    assert_eq!(run, Run::Task(bench.first));
}

#[test]
fn no_wakeup_is_lost_before_its_sleep() {
    let mut bench = Bench::new(2, false);
    let (here, there) = (HERE, PcpuId(1));
    // The second task, on the other pCPU, is about to sleep when the first wakes it.
    let task = bench.second;
    bench.step(Event::Task(TaskEvent::Wakes { pcpu: here, task }));
    let sleep = Event::Task(TaskEvent::Sleeps {
        pcpu: there,
        until: None,
    });
    assert_eq!(bench.step(sleep).0, Run::Task(task), "the wake-up was kept");
    assert_eq!(bench.step(sleep).0, Run::Idle, "for one sleep only");
    let (_, out) = bench.step(Event::Task(TaskEvent::Wakes { pcpu: here, task }));
    assert!(
        out.iter()
            .any(|command| matches!(command, Command::TaskWaits { task: who, .. } if *who == task))
    );
}

#[test]
fn a_task_lives_again_after_its_end_and_not_before() {
    let mut bench = Bench::new(2, true);
    let there = PcpuId(1);
    let task = bench.second;
    let waits = |out: &[Command]| out.contains(&Command::TaskWaits { task, pcpu: there });
    assert!(waits(
        &bench.step(Event::Task(TaskEvent::Starts { pcpu: HERE, task })).1
    ));
    let interrupt = HostInterrupt::Reschedule;
    assert_eq!(
        bench
            .step(Event::Hardware(HardwareEvent::Interrupt { pcpu: there, interrupt }))
            .0,
        Run::Task(task)
    );
    // Its slot is given to a new task before it has quite ended.
    let (_, out) = bench.step(Event::Task(TaskEvent::Starts { pcpu: HERE, task }));
    assert!(!waits(&out), "it runs still");
    let (run, out) = bench.step(Event::Task(TaskEvent::Ends { pcpu: there }));
    assert!(run == Run::Task(task) || waits(&out), "{run:?} {out:?}");
}

#[test]
fn an_exec_moves_to_an_idle_pcpu() {
    let mut bench = Bench::new(2, true);
    let (task, pcpu) = (bench.first, PcpuId(1));
    let (run, out) = bench.step(Event::Task(TaskEvent::Executes { pcpu: HERE }));
    assert_eq!(run, Run::Idle, "it has left");
    assert!(out.contains(&Command::TaskWaits { task, pcpu }), "{out:?}");
    let interrupt = HostInterrupt::Reschedule;
    assert_eq!(
        bench
            .step(Event::Hardware(HardwareEvent::Interrupt { pcpu, interrupt }))
            .0,
        Run::Task(task)
    );
}

#[test]
#[should_panic(expected = "is a vCPU's thread")]
fn no_task_wakes_the_thread_of_a_vcpu() {
    let mut world = World::new(&HostConfig::default(), &places(1, 2, 1));
    world.add_vm(&VmConfig::default(), &[vec![1]], vec![Guest::hog()]);
    let affinity = vec![0];
    let task = TaskConfig {
        affinity,
        ..TaskConfig::default()
    };
    world.add_task(&task, u64::MAX, 0);
    world.start();
    world.run_until(MS);
    let task = world.host.thread(VcpuId(0));
    world.handle(Event::Task(TaskEvent::Wakes { pcpu: HERE, task }));
}
