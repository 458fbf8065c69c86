//! A world around the host alone: pCPUs, timers and interrupts in virtual time, and small guests that exit.
//!
//! It keeps the boundary's contract from the other side, and checks that the host keeps its own: every batch of
//! commands goes through `Driver::check_run` (`checks.rs`) and [`World::apply`].

mod checks;
mod driver;
mod guest;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use holdfast_host::{
    Command, Event, Exit, GuestState, HardwareEvent, HostConfig, HostInterrupt, Nanos, PcpuId, PcpuPlace, Run,
    SavedVcpu, TaskConfig, TaskEvent, TaskId, VcpuId, VcpuState, VmConfig, VmId,
};

use checks::is_legal;
pub use driver::Driver;
pub(crate) use driver::drives;
pub use guest::{Guest, Op, Rng};

/// A host task that is not a vCPU.
#[derive(Clone, Copy, Debug)]
pub struct Plain {
    pub busy_ns: u64,
    pub sleep_ns: u64,
    left: u64,
}

struct Pcpu {
    /// When its run begins; host code is executed until then.
    begins: u64,
    /// Interrupts that wait for the end of host code.
    pending: Vec<HostInterrupt>,
    /// Counts `Run`s: events scheduled for an earlier one are void.
    generation: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// Host code of this generation is over.
    Begin(u64),
    /// What runs in this generation has come to its exit, or its sleep.
    Ends(u64),
    Timer,
    Ipi,
}

/// Nanoseconds of a millisecond.
pub const MS: u64 = 1_000_000;

/// Memory of a guest by default.
const MEMORY: u64 = 4 << 30;

/// Host, guests and hardware in virtual time.
pub struct World {
    driver: Driver,
    pub guests: Vec<Guest>,
    pub plain: Vec<(TaskId, Plain)>,
    pcpus: Vec<Pcpu>,
    queue: BinaryHeap<Reverse<(u64, u64, u32, What)>>,
    sequence: u64,
    /// All commands with their times, if kept.
    pub trace: Option<Vec<(u64, Command)>>,
    /// The exit with which the guest on each pCPU will leave in its present run.
    exits: Vec<Option<Exit>>,
    /// Cost of each charge.
    pub cost_ns: u64,
    /// At every injection the LAPIC has in service what the guest has not ended yet.
    pub checks_service: bool,
}

/// Returns the store of `value` at `offset` of the LAPIC's page.
pub fn apic(offset: u32, value: u32) -> Op {
    Op::Exit(Exit::ApicWrite { offset, value })
}

/// `sockets` × `cores` × `threads` pCPUs.
pub fn places(sockets: u32, cores: u32, threads: u32) -> Vec<PcpuPlace> {
    let mut places = Vec::new();
    for socket in 0..sockets {
        for core in 0..cores {
            for thread in 0..threads {
                places.push(PcpuPlace { socket, core, thread });
            }
        }
    }
    places
}

drives!(World);

impl World {
    pub fn new(config: &HostConfig, places: &[PcpuPlace]) -> World {
        let pcpus = (0..places.len())
            .map(|_| Pcpu {
                begins: 0,
                pending: Vec::new(),
                generation: 0,
            })
            .collect();
        World {
            driver: Driver::new(config, places),
            guests: Vec::new(),
            plain: Vec::new(),
            pcpus,
            queue: BinaryHeap::new(),
            sequence: 0,
            trace: None,
            exits: vec![None; places.len()],
            cost_ns: 200,
            checks_service: false,
        }
    }

    pub fn add_vm(&mut self, config: &VmConfig, affinity: &[Vec<u32>], guests: Vec<Guest>) -> VmId {
        let vm = self
            .host
            .add_vm(config, guests.len() as u32, affinity)
            .expect("a valid vm");
        self.guests.extend(guests);
        vm
    }

    pub fn add_task(&mut self, config: &TaskConfig, busy_ns: u64, sleep_ns: u64) -> TaskId {
        let task = self.host.add_task(config).expect("a valid task");
        self.plain.push((
            task,
            Plain {
                busy_ns,
                sleep_ns,
                left: busy_ns,
            },
        ));
        task
    }

