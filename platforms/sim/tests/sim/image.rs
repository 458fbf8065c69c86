//! A guest without a kernel: each vCPU runs one program, takes timer interrupts, and powers the machine off when all
//! are done.

use std::cell::Cell;
use std::rc::Rc;

use holdfast_abi::lapic;
use holdfast_guest::{Cpu, GuestImage, Machine, Mode, Report};
use holdfast_locks::{CpuId, Paravirt};
use holdfast_machine::{Costs, PauseHardware, Picos, Profile, Topology};
use holdfast_sim::{CallOff, Config, Failure, HostTask, Outcome, SimCpu, SimMachine, Vm, run_images};

pub const TIMER_VECTOR: u8 = 0xef;

/// The program of each vCPU, and the handler of its timer interrupts.
pub type Program = Rc<dyn Fn(&SimCpu)>;

pub struct Bare {
    pub machine: SimMachine,
    pub program: Program,
    pub on_timer: Program,
    /// Time between two timer interrupts; 0 for none.
    pub timer_ns: u32,
    done: Rc<Cell<u32>>,
}

impl Bare {
    pub fn new(machine: SimMachine, program: Program, on_timer: Program, timer_ns: u32) -> Bare {
        Bare {
            machine,
            program,
            on_timer,
            timer_ns,
            done: Rc::default(),
        }
    }
}

impl GuestImage for Bare {
    fn boot(&self, number: CpuId) -> ! {
        let cpu = self.machine.cpu();
        if number.0 == 0 {
            self.machine.report(Report::Begin);
        }
        cpu.executing(Mode::Kernel);
        if self.timer_ns > 0 {
            cpu.apic_write(lapic::SVR, lapic::SVR_ENABLE | 0xff);
            cpu.apic_write(lapic::TIMER_DIVIDE, 0b1011);
            cpu.apic_write(lapic::LVT_TIMER, lapic::LVT_TIMER_ONE_SHOT | u32::from(TIMER_VECTOR));
            cpu.apic_write(lapic::TIMER_INITIAL, self.timer_ns);
            cpu.irq_enable();
        }
        (self.program)(&cpu);
        cpu.irq_disable();
        self.done.set(self.done.get() + 1);
        if self.done.get() == self.machine.cpus() {
            self.machine.report(Report::Done { operations: None });
        }
        loop {
            cpu.halt_masked();
        }
    }

    fn interrupt(&self, vector: u8) {
        let cpu = self.machine.cpu();
        assert_eq!(vector, TIMER_VECTOR);
        (self.on_timer)(&cpu);
        cpu.apic_write(lapic::TIMER_INITIAL, self.timer_ns);
        cpu.apic_write(lapic::EOI, 0);
    }
}

/// Round costs.
fn costs() -> Costs {
    let ns = Picos::from_nanos;
    Costs {
        load_hit: Picos(1365),
        store: Picos(341),
        rmw_hit: Picos(6826),
        fence: Picos(6826),
        pause: Picos(3413),
        transfer_core: ns(8),
        transfer_socket: ns(40),
        transfer_cross: ns(110),
        read_occupancy: ns(10),
        guest_code: ns(0),
        guest_interrupt: ns(200),
        exit_hardware: ns(400),
        exit_software: ns(300),
        hlt: ns(200),
        hypercall: ns(100),
        cpuid: ns(100),
        port_write: ns(200),
        msr: ns(200),
        apic_access: ns(600),
        apic_deliver: ns(200),
        inject: ns(100),
        interrupt_window: ns(100),
        spin_candidate: ns(50),
        host_interrupt: ns(300),
        tick: ns(500),
        timer_delay: ns(0),
        timer_program: ns(100),
        ipi_send: ns(200),
        ipi_latency: ns(500),
        syscall: ns(100),
        sched_yield: ns(200),
        futex: ns(100),
        wake: ns(700),
        wake_cold: ns(0),
        context_switch: ns(1000),
        cache_refill: ns(2000),
        balance: ns(1000),
        vcpu_load: ns(200),
        steal_time: ns(50),
        pv_eoi: ns(20),
        tlb_flush: ns(150),
        idle_exit: ns(1000),
        userspace_exit: ns(1500),
        smt_computing: ns(700),
        smt_pausing: ns(100),
        nested_fault: ns(800),
        nested_entry: ns(2_000),
        nested_exit: ns(1_500),
        logged_page: ns(20),
        nested_walks: ns(0),
        nested_refill: ns(0),
        remote_memory: ns(0),
    }
}

/// A machine of `cores` with round costs.
pub fn profile(cores: u32, pause_hardware: Option<PauseHardware>) -> Profile {
    let topology = Topology {
        sockets: if cores.is_multiple_of(2) { 2 } else { 1 },
        cores: cores.div_ceil(2).max(1),
        threads: 1,
    };
    let topology = if topology.pcpus() == cores {
        topology
    } else {
        Topology {
            sockets: 1,
            cores,
            threads: 1,
        }
    };
    Profile {
        name: "test".into(),
        topology,
        numbering: holdfast_machine::Numbering::default(),
        frequency_hz: 2_930_000_000,
        costs: costs(),
        idle_states: Vec::new(),
        pcid: false,
        pause_hardware,
        avic: None,
        apicv: None,
    }
}

/// Memory costs that are all multiples of ten nanoseconds, so that many events have equal times.
pub fn coarsen(costs: &mut Costs) {
    let ns = Picos::from_nanos;
    costs.load_hit = ns(10);
    costs.store = ns(10);
    costs.rmw_hit = ns(20);
    costs.fence = ns(10);
    costs.pause = ns(10);
    costs.transfer_core = ns(20);
    costs.transfer_socket = ns(40);
    costs.transfer_cross = ns(100);
    costs.read_occupancy = ns(10);
}

/// One guest of `vcpus` on `pcpus`, with `hogs` host tasks that compete.
pub fn config(pcpus: u32, vcpus: u32, hogs: u32, seed: u64) -> Config {
    let vm = Vm {
        name: "guest".into(),
        vcpus,
        affinity: Vec::new(),
        domains: Vec::new(),
        group: None,
        host: Default::default(),
        boot: Default::default(),
        bare_metal: false,
        inside: None,
        stay: Default::default(),
        vmm: holdfast_sim::VmmConfig::default(),
        measured: true,
    };
    let hog = |index: u32| HostTask {
        name: format!("hog {index}"),
        nice: 0,
        affinity: Vec::new(),
        group: None,
        busy_ns: 3_000_000 + u64::from(index) * 777_777,
        sleep_ns: 500_000,
    };
    Config {
        machine: profile(pcpus, None),
        host: Default::default(),
        groups: Vec::new(),
        vms: vec![vm],
        tasks: (0..hogs).map(hog).collect(),
        noise: 0.0,
        seed,
        execute_spins: false,
        limit_ns: 100_000_000_000,
        migration: None,
        zero_at_ns: None,
        destination: None,
    }
}

/// Runs `program` on each vCPU.
pub fn run_program(config: &Config, program: &Program, on_timer: &Program, timer_ns: u32) -> Result<Outcome, Failure> {
    run_images(config, &CallOff::new(), |_, machine| {
        Box::new(Bare::new(machine, program.clone(), on_timer.clone(), timer_ns))
    })
}

/// A small generator for test programs: splitmix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }
}
