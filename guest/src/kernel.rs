//! The kernel: all subsystems, put together. Only booting, interrupt dispatch and system calls use it as a whole.

use alloc::boxed::Box;

use holdfast_locks::Word;

use crate::block::Block;
use crate::config::Config;
use crate::cpu::System;
use crate::driver::Driver;
use crate::ipc::{Futexes, Pipe, SemaphoreArrays, Sockets, Streams};
use crate::limits::Limits;
use crate::machine::Machine;
use crate::net::Net;
use crate::process::Processes;
use crate::sched::Scheduler;
use crate::sync::WordOf;
use crate::time::Time;

/// The kernel.
pub(crate) struct Kernel<M: Machine> {
    pub(crate) sched: Scheduler<M>,
    pub(crate) drivers: Box<[Driver<M>]>,
    pub(crate) time: Time<M>,
    pub(crate) pipes: Box<[Pipe<M>]>,
    pub(crate) sockets: Sockets<M>,
    pub(crate) streams: Streams<M>,
    pub(crate) futexes: Futexes<M>,
    pub(crate) semaphores: SemaphoreArrays<M>,
    pub(crate) net: Net<M>,
    /// The driver of the block device, if there is one.
    pub(crate) block: Option<Block<M>>,
    pub(crate) processes: Processes<M>,
    /// The number of CPUs that have booted. CPU 0 sets it to 1 once the other CPUs may use the kernel.
    pub(crate) booted: WordOf<M>,
}

impl<M: Machine> Kernel<M> {
    pub(crate) fn new(machine: M, config: Config, limits: &Limits) -> Self {
        let cpus = machine.cpus();
        let most = limits.tasks.max(1);
        // On each CPU, one reaped task can still be switching away.
        let mut leaving = cpus.min(most);
        if let Some(threads) = machine.threads() {
            threads.reserve(most);
            leaving = 0;
        }
        let tasks = cpus + most + leaving;
        let block = machine.disk().is_some().then(Block::new);
        let system = System::new(machine, config);
        Kernel {
            drivers: (0..limits.drivers).map(|_| Driver::new()).collect(),
            time: Time::new(&system.config, cpus),
            pipes: (0..limits.pipes).map(|_| Pipe::new()).collect(),
            sockets: Sockets::new(limits.sockets),
            streams: Streams::new(limits),
            futexes: Futexes::new(tasks),
            semaphores: SemaphoreArrays::new(limits),
            net: Net::new(),
            block,
            processes: Processes::new(cpus, tasks, limits),
            booted: WordOf::<M>::new(0),
            sched: Scheduler::new(system, tasks),
        }
    }
}
