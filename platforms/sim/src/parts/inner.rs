//! The state of an inner host.

use std::collections::BTreeMap;

use holdfast_host::{Command, Host, IdVec, PcpuId, Run, TaskId, VcpuId, VcpuState, VmId};
use holdfast_machine::Picos;

use crate::parts::pcpu::WarmCaches;
use crate::parts::vcpu::is_running;

/// A pCPU of an inner host: a vCPU of the outer one.
#[derive(Clone, Debug, Default)]
pub struct InnerPcpu {
    /// What the inner host has chosen for it; `None` before its start.
    pub next: Option<Run>,
    /// Commands for it that another pCPU's step gave.
    pub mail: Vec<Command>,
    /// The inner vCPU whose thread has it.
    on: Option<VcpuId>,
    /// Contents of its caches, as far as its inner host's own switches change them.
    caches: WarmCaches,
    /// Time inside inner guests since power-on, as last seen.
    work: Picos,
}

/// An inner host.
#[derive(Debug)]
pub struct InnerHost {
    /// The hypervisor.
    pub host: Host,
    /// The guest that boots it.
    pub carrier: VmId,
    /// The number of its first guest among all guests.
    first_vm: VmId,
    /// The number of its first vCPU among all vCPUs.
    first_vcpu: VcpuId,
    /// The states of its vCPUs, by its own numbers, as it knows them.
    states: IdVec<VcpuId, VcpuState>,
    /// The pCPU of its own on which each of them ran last.
    last: IdVec<VcpuId, Option<PcpuId>>,
    /// Its pCPUs.
    pub pcpus: IdVec<PcpuId, InnerPcpu>,
    /// Device models that work for its vCPUs: the time that is left.
    in_vmm: BTreeMap<TaskId, (VcpuId, Picos)>,
}

impl InnerHost {
    /// The inner host `host`, which `carrier` boots on `pcpus` vCPUs. Its guests and their `vcpus` vCPUs have the
    /// numbers from `first_vm` and `first_vcpu` on.
    pub fn new(host: Host, carrier: VmId, pcpus: u32, first: (VmId, VcpuId), vcpus: u32) -> InnerHost {
        InnerHost {
            host,
            carrier,
            first_vm: first.0,
            first_vcpu: first.1,
            states: IdVec::filled(VcpuState::Woken, vcpus as usize),
            last: IdVec::filled(None, vcpus as usize),
            pcpus: IdVec::filled(InnerPcpu::default(), pcpus as usize),
            in_vmm: BTreeMap::new(),
        }
    }

    /// Its own number of guest `vm`.
    pub fn own_vm(&self, vm: VmId) -> VmId {
        VmId(vm.0 - self.first_vm.0)
    }

    /// The number among all vCPUs of its vCPU `own`.
    pub fn vcpu(&self, own: VcpuId) -> VcpuId {
        VcpuId(self.first_vcpu.0 + own.0)
    }

    /// The vCPU whose exit to the device model happens on `pcpu`: its own number.
    pub fn guest_on(&self, pcpu: PcpuId) -> VcpuId {
        match self.pcpus[pcpu].next {
            Some(Run::Guest { vcpu, .. }) => vcpu,
            other => unreachable!("an exit on inner pcpu {}, which runs {other:?}", pcpu.0),
        }
    }

    /// The device model works for its vCPU `own`, for `time`.
    pub fn begin_device_work(&mut self, own: VcpuId, time: Picos) {
        self.in_vmm.insert(self.host.thread(own), (own, time));
    }

    /// That work is done.
    pub fn end_device_work(&mut self, own: VcpuId) {
        self.in_vmm.retain(|_, (other, _)| *other != own);
    }

    /// Takes the device work of `task`: its vCPU, and how long it still takes.
    pub fn take_device_work(&mut self, task: TaskId) -> Option<(VcpuId, Picos)> {
        let work = self.in_vmm.get_mut(&task)?;
        let (vcpu, left) = *work;
        work.1 = Picos::ZERO;
        Some((vcpu, left))
    }

    /// It has changed the state of its vCPU `own`.
    pub fn set_state(&mut self, own: VcpuId, state: VcpuState) {
        self.states[own] = state;
    }

