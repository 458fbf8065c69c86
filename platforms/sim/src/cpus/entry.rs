//! What a pCPU does after the host's work: it enters a guest, runs a task, polls, or idles.

use holdfast_host::{PcpuId, Run, TaskId, VcpuId};
use holdfast_machine::Time;

use crate::books::happened::Happened;
use crate::core::engine::Engine;
use crate::cpus::pcpu::{Activity, Handler};

impl Engine {
    /// `pcpu` does what the host has chosen for it. An interrupt that was held back comes right after.
    pub fn begin_next(&mut self, pcpu: PcpuId) {
        if let Handler::Due(interrupted) = self.pcpus[pcpu].handler {
            return self.enter_handler(pcpu, interrupted);
        }
        self.emit(&Happened::HostRuns { pcpu, executes: false });
        let this = &mut self.pcpus[pcpu];
        let interrupt = this.held.take();
        this.since = self.clock.now;
        match this.next {
            Run::Guest { vcpu, inject, window } => {
                this.activity = Activity::Guest(vcpu);
                self.enter_guest(pcpu, vcpu, inject, window);
            }
            Run::Task(task) => self.begin_task(pcpu, task),
            Run::Poll(_) => {
                this.activity = Activity::Poll;
                self.clock.clear_activity(pcpu);
            }
            Run::Idle => {
                this.activity = Activity::Idle;
                self.clock.clear_activity(pcpu);
            }
        }
        if let Some(interrupt) = interrupt {
            self.interrupt(pcpu, interrupt);
        }
    }

    fn begin_task(&mut self, pcpu: PcpuId, task: TaskId) {
        if let Some(thread) = self.tasks.native_thread(task) {
            return self.enter_thread(pcpu, thread);
        }
        if self.tasks.is_network_thread(task) {
            return self.run_network_thread(pcpu, task);
        }
        self.pcpus[pcpu].activity = Activity::Task(task);
        let task = self.tasks.all.get(&task);
        let end = task.map_or(Time::NEVER, |task| self.clock.now + task.remaining);
        self.clock.set_activity(pcpu, end);
    }

    /// `vcpu` enters its guest on `pcpu`: with the vector `inject`, and with the wish for an exit when interrupts can
    /// be taken if `window`.
    fn enter_guest(&mut self, pcpu: PcpuId, vcpu: VcpuId, inject: Option<u8>, window: bool) {
        let this = &self.vcpus[vcpu];
        assert!(
            this.pcpu.is_none(),
            "vcpu {} is entered on pcpu {} and is in its guest already",
            vcpu.0,
            pcpu.0
        );
        self.emit(&Happened::Entered {
            vcpu,
            vector: inject,
            has_moved: this.last_pcpu != pcpu,
        });
        self.vm_of(vcpu).memory.finish_torn_exchange(self.vcpus[vcpu].number);
        self.check_translations(vcpu);
        let now = self.clock.now;
        let this = &mut self.vcpus[vcpu];
        this.last_pcpu = pcpu;
        this.flow.has_begun = true;
        this.interrupts.window = window;
        this.spin.pauses.enter();
        if inject.is_some() {
            assert!(
                this.interrupts.vector.is_none(),
                "vcpu {} gets a second vector before it took the first one",
                vcpu.0
            );
            this.interrupts.vector = inject;
        }
        this.enter(pcpu, now);
        // Hardware evaluates pending interrupts at every entry.
        self.take_notification(pcpu, vcpu);
        if let Some(vector) = self.take_from_hardware(vcpu) {
            self.vcpus[vcpu].interrupts.vector = Some(vector);
        }
        self.clock.set_activity(pcpu, self.vcpus[vcpu].next_step(now));
        self.emit(&Happened::Waits { vcpu });
    }
}
