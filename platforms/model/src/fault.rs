//! The orderings in the locks' source, and executions with other ones.
//!
//! Each operation of a lock on its CPU has a [`Site`]: the line and column of the call. A test records the sites, and
//! weakens the ordering of one site by one step. If a checker finds every such fault of a site, the ordering is
//! necessary.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::Ordering;

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
    fn new(at: &'static Location<'static>, role: Role, order: Ordering) -> Self {
        Site {
            file: at.file(),
            line: at.line(),
            column: at.column(),
            role,
            order,
        }
    }
}

/// The treatment of the orderings in the locks' source, which are used as written by default.
#[derive(Clone, Default)]
pub struct Orderings(Option<Arc<dyn Fn(Site) -> Option<Ordering> + Send + Sync>>);

impl Orderings {
    /// Uses the orderings that `treat` returns. An operation for which it returns `None`, which must be a fence, is
    /// left out.
    pub fn treated(treat: impl Fn(Site) -> Option<Ordering> + Send + Sync + 'static) -> Self {
        Orderings(Some(Arc::new(treat)))
    }

    /// Returns the ordering of the operation at `at`, or `None` if the operation is left out.
    pub(crate) fn of(&self, at: &'static Location<'static>, role: Role, order: Ordering) -> Option<Ordering> {
        match &self.0 {
            None => Some(order),
            Some(treat) => treat(Site::new(at, role, order)),
        }
    }
}

impl fmt::Debug for Orderings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "treated" } else { "as written" })
    }
}
