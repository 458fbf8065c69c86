//! A guest's disk, as the host has it: the VMM's I/O thread, and the disk behind it.
//!
//! ```text
//! guest ── queue ── I/O thread ── disk: up to `depth` requests ── I/O thread ── queue, interrupt
//! ```
//!
//! The thread is a state machine that says what it does next. The driver of the host gives it time (`events/disk.rs`).
//! Requests that the disk works on at the same time have their latencies together and their transfers one by one.
//!
//! **Conserved**: a request is in the queue, in the thread's hands, or on the disk.

use holdfast_abi::virtio;
use holdfast_abi::virtio::QUEUE_SIZE;
use holdfast_host::{ConfigError, Host, TaskConfig, TaskId, VmId};
use holdfast_machine::Picos;

use crate::config::DiskConfig;
use crate::core::failure::Failure;
use crate::network::DeviceQueue;
use crate::tasks::task::{Drawn, Task};

/// The vector that the guest's driver has requested for requests that are done.
pub const VECTOR: u32 = 0x42;
/// The thread's work to take a request and give it to the host's kernel, in nanoseconds of a CPU of the guest's costs'
/// class: virtqueue, `io_submit`, block layer and driver. An estimate.
const SUBMIT_NS: u64 = 8_000;
/// Its work for a request that is done: the disk's interrupt, `io_getevents`, virtqueue. An estimate.
const COMPLETE_NS: u64 = 8_000;
/// Bytes of a page.
const PAGE: u64 = 4_096;

/// The next action of the I/O thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Works for this many nanoseconds.
    Work(u64),
    /// Signals the guest's interrupt.
    Signal,
    /// Sleeps until this time at most, in nanoseconds, or until the guest rings the doorbell.
    Sleep(Option<u64>),
}

/// The request that the thread handles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Hands {
    #[default]
    Empty,
    /// On its way to the disk.
    Submits(u32),
    /// On its way back to the guest.
    Completes(u32),
}

/// A request on the disk.
#[derive(Clone, Copy, Debug)]
struct Flight {
    request: u32,
    until_ns: u64,
}

/// A disk, and the thread that serves it.
#[derive(Clone, Debug)]
pub struct Drive {
    config: DiskConfig,
    queue: DeviceQueue,
    hands: Hands,
    flights: Vec<Flight>,
    /// End of the last transfer.
    free_ns: u64,
}

impl Drive {
    fn new(config: DiskConfig) -> Drive {
        Drive {
            config,
            queue: DeviceQueue::default(),
            hands: Hands::Empty,
            flights: Vec::new(),
            free_ns: 0,
        }
    }

    /// Returns the next action of the thread at `now_ns`.
    pub fn next(&mut self, memory: &virtio::Disk, now_ns: u64) -> Action {
        loop {
            match std::mem::take(&mut self.hands) {
                Hands::Submits(request) => self.submit(memory, request, now_ns),
                Hands::Completes(request) => {
                    if self.queue.push(&memory.requests, request) {
                        return Action::Signal;
                    }
                }
                Hands::Empty => {}
            }
            if let Some(at) = self.flights.iter().position(|flight| flight.until_ns <= now_ns) {
                self.hands = Hands::Completes(self.flights.remove(at).request);
                return Action::Work(COMPLETE_NS);
            }
            if self.flights.len() < self.config.depth.max(1) as usize {
                if let Some(request) = self.queue.pop(&memory.requests) {
                    self.hands = Hands::Submits(request);
                    return Action::Work(SUBMIT_NS);
                }
                if self.queue.enable(&memory.requests) {
                    continue;
                }
            }
            return Action::Sleep(self.flights.iter().map(|flight| flight.until_ns).min());
        }
    }

    /// The disk gets `request`. The guest may have written any number and any length.
    fn submit(&mut self, memory: &virtio::Disk, request: u32, now_ns: u64) {
        let pages = memory.pages[request as usize % QUEUE_SIZE].load(std::sync::atomic::Ordering::Relaxed);
        let bytes = u128::from(u64::from(pages) * PAGE);
        let transfer_ns = bytes * 1_000_000_000 / u128::from(self.config.bytes_per_second.max(1));
        let transfer_ns = u64::try_from(transfer_ns).unwrap_or(u64::MAX);
        let begin_ns = now_ns.saturating_add(self.config.latency_ns).max(self.free_ns);
        self.free_ns = begin_ns.saturating_add(transfer_ns);
        self.flights.push(Flight {
            request,
            until_ns: self.free_ns,
        });
    }
}

/// A guest's disk.
#[derive(Debug)]
pub struct Disk {
    /// The guest.
    pub vm: VmId,
    /// The VMM's I/O thread.
    pub thread: TaskId,
    /// What goes over it.
    pub drive: Drive,
}

impl Disk {
    /// Gives guest `vm` a disk, with the thread that serves it.
    ///
    /// # Errors
    /// If the host takes no more tasks.
    pub fn new(host: &mut Host, vm: VmId, config: DiskConfig) -> Result<Disk, Failure> {
        let thread = host.add_task(&TaskConfig::default());
        let thread = thread.map_err(|error: ConfigError| Failure::Invalid(error.to_string()))?;
        host.add_doorbell(vm, virtio::DISK_NOTIFY_PORT, thread);
        let drive = Drive::new(config);
        Ok(Disk { vm, thread, drive })
    }

    /// The thread, as a host task of the engine. What it does is decided here.
    pub fn task(&self) -> (TaskId, Task) {
        let task = Task {
            name: "disk".to_owned(),
            busy: Some(Picos::ZERO),
            sleep: Picos::ZERO,
            remaining: Picos::ZERO,
            drawn: Drawn::Never,
        };
        (self.thread, task)
    }
}

#[cfg(test)]
#[path = "disk/tests.rs"]
mod tests;
