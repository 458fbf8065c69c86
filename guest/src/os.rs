//! The kernel's interface to programs: system calls, and user time.

use alloc::vec::Vec;

use holdfast_locks::CpuId;

use crate::class::Event;
use crate::costs;
use crate::fs::FileId;
use crate::handle::KernelRef;
use crate::ipc::Events;
use crate::limits::Start;
use crate::machine::{Cpu, Machine, Mode, Report};
use crate::mm::Fault;
use crate::process::{Executable, Exited, Fork};
use crate::report;
use crate::sched::{OnCpu, cond_resched};
use crate::smp::{Callees, Function};
use crate::sync::WordOf;

/// The kernel, as the calling task uses it.
///
/// Only [`Os::user`] and the functions built on it run in user mode, where the task can be preempted. Everything else
/// is kernel work on the task's behalf.
pub struct Os<M: Machine> {
    kernel: KernelRef<M>,
}

/// The memory that a stretch of user code touches for the first time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Touch {
    /// Pages of fresh memory.
    pub anonymous: u32,
    /// Pages of mapped files. All are in the page cache.
    pub file: u32,
    /// Pages that are shared since a fork, and are written.
    pub copied: u32,
}

impl Touch {
    /// Touches only fresh memory.
    pub const fn anonymous(pages: u32) -> Self {
        Touch {
            anonymous: pages,
            file: 0,
            copied: 0,
        }
    }

    /// Touches only files.
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