    /// It has chosen `run` for `pcpu`, which spent `inside` in inner guests so far. Returns the vCPU whose thread has
    /// the pCPU now, and the time in which its caches fill again: `refill` for all of them.
    pub fn choose(&mut self, pcpu: PcpuId, run: Run, inside: Picos, refill: Picos) -> (Option<VcpuId>, Picos) {
        let on = match run {
            Run::Guest { vcpu, .. } | Run::Poll(vcpu) => Some(vcpu),
            Run::Task(task) => self.in_vmm.get(&task).map(|(vcpu, _)| *vcpu),
            Run::Idle => None,
        };
        let this = &mut self.pcpus[pcpu];
        this.next = Some(run);
        this.on = on;
        let mut spent = Picos::ZERO;
        if let Run::Guest { vcpu, .. } = run {
            let has_moved = self.last[vcpu].replace(pcpu) != Some(pcpu);
            this.caches.ran(inside - std::mem::replace(&mut this.work, inside));
            spent = this.caches.switch_to(Run::Poll(vcpu), has_moved, refill);
        }
        (on.map(|own| self.vcpu(own)), spent)
    }

    /// The time that `pcpu` needs to fetch the lines of a wakeup again, which is `all` for all of them.
    pub fn warm_up(&mut self, pcpu: PcpuId, all: Picos) -> Picos {
        self.pcpus[pcpu].caches.warm_up(all)
    }

    /// The number among all vCPUs of the vCPU whose thread has `pcpu`.
    pub fn vcpu_on(&self, pcpu: PcpuId) -> Option<VcpuId> {
        self.pcpus[pcpu].on.map(|own| self.vcpu(own))
    }

    /// The state of `vcpu`, one of its own by the number among all, as the host knows it; and the pCPU that the vCPU
    /// has, if it runs.
    pub fn state_of(&self, vcpu: VcpuId) -> (VcpuState, Option<PcpuId>) {
        let own = VcpuId(vcpu.0 - self.first_vcpu.0);
        let state = self.states[own];
        let mut places = self.pcpus.enumerate().filter(|_| is_running(state));
        let place = places.find(|(_, pcpu)| pcpu.on == Some(own));
        (state, place.map(|(pcpu, _)| pcpu))
    }
}

/// What a step of an inner host leaves to the vCPU that executes it, in order.
#[derive(Debug, Default)]
pub struct Work {
    /// Commands that take its time, or its instructions.
    pub commands: Vec<Command>,
    /// Time that cold caches and flushes cost.
    pub more: Picos,
}

/// `command` with other numbers of vCPUs.
pub fn renamed(mut command: Command, number: impl Fn(VcpuId) -> VcpuId) -> Command {
    match &mut command {
        Command::InjectNmi { vcpu }
        | Command::SetCr8 { vcpu, .. }
        | Command::InterceptCr8 { vcpu, .. }
        | Command::Init { vcpu }
        | Command::Startup { vcpu, .. }
        | Command::Reply { vcpu, .. }
        | Command::ReplyCpuid { vcpu, .. }
        | Command::Fault { vcpu }
        | Command::InvalidOpcode { vcpu }
        | Command::LeaveNested { vcpu }
        | Command::StealTime { vcpu, .. }
        | Command::PvEoi { vcpu, .. }
        | Command::SliceEnd { vcpu, .. }
        | Command::Grant { vcpu, .. }
        | Command::SetPreempted { vcpu, .. }
        | Command::PauseControls { vcpu, .. }
        | Command::SkipPause { vcpu }
        | Command::AcceptIrq { vcpu, .. }
        | Command::State { vcpu, .. } => *vcpu = number(*vcpu),
        Command::DirectedYield { from, to, .. } => (*from, *to) = (number(*from), number(*to)),
        Command::Charge { .. }
        | Command::Run { .. }
        | Command::Timer { .. }
        | Command::Ipi { .. }
        | Command::Notify { .. }
        | Command::Doorbell { .. }
        | Command::VmEnded { .. }
        | Command::TaskWaits { .. } => {}
    }
    command
}
