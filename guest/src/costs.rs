//! Costs of the kernel's own work: hold times and times per operation.
//!
//! # Units
//! Nanoseconds of undisturbed time on a Xeon X5570 class CPU (Nehalem, 2.93 GHz), on every machine. A simulated machine
//! runs kernel code at that speed whatever its clock, and the calibration of a workload absorbs the difference. The
//! costs of lock operations, cache-line transfers, exits and interrupt entries belong to the machine, and are not in
//! here.
//!
//! # Sources
//! No direct measurements of the critical sections of a 3.3 kernel on this CPU model are published. So each constant is
//! one of the following:
//! - **[L]** a share of the published latency of a whole operation: lmbench on Nehalem-class Xeons under 2.6.32-3.x
//!   (null call 0.04-0.1 µs, stat 0.8-1.3 µs, open+close 1.5-2.5 µs, pipe 3-5 µs, AF_UNIX 4-7 µs round trip / 2, page
//!   fault 0.5-1.2 µs, fork+exit 90-170 µs, fork+exec 300-500 µs, 2-process context switch 0.8-1.5 µs). The values are
//!   from memory, uncertain by about ±40 %.
//! - **[B]** bounded by published hold times: most kernel spinlock holds are below 2^12 cycles, 1.4 µs here (Zhai 2009,
//!   commit 4b8d54f9726f, Nehalem-EX). The sample output in the kernel's lockstat documentation has average holds of
//!   0.2-2 µs, with the cost of the instrumentation included.
//! - **[E]** an estimate from the instruction and cache-line counts of the source.
//! - **[M]** measured under Linux 6.1, at one instruction per cycle: `docs/spec/costs.md`.
//! - **[C]** calibrated on the rows of an experiment that are marked as calibrated.

/// System call entry and exit, including the return to user mode. [L] null call.
pub(crate) const SYSCALL: u64 = 80;

// ---- scheduler ----

/// `schedule()`: picking the next task, under the run queue's lock. [L] context switch. [E] for the share.
pub(crate) const PICK: u64 = 250;
/// Registers, stack, FPU and address space, under the run queue's lock (released by the next task). [L] context switch.
pub(crate) const SWITCH: u64 = 350;
/// The part of a switch outside the lock: TLB and cache misses of the task that resumes. [L] context switch.
pub(crate) const SWITCH_AFTER: u64 = 300;
/// `try_to_wake_up` before the run queue's lock, under the task's own. [E]
pub(crate) const WAKE: u64 = 150;
/// Putting a woken task on a run queue, under its lock. [E]
pub(crate) const ENQUEUE: u64 = 200;
/// `select_task_rq`: looking for a CPU, per CPU looked at. [E]
pub(crate) const PLACE_PER_CPU: u64 = 20;
/// Walking a wait queue, per waiter, under its lock, without the wakeup. [E]
pub(crate) const WAIT_QUEUE_ENTRY: u64 = 30;
/// Adding or removing a task, under the wait queue's lock. [E]
pub(crate) const WAIT_QUEUE_LINK: u64 = 40;
/// `scheduler_tick` under the run queue's lock: accounting, slice check. [E]
pub(crate) const SCHEDULER_TICK: u64 = 300;
/// The rest of a timer interrupt: hrtimer base, process accounting, RCU, softirq check. [L] a 1000 Hz tick costs 1-2
/// µs.
pub(crate) const TICK: u64 = 1_000;
/// `do_timer` and time keeping, under xtime's lock, one CPU per tick. [E]
pub(crate) const XTIME: u64 = 500;
/// Queueing or removing a timer, under the timer base's lock. [E]
pub(crate) const TIMER: u64 = 120;
/// Load balancing: looking at one run queue, no lock. [E]
pub(crate) const BALANCE_PER_CPU: u64 = 60;
/// Load balancing: moving one task, both run queues' locks held. [E]
pub(crate) const BALANCE_MOVE: u64 = 400;
/// One pass of the idle loop without the halt: tick stop and restart, RCU, idle governor. [E]
pub(crate) const IDLE: u64 = 500;
/// The work of an interrupt handler itself (accounting, `irq_enter`, `irq_exit`). [E]
pub(crate) const IPI_HANDLER: u64 = 150;

/// The work of an NMI handler itself, without what it was sent for. [E]
pub(crate) const NMI_HANDLER: u64 = 500;
/// Unwinding one stack into the buffer of a backtrace (`nmi_cpu_backtrace`), without the console. [E]
pub(crate) const BACKTRACE: u64 = 20_000;

