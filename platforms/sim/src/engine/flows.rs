//! The flows of a run: which one executes, where the loop waits, and what the executing flow wants from the loop.

use holdfast_host::{Exit, VcpuId};

use crate::engine::handle::Handle;
use crate::stacks::context::Saved;
use crate::stacks::stack::Stacks;
use crate::tasks::native::Call;

/// The flows of a run.
#[derive(Debug)]
pub struct Flows {
    /// The vCPU whose flow executes.
    pub current: VcpuId,
    /// The loop's own flow, while another one executes.
    pub main: Saved,
    /// The engine's handle on itself, for new flows.
    pub handle: Option<Handle>,
    /// Stacks of the guests' flows.
    pub stacks: Stacks,
    /// The executing flow leaves its guest for this exit.
    pub exit: Option<Exit>,
    /// The executing flow of the bare-metal kernel makes this call.
    pub call: Option<Call>,
    /// Spins are executed instead of skipped.
    pub execute_spins: bool,
}

impl Flows {
    /// No flow executes yet.
    pub fn new() -> Flows {
        Flows {
            current: VcpuId(0),
            main: Saved::NONE,
            handle: None,
            stacks: Stacks::default(),
            exit: None,
            call: None,
            execute_spins: false,
        }
    }
}
