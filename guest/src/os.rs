//! What a program sees of the kernel: system calls, and its own time.

use alloc::vec::Vec;

use holdfast_locks::CpuId;

use crate::class::Event;
use crate::costs;
use crate::fs::{self, FileId};
use crate::handle::KernelRef;
use crate::ipc::Events;
use crate::kernel::OnCpu;
use crate::machine::{Cpu, Machine, Mode, Report};
use crate::mm::{self, Fault};
use crate::process::{self, Executable, Exited, Fork};
use crate::program::Start;
use crate::smp::{self, Callees, Function};
use crate::sync::WordOf;
use crate::{driver, ipc, net, report, time};

/// The kernel, for the task that calls.
///
/// Only [`Os::user`] and what is built on it run in user mode, where the task can be preempted. All else is the kernel on
/// the task's behalf.
pub struct Os<M: Machine> {
    kernel: KernelRef<M>,
}

/// Memory that a stretch of user code touches for the first time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Touch {
    /// Pages of fresh memory.
    pub anonymous: u32,
    /// Pages of mapped files, all in the page cache.
    pub file: u32,
    /// Pages shared since a fork that are written.
    pub copied: u32,
}

impl Touch {
    /// Fresh memory only.
    pub const fn anonymous(pages: u32) -> Self {
        Touch {
            anonymous: pages,
            file: 0,
            copied: 0,
        }
    }

    /// Files only.
    pub const fn file(pages: u32) -> Self {
        Touch {
            anonymous: 0,
            file: pages,
            copied: 0,
        }
    }
}

impl<M: Machine> Os<M> {
    pub(crate) fn new(kernel: KernelRef<M>) -> Self {
        Os { kernel }
    }