// ---- calls to other CPUs ----

/// Queueing a call on another CPU, under its queue's lock if it has one. [E]
pub(crate) const CALL_QUEUE: u64 = 60;
/// Flushing this CPU's TLB, without the misses that follow. [E] CR3 load, 100-200 cycles.
pub(crate) const TLB_FLUSH: u64 = 100;

// ---- memory ----

/// Page fault: exception entry and exit, VMA lookup, page table walk. [L] page fault.
pub(crate) const FAULT: u64 = 650;
/// Zeroing a fresh page: 4096 bytes at about 12 bytes per nanosecond, the page not in the cache. [E]
pub(crate) const CLEAR_PAGE: u64 = 350;
/// Copying a page (copy on write). [E]
pub(crate) const COPY_PAGE: u64 = 600;
/// Taking a page from, or giving it to, this CPU's list. [E]
pub(crate) const PAGE_LOCAL: u64 = 40;
/// Pages moved between a CPU's list and the zone under one hold of the zone lock. Linux: `pcp->batch` is 31 on a
/// machine of this size.
pub(crate) const PAGE_BATCH: u32 = 31;
/// When a CPU's list has this many pages a batch goes back. Linux: `pcp->high` = 6 × batch.
pub(crate) const PAGE_HIGH: u32 = 6 * PAGE_BATCH;
/// Buddy allocator, per page, under the zone's lock. [B] [E] 31 × 30 ns ≈ 0.9 µs a hold.
pub(crate) const ZONE_PER_PAGE: u64 = 30;
/// Pages moved to the LRU lists under one hold of their lock. Linux: `PAGEVEC_SIZE`.
pub(crate) const LRU_BATCH: u32 = 14;
/// LRU list, per page, under its lock. [B] [E] 14 × 35 ns ≈ 0.5 µs a hold.
pub(crate) const LRU_PER_PAGE: u64 = 35;
/// Setting one page-table entry with its reverse mapping, under the page-table lock. [E]
pub(crate) const SET_PTE: u64 = 80;
/// Mapping anonymous memory: a new or extended VMA, and finding a gap in the address space. [E] 0.4-0.8 µs
pub(crate) const MAP_ANONYMOUS: u64 = 500;
/// Removing a mapping from the address space, before its pages are unmapped. [E]
pub(crate) const UNMAP_ANONYMOUS: u64 = 500;
/// madvise without the work on pages: finding the VMA. [E]
pub(crate) const MADVISE: u64 = 150;
/// Unmapping: per page, under the page-table lock. [E]
pub(crate) const ZAP_PTE: u64 = 25;
/// Pages unmapped under one hold: a page table has 512 entries, mostly half empty. [E]
pub(crate) const ZAP_BATCH: u32 = 128;
/// Fork: copying one page-table entry, both page-table locks held (here: the parent's). [E]
pub(crate) const COPY_PTE: u64 = 30;
/// Pages in one page table, for the number of tables that a mapping needs. The architecture has 512, but mappings are
/// sparse. [E]
pub(crate) const PTES_PER_TABLE: u32 = 128;
/// SLUB: one object from or to this CPU's slab. A file or dentry needs two to four. [E] 30-60 ns
pub(crate) const SLAB_LOCAL: u64 = 45;
/// Objects between two refills from the node, which take its lock. [E] 16-32 objects per slab, partial slabs are
/// common.
pub(crate) const SLAB_BATCH: u32 = 16;
/// One refill under the node's lock. [E]
pub(crate) const SLAB_REFILL: u64 = 250;

// ---- processes ----

/// fork without page tables: task, stack, descriptors, credentials, scheduler. [L] fork+exit.
pub(crate) const FORK: u64 = 40_000;
/// fork: copying one VMA (`dup_mmap`, anon_vma). [E]
pub(crate) const FORK_PER_VMA: u64 = 900;
/// vfork without its wait. [L] 20-40 µs for fork+exec by vfork less exec.
pub(crate) const VFORK: u64 = 35_000;
/// Linking a task, under the task list's lock. [E]
pub(crate) const TASK_LINK: u64 = 300;
/// exec without file operations and without tearing down the old address space. [L] fork+exec less fork+exit.
pub(crate) const EXEC: u64 = 140_000;
/// Mapping one segment or library: VMA, link to the file. [E]
pub(crate) const MAP_VMA: u64 = 1_500;
/// Linking or unlinking a VMA to its file under the file's `i_mmap_mutex`. [E]
pub(crate) const MAP_LINK: u64 = 250;
/// exit without memory and files. [L] fork+exit.
pub(crate) const EXIT: u64 = 30_000;
/// Notifying the parent, under the task list's lock. [E]
pub(crate) const EXIT_NOTIFY: u64 = 500;
/// Reaping a child, under the task list's lock. [E]
pub(crate) const REAP: u64 = 500;
/// The signal work of exit and wait, under `siglock`. [E]
pub(crate) const SIGNAL: u64 = 150;
/// The rest of wait4. [E]
pub(crate) const WAIT: u64 = 800;

