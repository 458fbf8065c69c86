//! What a program adds to the names that experiments use.

use std::sync::LazyLock;

pub use holdfast_host::Policy;
use holdfast_host::PolicyKind;
use holdfast_host::policies::{Grace, GraceAndBoost, Handover};
use holdfast_locks::LockKind;
pub use holdfast_sim::SimLock;
use holdfast_sim::{SimMachine, lock_kind};
pub use holdfast_workloads::{GuestPolicy, Load};
use holdfast_workloads::{GuestPolicyKind, OwnWorkload, StealGovernor, Workload};

/// The names that a program adds, by types of its own. Small, and never freed: a program makes one, at its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extensions {
    /// The locks that guests can have, those of the crate `locks` first.
    pub locks: &'static [LockKind],
    /// The policies that hosts can have, that of the kernel first.
    pub policies: &'static [PolicyKind],
    /// The policies that guests can have, that of the kernel first.
    pub guest_policies: &'static [GuestPolicyKind],
    /// The workloads that a program adds to those of [`Workload::all`].
    pub workloads: &'static [OwnWorkload],
}

impl Extensions {
    /// Nothing but the locks of `locks` and the kernel's policy.
    pub const NONE: Extensions = Extensions {
        locks: LockKind::ALL,
        policies: &[PolicyKind::KERNEL],
        guest_policies: const { &[GuestPolicyKind::KERNEL] },
        workloads: &[],
    };

    /// Returns what the shipped command has: the locks of `locks` and of `locks/history`, the policies of
    /// [`holdfast_host::policies`], and the steal governor of guests.
    pub fn shipped() -> Extensions {
        macro_rules! added {
            ([] $($module:ident: $kind:ident = $name:literal,)+) => {
                Extensions::NONE$(.lock::<holdfast_history::$kind>($name))+
            };
        }
        static SHIPPED: LazyLock<Extensions> = LazyLock::new(|| {
            holdfast_history::for_each_historic_lock!(added)
                .policy::<Grace>("grace")
                .policy::<Handover>("handover")
                .policy::<GraceAndBoost>("grace-boost")
                .guest_policy::<StealGovernor>("steal-governor")
        });
        *SHIPPED
    }

    /// Adds the lock `L`, which experiments call `name`.
    ///
    /// # Panics
    /// If a lock of that name is known, or if the lock that `L` names in
    /// [`WITHOUT_KICKS`](holdfast_locks::Described::WITHOUT_KICKS) is not.
    #[must_use]
    #[track_caller]
    pub fn lock<L: SimLock>(self, name: &'static str) -> Extensions {
        Extensions {
            locks: and(self.locks, lock_kind::<L>(name, self.locks)),
            ..self
        }
    }

    /// Adds the host policy `P`, which experiments call `name`. Each host begins with `P::default()`.
    ///
    /// # Panics
    /// If a policy of that name is known.
    #[must_use]
    #[track_caller]
    pub fn policy<P: Policy + Default + 'static>(self, name: &'static str) -> Extensions {
        let known = self.policies.iter().any(|kind| kind.name() == name);
        assert!(!known, "two policies are called {name}");
        Extensions {
            policies: and(self.policies, PolicyKind::of::<P>(name)),
            ..self
        }
    }

    /// Adds the guest policy `P`, which experiments call `name`. Each guest begins with `P::default()`.
    ///
    /// # Panics
    /// If a guest policy of that name is known.
    #[must_use]
    #[track_caller]
    pub fn guest_policy<P: GuestPolicy + Default + 'static>(self, name: &'static str) -> Extensions {
        let known = self.guest_policies.iter().any(|kind| kind.name() == name);
        assert!(!known, "two guest policies are called {name}");
        Extensions {
            guest_policies: and(self.guest_policies, GuestPolicyKind::of::<P>(name)),
            ..self
        }
    }

    /// Adds the workload `L`, which experiments call `name`.
    ///
    /// # Panics
    /// If a workload of that name is known.
    #[must_use]
    #[track_caller]
    pub fn workload<L: Load + 'static>(self, name: &'static str) -> Extensions {
        let known = workloads_with(self.workloads).any(|workload| workload.name() == name);
        assert!(!known, "two workloads are called {name}");
        Extensions {
            workloads: and(self.workloads, OwnWorkload::of::<L, SimMachine>(name)),
            ..self
        }
    }

    /// Says of each policy what it does.
    pub(crate) fn about_policies(&self) -> String {
        let about = |kind: &PolicyKind| format!("\"{}\": {}.", kind.name(), kind.about());
        self.policies.iter().map(about).collect::<Vec<_>>().join(" ")
    }

    /// Says of each guest policy what it does.
    pub(crate) fn about_guest_policies(&self) -> String {
        let about = |kind: &GuestPolicyKind| format!("\"{}\": {}.", kind.name(), kind.about());
        self.guest_policies.iter().map(about).collect::<Vec<_>>().join(" ")
    }

    /// Says of each lock where it comes from, and how many CPUs it is for.
    pub(crate) fn about_locks(&self) -> String {
        let about = |kind: &LockKind| {
            let description = kind.description();
            let cpus = match description.cpus_max {
                u32::MAX => String::new(),
                most => format!(", for up to {most} CPUs"),
            };
            format!("\"{kind}\": {}{cpus}.", description.origin)
        };
        self.locks.iter().map(about).collect::<Vec<_>>().join(" ")
    }
}

/// Returns `known` and `added`.
fn and<T: Clone>(known: &[T], added: T) -> &'static [T] {
    let mut all = known.to_vec();
    all.push(added);
    all.leak()
}

/// Returns the shipped workloads and a program's `own` ones, with their default parameters.
pub(crate) fn workloads_with(own: &'static [OwnWorkload]) -> impl Iterator<Item = Workload> {
    let own = own.iter().cloned().map(Workload::Own);
    Workload::all().into_iter().chain(own)
}

impl Default for Extensions {
    fn default() -> Self {
        Extensions::shipped()
    }
}
