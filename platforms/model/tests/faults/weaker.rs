//! Orderings of the locks' source, each weakened by one step.

use std::fmt;
use std::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::{Arc, Mutex};

use holdfast_model::fault::{Orderings, Role, Site};

/// A site with a weaker ordering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// The site.
    pub(super) site: Site,
    /// The weaker ordering, or `None` if the fence is left out.
    pub(super) to: Option<Ordering>,
}

impl Fault {
    /// Returns the orderings as written, except this one.
    pub(super) fn orderings(self) -> Orderings {
        Orderings::treated(move |site| if site == self.site { self.to } else { Some(site.order) })
    }
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

/// Returns every way to weaken the ordering of `site` by one step.
///
/// `SeqCst` accesses are not weakened, because loom treats them as `AcqRel` anyway.
pub(super) fn weaker(site: Site) -> Vec<Fault> {
    let to: &[Option<Ordering>] = match (site.role, site.order) {
        (Role::Fence, Acquire | Release) => &[None],
        (Role::Fence, SeqCst) => &[Some(AcqRel)],
        (_, AcqRel) => &[Some(Acquire), Some(Release)],
        (_, Acquire | Release) => &[Some(Relaxed)],
        _ => &[],
    };
    to.iter().map(|&to| Fault { site, to }).collect()
}

/// Returns what sorts sites in the order of the source.
pub(super) fn in_source(site: &Site) -> (&'static str, u32, u32, u8) {
    (site.file, site.line, site.column, site.role as u8)
}

/// A record of the sites that an execution reaches.
#[derive(Clone, Debug, Default)]
pub(super) struct Probe(Arc<Mutex<Vec<Site>>>);

impl Probe {
    /// Returns the sites recorded so far.
    pub(super) fn sites(&self) -> Vec<Site> {
        self.0.lock().expect("no holder panics").clone()
    }

    /// Returns the orderings as written. Their sites are recorded, except those of relaxed operations.
    pub(super) fn orderings(&self) -> Orderings {
        let probe = self.clone();
        Orderings::treated(move |site| {
            let mut sites = probe.0.lock().expect("no holder panics");
            if site.order != Relaxed && !sites.contains(&site) {
                sites.push(site);
            }
            Some(site.order)
        })
    }
}
