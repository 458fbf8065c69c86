//! Lock classes, as lockdep groups locks, and the kernel's event counters.

use serde::{Deserialize, Serialize};

/// Declares an enumeration whose members have names for the results.
macro_rules! named {
    ($(#[$meta:meta])* $type:ident { $($(#[doc = $doc:literal])+ $member:ident = $name:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum $type {
            $($(#[doc = $doc])+ $member,)+
        }

        impl $type {
            /// Every member, in the order of its declaration.
            pub const ALL: &[$type] = &[$($type::$member),+];
            /// The number of members.
            pub const COUNT: usize = $type::ALL.len();

            /// Returns the name in results.
            pub const fn name(self) -> &'static str {
                match self {
                    $($type::$member => $name,)+
                }
            }
        }
    };
}

pub(crate) use named;

named! {
    /// What a spinlock protects. The names are those of Linux.
    #[derive(Serialize, Deserialize)]
    LockClass {
        /// `rq->lock`: a CPU's run queue.
        RunQueue = "rq",
        /// `p->pi_lock`: serializes wakeups of one task.
        TaskWake = "pi_lock",
        /// Linux's `wait_queue_head_t.lock`.
        WaitQueue = "wait_queue",
        /// Linux's `hrtimer_cpu_base.lock`.
        TimerBase = "hrtimer_base",
        /// `call_single_queue.lock`: a CPU's queue of functions to call.
        CallQueue = "call_single_queue",
        /// `xtime_lock`, as the tick's writer takes it.
        Xtime = "xtime",
        /// `zone->lock`: the page allocator's free lists.
        Zone = "zone",
        /// `zone->lru_lock`: the page replacement lists.
        Lru = "lru",
        /// A page table's lock: one for each table, not for the address space (Linux 2.6.15 and later, four CPUs or
        /// more).
        PageTable = "page_table",
        /// SLUB's `kmem_cache_node.list_lock`.
        Slab = "slab",
        /// `tasklist_lock`, a reader-writer lock.
        TaskList = "tasklist",
        /// Linux's `sighand->siglock`.
        Signal = "siglock",
        /// Linux's `files_struct.file_lock`.
        Files = "files",
        /// Linux's `dentry->d_lock`.
        Dentry = "dentry",
        /// Linux's `dcache_lru_lock`.
        DentryLru = "dcache_lru",
        /// Linux's `inode->i_lock`.
        Inode = "inode",
        /// `inode_sb_list_lock`: the inodes of all file systems (of one since 4.4, commit 74278da9f70d).
        InodeList = "inode_sb_list",
        /// `mapping->tree_lock`: a file's page cache.
        PageCache = "tree_lock",
        /// The only lock of a plain file system.
        Journal = "journal",
        /// ext4's `j_state_lock`, a reader-writer lock.
        JournalState = "j_state_lock",
        /// ext4's `j_list_lock`: the buffers of a journal.
        JournalList = "j_list_lock",
        /// ext4's `bgl_lock`: the bitmaps of a block group.
        BlockGroup = "bgl_lock",
        /// XFS's `xc_cil_lock`: changes that will go to the log.
        Cil = "xc_cil_lock",
        /// XFS's `xa_lock`: changes that are in the log and not yet in place.
        Ail = "xa_lock",
        /// XFS's `l_icloglock`: the log's buffers.
        Iclog = "l_icloglock",
        /// Linux's `semaphore.lock`.
        Semaphore = "semaphore",
        /// Linux's `mutex.wait_lock`.
        MutexWait = "mutex_wait",
        /// Linux's `rw_semaphore.wait_lock`.
        RwsemWait = "rwsem_wait",
        /// Linux's `unix_state_lock`.
        SocketState = "unix_state",
        /// Linux's `sk_receive_queue.lock`.
        SocketQueue = "sk_receive_queue",
        /// `__netif_tx_lock`: a network device's transmit queue.
        NetTransmit = "netif_tx",
        /// A SysV semaphore array's `sem_perm.lock`.
        IpcSemaphore = "ipc_sem",
        /// A driver's own lock.
        Driver = "driver",
        /// Linux's `futex_hash_bucket.lock`.
        Futex = "futex_hash",
        /// `eventpoll.lock`: the ready streams, and the waiting tasks.
        Epoll = "eventpoll",
        /// `per_cpu_pages.lock`: a CPU's free pages (Linux 6.0 and later).
        PageList = "page_list",
        /// `pidmap_lock`: the numbers of processes.
        Pid = "pidmap",
        /// `css_set_lock` and others of control groups.
        Cgroup = "cgroup",
        /// `pgd_lock`: the list of all page directories.
        Pgd = "pgd",
        /// The locks of the random number generator.
        Random = "random",
        /// RCU's nodes.
        Rcu = "rcu",
        /// A lock of a measured kernel without a class of its own here.
        Other = "other",
        /// `mapping->private_lock`: the buffers of a file's pages.
        PageBuffers = "private_lock",
        /// `bdi_writeback.list_lock`: the dirty inodes of a disk.
        DirtyInodes = "wb_list_lock",
        /// `inode_hash_lock`: the inodes of all file systems that look inodes up by number.
        InodeHash = "inode_hash_lock",
        /// ext4's `i_block_reservation_lock`: the pages of an inode that have no blocks yet.
        Reservation = "i_block_reservation_lock",
        /// XFS's `pag_buf_lock`: the cached blocks of an allocation group.
        BufferCache = "pag_buf_lock",
        /// XFS's `pag_ici_lock`: the cached inodes of an allocation group.
        InodeCache = "pag_ici_lock",
        /// XFS's `i_flags_lock`.
        InodeFlags = "i_flags_lock",
        /// XFS's `xc_push_lock`: requests to write the gathered changes to the log.
        CilPush = "xc_push_lock",
        /// `q->queue_lock`: the requests to a block device.
        BlockQueue = "queue_lock",
    }
}

impl LockClass {
    /// Returns whether timer interrupts and function calls of other CPUs take locks of this class, so that one is taken
    /// now and then whatever the kernel's tasks wait for.
    pub const fn is_of_tick(self) -> bool {
        matches!(
            self,
            LockClass::RunQueue | LockClass::TimerBase | LockClass::Xtime | LockClass::CallQueue
        )
    }
}

named! {
    /// The events that the kernel counts on each CPU.
    Event {
        /// Context switches between different tasks, idle ones included.
        ContextSwitches = "context_switches",
        /// Switches because a task's slice ended or a task with less run time woke up.
        Preemptions = "guest_preemptions",
        /// Tasks moved to another CPU.
        Migrations = "migrations",
        /// Wakeups of a sleeping task.
        Wakeups = "wakeups",
        /// Timer interrupts.
        Ticks = "ticks",
        /// Times that the APIC timer was set or switched off. Each is an exit, also with AVIC.
        TimerPrograms = "timer_programs",
        /// Reschedule IPIs sent.
        RescheduleIpis = "reschedule_ipis",
        /// Call-function IPIs sent.
        CallIpis = "call_ipis",
        /// Non-maskable interrupts sent.
        Nmis = "nmis",
        /// Directed yields after calls to several CPUs.
        SchedYields = "pv_sched_yields",
        /// Ends of interrupts through the paravirtual EOI word instead of the APIC register.
        PvEois = "pv_eois",
        /// TLB flushes of preempted vCPUs left to the host.
        PvTlbFlushes = "pv_tlb_flushes",
        /// TLB shootdowns that had to wait for another CPU.
        Shootdowns = "shootdowns",
        /// Page faults.
        PageFaults = "page_faults",
        /// Processes created.
        Forks = "forks",
        /// Programs executed.
        Execs = "execs",
        /// System calls.
        Syscalls = "syscalls",
        /// Path lookups.
        Lookups = "lookups",
        /// Commits of ext4's journal.
        JournalCommits = "journal_commits",
        /// Times that a handle of ext4's journal waited for the next transaction.
        TransactionWaits = "journal_transaction_waits",
        /// Times that a handle waited for a block on its way to the log.
        LogWaits = "journal_log_waits",
        /// Blocks that a handle copied for the log.
        LogCopies = "journal_log_copies",
        /// Times that the idle loop halted.
        Halts = "idle_halts",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let names = || {
            LockClass::ALL
                .iter()
                .map(|class| class.name())
                .chain(Event::ALL.iter().map(|event| event.name()))
        };
        for (index, name) in names().enumerate() {
            assert!(names().take(index).all(|other| other != name), "{name} twice");
        }
    }
}
