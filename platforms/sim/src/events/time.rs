//! How a vCPU's time passes: its flow uses up the time that it has announced, waits for locks, and is stopped.

use holdfast_host::VcpuId;
use holdfast_machine::{LineId, Picos};

use crate::books::happened::Happened;
use crate::core::cause::Cause;
use crate::engine::Engine;

impl Engine {
    /// Enters all that `vcpu`, in guest mode, did up to now. A wait for a lock is left for later: the lock's clock
    /// knows how the whole wait divides.
    #[inline]
    pub fn use_pending_time(&mut self, vcpu: VcpuId) {
        let span = self.clock.now.since(self.books.accounts[vcpu].ledger.cursor());
        if span != Picos::ZERO && self.vcpus[vcpu].announced.contending.is_none() {
            self.use_pending(vcpu, span);
        }
    }

    fn use_pending(&mut self, vcpu: VcpuId, span: Picos) {
        let now = self.clock.now;
        let this = &mut self.vcpus[vcpu];
        // At its turn, a flow has used all that it announced.
        if this.flow.clock == now
            && let Some(mut work) = self.books.plain_work_of(vcpu, this)
        {
            this.flow.pending.take_all(|stretch| work.spent(stretch));
            assert!(
                work.is_entered_until(now),
                "vcpu {} announced other time than it used",
                vcpu.0
            );
        } else {
            self.use_part(vcpu, span);
        }
    }

    #[inline(never)]
    fn use_part(&mut self, vcpu: VcpuId, span: Picos) {
        let this = &mut self.vcpus[vcpu];
        let mut work = self.books.work_of(self.clock.now, vcpu, this);
        let announced = &this.announced;
        this.flow
            .pending
            .take(span, |stretch| work.used(vcpu, announced, stretch));
    }

    /// Stops `vcpu`, in guest mode, at this instant.
    pub fn suspend(&mut self, vcpu: VcpuId) {
        self.emit(&Happened::Stops { vcpu });
        self.unpark_for_stop(vcpu);
        self.use_pending_time(vcpu);
        self.emit(&Happened::Waited { vcpu });
        let now = self.clock.now;
        let this = &mut self.vcpus[vcpu];
        this.flow.remaining = this.flow.clock.since(now);
        if let Some(pcpu) = this.pcpu.take() {
            self.pcpus[pcpu].stop(now);
        }
    }

    /// `vcpu` begins to wait for the lock in `line`.
    pub fn contention_begins(&mut self, vcpu: VcpuId, line: LineId) {
        self.use_pending_time(vcpu);
        let this = &mut self.vcpus[vcpu];
        // From here on all of its time is waiting, including the time for the lock's own line.
        this.flow.pending.clear();
        this.announced.contending = Some(line);
        this.announced.contentions += 1;
        self.emit(&Happened::ContentionBegan { vcpu, line });
    }

    /// `vcpu` no longer waits for the lock in `line`.
    pub fn contention_ends(&mut self, vcpu: VcpuId, line: LineId) {
        self.emit(&Happened::Waited { vcpu });
        let now = self.clock.now;
        let this = &mut self.vcpus[vcpu];
        this.announced.contending = None;
        let ahead = this.flow.clock.since(now);
        let fits = this.announce(Cause::CacheTransfer, ahead);
        assert!(fits, "vcpu {} has pending time after a wait for a lock", vcpu.0);
        self.emit(&Happened::ContentionEnded { vcpu, line });
    }

    /// `vcpu` holds the lock in `line`.
    #[inline]
    pub fn lock_acquired(&mut self, vcpu: VcpuId, line: LineId) {
        self.books.stats.acquisitions += 1;
        self.vcpus[vcpu].announced.held.push(line);
        self.emit(&Happened::LockAcquired { vcpu, line });
    }

    /// `vcpu` releases the lock in `line`.
    #[inline]
    pub fn lock_released(&mut self, vcpu: VcpuId, line: LineId) {
        let held = &mut self.vcpus[vcpu].announced.held;
        if let Some(index) = held.iter().rposition(|&other| other == line) {
            held.remove(index);
        }
        self.emit(&Happened::LockReleased { vcpu, line });
    }
}
