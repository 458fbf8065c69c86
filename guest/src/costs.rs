//! What the kernel's own work costs: hold times and per-operation times.
//!
//! # Units
//! Nanoseconds of undisturbed time on a Xeon X5570 class CPU (Nehalem, 2.93 GHz), on every machine: a simulated one runs
//! kernel code no faster or slower than that, whatever its clock, and a workload's calibration takes up the difference. What a
//! lock operation, a cache line's transfer, an exit or an interrupt's entry costs is the machine's business and not in here.
//!
//! # Sources
//! Direct measurements of a 3.3 kernel's sections on this part are not published. Each constant is therefore either
//! - **[L]** divided up from published latencies of whole operations: lmbench on Nehalem-class Xeons under 2.6.32-3.x
//!   (null call 0.04-0.1 µs, stat 0.8-1.3 µs, open+close 1.5-2.5 µs, pipe 3-5 µs, AF_UNIX 4-7 µs round trip / 2, page
//!   fault 0.5-1.2 µs, fork+exit 90-170 µs, fork+exec 300-500 µs, 2-process context switch 0.8-1.5 µs), values from
//!   memory, uncertain by about ±40 %;
//! - **[B]** bounded by published hold times: most kernel spinlock holds are below 2^12 cycles, 1.4 µs here (Zhai 2009,
//!   commit 4b8d54f9726f, Nehalem-EX); the sample output in the kernel's lockstat documentation has average holds of
//!   0.2-2 µs with the instrumentation's own cost included;
//! - **[E]** an estimate from the instruction and cache-line count of the source;
//! - **[C]** calibrated on the rows of an experiment that are marked so.

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
/// Walking a wait queue, per waiter, under its lock, without the wake-up. [E]
pub(crate) const WAIT_QUEUE_ENTRY: u64 = 30;
/// Adding or removing oneself, under the wait queue's lock. [E]
pub(crate) const WAIT_QUEUE_LINK: u64 = 40;
/// `scheduler_tick` under the run queue's lock: accounting, slice check. [E]
pub(crate) const SCHEDULER_TICK: u64 = 300;
/// The rest of a timer interrupt: hrtimer base, process accounting, RCU, softirq check. [L] a 1000 Hz tick costs 1-2 µs.
pub(crate) const TICK: u64 = 1_000;
/// `do_timer` and time keeping, under xtime's lock, one CPU per tick. [E]
pub(crate) const XTIME: u64 = 500;
/// Queueing or removing a timer, under the timer base's lock. [E]
pub(crate) const TIMER: u64 = 120;
/// Load balancing: looking at one run queue, no lock. [E]
pub(crate) const BALANCE_PER_CPU: u64 = 60;
/// Load balancing: moving one task, both run queues' locks held. [E]
pub(crate) const BALANCE_MOVE: u64 = 400;
/// One way through the idle loop besides the halt: tick stop and restart, RCU, idle governor. [E]
pub(crate) const IDLE: u64 = 500;
/// What an IPI's handler does itself (accounting, `irq_enter`, `irq_exit`). [E]
pub(crate) const IPI_HANDLER: u64 = 150;

// ---- calls to other CPUs ----

/// Queueing a call on another CPU, under its queue's lock. [E]
pub(crate) const CALL_QUEUE: u64 = 60;
/// Flushing this CPU's TLB, without the misses that follow. [E] CR3 load, 100-200 cycles.
pub(crate) const TLB_FLUSH: u64 = 100;

// ---- memory ----

/// Page fault: exception entry and exit, VMA look-up, page table walk. [L] page fault.
pub(crate) const FAULT: u64 = 650;
/// Zeroing a fresh page: 4096 bytes at about 12 bytes per nanosecond, the page not in the cache. [E]
pub(crate) const CLEAR_PAGE: u64 = 350;
/// Copying a page (copy on write). [E]
pub(crate) const COPY_PAGE: u64 = 600;
/// Taking a page from, or giving it to, this CPU's list. [E]
pub(crate) const PAGE_LOCAL: u64 = 40;
/// Pages moved between a CPU's list and the zone under one hold of the zone's lock. Linux: `pcp->batch` is 31 on a
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
/// Mapping anonymous memory: a VMA, or a neighbour made longer, and a gap in the address space. [E] 0.4-0.8 µs
pub(crate) const MAP_ANONYMOUS: u64 = 500;
/// Taking a mapping out of the address space, before its pages are unmapped. [E]
pub(crate) const UNMAP_ANONYMOUS: u64 = 500;
/// madvise before and after the pages: finding the VMA. [E]
pub(crate) const MADVISE: u64 = 150;
/// Unmapping: per page, under the page-table lock. [E]
pub(crate) const ZAP_PTE: u64 = 25;
/// Pages unmapped under one hold: a page table has 512 entries, mostly half empty. [E]
pub(crate) const ZAP_BATCH: u32 = 128;
/// Fork: copying one page-table entry, both page-table locks held (here: the parent's). [E]
pub(crate) const COPY_PTE: u64 = 30;
/// Pages in one page table, for the number of tables that a mapping needs. Architectural 512; mappings are sparse. [E]
pub(crate) const PTES_PER_TABLE: u32 = 128;
/// SLUB: one object from or to this CPU's slab. [E] 30-60 ns, two to four for a file or a dentry.
pub(crate) const SLAB_LOCAL: u64 = 45;
/// Objects between two refills from the node, which take its lock. [E] 16-32 objects per slab, partial slabs are common.
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
/// exec besides file operations and tearing down the old address space. [L] fork+exec less fork+exit.
pub(crate) const EXEC: u64 = 140_000;
/// Mapping one segment or library: VMA, link to the file. [E]
pub(crate) const MAP_VMA: u64 = 1_500;
/// Linking or unlinking a VMA to its file under the file's `i_mmap_mutex`. [E]
pub(crate) const MAP_LINK: u64 = 250;
/// exit besides memory and files. [L] fork+exit.
pub(crate) const EXIT: u64 = 30_000;
/// Notifying the parent, under the task list's lock. [E]
pub(crate) const EXIT_NOTIFY: u64 = 500;
/// Reaping a child, under the task list's lock. [E]
pub(crate) const REAP: u64 = 500;
/// The signal part of exit and wait, under `siglock`. [E]
pub(crate) const SIGNAL: u64 = 150;
/// The rest of wait4. [E]
pub(crate) const WAIT: u64 = 800;

