//! The way into an inner guest and out of it, and the part of an inner host's commands that has its effect at once.

use holdfast_host::{Command, Cost, Event, Exit, HardwareEvent, Nanos, PcpuId, Run, TaskEvent, VcpuId, VcpuState};
use holdfast_machine::Picos;

use crate::books::happened::Happened;
use crate::core::cause::Cause;
use crate::engine::Engine;
use crate::parts::inner::{Work, renamed};
use crate::parts::pcpu::Activity;

impl Engine {
    /// The outer host enters `vcpu` on `pcpu`. Returns the inner vCPU in which it continues, if it does.
    pub fn enter_nested(&mut self, pcpu: PcpuId, vcpu: VcpuId) -> Option<VcpuId> {
        let nesting = self.vcpus[vcpu].nesting();
        let inner = nesting.peer.filter(|_| nesting.carries_for.is_some())?;
        if self.vcpus[vcpu].last_pcpu != pcpu {
            self.empty_tlb(vcpu);
        }
        let this = &mut self.vcpus[vcpu];
        this.last_pcpu = pcpu;
        this.nesting_mut().exit = None;
        self.emit(&Happened::NestedEntered { vcpu });
        self.pcpus[pcpu].activity = Activity::Guest(inner);
        Some(inner)
    }

    /// `vcpu` has left its guest for `exit`, or for an interrupt of the machine. Returns the vCPU whose exit it is for
    /// the outer host: that which carries it, if it is an inner one.
    #[inline]
    pub fn outer_of(&mut self, vcpu: VcpuId, exit: Option<&Exit>) -> VcpuId {
        match self.vcpus[vcpu].nesting().host {
            None => vcpu,
            Some(_) => self.carrier_of(vcpu, exit),
        }
    }

    /// The same for an inner `vcpu`.
    #[inline(never)]
    fn carrier_of(&mut self, vcpu: VcpuId, exit: Option<&Exit>) -> VcpuId {
        let Some(outer) = self.vcpus[vcpu].nesting().peer else {
            unreachable!("inner vcpu {} executes on no vcpu", vcpu.0)
        };
        let cause = match exit {
            Some(_) => Cause::ExitNested,
            None => Cause::ExitInterrupt,
        };
        self.vcpus[outer].nesting_mut().exit = exit.copied();
        self.emit(&Happened::NestedLeft { vcpu: outer, cause });
        outer
    }

    /// The outer host ends the run of the inner vCPU that `vcpu` executes: `vcpu` continues in its own kernel.
    pub fn leave_nested(&mut self, vcpu: VcpuId) {
        if let Some(inner) = self.vcpus[vcpu].nesting_mut().peer.take() {
            self.vcpus[inner].nesting_mut().peer = None;
        }
    }

    /// Writes to the control block of the inner vCPU `inner`: an event to inject, and the wish for an interrupt window.
    pub fn inject_nested(&mut self, inner: VcpuId, inject: Option<u8>, window: bool) {
        let interrupts = &mut self.vcpus[inner].interrupts;
        interrupts.window = window;
        if inject.is_some() {
            assert!(
                interrupts.vector.is_none(),
                "inner vcpu {} gets a second vector before it took the first one",
                inner.0
            );
            interrupts.vector = inject;
        }
    }

    /// `vcpu` executes VMRUN for the inner vCPU `inner`.
    pub fn prepare_nested(&mut self, vcpu: VcpuId, inner: VcpuId) {
        let guest = &mut self.vcpus[inner];
        assert!(
            guest.nesting().peer.is_none(),
            "inner vcpu {} is entered twice",
            inner.0
        );
        guest.nesting_mut().peer = Some(vcpu);
        let this = &mut self.vcpus[vcpu];
        this.nesting_mut().peer = Some(inner);
        this.nesting_mut().exit = None;
    }

    /// Inner host `index` handles `event`, which happened on its pCPU `pcpu`, or starts. Changes at once what has no
    /// time of its own, and returns the rest.
    pub fn step_inner(&mut self, index: usize, pcpu: PcpuId, event: Option<Event>) -> Work {
        self.books.stats.host_steps += 1;
        let now = Nanos(self.clock.now.nanos());
        let mut commands = Vec::new();
        match event {
            Some(Event::Hardware(HardwareEvent::Exit {
                exit: Exit::Userspace, ..
            })) => {
                let own = self.inner(index).guest_on(pcpu);
                let time = self.vm_of(self.inner(index).vcpu(own)).fixed.settings.device;
                self.inner_mut(index).begin_device_work(own, time);
            }
            Some(Event::Task(TaskEvent::RunsVcpu { vcpu, .. })) => self.inner_mut(index).end_device_work(vcpu),
            _ => {}
        }
        let host = &mut self.inner_mut(index).host;
        match event {
            Some(event) => host.handle(event, now, &mut commands),
            None => host.start(now, &mut commands),
        }
        let mut work = Work::default();
        for command in commands {
            self.sort_inner(index, pcpu, command, &mut work);
        }
        work
    }

