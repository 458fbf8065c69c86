//! A host, and what its commands have set up: what each pCPU does, and its timer. All rigs of these tests drive their
//! hosts by it.

use holdfast_host::{
    Command, Event, Exit, GuestState, HardwareEvent, Host, HostConfig, HostInterrupt, Nanos, PcpuId, PcpuPlace, Run,
    VcpuId, VmId,
};

/// A host that is given events and time.
pub struct Driver {
    pub host: Host,
    pub now: u64,
    /// What each pCPU does, or will after the host code that it was charged.
    pub runs: Vec<Run>,
    pub timers: Vec<Option<u64>>,
    /// How many events there were.
    pub batches: u64,
}

impl Driver {
    pub fn new(config: &HostConfig, places: &[PcpuPlace]) -> Driver {
        Driver {
            host: Host::new(config, places).expect("a valid host"),
            now: 0,
            runs: vec![Run::Idle; places.len()],
            timers: vec![None; places.len()],
            batches: 0,
        }
    }

    /// Starts the host. Returns its commands.
    pub fn start_host(&mut self) -> Vec<Command> {
        let mut out = Vec::new();
        self.host.start(Nanos(self.now), &mut out);
        self.note(&out);
        out
    }

    /// Reports `event` to the host, and checks that it keeps the boundary's contract. Returns its commands.
    pub fn report(&mut self, event: Event) -> Vec<Command> {
        let mut out = Vec::new();
        self.host.handle(event, Nanos(self.now), &mut out);
        self.check_run(event.pcpu(), &out);
        self.note(&out);
        out
    }

    fn note(&mut self, out: &[Command]) {
        for command in out {
            match *command {
                Command::Run { pcpu, run } => self.runs[pcpu.0 as usize] = run,
                Command::Timer { pcpu, at } => {
                    let past = at.is_some_and(|at| at.0 < self.now);
                    assert!(!past, "pcpu {}: timer set to the past", pcpu.0);
                    self.timers[pcpu.0 as usize] = at.map(|at| at.0);
                }
                _ => {}
            }
        }
    }

    /// Returns the vCPU in guest mode on `pcpu`.
    pub fn guest_on(&self, pcpu: u32) -> Option<u32> {
        match self.runs[pcpu as usize] {
            Run::Guest { vcpu, .. } => Some(vcpu.0),
            _ => None,
        }
    }

    /// Returns the event by which the host hears of `interrupt` on `pcpu`. `guest` gives the state of a vCPU that it
    /// makes exit.
    pub fn arrival(&self, pcpu: u32, interrupt: HostInterrupt, guest: impl FnOnce(VcpuId) -> GuestState) -> Event {
        let at = PcpuId(pcpu);
        match self.runs[pcpu as usize] {
            Run::Guest { vcpu, .. } => Event::Hardware(HardwareEvent::Exit {
                pcpu: at,
                exit: Exit::ExternalInterrupt(interrupt),
                guest: guest(vcpu),
            }),
            _ => Event::Hardware(HardwareEvent::Interrupt { pcpu: at, interrupt }),
        }
    }

    /// Returns the time and the pCPU of the first timer.
    pub fn first_timer(&self) -> Option<(u64, u32)> {
        let due = |pcpu: usize| Some((self.timers[pcpu]?, pcpu as u32));
        (0..self.timers.len()).filter_map(due).min()
    }

    pub fn counter(&self, vm: VmId, name: &str) -> u64 {
        let found = self.host.counters(vm).find(|(at, _)| *at == name);
        found.unwrap_or_else(|| panic!("no counter {name}")).1
    }
}

/// Makes a rig give access to its driver.
macro_rules! drives {
    ($rig:ty) => {
        impl std::ops::Deref for $rig {
            type Target = $crate::world::Driver;

            fn deref(&self) -> &Self::Target {
                &self.driver
            }
        }

        impl std::ops::DerefMut for $rig {
            fn deref_mut(&mut self) -> &mut Self::Target {
                &mut self.driver
            }
        }
    };
}
pub(crate) use drives;
