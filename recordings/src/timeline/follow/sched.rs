//! Events of the scheduler.

use super::*;

impl Follower {
    pub(super) fn switch(&mut self, cpu: u32, now: u64, (prev, left): (Tid, Left), next: Tid, sink: &mut impl Sink) {
        self.attribute(cpu, now);
        self.had(cpu, now, sink);
        self.cpus.at(cpu, now).current = None;
        if let Some(vcpu) = self.vcpu_of(prev) {
            self.leave(vcpu, cpu, left, now, sink);
        }
        let ends = self.threads.get(prev).is_some_and(|thread| thread.ends);
        if prev != 0 && prev != next && (left == Left::Dead || ends) {
            self.end_thread(prev, now, sink);
        }
        let occupant = self.occupant(next);
        self.cpus.at(cpu, now).current = Some((next, occupant));
        if let Some(vcpu) = self.vcpu_of(next) {
            self.arrive(vcpu, cpu, now, sink);
        }
    }

    /// vCPU `vcpu` loses `cpu`.
    pub(super) fn leave(&mut self, vcpu: usize, cpu: u32, left: Left, now: u64, sink: &mut impl Sink) {
        let this = &mut self.vcpus[vcpu];
        let was = match this.state {
            // The exit is missing.
            State::Guest => State::Running,
            state => state,
        };
        match left {
            Left::Ready => {
                this.early = None;
                this.change(now, was, State::Ready, sink);
                self.begin_wait(vcpu, cpu, None, now);
            }
            Left::Asleep => {
                let next = if this.halting { State::Halted } else { State::Asleep };
                this.change(now, was, next, sink);
                this.woken_by = None;
                // Woken while it was on its way to sleep, it goes back to the queue of the pCPU that it leaves.
                if let Some(early) = this.early {
                    self.begin_wait(vcpu, cpu, Some(early), now);
                }
            }
            Left::Dead => this.change(now, was, State::Unknown, sink),
        }
    }

    /// vCPU `vcpu` gets `cpu`.
    pub(super) fn arrive(&mut self, vcpu: usize, cpu: u32, now: u64, sink: &mut impl Sink) {
        self.leave_queue(vcpu, now);
        let this = &mut self.vcpus[vcpu];
        let was = match this.state {
            State::Ready => {
                this.stays_queued(cpu);
                State::Ready
            }
            // The wakeup was recorded just before the sleep that it ended.
            State::Halted | State::Asleep if this.early.is_some() => {
                this.woken_by = this.early;
                this.stays_queued(cpu);
                State::Ready
            }
            _ => State::Unknown,
        };
        let had = this.cpu.filter(|_| this.state.has_pcpu());
        this.end_wait(now, true, sink);
        let next = if this.split { State::Host } else { State::Running };
        this.change(now, was, next, sink);
        (this.cpu, this.early) = (Some(cpu), None);
        let thread = this.thread;
        if let Some(other) = had.filter(|other| *other != cpu) {
            self.faults.contradictions += 1;
            let current = self.cpus.get(other).and_then(|cpu| cpu.current);
            if current.is_some_and(|(tid, _)| tid == thread) {
                self.forget_cpu(other, now, sink);
            }
        }
    }

    /// What `thread`, which runs on `cpu`, is as a waker.
    pub(super) fn waker(&self, cpu: u32, thread: Tid) -> Waker {
        let who = self.cpus.get(cpu).map_or(Occupant::Unknown, |cpu| cpu.occupant());
        let how = match self.vcpu_of(thread).map(|vcpu| &self.vcpus[vcpu]) {
            _ if thread == 0 => How::Interrupt,
            // The guest is not left for a wakeup that its own thread makes.
            Some(vcpu) if vcpu.interrupted || vcpu.state == State::Guest => How::Interrupt,
            Some(vcpu) => vcpu.sent.unwrap_or(How::Thread),
            None => How::Thread,
        };
        Waker { thread, who, how }
    }

    /// `woken` becomes ready on `target`. `waker`: what wakes it; `None` for the second event of a wakeup.
    pub(super) fn wake(&mut self, woken: Tid, target: u32, waker: Option<Waker>, now: u64, sink: &mut impl Sink) {
        let Some(vcpu) = self.vcpu_of(woken) else { return };
        let unknown = Waker {
            thread: 0,
            who: Occupant::Unknown,
            how: How::Thread,
        };
        let this = &mut self.vcpus[vcpu];
        match this.state {
            State::Halted | State::Asleep | State::Unknown => {
                let waker = waker.unwrap_or(unknown);
                // An earlier wakeup was for an earlier sleep.
                self.leave_queue(vcpu, now);
                let this = &mut self.vcpus[vcpu];
                this.early = None;
                this.woken_by = Some(waker);
                let was = this.state;
                this.change(now, was, State::Ready, sink);
                this.cpu = Some(target);
                self.begin_wait(vcpu, target, Some(waker), now);
            }
            State::Ready => {
                let moved = this.wait.as_ref().is_some_and(|wait| wait.cpu != target);
                let woken = this.wait.as_ref().is_some_and(|wait| wait.waker.is_some());
                // Only the second event names the CPU that was chosen.
                if moved && waker.is_none() {
                    this.cpu = Some(target);
                    self.leave_queue(vcpu, now);
                    self.join_queue(vcpu, target, now, woken);
                }
            }
            _ => this.early = waker.or(this.early),
        }
    }

    /// Thread `by` moves thread `moved` to CPU `to`.
    pub(super) fn migrate(&mut self, moved: Tid, to: u32, by: Tid, now: u64) {
        let Some(vcpu) = self.vcpu_of(moved) else { return };
        let this = &mut self.vcpus[vcpu];
        if this.wait.is_some() {
            // The waker chooses the CPU; a balancer that moves it later is another thread.
            let waker = this.wait.as_ref().and_then(|wait| wait.waker);
            let woken = waker.is_some_and(|waker| waker.thread == by);
            self.leave_queue(vcpu, now);
            self.vcpus[vcpu].cpu = Some(to);
            self.join_queue(vcpu, to, now, woken);
        }
    }
}
