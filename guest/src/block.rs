//! The block device: a virtio-blk driver, and what is read from the disk into the page cache.
//!
//! A task that needs a page sleeps until the device has read it. The device's interrupt wakes it. Reads only: what a
//! guest writes stays in the page cache.
//!
//! **No lost request**: a request is in the queue or done, and its task sleeps on its own completion.
//! **No lost interrupt**: the handler first asks for the next interrupt, and then checks once more (`net/queue.rs`).

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;

use holdfast_abi::virtio::{self, Disk};

use crate::class::LockClass;
use crate::costs;
use crate::cpu::System;
use crate::machine::{Cpu, Machine};
use crate::net::DriverQueue;
use crate::sched::{OnCpu, Scheduler, WakeHint};
use crate::sync::SpinLock;
use crate::task::state;
use crate::wait::{Completion, WaitQueue};

/// The most requests at a time (Linux's `BLKDEV_MAX_RQ`).
const REQUESTS: u32 = 128;

/// The driver of the block device.
pub(crate) struct Block<M: Machine> {
    /// Linux's `q->queue_lock`.
    queue: SpinLock<Requests, M>,
    /// The end of each request.
    done: Box<[Completion<M>]>,
    /// Tasks that wait for a free request.
    room: WaitQueue<M>,
    /// Tasks that wait for a file that another task reads (`page_waitqueue`).
    pages: WaitQueue<M>,
}

struct Requests {
    ring: DriverQueue,
    /// Numbers of the requests that are not in use.
    free: Vec<u32>,
}

/// Returns the device.
fn device<M: Machine>(system: &System<M>) -> &Disk {
    system.device(system.machine.disk(), "block")
}

impl<M: Machine> Block<M> {
    pub(crate) fn new() -> Self {
        let requests = Requests {
            ring: DriverQueue::default(),
            free: (0..REQUESTS).rev().collect(),
        };
        Block {
            queue: SpinLock::new(LockClass::BlockQueue, requests),
            done: (0..REQUESTS).map(|_| Completion::new()).collect(),
            room: WaitQueue::new(),
            pages: WaitQueue::new(),
        }
    }

    /// Tasks that wait for a file that another task reads.
    pub(crate) fn readers(&self) -> &WaitQueue<M> {
        &self.pages
    }

    /// Reads `pages` consecutive pages, and sleeps meanwhile.
    pub(crate) fn read(&self, sched: &Scheduler<M>, pages: u32) {
        sched.on_cpu().work(costs::BLOCK_SUBMIT);
        let request = loop {
            if let Some(request) = self.submit(&sched.on_cpu(), pages) {
                break request;
            }
            let has_room = |on: &OnCpu<'_, M>| !self.queue.lock_irq(on).free.is_empty();
            self.room.sleep_unless(sched, state::UNINTERRUPTIBLE, has_room);
        };
        self.done[request as usize].wait(sched);
        let on = sched.on_cpu();
        self.queue.lock_irq(&on).free.push(request);
        if !self.room.is_idle() {
            self.room.wake(&on, 1, WakeHint::Plain);
        }
    }

    /// Gives the device a request. Returns `None` if all are in use.
    fn submit(&self, on: &OnCpu<'_, M>, pages: u32) -> Option<u32> {
        let device = device(on.system);
        let mut queue = self.queue.lock_irq(on);
        let request = queue.free.pop()?;
        on.work(costs::BLOCK_QUEUE);
        device.pages[request as usize].store(pages, Relaxed);
        if queue.ring.add(&device.requests, request) {
            on.cpu.port_write(virtio::DISK_NOTIFY_PORT, 0);
        }
        Some(request)
    }

    /// Handles the device's interrupt (`blk_done`). Interrupts are masked.
    pub(crate) fn interrupt(&self, on: &OnCpu<'_, M>) {
        let device = device(on.system);
        loop {
            let done = {
                let queue = self.queue.lock_irq(on);
                on.work(costs::BLOCK_QUEUE);
                match queue.ring.take(&device.requests) {
                    None if !queue.ring.enable(&device.requests) => return,
                    done => done,
                }
            };
            if let Some(request) = done {
                on.work(costs::BLOCK_DONE);
                self.done[request as usize].complete(on);
            }
        }
    }
}
