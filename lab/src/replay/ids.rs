//! Threads of a simulated host, as files beside a recording would say them.

use holdfast_recordings::event::Tid;
use holdfast_recordings::hosts::{Beside, VmFiles};
use holdfast_sim::timeline::{Thread, Timeline};

/// Thread ID of the host's first task.
pub const TASKS: Tid = 50;

/// Returns the process of guest `vm`.
pub fn process(vm: u32) -> Tid {
    1000 * (vm + 1)
}

/// Returns the thread ID of `thread`.
pub fn thread_id(timeline: &Timeline, thread: Thread) -> Tid {
    match thread {
        Thread::Vcpu(vcpu) | Thread::Poll(vcpu) => {
            let vcpu = &timeline.vcpus[vcpu as usize];
            process(vcpu.vm) + 1 + vcpu.number
        }
        Thread::Task(task) => TASKS + task,
        Thread::Idle => 0,
    }
}

/// Returns the process of a host task called `name`: that of a guest's VMM if the guest's name and `-` begin it.
pub fn process_of_task(timeline: &Timeline, name: &str) -> Option<Tid> {
    let is_of = |vm: &String| name.strip_prefix(vm.as_str()).is_some_and(|rest| rest.starts_with('-'));
    let longest = (0..).zip(&timeline.vms).filter(|(_, vm)| is_of(vm));
    longest.max_by_key(|(_, vm)| vm.len()).map(|(vm, _)| process(vm))
}

/// Returns what files beside the recording would say: the process of each vCPU, and the names of the guests. Threads
/// of the guest `others` are the host's own. Host tasks whose names begin with that of a guest and `-` are threads of
/// its VMM.
pub fn beside(timeline: &Timeline, others: Option<u32>) -> Beside {
    let mut beside = Beside::default();
    for (index, vcpu) in (0..).zip(&timeline.vcpus) {
        if Some(vcpu.vm) != others {
            let thread = thread_id(timeline, Thread::Vcpu(index));
            beside.processes.insert(thread, process(vcpu.vm));
        }
    }
    for task in &timeline.tasks {
        if let Some(process) = process_of_task(timeline, &task.name) {
            let thread = thread_id(timeline, Thread::Task(task.number));
            beside.processes.insert(thread, process);
        }
    }
    for (vm, name) in (0..).zip(&timeline.vms).filter(|(vm, _)| Some(*vm) != others) {
        let files = VmFiles {
            name: Some(name.clone()),
            ..VmFiles::default()
        };
        beside.vms.insert(process(vm), files);
    }
    beside
}
