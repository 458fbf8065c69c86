//! The orderings in the locks' source, and executions with one of them weakened.
//!
//! Each operation of a lock on its CPU has a site: the line and column of the call. A [`Probe`] records every site with
//! an ordering stronger than `Relaxed`. A [`Fault`] weakens the ordering of one site by one step. If a checker finds
//! every fault of a site, the ordering is necessary.

use std::fmt;
use std::panic::Location;
use std::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::{Arc, Mutex};

/// The kind of operation to which an ordering belongs.
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
    /// The path from the workspace's root.
    pub file: &'static str,
    /// The line, counted from 1.
    pub line: u32,
    /// The column, counted from 1.
    pub column: u32,
    /// The kind of operation.
    pub role: Role,
    /// The ordering in the source.
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

    /// Returns every way to weaken the ordering by one step.
    ///
    /// `SeqCst` accesses are not weakened, because loom treats them as `AcqRel` anyway.
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
    /// The site.
    pub site: Site,
    /// The weaker ordering, or `None` if the fence is left out.
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

/// A record of the sites that an execution reaches.
#[derive(Clone, Debug, Default)]
pub struct Probe(Arc<Mutex<Vec<Site>>>);

impl Probe {
    /// Returns the sites recorded so far, in the order of the source.
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

/// The treatment of the orderings in the locks' source.
#[derive(Clone, Debug, Default)]
pub enum Orderings {
    /// Uses the orderings as written.
    #[default]
    AsWritten,
    /// Uses the orderings as written and records their sites.
    Probed(Probe),
    /// Uses the orderings as written except one.
    Weakened(Fault),
}

impl Orderings {
    /// Returns the ordering of the operation at `at`, or `None` if the operation is left out.
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