// ---- files ----

/// One component of a path in RCU walk: hash, compare, permissions. No lock. [L] stat of /usr/include/x.
pub(crate) const PATH_COMPONENT: u64 = 130;
/// The fixed cost of a path lookup: copying the name, audit, start of the walk. [L]
pub(crate) const PATH_START: u64 = 400;
/// Taking or dropping a reference of a dentry, under its lock. [E] 20-50 ns
pub(crate) const DENTRY_REFERENCE: u64 = 30;
/// Linking or unlinking a dentry to its directory, under the directory's lock. [E]
pub(crate) const DENTRY_LINK: u64 = 80;
/// Adding to the LRU of unused dentries, under its lock. [E]
pub(crate) const DENTRY_LRU: u64 = 60;
/// Allocating or freeing a descriptor, under the file table's lock. [E]
pub(crate) const DESCRIPTOR: u64 = 50;
/// The rest of open. [L] open+close.
pub(crate) const OPEN: u64 = 700;
/// The rest of close. [L]
pub(crate) const CLOSE: u64 = 450;
/// fstat. [L]
pub(crate) const FILE_STATUS: u64 = 120;
/// stat without the lookup. [L]
pub(crate) const STAT: u64 = 250;
/// Reading from the page cache, per page: radix tree, copy. [L] 4096 bytes at 5-6 bytes per nanosecond.
pub(crate) const READ_PAGE: u64 = 800;
/// The rest of read. [L]
pub(crate) const READ: u64 = 300;
/// Writing to the page cache, per page, without the critical sections. [E]
pub(crate) const WRITE_PAGE: u64 = 1_600;
/// Inserting one page in a file's page cache, removing it or changing its tags, under `tree_lock`. [E] [M] 77 to 160
pub(crate) const PAGE_CACHE_INSERT: u64 = 120;
/// Creating or removing a name: file system work outside the spinlocks, under the directory's mutex. [L] lmbench file
/// create/delete 5-15 µs.
pub(crate) const CREATE: u64 = 8_000;
/// The file system's journal, under its spinlock, per operation. [E]
pub(crate) const JOURNAL: u64 = 300;
/// Taking or releasing a semaphore, under its lock. [E]
pub(crate) const SEMAPHORE: u64 = 40;
/// Checking or changing a journal's state, under its lock. [E]
pub(crate) const JOURNAL_STATE: u64 = 60;
/// Reading or writing a block past the page cache, on a RAM disk. [E]
pub(crate) const DIRECT: u64 = 4_000;
/// Writing a page to a RAM disk: bio, radix tree, copy of 4096 bytes. [E]
pub(crate) const WRITE_BACK_PAGE: u64 = 1_800;
/// A change of a page's buffers, under `private_lock`. [M] without the pages' own locks
pub(crate) const PAGE_BUFFERS: u64 = 15;
/// A page that will need a block, under the inode's lock and under `i_block_reservation_lock`. [M]
pub(crate) const RESERVATION: u64 = 35;
/// Moving an inode to the list of dirty ones or off it, under the disk's lock. [M]
pub(crate) const DIRTY_INODE: u64 = 40;
/// Adding an inode to the hash table or removing it, under its lock. [M]
pub(crate) const INODE_HASH: u64 = 13;
/// A flag or state of an inode or a name, under its lock. [M] 9 to 60 instructions
pub(crate) const FLAG: u64 = 10;
/// A change of the list of all inodes, under its lock. [E]
pub(crate) const INODE_LIST: u64 = 70;
/// A change of an inode's state, under its lock. [E]
pub(crate) const INODE: u64 = 50;

// ---- communication ----