// ---- files ----

/// One component of a path in RCU walk: hash, compare, permissions. No lock. [L] stat of /usr/include/x.
pub(crate) const PATH_COMPONENT: u64 = 130;
/// What a path look-up costs once: copying the name, audit, start of walk. [L]
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
/// stat besides the look-up. [L]
pub(crate) const STAT: u64 = 250;
/// Reading from the page cache, per page: radix tree, copy. [L] 4096 bytes at 5-6 bytes per nanosecond.
pub(crate) const READ_PAGE: u64 = 800;
/// The rest of read. [L]
pub(crate) const READ: u64 = 300;
/// Writing to the page cache, per page, without the locks' sections. [E]
pub(crate) const WRITE_PAGE: u64 = 1_600;
/// Inserting one page in a file's page cache, under `tree_lock`. [E]
pub(crate) const PAGE_CACHE_INSERT: u64 = 120;
/// Creating or removing a name: file system work outside the spinlocks, under the directory's mutex. [L] lmbench file
/// create/delete 5-15 µs.
pub(crate) const CREATE: u64 = 8_000;
/// The file system's journal, under its spinlock, per operation. [E]
pub(crate) const JOURNAL: u64 = 300;
/// Taking or giving a semaphore, under its lock. [E]
pub(crate) const SEMAPHORE: u64 = 40;
/// A journal's state, under its lock: one look or change. [E]
pub(crate) const JOURNAL_STATE: u64 = 60;
/// Writing a page to a RAM disk: bio, radix tree, copy of 4096 bytes. [E]
pub(crate) const WRITE_BACK_PAGE: u64 = 1_800;
/// All-inodes list, under its lock. [E]
pub(crate) const INODE_LIST: u64 = 70;
/// Inode state, under its lock. [E]
pub(crate) const INODE: u64 = 50;

// ---- communication ----

/// Pipe: one read or write besides copying. [L] pipe latency.
pub(crate) const PIPE: u64 = 250;
/// Copying one page through a pipe. [E]
pub(crate) const PIPE_PAGE: u64 = 700;
/// Local socket: sending a small message besides the locks' sections. [L] AF_UNIX latency.
pub(crate) const SOCKET_SEND: u64 = 700;
/// Local socket: receiving a small message besides the locks' sections. [L]
pub(crate) const SOCKET_RECEIVE: u64 = 450;
/// Linking one buffer, under a receive queue's lock. [E]
pub(crate) const SOCKET_QUEUE: u64 = 40;
/// Socket state, under its lock. [E]
pub(crate) const SOCKET_STATE: u64 = 50;
/// poll or select on one descriptor, besides the wait queue. [L]
pub(crate) const POLL: u64 = 500;
/// semop, under the array's lock. [E]
pub(crate) const SEMOP_HELD: u64 = 150;
/// semop besides. [E]
pub(crate) const SEMOP: u64 = 250;
/// Mutex: owner bookkeeping in the slow path, under its wait lock. [E]
pub(crate) const MUTEX_SLOW: u64 = 100;

/// Reader-writer semaphore: a look at the queue in the slow path, under its wait lock. [E]
pub(crate) const RWSEM_SLOW: u64 = 100;

