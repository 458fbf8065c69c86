//! Skipped spins: a flow that would only re-read an unchanged word parks on the word's line.
//!
//! **Exact**: a parked flow continues at a load that it would have executed, and leaves behind what the loads and PAUSEs
//! in between would have left, so that histories with and without skipping are the same bit for bit.

use holdfast_machine::{Key, LineId, Picos, Spin, Time};

use crate::engine::{CLASS_ACTIVITY, Engine};
use crate::vcpu::Parked;

impl Engine {
    /// From one load of a spin to the next while nobody writes the word.
    pub fn spin_period(&self) -> Picos {
        self.costs.load_hit + self.costs.pause
    }

    /// Parks `vcpu`, whose next load of `line` is due at its clock and which may load `loads` times more.
    pub fn park(&mut self, vcpu: u32, line: LineId, loads: u64) {
        self.stats.parks += 1;
        let period = self.spin_period();
        let spin = Spin { next: self.vcpus[vcpu as usize].clock, period, loads };
        let pauses = match &self.ple {
            Some(ple) => {
                let first = spin.next + self.costs.load_hit;
                self.vcpus[vcpu as usize].pauses.pauses_before_exit(ple, first, period)
            }
            None => u64::MAX,
        };
        let until_load = pauses.min(spin.loads - 1);
        let record = &mut self.records[line.0 as usize];
        let this = &mut self.vcpus[vcpu as usize];
        this.parked = Some(Parked { line, spin, until_load });
        this.next_parked = record.parked.replace(vcpu);
        let Some(pcpu) = this.pcpu else { unreachable!("vcpu {vcpu} spins and is not in its guest") };
        if until_load == u64::MAX - 1 || until_load == u64::MAX {
            // Only a write or an interrupt ends it.
            self.queue.set(pcpu, Key::new(Time::NEVER, CLASS_ACTIVITY, pcpu));
        } else {
            self.queue.set(pcpu, Key::new(spin.load_time(until_load), CLASS_ACTIVITY, pcpu));
        }
    }

    /// `writer` took `line` away from all others now: who spins on it sees that at its next load.
    #[inline]
    pub fn wake_parked(&mut self, line: LineId, writer: u32) {
        if self.records[line.0 as usize].parked.is_some() {
            self.wake_all_parked(line, writer);
        }
    }

    #[cold]
    fn wake_all_parked(&mut self, line: LineId, writer: u32) {
        let mut next = self.records[line.0 as usize].parked.take();
        let writer_pcpu = self.vcpus[writer as usize].last_pcpu;
        while let Some(vcpu) = next {
            next = self.vcpus[vcpu as usize].next_parked.take();
            let this = &self.vcpus[vcpu as usize];
            let (Some(parked), Some(pcpu)) = (this.parked, this.pcpu) else { unreachable!("vcpu {vcpu} is not parked") };
            // Of loads at the very time of the write, those of lower pCPUs came first.
            let loads = parked.spin.loads_before(self.now, pcpu < writer_pcpu);
            self.unpark(vcpu, parked, loads);
            let clock = self.vcpus[vcpu as usize].clock;
            self.queue.set(pcpu, Key::new(clock, CLASS_ACTIVITY, pcpu));
        }
    }

    /// The flow of `vcpu` continues: if it was parked, all its loads but the last have passed. Returns how many.
    pub fn resume_parked(&mut self, vcpu: u32) -> u64 {
        if let Some(parked) = self.vcpus[vcpu as usize].parked {
            self.unlink(vcpu, parked.line);
            self.unpark(vcpu, parked, parked.until_load);
        }
        std::mem::take(&mut self.vcpus[vcpu as usize].skipped_loads)
    }

    /// `vcpu` is stopped now: its next load stands over.
    pub fn unpark_for_stop(&mut self, vcpu: u32) {
        if let Some(parked) = self.vcpus[vcpu as usize].parked {
            self.unlink(vcpu, parked.line);
            let loads = parked.spin.loads_before(self.now, false).min(parked.until_load);
            self.unpark(vcpu, parked, loads);
        }
    }

    fn unpark(&mut self, vcpu: u32, parked: Parked, loads: u64) {
        let spent = parked.spin.period.times(loads);
        let load_hit = self.costs.load_hit;
        let this = &mut self.vcpus[vcpu as usize];
        this.parked = None;
        this.skipped_loads = loads;
        this.clock += spent;
        this.owe_wait(spent);
        if let Some(ple) = &self.ple {
            this.pauses.skip(ple, parked.spin.next + load_hit, parked.spin.period, loads);
        }
    }

    fn unlink(&mut self, vcpu: u32, line: LineId) {
        let after = self.vcpus[vcpu as usize].next_parked.take();
        let first = self.records[line.0 as usize].parked;
        if first == Some(vcpu) {
            self.records[line.0 as usize].parked = after;
            return;
        }
        let mut at = first;
        while let Some(other) = at {
            let following = self.vcpus[other as usize].next_parked;
            if following == Some(vcpu) {
                self.vcpus[other as usize].next_parked = after;
                return;
            }
            at = following;
        }
        unreachable!("vcpu {vcpu} is parked and not on its line's list")
    }
}
