//! SysV semaphores.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use crate::costs;
use crate::kernel::Kernel;
use crate::machine::Machine;
use crate::sched::{self, WakeHint};
use crate::task::{TaskId, state};

/// A SysV semaphore array, with those who wait for it in their order.
pub(super) struct Array {
    values: Box<[u32]>,
    waiters: VecDeque<(TaskId, u32)>,
}

impl Array {
    pub(super) fn new(semaphores: u32) -> Self {
        Array {
            values: (0..semaphores).map(|_| 0).collect(),
            waiters: VecDeque::new(),
        }
    }
}

/// Subtracts one from a semaphore; sleeps while it is 0. First come, first served.
pub(crate) fn semaphore_down<M: Machine>(kernel: &Kernel<M>, array: u32, index: u32) {
    let on = kernel.on_cpu();
    let id = on.current();
    let task = kernel.tasks.get(id);
    on.work(costs::SEMOP);
    {
        let mut array = kernel.ipc.arrays[array as usize].lock(&on);
        on.work(costs::SEMOP_HELD);
        let value = &mut array.values[index as usize];
        if *value > 0 {
            *value -= 1;
            return;
        }
        task.granted.set(0);
        task.state.set(state::INTERRUPTIBLE);
        array.waiters.push_back((id, index));
    }
    // The one who adds does this one's subtraction too, and says so before it wakes it.
    loop {
        sched::schedule(kernel);
        if task.granted.get() != 0 {
            return;
        }
        task.state.set(state::INTERRUPTIBLE);
        if task.granted.get() != 0 {
            task.state.set(state::RUNNING);
            return;
        }
    }
}

/// Adds one to a semaphore, or lets the first who waits for it go.
pub(crate) fn semaphore_up<M: Machine>(kernel: &Kernel<M>, array: u32, index: u32) {
    let on = kernel.on_cpu();
    on.work(costs::SEMOP);
    let woken = {
        let mut array = kernel.ipc.arrays[array as usize].lock(&on);
        on.work(costs::SEMOP_HELD);
        let waiter = array.waiters.iter().position(|&(_, waits_for)| waits_for == index);
        match waiter {
            Some(position) => array.waiters.remove(position).map(|(id, _)| id),
            None => {
                array.values[index as usize] += 1;
                None
            }
        }
    };
    if let Some(id) = woken {
        kernel.tasks.get(id).granted.set(1);
        sched::wake(&on, id, state::ASLEEP, WakeHint::Plain);
    }
}
