//! What the operating system does for threads that wait: it puts them to sleep and wakes them, gives back their numbers
//! when they end, and knows where they run.
//!
//! On Linux that is `linux`. Elsewhere it is `anywhere`, which needs the standard library only.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
pub(crate) use linux::*;

#[cfg(any(test, not(target_os = "linux")))]
mod anywhere;
#[cfg(not(target_os = "linux"))]
pub(crate) use anywhere::*;
