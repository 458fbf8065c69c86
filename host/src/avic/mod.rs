//! AMD's AVIC, driven: tables, IsRunning, exits, and when it is on at all (§6).

pub mod handshake;
