//! Lock classes, as lockdep groups locks, and the kernel's event counters.

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
            /// How many there are.
            pub const COUNT: usize = $type::ALL.len();

            /// The name in results.
            pub const fn name(self) -> &'static str {
                match self {
                    $($type::$member => $name,)+
                }
            }
        }
    };
}

named! {
    /// What a spinlock protects. Names are Linux's.
    LockClass {
        /// `rq->lock`: a CPU's run queue.
        RunQueue = "rq",
        /// `p->pi_lock`: serialises wake-ups of one task.
        TaskWake = "pi_lock",
        /// `wait_queue_head_t.lock`.
        WaitQueue = "wait_queue",
        /// `hrtimer_cpu_base.lock`.
        TimerBase = "hrtimer_base",
        /// `call_single_queue.lock`: a CPU's queue of functions to call.
        CallQueue = "call_single_queue",
        /// `xtime_lock`, as the tick's writer takes it.
        Xtime = "xtime",
        /// `zone->lock`: the page allocator's free lists.
        Zone = "zone",
        /// `zone->lru_lock`: the page replacement lists.
        Lru = "lru",
        /// A page table's lock: one for each table, not for the address space (Linux 2.6.15 and later, four CPUs or more).
        PageTable = "page_table",
        /// SLUB's `kmem_cache_node.list_lock`.
        Slab = "slab",
        /// `tasklist_lock`, a reader-writer lock in Linux, here for its writers only.
        TaskList = "tasklist",
        /// `sighand->siglock`.
        Signal = "siglock",
        /// `files_struct.file_lock`.
        Files = "files",
        /// `dentry->d_lock`.
        Dentry = "dentry",
        /// `dcache_lru_lock`.
        DentryLru = "dcache_lru",
        /// `inode->i_lock`.
        Inode = "inode",
        /// `inode_sb_list_lock` and `inode_hash_lock`: all inodes.
        InodeList = "inode_sb_list",
        /// `mapping->tree_lock`: a file's page cache.
        PageCache = "tree_lock",
        /// The file system's own, where one lock stands for all.
        Journal = "journal",
        /// ext4's `j_state_lock`, as its writers take it.
        JournalState = "j_state_lock",
        /// ext4's `j_list_lock`: the buffers of a journal.
        JournalList = "j_list_lock",
        /// ext4's `bgl_lock`: the bitmaps of a block group.
        BlockGroup = "bgl_lock",
        /// XFS's `xc_cil_lock`: changes that are to go to the log.
        Cil = "xc_cil_lock",
        /// XFS's `xa_lock`: what is in the log and not yet at its place.
        Ail = "xa_lock",
        /// XFS's `l_icloglock`: the log's buffers.
        Iclog = "l_icloglock",
        /// `semaphore.lock`.
        Semaphore = "semaphore",
        /// `mutex.wait_lock`.
        MutexWait = "mutex_wait",
        /// `rw_semaphore.wait_lock`.
        RwsemWait = "rwsem_wait",
        /// `unix_state_lock`.
        SocketState = "unix_state",
        /// `sk_receive_queue.lock`.
        SocketQueue = "sk_receive_queue",
        /// `__netif_tx_lock`: a network device's transmit queue.
        NetTransmit = "netif_tx",
        /// A SysV semaphore array's `sem_perm.lock`.
        IpcSemaphore = "ipc_sem",
        /// A driver's own lock.
        Driver = "driver",
        /// `futex_hash_bucket.lock`.
        Futex = "futex_hash",
        /// `eventpoll.lock`: what is ready, and who waits for it.
        Epoll = "eventpoll",
    }
}

named! {
    /// What the kernel counts, per CPU.
    Event {
        /// Context switches between different tasks, idle ones included.
        ContextSwitches = "context_switches",
        /// Switches because a task's slice ended or a better one woke.
        Preemptions = "guest_preemptions",
        /// Tasks moved to another CPU.
        Migrations = "migrations",
        /// Wake-ups that found a sleeper.
        Wakeups = "wakeups",
        /// Timer interrupts.
        Ticks = "ticks",
        /// Times that the APIC's timer was set or switched off: an exit each, with AVIC as well.
        TimerPrograms = "timer_programs",
        /// Reschedule IPIs sent.
        RescheduleIpis = "reschedule_ipis",
        /// Call-function IPIs sent.
        CallIpis = "call_ipis",
        /// Directed yields after calls to several CPUs.
        SchedYields = "pv_sched_yields",
        /// Ends of interrupts in memory instead of the APIC's register.
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
        /// Path look-ups.
        Lookups = "lookups",
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
