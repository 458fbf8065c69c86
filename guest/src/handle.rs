//! Who owns the kernel, and how its flows of control find it.
//!
//! A task's stack is never unwound, so nothing that lives there may own a share of the kernel: it would never be given
//! back. The image owns the kernel; flows hold a [`KernelRef`].

#![expect(
    unsafe_code,
    reason = "flows of control on stacks of their own outlive every scope that could lend them a reference"
)]

use alloc::boxed::Box;
use core::ops::Deref;
use core::ptr::NonNull;

use crate::kernel::Kernel;
use crate::machine::Machine;

/// The one owner of a kernel.
pub(crate) struct OwnedKernel<M: Machine>(NonNull<Kernel<M>>);

/// The kernel, as a flow of control that it started holds it.
pub(crate) struct KernelRef<M: Machine>(NonNull<Kernel<M>>);

impl<M: Machine> OwnedKernel<M> {
    pub(crate) fn new(kernel: Kernel<M>) -> Self {
        let owned = OwnedKernel(NonNull::from(Box::leak(Box::new(kernel))));
        owned.introduce(KernelRef(owned.0));
        owned
    }
}

impl<M: Machine> Deref for OwnedKernel<M> {
    type Target = Kernel<M>;

    fn deref(&self) -> &Kernel<M> {
        // SAFETY: made from a leaked box, freed by nobody but `drop`; only shared references are ever made.
        unsafe { self.0.as_ref() }
    }
}

impl<M: Machine> Drop for OwnedKernel<M> {
    fn drop(&mut self) {
        // SAFETY: the pointer came from a leaked box and this is its only owner. The flows that hold a `KernelRef` run
        // no more: `Machine` promises that no context continues once its image is dropped.
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
        // SAFETY: held by the kernel itself and by its flows of control only, and these run only while the image, which
        // owns the kernel, is alive (`Machine`'s contract).
        unsafe { self.0.as_ref() }
    }
}
