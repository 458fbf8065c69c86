//! The lab with a stand-in for the simulator.

mod fake;

mod everywhere;
mod explained;
mod files;
mod house;
mod mutations;
mod runs;
