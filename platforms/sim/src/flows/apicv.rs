//! A guest's accesses to its LAPIC under APICv.

use holdfast_host::{Exit, HostMemory, PcpuId};
use holdfast_machine::ApicvModel;
use holdfast_machine::apicv::{Apicv, Exit as ApicvExit, WriteOutcome};

use crate::books::happened::Happened;
use crate::core::cause::Cause;
use crate::engine::handle::Handle;

impl Handle {
    /// `write` of `value` in hardware, at the flow's turn. Returns `false` if APICv is off by now, or the write has to
    /// leave the guest as without APICv.
    pub fn apicv_write(
        &self,
        model: ApicvModel,
        value: u32,
        write: impl FnOnce(&mut Apicv<'_, HostMemory<'_>>) -> Option<WriteOutcome>,
    ) -> bool {
        let written = self.with(|engine| {
            let (apic, vcpu) = (engine.hardware.apic, engine.flows.current);
            let outcome = apic.with_apicv(&engine.host, vcpu, write)??;
            engine.emit(&Happened::ApicWritten {
                vcpu,
                offset: None,
                value,
            });
            Some(outcome)
        });
        let Some(outcome) = written else {
            return false;
        };
        match outcome {
            WriteOutcome::Done => self.spend(Cause::VirtualApic, model.register),
            WriteOutcome::Evaluate => {
                self.spend(Cause::VirtualApic, model.register);
                self.take_pending();
            }
            WriteOutcome::Posted(notification) => {
                let spent = model.register + model.ipi;
                self.with(|engine| {
                    let (vcpu, notified) = (engine.flows.current, notification.is_some());
                    engine.emit(&Happened::IpiPosted { vcpu, notified });
                    if let Some(notification) = notification {
                        engine.send_notification(PcpuId(notification.destination), notification.vector, spent);
                    }
                });
                self.spend(Cause::VirtualApic, spent);
                return true;
            }
            WriteOutcome::Exit(ApicvExit::Access { .. }) => return false,
            WriteOutcome::Exit(ApicvExit::Write { offset }) => {
                self.exit(Exit::ApicvWrite { offset, value });
                return true;
            }
        }
        self.emit_access();
        true
    }
}
