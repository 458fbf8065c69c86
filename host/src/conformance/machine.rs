//! Two pCPUs with small guests in virtual time, around the host alone.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::hash::{Hash as _, Hasher};

use holdfast_abi::{StealTime, msr};

use crate::boundary::{
    Command, Event, Exit, GuestState, HardwareEvent, HostInterrupt, Nanos, PcpuId, PcpuPlace, Run, VcpuId, VcpuState,
    VmId,
};
use crate::config::{HostConfig, VmConfig, VmGroup};
use crate::error::ConfigError;
use crate::host::Host;

/// The number of pCPUs.
pub(super) const PCPUS: u32 = 2;
/// The time that each unit of host work takes. Nanoseconds.
const COST_NS: u64 = 200;
/// What a guest shows that computes in user mode.
const IN_USER_MODE: GuestState = GuestState {
    interrupts_enabled: true,
    cpl: 3,
    cr8: 0,
    undelivered: None,
    pv_eoi: false,
    word: 0,
};
/// Where a guest's record is.
const RECORD: u64 = 0x1000;
/// The time that an interrupt of another pCPU takes. Nanoseconds.
const IPI_NS: u64 = 1_000;

/// What a vCPU does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program {
    /// It computes.
    Computes,
    /// It computes, and spins in a loop that exits, in turns.
    Pauses,
    /// It computes and kicks the next vCPU, in turns.
    Kicks,
    /// It computes and halts, in turns.
    Halts,
    /// It computes with interrupts masked, and says that it holds a lock.
    Masks,
    /// It does as [`Program::Pauses`] with interrupts masked, and says anything.
    Claims,
    /// It does anything.
    Hostile,
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Compute(u64),
    Exit(Exit),
}

#[derive(Debug)]
struct Guest {
    program: Program,
    /// It never halts by itself, so that the others are kicked.
    wakes: bool,
    random: u64,
    turn: bool,
    /// The rest of its computation. Nanoseconds.
    left: u64,
    state: GuestState,
    window: bool,
    /// It has registered its word.
    speaks: bool,
    /// Since when it has been ready.
    ready_since: Option<u64>,
}

impl Guest {
    /// Returns a number below `bound` (splitmix64).
    fn below(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound.max(1)
    }

    /// Returns how long it computes now, and the exit that comes then.
    fn next(&mut self) -> (u64, Option<Exit>) {
        if self.window && self.state.interrupts_enabled {
            self.window = false;
            return (0, Some(Exit::InterruptWindow));
        }
        if self.left == 0 {
            self.turn = !self.turn;
            match (self.program, self.turn) {
                (Program::Masks | Program::Claims, _) if !core::mem::replace(&mut self.speaks, true) => {
                    let (msr, value) = (msr::STEAL_TIME, RECORD | msr::STEAL_TIME_ENABLE);
                    return (0, Some(Exit::WriteMsr { msr, value }));
                }
                (Program::Masks, _) => {
                    self.state.word = StealTime::IN_SECTION;
                    self.left = 1_000_000;
                }
                (Program::Claims, true) => {
                    self.state.word = self.below(1 << 12) as u32;
                    self.left = 20_000 + self.below(20_000);
                }
                (Program::Computes, _) => self.left = 1_000_000,
                (Program::Pauses | Program::Kicks, true) => self.left = 20_000 + self.below(20_000),
                (Program::Halts, true) => self.left = 5_000,
                (Program::Pauses | Program::Claims, false) => return (0, Some(Exit::Pause)),
                (Program::Kicks, false) => return (0, Some(hypercall(5, [0, 1, 0, 0]))),
                (Program::Halts, false) => return (0, Some(Exit::Hlt)),
                (Program::Hostile, _) => match self.anything() {
                    Op::Compute(ns) => self.left = ns,
                    Op::Exit(exit) => return (0, Some(exit)),
                },
            }
        }
        (self.left, None)
    }

