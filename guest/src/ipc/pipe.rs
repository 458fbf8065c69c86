//! Pipes.

use crate::costs;
use crate::kernel::Kernel;
use crate::local::Local32;
use crate::machine::Machine;
use crate::mutex::Mutex;
use crate::process;
use crate::sched::{self, WakeHint};
use crate::task::state;
use crate::wait::WaitQueue;

/// Bytes that a pipe holds: 16 pages.
const PIPE_BYTES: u32 = 65_536;
const PAGE_BYTES: u32 = 4_096;

/// A pipe.
pub(super) struct Pipe<M: Machine> {
    /// The pipe's inode's `i_mutex`; protects the rest.
    mutex: Mutex<M>,
    /// Readers and writers alike.
    wait: WaitQueue<M>,
    bytes: Local32,
    writers: Local32,
}

impl<M: Machine> Pipe<M> {
    pub(super) fn new() -> Self {
        Pipe {
            mutex: Mutex::new(),
            wait: WaitQueue::new(),
            bytes: Local32::new(0),
            writers: Local32::new(0),
        }
    }
}

/// Opens a pipe for `writers` writing processes; empties it.
pub(crate) fn open_pipe<M: Machine>(kernel: &Kernel<M>, id: u32, writers: u32) {
    let pipe = &kernel.ipc.pipes[id as usize];
    pipe.mutex.lock(kernel);
    pipe.bytes.set(0);
    pipe.writers.set(writers);
    pipe.mutex.unlock(&kernel.on_cpu());
}

/// A writer closes the pipe; the last one's readers see its end.
pub(crate) fn close_pipe_writer<M: Machine>(kernel: &Kernel<M>, id: u32) {
    let pipe = &kernel.ipc.pipes[id as usize];
    pipe.mutex.lock(kernel);
    pipe.writers.sub(1);
    let on = kernel.on_cpu();
    pipe.wait.wake(&on, u32::MAX, WakeHint::Sync);
    pipe.mutex.unlock(&on);
}

/// Reads up to `want` bytes; sleeps while there are none. 0: the end. `None`: a signal came instead.
pub(crate) fn read_pipe<M: Machine>(kernel: &Kernel<M>, id: u32, want: u32) -> Option<u32> {
    let pipe = &kernel.ipc.pipes[id as usize];
    pipe.mutex.lock(kernel);
    loop {
        let on = kernel.on_cpu();
        let there = pipe.bytes.get();
        if there > 0 || pipe.writers.get() == 0 {
            let got = there.min(want);
            pipe.bytes.sub(got);
            on.work(costs::PIPE + costs::PIPE_PAGE * u64::from(got) / u64::from(PAGE_BYTES));
            pipe.mutex.unlock(&on);
            if there == PIPE_BYTES {
                pipe.wait.wake(&on, u32::MAX, WakeHint::Sync);
            }
            return Some(got);
        }
        pipe.wait.prepare(&on, state::INTERRUPTIBLE);
        pipe.mutex.unlock(&on);
        sched::schedule(kernel);
        let on = kernel.on_cpu();
        pipe.wait.finish(&on);
        if process::take_signal(&on) {
            return None;
        }
        pipe.mutex.lock(kernel);
    }
}

/// Writes `bytes`; sleeps while the pipe is full.
pub(crate) fn write_pipe<M: Machine>(kernel: &Kernel<M>, id: u32, bytes: u32) {
    let pipe = &kernel.ipc.pipes[id as usize];
    let mut left = bytes;
    pipe.mutex.lock(kernel);
    loop {
        let on = kernel.on_cpu();
        let part = left.min(PIPE_BYTES - pipe.bytes.get()).min(PAGE_BYTES.max(left));
        if part > 0 {
            on.work(costs::PIPE + costs::PIPE_PAGE * u64::from(part) / u64::from(PAGE_BYTES));
            if part >= PAGE_BYTES {
                kernel.memory.take_page(&on);
            }
            pipe.bytes.add(part);
            left -= part;
        }
        if left == 0 {
            pipe.mutex.unlock(&on);
            pipe.wait.wake(&on, u32::MAX, WakeHint::Sync);
            return;
        }
        pipe.wait.wake(&on, u32::MAX, WakeHint::Sync);
        pipe.wait.prepare(&on, state::UNINTERRUPTIBLE);
        pipe.mutex.unlock(&on);
        sched::schedule(kernel);
        pipe.wait.finish(&kernel.on_cpu());
        pipe.mutex.lock(kernel);
    }
}
