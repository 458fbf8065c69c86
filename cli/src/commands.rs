//! One module for each command.

pub mod bench;
pub mod calibrate;
pub mod compare;
pub mod explain;
pub mod keys;
pub mod kvm;
pub mod list;
pub mod report;
pub mod run;
pub mod show;
pub mod trace;
pub mod validate;
pub mod validate_here;