    /// Returns anything but what ends a guest for good: INIT, a LAPIC without power, a halt of all vCPUs.
    fn anything(&mut self) -> Op {
        const MSRS: [u32; 6] = [0x10, 0x6e0, 0x808, 0x80b, 0x4b56_4d03, 0x4b56_4d04];
        const ICR: u32 = 0x300;
        let operand = match self.below(4) {
            0 => u64::MAX,
            1 => self.below(u64::MAX),
            _ => self.below(256),
        };
        let offset = self.below(64) as u32 * 16;
        self.state.interrupts_enabled = self.below(2) == 0;
        self.state.word = operand as u32;
        self.state.cpl = [0, 0, 0, 3][self.below(4) as usize];
        let target = self.below(4);
        match self.below(20) {
            0 if !self.wakes => Op::Exit(Exit::Hlt),
            0..4 => Op::Exit(Exit::Pause),
            4 | 5 => Op::Exit(hypercall(5, [0, target, 0, 0])),
            6 => Op::Exit(hypercall(11, [target, 0, 0, 0])),
            7 => Op::Exit(hypercall(10, [operand, operand, target, 0x41])),
            8 => Op::Exit(hypercall(operand, [operand, target, operand, operand])),
            9 if offset != ICR => {
                let value = operand as u32;
                Op::Exit(Exit::ApicWrite { offset, value })
            }
            10 => Op::Exit(Exit::ApicWrite {
                offset: ICR,
                value: 0xc_4041,
            }),
            11 => Op::Exit(Exit::ApicWrite {
                offset: 0xf0,
                value: 0x1ff,
            }),
            12 => Op::Exit(Exit::ApicWrite { offset: 0xb0, value: 0 }),
            13 => {
                let msr = MSRS[self.below(MSRS.len() as u64) as usize];
                Op::Exit(Exit::WriteMsr { msr, value: operand })
            }
            14 => Op::Exit(Exit::Cpuid { leaf: operand as u32 }),
            _ => Op::Compute(1 + self.below(100_000)),
        }
    }
}

fn hypercall(number: u64, arguments: [u64; 4]) -> Exit {
    Exit::Hypercall { number, arguments }
}

#[derive(Clone, Debug)]
struct Pcpu {
    run: Run,
    /// When its run begins, after the host's work.
    begins: u64,
    /// Counts runs: what was planned for an earlier one is void.
    generation: u64,
    timer: Option<u64>,
    pending: Vec<HostInterrupt>,
    /// The exit at the end of the present run.
    exit: Option<Exit>,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Begins(u64),
    Ends(u64),
    Timer,
    Ipi,
}

/// Host, guests and time.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) host: Host,
    now: u64,
    vms: u32,
    guests: Vec<Guest>,
    pcpus: Vec<Pcpu>,
    /// What is to happen, by time and in the order in which it was planned.
    queue: BTreeMap<(u64, u64), (u32, What)>,
    planned: u64,
    hash: Fnv,
    waited: u64,
}

