//! The functions of the C library whose names this library takes.

use core::ffi::{c_int, c_void};
use core::mem;
use core::ptr;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::Relaxed;

use libc::{clockid_t, pthread_cond_t, pthread_mutex_t, timespec};

/// Returns the address of the next function with the name `name`, which ends with 0.
#[cold]
fn look_up(name: &'static core::ffi::CStr) -> *mut c_void {
    // SAFETY: `name` ends with 0.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}

/// A function of the C library.
struct Real {
    name: &'static core::ffi::CStr,
    /// Null until it has been looked up, or [`MISSING`].
    address: AtomicPtr<c_void>,
}

/// In place of the address of a function that the C library does not have. No function is there.
const MISSING: *mut c_void = ptr::without_provenance_mut(1);

impl Real {
    const fn new(name: &'static core::ffi::CStr) -> Self {
        Real {
            name,
            address: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Returns the address, or `None` if the C library has no such function. Looks it up only for a caller that runs
    /// before [`look_up_all`].
    fn address(&self) -> Option<*mut c_void> {
        // ORDERING: Relaxed, both; threads that look the address up find the same.
        let mut address = self.address.load(Relaxed);
        if address.is_null() {
            address = look_up(self.name);
            if address.is_null() {
                address = MISSING;
            }
            self.address.store(address, Relaxed);
        }
        (address != MISSING).then_some(address)
    }
}

macro_rules! real {
    ($($name:ident($($argument:ident: $type:ty),*);)+) => {
        #[expect(non_upper_case_globals, reason = "the names of the C library's functions")]
        mod addresses {
            use crate::real::Real;

            $(pub(super) static $name: Real = Real::new(
                match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => panic!("a name without 0"),
                },
            );)+
        }

        /// Looks all functions up. Called when the library is loaded: the dynamic linker takes a lock of its own.
        pub(crate) fn look_up_all() {
            $(addresses::$name.address();)+
        }

        $(
            /// Calls the C library's function. Returns `ENOSYS` if it has none.
            ///
            /// # Safety
            /// As for that function.
            pub(crate) unsafe extern "C-unwind" fn $name($($argument: $type),*) -> c_int {
                let Some(address) = addresses::$name.address() else {
                    return libc::ENOSYS;
                };
                // SAFETY: the C library's function of this name has this type.
                let function: unsafe extern "C-unwind" fn($($type),*) -> c_int = unsafe { mem::transmute(address) };
                // SAFETY: the caller keeps the function's promises.
                unsafe { function($($argument),*) }
            }
        )+
    };
}

real! {
    pthread_mutex_lock(mutex: *mut pthread_mutex_t);
    pthread_mutex_trylock(mutex: *mut pthread_mutex_t);
    pthread_mutex_timedlock(mutex: *mut pthread_mutex_t, deadline: *const timespec);
    pthread_mutex_clocklock(mutex: *mut pthread_mutex_t, clock: clockid_t, deadline: *const timespec);
    pthread_mutex_unlock(mutex: *mut pthread_mutex_t);
    pthread_mutex_destroy(mutex: *mut pthread_mutex_t);
    pthread_cond_wait(cond: *mut pthread_cond_t, mutex: *mut pthread_mutex_t);
    pthread_cond_timedwait(cond: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, deadline: *const timespec);
    pthread_cond_clockwait(
        cond: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, clock: clockid_t, deadline: *const timespec
    );
    pthread_cond_signal(cond: *mut pthread_cond_t);
    pthread_cond_broadcast(cond: *mut pthread_cond_t);
    pthread_cond_destroy(cond: *mut pthread_cond_t);
}