    /// Applies `command` of a step on pCPU `executing` of inner host `index`, or leaves it to those concerned.
    fn sort_inner(&mut self, index: usize, executing: PcpuId, command: Command, work: &mut Work) {
        let of = match command {
            Command::Charge { pcpu, .. } | Command::Timer { pcpu, .. } => pcpu,
            Command::Ipi { .. } => executing,
            Command::Run { pcpu, run } => {
                work.more += self.chosen_inner(index, pcpu, run);
                if pcpu != executing {
                    work.commands.push(command);
                }
                return;
            }
            Command::State { vcpu, state } => {
                self.inner_mut(index).set_state(vcpu, state);
                return self.refresh_inner(self.inner(index).vcpu(vcpu));
            }
            Command::StealTime {
                vcpu,
                address,
                steal,
                flush,
                ..
            } => {
                let vcpu = self.inner(index).vcpu(vcpu);
                work.more += self.update_steal_time(vcpu, address, steal, flush);
                return;
            }
            other => {
                let renamed = renamed(other, |vcpu| self.inner(index).vcpu(vcpu));
                return self.apply_to_vcpu(renamed);
            }
        };
        if of == executing {
            work.commands.push(command);
        } else {
            self.inner_mut(index).pcpus[of].mail.push(command);
        }
    }

    /// Inner host `index` has chosen `run` for its pCPU `pcpu`. Returns the time in which its caches fill again.
    fn chosen_inner(&mut self, index: usize, pcpu: PcpuId, run: Run) -> Picos {
        let refill = self.hardware.costs.cache_refill;
        let carrier = self.vms[self.inner(index).carrier].vcpu(pcpu.0);
        let inside = self.books.accounts[carrier].ledger.of(Cause::NestedGuest);
        let (on, spent) = self.inner_mut(index).choose(pcpu, run, inside, refill);
        if let Some(vcpu) = on {
            self.refresh_inner(vcpu);
        }
        spent
    }

    /// The time that `cost` takes on `carrier`, a pCPU of inner host `index`. A sleeping pCPU is the outer host's
    /// affair.
    pub fn inner_cost(&mut self, index: usize, carrier: VcpuId, cost: Cost, count: u32) -> Picos {
        let number = PcpuId(self.vcpus[carrier].number);
        let time = match cost {
            Cost::Wake => {
                let cold = self.hardware.costs.wake_cold;
                self.hardware.costs.wake + self.inner_mut(index).warm_up(number, cold)
            }
            _ => self.hardware.cost(cost).times(u64::from(count)),
        };
        self.stretched(self.vcpus[carrier].last_pcpu, time)
    }

    /// The outer host has changed the state of `vcpu`. If it is the pCPU of an inner host, the inner vCPU there has
    /// gained or lost its pCPU too.
    pub fn carrier_changed(&mut self, vcpu: VcpuId) {
        let this = &self.vcpus[vcpu];
        let Some(index) = this.nesting().carries_for else {
            return;
        };
        if let Some(inner) = self.inner(index).vcpu_on(PcpuId(this.number)) {
            self.refresh_inner(inner);
        }
    }

    /// Brings the state of inner vCPU `vcpu` up to date: a vCPU that runs according to its host does not run while the
    /// vCPU that carries it has lost its pCPU.
    fn refresh_inner(&mut self, vcpu: VcpuId) {
        let Some(index) = self.vcpus[vcpu].nesting().host else {
            return;
        };
        let inner = self.inner(index);
        let (mut state, place) = inner.state_of(vcpu);
        if let Some(pcpu) = place {
            let carrier = &self.vcpus[self.vms[inner.carrier].vcpu(pcpu.0)];
            if !carrier.is_running() {
                state = match carrier.state {
                    VcpuState::Throttled => VcpuState::Throttled,
                    _ => VcpuState::Preempted,
                };
            }
        }
        if self.vcpus[vcpu].state != state {
            self.set_state(vcpu, state);
        }
    }
}
