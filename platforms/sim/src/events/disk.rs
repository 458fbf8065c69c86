//! A guest's disk at work: gives time to the VMM's I/O thread (`tasks/disk.rs`), and carries out its actions.

use holdfast_abi::msi;
use holdfast_host::{Event, Nanos, PcpuId, TaskEvent, TaskId, VmmEvent};
use holdfast_machine::Picos;

use crate::engine::Engine;
use crate::tasks::disk::{Action, VECTOR};

/// The I/O thread `task` of a disk has `pcpu`: it continues its work, or takes its next action.
pub fn run_thread(engine: &mut Engine, pcpu: PcpuId, task: TaskId) {
    let left = engine.tasks.all.get(&task).map_or(Picos::ZERO, |task| task.remaining);
    if left > Picos::ZERO {
        return engine.run_task(pcpu, task, left);
    }
    let now = engine.clock.now.nanos();
    let Some(disk) = engine.tasks.disks.iter_mut().find(|disk| disk.thread == task) else {
        return;
    };
    let vm = disk.vm;
    let event = match disk.drive.next(&engine.vms[vm].fixed.memory.disk, now) {
        Action::Work(ns) => {
            let span = Picos::from_nanos(ns);
            if let Some(task) = engine.tasks.all.get_mut(&task) {
                task.remaining = span;
            }
            return engine.run_task(pcpu, task, span);
        }
        Action::Signal => Event::Vmm(VmmEvent::Msi {
            pcpu,
            vm,
            address: msi::address(0),
            data: VECTOR,
        }),
        Action::Sleep(until) => Event::Task(TaskEvent::Sleeps {
            pcpu,
            until: until.map(Nanos),
        }),
    };
    engine.step_host(pcpu, event);
}
