//! Values that are made once: the first thread makes the value, the others wait for it.

#![expect(unsafe_code, reason = "shares a value that is written once")]

use std::cell::{Cell, OnceCell};
use std::convert::Infallible;
use std::fmt;
use std::ops::Deref;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};

use crate::Mutex;

/// A value that is written at most once.
///
/// A thread that finds the value reads one flag. Threads that want to make it take a [`Mutex`], so they wait as for any
/// other lock. If making the value panics or fails, the next thread tries.
///
/// ```
/// use holdfast::OnceLock;
///
/// static LENGTH: OnceLock<usize> = OnceLock::new();
///
/// assert_eq!(*LENGTH.get_or_init(|| "seven".len()), 5);
/// assert_eq!(LENGTH.set(1), Err(1));
/// ```
///
/// A value that may not leave its thread cannot be shared:
///
/// ```compile_fail,E0277
/// fn share(_: impl Sync) {}
/// share(holdfast::OnceLock::<std::rc::Rc<u32>>::new());
/// ```
pub struct OnceLock<T> {
    /// Whether the value is written.
    done: AtomicBool,
    writing: Mutex<()>,
    value: OnceCell<T>,
}

// SAFETY: **Written once**: `value` is written only with `writing` held and `done` not set, and `done` is set after it.
// References to the value are given out only once `done` is set, and it is not written from then on. So threads share
// the value (`T: Sync`), and one of them may have got it from another (`T: Send`).
unsafe impl<T: Sync + Send> Sync for OnceLock<T> {}

// As for `std::sync::OnceLock`: a value that panicked while it was made is not there.
impl<T: RefUnwindSafe + UnwindSafe> RefUnwindSafe for OnceLock<T> {}
impl<T: UnwindSafe> UnwindSafe for OnceLock<T> {}

impl<T> OnceLock<T> {
    /// Makes a cell without a value. Usable in a `static`.
    pub const fn new() -> Self {
        OnceLock {
            done: AtomicBool::new(false),
            writing: Mutex::new(()),
            value: OnceCell::new(),
        }
    }

    /// Returns the value if it has been written.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        // ORDERING: Acquire; pairs with the Release in `get_or_try_init`: the value is visible.
        if !self.done.load(Acquire) {
            return None;
        }
        // SAFETY: **Written once**: `done` is set after the value is written, and cleared only by `take`, which borrows
        // the cell exclusively.
        Some(unsafe { self.value.get().unwrap_unchecked() })
    }

    /// Returns the value if it has been written. An exclusive borrow needs no locking.
    pub fn get_mut(&mut self) -> Option<&mut T> {
        self.value.get_mut()
    }

    /// Returns the value. If there is none, the first caller makes it by `make`, and the others wait.
    ///
    /// A `make` that asks for the same value waits forever.
    #[inline]
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        match self.get_or_try_init(|| Ok::<T, Infallible>(make())) {
            Ok(value) => value,
        }
    }

    /// Returns the value. If there is none, the first caller makes it by `make`, and the others wait.
    ///
    /// # Errors
    /// The error of `make`. The next caller tries again.
    #[inline]
    pub fn get_or_try_init<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        match self.get() {
            Some(value) => Ok(value),
            None => self.try_init(make),
        }
    }

    #[cold]
    fn try_init<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        let writing = self.writing.lock();
        if self.value.get().is_none() {
            let made = make()?;
            // The cell is empty: this thread has held `writing` since it looked.
            let _ = self.value.set(made);
            // ORDERING: Release; pairs with the Acquire in `get`.
            self.done.store(true, Release);
        }
        drop(writing);
        Ok(self
            .get()
            .expect("the value is written: its flag was set with the lock held"))
    }

    /// Writes the value.
    ///
    /// # Errors
    /// If there is one already. The error is `value`.
    pub fn set(&self, value: T) -> Result<(), T> {
        let mut value = Some(value);
        self.get_or_init(|| value.take().expect("called once"));
        value.map_or(Ok(()), Err)
    }

    /// Takes the value away. An exclusive borrow needs no locking.
    pub fn take(&mut self) -> Option<T> {
        *self.done.get_mut() = false;
        self.value.take()
    }

    /// Consumes the cell and returns its value.
    pub fn into_inner(self) -> Option<T> {
        self.value.into_inner()
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> From<T> for OnceLock<T> {
    fn from(value: T) -> Self {
        OnceLock {
            done: AtomicBool::new(true),
            writing: Mutex::new(()),
            value: OnceCell::from(value),
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for OnceLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnceLock").field(&self.get()).finish()
    }
}

/// Code that runs at most once.
///
/// ```
/// use holdfast::Once;
///
/// static START: Once = Once::new();
/// START.call_once(|| println!("only once"));
/// START.call_once(|| unreachable!());
/// ```
#[derive(Debug, Default)]
pub struct Once(OnceLock<()>);

impl Once {
    /// Makes a `Once` that has not run. Usable in a `static`.
    pub const fn new() -> Self {
        Once(OnceLock::new())
    }

    /// Runs `code` if no code has run to its end. Otherwise, or while another thread runs code, waits for that end. If
    /// the code panics, the next caller runs its own.
    #[inline]
    pub fn call_once(&self, code: impl FnOnce()) {
        self.0.get_or_init(code);
    }

    /// Returns whether the code has run to its end.
    #[inline]
    pub fn is_completed(&self) -> bool {
        self.0.get().is_some()
    }
}

/// A value that is made when it is first used.
///
/// ```
/// use holdfast::LazyLock;
///
/// static SQUARES: LazyLock<Vec<u32>> = LazyLock::new(|| (0..4).map(|n| n * n).collect());
/// assert_eq!(SQUARES[3], 9);
/// ```
pub struct LazyLock<T, F = fn() -> T> {
    value: OnceLock<T>,
    /// Taken by the thread that makes the value.
    make: Cell<Option<F>>,
}

// SAFETY: `make` is accessed only by the thread that makes the value, with the lock of `value` held. It may have got
// the function from another thread (`F: Send`). No reference to the function is given out. The rest is a `OnceLock`.
unsafe impl<T, F: Send> Sync for LazyLock<T, F> where OnceLock<T>: Sync {}

impl<T: RefUnwindSafe + UnwindSafe, F: UnwindSafe> RefUnwindSafe for LazyLock<T, F> {}

impl<T, F: FnOnce() -> T> LazyLock<T, F> {
    /// Makes a value that `make` will make. Usable in a `static`.
    pub const fn new(make: F) -> Self {
        LazyLock {
            value: OnceLock::new(),
            make: Cell::new(Some(make)),
        }
    }

    /// Returns the value, and makes it if no thread has done so.
    ///
    /// # Panics
    /// If `make` has panicked before.
    #[inline]
    pub fn force(this: &Self) -> &T {
        this.value.get_or_init(|| {
            let make = this
                .make
                .take()
                .expect("a value whose making has panicked cannot be used");
            make()
        })
    }
}

impl<T, F: FnOnce() -> T> Deref for LazyLock<T, F> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        LazyLock::force(self)
    }
}

impl<T: Default> Default for LazyLock<T> {
    fn default() -> Self {
        LazyLock::new(T::default)
    }
}

impl<T: fmt::Debug, F> fmt::Debug for LazyLock<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LazyLock").field(&self.value.get()).finish()
    }
}
