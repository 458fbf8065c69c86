//! Events of KVM.

use super::*;

impl Follower {
    pub(super) fn entry(&mut self, cpu: u32, thread: Tid, number: u32, now: u64, sink: &mut impl Sink) {
        if thread == 0 {
            return;
        }
        let Some(vcpu) = self.of_kvm(thread, Some(number), now, sink) else {
            return;
        };
        let this = &mut self.vcpus[vcpu];
        let was = match this.state {
            // The exit is missing.
            State::Guest => State::Running,
            state => state,
        };
        this.change(now, was, State::Guest, sink);
        this.release(sink);
        this.split = true;
        (this.halting, this.interrupted, this.sent, this.early) = (false, false, None, None);
        // A thread that waits for this pCPU has not got it at the exit. If there was no exit since its wakeup, the vCPU
        // was just about to enter.
        let index = this.index;
        let Some(cpu) = self.cpus.get(cpu) else { return };
        for waiter in &cpu.waiters {
            if let Some(wait) = &mut self.vcpus[waiter.0 as usize].wait
                && wait
                    .runner
                    .is_some_and(|(runner, exit)| runner == index && exit.is_some())
            {
                wait.runner = None;
            }
        }
    }

    pub(super) fn exit(
        &mut self,
        cpu: u32,
        thread: Tid,
        number: Option<u32>,
        (reason, isa): (u32, u32),
        now: u64,
        sink: &mut impl Sink,
    ) {
        if thread == 0 {
            return;
        }
        let Some(vcpu) = self.of_kvm(thread, number, now, sink) else {
            return;
        };
        let this = &mut self.vcpus[vcpu];
        let guest = (this.state == State::Guest).then(|| now.saturating_sub(this.since));
        let was = match this.state {
            // The entry is missing.
            State::Host if this.split => State::Running,
            state => state,
        };
        this.change(now, was, State::Host, sink);
        this.split = true;
        this.halting = reasons::is_halt(reason, isa);
        this.interrupted = reasons::is_interrupt(reason, isa);
        this.sent = None;
        if this.halting {
            this.halt(sink);
        }
        let index = this.index;
        sink.step(&Step::Exited {
            vcpu: index,
            at: now,
            reason,
            isa,
            guest,
        });
        let Some(cpu) = self.cpus.get(cpu) else { return };
        for waiter in &cpu.waiters {
            if let Some(wait) = &mut self.vcpus[waiter.0 as usize].wait
                && let Some((runner, exit)) = &mut wait.runner
                && *runner == index
            {
                exit.get_or_insert(now);
            }
        }
    }
}
