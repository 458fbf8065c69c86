//! CPU hogs: busy loops in user mode.

/// Parameters of the CPU hogs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hog {
    /// How many busy loops; `None`: one per vCPU, as the published experiments run them.
    pub tasks: Option<u32>,
}

impl Default for Hog {
    fn default() -> Self {
        Hog { tasks: None }
    }
}
