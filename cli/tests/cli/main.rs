//! The command from the user's view: exit status, standard output, standard error, files.

mod advise;
mod bad_inputs;
mod command;

mod compared;
mod first_hour;
mod host_results;
mod hostile;
mod import;
mod input;
#[cfg(target_os = "linux")]
mod interrupts;
mod new;
mod output;
#[cfg(feature = "real-host")]
mod real_host;
mod recorded_hosts;
mod report;
mod runs;
mod shipped;
#[cfg(target_os = "linux")]
mod submit;
mod tables;
#[cfg(target_os = "linux")]
mod terminal;
#[cfg(target_os = "linux")]
mod testhost;
mod trace;
mod tutorial;
#[cfg(target_os = "linux")]
mod units;
mod walk;
#[cfg(not(feature = "real-host"))]
mod without_real_host;
