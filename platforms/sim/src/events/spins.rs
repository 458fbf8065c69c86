//! Skipped spins: a flow that would only read an unchanged word again parks on the word's line.
//!
//! While the line is not written, a parked spin costs nothing. A write invalidates the copies of all spinners, and
//! each one misses at its next load. Those misses are real events: they happen at the times and in the order in which
//! the spinners would have executed them. But they are played here, without waking the flows. A flow continues only
//! when its wait is over, or when it has to do something other than spin.
//!
//! **Exact**: histories with and without skipping are the same bit for bit, ledgers included.

use holdfast_host::{PcpuId, VcpuId};
use holdfast_machine::{Access, LineId, Picos, Spin, Time};

use crate::core::cause::Cause;
use crate::engine::Engine;
use crate::memory::park::{ENDLESS, Parked, Resumption, Spinners, Woken};
use crate::memory::probe::Probe;
use crate::parts::pcpu::Activity;

impl Engine {
    /// The vCPU whose flow executes next, and when. Returns `None` if the next event is not a flow's turn. Plays the
    /// misses of spinners on the way.
    #[inline(always)]
    pub fn next_turn(&mut self) -> Option<(Time, VcpuId)> {
        loop {
            if let Some((time, pcpu)) = self.clock.first_step() {
                return match self.pcpus[pcpu].activity {
                    Activity::Guest(vcpu) => Some((time, vcpu)),
                    _ => None,
                };
            }
            self.play_misses(self.clock.first_miss()?);
        }
    }

    /// `vcpu` loads `line` now. Returns the cost.
    #[inline(always)]
    pub fn load(&mut self, vcpu: VcpuId, line: LineId) -> Picos {
        self.books.stats.operations += 1;
        let pcpu = self.vcpus[vcpu].last_pcpu;
        let now = self.clock.now;
        let charge = self.memory.access(line, pcpu, Access::Load, now);
        if charge.changed {
            self.books.hash.operation(now, line, vcpu);
        }
        charge.instruction + charge.transfer
    }

    /// The flow that executes takes `line` now to write to it: all of an ordered operation but the change of the word,
    /// which no other flow sees before this one waits again. One function for all operations, so that they share its
    /// code in the instruction cache.
    #[inline(never)]
    pub fn take_line(&mut self, line: LineId, access: Access) {
        self.books.stats.operations += 1;
        let (vcpu, now) = (self.flows.current, self.clock.now);
        let pcpu = self.vcpus[vcpu].last_pcpu;
        let charge = self.memory.access(line, pcpu, access, now);
        self.books.hash.operation(now, line, vcpu);
        if charge.changed {
            self.invalidate(line, vcpu);
        }
        let this = &mut self.vcpus[vcpu];
        this.flow.clock += charge.instruction + charge.transfer;
        if this.announced.contending.is_none() {
            let own = this.announced.work_cause();
            let fits = this.announce(own, charge.instruction) && this.announce(Cause::CacheTransfer, charge.transfer);
            debug_assert!(fits, "pending time was not drained before the operation");
        }
    }

    /// Parks `vcpu`, whose next load of `line` is due at its clock and which may load `loads` times more.
    pub fn park(&mut self, vcpu: VcpuId, line: LineId, loads: u64, probe: Probe) {
        self.books.stats.parks += 1;
        let costs = &self.hardware.costs;
        let this = &mut self.vcpus[vcpu];
        let spin = Spin {
            next: this.flow.clock,
            period: costs.load_hit + costs.pause,
            loads,
        };
        this.spin.parked = Some(Parked::new(line, probe, spin));
        this.spin.resumption = None;
        self.memory.spinners(line).get_or_insert_default().quiet.push(vcpu);
        self.plan_end(vcpu);
    }

