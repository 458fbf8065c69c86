//! Workloads of other crates.

use alloc::boxed::Box;
use core::any::Any;
use core::fmt;

use holdfast_guest::{Machine, Parameters, Program};

use crate::load::Load;

/// A workload of another crate, for guests of one kind of machine.
///
/// It begins with the default parameters of its type. Those that [`Load::parameters`] names can be set, and then it is
/// scaled.
#[derive(Clone)]
pub struct OwnWorkload {
    pub(crate) name: &'static str,
    pub(crate) ends: bool,
    pub(crate) throughput: Option<&'static str>,
    /// The share of the work that is done.
    pub(crate) share: f64,
    /// What can be set.
    pub parameters: Parameters,
    /// Makes a `Box<dyn Program<M>>` with these parameters, of this share, for this many CPUs.
    make: fn(&Parameters, f64, u32) -> Box<dyn Any>,
}

impl OwnWorkload {
    /// Returns the workload `L` for guests of the machine `M`, which experiments call `name`.
    pub fn of<L: Load, M: Machine>(name: &'static str) -> OwnWorkload {
        OwnWorkload {
            name,
            ends: L::ENDS,
            throughput: L::THROUGHPUT,
            share: 1.0,
            parameters: Parameters::of(L::default().parameters()),
            make: |parameters, share, cpus| {
                let mut load = L::default();
                parameters.copy_to(load.parameters());
                load.scale_work(share);
                let program: Box<dyn Program<M>> = load.program(cpus);
                Box::new(program)
            },
        }
    }

    /// Returns the name in experiments and results.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Makes the program.
    ///
    /// # Panics
    /// If `M` is not the machine that the workload was made for.
    pub(crate) fn program<M: Machine>(&self, cpus: u32) -> Box<dyn Program<M>> {
        let program = (self.make)(&self.parameters, self.share, cpus).downcast::<Box<dyn Program<M>>>();
        let Ok(program) = program else {
            panic!("the workload {} is for another machine", self.name)
        };
        *program
    }
}

// Not by what makes it: the same function can have several addresses.
impl PartialEq for OwnWorkload {
    fn eq(&self, other: &OwnWorkload) -> bool {
        let is_same = self.name == other.name && self.share.to_bits() == other.share.to_bits();
        is_same && self.parameters == other.parameters
    }
}

impl Eq for OwnWorkload {}

impl fmt::Debug for OwnWorkload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x {} {:?}", self.name, self.share, self.parameters)
    }
}
