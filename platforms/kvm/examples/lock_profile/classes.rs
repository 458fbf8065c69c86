//! What a spinlock protects, from where it is and which function takes it.

use crate::symbols::Symbols;

/// Kernel variables, or the beginnings of their names, and the class of the locks in them.
const VARIABLES: &[(&str, &str)] = &[
    ("runqueues", "rq"),
    ("hrtimer_bases", "hrtimer_base"),
    ("timer_bases", "timer_base"),
    ("pidmap_lock", "pidmap"),
    ("inode_hash_lock", "inode_sb_list"),
    ("jiffies_lock", "xtime"),
    ("timekeeper_lock", "xtime"),
    ("tk_core", "xtime"),
    ("percpu_counters_lock", "percpu_counter"),
    ("pcpu_lock", "percpu_allocator"),
    ("input_pool", "random"),
    ("base_crng", "random"),
    ("rcu_state", "rcu"),
    ("css_set_lock", "cgroup"),
    ("futex_queues", "futex_hash"),
    ("boot_pageset", "page_list"),
];

/// Functions, or the beginnings of their names, and the class of the locks that they take. A function that takes locks
/// of several classes is not listed.
const FUNCTIONS: &[(&str, &str)] = &[
    ("__schedule", "rq"),
    ("raw_spin_rq_lock", "rq"),
    ("_raw_spin_rq_lock", "rq"),
    ("sched_tick", "rq"),
    ("scheduler_tick", "rq"),
    ("task_rq_lock", "pi_lock"),
    ("___task_rq_lock", "pi_lock"),
    ("_task_rq_lock", "pi_lock"),
    ("try_to_wake_up", "pi_lock"),
    ("wake_up_new_task", "pi_lock"),
    ("sched_cgroup_fork", "pi_lock"),
    ("task_work_", "pi_lock"),
    ("dup_user_cpus_ptr", "pi_lock"),
    ("futex_exit_", "pi_lock"),
    ("sched_exec", "pi_lock"),
    ("__wake_up", "wait_queue"),
    ("prepare_to_", "wait_queue"),
    ("finish_", "wait_queue"),
    ("add_wait_queue", "wait_queue"),
    ("remove_wait_queue", "wait_queue"),
    ("swake_up", "wait_queue"),
    ("complete", "wait_queue"),
    ("__wait_for_common", "wait_queue"),
    ("wait_for_completion", "wait_queue"),
    ("hrtimer_", "hrtimer_base"),
    ("__hrtimer_", "hrtimer_base"),
    ("lock_timer_base", "timer_base"),
    ("__run_timers", "timer_base"),
    ("run_timer_softirq", "timer_base"),
    ("rcu_", "rcu"),
    ("get_page_from_freelist", "page_list"),
    ("free_unref_", "page_list"),
    ("__free_frozen_pages", "page_list"),
    ("rmqueue_bulk", "zone"),
    ("__rmqueue_pcplist", "zone"),
    ("free_pcppages_bulk", "zone"),
    ("free_one_page", "zone"),
    ("folio_lruvec_lock", "lru"),
    ("lock_page_lruvec", "lru"),
    ("unmap_page_range", "page_table"),
    ("__handle_mm_fault", "page_table"),
    ("copy_page_range", "page_table"),
    ("filemap_map_pages", "page_table"),
    ("wp_page_copy", "page_table"),
    ("pmd_install", "page_table"),
    ("__pmd_alloc", "page_table"),
    ("__pud_alloc", "page_table"),
    ("__p4d_alloc", "page_table"),
    ("__anon_vma_prepare", "page_table"),
    ("__vma_anon_prepare", "page_table"),
    ("change_protection", "page_table"),
    ("follow_page_pte", "page_table"),
    ("move_page_tables", "page_table"),
    ("pte_offset_map_lock", "page_table"),
    ("__pte_offset_map_lock", "page_table"),
    ("___slab_alloc", "slab"),
    ("__slab_free", "slab"),
    ("__unfreeze_partials", "slab"),
    ("__put_partials", "slab"),
    ("get_partial_node", "slab"),
    ("get_from_partial_node", "slab"),
    ("__refill_objects_node", "slab"),
    ("alloc_from_new_slab", "slab"),
    ("barn_", "slab"),
    ("__lock_task_sighand", "siglock"),
    ("lock_task_sighand", "siglock"),
    ("calculate_sigpending", "siglock"),
    ("exit_signals", "siglock"),
    ("do_group_exit", "siglock"),
    ("alloc_fd", "files"),
    ("close_fd", "files"),
    ("file_close_fd", "files"),
    ("dup_fd", "files"),
    ("do_close_on_exec", "files"),
    ("d_", "dentry"),
    ("__d_", "dentry"),
    ("dput", "dentry"),
    ("dentry_kill", "dentry"),
    ("__dentry_kill", "dentry"),
    ("lockref_", "dentry"),
    ("lock_for_kill", "dentry"),
    ("vfs_unlink", "dentry"),
    ("shrink_", "dentry"),
    ("evict", "inode"),
    ("clear_inode", "inode"),
    ("igrab", "inode"),
    ("inode_", "inode"),
    ("_atomic_dec_and_lock", "inode"),
    ("new_inode", "inode_sb_list"),
    ("shmem_add_to_page_cache", "tree_lock"),
    ("skb_", "sk_receive_queue"),
    ("unix_stream_", "unix_state"),
    ("futex_", "futex_hash"),
    ("alloc_pid", "pidmap"),
    ("free_pid", "pidmap"),
    ("percpu_counter", "percpu_counter"),
    ("__percpu_counter", "percpu_counter"),
    ("pcpu_alloc", "percpu_allocator"),
    ("free_percpu", "percpu_allocator"),
    ("add_device_randomness", "random"),
    ("crng_", "random"),
    ("cgroup_", "cgroup"),
    ("pgd_", "pgd"),
    ("pipe_", "pipe"),
];

/// Exceptions: functions that begin like others but take another lock.
const EXCEPT: &[(&str, &str)] = &[
    ("finish_fault", "page_table"),
    ("__task_rq_lock", "rq"),
    ("inode_add_bytes", "inode"),
    ("evict_inodes", "inode_sb_list"),
];

/// The class of the lock at `address` that `function` takes. "other" if it is not known.
pub fn class(symbols: &Symbols, offsets: &[u64], address: u64, function: &str) -> &'static str {
    let variable = symbols
        .per_cpu_variable(address, offsets)
        .or_else(|| symbols.variable(address));
    let of = |table: &'static [(&str, &'static str)], name: &str, exact: bool| {
        let found = table
            .iter()
            .find(|(start, _)| if exact { name == *start } else { name.starts_with(start) });
        found.map(|(_, class)| *class)
    };
    variable
        .and_then(|name| of(VARIABLES, name, false))
        .or_else(|| of(EXCEPT, function, true))
        .or_else(|| of(FUNCTIONS, function, false))
        .unwrap_or("other")
}
