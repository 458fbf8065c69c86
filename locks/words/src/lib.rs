//! Shared words of x86-64 and the machine instructions on them: the lock words of host threads and of the KVM guest.
//!
//! Locks access a word whole, by half-word and by byte. Rust's memory model does not allow racing accesses of different
//! sizes; x86 does. So *every* access to a word is inline assembly, across which the compiler moves no memory access.
//!
//! **Total store order** (Intel SDM volume 3A, section 9.2; AMD APM volume 2, section 7.2): each load acquires, each
//! store releases, each locked instruction is a full fence. Only a sequentially consistent store needs more than `mov`.
#![no_std]
#![cfg(target_arch = "x86_64")]
#![expect(unsafe_code, reason = "inline assembly on memory that other CPUs access")]

use core::arch::asm;
use core::cell::UnsafeCell;
use core::sync::atomic::Ordering;

/// A 32-bit word whose bytes and half-words can be accessed, too.
#[derive(Debug)]
#[repr(transparent)]
pub struct Word(UnsafeCell<u32>);

/// A pointer-sized word.
#[derive(Debug)]
#[repr(transparent)]
pub struct Address(UnsafeCell<usize>);

// SAFETY: all accesses through `&self` are single machine instructions, atomic on aligned memory.
unsafe impl Sync for Word {}
// SAFETY: as for `Word`.
unsafe impl Sync for Address {}

/// Defines the named operations on one part of a word: `$pointer` returns its address. No block is `readonly`, loads
/// included: an acquire load must make the compiler forget what it has read before.
macro_rules! accesses {
    (
        $value:ty, $pointer:ident, $memory:literal, $register:literal, $class:ident, $accumulator:tt;
        $($operation:ident = $name:ident),+
    ) => {
        $(accesses!(@$operation $name $value, $pointer, $memory, $register, $class, $accumulator);)+
    };
    (@load $load:ident
        $value:ty, $pointer:ident, $memory:literal, $register:literal, $class:ident, $accumulator:tt
    ) => {
        /// Loads the value.
        #[inline(always)]
        pub fn $load(&self, _order: Ordering) -> $value {
            let value: $value;
            // SAFETY: reads memory that `self` borrows, by one instruction.
            unsafe {
                asm!(concat!("mov {v", $register, "}, ", $memory, " ptr [{p}]"),
                    p = in(reg) self.$pointer(), v = out($class) value,
                    options(nostack, preserves_flags));
            }
            value
        }
    };
    (@store $store:ident
        $value:ty, $pointer:ident, $memory:literal, $register:literal, $class:ident, $accumulator:tt
    ) => {
        /// Stores `value`.
        #[inline(always)]
        pub fn $store(&self, value: $value, order: Ordering) {
            if order == Ordering::SeqCst {
                // SAFETY: writes memory that `self` borrows, by one instruction, which is locked without a prefix.
                unsafe {
                    asm!(concat!("xchg ", $memory, " ptr [{p}], {v", $register, "}"),
                        p = in(reg) self.$pointer(), v = inout($class) value => _,
                        options(nostack, preserves_flags));
                }
                return;
            }
            // SAFETY: writes memory that `self` borrows, by one instruction.
            unsafe {
                asm!(concat!("mov ", $memory, " ptr [{p}], {v", $register, "}"),
                    p = in(reg) self.$pointer(), v = in($class) value,
                    options(nostack, preserves_flags));
            }
        }
    };
    (@swap $swap:ident
        $value:ty, $pointer:ident, $memory:literal, $register:literal, $class:ident, $accumulator:tt
    ) => {
        /// Stores `value` and returns the previous value.
        #[inline(always)]
        pub fn $swap(&self, value: $value, _order: Ordering) -> $value {
            let before: $value;
            // SAFETY: exchanges memory that `self` borrows, by one instruction, which is locked without a prefix.
            unsafe {
                asm!(concat!("xchg ", $memory, " ptr [{p}], {v", $register, "}"),
                    p = in(reg) self.$pointer(), v = inout($class) value => before,
                    options(nostack, preserves_flags));
            }
            before
        }
    };
    (@compare_exchange $compare_exchange:ident
        $value:ty, $pointer:ident, $memory:literal, $register:literal, $class:ident, $accumulator:tt
    ) => {
        /// Stores `new` if the memory holds `current`. Returns the previous value, as `Err` if it was not `current`.
        #[inline(always)]
        pub fn $compare_exchange(
            &self,
            current: $value,
            new: $value,
            _success: Ordering,
            _failure: Ordering,
        ) -> Result<$value, $value> {
            let found: $value;
            // SAFETY: exchanges memory that `self` borrows, by one locked instruction.
            unsafe {
                asm!(concat!("lock cmpxchg ", $memory, " ptr [{p}], {v", $register, "}"),
                    p = in(reg) self.$pointer(), v = in($class) new, inout($accumulator) current => found,
                    options(nostack));
            }
            if found == current { Ok(found) } else { Err(found) }
        }
    };
}