/// ext4 and jbd2.
pub(crate) mod ext4 {
    /// Starting and ending a handle, with the inode's way to the buffer, outside locks. [C]
    pub(crate) const HANDLE: u64 = 5_400;
    /// Getting write access to a buffer and marking it, outside the list's lock. [E]
    pub(crate) const BUFFER: u64 = 350;
    /// Filing one buffer, under `j_list_lock`. [C]
    pub(crate) const LIST_HELD: u64 = 530;
    /// Looking for blocks or an inode before the bits are set. [E]
    pub(crate) const FIND_BLOCKS: u64 = 1_500;
    /// Setting bits and counts of a group, under its lock. [E]
    pub(crate) const GROUP_HELD: u64 = 300;
    /// The orphan list, under its mutex, with the superblock or a neighbour's inode to be changed. [E]
    pub(crate) const ORPHAN: u64 = 700;
    /// Groups of a file system: 128 MB each, of a RAM disk of 2 GB. [E]
    pub(crate) const GROUPS: u32 = 16;
    /// Buffers of a `write` call: the inode's. [E], as all counts below, from the 3.14 source.
    pub(crate) const WRITE_BUFFERS: u32 = 1;
    /// Buffers of a change of names: directory block, two inodes.
    pub(crate) const NAME_BUFFERS: u32 = 3;
    /// Buffers of a creation: bitmap, group descriptor, inode, directory block, directory's inode.
    pub(crate) const CREATE_BUFFERS: u32 = 5;
    /// Buffers of a removal: as a creation's, block bitmap and its group's descriptor, superblock.
    pub(crate) const REMOVE_BUFFERS: u32 = 8;
    /// Buffers of an allocation: bitmap, group descriptor, inode.
    pub(crate) const ALLOCATE_BUFFERS: u32 = 3;
    /// A commit besides its buffers. [E]
    pub(crate) const COMMIT: u64 = 8_000;
    /// Writing one buffer to the journal on a RAM disk. [E]
    pub(crate) const COMMIT_BUFFER: u64 = 2_500;
    /// Different buffers in a commit at most: changes meet in the same few. [E]
    pub(crate) const COMMIT_BUFFERS_MAX: u32 = 24;
}

/// XFS.
pub(crate) mod xfs {
    /// Allocating a transaction and reserving log space, outside locks. [E]
    pub(crate) const RESERVE: u64 = 900;
    /// Formatting the changes and committing them, outside locks. [E]
    pub(crate) const COMMIT: u64 = 1_800;
    /// Adding a transaction's items to the log's list, under `xc_cil_lock`. [E]
    pub(crate) const CIL_HELD: u64 = 150;
    /// What a commit's end moves on the list of items, under `xa_lock`. [E]
    pub(crate) const AIL_HELD: u64 = 600;
    /// What is done between locking an allocation group's header and committing: B-tree look-ups and changes. [E]
    pub(crate) const HEADER_HELD: u64 = 2_500;
    /// Allocation groups of a file system: `mkfs.xfs` makes four.
    pub(crate) const GROUPS: u32 = 4;
    /// Forcing the log besides its items. [E]
    pub(crate) const PUSH: u64 = 8_000;
    /// One item on its way to the log on a RAM disk. [E]
    pub(crate) const PUSH_ITEM: u64 = 400;
    /// Different items in a push at most. [E]
    pub(crate) const PUSH_ITEMS_MAX: u32 = 64;
}
// ---- starting CPUs ----

/// Between INIT and its de-assertion (MultiProcessor Specification 1.4, B.4: 10 ms; Linux until 4.2 on all parts, uncertain).
pub(crate) const INIT_DELAY: u64 = 10_000_000;
/// After each SIPI (the same: 200 us; Linux waits 300 us and 200 us).
pub(crate) const STARTUP_DELAY: u64 = 500_000;

// ---- futexes, streams, epoll ----

/// futex: key and hash, per call. [E] 60-100 ns
pub(crate) const FUTEX: u64 = 80;
/// Looking at one waiter, or queueing oneself, under the bucket's lock. [E]
pub(crate) const FUTEX_ENTRY: u64 = 40;
/// Copying between user and kernel memory, picoseconds per byte: small copies that hit the cache, 5-6 bytes per
/// nanosecond as for pages. [L]
pub(crate) const COPY_BYTE_PS: u64 = 180;
/// epoll_ctl besides the look at the file and the locks' sections. [E]
pub(crate) const EPOLL_CTL: u64 = 250;
/// epoll_wait besides the look at the file and the locks' sections: copying out one event. [E]
pub(crate) const EPOLL_WAIT: u64 = 200;
/// The look at one socket (`unix_poll`) for epoll, which needs no wait queue entry. [E]
pub(crate) const EPOLL_LOOK: u64 = 80;
/// Linking or unlinking a ready file, or a waiter, under the eventpoll's lock. [E]
pub(crate) const EPOLL_LINK: u64 = 40;

// ---- network ----

/// TCP and IP for a small message, from `send` to the driver's queue, besides the system call. [E] 1.5-2.5 µs
pub(crate) const TCP_SEND: u64 = 2_000;
/// TCP and IP for a small packet, from the driver's poll to the socket, besides the wake-up. [E] 1.5-2.5 µs
pub(crate) const TCP_RECEIVE: u64 = 2_000;
/// `recv` besides waiting: the socket's lock, copying out. [E]
pub(crate) const TCP_READ: u64 = 500;
/// Adding a buffer to a virtqueue, or taking one out, with the driver's share. [E]
pub(crate) const NET_QUEUE: u64 = 250;
/// The device's interrupt handler besides entry and exit: the queue's callback, scheduling the poll. [E]
pub(crate) const NET_INTERRUPT: u64 = 200;
