//! Runs small benchmarks on this machine's threads, or on simulated threads.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::thread;

use holdfast_lab::profile::MachineProfile;
use holdfast_locks::Budget;
use holdfast_peers::affinity;
use holdfast_sim::{CallOff, Config, SimThread, SimWord, Vm, Waits, run_threads};
use holdfast_threads::{ThisThread, ThreadWord};

use super::host::Host;
use super::micro::{Bench, Micro};
use super::parameter::Closure;
use super::sample::Sampled;

/// Figures of the benchmarks on this machine.
pub type Measured = BTreeMap<Micro, Sampled>;

/// Runs `micro` on this machine. Returns the samples of each thread, or `None` if a thread failed.
pub fn here(micro: Micro, samples: u32) -> Option<Vec<Vec<f64>>> {
    let bench = Bench::<ThreadWord>::new(micro, samples);
    let bench = &bench;
    thread::scope(|scope| {
        let threads: Vec<_> = micro
            .places()
            .iter()
            .enumerate()
            .map(|(role, &cpu)| {
                scope.spawn(move || {
                    affinity::pin(cpu);
                    bench.play(&ThisThread::new(), role)
                })
            })
            .collect();
        let found = threads.into_iter().map(thread::ScopedJoinHandle::join);
        found.collect::<Result<_, _>>().ok()
    })
}

/// Returns this process's settings for waiting threads, which the simulator uses too.
pub fn waits() -> Waits {
    Waits {
        spin_threshold: Budget(holdfast_threads::spin_threshold().0),
        turn_ns: u64::try_from(holdfast_threads::turn().as_nanos()).unwrap_or(u64::MAX),
    }
}

/// Returns the configuration of a program on the machine of `profile` under the scheduler of `host`.
/// Returns `None` if a cost is too large.
pub fn machine_of(profile: &MachineProfile, host: &Host) -> Option<Config> {
    let machine = profile.build()?;
    let program = Vm {
        name: "program".to_owned(),
        vcpus: machine.topology.pcpus(),
        affinity: Vec::new(),
        domains: Vec::new(),
        group: None,
        host: holdfast_host::VmConfig::default(),
        boot: holdfast_workloads::Boot::default(),
        measured: true,
        bare_metal: true,
        inside: None,
        stay: Default::default(),
        vmm: holdfast_sim::VmmConfig::default(),
    };
    Some(Config {
        machine,
        host: host.config(),
        groups: Vec::new(),
        vms: vec![program],
        tasks: Vec::new(),
        noise: 0.0,
        seed: 1,
        execute_spins: false,
        limit_ns: 60_000_000_000,
        migration: None,
        zero_at_ns: None,
        destination: None,
    })
}

/// Runs `micro` in the simulator. Returns the figure of its first thread, or `None` if it cannot run there.
pub fn simulated(micro: Micro, samples: u32, profile: &MachineProfile, host: &Host) -> Option<Sampled> {
    let config = machine_of(profile, host)?;
    let bench = Bench::<SimWord>::new(micro, samples);
    let out = Rc::new(RefCell::new(Vec::new()));
    let told = Rc::clone(&out);
    let affinities: Vec<Vec<u32>> = micro.places().iter().map(|&cpu| vec![cpu as u32]).collect();
    let body = move |thread: &SimThread| {
        let role = thread.index() as usize;
        let samples = bench.play(thread, role);
        if role == 0 {
            *told.borrow_mut() = samples;
            thread.begin();
            thread.done(None);
        }
    };
    run_threads(&config, &CallOff::new(), &affinities, waits(), body).ok()?;
    Sampled::of(out.take())
}

/// Returns all benchmarks on the machine and in the simulator.
pub fn closure(profile: &MachineProfile, host: &Host, measured: &Measured) -> Vec<Closure> {
    let both = measured.iter().map(|(&micro, sampled)| Closure {
        benchmark: micro.name(),
        measured_ns: sampled.median_ns,
        simulated_ns: simulated(micro, 21, profile, host).map(|sampled| sampled.median_ns),
    });
    both.collect()
}
