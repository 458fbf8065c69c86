//! NUMA: the firmware's table, the nodes that the guest finds in it, and their effect.

use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use holdfast_guest::{Cpu, Machine};
use holdfast_locks::{BootLock, CpuId, LockKind, Numa, Platform, Word};
use holdfast_sim::{CallOff, Config, Failure, Outcome, SimCpu, SimWord, run_images};

use crate::image::{Bare, Program, config, run_program};

const VCPUS: u32 = 8;

/// Eight vCPUs, each pinned to a pCPU of two sockets, odd ones on the second.
fn pinned() -> Config {
    let mut config = config(VCPUS, VCPUS, 0, 1);
    config.vms[0].affinity = (0..VCPUS).map(|vcpu| vec![vcpu / 2 + vcpu % 2 * 4]).collect();
    config.vms[0].domains = (0..VCPUS).map(|vcpu| vcpu % 2).collect();
    config
}

fn play(config: &Config, program: impl Fn(&SimCpu) + 'static) -> Outcome {
    let program: Program = Rc::new(program);
    run_program(config, &program, &(Rc::new(|_: &SimCpu| {}) as Program), 0)
        .unwrap_or_else(|failure| panic!("{failure}"))
}

#[test]
fn a_cpu_is_on_the_node_that_its_kernel_joined() {
    play(&pinned(), |cpu| {
        let me = CpuId(cpu.cpu().0);
        assert_eq!(cpu.numa_node(me), 0, "before the kernel has said anything");
        cpu.join_node(me.0 * 10);
        assert_eq!(cpu.numa_node(me), me.0 * 10);
        cpu.compute(1_000_000);
        for other in 0..VCPUS {
            assert_eq!(cpu.numa_node(CpuId(other)), other * 10, "what others have said");
        }
    });
}

#[test]
fn the_firmware_tells_what_the_guest_was_given() {
    for (domains, expected) in [(vec![], None), (vec![0, 1, 0, 1, 0, 1, 0, 1], Some(1))] {
        let config = Config {
            vms: vec![holdfast_sim::Vm {
                domains,
                ..pinned().vms[0].clone()
            }],
            ..pinned()
        };
        let nothing: Program = Rc::new(|_: &SimCpu| {});
        let outcome = run_images(&config, &CallOff::new(), |_, machine| {
            assert_eq!(machine.proximity_domain(3), expected);
            assert_eq!(machine.proximity_domain(VCPUS), None, "no such CPU");
            Box::new(Bare::new(machine, nothing.clone(), nothing.clone(), 0))
        });
        assert!(outcome.is_ok());
    }
}

#[test]
fn a_table_for_other_cpus_is_refused() {
    let mut config = pinned();
    config.vms[0].domains.pop();
    let nothing: Program = Rc::new(|_: &SimCpu| {});
    let Err(Failure::Invalid(message)) = run_program(&config, &nothing, &nothing.clone(), 0) else {
        panic!("a table of 7 for 8 vcpus is accepted")
    };
    assert!(message.contains("7 proximity domains for 8 vcpus"), "{message}");
}

/// Time for all vCPUs to take one lock a thousand times each.
fn contend(kind: LockKind, joins: bool) -> u64 {
    let lock: Rc<BootLock<SimWord>> = Rc::new(BootLock::new());
    // Data that the lock protects: their lines travel with the lock.
    let data: Vec<SimWord> = (0..4).map(|_| SimWord::new(0)).collect();
    let outcome = play(&pinned(), move |cpu| {
        if joins {
            cpu.join_node(cpu.cpu().0 % 2);
        }
        for _ in 0..1_000 {
            lock.lock(kind, cpu);
            for word in &data {
                let seen = cpu.load(word, Relaxed);
                cpu.store(word, seen + 1, Relaxed);
            }
            cpu.compute(200);
            lock.unlock(kind, cpu);
            cpu.compute(200);
        }
    });
    outcome.end_ns
}

#[test]
fn a_numa_aware_lock_gains_by_knowing_its_nodes_and_no_other_does() {
    let cna = holdfast_sim::lock_kind::<holdfast_history::CnaQspin>("cna-qspin", LockKind::ALL);
    let (without, with) = (contend(cna, false), contend(cna, true));
    assert!(with * 10 < without * 9, "{with} ns with nodes, {without} ns without");
    assert_eq!(contend(LockKind::Qspin, true), contend(LockKind::Qspin, false));
}