/// Pipe: one read or write without copying. [L] pipe latency.
pub(crate) const PIPE: u64 = 250;
/// Copying one page through a pipe. [E]
pub(crate) const PIPE_PAGE: u64 = 700;
/// Local socket: sending a small message without the critical sections, with the buffer's two slab objects. [M]
pub(crate) const SOCKET_SEND: u64 = 640;
/// Local socket: receiving a small message without the critical sections, with the buffer's two slab objects. [M]
pub(crate) const SOCKET_RECEIVE: u64 = 565;
/// Linking one buffer, under a receive queue's lock. [M]
pub(crate) const SOCKET_QUEUE: u64 = 8;
/// Checking a socket's state, under its lock. [M]
pub(crate) const SOCKET_STATE: u64 = 25;
/// poll or select on one descriptor, without the wait queue. [L]
pub(crate) const POLL: u64 = 500;
/// semop, under the array's lock. [E]
pub(crate) const SEMOP_HELD: u64 = 150;
/// semop outside the array's lock. [E]
pub(crate) const SEMOP: u64 = 250;
/// Mutex and reader-writer semaphore: one pass of the slow path, under its wait lock. [E]
pub(crate) const SLEEPING_LOCK_SLOW: u64 = 100;

/// Costs of ext4 and jbd2.
pub(crate) mod ext4 {
    /// Starting and ending a handle, with copying the inode to its buffer, outside locks. [M] half of what an appended
    /// page takes more than on XFS
    pub(crate) const HANDLE: u64 = 450;
    /// Getting write access to a buffer and marking it dirty, outside the list's lock. [E]
    pub(crate) const BUFFER: u64 = 350;
    /// Filing a block in a transaction: access for writing, and marking it dirty, each under `j_list_lock`. [M]
    pub(crate) const FILE_HELD: [u64; 2] = [35, 42];
    /// Searching for blocks or an inode, before the bits are set. [E]
    pub(crate) const FIND_BLOCKS: u64 = 1_500;
    /// A new inode: its bit and the group's counts with the descriptor's checksum, each under the group's lock. [M]
    pub(crate) const NEW_INODE_HELD: &[u64] = &[108, 108];
    /// The same for an inode that is freed, once. [M]
    pub(crate) const OLD_INODE_HELD: &[u64] = &[190];
    /// The same for blocks. [M]
    pub(crate) const BLOCKS_HELD: &[u64] = &[234];
    /// The orphan list, under its mutex, without the changes of the superblock and the inode. [E]
    pub(crate) const ORPHAN: u64 = 50;
    /// Block groups of a file system: 128 MB each, on a RAM disk of 2 GB. [E]
    pub(crate) const GROUPS: u32 = 16;
    /// Inodes of 256 bytes in a block of 4 KiB.
    pub(crate) const INODES_OF_BLOCK: u32 = 16;
    /// A commit without its buffers: descriptor and commit record. [E]
    pub(crate) const COMMIT: u64 = 8_000;
    /// Preparing one buffer for the journal: a second buffer head, and its tag in the descriptor. [E]
    pub(crate) const PREPARE_BUFFER: u64 = 500;
    /// Writing one buffer to the journal on a RAM disk. [E]
    pub(crate) const WRITE_BUFFER: u64 = 2_000;
    /// Moving one buffer to the list of those on their way to the log, under `j_list_lock`. [M]
    pub(crate) const SHADOW_HELD: u64 = 44;
    /// Moving it to the list of those that were written. [M]
    pub(crate) const WRITTEN_HELD: u64 = 38;
    /// Moving it to the list of those that wait for their checkpoint, in four sections. [M]
    pub(crate) const CHECKPOINT_HELD: [u64; 4] = [49, 49, 49, 150];
}

