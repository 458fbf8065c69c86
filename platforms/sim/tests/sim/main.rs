//! Properties of the simulator, tested with small guests.
#![allow(missing_docs)]

mod apicv;
mod avic;
mod contend;
mod exactness;
#[cfg(target_os = "linux")]
mod examples;
mod faults;
mod guest_policy;
mod idle;
mod image;
mod inside;
mod interrupts;
mod iommu;
mod latency;
mod lines;
mod locks;
mod many;
mod migration;
mod native;
mod nested;
mod noise;
mod numa;
mod pause;
mod recorded;
mod refill;
mod siblings;
mod siblings_of_guests;
mod startup;
mod threads;
mod timeline;
mod torture;
mod virtio;

/// Returns all locks: those of `locks`, and those of `locks/history` as a program registers its own.
fn all_locks() -> Vec<holdfast_locks::LockKind> {
    let mut locks = holdfast_locks::LockKind::ALL.to_vec();
    macro_rules! add {
        ([] $($module:ident: $kind:ident = $name:literal,)+) => {
            $(locks.push(holdfast_sim::lock_kind::<holdfast_history::$kind>($name, &locks));)+
        };
    }
    holdfast_history::for_each_historic_lock!(add);
    locks
}
