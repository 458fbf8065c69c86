//! Load, put, sleep, entry: the descriptor over a vCPU's life
//! (docs/spec/interrupts.md, "Posted interrupts"), and when hardware virtualises its LAPIC at all.

use holdfast_abi::vmcs::{self, InterruptStatus};
use holdfast_abi::{Vmcs, lapic as reg};

use crate::boundary::VcpuId;
use crate::host::Host;
use crate::interrupts::avic::memory::{HostMemory, page_address};
use crate::interrupts::lapic::ApicRegisters;

impl Host {
    /// The thread of `vcpu` has taken `pcpu`.
    pub(crate) fn apicv_load(&mut self, vcpu: VcpuId, pcpu: u32) {
        let Some(apicv) = &mut self.at(vcpu).apicv else { return };
        if let Some(before) = apicv.listed.take() {
            self.posted_sleepers[before as usize].retain(|&sleeper| sleeper != vcpu);
        }
        let memory = HostMemory(self);
        self.descriptor(&memory, vcpu).load(pcpu);
    }

    /// The thread of `vcpu` gives its pCPU away and stays ready, or not.
    pub(crate) fn apicv_put(&self, vcpu: VcpuId, ready: bool) {
        if ready && self.vcpus[vcpu.0 as usize].apicv.is_some() {
            let memory = HostMemory(self);
            self.descriptor(&memory, vcpu).preempt();
        }
    }

    /// The thread of `vcpu` is about to sleep, on `pcpu`. Without interrupts to wait for it stays where it is: nobody who posts
    /// could end its halt. Others post also to one that has not been entered yet, since it sleeps since it was restored.
    pub(crate) fn apicv_block(&mut self, vcpu: VcpuId, pcpu: u32) {
        let at = self.at(vcpu);
        let waits = at.guest.interrupts_enabled;
        let Some(apicv) = at.apicv.as_mut().filter(|_| waits) else {
            return;
        };
        if apicv.listed.replace(pcpu).is_none() {
            self.posted_sleepers[pcpu as usize].push(vcpu);
        }
        let memory = HostMemory(self);
        let posted = self.descriptor(&memory, vcpu).block();
        assert!(!posted, "something was posted to vcpu {} within a step", vcpu.0);
    }

    /// Switches APIC virtualization of `vcpu`, which is about to enter, to what it shall be.
    pub(crate) fn update_intel(&mut self, vcpu: VcpuId) {
        let at = &self.vcpus[vcpu.0 as usize];
        let Some(apicv) = &at.apicv else { return };
        let wanted = self.wants_apicv(vcpu);
        let by_mode = if at.apic.is_x2apic() {
            vmcs::VIRTUALIZE_X2APIC
        } else {
            vmcs::VIRTUALIZE_APIC_ACCESSES
        };
        let secondary = match wanted {
            true => by_mode | vmcs::APIC_REGISTER_VIRTUALIZATION | vmcs::VIRTUAL_INTERRUPT_DELIVERY,
            false => 0,
        };
        if apicv.active == wanted && apicv.vmcs.get().secondary == secondary {
            return;
        }
        if !wanted {
            // Nobody looks at what is posted any more.
            self.apicv_sync(vcpu);
        }
        let at = self.at(vcpu);
        if let Some(apicv) = &mut at.apicv {
            apicv.active = wanted;
            let before = apicv.vmcs.get();
            apicv.vmcs.set(Vmcs { secondary, ..before });
        }
        at.window = false;
        at.apic.expect_requests();
        self.request_event(vcpu);
    }

    /// Moves all that was posted for `vcpu` to its page, also while it was preempted: it is saved where it stands.
    pub(crate) fn apicv_save(&self, vcpu: VcpuId) {
        if self.vcpus[vcpu.0 as usize].apicv.is_some() {
            let memory = HostMemory(self);
            self.descriptor(&memory, vcpu).notice();
            self.apicv_sync(vcpu);
        }
    }

    /// Forgets what is posted for `vcpu`, whose LAPIC is reset (`vmx_apicv_pre_state_restore`).
    pub(crate) fn apicv_forget(&self, vcpu: VcpuId) {
        if self.vcpus[vcpu.0 as usize].apicv.is_some() {
            let memory = HostMemory(self);
            self.descriptor(&memory, vcpu).forget();
        }
    }

    /// Moves what is posted for `vcpu` to its page, and sets RVI and SVI by it.
    pub(crate) fn apicv_sync(&self, vcpu: VcpuId) {
        let at = &self.vcpus[vcpu.0 as usize];
        let Some(apicv) = &at.apicv else { return };
        let memory = HostMemory(self);
        self.descriptor(&memory, vcpu).sync(page_address(vcpu));
        let page = at.apic.registers();
        let highest = |field| page.highest(field).unwrap_or(0);
        let status = InterruptStatus::new(highest(reg::IRR), highest(reg::ISR));
        let before = apicv.vmcs.get();
        apicv.vmcs.set(Vmcs { status, ..before });
    }
}