    pub fn start(&mut self) {
        let out = self.start_host();
        self.apply(&out);
    }

    /// Runs until `end`.
    pub fn run_until(&mut self, end: u64) {
        while let Some(&Reverse((at, _, pcpu, what))) = self.queue.peek() {
            if at > end {
                break;
            }
            self.queue.pop();
            assert!(at >= self.now, "the world's queue is in order");
            self.now = at;
            self.happens(pcpu, what);
        }
        self.now = end;
    }

    fn push(&mut self, at: u64, pcpu: u32, what: What) {
        self.sequence += 1;
        self.queue.push(Reverse((at, self.sequence, pcpu, what)));
    }

    fn happens(&mut self, pcpu: u32, what: What) {
        let at = &mut self.pcpus[pcpu as usize];
        match what {
            What::Begin(generation) if generation == at.generation => {
                if at.pending.is_empty() {
                    self.begin(pcpu);
                } else {
                    let interrupt = at.pending.remove(0);
                    self.interrupt(pcpu, interrupt);
                }
            }
            What::Ends(generation) if generation == at.generation => self.ends(pcpu),
            What::Timer if self.timers[pcpu as usize] == Some(self.now) => {
                self.timers[pcpu as usize] = None;
                self.arrives(pcpu, HostInterrupt::Timer);
            }
            What::Ipi => self.arrives(pcpu, HostInterrupt::Reschedule),
            _ => {}
        }
    }

    fn arrives(&mut self, pcpu: u32, interrupt: HostInterrupt) {
        if self.now < self.pcpus[pcpu as usize].begins {
            self.pcpus[pcpu as usize].pending.push(interrupt);
            return;
        }
        self.stop(pcpu);
        self.interrupt(pcpu, interrupt);
    }

    fn interrupt(&mut self, pcpu: u32, interrupt: HostInterrupt) {
        let guests = &mut self.guests;
        let event = self
            .driver
            .arrival(pcpu, interrupt, |vcpu| guests[vcpu.0 as usize].leave());
        self.handle(event);
    }

    /// Begins the run of `pcpu`, and schedules its end.
    fn begin(&mut self, pcpu: u32) {
        let generation = self.pcpus[pcpu as usize].generation;
        match self.runs[pcpu as usize] {
            Run::Guest { vcpu, .. } => {
                let (after, exit) = self.guest(vcpu).next();
                self.exits[pcpu as usize] = exit;
                self.push(self.now + after, pcpu, What::Ends(generation));
            }
            Run::Task(task) => {
                let plain = self.plain_of(task);
                if plain.busy_ns != u64::MAX {
                    let after = plain.left;
                    self.push(self.now + after, pcpu, What::Ends(generation));
                }
            }
            Run::Poll(_) | Run::Idle => {}
        }
    }

    fn plain_of(&mut self, task: TaskId) -> &mut Plain {
        let found = self.plain.iter_mut().find(|(id, _)| *id == task);
        &mut found.expect("a task that was added").1
    }

    /// Interrupts the run of `pcpu`, and keeps its progress.
    fn stop(&mut self, pcpu: u32) {
        let ran = self.now - self.pcpus[pcpu as usize].begins;
        match self.runs[pcpu as usize] {
            Run::Guest { vcpu, .. } => {
                let undone = self.exits[pcpu as usize].take();
                let guest = self.guest(vcpu);
                guest.ran += ran;
                guest.left = guest.left.saturating_sub(ran);
                // The interrupt came first; the window is the host's to ask for again.
                if let Some(exit) = undone.filter(|&exit| exit != Exit::InterruptWindow) {
                    guest.first.push_front(Op::Exit(exit));
                }
            }
            Run::Task(task) => {
                let plain = self.plain_of(task);
                plain.left = plain.left.saturating_sub(ran).max(1);
            }
            Run::Poll(_) | Run::Idle => {}
        }
    }

