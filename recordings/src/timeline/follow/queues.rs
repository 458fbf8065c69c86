//! The queues of pCPUs, and what each wait is behind.

use super::*;

impl Follower {
    /// Enters in the waits for `cpu` what has had it up to `now`.
    pub(super) fn attribute(&mut self, cpu: u32, now: u64) {
        let Some(known) = self.cpus.get(cpu) else { return };
        let occupant = known.occupant();
        for waiter in &known.waiters {
            if let Some(wait) = &mut self.vcpus[waiter.0 as usize].wait {
                wait.attribute(occupant, now);
            }
        }
    }

    /// Says what has had `cpu` up to `now`.
    pub(super) fn had(&mut self, cpu: u32, now: u64, sink: &mut impl Sink) {
        let known = self.cpus.at(cpu, now);
        let (from, occupant) = (known.since, known.occupant());
        known.since = now;
        if from < now {
            sink.step(&Step::Had {
                cpu,
                from,
                to: now,
                occupant,
            });
        }
    }

    /// Takes vCPU `vcpu` out of the queue of its pCPU.
    pub(super) fn leave_queue(&mut self, vcpu: usize, now: u64) {
        let Some(wait) = &self.vcpus[vcpu].wait else { return };
        let cpu = wait.cpu;
        self.attribute(cpu, now);
        let index = self.vcpus[vcpu].index;
        if let Some(cpu) = self.cpus.get_mut(cpu) {
            cpu.waiters.retain(|waiter| *waiter != index);
        }
    }

    /// Puts vCPU `vcpu`, which waits, into the queue of `cpu`. `woken`: just now.
    pub(super) fn join_queue(&mut self, vcpu: usize, cpu: u32, now: u64, woken: bool) {
        if cpu >= CPUS_MAX {
            return;
        }
        let known = self.cpus.at(cpu, now);
        let occupant = known.occupant();
        known.waiters.push(self.vcpus[vcpu].index);
        let runner = match occupant {
            Occupant::Vcpu(runner)
                if woken && matches!(self.vcpus[runner.0 as usize].state, State::Guest | State::Host) =>
            {
                Some((runner, None))
            }
            _ => None,
        };
        if let Some(wait) = &mut self.vcpus[vcpu].wait {
            wait.attribute(Occupant::Unknown, now);
            (wait.cpu, wait.runner) = (cpu, runner);
        }
    }

    pub(super) fn begin_wait(&mut self, vcpu: usize, cpu: u32, waker: Option<Waker>, now: u64) {
        self.vcpus[vcpu].wait = Some(Wait {
            cpu,
            upto: now,
            behind: Vec::new(),
            waker,
            runner: None,
        });
        self.join_queue(vcpu, cpu, now, waker.is_some());
    }
}
