//! Real time that virtual time takes: ordered operations, switches, events, contended locks; compared with the bare
//! event queue, which is the lower bound.
#![allow(missing_docs)]

use std::cell::Cell;
use std::hint::black_box;
use std::rc::Rc;
use std::sync::atomic::Ordering::*;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use holdfast_guest::{Cpu, GuestImage, Machine, Report};
use holdfast_locks::{BootLock, CpuId, LockKind, Platform, Word};
use holdfast_machine::{EventQueue, Time};
use holdfast_sim::{CallOff, Config, Outcome, SimCpu, SimMachine, SimWord, run_images};

#[path = "../tests/sim/image.rs"]
#[allow(dead_code)]
mod image;

/// Each vCPU runs `program` with interrupts masked; the last to finish ends the run.
struct Guest<F> {
    machine: SimMachine,
    program: Rc<F>,
    left: Cell<u32>,
}

impl<F: Fn(&SimCpu)> GuestImage for Guest<F> {
    fn boot(&self, number: CpuId) -> ! {
        if number.0 == 0 {
            self.machine.report(Report::Begin);
        }
        let cpu = self.machine.cpu();
        (self.program)(&cpu);
        self.left.set(self.left.get() - 1);
        if self.left.get() == 0 {
            self.machine.report(Report::Done { operations: None });
        }
        loop {
            cpu.compute(1_000_000_000);
        }
    }

    fn interrupt(&self, _: u8) {}
}

fn run<F: Fn(&SimCpu) + 'static>(config: &Config, program: F) -> Outcome {
    let program = Rc::new(program);
    let outcome = run_images(config, &CallOff::new(), |vm, machine| {
        Box::new(Guest {
            machine,
            program: program.clone(),
            left: Cell::new(vm.vcpus),
        })
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"))
}

fn words(count: u32) -> Vec<SimWord> {
    (0..count).map(|_| SimWord::new(0)).collect()
}

/// The lower bound: an event queue whose first event moves on.
fn bare_queue(c: &mut Criterion) {
    let mut group = c.benchmark_group("bare_queue");
    for actors in [16u32, 256, 4096] {
        let events = 1_000_000u64;
        group.throughput(Throughput::Elements(events));
        group.bench_function(BenchmarkId::from_parameter(actors), |b| {
            b.iter(|| {
                let mut queue = EventQueue::new();
                let mut random = image::Random(1);
                (0..actors).for_each(|slot| queue.set(slot, Time(random.next(1000))));
                for _ in 0..events {
                    let Some((time, slot)) = queue.first() else { break };
                    queue.set(slot, Time(time.0 + 500 + random.next(1000)));
                }
                black_box(queue.first())
            });
        });
    }
}

/// Strictly ordered read-modify-writes of private words: each one is a switch to another vCPU.
fn ordered_operations(c: &mut Criterion) {
    let mut group = c.benchmark_group("ordered_operations");
    for vcpus in [1u32, 2, 16, 64, 256] {
        let each = 1_000_000 / vcpus;
        group.throughput(Throughput::Elements(u64::from(each * vcpus)));
        group.bench_function(BenchmarkId::from_parameter(vcpus), |b| {
            b.iter(|| {
                let words = words(vcpus);
                run(&image::config(vcpus, vcpus, 0, 1), move |cpu| {
                    for step in 0..each {
                        cpu.fetch_add(&words[cpu.cpu().0 as usize], step, Relaxed);
                    }
                })
            });
        });
    }
}

/// Uncontended lock and unlock with a short section and some work outside, tracepoints included.
fn uncontended_locks(c: &mut Criterion) {
    let mut group = c.benchmark_group("uncontended_lock_unlock");
    let (vcpus, each) = (8u32, 50_000u32);
    for kind in [LockKind::Ticket, LockKind::PvTicket] {
        group.throughput(Throughput::Elements(u64::from(each * vcpus)));
        group.bench_function(BenchmarkId::from_parameter(kind), |b| {
            b.iter(|| {
                let locks: Vec<BootLock<SimWord>> = (0..vcpus).map(|_| BootLock::new()).collect();
                run(&image::config(vcpus, vcpus, 0, 1), move |cpu| {
                    for _ in 0..each {
                        section(&locks[cpu.cpu().0 as usize], kind, cpu, 100, 300);
                    }
                })
            });
        });
    }
}

fn section(lock: &BootLock<SimWord>, kind: LockKind, cpu: &SimCpu, inside_ns: u64, outside_ns: u64) {
    lock.lock(kind, cpu);
    cpu.lock_acquired(lock.word());
    cpu.compute(inside_ns);
    cpu.lock_released(lock.word());
    lock.unlock(kind, cpu);
    cpu.compute(outside_ns);
}

/// One lock, 60 vCPUs, for ten virtual milliseconds: multiply by 100 for the cost of a virtual second.
fn contended_lock(c: &mut Criterion) {
    let mut group = c.benchmark_group("contended_lock_60_vcpus_10_ms");
    group.sample_size(10);
    for &kind in LockKind::ALL {
        group.bench_function(BenchmarkId::from_parameter(kind), |b| {
            b.iter(|| {
                let lock: Rc<BootLock<SimWord>> = Rc::new(BootLock::new());
                run(&image::config(60, 60, 0, 1), move |cpu| {
                    while holdfast_locks::Paravirt::now_ns(cpu) < 10_000_000 {
                        section(&lock, kind, cpu, 200, 500);
                    }
                })
            });
        });
    }
}

/// Timer ticks of guests and host: events other than memory operations.
fn events(c: &mut Criterion) {
    let mut group = c.benchmark_group("host_events");
    group.sample_size(10);
    for (pcpus, vcpus) in [(8u32, 16u32), (64, 256), (448, 1792)] {
        let config = image::config(pcpus, vcpus, 0, 1);
        let program: image::Program = Rc::new(|cpu: &SimCpu| cpu.compute(100_000_000));
        let on_timer: image::Program = Rc::new(|_: &SimCpu| {});
        let play = || {
            let outcome = image::run_program(&config, &program, &on_timer, 1_000_000);
            outcome.unwrap_or_else(|failure| panic!("{failure}"))
        };
        group.throughput(Throughput::Elements(play().engine["events"]));
        group.bench_function(BenchmarkId::from_parameter(format!("{vcpus}_vcpus_on_{pcpus}")), |b| {
            b.iter(play)
        });
    }
}

criterion_group!(
    benches,
    bare_queue,
    ordered_operations,
    uncontended_locks,
    contended_lock,
    events
);
criterion_main!(benches);
