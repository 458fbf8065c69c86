//! The engine: one run's whole state.
//!
//! Each field belongs to a room, which owns its type. What needs several of them is an `impl Engine` of the room that
//! it serves. What happens reaches the books by [`Engine::emit`] only.

pub mod boot;
pub mod flows;
pub mod handle;
pub mod watchdog;

use holdfast_host::{Command, Host, HostInterrupt, IdVec, Nanos, PcpuId, VcpuId, VmId};
use holdfast_machine::Picos;

use crate::books::fold::Books;
use crate::books::happened::{Happened, View};
use crate::core::clock::{Clock, TimedEvent};
use crate::core::failure::Ending;
use crate::engine::flows::Flows;
use crate::memory::lines::Memory;
use crate::migration::Migrations;
use crate::parts::hardware::Hardware;
use crate::parts::inner::InnerHost;
use crate::parts::pcpu::Pcpu;
use crate::parts::vcpu::Vcpu;
use crate::parts::vm::Vm;
use crate::tasks::HostTasks;

/// One run.
#[derive(Debug)]
pub struct Engine {
    /// Virtual time and the events to come.
    pub clock: Clock,
    /// Cache lines.
    pub memory: Memory,
    /// The CPU model: costs, pause-loop exiting, APIC virtualization.
    pub hardware: Hardware,
    /// Physical CPUs.
    pub pcpus: IdVec<PcpuId, Pcpu>,
    /// Virtual CPUs, by the host's numbers.
    pub vcpus: IdVec<VcpuId, Vcpu>,
    /// Guests, by the host's numbers.
    pub vms: IdVec<VmId, Vm>,
    /// The flows of guest code.
    pub flows: Flows,
    /// The hypervisor.
    pub host: Host,
    /// Host tasks other than vCPUs, and what runs in them.
    pub tasks: HostTasks,
    /// Planned live migrations and moves, if there are any.
    pub migrations: Option<Box<Migrations>>,
    /// Whether and why the run is over.
    pub end: Ending,
    /// What is written down of the run.
    pub books: Books,
    /// The hypervisors that run in guests.
    inner: Vec<InnerHost>,
    /// Buffer for the host's commands.
    commands: Vec<Command>,
}

impl Engine {
    /// A run at power-on.
    pub fn new(
        clock: Clock,
        memory: Memory,
        hardware: Hardware,
        vcpus: IdVec<VcpuId, Vcpu>,
        vms: IdVec<VmId, Vm>,
        host: Host,
        tasks: HostTasks,
    ) -> Engine {
        Engine {
            pcpus: IdVec::filled(Pcpu::new(), clock.pcpus()),
            books: Books::new(&vcpus, vms.len()),
            clock,
            memory,
            hardware,
            vcpus,
            vms,
            flows: Flows::new(),
            host,
            inner: Vec::new(),
            tasks,
            migrations: None,
            end: Ending::default(),
            commands: Vec::new(),
        }
    }

    /// The hypervisors that run in guests.
    pub fn inner_hosts(&self) -> &[InnerHost] {
        &self.inner
    }

    /// Adds a hypervisor that runs in a guest.
    pub fn add_inner(&mut self, host: InnerHost) {
        self.inner.push(host);
    }

    /// The hypervisor `index` of those that run in guests.
    pub fn inner(&self, index: usize) -> &InnerHost {
        &self.inner[index]
    }

    /// As [`Engine::inner`], to change it.
    pub fn inner_mut(&mut self, index: usize) -> &mut InnerHost {
        &mut self.inner[index]
    }

    /// The host that runs guest `vm`, and the guest's number there.
    pub fn host_of(&self, vm: VmId) -> (&Host, VmId) {
        match self.vcpus[self.vms[vm].first_vcpu].nesting().host {
            None => (&self.host, vm),
            Some(index) => (&self.inner(index).host, self.inner(index).own_vm(vm)),
        }
    }

    /// Lets `step` run on the host at the present time. Returns the commands that the host gave: give their buffer back
    /// to [`Engine::reuse_commands`].
    #[inline]
    pub fn with_host(&mut self, step: impl FnOnce(&mut Host, Nanos, &mut Vec<Command>)) -> Vec<Command> {
        let mut commands = std::mem::take(&mut self.commands);
        step(&mut self.host, Nanos(self.clock.now.nanos()), &mut commands);
        commands
    }

    /// Takes back the empty buffer of commands that were applied.
    #[inline]
    pub fn reuse_commands(&mut self, commands: Vec<Command>) {
        self.commands = commands;
    }

    /// Enters what `happened` in the books.
    #[inline(always)]
    pub fn emit(&mut self, happened: &Happened<'_>) {
        let (books, view) = self.books_and_view();
        books.observe(&view, happened);
    }

    /// The books, and what they see of the machine.
    #[inline(always)]
    pub fn books_and_view(&mut self) -> (&mut Books, View<'_>) {
        let view = View {
            now: self.clock.now,
            vcpus: &self.vcpus,
            vms: &self.vms,
            host: &self.host,
            apic: &self.hardware.apic,
        };
        (&mut self.books, view)
    }

    /// The vCPU whose flow executes.
    #[inline(always)]
    pub fn current(&mut self) -> &mut Vcpu {
        &mut self.vcpus[self.flows.current]
    }

    /// The VM of `vcpu`.
    #[inline]
    pub fn vm_of(&self, vcpu: VcpuId) -> &Vm {
        &self.vms[self.vcpus[vcpu].vm]
    }

    /// `interrupt` sets out for `pcpu` when `delay` has passed.
    pub fn send_ipi(&mut self, pcpu: PcpuId, interrupt: HostInterrupt, delay: Picos) {
        let event = TimedEvent::Interrupt(pcpu, interrupt);
        self.clock.plan_after(event, delay + self.hardware.costs.ipi_latency);
    }

    /// Plans to zero all statistics `at_ns` nanoseconds from now, as a write to `zero_stats` does.
    pub fn plan_zero(&mut self, at_ns: u64) {
        self.clock.set_zero(Picos::from_nanos(at_ns));
    }

    /// Zeroes the counters of guests, locks and books, and notes those of the host. Times are left alone: their parts
    /// sum to the whole run.
    pub fn zero_statistics(&mut self) {
        for id in self.vms.ids() {
            let vm = &self.vms[id];
            if let Some(image) = &vm.image {
                image.zero_statistics();
            }
            vm.fixed.locks.stats.zero();
            let (host, own) = self.host_of(id);
            let host = host.counters(own).collect();
            self.books.guests[id].zero(host);
        }
    }
}