/// Costs of XFS.
pub(crate) mod xfs {
    /// Allocating a transaction and reserving log space, outside locks. [E]
    pub(crate) const RESERVE: u64 = 900;
    /// Formatting the changes and committing them, outside locks. [E]
    pub(crate) const COMMIT: u64 = 1_800;
    /// Adding a transaction's items to the log's list, under `xc_cil_lock`. [E]
    pub(crate) const CIL_HELD: u64 = 150;
    /// Moving items on the list at the end of a commit, under `xa_lock`. [E], of one item: [M] 40
    pub(crate) const AIL_HELD: u64 = 600;
    /// The work between locking an allocation group's header and committing: B-tree lookups and changes. [E]
    pub(crate) const HEADER_HELD: u64 = 2_500;
    /// Allocation groups of a file system: `mkfs.xfs` makes four.
    pub(crate) const GROUPS: u32 = 4;
    /// Finding a buffer in a tree of thousands, under `pag_buf_lock`. [E] 12 levels.
    pub(crate) const LOOKUP_HELD: u64 = 120;
    /// Adding an inode to the group's tree, marking it there or removing it, under `pag_ici_lock`. [M]
    pub(crate) const INCORE_HELD: u64 = 45;
    /// Buffers besides the header's: of a directory.
    pub(crate) const NAME_BUFFERS: usize = 1;
    /// Those of a new inode: directory, two levels of the inodes' tree, inodes. [M] seven with the header
    pub(crate) const CREATE_BUFFERS: usize = 6;
    /// Those of an inode that is freed: two levels of its tree, inodes. [M]
    pub(crate) const FREE_BUFFERS: usize = 3;
    /// Those of an allocation: two trees of free blocks. [E]
    pub(crate) const ALLOCATE_BUFFERS: usize = 2;
    /// The most buffers besides the header's.
    pub(crate) const BUFFERS_BELOW: usize = 6;
    /// Asking for the log to be written, and writing what was gathered, under `xc_push_lock`. [M]
    pub(crate) const PUSH_HELD: [u64; 8] = [23, 23, 27, 27, 27, 8, 19, 19];
    /// The log buffer on its way, under `l_icloglock`. [M]
    pub(crate) const ICLOG_HELD: [u64; 8] = [14, 14, 17, 17, 40, 28, 120, 120];
    /// Forcing the log, without its items. [E]
    pub(crate) const PUSH: u64 = 8_000;
    /// Moving one item to the list that is pushed, under `xc_ctx_lock`. [E]
    pub(crate) const CONTEXT_ITEM: u64 = 30;
    /// Writing one item to the log on a RAM disk. [E]
    pub(crate) const PUSH_ITEM: u64 = 400;
    /// The most different items in a push. [E]
    pub(crate) const PUSH_ITEMS_MAX: u32 = 64;
}

// ---- starting ----

/// The delay between INIT and its de-assertion (MultiProcessor Specification 1.4, B.4: 10 ms). Linux until 4.2 does the
/// same on all CPU models, uncertain.
pub(crate) const INIT_DELAY: u64 = 10_000_000;
/// The delay after each SIPI (the same specification: 200 µs). Linux waits 300 µs and 200 µs.
pub(crate) const STARTUP_DELAY: u64 = 500_000;

// ---- futexes, streams, epoll ----

/// futex: computing key and hash, per call. [E] 60-100 ns
pub(crate) const FUTEX: u64 = 80;
/// Checking one waiter, or queueing the caller, under the bucket's lock. [E]
pub(crate) const FUTEX_ENTRY: u64 = 40;
/// Copying between user and kernel memory, picoseconds per byte: small copies that hit the cache, 5-6 bytes per
/// nanosecond as for pages. [L]
pub(crate) const COPY_BYTE_PS: u64 = 180;
/// epoll_ctl without checking the file and the critical sections. [E]
pub(crate) const EPOLL_CTL: u64 = 250;
/// epoll_wait without checking the file and the critical sections: copying out one event. [E]
pub(crate) const EPOLL_WAIT: u64 = 200;
/// Checking one socket (`unix_poll`) for epoll, which needs no wait queue entry. [E]
pub(crate) const EPOLL_LOOK: u64 = 80;
/// Linking or unlinking a ready file, or a waiter, under the eventpoll's lock. [E]
pub(crate) const EPOLL_LINK: u64 = 40;

// ---- block device ----

/// A read from the file system to the driver's queue: bio, request, scatter list, without the lock. [E] 2-4 µs
pub(crate) const BLOCK_SUBMIT: u64 = 3_000;
/// Adding a request to the virtqueue, or taking one out, under the queue's lock. [E]
pub(crate) const BLOCK_QUEUE: u64 = 250;
/// A request that is done: its pages are up to date, without the wakeup. [E] 1-2 µs
pub(crate) const BLOCK_DONE: u64 = 1_500;

// ---- network ----

/// TCP and IP for a small message, from `send` to the driver's queue, without the system call. [E] 1.5-2.5 µs
pub(crate) const TCP_SEND: u64 = 2_000;
/// TCP and IP for a small packet, from the driver's poll to the socket, without the wakeup. [E] 1.5-2.5 µs
pub(crate) const TCP_RECEIVE: u64 = 2_000;
/// `recv` without waiting: the socket's lock, copying out. [E]
pub(crate) const TCP_READ: u64 = 500;
/// Adding a buffer to a virtqueue, or taking one out, with the driver's own work. [E]
pub(crate) const NET_QUEUE: u64 = 250;
/// The device's interrupt handler without entry and exit: the queue's callback, scheduling the poll. [E]
pub(crate) const NET_INTERRUPT: u64 = 200;