    fn on_cpu(&self) -> OnCpu<'_, M> {
        self.kernel.on_cpu()
    }

    /// Enters a system call.
    fn syscall(&self) -> OnCpu<'_, M> {
        let on = self.on_cpu();
        on.local.count(Event::Syscalls);
        on.work(costs::SYSCALL);
        on
    }

    // ---- time ----

    /// Computes in user mode for `ns` nanoseconds of CPU time. Other tasks may run meanwhile.
    pub fn user(&self, ns: u64) {
        process::enter_user(&self.kernel);
        self.kernel.machine.cpu().compute(ns);
        self.on_cpu().execute(Mode::Kernel);
    }

    /// Computes in user mode for `ns` nanoseconds, evenly interrupted by the page faults of `touch`.
    pub fn user_touching(&self, ns: u64, touch: Touch) {
        let faults = touch.anonymous + touch.file + touch.copied;
        let part = ns / (u64::from(faults) + 1);
        let kinds = [
            (touch.file, Fault::File),
            (touch.copied, Fault::CopyOnWrite),
            (touch.anonymous, Fault::Anonymous),
        ];
        for (count, kind) in kinds {
            for _ in 0..count {
                self.user(part);
                mm::fault(&self.kernel, kind);
            }
        }
        self.user(ns - part * u64::from(faults));
    }

    /// Nanoseconds since boot.
    pub fn now(&self) -> u64 {
        self.on_cpu().now()
    }

    /// Sleeps for `ns` nanoseconds.
    pub fn sleep(&self, ns: u64) {
        self.syscall();
        time::sleep(&self.kernel, ns);
    }

    // ---- processes ----

    /// Creates a process; returns in the parent.
    pub fn fork(&self, how: Fork, start: Start) {
        self.syscall();
        process::fork(&self.kernel, how, start);
    }

    /// Executes a program: from now on the task has an address space of its own.
    pub fn exec(&self, executable: &Executable) {
        self.syscall();
        process::exec(&self.kernel, executable);
    }

    /// Waits until a child exits; `None` if there is none.
    pub fn wait(&self) -> Option<Exited> {
        self.syscall();
        process::wait(&self.kernel, true)
    }

    /// Reaps a child if one has exited.
    pub fn try_wait(&self) -> Option<Exited> {
        self.syscall();
        process::wait(&self.kernel, false)
    }

    /// From now on a child's death interrupts [`Os::read_pipe`].
    pub fn handle_child_signals(&self) {
        process::want_child_signal(&self.syscall());
    }

    /// Maps `pages` of anonymous memory (mmap): what the caller touches from now on is there, until [`Os::unmap`].
    pub fn map(&self, pages: u32) {
        self.syscall();
        mm::map(&self.kernel, pages);
    }

    /// Unmaps up to `pages` anonymous pages (munmap); waits until no CPU's TLB holds them.
    pub fn unmap(&self, pages: u32) {
        self.syscall();
        mm::unmap(&self.kernel, pages);
    }

    /// Gives up to `pages` anonymous pages back, whose addresses stay mapped (`madvise(MADV_DONTNEED)`); waits until no CPU's
    /// TLB holds them.
    pub fn discard(&self, pages: u32) {
        self.syscall();
        mm::discard(&self.kernel, pages);
    }

    // ---- files ----

    /// Opens an existing file whose path has `depth` components.
    pub fn open(&self, file: FileId, depth: u32) {
        fs::open(&self.syscall(), file, depth);
    }

    /// Tries to open a name that does not exist.
    pub fn open_missing(&self, depth: u32) {
        fs::look_up_missing(&self.syscall(), depth);
    }

    /// Asks for a file's status.
    pub fn stat(&self, file: FileId, depth: u32) {
        fs::stat(&self.syscall(), file, depth);
    }

    /// Asks for an open file's status (fstat).
    pub fn status(&self) {
        self.syscall().work(costs::FILE_STATUS);
    }

    /// Closes a file.
    pub fn close(&self, file: FileId) {
        fs::close(&self.syscall(), file);
    }

    /// Reads `pages` pages from the page cache.
    pub fn read(&self, pages: u32) {
        fs::read(&self.syscall(), pages);
    }

    /// Appends `pages` pages to a file.
    pub fn write(&self, file: FileId, pages: u32) {
        self.syscall();
        fs::write(&self.kernel, file, pages);
    }

    /// Writes `pages` pages of a file that it has already.
    pub fn overwrite(&self, file: FileId, pages: u32) {
        self.syscall();
        fs::overwrite(&self.kernel, file, pages);
    }

    /// Returns when `pages` pages written to a file, and all that was changed on its volume before, are on the disk (fsync;
    /// also the second half of a write with O_SYNC).
    pub fn sync(&self, file: FileId, pages: u32) {
        self.syscall();
        fs::sync(&self.kernel, file, pages);
    }

    /// Creates a file in `directory` and opens it.
    pub fn create(&self, directory: FileId, file: FileId, depth: u32) {
        self.syscall();
        fs::create(&self.kernel, directory, file, depth);
    }

    /// Removes a file from `directory`.
    pub fn unlink(&self, directory: FileId, file: FileId, depth: u32) {
        self.syscall();
        fs::unlink(&self.kernel, directory, file, depth);
    }

    /// Gives a file another name in `directory`, or takes one away that is not its last.
    pub fn link(&self, directory: FileId, file: FileId, depth: u32) {
        // What it changes, and the locks for it, are those of a rename.
        self.rename(directory, file, depth);
    }

    /// Renames a file within `directory`.
    pub fn rename(&self, directory: FileId, file: FileId, depth: u32) {
        self.syscall();
        fs::rename(&self.kernel, directory, file, depth);
    }

    // ---- communication ----

    /// Opens pipe `id`, empty, for `writers` writing processes.
    pub fn open_pipe(&self, id: u32, writers: u32) {
        self.syscall();
        ipc::open_pipe(&self.kernel, id, writers);
    }

    /// Closes the caller's writing end.
    pub fn close_pipe_writer(&self, id: u32) {
        self.syscall();
        ipc::close_pipe_writer(&self.kernel, id);
    }

    /// Reads up to `bytes` from a pipe; sleeps while it is empty. 0: no writer is left. `None`: interrupted by a child's
    /// death.
    pub fn read_pipe(&self, id: u32, bytes: u32) -> Option<u32> {
        self.syscall();
        ipc::read_pipe(&self.kernel, id, bytes)
    }

    /// Writes `bytes` to a pipe; sleeps while it is full.
    pub fn write_pipe(&self, id: u32, bytes: u32) {
        self.syscall();
        ipc::write_pipe(&self.kernel, id, bytes);
    }

    /// Sends a message from `socket` to its peer.
    pub fn send(&self, socket: u32, message: u32) {
        self.syscall();
        ipc::send(&self.kernel, socket, message);
    }

    /// Receives a message; sleeps until there is one.
    pub fn receive(&self, socket: u32) -> u32 {
        self.syscall();
        ipc::receive(&self.kernel, socket)
    }

    /// Sleeps until `socket` has a message.
    pub fn poll(&self, socket: u32) {
        self.syscall();
        ipc::poll(&self.kernel, socket);
    }

    /// Writes as many of `items`, each of `item_bytes`, to the stream's peer as its buffer takes; never sleeps. How many.
    pub fn write_stream(&self, stream: u32, items: &[u32], item_bytes: u32) -> usize {
        self.syscall();
        ipc::write_stream(&self.kernel, stream, items, item_bytes)
    }

    /// Reads what has arrived at `stream`, up to about `bytes`, and appends it to `into`; never sleeps. How many items.
    pub fn read_stream(&self, stream: u32, bytes: u32, into: &mut Vec<u32>) -> usize {
        self.syscall();
        ipc::read_stream(&self.kernel, stream, bytes, into)
    }

    /// Says which `events` of `stream` make `epoll` report it, once (`EPOLLONESHOT`).
    pub fn watch(&self, epoll: u32, stream: u32, events: Events) {
        self.syscall();
        ipc::epoll_control(&self.kernel, epoll, stream, events);
    }

    /// Sleeps until a watched stream is ready: which one, and for what. It is not watched any more.
    pub fn wait_ready(&self, epoll: u32) -> (u32, Events) {
        self.syscall();
        ipc::epoll_wait(&self.kernel, epoll)
    }

    /// Sleeps until [`Os::futex_wake`] for `word`, unless that is not `expected` any more.
    pub(crate) fn futex_wait(&self, word: &WordOf<M>, expected: u32) {
        self.syscall();
        ipc::futex_wait(&self.kernel, word, expected);
    }

    /// Wakes up to `count` tasks that sleep on `word`.
    pub(crate) fn futex_wake(&self, word: &WordOf<M>, count: u32) {
        ipc::futex_wake(&self.syscall(), word, count);
    }

    /// Subtracts one from a SysV semaphore; sleeps while it is 0.
    pub fn semaphore_down(&self, array: u32, index: u32) {
        self.syscall();
        ipc::semaphore_down(&self.kernel, array, index);
    }

    /// Adds one to a SysV semaphore.
    pub fn semaphore_up(&self, array: u32, index: u32) {
        self.syscall();
        ipc::semaphore_up(&self.kernel, array, index);
    }

    // ---- network ----

    /// Opens the network device with its one connection.
    pub fn open_network(&self) {
        self.syscall();
        net::open(&self.kernel);
    }

    /// Sends a small message over the network.
    pub fn send_network(&self, message: u32) {
        self.syscall();
        net::send(&self.kernel, message);
    }

    /// Receives a message from the network; sleeps until there is one.
    pub fn receive_network(&self) -> u32 {
        self.syscall();
        net::receive(&self.kernel)
    }

    // ---- drivers ----

    /// Calls `driver`, which works for `held_ns` nanoseconds under its spinlock. Returns how many calls it had before.
    pub fn call_driver(&self, driver: u32, held_ns: u64) -> u64 {
        driver::call(&self.syscall(), driver, held_ns)
    }

    // ---- other CPUs ----

    /// Has `callees` execute `function` in an interrupt's handler, and waits until all have (`smp_call_function_many`).
    /// Appends how long after the call each had executed it, in nanoseconds and in the order of the CPUs.
    pub fn call_cpus(&self, callees: Callees, function: Function, after_ns: &mut Vec<u64>) {
        smp::execute(&self.syscall(), callees, function, after_ns);
    }

    // ---- the machine ----

    /// How many CPUs there are.
    pub fn cpus(&self) -> u32 {
        self.kernel.machine.cpus()
    }

    /// Sleeps until all CPUs have booted.
    pub fn wait_for_cpus(&self) {
        while !self.kernel.all_booted() {
            self.sleep(1_000_000);
        }
    }

    /// The CPU that executes the caller at this moment.
    pub fn cpu(&self) -> CpuId {
        CpuId(self.on_cpu().index)
    }

    /// Seed of the random stream `purpose`.
    pub fn seed(&self, purpose: &str) -> u64 {
        self.kernel.machine.seed(purpose)
    }

    /// The measured interval begins.
    pub fn begin(&self) {
        self.kernel.machine.report(Report::Begin);
    }

    /// Publishes a counter of the program's with the results.
    pub fn report(&self, name: &str, value: u64) {
        self.kernel.machine.report(Report::Counter(name.into(), value));
    }

    /// The measured interval ends: publishes the kernel's counters and the result.
    pub fn done(&self, operations: Option<u64>) {
        report::publish(&self.kernel);
        self.kernel.machine.report(Report::Done { operations });
    }

    /// The kernel under the caller, for user-level locks.
    pub(crate) fn here(&self) -> OnCpu<'_, M> {
        self.on_cpu()
    }
}