    fn ends(&mut self, pcpu: u32) {
        let ran = self.now - self.pcpus[pcpu as usize].begins;
        match self.runs[pcpu as usize] {
            Run::Guest { vcpu, .. } => {
                let exit = self.exits[pcpu as usize].take();
                let guest = self.guest(vcpu);
                guest.ran += ran;
                guest.left = guest.left.saturating_sub(ran);
                match exit {
                    Some(exit) => {
                        let guest = guest.leave();
                        self.handle(Event::Hardware(HardwareEvent::Exit {
                            pcpu: PcpuId(pcpu),
                            exit,
                            guest,
                        }));
                    }
                    // It only computed: the same run goes on.
                    None => {
                        self.pcpus[pcpu as usize].begins = self.now;
                        self.begin(pcpu);
                    }
                }
            }
            Run::Task(task) => {
                let until = self.now;
                let plain = self.plain_of(task);
                plain.left = plain.busy_ns;
                let until = Some(Nanos(until + plain.sleep_ns));
                self.handle(Event::Task(TaskEvent::Sleeps {
                    pcpu: PcpuId(pcpu),
                    until,
                }));
            }
            Run::Poll(_) | Run::Idle => {}
        }
    }

    pub fn handle(&mut self, event: Event) {
        let out = self.report(event);
        self.apply(&out);
        self.check_exclusive();
    }

    fn apply(&mut self, out: &[Command]) {
        let now = self.now;
        if let Some(trace) = &mut self.trace {
            trace.extend(out.iter().map(|&command| (now, command)));
        }
        let mut charged: Vec<(u32, u64)> = Vec::new();
        for &command in out {
            match command {
                Command::Charge { pcpu, count, .. } => {
                    assert!(count > 0, "a charge for nothing");
                    let ns = self.cost_ns * u64::from(count);
                    match charged.iter_mut().find(|(at, _)| *at == pcpu.0) {
                        Some((_, sum)) => *sum += ns,
                        None => charged.push((pcpu.0, ns)),
                    }
                }
                Command::Run { pcpu, run } => {
                    let ns = charged.iter().find(|(at, _)| *at == pcpu.0).map_or(0, |&(_, sum)| sum);
                    self.run(pcpu.0, run, ns);
                }
                Command::Timer { pcpu, at } => {
                    if let Some(at) = at {
                        self.push(at.0, pcpu.0, What::Timer);
                    }
                }
                Command::Ipi { from, to } => {
                    assert_ne!(from, to, "an ipi to oneself");
                    self.push(self.now + 1_000, to.0, What::Ipi);
                }
                // These guests' machine has no AVIC.
                Command::Doorbell { .. } => panic!("a doorbell without AVIC"),
                Command::Notify { .. } => panic!("something is posted without APICv"),
                Command::Reply { vcpu, value } => self.guest(vcpu).replies.push(value),
                Command::ReplyCpuid { vcpu, value } => self.guest(vcpu).cpuid = value,
                Command::SkipPause { .. } | Command::TaskWaits { .. } | Command::VmEnded { .. } => {}
                Command::InterceptCr8 { .. } | Command::AcceptIrq { .. } => {}
                Command::InjectNmi { vcpu } => self.guest(vcpu).nmis += 1,
                Command::SetCr8 { vcpu, value } => self.guest(vcpu).state.cr8 = value,
                Command::Init { vcpu } => self.guest(vcpu).init(),
                Command::Startup { vcpu, vector } => self.guest(vcpu).startups.push(vector),
                Command::PauseControls { vcpu, controls } => self.guest(vcpu).controls = controls,
                Command::DirectedYield { from, to, .. } => assert_ne!(from, to, "vcpu {} yields to itself", from.0),
                Command::Fault { vcpu } | Command::InvalidOpcode { vcpu } => self.guest(vcpu).faults += 1,
                // Its guests do the same inside and outside of guests of their own.
                Command::LeaveNested { .. } => {}
                Command::PvEoi { vcpu, address } => {
                    assert!(address % 4 == 0 && address < MEMORY, "a word at {address:#x}");
                    let guest = self.guest(vcpu);
                    assert!(!guest.pv_eoi_armed, "vcpu {} is told twice", vcpu.0);
                    guest.pv_eoi |= 1;
                    guest.pv_eoi_armed = true;
                }
                Command::StealTime {
                    vcpu, steal, address, ..
                } => {
                    assert!(address % 64 == 0 && address < MEMORY, "a record at {address:#x}");
                    let guest = self.guest(vcpu);
                    guest.stolen += steal;
                    guest.preempted_flag = false;
                }
                Command::SliceEnd { address, .. } | Command::Grant { address, .. } => {
                    assert!(address % 64 == 0 && address < MEMORY, "a record at {address:#x}");
                }
                Command::SetPreempted { vcpu, .. } => self.guest(vcpu).preempted_flag = true,
                Command::State { vcpu, state } => {
                    let before = self.guest(vcpu).life;
                    assert!(is_legal(before, state), "vcpu {}: {before:?} to {state:?}", vcpu.0);
                    self.guest(vcpu).life = state;
                }
            }
        }
    }

