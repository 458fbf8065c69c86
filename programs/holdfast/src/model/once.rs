//! Values that are made once, with a mutex of the checker.

use super::Mutex;

/// A value that is written at most once.
///
/// Unlike the type without a checker, a thread that finds the value takes a lock for a moment, too: the checker must
/// see that the value was written before.
#[derive(Debug)]
pub struct OnceLock<T> {
    /// Whether the value is written. A thread that makes it holds the lock meanwhile.
    done: Mutex<bool>,
    value: std::sync::OnceLock<T>,
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        OnceLock::new()
    }
}

impl<T> OnceLock<T> {
    /// Makes a place without a value.
    pub fn new() -> Self {
        OnceLock {
            done: Mutex::new(false),
            value: std::sync::OnceLock::new(),
        }
    }

    /// Returns the value if it is written.
    pub fn get(&self) -> Option<&T> {
        let done = *self.done.lock();
        done.then(|| self.value.get()).flatten()
    }

    /// Returns the value, which `make` makes if it is not there. Other threads wait for it.
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        let mut done = self.done.lock();
        let value = self.value.get_or_init(make);
        *done = true;
        value
    }

    /// Writes the value.
    ///
    /// # Errors
    /// If there is a value. The error is `value`.
    pub fn set(&self, value: T) -> Result<(), T> {
        let mut done = self.done.lock();
        self.value.set(value)?;
        *done = true;
        Ok(())
    }

    /// Consumes the place and returns the value if it is written.
    pub fn into_inner(self) -> Option<T> {
        self.value.into_inner()
    }
}

/// Code that runs once.
#[derive(Debug, Default)]
pub struct Once(OnceLock<()>);

impl Once {
    /// Makes a `Once` whose code has not run.
    pub fn new() -> Self {
        Once(OnceLock::new())
    }

    /// Runs `body` if no thread has run one. When it returns, one has been run.
    pub fn call_once(&self, body: impl FnOnce()) {
        self.0.get_or_init(body);
    }

    /// Returns whether the code has run.
    pub fn is_completed(&self) -> bool {
        self.0.get().is_some()
    }
}
