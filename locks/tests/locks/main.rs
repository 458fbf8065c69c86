//! The locks on two platforms: `steps` executes interleavings one by one on a single thread, `threads` uses host
//! threads.

mod biased;
mod contract;
mod described;
mod explore;
mod histories;
mod hosted;
mod lineage;
mod overtaking;
mod queued;
mod races;
mod readers;
mod rwlocks;
mod scenes;
mod sharing;
mod spinners;
mod spinning;
mod steps;
mod threads;
mod traces;
mod unqueued;
mod watching;