impl Machine {
    pub(super) fn new(
        config: &HostConfig,
        guests: &[&[Program]],
        pinned: bool,
        seed: u64,
    ) -> Result<Machine, ConfigError> {
        let place = |core| PcpuPlace {
            socket: 0,
            core,
            thread: 0,
        };
        let mut host = Host::new(config, &(0..PCPUS).map(place).collect::<Vec<_>>())?;
        let mut all = Vec::new();
        for programs in guests {
            let vm = VmConfig {
                pv_sched_yield: true,
                pv_send_ipi: true,
                guest_word: true,
                group: VmGroup::Own { shares: 1024 },
                ..VmConfig::default()
            };
            let own = (0..programs.len() as u32).map(|vcpu| vec![vcpu % PCPUS]);
            let affinity: Vec<Vec<u32>> = if pinned { own.collect() } else { Vec::new() };
            host.add_vm(&vm, programs.len() as u32, &affinity)?;
            for (vcpu, &program) in programs.iter().enumerate() {
                let index = all.len() as u64;
                all.push(Guest {
                    program,
                    wakes: vcpu == 0,
                    random: seed << 32 | index,
                    turn: false,
                    left: 0,
                    state: match program {
                        Program::Computes => IN_USER_MODE,
                        _ => GuestState::default(),
                    },
                    window: false,
                    speaks: false,
                    ready_since: None,
                });
            }
        }
        let idle = Pcpu {
            run: Run::Idle,
            begins: 0,
            generation: 0,
            timer: None,
            pending: Vec::new(),
            exit: None,
        };
        let mut machine = Machine {
            host,
            now: 0,
            vms: guests.len() as u32,
            guests: all,
            pcpus: vec![idle; PCPUS as usize],
            queue: BTreeMap::new(),
            planned: 0,
            hash: Fnv::default(),
            waited: 0,
        };
        let mut out = Vec::new();
        machine.host.start(Nanos(0), &mut out);
        machine.apply(&out);
        Ok(machine)
    }

    /// Returns the CPU time of each VM.
    pub(super) fn times(&self) -> Vec<u64> {
        let time = |vm| {
            let threads = self.host.vcpus(vm).map(|vcpu| self.host.thread(vcpu));
            threads.map(|task| self.host.cpu_time(task, Nanos(self.now)).0).sum()
        };
        (0..self.vms).map(|vm| time(VmId(vm))).collect()
    }

    /// Returns a hash of all commands and their times.
    pub(super) fn hash(&self) -> u64 {
        self.hash.0
    }

    /// Returns the longest time for which a vCPU was ready. Nanoseconds.
    pub(super) fn longest_wait(&self) -> u64 {
        let waits = self.guests.iter().filter_map(|guest| guest.ready_since);
        waits.map(|since| self.now - since).max().unwrap_or(0).max(self.waited)
    }

    pub(super) fn run_until(&mut self, end: u64) {
        while let Some((&(at, order), &(pcpu, what))) = self.queue.first_key_value() {
            if at > end {
                break;
            }
            self.queue.remove(&(at, order));
            self.now = at;
            self.happens(pcpu, what);
        }
        self.now = end;
    }

    fn plan(&mut self, at: u64, pcpu: u32, what: What) {
        self.planned += 1;
        self.queue.insert((at, self.planned), (pcpu, what));
    }

    fn happens(&mut self, pcpu: u32, what: What) {
        let at = &mut self.pcpus[pcpu as usize];
        match what {
            What::Begins(generation) if generation == at.generation => match at.pending.is_empty() {
                true => self.begin(pcpu),
                false => {
                    let interrupt = at.pending.remove(0);
                    self.interrupt(pcpu, interrupt);
                }
            },
            What::Ends(generation) if generation == at.generation => self.ends(pcpu),
            What::Timer if at.timer == Some(self.now) => {
                at.timer = None;
                self.arrives(pcpu, HostInterrupt::Timer);
            }
            What::Ipi => self.arrives(pcpu, HostInterrupt::Reschedule),
            _ => {}
        }
    }

    fn arrives(&mut self, pcpu: u32, interrupt: HostInterrupt) {
        let at = &mut self.pcpus[pcpu as usize];
        if self.now < at.begins {
            at.pending.push(interrupt);
            return;
        }
        if let Run::Guest { vcpu, .. } = at.run {
            let ran = self.now - at.begins;
            let guest = &mut self.guests[vcpu.0 as usize];
            guest.left = guest.left.saturating_sub(ran);
        }
        self.interrupt(pcpu, interrupt);
    }

