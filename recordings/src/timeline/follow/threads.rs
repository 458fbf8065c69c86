//! Which threads are vCPUs, and since when.

use super::*;

impl Follower {
    /// Thread `tid` is called `name`.
    pub(super) fn learn(&mut self, tid: Tid, name: &crate::event::Name, now: u64, sink: &mut impl Sink) {
        if tid == 0 || !is_name(name) {
            return;
        }
        let thread = self.threads.or_new(tid);
        if thread.name == *name || thread.ends {
            return;
        }
        let (before, vcpu) = (thread.role, thread.vcpu);
        let role = self.threads.role(tid, name);
        let thread = self.threads.or_new(tid);
        (thread.name, thread.role) = (*name, role);
        match (before, role, vcpu) {
            // Another name of a vCPU thread: its ID came back, and its end was not recorded.
            (Role::Vcpu(a), Role::Vcpu(b), Some(_)) if a != b => self.end_thread(tid, now, sink),
            (Role::Vcpu(_), Role::Vmm | Role::Vhost(_) | Role::Kernel | Role::Other, Some(_)) => {
                self.end_thread(tid, now, sink);
            }
            _ => {}
        }
        if self.threads.get(tid).is_none() {
            let thread = self.threads.or_new(tid);
            (thread.name, thread.role) = (*name, role);
        }
        match role {
            Role::Vcpu(number) => self.found(tid, Some(number), now, sink),
            _ => self.renamed(tid),
        }
    }

    /// The pCPU that runs thread `tid` gets to know what it is.
    pub(super) fn renamed(&mut self, tid: Tid) {
        let occupant = self.occupant(tid);
        for (current, before) in self.cpus.all_mut().filter_map(|cpu| cpu.current.as_mut()) {
            if *current == tid {
                *before = occupant;
            }
        }
    }

    pub(super) fn learn_process(&mut self, tid: Tid, process: Tid, sink: &mut impl Sink) {
        let thread = self.threads.or_new(tid);
        if thread.process == Some(process) {
            return;
        }
        thread.process = Some(process);
        self.renamed(tid);
        if let Some(vcpu) = self.vcpu_of(tid) {
            self.known(vcpu, sink);
        }
    }

    pub(super) fn known(&self, vcpu: usize, sink: &mut impl Sink) {
        let vcpu = &self.vcpus[vcpu];
        let thread = self.threads.get(vcpu.thread);
        sink.step(&Step::Known {
            vcpu: vcpu.index,
            thread: vcpu.thread,
            name: thread.map(|thread| thread.name).unwrap_or_default(),
            number: vcpu.number,
            process: thread.and_then(|thread| thread.process),
        });
    }

    /// Thread `tid` runs vCPU `number`.
    pub(super) fn found(&mut self, tid: Tid, number: Option<u32>, now: u64, sink: &mut impl Sink) {
        if let Some(vcpu) = self.vcpu_of(tid) {
            if self.vcpus[vcpu].number.is_none() && number.is_some() {
                self.vcpus[vcpu].number = number;
                self.known(vcpu, sink);
            }
            return;
        }
        if self.vcpus.len() >= VCPUS_MAX {
            self.faults.ignored += 1;
            return;
        }
        let index = VcpuIndex(self.vcpus.len() as u32);
        let mut vcpu = Vcpu::new(index, tid, number, now);
        self.threads.or_new(tid).vcpu = Some(index);
        for cpu in self.cpus.numbers() {
            if self.cpus.get(cpu).and_then(|cpu| cpu.current).map(|(tid, _)| tid) == Some(tid) {
                self.attribute(cpu, now);
                self.had(cpu, now, sink);
                self.cpus.at(cpu, now).current = Some((tid, Occupant::Vcpu(index)));
                (vcpu.state, vcpu.cpu) = (State::Running, Some(cpu));
            }
        }
        let runs = vcpu.state == State::Running;
        self.vcpus.push(vcpu);
        self.known(index.0 as usize, sink);
        if runs {
            self.vcpus[index.0 as usize].seen(now, State::Running, sink);
        }
    }

    /// Thread `tid` has ended, or its ID is another thread's from now on.
    pub(super) fn end_thread(&mut self, tid: Tid, now: u64, sink: &mut impl Sink) {
        if let Some(vcpu) = self.vcpu_of(tid) {
            self.finish(vcpu, now, sink);
        }
        self.threads.forget(tid);
    }

    /// vCPU `vcpu` has no more thread.
    pub(super) fn finish(&mut self, vcpu: usize, now: u64, sink: &mut impl Sink) {
        let cpu = self.vcpus[vcpu].cpu;
        self.leave_queue(vcpu, now);
        let this = &mut self.vcpus[vcpu];
        this.end_wait(now, false, sink);
        let was = this.state;
        this.change(now, was, State::Unknown, sink);
        this.release(sink);
        this.alive = false;
        let (vcpu, thread) = (this.index, this.thread);
        sink.step(&Step::Gone { vcpu, at: now });
        // Its thread may still have a pCPU, as a thread without a vCPU.
        if let Some(thread) = self.threads.get(thread) {
            let (role, process, name) = (Role::Vmm, thread.process, thread.name);
            if let Some(cpu) = cpu.filter(|cpu| {
                let current = self.cpus.get(*cpu).and_then(|cpu| cpu.current);
                current.is_some_and(|(_, occupant)| occupant == Occupant::Vcpu(vcpu))
            }) {
                self.attribute(cpu, now);
                self.had(cpu, now, sink);
                let tid = self.vcpus[vcpu.0 as usize].thread;
                self.cpus.at(cpu, now).current = Some((tid, Occupant::Thread { role, process, name }));
            }
        }
    }

    /// Returns the vCPU of `thread`, which KVM calls `number`.
    pub(super) fn of_kvm(&mut self, thread: Tid, number: Option<u32>, now: u64, sink: &mut impl Sink) -> Option<usize> {
        let known = self.vcpu_of(thread).and_then(|vcpu| self.vcpus[vcpu].number);
        if known.is_some() && number.is_some() && known != number {
            // Another vCPU: the end of the thread was not recorded.
            let name = self.threads.get(thread).map(|thread| thread.name);
            self.end_thread(thread, now, sink);
            let again = self.threads.or_new(thread);
            (again.name, again.role) = (name.unwrap_or_default(), Role::Vmm);
        }
        self.found(thread, number, now, sink);
        self.vcpu_of(thread)
    }
}
