//! Small guests: programs of computing, exits, and what a kernel does with interrupts.

use std::collections::VecDeque;

use holdfast_host::{Exit, GuestState, PauseControls, VcpuState};

/// Deterministic random numbers (splitmix64).
#[derive(Clone, Debug)]
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }
}

/// One thing that a guest does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Computes in guest mode.
    Compute(u64),
    /// Leaves guest mode.
    Exit(Exit),
    /// STI, or CLI.
    Interrupts(bool),
    /// Changes its privilege level.
    Cpl(u8),
    /// Says this in its word for the host.
    Word(u32),
    /// Ends the interrupt in service: in memory if the host lets it, else by the register.
    End,
}

/// Returns the next operation of a guest vCPU.
pub type Program = Box<dyn FnMut() -> Op>;

/// A guest vCPU.
pub struct Guest {
    program: Program,
    /// Operations of interrupt handlers, executed before the program continues.
    pub(super) first: VecDeque<Op>,
    /// The rest of the present computation. Nanoseconds.
    pub(super) left: u64,
    pub state: GuestState,
    pub(super) window: bool,
    pub life: VcpuState,
    /// Vectors injected.
    pub injected: Vec<u8>,
    /// Non-maskable interrupts taken.
    pub nmis: u32,
    /// Times that INIT has reset it.
    pub inits: u32,
    /// Vectors of the SIPIs that have started it.
    pub startups: Vec<u8>,
    /// Replies received.
    pub replies: Vec<u64>,
    /// The last answer of CPUID.
    pub cpuid: [u32; 4],
    pub faults: u32,
    /// Nanoseconds stolen, as the record says.
    pub stolen: u64,
    pub preempted_flag: bool,
    /// How the CPU detects its pause loops.
    pub controls: PauseControls,
    /// Nanoseconds in guest mode.
    pub ran: u64,
    /// The word for ends of interrupts.
    pub pv_eoi: u8,
    /// The host has set its bit in this stay in guest mode.
    pub(super) pv_eoi_armed: bool,
    /// A planted fault: exits leave the bit set.
    pub pv_eoi_stays: bool,
    /// Vectors in service, as a kernel sees it: the latest last.
    pub in_service: Vec<u8>,
    /// Ends in memory.
    pub pv_ends: u32,
}

impl Guest {
    /// Returns a guest that runs `program`, interrupts masked, CPL 0.
    pub fn new(program: Program) -> Guest {
        Guest {
            program,
            first: VecDeque::new(),
            left: 0,
            state: GuestState::default(),
            nmis: 0,
            inits: 0,
            startups: Vec::new(),
            window: false,
            life: VcpuState::Woken,
            injected: Vec::new(),
            replies: Vec::new(),
            cpuid: [0; 4],
            faults: 0,
            stolen: 0,
            preempted_flag: false,
            controls: PauseControls::Off,
            ran: 0,
            pv_eoi: 0,
            pv_eoi_armed: false,
            pv_eoi_stays: false,
            in_service: Vec::new(),
            pv_ends: 0,
        }
    }

    /// Returns a guest that computes forever.
    pub fn hog() -> Guest {
        Guest::new(Box::new(|| Op::Compute(1_000_000)))
    }

    /// Returns a guest that does `ops` and then computes forever.
    pub fn script(ops: Vec<Op>) -> Guest {
        let mut ops = ops.into_iter();
        Guest::new(Box::new(move || ops.next().unwrap_or(Op::Compute(1_000_000))))
    }

    /// Handles INIT: drops all pending operations.
    pub(super) fn init(&mut self) {
        self.inits += 1;
        self.first.clear();
        self.left = 0;
        self.state = GuestState::default();
        self.window = false;
    }

    /// Returns how long it computes now, and the exit that comes then, if it is known already.
    pub(super) fn next(&mut self) -> (u64, Option<Exit>) {
        loop {
            if self.window && self.state.interrupts_enabled {
                self.window = false;
                return (0, Some(Exit::InterruptWindow));
            }
            if self.left > 0 {
                return (self.left, None);
            }
            match self.first.pop_front().unwrap_or_else(|| (self.program)()) {
                Op::Compute(ns) => self.left = ns.max(1),
                Op::Exit(exit) => return (0, Some(exit)),
                Op::Interrupts(enabled) => self.state.interrupts_enabled = enabled,
                Op::Cpl(cpl) => self.state.cpl = cpl,
                Op::Word(word) => self.state.word = word,
                Op::End => {
                    self.in_service.pop();
                    if self.pv_eoi & 1 == 0 {
                        return (0, Some(Exit::ApicWrite { offset: 0xb0, value: 0 }));
                    }
                    self.pv_eoi &= !1;
                    self.pv_ends += 1;
                }
            }
        }
    }

    /// Takes `vector`: starts a handler that runs for a microsecond and signals its end.
    pub(super) fn take(&mut self, vector: u8) {
        assert!(
            self.state.interrupts_enabled,
            "vector {vector} injected with interrupts masked"
        );
        self.injected.push(vector);
        let left = std::mem::take(&mut self.left);
        if left > 0 {
            self.first.push_front(Op::Compute(left));
        }
        self.first.push_front(Op::Interrupts(true));
        self.first.push_front(Op::End);
        self.first.push_front(Op::Compute(1_000));
        self.in_service.push(vector);
        self.state.interrupts_enabled = false;
    }

    /// Completes a migration to another host.
    pub fn carried(&mut self) {
        self.leave();
    }

    /// Tests and clears the bit that the host has set, as an exit does. Returns the guest state at the exit.
    pub(super) fn leave(&mut self) -> GuestState {
        let armed = std::mem::take(&mut self.pv_eoi_armed);
        let pv_eoi = armed && self.pv_eoi & 1 == 1;
        if armed && !self.pv_eoi_stays {
            self.pv_eoi &= !1;
        }
        GuestState { pv_eoi, ..self.state }
    }
}
