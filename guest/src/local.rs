//! Plain memory: values whose access costs nothing beyond the compute time around it.
//!
//! A value that CPUs race for or wait on is a [`Word`](holdfast_locks::Word) and goes through the platform. Every other
//! value is used by one CPU only, or is under a lock, or is a hint that may be stale. Those are in here: a load or
//! store of one is a plain move on the CPU.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

macro_rules! local {
    ($(#[$doc:meta])+ $local:ident($atomic:ident) of $value:ident) => {
        $(#[$doc])+
        #[derive(Debug, Default)]
        pub(crate) struct $local($atomic);

        impl $local {
            pub(crate) const fn new(value: $value) -> Self {
                $local($atomic::new(value))
            }

            #[inline(always)]
            pub(crate) fn get(&self) -> $value {
                self.0.load(Ordering::Relaxed)
            }

            #[inline(always)]
            pub(crate) fn set(&self, value: $value) {
                self.0.store(value, Ordering::Relaxed);
            }

            /// Adds without a locked instruction. Only the owner may call it.
            #[inline(always)]
            pub(crate) fn add(&self, amount: $value) {
                self.set(self.get().wrapping_add(amount));
            }
        }
    };
}

local! {
    /// A 64-bit value with one owner: a CPU, or the holder of a lock. Others may read it as a hint.
    Local(AtomicU64) of u64
}

local! {
    /// A 32-bit [`Local`].
    Local32(AtomicU32) of u32
}

impl Local32 {
    #[inline(always)]
    pub(crate) fn sub(&self, amount: u32) {
        self.set(self.get().wrapping_sub(amount));
    }

    #[inline(always)]
    pub(crate) fn is_set(&self) -> bool {
        self.get() != 0
    }
}

/// A flag or state that one CPU writes and another must see in order: sequentially consistent.
#[derive(Debug, Default)]
pub(crate) struct Shared32(AtomicU32);

impl Shared32 {
    pub(crate) const fn new(value: u32) -> Self {
        Shared32(AtomicU32::new(value))
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }

    #[inline(always)]
    pub(crate) fn set(&self, value: u32) {
        self.0.store(value, Ordering::SeqCst);
    }

    /// Subtracts one with a locked instruction, and returns the remaining value.
    #[inline(always)]
    pub(crate) fn decrement(&self) -> u32 {
        self.0.fetch_sub(1, Ordering::SeqCst).wrapping_sub(1)
    }
}

/// A sum that any CPU adds to and its owner takes.
#[derive(Debug, Default)]
pub(crate) struct Sum64(AtomicU64);

impl Sum64 {
    pub(crate) fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// Returns the sum, and begins a new one.
    pub(crate) fn take(&self) -> u64 {
        // Mostly nothing was added, and a load is cheaper than an exchange.
        if self.0.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        self.0.swap(0, Ordering::Relaxed)
    }
}
