//! The kernel functions whose entries the probe records.

use std::fmt::Write;

use crate::symbols::Symbols;

/// What a call of a hooked function means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Lock,
    Unlock,
    RwLock,
    Mutex,
    MutexWait,
    Read,
    Write,
    VmaRead,
    Wakeup,
    Switch,
    RescheduleIpi,
    CallIpi,
    /// Waits for a spinlock.
    Wait,
}

/// The functions, by the number that the probe writes. Their names are the same from Linux 6.1 to 7.3.
pub const HOOKS: &[(&str, Kind)] = &[
    ("_raw_spin_lock", Kind::Lock),
    ("_raw_spin_lock_irq", Kind::Lock),
    ("_raw_spin_lock_irqsave", Kind::Lock),
    ("_raw_spin_lock_bh", Kind::Lock),
    ("_raw_spin_trylock", Kind::Lock),
    ("_raw_spin_trylock_bh", Kind::Lock),
    ("_raw_spin_unlock", Kind::Unlock),
    ("_raw_spin_unlock_irq", Kind::Unlock),
    ("_raw_spin_unlock_irqrestore", Kind::Unlock),
    ("_raw_spin_unlock_bh", Kind::Unlock),
    ("_raw_read_lock", Kind::RwLock),
    ("_raw_read_lock_irq", Kind::RwLock),
    ("_raw_read_lock_irqsave", Kind::RwLock),
    ("_raw_read_lock_bh", Kind::RwLock),
    ("_raw_write_lock", Kind::RwLock),
    ("_raw_write_lock_irq", Kind::RwLock),
    ("_raw_write_lock_irqsave", Kind::RwLock),
    ("_raw_write_lock_bh", Kind::RwLock),
    ("mutex_lock", Kind::Mutex),
    ("mutex_lock_interruptible", Kind::Mutex),
    ("mutex_lock_killable", Kind::Mutex),
    ("mutex_trylock", Kind::Mutex),
    ("__mutex_lock_slowpath", Kind::MutexWait),
    ("down_read", Kind::Read),
    ("down_read_interruptible", Kind::Read),
    ("down_read_killable", Kind::Read),
    ("down_read_trylock", Kind::Read),
    ("down_write", Kind::Write),
    ("down_write_killable", Kind::Write),
    ("down_write_trylock", Kind::Write),
    ("lock_vma_under_rcu", Kind::VmaRead),
    ("try_to_wake_up", Kind::Wakeup),
    ("__switch_to", Kind::Switch),
    ("native_smp_send_reschedule", Kind::RescheduleIpi),
    ("smp_call_function_many_cond", Kind::CallIpi),
    ("native_queued_spin_lock_slowpath", Kind::Wait),
];

/// Returns the lines `ADDRESS NUMBER KIND` of the functions that this kernel has. The probe knows only the kinds that
/// concern spinlocks.
pub fn listing(symbols: &Symbols) -> String {
    let mut lines = String::new();
    for (number, (name, kind)) in HOOKS.iter().enumerate() {
        let kind = match kind {
            Kind::Lock => 'l',
            Kind::Unlock => 'u',
            Kind::Wait => 'w',
            _ => '-',
        };
        if let Some(address) = symbols.function_address(name) {
            writeln!(lines, "{address:x} {number} {kind}").expect("a string takes every write");
        }
    }
    lines
}
