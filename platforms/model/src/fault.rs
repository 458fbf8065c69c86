//! Orderings of the locks' source, and executions with one of them weakened.
//!
//! Each operation that a lock does on its CPU has a site: the line and column of the call. A [`Probe`] notes every site
//! with an ordering above `Relaxed`; a [`Fault`] makes one of them weaker by one step. A site whose every fault is
//! caught has the ordering that it needs.

use std::fmt;
use std::panic::Location;
use std::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::{Arc, Mutex};

/// What kind of operation an ordering belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// A load.
    Load,
    /// The load of a wait.
    Wait,
    /// A store.
    Store,
    /// A read-modify-write.
    Rmw,
    /// The load of a compare-exchange that fails.
    Failure,
    /// A fence.
    Fence,
}

/// One ordering in the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Site {
    /// Path from the workspace's root.
    pub file: &'static str,
    /// From 1.
    pub line: u32,
    /// From 1.
    pub column: u32,
    /// Of which operation.
    pub role: Role,
    /// As written.
    pub order: Ordering,
}

impl Site {
    pub(crate) fn new(at: &'static Location<'static>, role: Role, order: Ordering) -> Self {
        Site {
            file: at.file(),
            line: at.line(),
            column: at.column(),
            role,
            order,
        }
    }

    /// Every way to weaken it by one step; `None` leaves a fence out.
    ///
    /// `SeqCst` accesses are left alone: loom takes them for `AcqRel` already.
    pub fn weaker(self) -> Vec<Fault> {
        let to: &[Option<Ordering>] = match (self.role, self.order) {
            (Role::Fence, Acquire | Release) => &[None],
            (Role::Fence, SeqCst) => &[Some(AcqRel)],
            (_, AcqRel) => &[Some(Acquire), Some(Release)],
            (_, Acquire | Release) => &[Some(Relaxed)],
            _ => &[],
        };
        to.iter().map(|&to| Fault { site: self, to }).collect()
    }
}

/// A site with a weaker ordering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where.
    pub site: Site,
    /// The ordering instead; no fence at all if there is none.
    pub to: Option<Ordering>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Site {
            file,
            line,
            column,
            role,
            order,
        } = self.site;
        write!(f, "{file}:{line}:{column} {role:?} {order:?} -> ")?;
        match self.to {
            Some(to) => write!(f, "{to:?}"),
            None => f.write_str("none"),
        }
    }
}

/// Notes sites.
#[derive(Clone, Debug, Default)]
pub struct Probe(Arc<Mutex<Vec<Site>>>);

impl Probe {
    /// The sites noted so far, in the order of the source.
    pub fn sites(&self) -> Vec<Site> {
        let mut sites = self.0.lock().expect("no holder panics").clone();
        sites.sort_by_key(|site| (site.file, site.line, site.column, site.role as u8));
        sites
    }

    fn note(&self, site: Site) {
        let mut sites = self.0.lock().expect("no holder panics");
        if !sites.contains(&site) {
            sites.push(site);
        }
    }
}

/// What a run does with the orderings it is asked for.
#[derive(Clone, Debug, Default)]
pub enum Orderings {
    /// Takes them.
    #[default]
    AsWritten,
    /// Takes and notes them.
    Probed(Probe),
    /// Takes them all but one.
    Weakened(Fault),
}

impl Orderings {
    /// The ordering that the operation at `at` gets; `None`: it is not done at all.
    pub(crate) fn of(&self, at: &'static Location<'static>, role: Role, order: Ordering) -> Option<Ordering> {
        match self {
            Orderings::AsWritten => {}
            Orderings::Probed(_) if order == Relaxed => {}
            Orderings::Probed(probe) => probe.note(Site::new(at, role, order)),
            Orderings::Weakened(fault) => {
                if fault.site == Site::new(at, role, order) {
                    return fault.to;
                }
            }
        }
        Some(order)
    }
}
