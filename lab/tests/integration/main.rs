//! Tests of the lab with a stand-in for the simulator, and of shipped experiments at small scale in the simulator.

mod fake;

mod adaptive;
mod advised;
mod avic;
mod book;
mod capacity;
mod coverage;
mod directed_yield;
mod documents;
mod every_key;
mod everywhere;
mod explained;
mod files;
mod findings;
mod histories;
mod house;
mod judged;
mod kernels;
mod ledger;
mod matrix;
mod mutations;
mod orders;
mod packages;
mod preemption;
mod prose;
mod published;
mod recorded;
mod repeated;
mod reports;
mod rules;
mod runs;
mod schedulers;
mod sweep;
mod units;
mod walls;
