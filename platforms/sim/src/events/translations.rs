//! Loads, flushes and uses of translations. A vCPU that executes user code with a translation that its kernel relies on
//! being gone ends the run.
//!
//! Nested page tables: a TLB miss in a guest walks two sets of page tables. How many misses a microsecond of user code
//! has, and a TLB that was emptied, is part of the costs. Kernels map their memory by large pages, so their code has
//! few misses, and pays nothing. Nor do the bare-metal kernel and threads of a program.

use holdfast_guest::Pcid;
use holdfast_host::{VcpuId, VmId};
use holdfast_machine::Picos;

use crate::books::happened::Happened;
use crate::core::cause::Cause;
use crate::core::failure::Failure;
use crate::engine::Engine;
use crate::events::siblings::stretch;
use crate::memory::tlb::Held;
use crate::parts::vcpu::Mode;

impl Engine {
    /// `vcpu` loads the tables of `space` under `pcid`. If it keeps what the TLB has under that identifier and that is
    /// of another space, user code uses wrong translations.
    pub fn load_tables(&mut self, vcpu: VcpuId, space: u32, pcid: Pcid) {
        let this = &mut self.vcpus[vcpu];
        this.memory.tlb.loaded = pcid.number;
        if !pcid.keeps {
            *this.memory.tlb.current() = Held {
                filled: Some(self.vms[this.vm].spaces.fill(space)),
                refill: self.hardware.costs.nested_refill,
            };
            return;
        }
        let held = this.memory.tlb.current().filled;
        if held.is_none_or(|filled| filled.space != space) {
            self.end.fail(|| {
                let had = held.map_or("nothing".to_owned(), |filled| format!("address space {}", filled.space));
                Failure::StaleTranslation(format!(
                    "vcpu {} keeps translations for address space {space}, and its TLB has {had}",
                    vcpu.0
                ))
            });
        }
    }

    /// The kernel of `vcpu` flushes what the TLB has of the loaded tables.
    pub fn flush_tlb(&mut self, vcpu: VcpuId) {
        let this = &mut self.vcpus[vcpu];
        self.vms[this.vm]
            .spaces
            .empty(this.memory.tlb.current(), self.hardware.costs.nested_refill);
    }

    /// The whole TLB of `vcpu` is emptied: by the host, or because the vCPU is on another pCPU.
    pub fn empty_tlb(&mut self, vcpu: VcpuId) {
        let this = &mut self.vcpus[vcpu];
        let spaces = &mut self.vms[this.vm].spaces;
        for held in &mut this.memory.tlb.held {
            spaces.empty(held, self.hardware.costs.nested_refill);
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
        let (Mode::User, Some(filled)) = (this.announced.mode, this.memory.tlb.held[this.memory.tlb.loaded].filled)
        else {
            return;
        };
        if let Some(change) = self.vms[this.vm].spaces.missing_change(filled) {
            self.end.fail(|| {
                Failure::StaleTranslation(format!(
                    "vcpu {} uses address space {} as it was before change {change}, which its kernel relies on",
                    vcpu.0, filled.space
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
        let held = this.memory.tlb.current();
        let refill = held.refill.min(span);
        held.refill = held.refill - refill;
        let delay = this.memory.delay;
        if delay != Picos::ZERO {
            self.emit(&Happened::Slowed {
                vcpu,
                within: Cause::Useful,
                cause: Cause::RemoteMemory,
                span: stretch(span, delay),
            });
        }
        span + stretch(span, self.hardware.costs.nested_walks + delay) + refill
    }
}
