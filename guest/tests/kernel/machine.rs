//! A machine for small programs.

use std::rc::Rc;

use holdfast_guest::{Config as Kernel, Fork, Limits, Machine, Os, Program, Start};
use holdfast_host::{HostConfig, PvFaults, VmConfig};
use holdfast_machine::{Costs, Picos, Profile, Topology};
use holdfast_sim::{CallOff, Config, DiskConfig, Failure, Outcome, SimMachine, Vm, VmmConfig, run_images};
use holdfast_workloads::{Boot, Hog, Netperf, Workload};

/// The body of every task, called with the kernel and what the task was started with.
pub type Body = Rc<dyn Fn(&Os<SimMachine>, Start)>;

struct Small {
    limits: Limits,
    body: Body,
}

impl Program<SimMachine> for Small {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn run(&self, os: &Os<SimMachine>, start: Start) {
        (self.body)(os, start);
    }
}

/// The machine, kernel and host for a program.
#[derive(Clone)]
pub struct Setup {
    pub pcpus: u32,
    pub vcpus: u32,
    pub kernel: Kernel,
    /// The features that the host offers.
    pub host: VmConfig,
    /// Faults planted in these features.
    pub faults: PvFaults,
    /// vCPUs of another guest, which always compute.
    pub hogs: u32,
    pub seed: u64,
    /// The time that a thread loses to cold caches when it gets a pCPU. The host delays its entry to the guest by that.
    pub cache_refill_ns: u64,
    /// Operations of the machine itself take no time. What is left is the kernel's own work.
    pub is_free: bool,
    /// There is no guest: the kernel runs on the machine itself, whose scheduler runs its tasks as threads.
    pub bare_metal: bool,
    /// The guest has a network device. A server on the host answers each message with its number.
    pub network: bool,
    pub disk: Option<DiskConfig>,
    pub limits: Limits,
}

impl Default for Setup {
    fn default() -> Self {
        let limits = Limits {
            tasks: 64,
            files: 8,
            pipes: 4,
            sockets: 8,
            streams: 8,
            epolls: 2,
            semaphore_arrays: 2,
            semaphores: 4,
            ..Limits::default()
        };
        Setup {
            pcpus: 4,
            vcpus: 4,
            kernel: Kernel::default(),
            host: VmConfig::default(),
            faults: PvFaults::default(),
            hogs: 0,
            seed: 1,
            cache_refill_ns: 0,
            is_free: false,
            bare_metal: false,
            network: false,
            disk: None,
            limits,
        }
    }
}

fn profile(setup: &Setup) -> Profile {
    let ns = Picos::from_nanos;
    let costs = if setup.is_free {
        Costs::default()
    } else {
        Costs {
            load_hit: ns(1),
            rmw_hit: ns(7),
            pause: ns(3),
            transfer_socket: ns(40),
            guest_interrupt: ns(200),
            exit_hardware: ns(400),
            exit_software: ns(300),
            msr: ns(200),
            ipi_latency: ns(500),
            wake: ns(700),
            context_switch: ns(1000),
            cache_refill: ns(setup.cache_refill_ns),
            ..Costs::default()
        }
    };
    let topology = Topology {
        sockets: 1,
        cores: setup.pcpus,
        threads: 1,
    };
    Profile {
        name: "test".into(),
        topology,
        numbering: holdfast_machine::Numbering::default(),
        frequency_hz: 3_000_000_000,
        costs,
        idle_states: Vec::new(),
        pcid: false,
        pause_hardware: None,
        avic: None,
        apicv: None,
    }
}

/// Runs `body` as every task of a guest.
pub fn try_run(setup: &Setup, body: impl Fn(&Os<SimMachine>, Start) + 'static) -> Result<Outcome, Failure> {
    let vm = |name: &str, vcpus, workload, measured| Vm {
        name: name.into(),
        vcpus,
        affinity: Vec::new(),
        domains: Vec::new(),
        group: None,
        host: setup.host,
        boot: Boot {
            kernel: Kernel {
                lock: setup.kernel.lock,
                ..Kernel::default()
            },
            workload,
            ..Boot::default()
        },
        measured,
        bare_metal: measured && setup.bare_metal,
        inside: None,
        stay: Default::default(),
        vmm: VmmConfig {
            disk: setup.disk.filter(|_| measured),
            ..VmmConfig::default()
        },
    };
    let workload = if setup.network {
        Workload::Netperf(Netperf::default())
    } else {
        Workload::Idle
    };
    let mut vms = vec![vm("program", setup.vcpus, workload, true)];
    if setup.hogs > 0 {
        vms.push(vm("hogs", setup.hogs, Workload::Hog(Hog::default()), false));
    }
    let mut host = HostConfig::linux_3_3();
    host.planted.pv = setup.faults;
    let config = Config {
        machine: profile(setup),
        host,
        groups: Vec::new(),
        vms,
        tasks: Vec::new(),
        seed: setup.seed,
        execute_spins: false,
        limit_ns: 100_000_000_000,
        migration: None,
        noise: 0.0,
        zero_at_ns: None,
        destination: None,
    };
    let body: Body = Rc::new(body);
    run_images(&config, &CallOff::new(), |vm, machine| {
        if vm.name != "program" {
            return holdfast_workloads::image(machine, &vm.boot);
        }
        assert_eq!(machine.cpus(), setup.vcpus);
        holdfast_guest::image(
            machine,
            setup.kernel.clone(),
            Box::new(Small {
                limits: setup.limits,
                body: body.clone(),
            }),
        )
    })
}

/// [`try_run`] for a program that must finish.
pub fn run(setup: &Setup, body: impl Fn(&Os<SimMachine>, Start) + 'static) -> Outcome {
    try_run(setup, body).unwrap_or_else(|failure| panic!("{failure}"))
}

/// Returns a counter of the program's guest.
pub fn counter(outcome: &Outcome, name: &str) -> u64 {
    outcome.vms[0].counters.get(name).copied().unwrap_or(0)
}

/// Runs the first task of a program: starts `count` processes of role 1, waits for them, and reports.
pub fn lead(os: &Os<SimMachine>, count: u32) {
    lead_forked(os, count, Fork::Copy { vmas: 4 });
}

/// As [`lead`], with processes or threads made by `fork`.
pub fn lead_forked(os: &Os<SimMachine>, count: u32, fork: Fork) {
    os.wait_for_cpus();
    os.begin();
    for argument in 0..count {
        os.fork(fork, Start::new(1, argument));
    }
    for _ in 0..count {
        assert!(os.wait().is_some(), "a child was lost");
    }
    assert!(os.wait().is_none(), "a child too many");
    os.done(None);
}
