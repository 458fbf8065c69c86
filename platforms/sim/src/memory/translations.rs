//! Loads, flushes and uses of translations. A vCPU that executes user code with a translation that its kernel relies on
//! being gone ends the run.
//!
//! Nested page tables: a TLB miss in a guest walks two sets of page tables. How many misses a microsecond of user code
//! has, and a TLB that was emptied, is part of the costs. Kernels map their memory by large pages, so their code has
//! few misses, and pays nothing. Nor do the bare-metal kernel and threads of a program.

use holdfast_host::{VcpuId, VmId};
use holdfast_machine::Picos;

use crate::core::engine::Engine;
use crate::core::failure::Failure;
use crate::cpus::siblings::stretch;
use crate::cpus::vcpu::Mode;
use crate::memory::tlb::Tlb;

impl Engine {
    /// `vcpu` loads the tables of `space`.
    pub fn load_tables(&mut self, vcpu: VcpuId, space: u32) {
        let this = &mut self.vcpus[vcpu];
        this.tlb = Some(self.vms[this.vm].spaces.fill(space));
        self.tlb_emptied(vcpu);
    }

    /// The TLB of `vcpu` is emptied, by its kernel or by the host.
    pub fn flush_tlb(&mut self, vcpu: VcpuId) {
        if let Some(Tlb { space, .. }) = self.vcpus[vcpu].tlb {
            self.load_tables(vcpu, space);
        }
    }

    /// Guest `vm` relies, from now on, on no CPU using what went from `space` up to `change`.
    pub fn tables_flushed(&mut self, vm: VmId, space: u32, change: u64) {
        self.vms[vm].spaces.flushed(space, change);
        for vcpu in self.vms[vm].vcpu_ids() {
            if self.vcpus[vcpu].pcpu.is_some() {
                self.check_translations(vcpu);
            }
        }
    }

    /// Checks the TLB of `vcpu` if the vCPU is about to execute user code.
    #[inline]
    pub fn check_translations(&mut self, vcpu: VcpuId) {
        let this = &self.vcpus[vcpu];
        let (Mode::User, Some(tlb)) = (this.announced.mode, this.tlb) else {
            return;
        };
        if let Some(change) = self.vms[this.vm].spaces.missing_change(tlb) {
            self.end.fail(|| {
                Failure::StaleTranslation(format!(
                    "vcpu {} uses address space {} as it was before change {change}, which its kernel relies on",
                    vcpu.0, tlb.space
                ))
            });
        }
    }

    /// The time that `span` of computing takes on `vcpu`, with its nested page walks. The refill of its TLB takes at
    /// most as long as the computing: what is not touched is not missed.
    #[inline]
    pub fn with_walks(&mut self, vcpu: VcpuId, span: Picos) -> Picos {
        let this = &mut self.vcpus[vcpu];
        if this.native || this.announced.mode != Mode::User {
            return span;
        }
        let refill = this.flow.tlb_refill.min(span);
        this.flow.tlb_refill = this.flow.tlb_refill - refill;
        span + stretch(span, self.hardware.costs.nested_walks) + refill
    }

    /// The TLB of `vcpu` was emptied.
    pub fn tlb_emptied(&mut self, vcpu: VcpuId) {
        self.vcpus[vcpu].flow.tlb_refill = self.hardware.costs.nested_refill;
    }
}