impl Word {
    /// Makes a word that holds `value`.
    pub const fn new(value: u32) -> Self {
        Word(UnsafeCell::new(value))
    }

    #[inline(always)]
    fn whole(&self) -> *mut u32 {
        self.0.get()
    }

    /// Returns the address of bits 0-15, for inline assembly of the caller.
    #[inline(always)]
    pub fn low16(&self) -> *mut u16 {
        self.0.get().cast()
    }

    #[inline(always)]
    fn high16(&self) -> *mut u16 {
        self.low16().wrapping_add(1)
    }

    /// Returns the address of bits 0-7, for inline assembly of the caller.
    #[inline(always)]
    pub fn low8(&self) -> *mut u8 {
        self.0.get().cast()
    }

    #[inline(always)]
    fn byte1(&self) -> *mut u8 {
        self.low8().wrapping_add(1)
    }

    accesses!(u32, whole, "dword", ":e", reg, "eax";
        load = load, store = store, swap = swap, compare_exchange = compare_exchange);
    accesses!(u16, low16, "word", ":x", reg, "ax";
        load = load_low16, store = store_low16, swap = swap_low16, compare_exchange = compare_exchange_low16);
    accesses!(u16, high16, "word", ":x", reg, "ax"; load = load_high16, swap = swap_high16);
    accesses!(u8, low8, "byte", "", reg_byte, "al";
        store = store_low8, swap = swap_low8, compare_exchange = compare_exchange_low8);
    accesses!(u8, byte1, "byte", "", reg_byte, "al"; load = load_byte1, store = store_byte1);

    /// Adds, wrapping, and returns the previous value.
    #[inline(always)]
    pub fn fetch_add(&self, value: u32, _order: Ordering) -> u32 {
        let before: u32;
        // SAFETY: adds to memory that `self` borrows, by one locked instruction.
        unsafe {
            asm!("lock xadd dword ptr [{p}], {v:e}",
                p = in(reg) self.whole(), v = inout(reg) value => before,
                options(nostack));
        }
        before
    }

    /// Adds to bits 16-31, wrapping, then loads bits 0-15. Returns the previous high half with this low half.
    ///
    /// An addition to the whole word would overlap a pending store to one half. That costs a tenth of an uncontended
    /// lock and unlock (measured on Zen 5).
    #[inline(always)]
    pub fn fetch_add_high16(&self, value: u16, order: Ordering) -> u32 {
        let before: u16;
        // SAFETY: adds to memory that `self` borrows, by one locked instruction.
        unsafe {
            asm!("lock xadd word ptr [{p}], {v:x}",
                p = in(reg) self.high16(), v = inout(reg) value => before,
                options(nostack));
        }
        u32::from(before) << 16 | u32::from(self.load_low16(order))
    }

    /// Sets `bits` and returns the previous value.
    #[inline(always)]
    pub fn fetch_or(&self, bits: u32, order: Ordering) -> u32 {
        self.fetch_update(order, |value| value | bits)
    }

    /// Clears all bits but `bits` and returns the previous value.
    #[inline(always)]
    pub fn fetch_and(&self, bits: u32, order: Ordering) -> u32 {
        self.fetch_update(order, |value| value & bits)
    }

    /// Applies `update` by a loop: x86 has no OR or AND that returns the previous value.
    #[inline(always)]
    fn fetch_update(&self, order: Ordering, update: impl Fn(u32) -> u32) -> u32 {
        let mut seen = self.load(Ordering::Relaxed);
        loop {
            match self.compare_exchange(seen, update(seen), order, Ordering::Relaxed) {
                Ok(before) => return before,
                Err(now) => seen = now,
            }
        }
    }
}

impl Address {
    /// Makes a word that holds `value`.
    pub const fn new(value: usize) -> Self {
        Address(UnsafeCell::new(value))
    }

    #[inline(always)]
    fn whole(&self) -> *mut usize {
        self.0.get()
    }

    accesses!(usize, whole, "qword", ":r", reg, "rax";
        load = load, store = store, compare_exchange = compare_exchange);
}
