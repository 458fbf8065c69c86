//! The command as its users meet it: exit status, standard output, standard error, files.

mod command;

mod calibrate;
mod compared;
mod hostile;
mod input;
#[cfg(target_os = "linux")]
mod interrupts;
mod kvm;
mod output;
mod real_host;
mod report;
mod runs;
mod shipped;
#[cfg(target_os = "linux")]
mod terminal;
#[cfg(target_os = "linux")]
mod testhost;
mod trace;