    /// Plans the time at which the flow of `vcpu` must act itself if its line is not written.
    fn plan_end(&mut self, vcpu: VcpuId) {
        let this = &mut self.vcpus[vcpu];
        let in_kernel = this.is_in_kernel();
        let (Some(parked), Some(pcpu)) = (&mut this.spin.parked, this.pcpu) else {
            return;
        };
        let spin = parked.spin;
        let first = spin.next + self.hardware.costs.load_hit;
        let pauses = this.spin.pauses.pauses_before_exit(in_kernel, first, spin.period);
        let was_endless = parked.until_load == ENDLESS;
        parked.until_load = pauses.min(spin.loads.saturating_sub(1)).min(ENDLESS);
        let end = match parked.until_load {
            ENDLESS if was_endless => return,
            ENDLESS => Time::NEVER,
            load => spin.load_time(load),
        };
        self.clock.set_activity(pcpu, end);
    }

    /// `writer` took `line` away from all other caches now: the spinners on it miss at their next loads.
    #[inline]
    pub fn invalidate(&mut self, line: LineId, writer: VcpuId) {
        if self.memory.spinners(line).is_some() {
            self.invalidate_spinners(line, writer);
        }
    }

    fn invalidate_spinners(&mut self, line: LineId, writer: VcpuId) {
        let Some(mut spinners) = self.memory.spinners(line).take() else {
            return;
        };
        spinners.stale.rebase(self.clock.now);
        let writer_pcpu = self.vcpus[writer].last_pcpu;
        for vcpu in spinners.quiet.drain(..) {
            let Some(pcpu) = self.vcpus[vcpu].pcpu else {
                unreachable!("vcpu {} is parked and not in its guest", vcpu.0)
            };
            // Of the loads at the very time of the write, those of lower pCPUs came first.
            let loads = self.loads_before(vcpu, pcpu < writer_pcpu);
            let next = self.pass(vcpu, loads);
            spinners.stale.push(next, pcpu);
        }
        spinners.stale.sort();
        self.plan_miss(&mut spinners);
        *self.memory.spinners(line) = Some(spinners);
    }

    fn plan_miss(&mut self, spinners: &mut Spinners) {
        let next = spinners.stale.next();
        let before = std::mem::replace(&mut spinners.planned, next.map(|(_, pcpu)| pcpu));
        if let Some(pcpu) = before
            && before != spinners.planned
        {
            self.clock.clear_miss(pcpu);
        }
        if let Some((time, pcpu)) = next {
            self.clock.set_miss(pcpu, time);
        }
    }

    fn loads_before(&self, vcpu: VcpuId, inclusive: bool) -> u64 {
        let parked = &self.vcpus[vcpu].spin.parked;
        parked.map_or(0, |parked| parked.loads_before(self.clock.now, inclusive))
    }

    /// Lets `loads` loads of a quiet spin pass, and marks its copy invalid. Returns the time of the next load.
    fn pass(&mut self, vcpu: VcpuId, loads: u64) -> Time {
        let this = &mut self.vcpus[vcpu];
        let in_kernel = this.is_in_kernel();
        let Some(parked) = &mut this.spin.parked else {
            unreachable!("vcpu {} is not parked", vcpu.0)
        };
        let first = parked.spin.next + self.hardware.costs.load_hit;
        this.spin.pauses.skip(in_kernel, first, parked.spin.period, loads);
        parked.pass(loads)
    }

    /// Plays the miss of `first`, which is the first event of all, and the misses on the same line that follow it
    /// before any other event.
    pub fn play_misses(&mut self, first: PcpuId) {
        let line = self.spins_on(first);
        let Some(mut spinners) = self.memory.spinners(line).take() else {
            return;
        };
        spinners.planned = None;
        self.clock.clear_miss(first);
        while let Some((time, pcpu)) = spinners.stale.next() {
            if !self.clock.miss_precedes(time, pcpu) {
                break;
            }
            spinners.stale.pop();
            self.clock.now = time;
            let vcpu = self.spinner(pcpu);
            if self.miss(vcpu, line) {
                spinners.quiet.push(vcpu);
                self.plan_end(vcpu);
            } else {
                self.clock.set_activity(pcpu, time);
                break;
            }
        }
        self.plan_miss(&mut spinners);
        *self.memory.spinners(line) = Some(spinners);
    }

