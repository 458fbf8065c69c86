//! What is no longer known: missing events, and events that contradict each other.

use super::*;

impl Follower {
    /// Thread `tid` runs on `cpu`, as its event says.
    #[inline]
    pub(super) fn runs(&mut self, cpu: u32, tid: Tid, now: u64, sink: &mut impl Sink) {
        let current = self.cpus.at(cpu, now).current;
        match current {
            // A vCPU may seem to have two pCPUs.
            Some((current, Occupant::Vcpu(vcpu))) if current == tid && !self.vcpus[vcpu.0 as usize].is_on(cpu) => {}
            Some((current, _)) if current == tid => return,
            _ => {}
        }
        self.attribute(cpu, now);
        self.had(cpu, now, sink);
        if let Some((before, _)) = current {
            self.faults.contradictions += 1;
            if let Some(vcpu) = self.vcpu_of(before).filter(|vcpu| self.vcpus[*vcpu].is_on(cpu)) {
                self.doubt(vcpu, 0, now, sink);
            }
        }
        let occupant = self.occupant(tid);
        self.cpus.at(cpu, now).current = Some((tid, occupant));
        if let Some(vcpu) = self.vcpu_of(tid) {
            if self.vcpus[vcpu].state != State::Unknown {
                self.faults.contradictions += 1;
            }
            self.doubt(vcpu, 0, now, sink);
            let this = &mut self.vcpus[vcpu];
            this.change(now, State::Unknown, State::Running, sink);
            this.cpu = Some(cpu);
        }
    }

    /// What vCPU `vcpu` has done since `since`, or since its last change if that is later, is not known.
    pub(super) fn doubt(&mut self, vcpu: usize, since: u64, now: u64, sink: &mut impl Sink) {
        if self.vcpus[vcpu].state == State::Unknown {
            return;
        }
        self.leave_queue(vcpu, now);
        let this = &mut self.vcpus[vcpu];
        let had = this.cpu.filter(|_| this.state.has_pcpu());
        let was = match this.state {
            // A part of a wait is not known to be one.
            State::Ready => State::Unknown,
            state => state,
        };
        let at = since.clamp(this.since, now.max(this.since));
        this.change(at, was, State::Unknown, sink);
        this.release(sink);
        this.wait = None;
        (this.early, this.halting, this.sent, this.interrupted) = (None, false, None, false);
        let thread = this.thread;
        // Another pCPU may still seem to run it.
        if let Some(cpu) = had
            && self
                .cpus
                .get(cpu)
                .and_then(|cpu| cpu.current)
                .is_some_and(|(tid, _)| tid == thread)
        {
            self.forget_cpu(cpu, now, sink);
        }
    }

    /// What runs on `cpu` is not known from now on.
    pub(super) fn forget_cpu(&mut self, cpu: u32, now: u64, sink: &mut impl Sink) {
        self.attribute(cpu, now);
        self.had(cpu, now, sink);
        self.cpus.at(cpu, now).current = None;
    }

    /// No vCPU's state is known since the time that `since` says for it.
    pub(super) fn doubt_all(&mut self, since: impl Fn(&Vcpu) -> u64, sink: &mut impl Sink) {
        let now = self.time.map_or(0, |(_, last)| last);
        for vcpu in 0..self.vcpus.len() {
            if self.vcpus[vcpu].alive {
                let since = since(&self.vcpus[vcpu]);
                self.doubt(vcpu, since, now, sink);
            }
        }
    }

    /// Events of `cpu` are missing since its last one. A vCPU that has another pCPU is still known; any other one may
    /// have been woken there, and may have run there.
    pub(super) fn lost(&mut self, cpu: u32, now: u64, events: Option<u64>, sink: &mut impl Sink) {
        self.faults.gaps += 1;
        self.faults.lost_events += events.unwrap_or(0);
        let begun = self.time.map_or(now, |(begun, _)| begun);
        let last = self.cpus.get(cpu).map_or(begun, |cpu| cpu.last);
        // What had it is not known since its last event.
        let known = self.cpus.at(cpu, now);
        let (from, occupant) = (known.since, known.occupant());
        let until = last.clamp(from, now.max(from));
        if from < until {
            sink.step(&Step::Had {
                cpu,
                from,
                to: until,
                occupant,
            });
        }
        let known = self.cpus.at(cpu, now);
        (known.current, known.since, known.last) = (None, until, now);
        for vcpu in 0..self.vcpus.len() {
            let this = &self.vcpus[vcpu];
            if this.alive && !(this.state.has_pcpu() && this.cpu != Some(cpu)) {
                self.doubt(vcpu, last, now, sink);
            }
        }
    }
}
