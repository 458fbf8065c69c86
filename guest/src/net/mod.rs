//! The network: a virtio-net driver, and one TCP connection with requests and answers.
//!
//! As Linux 4.x drives it: what has been sent is freed when the next packet is sent, without an interrupt; what arrives is
//! polled for after the first interrupt (NAPI), until nothing comes any more. TCP is a cost; nothing is lost on this way, so
//! nothing is sent twice.
//!
//! **No lost packet**: who stops polling says that it wants an interrupt, and looks once more (`queue.rs`). **No lost
//! interrupt**: one that comes while its CPU polls, or while it does other work after an interrupt, is noted and polled for.

mod queue;

use alloc::collections::VecDeque;

use holdfast_abi::virtio::{self, Network};

pub use queue::DriverQueue;

use crate::class::LockClass;
use crate::costs;
use crate::kernel::{Kernel, OnCpu};
use crate::local::Shared32;
use crate::machine::{Cpu, Machine};
use crate::process;
use crate::sched::{self, WakeHint};
use crate::sync::SpinLock;
use crate::task::state;
use crate::wait::WaitQueue;

/// The driver and its connection.
pub(crate) struct Net<M: Machine> {
    receive: DriverQueue,
    /// `__netif_tx_lock`.
    transmit: SpinLock<DriverQueue, M>,
    /// `sk_lock` with the receive queue: what has arrived.
    arrived: SpinLock<VecDeque<u32>, M>,
    wait: WaitQueue<M>,
    /// Not 0: packets may have arrived that nobody has polled for.
    pending: Shared32,
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
}

/// The device, for a caller that was told that there is one.
fn device<M: Machine>(kernel: &Kernel<M>) -> &Network {
    match kernel.machine.network() {
        Some(network) => network,
        None => process::panic(kernel, "no network device was found".into()),
    }
}

/// Opens the device: offers buffers, and wants to know what arrives.
pub(crate) fn open<M: Machine>(kernel: &Kernel<M>) {
    let (on, device) = (kernel.on_cpu(), device(kernel));
    let net = &kernel.net;
    while net.receive.room() > 0 {
        kernel.memory.take_page(&on);
        net.receive.add(&device.receive, 0);
    }
    if net.receive.enable(&device.receive) {
        net.pending.set(1);
    }
}

/// Sends a small message.
pub(crate) fn send<M: Machine>(kernel: &Kernel<M>, message: u32) {
    let (on, device) = (kernel.on_cpu(), device(kernel));
    on.work(costs::TCP_SEND);
    kernel.memory.slab(&on, 2);
    let queue = kernel.net.transmit.lock(&on);
    while queue.take(&device.transmit).is_some() {
        kernel.memory.slab(&on, 2);
    }
    on.work(costs::NET_QUEUE);
    if queue.add(&device.transmit, message) {
        on.cpu.port_write(virtio::NOTIFY_PORT, u32::from(virtio::TRANSMIT));
    }
}

/// Receives a message; sleeps until there is one.
pub(crate) fn receive<M: Machine>(kernel: &Kernel<M>) -> u32 {
    let net = &kernel.net;
    kernel.on_cpu().work(costs::TCP_READ);
    loop {
        let on = kernel.on_cpu();
        if let Some(message) = net.arrived.lock_irq(&on).pop_front() {
            return message;
        }
        net.wait.prepare(&on, state::INTERRUPTIBLE);
        let nothing_yet = net.arrived.lock_irq(&on).is_empty();
        if nothing_yet {
            sched::schedule(kernel);
        }
        net.wait.finish(&kernel.on_cpu());
    }
}

/// The device's interrupt (`skb_recv_done`).
pub(crate) fn interrupt<M: Machine>(on: &OnCpu<'_, M>) {
    on.work(costs::NET_INTERRUPT);
    on.kernel.net.pending.set(1);
}

/// Whether packets are to be polled for; the caller does that next.
pub(crate) fn take_pending<M: Machine>(on: &OnCpu<'_, M>) -> bool {
    let pending = &on.kernel.net.pending;
    pending.get() != 0 && {
        pending.set(0);
        true
    }
}

/// Takes in what has arrived, until nothing more does (`virtnet_poll`). Interrupts are enabled.
pub(crate) fn poll<M: Machine>(on: &OnCpu<'_, M>) {
    let (net, device) = (&on.kernel.net, device(on.kernel));
    loop {
        while let Some(message) = net.receive.take(&device.receive) {
            on.work(costs::NET_QUEUE + costs::TCP_RECEIVE);
            on.kernel.memory.slab(on, 2);
            net.arrived.lock_irq(on).push_back(message);
            net.wait.wake(on, u32::MAX, WakeHint::Sync);
            if net.receive.add(&device.receive, 0) {
                on.cpu.port_write(virtio::NOTIFY_PORT, u32::from(virtio::RECEIVE));
            }
        }
        if !net.receive.enable(&device.receive) {
            return;
        }
    }
}
