//! What a mutex and a reader-writer lock with poisoning have in common.

/// Implements for `$Lock`, whose fields are `flag` and `inner`, what does not lock.
macro_rules! poisoning {
    ($Lock:ident) => {
        impl<T> $Lock<T> {
            /// Makes an unlocked lock. Usable in a `static`.
            pub const fn new(value: T) -> Self {
                $Lock {
                    flag: $crate::poison::flag::Flag::new(),
                    inner: $crate::$Lock::new(value),
                }
            }

            /// Consumes the lock and returns the data.
            ///
            /// # Errors
            /// If the lock is poisoned. The error has the data.
            pub fn into_inner(self) -> LockResult<T> {
                let value = self.inner.into_inner();
                self.flag.check(value)
            }
        }

        impl<T: ?Sized> $Lock<T> {
            /// Returns whether the lock is poisoned.
            pub fn is_poisoned(&self) -> bool {
                self.flag.is_set()
            }

            /// Removes the poison: the caller has put the data in order.
            pub fn clear_poison(&self) {
                self.flag.clear();
            }

            /// Returns the data. An exclusive borrow needs no locking.
            ///
            /// # Errors
            /// If the lock is poisoned. The error has the data.
            pub fn get_mut(&mut self) -> LockResult<&mut T> {
                self.flag.check(self.inner.get_mut())
            }
        }

        // After a panic the data cannot be used without notice: that is what the poison is for.
        impl<T: ?Sized> std::panic::UnwindSafe for $Lock<T> {}
        impl<T: ?Sized> std::panic::RefUnwindSafe for $Lock<T> {}

        impl<T> From<T> for $Lock<T> {
            fn from(value: T) -> Self {
                $Lock::new(value)
            }
        }
    };
}

/// Gives `$Guard`, whose field `inner` is the guard of the lock without poisoning, access to the data. `mut` also to
/// change it.
macro_rules! access {
    (mut $Guard:ident) => {
        access!($Guard);

        impl<T: ?Sized> std::ops::DerefMut for $Guard<'_, T> {
            #[inline]
            fn deref_mut(&mut self) -> &mut T {
                &mut self.inner
            }
        }
    };
    ($Guard:ident) => {
        impl<T: ?Sized> std::ops::Deref for $Guard<'_, T> {
            type Target = T;

            #[inline]
            fn deref(&self) -> &T {
                &self.inner
            }
        }

        impl<T: ?Sized + fmt::Debug> fmt::Debug for $Guard<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&**self, f)
            }
        }

        impl<T: ?Sized + fmt::Display> fmt::Display for $Guard<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&**self, f)
            }
        }
    };
}

pub(super) use {access, poisoning};
