//! The network: a virtio-net driver, and one TCP connection with requests and answers.
//!
//! The driver works like that of Linux 4.x. Sent packets are freed when the next packet is sent, without an interrupt.
//! After the first interrupt, arrived packets are polled for until no more come (NAPI). TCP is only a cost: no packet
//! is lost on this network, so no packet is sent twice.
//!
//! **No lost packet**: a CPU that stops polling first asks for an interrupt, and then checks once more (`queue.rs`).
//! **No lost interrupt**: an interrupt that comes while its CPU polls, or does other work after an interrupt, is noted
//! and polled for.

mod queue;

use alloc::collections::VecDeque;

use holdfast_abi::virtio::{self, Network};

pub use queue::DriverQueue;

use crate::class::LockClass;
use crate::costs;
use crate::cpu::{System, ThisCpu};
use crate::local::Shared32;
use crate::machine::{Cpu, Machine};
use crate::sched::{OnCpu, Scheduler, WakeHint};
use crate::sync::SpinLock;
use crate::task::state;
use crate::wait::WaitQueue;

/// The driver and its connection.
pub(crate) struct Net<M: Machine> {
    receive: DriverQueue,
    /// Linux's `__netif_tx_lock`.
    transmit: SpinLock<DriverQueue, M>,
    /// `sk_lock` with the receive queue: the messages that have arrived.
    arrived: SpinLock<VecDeque<u32>, M>,
    wait: WaitQueue<M>,
    /// Not 0: packets may have arrived that no CPU has polled for.
    pending: Shared32,
}

/// Returns the device.
fn device<M: Machine>(system: &System<M>) -> &Network {
    system.device(system.machine.network(), "network")
}

impl<M: Machine> Net<M> {
    pub(crate) fn new() -> Self {
        Net {
            receive: DriverQueue::default(),
            transmit: SpinLock::new(LockClass::NetTransmit, DriverQueue::default()),
            arrived: SpinLock::new(LockClass::SocketQueue, VecDeque::with_capacity(4)),
            wait: WaitQueue::new(),
            pending: Shared32::new(0),
        }
    }

    /// Opens the device: offers receive buffers, and enables the interrupt.
    pub(crate) fn open(&self, sched: &Scheduler<M>) {
        let (on, device) = (sched.on_cpu(), device(&sched.system));
        while self.receive.room() > 0 {
            on.sched.memory.take_page(&on);
            self.receive.add(&device.receive, 0);
        }
        if self.receive.enable(&device.receive) {
            self.pending.set(1);
        }
    }

    /// Sends a small message.
    pub(crate) fn send(&self, sched: &Scheduler<M>, message: u32) {
        let (on, device) = (sched.on_cpu(), device(&sched.system));
        on.work(costs::TCP_SEND);
        on.sched.memory.slab(&on, 2);
        let queue = self.transmit.lock(&on);
        while queue.take(&device.transmit).is_some() {
            on.sched.memory.slab(&on, 2);
        }
        on.work(costs::NET_QUEUE);
        if queue.add(&device.transmit, message) {
            on.cpu.port_write(virtio::NOTIFY_PORT, u32::from(virtio::TRANSMIT));
        }
    }

    /// Receives a message, and sleeps until there is one.
    pub(crate) fn receive(&self, sched: &Scheduler<M>) -> u32 {
        sched.on_cpu().work(costs::TCP_READ);
        loop {
            if let Some(message) = self.arrived.lock_irq(&sched.on_cpu()).pop_front() {
                return message;
            }
            let arrived = |on: &OnCpu<'_, M>| !self.arrived.lock_irq(on).is_empty();
            self.wait.sleep_unless(sched, state::INTERRUPTIBLE, arrived);
        }
    }

    /// Handles the device's interrupt (`skb_recv_done`).
    pub(crate) fn interrupt(&self, on: &ThisCpu<'_, M>) {
        on.work(costs::NET_INTERRUPT);
        self.pending.set(1);
    }

    /// Returns `true` if the caller must poll for packets now.
    pub(crate) fn take_pending(&self) -> bool {
        self.pending.get() != 0 && {
            self.pending.set(0);
            true
        }
    }

    /// Receives packets until no more arrive (`virtnet_poll`). Interrupts are enabled.
    pub(crate) fn poll(&self, on: &OnCpu<'_, M>) {
        let device = device(on.system);
        loop {
            while let Some(message) = self.receive.take(&device.receive) {
                on.work(costs::NET_QUEUE + costs::TCP_RECEIVE);
                on.sched.memory.slab(on, 2);
                self.arrived.lock_irq(on).push_back(message);
                self.wait.wake(on, u32::MAX, WakeHint::Sync);
                if self.receive.add(&device.receive, 0) {
                    on.cpu.port_write(virtio::NOTIFY_PORT, u32::from(virtio::RECEIVE));
                }
            }
            if !self.receive.enable(&device.receive) {
                return;
            }
        }
    }
}
