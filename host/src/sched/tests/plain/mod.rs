//! The balancer's search and the placement of threads, compared with plain code on hosts at random.

mod busiest;
mod picking;
mod placing;
mod pulling;

use super::*;

/// What plain code knows of a pCPU.
#[derive(Clone, Debug)]
struct Pcpu {
    place: PcpuPlace,
    load: u64,
    running: u64,
    /// Load of the running thread.
    current: u64,
    idle: bool,
    excluded: bool,
    /// Averages of the load, each over twice as many ticks as the one before.
    past: [u64; 5],
}

/// A host at random: its shape, and for each pCPU the weights of its threads, its past loads and whether it is
/// excluded from the pass, or has a thread on its way.
#[derive(Clone, Debug)]
struct Shape {
    places: Vec<PcpuPlace>,
    threads: Vec<(Vec<u64>, [u64; 5], u8)>,
}

fn shape() -> impl Strategy<Value = Shape> {
    let sizes = prop_oneof![
        Just((2, 1, 1)),
        Just((1, 2, 2)),
        Just((2, 2, 1)),
        Just((2, 2, 2)),
        Just((3, 2, 1))
    ];
    let weight = || prop_oneof![3 => Just(1_024u64), 1 => Just(512), 1 => 15u64..5_000];
    let past = prop::array::uniform5(prop_oneof![2 => Just(1_024u64), 1 => 0u64..6_000]);
    let threads = (prop::collection::vec(weight(), 0..5), past, 0u8..12);
    sizes.prop_flat_map(move |(sockets, cores, siblings)| {
        let places: Vec<PcpuPlace> = (0..sockets * cores * siblings)
            .map(|at: u32| PcpuPlace {
                socket: at / siblings / cores,
                core: at / siblings % cores,
                thread: at % siblings,
            })
            .collect();
        let count = places.len();
        (
            Just(places).prop_shuffle(),
            prop::collection::vec(threads.clone(), count),
        )
            .prop_map(|(places, threads)| Shape { places, threads })
    })
}

/// Makes the scheduler that `shape` describes, and its plain copy.
fn host(kind: SchedulerKind, shape: &Shape) -> (Bench, Vec<Pcpu>) {
    let config = HostConfig {
        sched: SchedConfig::of(kind),
        ..HostConfig::default()
    };
    let mut bench = Bench {
        sched: Scheduler::new(&config, &shape.places).expect("a valid scheduler"),
        now: 0,
        out: Vec::new(),
    };
    for (pcpu, (weights, past, other)) in (0..).zip(&shape.threads) {
        for &weight in weights {
            let task = bench.sched.add_thread(weight, ROOT, None);
            bench.sched.rehome(task, pcpu);
            bench.on(pcpu, |sched, step| sched.activate(task, Arrival::Moved, step));
        }
        if !weights.is_empty() {
            bench.schedule(pcpu);
        }
        bench.sched.rq_mut(pcpu).load = *past;
        match other {
            0 => bench.sched.excluded.push(pcpu),
            1 => bench.sched.rq_mut(pcpu).wake_list.push(TaskId(0)),
            _ => {}
        }
    }
    let plain = (0..)
        .zip(&shape.threads)
        .zip(&shape.places)
        .map(|((pcpu, (weights, past, other)), &place)| Pcpu {
            place,
            load: bench.sched.load(pcpu),
            running: weights.len() as u64,
            current: bench.sched.current(pcpu).map_or(0, |task| {
                bench
                    .sched
                    .hierarchy
                    .hierarchical_task_load(bench.sched.threads[task].entity)
            }),
            idle: weights.is_empty() && *other != 1,
            excluded: *other == 0,
            past: *past,
        });
    let plain = plain.collect();
    (bench, plain)
}

/// Returns the domains of `pcpu`, the smallest first, each as its groups in the order of their places.
fn domains(pcpus: &[Pcpu], pcpu: usize) -> Vec<Vec<Vec<usize>>> {
    type Key = fn(PcpuPlace) -> (u32, u32, u32);
    let levels: [Key; 4] = [
        |place| (place.socket, place.core, place.thread),
        |place| (place.socket, place.core, 0),
        |place| (place.socket, 0, 0),
        |_| (0, 0, 0),
    ];
    let mut sorted: Vec<usize> = (0..pcpus.len()).collect();
    sorted.sort_by_key(|&at| pcpus[at].place);
    let mut found = Vec::new();
    for level in levels.windows(2) {
        let mut groups = alloc::collections::BTreeMap::<_, Vec<usize>>::new();
        for &at in &sorted {
            if level[1](pcpus[at].place) == level[1](pcpus[pcpu].place) {
                groups.entry(level[0](pcpus[at].place)).or_default().push(at);
            }
        }
        if groups.len() > 1 {
            found.push(groups.into_values().collect());
        }
    }
    found
}

/// Returns the capacity of `pcpu`: 1024, or its part of the 1178 of a core with several threads.
fn power(pcpus: &[Pcpu], pcpu: usize) -> u64 {
    let core = |at: &Pcpu| (at.place.socket, at.place.core);
    match pcpus.iter().filter(|at| core(at) == core(&pcpus[pcpu])).count() {
        1 => 1_024,
        threads => 1_178 / threads as u64,
    }
}