    fn interrupt(&mut self, pcpu: u32, interrupt: HostInterrupt) {
        let event = match self.pcpus[pcpu as usize].run {
            Run::Guest { vcpu, .. } => HardwareEvent::Exit {
                pcpu: PcpuId(pcpu),
                exit: Exit::ExternalInterrupt(interrupt),
                guest: self.guests[vcpu.0 as usize].state,
            },
            Run::Task(_) | Run::Poll(_) | Run::Idle => HardwareEvent::Interrupt {
                pcpu: PcpuId(pcpu),
                interrupt,
            },
        };
        self.handle(event);
    }

    fn begin(&mut self, pcpu: u32) {
        let at = &mut self.pcpus[pcpu as usize];
        let Run::Guest { vcpu, .. } = at.run else { return };
        let (ns, exit) = self.guests[vcpu.0 as usize].next();
        at.exit = exit;
        let generation = at.generation;
        self.plan(self.now + ns, pcpu, What::Ends(generation));
    }

    fn ends(&mut self, pcpu: u32) {
        let at = &mut self.pcpus[pcpu as usize];
        let (Run::Guest { vcpu, .. }, begins) = (at.run, at.begins) else {
            return;
        };
        let guest = &mut self.guests[vcpu.0 as usize];
        guest.left = guest.left.saturating_sub(self.now - begins);
        match at.exit.take() {
            Some(exit) => {
                let (pcpu, guest) = (PcpuId(pcpu), guest.state);
                self.handle(HardwareEvent::Exit { pcpu, exit, guest });
            }
            // It only computed, and goes on.
            None => {
                at.begins = self.now;
                self.begin(pcpu);
            }
        }
    }

    fn handle(&mut self, event: HardwareEvent) {
        let mut out = Vec::new();
        self.host.handle(Event::Hardware(event), Nanos(self.now), &mut out);
        self.apply(&out);
    }

    fn apply(&mut self, out: &[Command]) {
        let mut costs = [0; PCPUS as usize];
        for command in out {
            (self.now, command).hash(&mut self.hash);
            match *command {
                Command::Charge { pcpu, count, .. } => costs[pcpu.0 as usize] += COST_NS * u64::from(count),
                Command::Run { pcpu, run } => self.run(pcpu.0, run, costs[pcpu.0 as usize]),
                Command::Timer { pcpu, at } => {
                    self.pcpus[pcpu.0 as usize].timer = at.map(|at| at.0);
                    if let Some(at) = at {
                        self.plan(at.0, pcpu.0, What::Timer);
                    }
                }
                Command::Ipi { to, .. } => self.plan(self.now + IPI_NS, to.0, What::Ipi),
                Command::SetCr8 { vcpu, value } => self.guests[vcpu.0 as usize].state.cr8 = value,
                Command::Init { vcpu } => self.guests[vcpu.0 as usize].state = GuestState::default(),
                Command::State { vcpu, state } => self.changes(vcpu, state),
                _ => {}
            }
        }
    }

    fn run(&mut self, pcpu: u32, run: Run, cost: u64) {
        if let Run::Guest { vcpu, inject, window } = run {
            let guest = &mut self.guests[vcpu.0 as usize];
            guest.window = window;
            guest.state.interrupts_enabled &= inject.is_none();
        }
        let now = self.now;
        let at = &mut self.pcpus[pcpu as usize];
        at.run = run;
        at.begins = at.begins.max(now) + cost;
        at.generation += 1;
        let (begins, generation) = (at.begins, at.generation);
        self.plan(begins, pcpu, What::Begins(generation));
    }

    /// `vcpu` is `state` from now on.
    fn changes(&mut self, vcpu: VcpuId, state: VcpuState) {
        let now = self.now;
        let guest = &mut self.guests[vcpu.0 as usize];
        if matches!(state, VcpuState::Preempted | VcpuState::Woken) {
            guest.ready_since.get_or_insert(now);
        } else if let Some(since) = guest.ready_since.take() {
            self.waited = self.waited.max(now - since);
        }
    }
}

/// The hash FNV-1a, which is the same on every machine.
#[derive(Clone, Copy, Debug)]
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
