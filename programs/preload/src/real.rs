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

macro_rules! real {
    ($($name:ident($($argument:ident: $type:ty),*);)+) => {$(
        /// Calls the C library's function. Returns `ENOSYS` if it has none.
        ///
        /// # Safety
        /// As for that function.
        pub(crate) unsafe extern "C-unwind" fn $name($($argument: $type),*) -> c_int {
            static ADDRESS: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
            const NAME: &core::ffi::CStr = match core::ffi::CStr::from_bytes_with_nul(
                concat!(stringify!($name), "\0").as_bytes()
            ) {
                Ok(name) => name,
                Err(_) => panic!("a name without 0"),
            };
            // ORDERING: Relaxed, both; threads that look the address up find the same.
            let mut address = ADDRESS.load(Relaxed);
            if address.is_null() {
                address = look_up(NAME);
                ADDRESS.store(address, Relaxed);
            }
            if address.is_null() {
                return libc::ENOSYS;
            }
            // SAFETY: the C library's function of this name has this type.
            let function: unsafe extern "C-unwind" fn($($type),*) -> c_int = unsafe { mem::transmute(address) };
            // SAFETY: the caller keeps the function's promises.
            unsafe { function($($argument),*) }
        }
    )+};
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