    fn guest(&mut self, vcpu: VcpuId) -> &mut Guest {
        &mut self.guests[vcpu.0 as usize]
    }

    fn run(&mut self, pcpu: u32, run: Run, ns: u64) {
        match run {
            Run::Guest { vcpu, inject, window } => {
                let guest = self.guest(vcpu);
                assert_eq!(
                    guest.life,
                    VcpuState::InGuest,
                    "vcpu {} is entered without being said so",
                    vcpu.0
                );
                guest.window = window;
                if let Some(vector) = inject {
                    assert!(vector >= 16, "vector {vector} injected");
                    guest.take(vector);
                    if self.checks_service {
                        self.check_service(vcpu);
                    }
                }
            }
            Run::Poll(vcpu) => {
                assert_eq!(
                    self.guest(vcpu).life,
                    VcpuState::Polling,
                    "vcpu {} polls without being said so",
                    vcpu.0
                );
            }
            Run::Task(_) | Run::Idle => {}
        }
        let now = self.now;
        let at = &mut self.pcpus[pcpu as usize];
        // A run that replaces one that has not begun comes on top of its charges.
        at.begins = at.begins.max(now) + ns;
        at.generation += 1;
        let (begins, generation) = (at.begins, at.generation);
        self.push(begins, pcpu, What::Begin(generation));
    }

    pub fn what(&self, pcpu: u32) -> Run {
        self.runs[pcpu as usize]
    }

    /// Stops all guests and keeps their progress, so that they can continue on another host.
    pub fn freeze(&mut self) {
        for pcpu in 0..self.pcpus.len() as u32 {
            if self.now >= self.pcpus[pcpu as usize].begins {
                self.stop(pcpu);
            }
        }
    }

    /// Returns the state of `vcpu`, after [`World::freeze`].
    pub fn save(&self, vcpu: u32) -> SavedVcpu {
        let mut saved = self.host.save_vcpu(VcpuId(vcpu), Nanos(self.now));
        let guest = &self.guests[vcpu as usize];
        saved.guest = GuestState {
            pv_eoi: saved.pv_eoi_pending && guest.pv_eoi & 1 == 1,
            ..guest.state
        };
        saved
    }

    pub fn cpu_time(&self, task: TaskId) -> u64 {
        self.host.cpu_time(task, Nanos(self.now)).0
    }

    pub fn vcpu_time(&self, vcpu: u32) -> u64 {
        self.cpu_time(self.host.thread(VcpuId(vcpu)))
    }

    /// Returns the time of all tasks and of all idle pCPUs.
    pub fn total_time(&self) -> u64 {
        let now = Nanos(self.now);
        let vcpus = (0..self.guests.len() as u32)
            .map(|vcpu| self.vcpu_time(vcpu))
            .sum::<u64>();
        let plain = self.plain.iter().map(|(task, _)| self.cpu_time(*task)).sum::<u64>();
        let idle = (0..self.pcpus.len() as u32)
            .map(|pcpu| self.host.idle_time(PcpuId(pcpu), now).0)
            .sum::<u64>();
        vcpus + plain + idle
    }
}

/// Returns the vectors whose bits are set in the eight registers at `offset` of a LAPIC's page.
pub fn vectors(page: &[u32; 64], offset: usize) -> impl Iterator<Item = u8> + use<> {
    let words: [u32; 8] = std::array::from_fn(|word| page[offset / 16 + word]);
    (0..=255u8).filter(move |vector| words[usize::from(vector / 32)] >> (vector % 32) & 1 == 1)
}
