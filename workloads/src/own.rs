//! Workloads of other crates.

use alloc::boxed::Box;
use core::any::Any;
use core::fmt;

use holdfast_guest::{Machine, Program};

use crate::load::Load;

/// A workload of another crate, for guests of one kind of machine.
///
/// It begins with the default parameters of its type, scaled. A program that wants them in other sizes adds the type
/// several times, with constants as parameters.
#[derive(Clone, Copy)]
pub struct OwnWorkload {
    pub(crate) name: &'static str,
    pub(crate) ends: bool,
    pub(crate) throughput: Option<&'static str>,
    /// The share of the work that is done.
    pub(crate) share: f64,
    /// Makes a `Box<dyn Program<M>>` of this share, for this many CPUs.
    make: fn(f64, u32) -> Box<dyn Any>,
}

impl OwnWorkload {
    /// Returns the workload `L` for guests of the machine `M`, which experiments call `name`.
    pub fn of<L: Load, M: Machine>(name: &'static str) -> OwnWorkload {
        OwnWorkload {
            name,
            ends: L::ENDS,
            throughput: L::THROUGHPUT,
            share: 1.0,
            make: |share, cpus| {
                let mut parameters = L::default();
                parameters.scale_work(share);
                let program: Box<dyn Program<M>> = parameters.program(cpus);
                Box::new(program)
            },
        }
    }

    /// Returns the name in experiments and results.
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// Makes the program.
    ///
    /// # Panics
    /// If `M` is not the machine that the workload was made for.
    pub(crate) fn program<M: Machine>(&self, cpus: u32) -> Box<dyn Program<M>> {
        let program = (self.make)(self.share, cpus).downcast::<Box<dyn Program<M>>>();
        let Ok(program) = program else {
            panic!("the workload {} is for another machine", self.name)
        };
        *program
    }
}

// By name and share: the same function can have several addresses.
impl PartialEq for OwnWorkload {
    fn eq(&self, other: &OwnWorkload) -> bool {
        self.name == other.name && self.share.to_bits() == other.share.to_bits()
    }
}

impl Eq for OwnWorkload {}

impl fmt::Debug for OwnWorkload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x {}", self.name, self.share)
    }
}
