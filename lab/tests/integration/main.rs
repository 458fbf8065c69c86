//! The lab with a stand-in for the simulator; shipped experiments, small, in the simulator itself.

mod fake;

mod avic;
mod directed_yield;
mod documents;
mod everywhere;
mod explained;
mod files;
mod house;
mod mutations;
mod prose;
mod runs;
mod schedulers;
mod walls;