    /// The CPU that executes the caller.
    pub(crate) fn on_cpu(&self) -> OnCpu<'_, M> {
        self.kernel.sched.on_cpu()
    }

    fn machine(&self) -> &M {
        &self.kernel.sched.system.machine
    }

    /// Enters a system call. The one before may have ended with a task that wants this CPU.
    fn syscall(&self) -> OnCpu<'_, M> {
        cond_resched(&self.kernel.sched);
        let on = self.on_cpu();
        on.local.count(Event::Syscalls);
        on.work(costs::SYSCALL);
        on
    }

    /// Makes a system call that takes no lock and hardly does anything (`getppid`, `lseek` to the end of a file, `kill`
    /// with signal 0).
    pub fn null_call(&self) {
        self.syscall();
    }

    // ---- time ----

    /// Computes in user mode for `ns` nanoseconds of CPU time. Other tasks may run meanwhile.
    pub fn user(&self, ns: u64) {
        // Like every return to user mode, this one gives the scheduler its chance.
        cond_resched(&self.kernel.sched);
        self.on_cpu().execute(Mode::User);
        self.machine().cpu().compute(ns);
        self.on_cpu().execute(Mode::Kernel);
    }

    /// Computes in user mode for `ns` nanoseconds. The page faults of `touch` interrupt it at even intervals.
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
                self.kernel.processes.spaces.fault(&self.kernel.sched, kind);
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
        self.kernel.time.sleep(self.syscall().sched, ns);
    }

    // ---- processes ----

    /// Creates a process, and returns in the parent.
    pub fn fork(&self, how: Fork, start: Start) {
        self.kernel.processes.fork(self.syscall().sched, how, start);
    }

    /// Executes a program. From now on the task has an address space of its own.
    pub fn exec(&self, executable: &Executable) {
        self.kernel.processes.exec(self.syscall().sched, executable);
    }

    /// Waits until a child exits, and reaps it. Returns `None` if there is no child.
    pub fn wait(&self) -> Option<Exited> {
        self.kernel.processes.wait(self.syscall().sched, true)
    }

    /// Reaps a child that has exited. Returns `None` if there is none.
    pub fn try_wait(&self) -> Option<Exited> {
        self.kernel.processes.wait(self.syscall().sched, false)
    }

    /// From now on the death of a child interrupts [`Os::read_pipe`].
    pub fn handle_child_signals(&self) {
        self.kernel.processes.want_child_signal(&self.syscall());
    }

    /// Maps `pages` of anonymous memory (mmap). The caller touches memory there from now on, until [`Os::unmap`].
    pub fn map(&self, pages: u32) {
        self.kernel.processes.spaces.map(self.syscall().sched, pages);
    }

    /// Unmaps up to `pages` anonymous pages (munmap), and waits until no CPU's TLB holds them.
    pub fn unmap(&self, pages: u32) {
        self.kernel.processes.spaces.unmap(self.syscall().sched, pages);
    }

    /// Frees up to `pages` anonymous pages, whose addresses stay mapped (`madvise(MADV_DONTNEED)`), and waits until no
    /// CPU's TLB holds them.
    pub fn discard(&self, pages: u32) {
        self.kernel.processes.spaces.discard(self.syscall().sched, pages);
    }

    // ---- files ----

    /// Opens an existing file whose path has `depth` components.
    pub fn open(&self, file: FileId, depth: u32) {
        self.kernel.processes.files.open(&self.syscall(), file, depth);
    }

    /// Tries to open a name that does not exist.
    pub fn open_missing(&self, depth: u32) {
        self.kernel.processes.files.look_up_missing(&self.syscall(), depth);
    }

    /// Reads a file's status (stat).
    pub fn stat(&self, file: FileId, depth: u32) {
        self.kernel.processes.files.stat(&self.syscall(), file, depth);
    }

    /// Reads an open file's status (fstat).
    pub fn status(&self) {
        self.syscall().work(costs::FILE_STATUS);
    }

    /// Closes a file.
    pub fn close(&self, file: FileId) {
        self.kernel.processes.files.close(&self.syscall(), file);
    }

    /// Reads `pages` pages from the page cache.
    pub fn read(&self, pages: u32) {
        self.kernel.processes.files.read(&self.syscall(), pages);
    }

    /// Reads `pages` pages of `file`, all that it has. If they are not in the page cache, they come from the disk.
    pub fn read_file(&self, file: FileId, pages: u32) {
        let on = self.syscall();
        let files = &self.kernel.processes.files;
        if let Some(block) = &self.kernel.block {
            files.fetch(on.sched, block, file, pages);
        }
        files.read(&self.on_cpu(), pages);
    }

    /// Takes the pages of `file` out of the page cache, if there is a disk that has them.
    pub fn drop_cached(&self, file: FileId) {
        if self.kernel.block.is_some() {
            self.kernel.processes.files.drop_cached(file);
        }
    }

    /// Appends `pages` pages to a file.
    pub fn write(&self, file: FileId, pages: u32) {
        self.kernel.processes.files.write(self.syscall().sched, file, pages);
    }

    /// Appends to the last page of a file, which has room.
    pub fn extend(&self, file: FileId) {
        self.kernel.processes.files.extend(self.syscall().sched, file);
    }

    /// Reads or writes a block of a file past the page cache (O_DIRECT).
    pub fn direct(&self, file: FileId) {
        self.kernel.processes.files.direct(self.syscall().sched, file);
    }

    /// Writes `pages` pages that the file already has.
    pub fn overwrite(&self, file: FileId, pages: u32) {
        self.kernel.processes.files.overwrite(self.syscall().sched, file, pages);
    }

    /// Puts `pages` pages written to a file, and all earlier changes of its volume, on the disk (fsync, and the second
    /// half of a write with O_SYNC).
    pub fn sync(&self, file: FileId, pages: u32) {
        self.kernel.processes.files.sync(self.syscall().sched, file, pages);
    }

    /// Creates a file in `directory` and opens it.
    pub fn create(&self, directory: FileId, file: FileId, depth: u32) {
        self.kernel
            .processes
            .files
            .create(self.syscall().sched, directory, file, depth);
    }

    /// Removes a file from `directory`.
    pub fn unlink(&self, directory: FileId, file: FileId, depth: u32) {
        self.kernel
            .processes
            .files
            .unlink(self.syscall().sched, directory, file, depth);
    }

    /// Adds a name of a file in `directory`, or removes one that is not its last.
    pub fn link(&self, directory: FileId, file: FileId, depth: u32) {
        // The changes and the locks are those of a rename.
        self.rename(directory, file, depth);
    }

    /// Renames a file within `directory`.
    pub fn rename(&self, directory: FileId, file: FileId, depth: u32) {
        self.kernel
            .processes
            .files
            .rename(self.syscall().sched, directory, file, depth);
    }

    // ---- communication ----

    /// Opens pipe `id`, empty, for `writers` writing processes.
    pub fn open_pipe(&self, id: u32, writers: u32) {
        self.kernel.pipes[id as usize].open(self.syscall().sched, writers);
    }

    /// Closes the caller's writing end.
    pub fn close_pipe_writer(&self, id: u32) {
        self.kernel.pipes[id as usize].close_writer(self.syscall().sched);
    }

    /// Reads up to `bytes` from a pipe, and sleeps while it is empty. Returns 0 if no writer is left, and `None` if the
    /// death of a child interrupted it.
    pub fn read_pipe(&self, id: u32, bytes: u32) -> Option<u32> {
        self.kernel.pipes[id as usize].read(self.syscall().sched, bytes)
    }

    /// Writes `bytes` to a pipe, and sleeps while it is full.
    pub fn write_pipe(&self, id: u32, bytes: u32) {
        self.kernel.pipes[id as usize].write(self.syscall().sched, bytes);
    }

    /// Sends a message from `socket` to its peer.
    pub fn send(&self, socket: u32, message: u32) {
        self.kernel.sockets.send(self.syscall().sched, socket, message);
    }

    /// Receives a message, and sleeps until there is one.
    pub fn receive(&self, socket: u32) -> u32 {
        self.kernel.sockets.receive(self.syscall().sched, socket)
    }

    /// Receives a message, if there is one.
    pub fn receive_now(&self, socket: u32) -> Option<u32> {
        self.kernel.sockets.receive_now(self.syscall().sched, socket)
    }

    /// Sleeps until `socket` has a message.
    pub fn poll(&self, socket: u32) {
        self.kernel.sockets.poll(self.syscall().sched, socket);
    }

    /// Writes as many of `items`, each of `item_bytes`, to the stream's peer as its buffer takes, and returns how many.
    /// Never sleeps.
    pub fn write_stream(&self, stream: u32, items: &[u32], item_bytes: u32) -> usize {
        self.kernel
            .streams
            .write(self.syscall().sched, stream, items, item_bytes)
    }

    /// Reads the items that have arrived at `stream`, up to about `bytes`, and appends them to `into`. Returns how
    /// many. Never sleeps.
    pub fn read_stream(&self, stream: u32, bytes: u32, into: &mut Vec<u32>) -> usize {
        self.kernel.streams.read(self.syscall().sched, stream, bytes, into)
    }

    /// Makes `epoll` report `events` of `stream`, once (`EPOLLONESHOT`).
    pub fn watch(&self, epoll: u32, stream: u32, events: Events) {
        self.kernel.streams.watch(self.syscall().sched, epoll, stream, events);
    }

    /// Sleeps until a watched stream is ready. Returns the stream and its events. The stream is no longer watched.
    pub fn wait_ready(&self, epoll: u32) -> (u32, Events) {
        self.kernel.streams.wait(self.syscall().sched, epoll)
    }

    /// Sleeps until [`Os::futex_wake_one`] for `word`. Returns at once if `word` does not contain `expected`.
    pub(crate) fn futex_wait(&self, word: &WordOf<M>, expected: u32) {
        self.kernel.futexes.wait(self.syscall().sched, word, expected);
    }

    /// Wakes the task that has slept on `word` longest, if one sleeps.
    pub(crate) fn futex_wake_one(&self, word: &WordOf<M>) {
        self.kernel.futexes.wake_one(&self.syscall(), word);
    }

    /// Subtracts one from a SysV semaphore, and sleeps while it is 0.
    pub fn semaphore_down(&self, array: u32, index: u32) {
        self.kernel.semaphores.down(self.syscall().sched, array, index);
    }

    /// Adds one to a SysV semaphore.
    pub fn semaphore_up(&self, array: u32, index: u32) {
        self.kernel.semaphores.up(self.syscall().sched, array, index);
    }

    // ---- network ----

    /// Opens the network device with its one connection.
    pub fn open_network(&self) {
        self.kernel.net.open(self.syscall().sched);
    }

    /// Sends a small message over the network.
    pub fn send_network(&self, message: u32) {
        self.kernel.net.send(self.syscall().sched, message);
    }

    /// Receives a message from the network, and sleeps until there is one.
    pub fn receive_network(&self) -> u32 {
        self.kernel.net.receive(self.syscall().sched)
    }

    // ---- drivers ----

    /// Calls `driver`, which works for `held_ns` nanoseconds under its spinlock. Returns the number of earlier calls.
    pub fn call_driver(&self, driver: u32, held_ns: u64) -> u64 {
        self.kernel.drivers[driver as usize].call(&self.syscall(), held_ns)
    }

    /// Accesses `register` in the PCI configuration space through `driver`, under its spinlock.
    pub fn access_configuration(&self, driver: u32, register: u32) {
        self.kernel.drivers[driver as usize].access_configuration(&self.syscall(), register);
    }

    // ---- other CPUs ----

    /// Makes `callees` execute `function` in an interrupt handler, and waits until all have (`smp_call_function_many`).
    /// Appends for each, in the order of the CPUs, how many nanoseconds after the call it was executed.
    pub fn call_cpus(&self, callees: Callees, function: Function, after_ns: &mut Vec<u64>) {
        self.kernel
            .sched
            .calls
            .execute(&self.syscall(), callees, function, after_ns);
    }

    /// Makes all other CPUs print a backtrace, by non-maskable interrupts, and waits until all have
    /// (`trigger_all_cpu_backtrace`). Appends for each, in the order of the CPUs, how many nanoseconds that took.
    pub fn backtrace(&self, after_ns: &mut Vec<u64>) {
        self.kernel.sched.calls.backtrace(&self.syscall(), after_ns);
    }

    // ---- the machine ----

    /// The number of CPUs.
    pub fn cpus(&self) -> u32 {
        self.kernel.sched.system.cpu_count()
    }

    /// Sleeps until all CPUs have booted.
    pub fn wait_for_cpus(&self) {
        while !self.kernel.sched.system.all_booted() {
            self.sleep(1_000_000);
        }
    }

    /// The CPU that executes the caller at this moment.
    pub fn cpu(&self) -> CpuId {
        self.on_cpu().id
    }

    /// Returns the seed of the random stream `purpose`.
    pub fn seed(&self, purpose: &str) -> u64 {
        self.machine().seed(purpose)
    }

    /// Reads the clock by which operations are measured, which takes no time. It is 0 on machines where it would.
    pub fn clock(&self) -> u64 {
        self.on_cpu().cpu.lock_clock_ns()
    }

    /// Records that an operation that began at `begun` of [`Os::clock`] is complete. This takes no time either.
    pub fn completed(&self, begun: u64) {
        self.machine().operation_completed(self.clock().saturating_sub(begun));
    }

    /// Begins the measured interval.
    pub fn begin(&self) {
        self.machine().report(Report::Begin);
    }

    /// Publishes a counter of the program with the results.
    pub fn report(&self, name: &str, value: u64) {
        self.machine().report(Report::Counter(name.into(), value));
    }

    /// Ends the measured interval, and publishes the kernel's counters and the result.
    pub fn done(&self, operations: Option<u64>) {
        report::publish(&self.kernel);
        self.machine().report(Report::Done { operations });
    }
}
