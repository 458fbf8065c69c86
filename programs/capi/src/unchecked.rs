//! In place of `check`, where nothing is checked.

use core::ffi::c_void;

#[derive(Clone, Copy)]
pub(crate) enum Access {
    Lock,
    Read,
    Write,
}

#[inline(always)]
pub(crate) fn waits<T>(_function: &'static str, _lock: *const T, _access: Access) {}
#[inline(always)]
pub(crate) fn holds<T>(_function: &'static str, _lock: *const T, _access: Access) {}
#[inline(always)]
pub(crate) fn releases<T>(_function: &'static str, _lock: *const T, _access: Access) {}
#[inline(always)]
pub(crate) fn downgrades<T>(_function: &'static str, _lock: *const T) {}
#[inline(always)]
pub(crate) fn initializes<T>(_function: &'static str, _lock: *const T) {}

/// Makes the wait.
#[inline(always)]
pub(crate) fn cond_wait<R>(
    _function: &'static str,
    _cond: *const c_void,
    _lock: *const c_void,
    wait: impl FnOnce() -> R,
) -> R {
    wait()
}
