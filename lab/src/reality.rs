//! The real machine beneath this program: what it can do, what it costs, and what the locks do on it.

pub mod doctor;
