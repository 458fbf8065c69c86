//! The locks' conformance suite in virtual time: vCPUs that are preempted, interrupts that nest.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use holdfast_abi::lapic;
use holdfast_guest::{Cpu, GuestImage, Machine, Mode, Report};
use holdfast_locks::conformance::{self, Job, World};
use holdfast_locks::{CpuId, Exclusive, Paravirt, Platform};
use holdfast_sim::{CallOff, SimCpu, SimMachine, run_images};

use crate::image::config;

const VECTOR: u8 = 0xf1;

/// vCPUs in virtual time, more than there are pCPUs.
struct Virtual {
    vcpus: u32,
    seed: Cell<u64>,
}

thread_local! {
    /// Handlers that wait for their interrupt, by vCPU. A run stays on its thread.
    static HANDLERS: RefCell<Vec<VecDeque<Job<SimCpu>>>> = const { RefCell::new(Vec::new()) };
}

impl World for Virtual {
    type Cpu = SimCpu;

    fn cpus(&self) -> u32 {
        self.vcpus
    }

    fn rounds(&self) -> u32 {
        30
    }

    fn run(&self, jobs: Vec<(CpuId, Job<SimCpu>)>) {
        self.seed.set(self.seed.get() + 1);
        HANDLERS.set((0..self.vcpus).map(|_| VecDeque::new()).collect());
        let mut config = config(self.vcpus.div_ceil(2), self.vcpus, 1, self.seed.get());
        config.vms[0].boot.spin_threshold = 200;
        let jobs = Rc::new(RefCell::new(jobs));
        let left = Rc::new(Cell::new(jobs.borrow().len()));
        let outcome = run_images(&config, &CallOff::new(), |_, machine| {
            Box::new(Jobs {
                machine,
                jobs: jobs.clone(),
                left: left.clone(),
                up: Cell::new(0),
            })
        });
        outcome.unwrap_or_else(|failure| panic!("{failure}"));
    }

    fn interrupt(cpu: &SimCpu, target: CpuId, handler: Job<SimCpu>) -> bool {
        HANDLERS.with_borrow_mut(|handlers| handlers[target.0 as usize].push_back(handler));
        cpu.apic_write(lapic::ICR_HIGH, target.0 << 24);
        cpu.apic_write(lapic::ICR_LOW, lapic::ICR_ASSERT | u32::from(VECTOR));
        true
    }
}

type JobsByCpu = Vec<(CpuId, Job<SimCpu>)>;

struct Jobs {
    machine: SimMachine,
    jobs: Rc<RefCell<JobsByCpu>>,
    left: Rc<Cell<usize>>,
    up: Cell<u32>,
}

impl GuestImage for Jobs {
    fn boot(&self, number: CpuId) -> ! {
        let cpu = self.machine.cpu();
        cpu.executing(Mode::Kernel);
        cpu.apic_write(lapic::SVR, lapic::SVR_ENABLE | 0xff);
        cpu.irq_enable();
        // A LAPIC that is not enabled yet ignores interrupts.
        self.up.set(self.up.get() + 1);
        while self.up.get() < self.machine.cpus() {
            cpu.compute(10_000);
        }
        let mut jobs = self.jobs.borrow_mut();
        let mine = jobs
            .iter()
            .position(|(cpu, _)| *cpu == number)
            .map(|index| jobs.swap_remove(index).1);
        drop(jobs);
        if let Some(job) = mine {
            job.run(&cpu);
            self.left.set(self.left.get() - 1);
        }
        cpu.irq_disable();
        if self.left.get() == 0 {
            self.machine.report(Report::Done { operations: None });
        }
        loop {
            cpu.halt_unmasked();
        }
    }

    fn interrupt(&self, vector: u8) {
        assert_eq!(vector, VECTOR);
        let cpu = self.machine.cpu();
        cpu.apic_write(lapic::EOI, 0);
        loop {
            let handler = HANDLERS.with_borrow_mut(|handlers| handlers[cpu.cpu().0 as usize].pop_front());
            let Some(handler) = handler else { break };
            handler.run(&cpu);
        }
    }
}

fn keeps_its_contract<L: Exclusive<SimCpu> + 'static>() {
    for (vcpus, seed) in [(2, 1), (5, 100)] {
        conformance::check_lock::<L, _>(&Virtual {
            vcpus,
            seed: Cell::new(seed),
        });
    }
}

#[test]
fn every_lock_keeps_its_contract_in_virtual_time() {
    macro_rules! check {
        ([$from:ident] $($module:ident: $kind:ident = $name:literal,)+) => {
            $(keeps_its_contract::<$from::$kind>();)+
        };
    }
    holdfast_locks::for_each_lock_kind!(check holdfast_locks);
    holdfast_history::for_each_historic_lock!(check holdfast_history);
}
