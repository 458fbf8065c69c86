//! The command as its users meet it: exit status, standard output, standard error, files.

mod command;

mod calibrate;
mod compared;
mod input;
mod kvm;
mod output;
mod report;
mod runs;
mod shipped;
mod trace;
