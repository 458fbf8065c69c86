//! The kernel's owner, and how its flows of control refer to it.
//!
//! A task's stack is never unwound, so a share of the kernel that it owned would never be released. The image owns the
//! kernel, and flows of control hold a [`KernelRef`].

#![expect(
    unsafe_code,
    reason = "flows of control on stacks of their own outlive every scope that could lend them a reference"
)]

use alloc::boxed::Box;
use core::ops::Deref;
use core::ptr::NonNull;

use crate::kernel::Kernel;
use crate::machine::Machine;

/// The only owner of a kernel.
pub(crate) struct OwnedKernel<M: Machine>(NonNull<Kernel<M>>);

/// A reference to the kernel for the flows of control that it starts.
pub(crate) struct KernelRef<M: Machine>(NonNull<Kernel<M>>);

impl<M: Machine> OwnedKernel<M> {
    pub(crate) fn new(kernel: Kernel<M>) -> Self {
        OwnedKernel(NonNull::from(Box::leak(Box::new(kernel))))
    }

    /// A reference for the kernel itself and its flows of control, which must not be used elsewhere.
    pub(crate) fn reference(&self) -> KernelRef<M> {
        KernelRef(self.0)
    }
}

impl<M: Machine> Deref for OwnedKernel<M> {
    type Target = Kernel<M>;

    fn deref(&self) -> &Kernel<M> {
        // SAFETY: the pointer is to a leaked box that only `drop` frees. Only shared references are ever made.
        unsafe { self.0.as_ref() }
    }
}

impl<M: Machine> Drop for OwnedKernel<M> {
    fn drop(&mut self) {
        // SAFETY: the pointer came from a leaked box and this is its only owner. The flows that hold a `KernelRef` no
        // longer run: `Machine` promises that no context continues once its image is dropped.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl<M: Machine> Clone for KernelRef<M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Machine> Copy for KernelRef<M> {}

impl<M: Machine> Deref for KernelRef<M> {
    type Target = Kernel<M>;

    #[inline(always)]
    fn deref(&self) -> &Kernel<M> {
        // SAFETY: only the kernel itself and its flows of control hold a reference. They run only while the image,
        // which owns the kernel, exists (`Machine`'s contract).
        unsafe { self.0.as_ref() }
    }
}