    /// The vCPU on `pcpu`, whose flow spins there.
    fn spinner(&self, pcpu: PcpuId) -> VcpuId {
        let Activity::Guest(vcpu) = self.pcpus[pcpu].activity else {
            unreachable!("a flow spins on pcpu {}, which is not in guest mode", pcpu.0)
        };
        vcpu
    }

    /// The line on which the flow on `pcpu` spins.
    fn spins_on(&self, pcpu: PcpuId) -> LineId {
        let vcpu = self.spinner(pcpu);
        let Some(parked) = &self.vcpus[vcpu].spin.parked else {
            unreachable!("vcpu {} is not parked", vcpu.0)
        };
        parked.line
    }

    /// Plays the next load of `vcpu` now. Returns whether the vCPU keeps spinning.
    fn miss(&mut self, vcpu: VcpuId, line: LineId) -> bool {
        let loaded = self.clock.now + self.load(vcpu, line);
        let pause = self.hardware.costs.pause;
        let this = &mut self.vcpus[vcpu];
        let in_kernel = this.is_in_kernel();
        let Some(parked) = &mut this.spin.parked else {
            unreachable!("vcpu {} is not parked", vcpu.0)
        };
        let (value, accepted) = parked.probe.look();
        let mut ends = accepted || parked.spin.loads == 1;
        if !ends {
            // The flow executes a PAUSE that exits itself.
            ends = this.spin.pauses.pauses_before_exit(in_kernel, loaded, Picos(1)) == 0;
            if !ends {
                this.spin.pauses.pause(in_kernel, loaded);
            }
        }
        if ends {
            let passed = parked.passed;
            this.spin.parked = None;
            this.spin.resumption = Some(Resumption {
                woken: Woken::Read(value),
                passed,
            });
            let waited = loaded.since(this.flow.clock);
            this.flow.clock = loaded;
            this.announce_wait(waited);
            return false;
        }
        parked.pass_miss(loaded + pause);
        true
    }

    /// The flow of `vcpu` continues after a skipped spin.
    pub fn resume_parked(&mut self, vcpu: VcpuId) -> Resumption {
        if let Some(parked) = self.vcpus[vcpu].spin.parked {
            let loads = if parked.stale { 0 } else { parked.until_load };
            self.unpark(vcpu, loads);
        }
        let resumption = self.vcpus[vcpu].spin.resumption.take();
        resumption.expect("a parked flow continues without a resumption")
    }

    /// Ends the skipped spin of `vcpu`, which is stopped now before its next load.
    pub fn unpark_for_stop(&mut self, vcpu: VcpuId) {
        if let Some(parked) = self.vcpus[vcpu].spin.parked {
            let loads = if parked.stale {
                0
            } else {
                self.loads_before(vcpu, false)
            };
            self.unpark(vcpu, loads);
        }
    }

    /// Takes `vcpu` off its line after `loads` more loads.
    fn unpark(&mut self, vcpu: VcpuId, loads: u64) {
        let next = self.pass(vcpu, loads);
        let this = &mut self.vcpus[vcpu];
        let (Some(parked), Some(pcpu)) = (this.spin.parked.take(), this.pcpu) else {
            unreachable!("vcpu {} is not parked", vcpu.0)
        };
        this.spin.resumption = Some(Resumption {
            woken: Woken::Due,
            passed: parked.passed,
        });
        let waited = next.since(this.flow.clock);
        this.flow.clock = next;
        this.announce_wait(waited);
        let Some(mut spinners) = self.memory.spinners(parked.line).take() else {
            return;
        };
        if let Some(index) = spinners.quiet.iter().position(|&other| other == vcpu) {
            spinners.quiet.swap_remove(index);
        } else {
            spinners.stale.remove(pcpu);
            self.plan_miss(&mut spinners);
        }
        *self.memory.spinners(parked.line) = Some(spinners);
    }
}
