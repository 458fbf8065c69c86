//! SysV semaphores.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use crate::class::LockClass;
use crate::costs;
use crate::ids::TaskId;
use crate::limits::Limits;
use crate::machine::Machine;
use crate::sched::{self, Scheduler, WakeHint};
use crate::sync::SpinLock;
use crate::task::state;
use crate::wait::sleep_until_granted;

/// All SysV semaphores.
pub(crate) struct SemaphoreArrays<M: Machine> {
    arrays: Box<[SpinLock<Array, M>]>,
}

/// A SysV semaphore array, with the tasks that wait for it in the order of their arrival.
struct Array {
    values: Box<[u32]>,
    /// Each waiter with the index of its semaphore.
    waiters: VecDeque<(TaskId, u32)>,
}

impl<M: Machine> SemaphoreArrays<M> {
    pub(crate) fn new(limits: &Limits) -> Self {
        let array = || Array {
            values: (0..limits.semaphores).map(|_| 0).collect(),
            waiters: VecDeque::new(),
        };
        SemaphoreArrays {
            arrays: (0..limits.semaphore_arrays)
                .map(|_| SpinLock::new(LockClass::IpcSemaphore, array()))
                .collect(),
        }
    }

    /// Subtracts one from a semaphore, and sleeps while it is 0. First come, first served.
    pub(crate) fn down(&self, sched: &Scheduler<M>, array: u32, index: u32) {
        let on = sched.on_cpu();
        let id = on.current();
        let task = on.task(id);
        on.work(costs::SEMOP);
        {
            let mut array = self.arrays[array as usize].lock(&on);
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
        // The task that adds one also does this task's subtraction.
        sleep_until_granted(sched, state::INTERRUPTIBLE);
    }

    /// Adds one to a semaphore, or lets the first task that waits for it continue.
    pub(crate) fn up(&self, sched: &Scheduler<M>, array: u32, index: u32) {
        let on = sched.on_cpu();
        on.work(costs::SEMOP);
        let woken = {
            let mut array = self.arrays[array as usize].lock(&on);
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
            on.task(id).granted.set(1);
            sched::wake(&on, id, state::ASLEEP, WakeHint::Plain);
        }
    }
}
